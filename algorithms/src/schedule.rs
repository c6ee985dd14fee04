//! A schedule: which rank sends which chunks to which rank, in which step.
//!
//! It is a formula, not a list: [`Schedule::part`] computes the moves of *one rank in one step*, so a
//! ring over 27,600 ranks (1.5 billion transfers) takes no memory. Buffers are cut into
//! [`Schedule::chunks`] chunks; bytes, element types and uneven chunks are left to the executor.

use std::fmt;
use std::ops::Range;

use crate::topology::Rank;

/// What the receiver does with the chunks that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reduces them with its own chunks.
    Reduce,
    /// Overwrites its own chunks.
    Copy,
}

/// One end of a transfer: the other rank, the chunks `first..end`, and what the receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The rank at the other end.
    pub peer: u32,
    /// First chunk.
    pub first: u32,
    /// One past the last chunk.
    pub end: u32,
    /// What the receiver does.
    pub action: Action,
}

impl Move {
    /// A transfer of `chunks` with `peer`.
    pub fn new(peer: Rank, chunks: Range<usize>, action: Action) -> Move {
        Move { peer: peer as u32, first: chunks.start as u32, end: chunks.end as u32, action }
    }

    /// The rank at the other end.
    pub fn peer(&self) -> Rank {
        self.peer as Rank
    }

    /// The chunks that move.
    pub fn chunks(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}

/// What one rank sends and receives in one step; reused from step to step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What the rank sends.
    pub sends: Vec<Move>,
    /// What the rank receives.
    pub receives: Vec<Move>,
}

impl Part {
    /// Empties both lists and keeps their memory.
    pub fn clear(&mut self) {
        self.sends.clear();
        self.receives.clear();
    }

    /// Both ends of a regular pattern from one formula: `what(sender)` goes from `me` to `to`,
    /// and from `from` to `me`.
    ///
    /// Send and receive cannot disagree, because the formula is keyed by the sender.
    pub fn pass(
        &mut self,
        me: Rank,
        to: Rank,
        from: Rank,
        action: Action,
        what: impl Fn(Rank) -> Range<usize>,
    ) {
        self.sends.push(Move::new(to, what(me), action));
        self.receives.push(Move::new(from, what(from), action));
    }
}

/// A collective as a formula. All moves of a step read the state before that step.
pub trait Schedule: Send + Sync {
    /// World size.
    fn ranks(&self) -> usize;

    /// Into how many chunks the buffer is cut.
    fn chunks(&self) -> usize;

    /// Number of steps; 0 for a world of one.
    fn steps(&self) -> usize;

    /// Appends what `rank` sends and receives in `step` to `part`.
    ///
    /// The k-th send from a to b in a step matches the k-th receive at b from a in that step.
    fn part(&self, rank: Rank, step: usize, part: &mut Part);

    /// Whether the rank contributes its buffer to the result and gets the result. A rank that does not is a
    /// server without data of its own. By default all ranks contribute; only such schedules can be compiled
    /// into programs.
    fn contributes(&self, _rank: Rank) -> bool {
        true
    }

    /// A symmetry: adding this number to every rank, modulo the world size, changes only the numbers of
    /// chunks. It divides the world size. The default is the world size, which is no symmetry; for a ring it
    /// is 1. Simulators use it to look at fewer ranks.
    fn rotation(&self) -> usize {
        self.ranks()
    }

    /// What a rank sends in a step depends on nothing that it receives less than that many steps before. The
    /// default is 1: on all steps before. An executor may therefore begin a step's messages that early.
    fn lag(&self) -> usize {
        1
    }
}

/// Draws a schedule, one line a step: `0+>1 c2` adds chunk 2 of rank 0 to rank 1's, `0->1 c2`
/// overwrites it.
pub struct Drawing<'a>(pub &'a dyn Schedule);

impl fmt::Display for Drawing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = Part::default();
        for step in 0..self.0.steps() {
            write!(f, "step {step}:")?;
            for rank in 0..self.0.ranks() {
                part.clear();
                self.0.part(rank, step, &mut part);
                for send in &part.sends {
                    let arrow = if send.action == Action::Reduce { "+>" } else { "->" };
                    write!(f, "  {rank}{arrow}{}", send.peer)?;
                    match send.chunks() {
                        chunks if chunks.len() == 1 => write!(f, " c{}", chunks.start)?,
                        chunks => write!(f, " c{}..{}", chunks.start, chunks.end)?,
                    }
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
