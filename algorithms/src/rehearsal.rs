//! Runs compiled programs without data: sets of contributors instead of numbers, a rendezvous
//! instead of a network, and the order in which ranks get on chosen to hurt.
//!
//! The rules are those of the strictest transport: a receiver reads the sender's chunks at the
//! moment it takes them, and a send is over only then; a put writes the receiver's chunks at the
//! moment it begins. Nobody may write a chunk while somebody may still read it, and a put needs a
//! chunk that its receiver has handed to the putter since it was last written. If a program waited
//! for too little, that is found out; if it waited for too much, nobody could go on.

use crate::program::{Kind, Op, Program};
use crate::topology::Rank;
use crate::verify::{Contributors, Violation};

/// Orders in which ranks are given their turn, each until it can go no further.
#[derive(Clone, Copy)]
enum Turns {
    Ascending,
    Descending,
    /// Every rank one operation at a time.
    OneByOne,
    /// One rank only when no other can go on.
    Starving(Rank),
}

/// Worlds up to this size are rehearsed with each rank starving in turn.
const MOST_STARVING: usize = 8;

/// Every rank's program ends, and ends with an allreduce, in several hostile orders.
pub fn rehearse(programs: &[Program]) -> Result<(), Violation> {
    let ranks = programs.len();
    let starving = (0..if ranks <= MOST_STARVING { ranks } else { 0 }).map(Turns::Starving);
    let mut turns =
        [Turns::Ascending, Turns::Descending, Turns::OneByOne].into_iter().chain(starving);
    turns.try_for_each(|turns| Stage::new(programs).run(turns))
}

/// Where one rank is in its program.
#[derive(Clone, Default)]
struct Progress {
    begun: usize,
    received: usize,
    /// Sends begun, in order: to whom, and the how-manieth to that rank.
    sent: Vec<(Rank, u32)>,
    /// So many of the first of them are known to have been taken.
    settled: usize,
    /// Staged values taken but not yet written.
    aside: Vec<Vec<u64>>,
}

struct Stage<'a> {
    programs: &'a [Program],
    progress: Vec<Progress>,
    /// Sends begun from a to b, and taken by b.
    posted: Vec<u32>,
    taken: Vec<u32>,
    held: Contributors,
    chunks: usize,
    /// Of each chunk of each rank: sends begun and not taken, which may be reading it.
    readers: Vec<u32>,
    /// Who took it last, or had it put there last, since it was last written, and as the how-manieth
    /// message of this rank.
    handed: Vec<Option<(Rank, u32)>>,
    /// Memory of values that were read and written, to be used again.
    spare: Vec<Vec<u64>>,
}

impl<'a> Stage<'a> {
    fn new(programs: &'a [Program]) -> Stage<'a> {
        let ranks = programs.len();
        let chunks = programs.first().map_or(1, |program| program.chunks);
        Stage {
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

    fn run(mut self, turns: Turns) -> Result<(), Violation> {
        let ranks = self.programs.len();
        loop {
            let mut moved = false;
            for turn in 0..ranks {
                let rank = match turns {
                    Turns::Descending => ranks - 1 - turn,
                    // The starving rank last, and only if nobody else could do anything.
                    Turns::Starving(starving) => (starving + 1 + turn) % ranks,
                    Turns::Ascending | Turns::OneByOne => turn,
                };
                let starves = matches!(turns, Turns::Starving(starving) if starving == rank);
                if starves && moved {
                    continue;
                }
                while self.advance(rank)? {
                    moved = true;
                    if starves || matches!(turns, Turns::OneByOne) {
                        break;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        for rank in 0..ranks {
            self.ended(rank)?;
        }
        let steps = self.programs.iter().flat_map(|program| &program.ops);
        self.held.complete(steps.map(|op| op.step as usize + 1).max().unwrap_or(0))
    }

    /// Lets `rank` do the next thing it can; false when it has to wait or is done.
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
                    // What was put needs nobody to take it.
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
            if !self.arrived(rank, op) || !self.settled(rank, op.after_sends as usize) {
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
        if let Some(op) = batch.get(self.progress[rank].aside.len()) {
            if !self.arrived(rank, op) {
                return Ok(false);
            }
            let values = self.take(rank, op);
            self.progress[rank].aside.push(values);
            return Ok(true);
        }
        let wanted = batch.iter().map(|op| op.after_sends).max().unwrap_or(0);
        if !self.settled(rank, wanted as usize) {
            return Ok(false);
        }
        let aside = std::mem::take(&mut self.progress[rank].aside);
        for (op, values) in batch.iter().zip(aside) {
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
    fn settled(&mut self, rank: Rank, sends: usize) -> bool {
        let taken = &self.taken[rank * self.programs.len()..];
        let progress = &mut self.progress[rank];
        while let Some(&(to, count)) = progress.sent.get(progress.settled)
            && progress.settled < sends
            && taken[to] >= count
        {
            progress.settled += 1;
        }
        progress.settled >= sends
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
                Violation::AddedTwice { step, from, rank, chunk, part }
            })?;
        }
        values.clear();
        self.spare.push(values);
        Ok(())
    }

    /// `rank` is through its program and all it sent was taken, or what it waits for.
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
        if let Some(op) = program.receives.get(progress.received + progress.aside.len()) {
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
