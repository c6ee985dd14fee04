//! The negotiation between all ranks and rank 0: requests go up, the answer comes down. In a star every
//! rank sends to rank 0; in a tree a rank passes on the tensors that are ready in all of its subtree.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{self, Answer};
use super::error::ControlError;
use super::message::{Writer, requests_horovod};
use super::mutation::{Mutation, Mutations};
use super::plane::Effect;
use super::queue::Queue;
use super::report::Report;
use super::settings::Settings;
use super::table::Complete;
use super::tally::Tally;
use super::tensors::Tensors;
use crate::fusion::Candidate;
use crate::topology::Rank;

/// Horovod sends the length of a message in a collective of its own.
const LENGTH_BYTES: usize = 4;

/// One rank's part in the negotiation.
pub(super) struct Negotiation {
    tally: Tally,
    ranks: usize,
    /// The radix of the tree; `None` in a star.
    radix: Option<usize>,
    /// Between this rank's requests and the answer.
    pub(super) running: bool,
    /// Whether the requests of this cycle have been sent to the parent.
    has_passed_on: bool,
    /// Lists that have arrived and cannot be counted yet.
    early: Vec<Option<Box<[u8]>>>,
    /// Children whose lists have been counted.
    counted: usize,
    /// Rank 0 only: tensors that need no counting.
    cached: Vec<Candidate>,
    mutations: Mutations,
    pub(super) report: Report,
}

impl Negotiation {
    pub(super) fn new(
        tensors: Arc<Tensors>,
        settings: &Settings,
        radix: Option<usize>,
    ) -> Negotiation {
        let &Settings { rank, ranks, mutations, .. } = settings;
        let children = match radix {
            None if rank == 0 => 1..ranks,
            None => 0..0,
            Some(radix) => (rank * radix + 1).min(ranks)..(rank * radix + radix + 1).min(ranks),
        };
        Negotiation {
            ranks,
            radix,
            running: false,
            has_passed_on: false,
            early: vec![None; children.len()],
            counted: 0,
            tally: Tally::new(tensors, settings, children),
            cached: Vec::new(),
            mutations,
            report: Report::default(),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.tally.rank
    }

    pub(super) fn unexpected(&self, event: &'static str) -> ControlError {
        ControlError::Unexpected { rank: self.tally.rank, event }
    }

    /// As [`Tally::look_for_stalls`].
    pub(super) fn look_for_stalls(&mut self, now: Duration, out: &mut Vec<Effect>) -> bool {
        self.tally.look_for_stalls(now, out)
    }

    /// Children whose lists are missing; after that, the parent.
    pub(super) fn waits_for(&self) -> Vec<Rank> {
        if !self.running {
            return Vec::new();
        }
        let children = &self.tally.children;
        let is_missing = |child: &usize| *child >= self.counted && self.early[*child].is_none();
        let missing = (0..children.len()).filter(is_missing);
        let missing: Vec<_> = missing.map(|child| children.start + child).collect();
        if self.has_passed_on { self.parent().into_iter().collect() } else { missing }
    }

    fn parent(&self) -> Option<Rank> {
        let above = self.tally.rank.checked_sub(1)?;
        Some(above / self.radix.unwrap_or(self.ranks))
    }

    /// Sends this rank's requests to its parent, once all its children have sent theirs. `cached` are tensors
    /// that all ranks have agreed on by their caches. Returns the answer if no other rank is needed for it.
    pub(super) fn request(
        &mut self,
        ids: &[u32],
        cached: Vec<Candidate>,
        shut_down: bool,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        if self.running {
            return Err(self.unexpected("Cycle"));
        }
        (self.running, self.has_passed_on) = (true, false);
        self.report.slow_cycles += 1;
        self.cached = cached;
        self.tally.begin(ids, shut_down, now)?;
        if self.tally.is_leaf() {
            self.pass_on(out);
            return Ok(None);
        }
        self.go_on(out)
    }

    /// Takes the list of a child, or the answer of the parent.
    pub(super) fn arrived(
        &mut self,
        from: Rank,
        message: &[u8],
        queue: &Queue,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, ControlError> {
        self.report.messages_received += 1;
        self.report.bytes_wire_received += message.len();
        if self.tally.children.contains(&from) {
            let child = from - self.tally.children.start;
            if child < self.counted || self.early[child].is_some() {
                return Err(self.unexpected("a second list of requests"));
            }
            if self.running && child == self.counted {
                self.count_list(message)?;
            } else {
                self.early[child] = Some(message.into());
            }
            return if self.running { self.go_on(out) } else { Ok(None) };
        }
        if !self.running || self.parent() != Some(from) {
            return Err(self.unexpected("an answer"));
        }
        self.running = false;
        if self.radix.is_some() {
            self.hand_down(message, out);
        }
        let Tally { rank, tensors, .. } = &self.tally;
        answer::read((from, message), *rank, tensors, queue).map(Some)
    }

    /// Counts the lists that arrived from children, in their order; passes on or answers after the last.
    fn go_on(&mut self, out: &mut Vec<Effect>) -> Result<Option<Answer>, ControlError> {
        while let Some(list) = self.early.get_mut(self.counted).and_then(Option::take) {
            self.count_list(&list)?;
        }
        let missing = self.tally.children.len() - self.counted;
        let is_root = self.tally.rank == 0;
        if missing > usize::from(self.mutations.has(Mutation::SubtreeNotAwaited) && !is_root) {
            return Ok(None);
        }
        self.counted = 0;
        if !is_root {
            self.pass_on(out);
            return Ok(None);
        }
        self.running = false;
        Ok(Some(self.answer(out)))
    }

    /// Counts the requests of the next child, or what is ready in its subtree.
    fn count_list(&mut self, message: &[u8]) -> Result<(), ControlError> {
        let from = self.tally.children.start + self.counted;
        self.counted += 1;
        match self.radix {
            None => self.tally.requests(from, message).map(|_| ()),
            Some(_) => self.tally.subtree(from, message),
        }
    }

    /// Sends the parent this leaf's requests, or what is ready in this rank's subtree.
    fn pass_on(&mut self, out: &mut Vec<Effect>) {
        let Tally { tensors, complete, shut_down, .. } = &mut self.tally;
        let shape = |done: &Complete| {
            let tensor = tensors.get(done.tensor);
            (tensor.name.len(), tensor.shape.len())
        };
        let bytes_horovod = LENGTH_BYTES + requests_horovod(complete.iter().map(shape));
        let mut list = match self.radix {
            None => Writer::requests(*shut_down, complete.len()),
            Some(_) => Writer::ready(*shut_down, complete.len()),
        };
        for done in complete.drain(..) {
            let body = tensors.request(done.tensor);
            match self.radix {
                None => list.request(body),
                Some(_) => list.subtree(done.rank, done.error.as_deref(), body),
            }
        }
        self.has_passed_on = true;
        let (to, message) = (self.parent().expect("not rank 0"), list.finish());
        self.report.sent(1, message.len(), bytes_horovod);
        out.push(Effect::Send { to, message: message.into() });
    }

    /// Rank 0: the tensors that are ready on all ranks, fused.
    fn answer(&mut self, out: &mut Vec<Effect>) -> Answer {
        let responses = self.tally.fused(std::mem::take(&mut self.cached));
        let shut_down = self.tally.shut_down;
        if self.ranks > 1 {
            self.hand_down(&answer::write(&responses, shut_down, &self.tally.tensors), out);
        }
        Answer { responses, shut_down }
    }

    /// Sends the answer to all children.
    fn hand_down(&mut self, message: &[u8], out: &mut Vec<Effect>) {
        let children = self.tally.children.clone();
        let bytes_horovod = LENGTH_BYTES + answer::horovod_bytes(message, self.ranks);
        self.report.sent(children.len(), message.len(), bytes_horovod);
        let message: Arc<[u8]> = message.into();
        match self.radix {
            None => out.push(Effect::Broadcast(message)),
            Some(_) => {
                out.extend(children.map(|to| Effect::Send { to, message: message.clone() }));
            }
        }
    }
}
