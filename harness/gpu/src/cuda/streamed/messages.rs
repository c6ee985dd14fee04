//! The tasks of each rank's stream, and the messages that they depend on.

use std::collections::VecDeque;

use algorithms::program::{Bounds, Kind, Op, Program};
use algorithms::schedule::Action;
use algorithms::topology::Rank;
use smallvec::SmallVec;

use super::{At, Mark, Passed, Place, Task, Why};
use crate::cuda::work::MOST_SOURCES;

/// Number of a message, over all ranks.
type Message = usize;

/// The dependencies of a task, as messages.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Messages whose chunks must be complete.
    ready: SmallVec<[Message; 2]>,
    /// This rank's, of which all receivers must have read theirs: a range of numbers.
    taken: (Message, Message),
    /// The collective ends with it.
    ends: bool,
}

/// Where a message's chunks are complete, and where they have been read.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    ready: Option<Mark>,
    taken: Option<Mark>,
}

/// The tasks of every rank, in order.
pub struct Plan {
    pub tasks: Vec<Vec<(Needs, Task)>>,
    /// Dependencies of each rank's end.
    pub ends: Vec<Needs>,
    pub aside_bytes: Vec<usize>,
    marks: Vec<Marks>,
}

/// One rank's way through its program.
struct Walk<'a> {
    rank: Rank,
    bounds: Bounds,
    element_bytes: usize,
    reaches: &'a dyn Fn(Rank, Rank) -> bool,
    first_message: Message,
    tasks: Vec<(Needs, Task)>,
    /// Needs of the next task.
    needs: Needs,
    /// Number of this rank's sends known to have been read.
    settled: usize,
    aside_bytes: usize,
}

impl Plan {
    pub fn new(
        programs: &[Program],
        bounds: Bounds,
        element_bytes: usize,
        reaches: &dyn Fn(Rank, Rank) -> bool,
    ) -> Plan {
        let ranks = programs.len();
        let mut plan = Plan {
            tasks: Vec::new(),
            ends: Vec::new(),
            aside_bytes: Vec::new(),
            marks: Vec::new(),
        };
        // The k-th send from a to b is the k-th that b receives from a.
        let mut sent = vec![VecDeque::new(); ranks * ranks];
        let mut firsts = Vec::new();
        for (rank, program) in programs.iter().enumerate() {
            firsts.push(plan.marks.len());
            for op in program.ops.iter().filter(|op| op.kind == Kind::Send) {
                assert!(!op.put, "streams read, and need no puts");
                sent[rank * ranks + op.entry.peer()].push_back(plan.marks.len());
                plan.marks.push(Marks::default());
            }
        }
        for (rank, program) in programs.iter().enumerate() {
            let mut walk = Walk {
                rank,
                bounds,
                element_bytes,
                reaches,
                first_message: firsts[rank],
                tasks: Vec::new(),
                needs: Needs::default(),
                settled: 0,
                aside_bytes: 0,
            };
            // The position of the stream after the first n receives.
            let (mut passed, mut done): (Vec<Passed>, _) = (vec![1], 0);
            while done < program.receives.len() {
                let batch = program.batch(done);
                let messages: Vec<Message> = batch
                    .iter()
                    .map(|op| sent[op.entry.peer() * ranks + rank].pop_front().expect("it is sent"))
                    .collect();
                let taken = walk.receive(batch, &messages);
                for (&message, taken) in messages.iter().zip(taken) {
                    plan.marks[message].taken = taken.map(|taken| (rank, taken));
                }
                done += batch.len();
                passed.resize(done + 1, walk.tasks.len() + 1);
            }
            let sends = program.ops.iter().filter(|op| op.kind == Kind::Send);
            for (index, op) in sends.enumerate() {
                let ready = passed[op.after_receives as usize];
                plan.marks[firsts[rank] + index].ready = Some((rank, ready));
            }
            let taken = (firsts[rank] + walk.settled, firsts[rank] + program.sends);
            plan.ends.push(Needs { taken, ends: true, ..Needs::default() });
            plan.tasks.push(walk.tasks);
            plan.aside_bytes.push(walk.aside_bytes);
        }
        plan
    }

    /// The points that a task waits for.
    pub fn marks(&self, needs: &Needs) -> impl Iterator<Item = (Mark, Why)> + '_ {
        let ready = needs.ready.clone().into_iter().filter_map(|message| {
            let mark = self.marks[message].ready?;
            Some((mark, if mark.1 == 1 { Why::Begun } else { Why::Arrived }))
        });
        let why = if needs.ends { Why::Ended } else { Why::Taken };
        let taken = (needs.taken.0..needs.taken.1)
            .filter_map(move |message| Some((self.marks[message].taken?, why)));
        ready.chain(taken)
    }
}

impl Walk<'_> {
    /// Receives a batch; returns where this rank has read each message that is not empty.
    fn receive(&mut self, batch: &[Op], messages: &[Message]) -> Vec<Option<Passed>> {
        let after_sends = batch.iter().map(|op| op.after_sends).max().unwrap_or(0) as usize;
        let reduces = batch[0].entry.action == Action::Reduce;
        let mut taken = vec![None; batch.len()];
        let (mut aside, mut sources) = (0, Vec::new());
        for ((op, &message), taken) in batch.iter().zip(messages).zip(&mut taken) {
            let (there, elements) = self.chunks(op, op.entry.peer());
            // Kernels read reachable memory only; copies work everywhere.
            let reads = !op.staged && (!reduces || (self.reaches)(self.rank, op.entry.peer()));
            if elements > 0 {
                self.needs.ready.push(message);
            }
            if elements == 0 || reads {
                sources.push(there);
                continue;
            }
            let into = self.aside(&mut aside, there, elements);
            self.put(Task::Copy { from: there, into, elements });
            *taken = Some(self.tasks.len() + 1);
            sources.push(into);
        }
        let before = self.tasks.len();
        let (settled, first) = (self.settled, self.first_message);
        self.needs.taken = (first + settled, first + settled.max(after_sends));
        self.combine(batch, &sources);
        if self.tasks.len() > before {
            self.settled = settled.max(after_sends);
        }
        self.needs = Needs::default();
        let read = self.tasks.len() + 1;
        for (op, taken) in batch.iter().zip(&mut taken) {
            if self.chunks(op, self.rank).1 > 0 {
                taken.get_or_insert(read);
            }
        }
        taken
    }

    /// Combines received data, or copies them into this rank's data.
    fn combine(&mut self, batch: &[Op], sources: &[At]) {
        let mut next = 0;
        while let Some(op) = batch.get(next) {
            let (own, elements) = self.chunks(op, self.rank);
            let alike = batch[next..].iter().take_while(|other| op.merges_with(other)).count();
            let together = alike.clamp(1, MOST_SOURCES - 1);
            let from = sources[next..next + together].iter().copied();
            next += together;
            match op.entry.action {
                _ if elements == 0 => (),
                Action::Copy => {
                    let from = sources[next - 1];
                    self.put(Task::Copy { from, into: own, elements });
                }
                Action::Reduce => {
                    let vectors = std::iter::once(own).chain(from).collect();
                    self.put(Task::Reduce { vectors, elements });
                }
            }
        }
    }

    /// Adds a task; dependencies on earlier tasks of this stream are removed.
    fn put(&mut self, task: Task) {
        self.tasks.push((std::mem::take(&mut self.needs), task));
    }

    /// The location of an operation's chunks at a rank.
    fn chunks(&self, op: &Op, rank: Rank) -> (At, usize) {
        let range = self.bounds.elements(&op.entry);
        let offset_bytes = range.start * self.element_bytes;
        (At { rank, place: Place::Tensor(0), offset_bytes }, range.len())
    }

    /// Staging memory for as many elements, with the same alignment, so that kernels move whole vectors.
    fn aside(&mut self, used: &mut usize, like: At, elements: usize) -> At {
        const LINE_BYTES: usize = 16;
        let offset_bytes = used.next_multiple_of(LINE_BYTES) + like.offset_bytes % LINE_BYTES;
        *used = offset_bytes + elements * self.element_bytes;
        self.aside_bytes = self.aside_bytes.max(*used);
        At { rank: self.rank, place: Place::Aside, offset_bytes }
    }
}
