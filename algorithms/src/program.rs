//! One rank's schedule as a flat list of operations, each with what it has to wait for.
//!
//! A schedule says "all moves of a step read the state before it". An executor that waited for
//! whole steps would idle; so [`Program::compile`] works out, chunk by chunk, what each operation
//! really depends on, as two numbers. The program knows chunks, not elements, hence one program
//! serves every length; see [`bounds`].

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
    /// Positions of the receives in `ops`. They are finished in this order, which fixes the order
    /// of summation whatever the transport.
    pub receives: Vec<u32>,
    /// Number of sends.
    pub sends: usize,
}

impl Program {
    /// The program of one rank.
    pub fn compile(schedule: &dyn Schedule, rank: Rank) -> Program {
        let mut program = Program {
            chunks: schedule.chunks(),
            ..Program::default()
        };
        let mut part = Part::default();
        // For each chunk: how many receives, or sends, up to the last one that touches it.
        let mut written_by = vec![0; schedule.chunks()];
        let mut read_by = vec![0; schedule.chunks()];
        for step in 0..schedule.steps() {
            part.clear();
            schedule.part(rank, step, &mut part);
            let sends_before = program.sends as u32;
            for &entry in &part.sends {
                program.push(
                    Kind::Send,
                    entry,
                    step,
                    last(&written_by[entry.chunks()]),
                    0,
                    false,
                );
                program.sends += 1;
                read_by[entry.chunks()].fill(program.sends as u32);
            }
            for &entry in &part.receives {
                let after_sends = last(&read_by[entry.chunks()]);
                let staged = after_sends > sends_before;
                program.receives.push(program.ops.len() as u32);
                program.push(Kind::Receive, entry, step, 0, after_sends, staged);
            }
            let first_receive = program.receives.len() - part.receives.len();
            for (index, entry) in part.receives.iter().enumerate() {
                written_by[entry.chunks()].fill((first_receive + index + 1) as u32);
            }
        }
        program
    }

    fn push(
        &mut self,
        kind: Kind,
        entry: Move,
        step: usize,
        after_receives: u32,
        after_sends: u32,
        staged: bool,
    ) {
        let step = step as u32;
        self.ops.push(Op {
            kind,
            entry,
            step,
            after_receives,
            after_sends,
            staged,
        });
    }

    /// The receives to be finished together, from the `done`-th on: one, or, if it is staged, all
    /// staged ones that follow it in its step. (Were they finished one by one, ranks that exchange
    /// with several peers could wait for each other in a circle.)
    pub fn batch(&self, done: usize) -> Range<usize> {
        let receive = |index: usize| self.ops[self.receives[index] as usize];
        let first = receive(done);
        let mut end = done + 1;
        while first.staged
            && end < self.receives.len()
            && receive(end).staged
            && receive(end).step == first.step
        {
            end += 1;
        }
        done..end
    }

    /// The `index`-th receive.
    pub fn receive(&self, index: usize) -> &Op {
        &self.ops[self.receives[index] as usize]
    }

    /// Elements that this rank sends and how many of its sends are not empty, for a buffer of
    /// `elements`.
    pub fn sent(&self, elements: usize) -> impl Iterator<Item = (Rank, usize)> + '_ {
        let bound = bounds(elements, self.chunks);
        self.ops
            .iter()
            .filter(|op| op.kind == Kind::Send)
            .map(move |op| {
                (
                    op.entry.peer(),
                    bound(op.entry.end as usize) - bound(op.entry.first as usize),
                )
            })
    }
}

/// Where chunks begin when `elements` are cut into `chunks`: chunk c is
/// `bound(c)..bound(c + 1)`. The first `elements % chunks` chunks have one element more; where
/// there are fewer elements than chunks some are empty, and both ends skip them.
pub fn bounds(elements: usize, chunks: usize) -> impl Fn(usize) -> usize + Copy {
    let (size, longer) = (elements / chunks, elements % chunks);
    move |chunk| chunk * size + chunk.min(longer)
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
                let bound = bounds(elements, chunks);
                assert_eq!((bound(0), bound(chunks)), (0, elements));
                let sizes: Vec<_> = (0..chunks).map(|c| bound(c + 1) - bound(c)).collect();
                assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[chunks - 1] <= 1);
            }
        }
    }

    #[test]
    fn a_ring_waits_for_one_receive_at_a_time_and_stages_nothing() {
        let ring = find("ring").unwrap().schedule(&Topology::flat(4)).unwrap();
        let program = Program::compile(&*ring, 1);
        assert_eq!(
            (program.ops.len(), program.sends, program.receives.len()),
            (12, 6, 6)
        );
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
