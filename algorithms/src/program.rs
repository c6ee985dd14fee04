//! One rank's schedule as a flat list of operations, each with what it has to wait for.
//!
//! A schedule says "all moves of a step read the state before it". An executor that waited for
//! whole steps would idle; so [`Program::compile`] works out, chunk by chunk, what each operation
//! really depends on, as two numbers. The program knows chunks, not elements, hence one program
//! serves every length; see [`Bounds`].

use std::ops::Range;

use crate::schedule::{Move, Part, Schedule};
use crate::topology::Rank;

/// Which end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rank's chunks go out.
    Send,
    /// Chunks come in.
    Receive,
}

/// One send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Which end.
    pub kind: Kind,
    /// The move itself.
    pub entry: Move,
    /// The schedule's step.
    pub step: u32,
    /// So many of this rank's receives must be over before this operation begins.
    pub after_receives: u32,
    /// So many of this rank's sends must have been taken by their receivers before this receive
    /// may write.
    pub after_sends: u32,
    /// An exchange: in this very step a peer reads chunks that this receive writes. What arrives
    /// must be put aside, and written once the rank's own sends are taken.
    pub staged: bool,
}

/// What one rank does in one collective, in the order in which it begins operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Into how many chunks the buffer is cut.
    pub chunks: usize,
    /// Sends and receives in order; within a step sends come first.
    pub ops: Vec<Op>,
    /// The receives among `ops` once more. They are finished in this order, which fixes the order
    /// of summation whatever the transport.
    pub receives: Vec<Op>,
    /// Number of sends.
    pub sends: usize,
}

impl Program {
    /// The program of one rank.
    pub fn compile(schedule: &dyn Schedule, rank: Rank) -> Program {
        let mut program = Program { chunks: schedule.chunks(), ..Program::default() };
        let mut part = Part::default();
        // For each chunk: how many receives, or sends, up to the last one that touches it.
        let mut written_by = vec![0; schedule.chunks()];
        let mut read_by = vec![0; schedule.chunks()];
        for step in 0..schedule.steps() {
            part.clear();
            schedule.part(rank, step, &mut part);
            let sends_before = program.sends as u32;
            for &entry in &part.sends {
                let after_receives = last(&written_by[entry.chunks()]);
                program.ops.push(Op {
                    kind: Kind::Send,
                    entry,
                    step: step as u32,
                    after_receives,
                    after_sends: 0,
                    staged: false,
                });
                program.sends += 1;
                read_by[entry.chunks()].fill(program.sends as u32);
            }
            for &entry in &part.receives {
                let after_sends = last(&read_by[entry.chunks()]);
                let op = Op {
                    kind: Kind::Receive,
                    entry,
                    step: step as u32,
                    after_receives: 0,
                    after_sends,
                    staged: after_sends > sends_before,
                };
                program.ops.push(op);
                program.receives.push(op);
            }
            let first_receive = program.receives.len() - part.receives.len();
            for (index, entry) in part.receives.iter().enumerate() {
                written_by[entry.chunks()].fill((first_receive + index + 1) as u32);
            }
        }
        program
    }

    /// The receives to be finished together, from the `done`-th on: one, or, if it is staged, all
    /// staged ones that follow it in its step. (Were they finished one by one, ranks that exchange
    /// with several peers could wait for each other in a circle.)
    pub fn batch(&self, done: usize) -> &[Op] {
        let rest = &self.receives[done..];
        let first = &rest[0];
        let together = |op: &&Op| first.staged && op.staged && op.step == first.step;
        &rest[..rest.iter().take_while(together).count().max(1)]
    }
}

/// Where chunks begin in a buffer.
///
/// The first `elements % chunks` chunks have one element more than the others; where there are
/// fewer elements than chunks some are empty, and both ends of a transfer skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    size: usize,
    longer: usize,
}

impl Bounds {
    /// `elements` cut into `chunks`.
    pub fn new(elements: usize, chunks: usize) -> Bounds {
        Bounds { size: elements / chunks, longer: elements % chunks }
    }

    /// First element of a chunk.
    pub fn start(self, chunk: usize) -> usize {
        chunk * self.size + chunk.min(self.longer)
    }

    /// The elements that a move carries.
    pub fn elements(self, entry: &Move) -> Range<usize> {
        self.start(entry.first as usize)..self.start(entry.end as usize)
    }
}

fn last(of: &[u32]) -> u32 {
    of.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use crate::topology::Topology;

    #[test]
    fn bounds_cover_every_element_once() {
        for elements in [0, 1, 2, 5, 7, 64, 1000, (1_usize << 40) + 3] {
            for chunks in [1, 2, 3, 7, 64] {
                let bounds = Bounds::new(elements, chunks);
                assert_eq!((bounds.start(0), bounds.start(chunks)), (0, elements));
                let sizes: Vec<_> =
                    (0..chunks).map(|c| bounds.start(c + 1) - bounds.start(c)).collect();
                assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[chunks - 1] <= 1);
            }
        }
    }

    #[test]
    fn a_ring_waits_for_one_receive_at_a_time_and_stages_nothing() {
        let ring = find("ring").unwrap().schedule(&Topology::flat(4)).unwrap();
        let program = Program::compile(&*ring, 1);
        assert_eq!((program.ops.len(), program.sends, program.receives.len()), (12, 6, 6));
        assert!(program.ops.iter().all(|op| !op.staged));
        let waits: Vec<_> = program
            .ops
            .iter()
            .filter(|op| op.kind == Kind::Send)
            .map(|op| op.after_receives)
            .collect();
        assert_eq!(waits, [0, 1, 2, 3, 4, 5]);
    }
}
