//! One rank's program as groups of sends and receives, with copies and kernels between them.
//!
//! A step of the schedule is one group: what a rank sends and receives in it begins together. Both ends of a
//! transfer are in the same step, and every rank goes through its groups in the order of steps, so the group
//! of the lowest step that is not over can always end: groups wait for each other in no circle. On the stream
//! a group comes before what is done with what it brought, and that before the next group, so nothing else
//! has to wait for anything.
//!
//! What is only copied is received where it belongs, unless this rank sends from there in the same step;
//! everything else is put aside first.

use algorithms::program::{Bounds, Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;
use smallvec::SmallVec;

use crate::cuda::streamed::Place;
use crate::cuda::work::MOST_SOURCES;

/// Where a vector begins, in this rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Which memory.
    pub place: Place,
    /// From its beginning.
    pub offset_bytes: usize,
}

/// One send, or one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank at the other end.
    pub peer: Rank,
    /// What is sent, or where it is received.
    pub at: At,
    /// How many.
    pub elements: usize,
}

/// What is put on this rank's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Sends and receives that begin together; the k-th send to a rank meets the k-th receive there.
    Group {
        /// What goes out.
        sends: Vec<Transfer>,
        /// What comes in.
        receives: Vec<Transfer>,
    },
    /// Copies elements.
    Copy {
        /// From there.
        from: At,
        /// To there.
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

/// What one rank puts on its stream for one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// In order.
    pub tasks: Vec<Task>,
    /// Bytes that it takes for what is put aside.
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
    /// What a program does with a buffer of so many elements.
    ///
    /// # Panics
    /// When the program is compiled with puts.
    pub fn new(program: &Program, elements: usize, element_bytes: usize) -> Stepped {
        Stepped::with(true, program, elements, element_bytes)
    }

    /// The same; without putting aside what is only copied, to see that tests notice.
    fn with(puts_aside: bool, program: &Program, elements: usize, element_bytes: usize) -> Stepped {
        let bounds = Bounds::new(elements, program.chunks.max(1));
        let mut walk = Walk { bounds, element_bytes, puts_aside, stepped: Stepped::default() };
        for ops in program.ops.chunk_by(|a, b| a.step == b.step) {
            assert!(ops.iter().all(|op| !op.put), "ranks send, and cannot put");
            walk.step(ops);
        }
        walk.stepped
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Task::Group { .. })).count()
    }
}

impl Walk {
    /// One step: the group, and what is done with what it brought.
    fn step(&mut self, ops: &[Op]) {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        // What was put aside, with where.
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

    /// Whether it may be received where it belongs: nobody else has to do with that place in this step.
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

    /// Combines what was put aside, or copies it, in the program's order.
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

    /// Where an operation's chunks lie.
    fn own(&self, op: &Op) -> At {
        let offset_bytes = self.bounds.elements(&op.entry).start * self.element_bytes;
        At { place: Place::Tensor(0), offset_bytes }
    }

    /// Room for as many elements, at the same distance from a whole line, so that kernels move lines.
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
