//! Static buckets: tensors are assigned to messages in advance, and nothing is negotiated. Frameworks' own
//! libraries do this, since they know the model. All ranks must register the same tensors in the same order.
//!
//! `ddp` is torch DistributedDataParallel: the first step reduces one bucket of each kind of tensor; then
//! buckets are rebuilt in the order in which rank 0 saw tensors become ready. A bucket closes at the first
//! tensor with which it reaches its cap: 25 MiB, the first one 1 MiB; or the cap in the name, as in
//! `ddp:10`, for all of them. `packs` is like tf.distribute's packs: tensors in the reverse order of
//! their definition, in one pack, or in packs that close when they are larger than the name says.
//!
//! Buckets are reduced in their order, each as soon as all of it is ready.

use std::sync::Arc;

use super::answer::Answer;
use super::error::ControlError;
use super::message::{Items, Writer};
use super::mutation::{Mutation, Mutations};
use super::plane::{ControlPlane, Effect, Event};
use super::queue::Queue;
use super::report::Report;
use super::response::Response;
use super::settings::Settings;
use super::shutdown::Shutdown;
use super::stop::Stop;
use super::tensor::TensorId;
use super::tensors::Tensors;
use crate::topology::Rank;

/// DDP's name in configurations and CSV files; a cap in MiB may follow.
pub const DDP: &str = "ddp";

/// The name of packs; a size in MiB may follow.
pub const PACKS: &str = "packs";

const FIRST_CAP_BYTES: usize = 1 << 20;
const CAP_BYTES: usize = 25 << 20;

/// Reduces static buckets.
pub struct Buckets {
    base: &'static str,
    /// From the name.
    size_bytes: Option<usize>,
    tensors: Arc<Tensors>,
    rank: Rank,
    ranks: usize,
    queue: Queue,
    shutdown: Shutdown,
    buckets: Vec<Arc<[TensorId]>>,
    /// For each name: ready in this step.
    is_ready: Vec<bool>,
    /// Buckets reduced in this step.
    done: usize,
    /// Tensors in the order in which they became ready in the first step; `None` afterwards.
    observed: Option<Vec<TensorId>>,
    /// The order of rank 0, if it arrives before this rank needs it.
    early: Option<Vec<TensorId>>,
    in_cycle: bool,
    drained: Vec<u32>,
    report: Report,
    mutations: Mutations,
}

impl Buckets {
    /// The plane of one rank; `base` is [`DDP`] or [`PACKS`].
    pub fn new(
        base: &str,
        size_bytes: Option<usize>,
        tensors: Arc<Tensors>,
        settings: &Settings,
    ) -> Buckets {
        let all = 0..tensors.len();
        let is_ddp = base == DDP;
        let buckets = if is_ddp {
            closed(&tensors, all.collect(), |_| usize::MAX)
        } else {
            packs(&tensors, all.rev(), size_bytes)
        };
        Buckets {
            base: if is_ddp { DDP } else { PACKS },
            size_bytes,
            rank: settings.rank,
            ranks: settings.ranks,
            queue: Queue::new(tensors.clone()),
            shutdown: Shutdown::new(settings.mutations),
            buckets,
            is_ready: vec![false; tensors.names()],
            done: 0,
            observed: is_ddp.then(Vec::new),
            early: None,
            in_cycle: false,
            drained: Vec::new(),
            report: Report::default(),
            tensors,
            mutations: settings.mutations,
        }
    }

    fn unexpected(&self, event: &'static str) -> ControlError {
        ControlError::Unexpected { rank: self.rank, event }
    }

    /// Reduces every bucket that is complete and whose predecessors are complete.
    fn cycle(&mut self, out: &mut Vec<Effect>) {
        self.queue.drain(&mut self.drained);
        for &id in &self.drained {
            self.is_ready[self.tensors.name_of(id as TensorId)] = true;
        }
        if let Some(observed) = &mut self.observed {
            observed.extend(self.drained.iter().map(|&id| id as TensorId));
        }
        while let Some(bucket) = self.buckets.get(self.done) {
            if !bucket.iter().all(|&id| self.is_ready[self.tensors.name_of(id)]) {
                break;
            }
            self.queue.finish_all(bucket);
            self.report.stops[Stop::Alone as usize] += 1;
            let tensors = bucket.clone();
            out.push(Effect::Execute(Response { tensors, error: None, stop: Stop::Alone }));
            self.done += 1;
        }
        if self.done == self.buckets.len() && !self.buckets.is_empty() {
            self.done = 0;
            self.is_ready.fill(false);
            match self.observed.take() {
                Some(observed) if self.rank == 0 => self.announce(observed, out),
                Some(_) => match self.early.take() {
                    Some(order) => self.rebuild(order),
                    // The cycle ends when the order of rank 0 arrives.
                    None => return,
                },
                None => {}
            }
        }
        self.end_cycle(out);
    }

    fn end_cycle(&mut self, out: &mut Vec<Effect>) {
        self.in_cycle = false;
        let answer = Answer { responses: Vec::new(), shut_down: self.shutdown.raised() };
        self.shutdown.end_cycle(answer, &mut self.queue, &mut self.report, out);
    }

    /// Rank 0, after the first step: the order in which it saw tensors, for all.
    fn announce(&mut self, order: Vec<TensorId>, out: &mut Vec<Effect>) {
        if self.ranks > 1 {
            let mut message = Writer::order(order.len());
            order.iter().for_each(|&id| message.name(&self.tensors.get(id).name));
            let message = message.finish();
            self.report.messages_sent += self.ranks - 1;
            self.report.bytes_wire_sent += (self.ranks - 1) * message.len();
            out.push(Effect::Broadcast(message.into()));
        }
        self.rebuild(order);
    }

    fn rebuild(&mut self, order: Vec<TensorId>) {
        if self.mutations.has(Mutation::OrderNotRebuilt) {
            return;
        }
        let cap = |bucket: usize| match (self.size_bytes, bucket) {
            (Some(cap), _) => cap,
            (None, 0) => FIRST_CAP_BYTES,
            (None, _) => CAP_BYTES,
        };
        self.buckets = closed(&self.tensors, order, cap);
    }

    fn arrived(
        &mut self,
        from: Rank,
        message: &[u8],
        out: &mut Vec<Effect>,
    ) -> Result<(), ControlError> {
        self.report.messages_received += 1;
        self.report.bytes_wire_received += message.len();
        if from != 0 || self.base != DDP || self.early.is_some() {
            return Err(self.unexpected("an order of tensors"));
        }
        let refuse = |malformed| ControlError::Malformed { from, malformed };
        let mut items = Items::order(message).map_err(refuse)?;
        let mut order = Vec::new();
        while let Some(name) = items.next_name().map_err(refuse)? {
            let same = |id: &TensorId| self.tensors.get(*id).name == name;
            let id = self.tensors.find(name).and_then(|_| (0..self.tensors.len()).find(same));
            let (rank, name) = (self.rank, name.to_string());
            order.push(id.ok_or(ControlError::NotReady { rank, name, is_registered: false })?);
        }
        if self.in_cycle {
            self.rebuild(order);
            self.end_cycle(out);
        } else {
            self.early = Some(order);
        }
        Ok(())
    }
}

impl ControlPlane for Buckets {
    fn name(&self) -> String {
        match self.size_bytes {
            None => self.base.into(),
            Some(size) => format!("{}:{}", self.base, size >> 20),
        }
    }

    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError> {
        self.shutdown.check(self.rank)?;
        match event {
            Event::Ready(ids) => return self.queue.push(ids),
            Event::ShutDown => self.shutdown.is_wanted = true,
            Event::Cycle(_) if self.in_cycle => return Err(self.unexpected("Cycle")),
            Event::Cycle(_) => {
                self.report.cycles += 1;
                self.in_cycle = true;
                self.cycle(out);
            }
            Event::Arrived { from, message } => self.arrived(from, message, out)?,
            Event::Combined(_) => return Err(self.unexpected("Combined")),
        }
        Ok(())
    }

    fn waits_for(&self) -> Vec<Rank> {
        if self.in_cycle { vec![0] } else { Vec::new() }
    }

    fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }

    fn is_paced(&self) -> bool {
        false
    }
}

/// Buckets over tensors in this order. Each kind of tensor fills buckets of its own; a bucket closes at the
/// first tensor with which it reaches the cap of its number. Buckets come in the order of their first tensors.
fn closed(
    tensors: &Tensors,
    order: Vec<TensorId>,
    cap: impl Fn(usize) -> usize,
) -> Vec<Arc<[TensorId]>> {
    struct Open {
        first: usize,
        members: Vec<TensorId>,
        size_bytes: usize,
    }
    let mut open: Vec<(usize, Open)> = Vec::new();
    let mut buckets: Vec<(usize, Vec<TensorId>)> = Vec::new();
    for (place, &id) in order.iter().enumerate() {
        let kind = tensors.kind(id);
        let at = match open.iter().position(|(other, _)| *other == kind) {
            Some(at) => at,
            None => {
                open.push((kind, Open { first: place, members: Vec::new(), size_bytes: 0 }));
                open.len() - 1
            }
        };
        let bucket = &mut open[at].1;
        bucket.members.push(id);
        bucket.size_bytes += tensors.size_bytes(id);
        if bucket.size_bytes >= cap(buckets.len()) {
            let (_, bucket) = open.swap_remove(at);
            buckets.push((bucket.first, bucket.members));
        }
    }
    buckets.extend(open.into_iter().map(|(_, bucket)| (bucket.first, bucket.members)));
    buckets.sort();
    buckets.into_iter().map(|(_, members)| members.into()).collect()
}

/// Packs of tensors in this order; one that is larger than the size is closed.
fn packs(
    tensors: &Tensors,
    order: impl Iterator<Item = TensorId>,
    size_bytes: Option<usize>,
) -> Vec<Arc<[TensorId]>> {
    let mut packs: Vec<(Vec<TensorId>, usize)> = Vec::new();
    for id in order {
        let has_room = |pack: &&mut (Vec<TensorId>, usize)| {
            tensors.may_fuse(pack.0[0], id) && size_bytes.is_none_or(|size| pack.1 <= size)
        };
        match packs.last_mut().filter(has_room) {
            Some((members, size)) => {
                members.push(id);
                *size += tensors.size_bytes(id);
            }
            None => packs.push((vec![id], tensors.size_bytes(id))),
        }
    }
    packs.into_iter().map(|(members, _)| members.into()).collect()
}
