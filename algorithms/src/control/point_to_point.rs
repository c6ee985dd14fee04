//! The coordinator of the first Horovod (up to v0.13.2, that of the 2018 paper): a message to rank 0 for
//! every tensor that became ready, and one that ends the list; then a message to every rank for every
//! response, and one that ends the cycle.
//!
//! With n tensors and r responses in a cycle rank 0 receives (n + 1)(P - 1) messages and sends
//! (r + 1)(P - 1). It counts requests as they arrive. Message sizes are those of lists of one; the last
//! messages are empty. Horovod replaced this plane by collectives ([`super::coordinator`]), which are trees
//! internally, since it did not scale beyond some 10,000 GPUs. Its background loop slept for the whole cycle
//! time before each cycle; here all planes have the same pace.

use std::sync::Arc;

use super::answer::{self, Answer};
use super::error::ControlError;
use super::message::{Writer, requests_horovod};
use super::mutation::{Mutation, Mutations};
use super::plane::{ControlPlane, Effect, Event};
use super::queue::Queue;
use super::report::Report;
use super::settings::Settings;
use super::shutdown::Shutdown;
use super::tally::Tally;
use super::tensors::Tensors;
use crate::topology::Rank;

/// Its name in configurations and CSV files.
pub const NAME: &str = "point-to-point";

/// Negotiates by rank 0 in every cycle, with a message per tensor.
pub struct PointToPoint {
    queue: Queue,
    tally: Tally,
    shutdown: Shutdown,
    drained: Vec<u32>,
    /// Between this rank's requests and the end of the answer.
    running: bool,
    /// Rank 0: for each child, whether it has sent all its requests of this cycle.
    is_done: Vec<bool>,
    /// The number of children that have not.
    missing: usize,
    /// Rank 0: messages of the next cycle.
    early: Vec<(Rank, Box<[u8]>)>,
    /// Other ranks: the responses of this cycle so far.
    answer: Answer,
    mutations: Mutations,
    report: Report,
}

impl PointToPoint {
    /// The plane of one rank.
    pub fn new(tensors: Arc<Tensors>, settings: &Settings) -> PointToPoint {
        let &Settings { rank, ranks, mutations, .. } = settings;
        let children = if rank == 0 { 1..ranks } else { 0..0 };
        PointToPoint {
            queue: Queue::new(tensors.clone()),
            is_done: vec![false; children.len()],
            missing: children.len(),
            tally: Tally::new(tensors, settings, children),
            shutdown: Shutdown::new(mutations),
            drained: Vec::new(),
            running: false,
            early: Vec::new(),
            answer: Answer::default(),
            mutations,
            report: Report::default(),
        }
    }

    fn unexpected(&self, event: &'static str) -> ControlError {
        ControlError::Unexpected { rank: self.tally.rank, event }
    }

    /// A message of `from` to rank 0: a request, or that there are no more.
    fn requested(&mut self, from: Rank, message: &[u8]) -> Result<(), ControlError> {
        let child = from - self.tally.children.start;
        if self.is_done[child] {
            return Err(self.unexpected("requests of the next cycle"));
        }
        if self.tally.requests(from, message)? == 0 {
            self.is_done[child] = true;
            self.missing -= 1;
        }
        Ok(())
    }

    /// Rank 0: the answer, once all children have sent all their requests.
    fn answered(&mut self, out: &mut Vec<Effect>) -> Option<Answer> {
        if self.missing > usize::from(self.mutations.has(Mutation::EndNotAwaited)) {
            return None;
        }
        self.is_done.fill(false);
        self.missing = self.is_done.len();
        self.running = false;
        let responses = self.tally.fused(Vec::new());
        let shut_down = self.tally.shut_down;
        for response in responses.chunks(1) {
            let message = answer::write(response, false, &self.tally.tensors);
            let bytes_horovod = answer::horovod_bytes(&message, self.is_done.len() + 1);
            self.broadcast(message, bytes_horovod, out);
        }
        self.broadcast(answer::write(&[], shut_down, &self.tally.tensors), 0, out);
        Some(Answer { responses, shut_down })
    }

    /// Rank 0: sends a message to all.
    fn broadcast(&mut self, message: Vec<u8>, bytes_horovod: usize, out: &mut Vec<Effect>) {
        let others = self.tally.children.len();
        if others > 0 {
            self.report.sent(others, message.len(), bytes_horovod);
            out.push(Effect::Broadcast(message.into()));
        }
    }

    /// Other ranks: a message of rank 0, a response or the end of the answer.
    fn response(&mut self, message: &[u8]) -> Result<Option<Answer>, ControlError> {
        let Tally { rank, tensors, .. } = &self.tally;
        let received = answer::read((0, message), *rank, tensors, &self.queue)?;
        let is_over = received.responses.is_empty();
        self.answer.responses.extend(received.responses);
        self.answer.shut_down |= received.shut_down;
        if !is_over {
            return Ok(None);
        }
        self.running = false;
        Ok(Some(std::mem::take(&mut self.answer)))
    }

    /// Other ranks: sends what is ready to rank 0, one by one.
    fn send_requests(&mut self, out: &mut Vec<Effect>) {
        let Tally { tensors, complete, shut_down, .. } = &mut self.tally;
        let mut send = |list: Writer, bytes_horovod| {
            let message = list.finish();
            self.report.sent(1, message.len(), bytes_horovod);
            out.push(Effect::Send { to: 0, message: message.into() });
        };
        for id in complete.drain(..).map(|done| done.tensor) {
            let mut list = Writer::requests(false, 1);
            list.request(tensors.request(id));
            let tensor = tensors.get(id);
            let fields = (tensor.name.len(), tensor.shape.len());
            send(list, requests_horovod(std::iter::once(fields)));
        }
        send(Writer::requests(*shut_down, 0), 0);
    }
}

impl ControlPlane for PointToPoint {
    fn name(&self) -> String {
        NAME.into()
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        let rank = self.tally.rank;
        self.shutdown.check(rank)?;
        let answer = match event {
            Event::Ready(ids) => return self.queue.push(ids),
            Event::ShutDown => {
                self.shutdown.is_wanted = true;
                return Ok(());
            }
            Event::Combined(_) => return Err(self.unexpected("Combined")),
            Event::Cycle(_) if self.running => return Err(self.unexpected("Cycle")),
            Event::Cycle(now) => {
                self.running = true;
                self.report.cycles += 1;
                self.report.slow_cycles += 1;
                self.shutdown.is_wanted |= self.tally.look_for_stalls(now, out);
                self.queue.drain(&mut self.drained);
                self.tally.begin(&self.drained, self.shutdown.raised(), now)?;
                if rank != 0 {
                    self.send_requests(out);
                    return Ok(());
                }
                for (from, message) in std::mem::take(&mut self.early) {
                    self.requested(from, &message)?;
                }
                self.answered(out)
            }
            Event::Arrived { from, message } => {
                self.report.messages_received += 1;
                self.report.bytes_wire_received += message.len();
                match (self.tally.children.contains(&from), self.running) {
                    (true, true) => {
                        self.requested(from, message)?;
                        self.answered(out)
                    }
                    (true, false) => {
                        if !self.mutations.has(Mutation::EarlyRequestLost) {
                            self.early.push((from, message.into()));
                        }
                        None
                    }
                    (false, true) if from == 0 && rank != 0 => self.response(message)?,
                    _ => return Err(self.unexpected("an answer")),
                }
            }
        };
        if let Some(answer) = answer {
            self.shutdown.end_cycle(answer, &mut self.queue, &mut self.report, out);
        }
        Ok(())
    }

    fn waits_for(&self) -> Vec<Rank> {
        match (self.running, self.tally.rank) {
            (false, _) => Vec::new(),
            (true, 0) => {
                let missing = self.tally.children.clone().zip(&self.is_done);
                missing.filter(|(_, done)| !**done).map(|(rank, _)| rank).collect()
            }
            (true, _) => vec![0],
        }
    }

    fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }
}
