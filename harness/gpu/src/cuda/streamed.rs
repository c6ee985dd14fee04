//! A schedule's programs, of all ranks, as work on streams: one stream for each rank.
//!
//! The host enqueues all work at once. A receive is a copy or a kernel on the receiver's stream that reads the
//! sender's memory. It waits for points in other streams: where the sender's chunks are complete, and where the
//! readers of the data that it overwrites have finished. An event is recorded at a point only if a stream waits
//! for it that is not already ordered after it by other waits. A wait is effective only if the host has recorded
//! the event before, so the host enqueues work in an order in which all dependencies come first.

mod messages;
mod scattered;

use std::collections::{HashMap, HashSet};

use algorithms::program::{Bounds, Program};
use algorithms::topology::Rank;
use smallvec::SmallVec;

use super::work::MOST_SOURCES;
use messages::Plan;

/// Memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// One of its tensors; the only one, unless they are [scattered](Streamed::scattered).
    Tensor(u32),
    /// Staging memory.
    Aside,
}

/// The beginning of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The rank that owns the memory.
    pub rank: Rank,
    /// Which memory.
    pub place: Place,
    /// Offset from its beginning.
    pub offset_bytes: usize,
}

/// A task on a rank's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
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
    /// Marks a place: event of that number.
    Record(usize),
    /// Waits for an event.
    Wait(usize),
}

/// Why one stream waits for a point in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The sender has yet to begin: its data may not be there.
    Begun,
    /// The sender's chunks have yet to be received by itself.
    Arrived,
    /// Other ranks have yet to read the data that are overwritten.
    Taken,
    /// Other ranks have yet to read the data at the end of the collective.
    Ended,
}

/// The tasks of all ranks for one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// In the host's order: the rank whose stream it is, and the task.
    pub tasks: Vec<(Rank, Task)>,
    /// The rank whose stream records each event.
    pub events: Vec<Rank>,
    /// Staging memory in bytes that each rank needs.
    pub aside_bytes: Vec<usize>,
    /// Tensors of each rank.
    pub tensors: usize,
}

impl Streamed {
    /// The tasks of programs for buffers of `elements` elements; `reaches(a, b)` if kernels of rank a can read the
    /// memory of rank b.
    ///
    /// # Panics
    /// When programs wait for each other in a cycle, or are compiled with puts.
    pub fn new(
        programs: &[Program],
        elements: usize,
        element_bytes: usize,
        reaches: impl Fn(Rank, Rank) -> bool,
    ) -> Streamed {
        Streamed::without(None, programs, elements, element_bytes, reaches)
    }

    /// The same without waits of one sort, to see that tests notice.
    fn without(
        left_out: Option<Why>,
        programs: &[Program],
        elements: usize,
        element_bytes: usize,
        reaches: impl Fn(Rank, Rank) -> bool,
    ) -> Streamed {
        let bounds = Bounds::new(elements, programs.first().map_or(1, |program| program.chunks));
        let plan = Plan::new(programs, bounds, element_bytes, &reaches);
        let mut order = Order::new(&plan, left_out);
        order.walk();
        let (tasks, events) = order.with_events();
        Streamed { tasks, events, aside_bytes: plan.aside_bytes, tensors: 1 }
    }

    /// How many events are waited for.
    pub fn waits(&self) -> usize {
        self.tasks.iter().filter(|(_, task)| matches!(task, Task::Wait(_))).count()
    }
}

/// Progress of a stream: 0 nothing (not its beginning), 1 its beginning, 2 one task, ...
type Passed = usize;

/// A point in a rank's stream, counted as in [`Passed`].
type Mark = (Rank, Passed);

enum Put<'p> {
    Task(&'p Task),
    Mark(Passed),
    Wait(Mark),
}

/// The host, which cycles through the streams and enqueues the next task whose dependencies are enqueued.
struct Order<'p> {
    plan: &'p Plan,
    left_out: Option<Why>,
    put: Vec<(Rank, Put<'p>)>,
    /// Points that a stream may wait for, with the known progress of all streams there.
    wanted: HashMap<Mark, Vec<Passed>>,
    /// Marks that are waited for.
    awaited: HashSet<Mark>,
    /// The progress of all other streams that each stream is ordered after.
    knows: Vec<Vec<Passed>>,
    /// Tasks on each stream.
    done: Vec<usize>,
    ended: Vec<bool>,
}

impl<'p> Order<'p> {
    fn new(plan: &'p Plan, left_out: Option<Why>) -> Order<'p> {
        let ranks = plan.tasks.len();
        let all = plan.tasks.iter().flatten().map(|(needs, _)| needs).chain(&plan.ends);
        let wanted = all.flat_map(|needs| plan.marks(needs)).map(|(mark, _)| (mark, Vec::new()));
        let mut order = Order {
            wanted: wanted.collect(),
            plan,
            left_out,
            put: Vec::new(),
            awaited: HashSet::new(),
            knows: vec![vec![0; ranks]; ranks],
            done: vec![0; ranks],
            ended: vec![false; ranks],
        };
        (0..ranks).for_each(|rank| order.mark(rank));
        order
    }

    fn walk(&mut self) {
        let ranks = self.plan.tasks.len();
        while self.ended.contains(&false) {
            let mut moved = false;
            for rank in (0..ranks).filter(|&rank| !self.ended[rank]).collect::<Vec<_>>() {
                moved |= self.advance(rank);
            }
            assert!(moved, "programs wait for each other in a circle");
        }
    }

    /// Puts the next task on a stream, or the waits at its end; false if something has to come before.
    fn advance(&mut self, rank: Rank) -> bool {
        let plan = self.plan;
        let next = plan.tasks[rank].get(self.done[rank]);
        let needs = next.map_or(&plan.ends[rank], |(needs, _)| needs);
        let is_put = |&((of, passed), _): &(Mark, Why)| passed <= self.done[of] + 1;
        if !plan.marks(needs).all(|need| is_put(&need)) {
            return false;
        }
        for (mark, why) in plan.marks(needs) {
            if mark.0 != rank && self.left_out != Some(why) {
                self.wait(rank, mark);
            }
        }
        match next {
            Some((_, task)) => {
                self.put.push((rank, Put::Task(task)));
                self.done[rank] += 1;
                self.mark(rank);
            }
            None => self.ended[rank] = true,
        }
        true
    }

    /// Records the known progress at the end of a stream, if another stream may need it.
    fn mark(&mut self, rank: Rank) {
        let passed = self.done[rank] + 1;
        self.knows[rank][rank] = passed;
        if let Some(known) = self.wanted.get_mut(&(rank, passed)) {
            known.clone_from(&self.knows[rank]);
            self.put.push((rank, Put::Mark(passed)));
        }
    }

    fn wait(&mut self, rank: Rank, mark: Mark) {
        let (of, passed) = mark;
        if self.knows[rank][of] >= passed {
            return;
        }
        self.awaited.insert(mark);
        self.put.push((rank, Put::Wait(mark)));
        let pairs = self.knows[rank].iter_mut().zip(&self.wanted[&mark]);
        pairs.for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    }

    /// The tasks, with an event for each point that a stream waits for.
    fn with_events(self) -> (Vec<(Rank, Task)>, Vec<Rank>) {
        let (mut events, mut numbers) = (Vec::new(), HashMap::new());
        let mut tasks = Vec::new();
        for (rank, put) in self.put {
            tasks.extend(match put {
                Put::Task(task) => Some((rank, task.clone())),
                Put::Wait(mark) => Some((rank, Task::Wait(numbers[&mark]))),
                Put::Mark(passed) if self.awaited.contains(&(rank, passed)) => {
                    numbers.insert((rank, passed), events.len());
                    events.push(rank);
                    Some((rank, Task::Record(events.len() - 1)))
                }
                Put::Mark(_) => None,
            });
        }
        (tasks, events)
    }
}

#[cfg(test)]
mod graphs;
#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
