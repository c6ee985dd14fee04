//! Runs compiled programs without data and in adversarial orders: sets of contributors instead of
//! numbers, a rendezvous instead of a network.
//!
//! The rules are those of the strictest transport: a receiver reads the sender's chunks when it takes
//! them, and a send is over only then; a put writes the receiver's chunks when it begins. No rank may
//! write a chunk that another rank may still read, and a put needs a chunk that its receiver has sent to
//! the rank that puts since it was last written. A program that waits for too little violates these
//! rules in some order; one that waits for too much blocks. The orders are a fixed set, not all
//! interleavings, so this is a test and no model check.

use super::contributors::Contributors;
use super::violation::Violation;
use crate::program::{Kind, Op, Program};
use crate::topology::Rank;

/// The order in which ranks execute operations, each until it blocks.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Descending,
    /// Every rank one operation at a time.
    OneByOne,
    /// One rank only when no other can go on.
    Starving(Rank),
}

/// Worlds up to this size are run with each rank starving in turn.
const MAX_STARVING: usize = 8;

/// Checks that the programs of all ranks end, and end with an allreduce, in several adversarial orders.
///
/// # Errors
/// The first violation that is found.
pub fn programs(programs: &[Program]) -> Result<(), Violation> {
    let ranks = programs.len();
    let starving = (0..if ranks <= MAX_STARVING { ranks } else { 0 }).map(Order::Starving);
    let mut orders =
        [Order::Ascending, Order::Descending, Order::OneByOne].into_iter().chain(starving);
    orders.try_for_each(|order| Execution::new(programs).run(order))
}

/// The progress of one rank in its program.
#[derive(Clone, Default)]
struct Progress {
    begun: usize,
    received: usize,
    /// Sends begun, in order: the receiver, and the number of the message to it, from 1.
    sent: Vec<(Rank, u32)>,
    /// The number of sends, from the first on, that are known to have been taken.
    completed: usize,
    /// Staged values taken but not yet written.
    staged: Vec<Vec<u64>>,
}

struct Execution<'a> {
    programs: &'a [Program],
    progress: Vec<Progress>,
    /// Sends begun from a to b, and taken by b.
    posted: Vec<u32>,
    taken: Vec<u32>,
    held: Contributors,
    chunks: usize,
    /// For each chunk of each rank: sends begun and not taken, which may be reading it.
    readers: Vec<u32>,
    /// For each chunk of each rank, since it was last written: the rank that took it last, and the
    /// number of the message.
    handed: Vec<Option<(Rank, u32)>>,
    /// Buffers of values, to be used again.
    spare: Vec<Vec<u64>>,
}

impl<'a> Execution<'a> {
    fn new(programs: &'a [Program]) -> Execution<'a> {
        let ranks = programs.len();
        let chunks = programs.first().map_or(1, |program| program.chunks);
        Execution {
            chunks,
            readers: vec![0; ranks * chunks],
            handed: vec![None; ranks * chunks],
            spare: Vec::new(),
            programs,
            progress: vec![Progress::default(); ranks],
            posted: vec![0; ranks * ranks],
            taken: vec![0; ranks * ranks],
            held: Contributors::own(ranks, chunks, |_| true),
        }
    }

    fn run(mut self, order: Order) -> Result<(), Violation> {
        let ranks = self.programs.len();
        loop {
            let mut progressed = false;
            for turn in 0..ranks {
                let rank = match order {
                    Order::Descending => ranks - 1 - turn,
                    // The starving rank comes last, and only if no other rank could go on.
                    Order::Starving(starving) => (starving + 1 + turn) % ranks,
                    Order::Ascending | Order::OneByOne => turn,
                };
                let starves = matches!(order, Order::Starving(starving) if starving == rank);
                if starves && progressed {
                    continue;
                }
                while self.advance(rank)? {
                    progressed = true;
                    if starves || matches!(order, Order::OneByOne) {
                        break;
                    }
                }
            }
            if !progressed {
                break;
            }
        }
        for rank in 0..ranks {
            self.ended(rank)?;
        }
        let steps = self.programs.iter().flat_map(|program| &program.ops);
        self.held.complete(steps.map(|op| op.step as usize + 1).max().unwrap_or(0))
    }

    /// Executes the next operation of `rank`; false if it has to wait or is done.
    fn advance(&mut self, rank: Rank) -> Result<bool, Violation> {
        let program = &self.programs[rank];
        let progress = &self.progress[rank];
        match program.ops.get(progress.begun) {
            Some(op) if progress.received >= op.after_receives as usize => {
                self.progress[rank].begun += 1;
                if op.kind == Kind::Send {
                    let to = op.entry.peer();
                    let pair = self.pair(rank, to);
                    self.posted[pair] += 1;
                    if op.put {
                        self.handed_over(rank, op)?;
                        let values = self.read(rank, op);
                        self.write(to, rank, op, values)?;
                        let message = Some((to, self.posted[pair]));
                        self.chunks_of(rank, op).for_each(|slot| self.handed[slot] = message);
                    } else {
                        self.chunks_of(rank, op).for_each(|slot| self.readers[slot] += 1);
                    }
                    // A put is not taken by its receiver.
                    let count = if op.put { 0 } else { self.posted[pair] };
                    self.progress[rank].sent.push((to, count));
                }
                Ok(true)
            }
            Some(_) => self.finish(rank),
            None if progress.received < program.receives.len() => self.finish(rank),
            None => Ok(false),
        }
    }

    /// Finishes the next receive, or takes the next of a staged batch.
    fn finish(&mut self, rank: Rank) -> Result<bool, Violation> {
        let program = &self.programs[rank];
        let batch = program.batch(self.progress[rank].received);
        if !batch[0].staged {
            let op = &batch[0];
            if !self.arrived(rank, op) || !self.sends_taken(rank, op.after_sends as usize) {
                return Ok(false);
            }
            let from = op.entry.peer();
            if op.put {
                let pair = self.pair(from, rank);
                self.taken[pair] += 1;
            } else {
                let values = self.take(rank, op);
                self.write(rank, from, op, values)?;
            }
            self.progress[rank].received += 1;
            return Ok(true);
        }
        if let Some(op) = batch.get(self.progress[rank].staged.len()) {
            if !self.arrived(rank, op) {
                return Ok(false);
            }
            let values = self.take(rank, op);
            self.progress[rank].staged.push(values);
            return Ok(true);
        }
        let wanted = batch.iter().map(|op| op.after_sends).max().unwrap_or(0);
        if !self.sends_taken(rank, wanted as usize) {
            return Ok(false);
        }
        let staged = std::mem::take(&mut self.progress[rank].staged);
        for (op, values) in batch.iter().zip(staged) {
            self.write(rank, op.entry.peer(), op, values)?;
        }
        self.progress[rank].received += batch.len();
        Ok(true)
    }

    fn pair(&self, from: Rank, to: Rank) -> usize {
        from * self.programs.len() + to
    }

    /// The sender has begun the send that `op` waits for.
    fn arrived(&self, rank: Rank, op: &Op) -> bool {
        let pair = self.pair(op.entry.peer(), rank);
        self.posted[pair] > self.taken[pair]
    }

    /// The first `sends` sends of `rank` have been taken.
    fn sends_taken(&mut self, rank: Rank, sends: usize) -> bool {
        let taken = &self.taken[rank * self.programs.len()..];
        let progress = &mut self.progress[rank];
        while let Some(&(to, count)) = progress.sent.get(progress.completed)
            && progress.completed < sends
            && taken[to] >= count
        {
            progress.completed += 1;
        }
        progress.completed >= sends
    }

    /// Takes the sender's chunks as they are now.
    fn take(&mut self, rank: Rank, op: &Op) -> Vec<u64> {
        let from = op.entry.peer();
        let pair = self.pair(from, rank);
        self.taken[pair] += 1;
        for slot in self.chunks_of(from, op) {
            self.readers[slot] -= 1;
            self.handed[slot] = Some((rank, self.taken[pair]));
        }
        self.read(from, op)
    }

    /// Where the chunks of an operation lie, at one rank.
    fn chunks_of(&self, rank: Rank, op: &Op) -> std::ops::Range<usize> {
        let chunks = op.entry.chunks();
        rank * self.chunks + chunks.start..rank * self.chunks + chunks.end
    }

    /// The receiver of a put has sent every chunk to the putter since it was last written, and the
    /// putter has taken it.
    fn handed_over(&self, by: Rank, op: &Op) -> Result<(), Violation> {
        let (step, rank) = (op.step as usize, op.entry.peer());
        let taken = self.taken[self.pair(rank, by)];
        let handed = |&slot: &usize| {
            self.handed[slot].is_some_and(|(to, message)| to == by && message <= taken)
        };
        match self.chunks_of(rank, op).find(|slot| !handed(slot)) {
            Some(slot) => {
                let chunk = slot - rank * self.chunks;
                Err(Violation::NotHandedOver { step, rank, by, chunk })
            }
            None => Ok(()),
        }
    }

    fn read(&mut self, of: Rank, op: &Op) -> Vec<u64> {
        let mut values = self.spare.pop().unwrap_or_default();
        for chunk in op.entry.chunks() {
            values.extend_from_slice(self.held.at(of, chunk));
        }
        values
    }

    fn write(
        &mut self,
        rank: Rank,
        from: Rank,
        op: &Op,
        mut values: Vec<u64>,
    ) -> Result<(), Violation> {
        let words = self.held.words;
        for (chunk, value) in op.entry.chunks().zip(values.chunks_exact(words)) {
            let slot = rank * self.chunks + chunk;
            if self.readers[slot] > 0 {
                let step = op.step as usize;
                return Err(Violation::Overwritten { step, rank, by: from, chunk });
            }
            self.handed[slot] = None;
            let received = self.held.receive(rank, chunk, op.entry.action, value);
            received.map_err(|part| {
                let step = op.step as usize;
                Violation::ReducedTwice { step, from, rank, chunk, part }
            })?;
        }
        values.clear();
        self.spare.push(values);
        Ok(())
    }

    /// Checks that `rank` has executed its program and that all its sends were taken.
    ///
    /// # Errors
    /// The operation on which it is blocked.
    fn ended(&self, rank: Rank) -> Result<(), Violation> {
        let program = &self.programs[rank];
        let progress = &self.progress[rank];
        let blocked = |op: &Op, sending| Violation::Blocked {
            step: op.step as usize,
            rank,
            peer: op.entry.peer(),
            chunks: op.entry.chunks(),
            sending,
        };
        if let Some(op) = program.receives.get(progress.received + progress.staged.len()) {
            return Err(blocked(op, self.arrived(rank, op)));
        }
        let sends = program.ops.iter().filter(|op| op.kind == Kind::Send);
        match sends.zip(&progress.sent).find(|(_, sent)| {
            let &(to, count) = *sent;
            self.taken[self.pair(rank, to)] < count
        }) {
            Some((op, _)) => Err(blocked(op, true)),
            None => Ok(()),
        }
    }
}
