//! One rank's program as groups of sends and receives, with copies and kernels between them.
//!
//! A step of the schedule is one group: all its sends and receives start together. Both ends of a transfer are in
//! the same step, and every rank executes its groups in the order of steps, so the group of the lowest unfinished
//! step can always finish: there is no cycle of waits. On the stream a group comes before the work on its data,
//! and that before the next group, so no other waits are needed.
//!
//! Data that are only copied are received at their destination, unless this rank sends from there in the same
//! step; all other data are staged first.

use algorithms::program::{Bounds, Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;
use smallvec::SmallVec;

use crate::cuda::streamed::Place;
use crate::cuda::work::MOST_SOURCES;

/// The beginning of a vector in this rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Which memory.
    pub place: Place,
    /// Offset from its beginning.
    pub offset_bytes: usize,
}

/// One send, or one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank at the other end.
    pub peer: Rank,
    /// The source, or the destination.
    pub at: At,
    /// How many.
    pub elements: usize,
}

/// A task on this rank's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Sends and receives that begin together; the k-th send to a rank meets the k-th receive there.
    Group {
        /// Outgoing transfers.
        sends: Vec<Transfer>,
        /// Incoming transfers.
        receives: Vec<Transfer>,
    },
    /// Copies elements.
    Copy {
        /// Source.
        from: At,
        /// Destination.
        into: At,
        /// How many.
        elements: usize,
    },
    /// Combines vectors, in their order, into the first one.
    Reduce {
        /// The vectors.
        vectors: SmallVec<[At; MOST_SOURCES]>,
        /// Elements of each.
        elements: usize,
    },
}

/// The tasks of one rank for one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// In order.
    pub tasks: Vec<Task>,
    /// Bytes of staging memory.
    pub aside_bytes: usize,
}

/// A rank's way through its program.
struct Walk {
    bounds: Bounds,
    element_bytes: usize,
    puts_aside: bool,
    stepped: Stepped,
}

impl Stepped {
    /// The tasks of a program for a buffer of `elements` elements.
    ///
    /// # Panics
    /// When the program is compiled with puts.
    pub fn new(program: &Program, elements: usize, element_bytes: usize) -> Stepped {
        Stepped::with(true, program, elements, element_bytes)
    }

    /// The same; `puts_aside` false leaves out the staging of copies, to check that tests detect it.
    fn with(puts_aside: bool, program: &Program, elements: usize, element_bytes: usize) -> Stepped {
        let bounds = Bounds::new(elements, program.chunks.max(1));
        let mut walk = Walk { bounds, element_bytes, puts_aside, stepped: Stepped::default() };
        for ops in program.ops.chunk_by(|a, b| a.step == b.step) {
            assert!(ops.iter().all(|op| !op.put), "ranks send, and cannot put");
            walk.step(ops);
        }
        walk.stepped
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Task::Group { .. })).count()
    }
}

impl Walk {
    /// One step: the group, and the work on its data.
    fn step(&mut self, ops: &[Op]) {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        // Staged operations, with their place.
        let (mut aside, mut used) = (Vec::new(), 0);
        for op in ops {
            let (peer, elements, own) = (op.entry.peer(), self.length(op), self.own(op));
            if elements == 0 {
                continue;
            }
            match op.kind {
                Kind::Send => sends.push(Transfer { peer, at: own, elements }),
                Kind::Receive if self.is_direct(op, ops) => {
                    receives.push(Transfer { peer, at: own, elements });
                }
                Kind::Receive => {
                    let at = self.aside(&mut used, own, elements);
                    receives.push(Transfer { peer, at, elements });
                    aside.push((*op, at));
                }
            }
        }
        if sends.len() + receives.len() > 0 {
            self.stepped.tasks.push(Task::Group { sends, receives });
        }
        self.finish(&aside);
    }

    /// Whether data may be received at their destination: nothing else in this step accesses it.
    fn is_direct(&self, op: &Op, ops: &[Op]) -> bool {
        if op.entry.action == Action::Reduce {
            return false;
        }
        let chunks = op.entry.chunks();
        let meets = |other: &&Op| {
            let others = other.entry.chunks();
            others.start < chunks.end && chunks.start < others.end
        };
        // The operation meets itself.
        !self.puts_aside || ops.iter().filter(meets).count() == 1
    }

    /// Combines or copies staged data, in the program's order.
    fn finish(&mut self, aside: &[(Op, At)]) {
        let mut rest = aside;
        while let Some((op, from)) = rest.first() {
            let (own, elements) = (self.own(op), self.length(op));
            let alike = rest.iter().take_while(|(other, _)| op.merges_with(other)).count();
            let together = alike.clamp(1, MOST_SOURCES - 1);
            self.stepped.tasks.push(match op.entry.action {
                Action::Copy => Task::Copy { from: *from, into: own, elements },
                Action::Reduce => {
                    let vectors = rest[..together].iter().map(|(_, at)| *at);
                    Task::Reduce {
                        vectors: std::iter::once(own).chain(vectors).collect(),
                        elements,
                    }
                }
            });
            rest = &rest[together..];
        }
    }

    fn length(&self, op: &Op) -> usize {
        self.bounds.elements(&op.entry).len()
    }

    /// The location of an operation's chunks.
    fn own(&self, op: &Op) -> At {
        let offset_bytes = self.bounds.elements(&op.entry).start * self.element_bytes;
        At { place: Place::Tensor(0), offset_bytes }
    }

    /// Staging memory for as many elements, with the same alignment, so that kernels move whole vectors.
    fn aside(&mut self, used: &mut usize, like: At, elements: usize) -> At {
        const LINE_BYTES: usize = 16;
        let offset_bytes = used.next_multiple_of(LINE_BYTES) + like.offset_bytes % LINE_BYTES;
        *used = offset_bytes + elements * self.element_bytes;
        self.stepped.aside_bytes = self.stepped.aside_bytes.max(*used);
        At { place: Place::Aside, offset_bytes }
    }
}

#[cfg(test)]
mod tests;
