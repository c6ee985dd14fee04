//! One rank's schedule as a flat list of operations with dependencies.
//!
//! All moves of a schedule's step read the state before the step. An executor that waited for whole steps
//! would idle, so [`Program::compile`] computes the dependencies of each operation chunk by chunk, as two
//! numbers. A program is in terms of chunks, not elements, so it serves buffers of every length; see
//! [`Bounds`].

use std::ops::Range;

use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::Rank;

/// The largest world whose programs with puts [`crate::verify`] checks.
pub const MAX_RANKS_WITH_PUTS: usize = 16;

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rank sends its chunks.
    Send,
    /// The rank receives chunks.
    Receive,
}

/// One send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Send or receive.
    pub kind: Kind,
    /// The move itself.
    pub entry: Move,
    /// The schedule's step.
    pub step: u32,
    /// The number of receives of this rank that must be finished before this operation begins.
    pub after_receives: u32,
    /// The number of sends of this rank that their receivers must have taken before this receive may write.
    pub after_sends: u32,
    /// In the same step a peer reads chunks that this receive writes. The received values must be staged,
    /// and written once the rank's own sends are taken.
    pub staged: bool,
    /// The sender may write these chunks directly into the receiver's buffer when its send begins; see
    /// [`Program::compile_world`]. Set at both ends.
    pub put: bool,
}

/// The operations of one rank in one collective, in the order in which they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Into how many chunks the buffer is cut.
    pub chunks: usize,
    /// Sends and receives in order; within a step sends come first.
    pub ops: Vec<Op>,
    /// The receives among `ops`. They finish in this order, which fixes the order of summation for every
    /// transport.
    pub receives: Vec<Op>,
    /// Number of sends.
    pub sends: usize,
}

impl Program {
    /// The program of one rank.
    ///
    /// # Panics
    /// When the rank does not contribute: see [`Schedule::contributes`].
    pub fn compile(schedule: &dyn Schedule, rank: Rank) -> Program {
        assert!(schedule.contributes(rank), "rank {rank} only serves others");
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
                    put: false,
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
                    put: false,
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

    /// The programs of all ranks, with puts: copies that the sender writes itself, where ranks can write each
    /// other's memory.
    ///
    /// A put is safe if, since the receiver last wrote the chunks, it has sent them to the rank that puts, in
    /// one message of exactly these chunks, and to no other rank. That rank has taken them before its own
    /// send begins, because they were reduced with, copied or put into the chunks that it sends. So no rank
    /// reads or writes the receiver's chunks any more, and the receiver has begun. Both ends must agree, so
    /// the whole world is compiled at once: for small worlds.
    pub fn compile_world(schedule: &dyn Schedule) -> Vec<Program> {
        let ranks = schedule.ranks();
        let mut programs: Vec<_> =
            (0..ranks).map(|rank| Program::compile(schedule, rank)).collect();
        // Where in the sender's program the k-th send from a to b is: `sends[a * ranks + b][k]`.
        let mut sends: Vec<Vec<usize>> = vec![Vec::new(); ranks * ranks];
        for (from, program) in programs.iter().enumerate() {
            for (at, op) in program.ops.iter().enumerate().filter(|(_, op)| op.kind == Kind::Send) {
                sends[from * ranks + op.entry.peer()].push(at);
            }
        }
        for to in 0..ranks {
            // For each chunk: the only send of it since it was last written, if there is just one.
            let mut reader: Vec<Reader> = vec![Reader::None; schedule.chunks()];
            let (mut received, mut from_each) = (0, vec![0; ranks]);
            for at in 0..programs[to].ops.len() {
                let op = programs[to].ops[at];
                let (peer, chunks) = (op.entry.peer(), op.entry.chunks());
                if op.kind == Kind::Send {
                    let only = |reader| match reader {
                        Reader::None => Reader::Only(at),
                        _ => Reader::Many,
                    };
                    reader[chunks].iter_mut().for_each(|reader| *reader = only(*reader));
                    continue;
                }
                let handed_over = |&of: &Reader| match of {
                    Reader::Only(send) => {
                        let entry = programs[to].ops[send].entry;
                        (entry.peer(), entry.chunks()) == (peer, chunks.clone())
                    }
                    _ => false,
                };
                let copies = op.entry.action == Action::Copy && !op.staged;
                if copies && reader[chunks.clone()].iter().all(handed_over) {
                    programs[to].ops[at].put = true;
                    programs[to].receives[received].put = true;
                    programs[peer].ops[sends[peer * ranks + to][from_each[peer]]].put = true;
                }
                reader[chunks].fill(Reader::None);
                received += 1;
                from_each[peer] += 1;
            }
        }
        programs
    }

    /// The receives that finish together, from the `done`-th on. A plain receive finishes alone. A reduction
    /// finishes with all that follow it in its step and reduce the same chunks, so that the chunks are
    /// written once. A staged receive finishes with all staged ones that follow it in its step; one by one,
    /// ranks that exchange with several peers could deadlock.
    pub fn batch(&self, done: usize) -> &[Op] {
        let rest = &self.receives[done..];
        let first = &rest[0];
        let together = |op: &&Op| {
            op.step == first.step
                && op.staged == first.staged
                && (op.staged || first.merges_with(op))
        };
        &rest[..rest.iter().take_while(together).count().max(1)]
    }
}

impl Op {
    /// True if both reduce the same chunks.
    pub fn merges_with(&self, other: &Op) -> bool {
        let reduce = |op: &Op| op.entry.action == Action::Reduce;
        reduce(self) && reduce(other) && self.entry.chunks() == other.entry.chunks()
    }
}

/// The sends that read a chunk of a rank.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    None,
    /// That operation alone.
    Only(usize),
    Many,
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

    /// Two-shot: every finished chunk is put where its owner got it from. A ring of four: the chunk
    /// that comes back was sent on to the next rank, not to the one that brings it.
    #[test]
    fn puts_are_where_the_receiver_sent_the_chunks_to_the_putter_alone() {
        let puts = |name: &str, ranks| {
            let schedule = find(name).unwrap().schedule(&Topology::flat(ranks)).unwrap();
            let programs = Program::compile_world(&*schedule);
            let count = |kind| {
                let ops = programs.iter().flat_map(|program| &program.ops);
                ops.filter(|op| op.kind == kind && op.put).count()
            };
            assert_eq!(count(Kind::Send), count(Kind::Receive), "{name}");
            count(Kind::Send)
        };
        assert_eq!(puts("two-shot", 4), 4 * 3);
        assert_eq!(puts("ring", 2), 2);
        assert_eq!(puts("ring", 4), 0);
        assert_eq!(puts("halving-doubling", 4), 4 * 2);
        assert_eq!(puts("tree", 4), 3);
        assert_eq!(puts("recursive-doubling", 4), 0);
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
