//! Finds two unordered tasks that access the same bytes, one of which writes. It does not try orders but computes
//! what each stream is ordered after.

use std::collections::HashMap;

use algorithms::topology::Rank;

use super::{At, Place, Streamed, Task};

/// An access to bytes.
#[derive(Clone, Copy, Debug)]
struct Access {
    by: Rank,
    /// The how-manieth on that stream, from 1.
    turn: usize,
    at: At,
    size_bytes: usize,
    writes: bool,
}

struct Trace {
    /// For each stream: the number of accesses of every stream that it is ordered after.
    knows: Vec<Vec<usize>>,
    recorded: HashMap<usize, Vec<usize>>,
    /// By owner of the memory.
    accesses: HashMap<(Rank, Place), Vec<Access>>,
}

/// The first two accesses that race, as text. Each rank writes its data before the collective and again
/// afterwards; `tensors` are their lengths.
pub fn race(streamed: &Streamed, tensors: &[usize], element_bytes: usize) -> Option<String> {
    let ranks = streamed.aside_bytes.len();
    let (knows, recorded) = (vec![vec![0; ranks]; ranks], HashMap::new());
    let mut trace = Trace { knows, recorded, accesses: HashMap::new() };
    let own =
        |rank, tensor: usize| At { rank, place: Place::Tensor(tensor as u32), offset_bytes: 0 };
    let mut found = None;
    for rank in 0..ranks {
        for (tensor, elements) in tensors.iter().enumerate() {
            trace.touch(rank, &[(own(rank, tensor), true)], elements * element_bytes);
        }
    }
    for (rank, task) in &streamed.tasks {
        let racing = match task {
            Task::Copy { from, into, elements } => {
                trace.touch(*rank, &[(*from, false), (*into, true)], elements * element_bytes)
            }
            Task::Reduce { vectors, elements } => {
                let touched: Vec<_> =
                    vectors.iter().enumerate().map(|(at, vector)| (*vector, at == 0)).collect();
                trace.touch(*rank, &touched, elements * element_bytes)
            }
            Task::Record(event) => {
                trace.recorded.insert(*event, trace.knows[*rank].clone());
                None
            }
            Task::Wait(event) => {
                // A wait for an event that was never recorded has no effect.
                let known = trace.recorded.get(event).cloned().unwrap_or(vec![0; ranks]);
                let pairs = trace.knows[*rank].iter_mut().zip(known);
                pairs.for_each(|(mine, theirs)| *mine = theirs.max(*mine));
                None
            }
        };
        found = found.or(racing);
    }
    for rank in 0..ranks {
        for (tensor, elements) in tensors.iter().enumerate() {
            let touched = [(own(rank, tensor), true)];
            found = found.or(trace.touch(rank, &touched, elements * element_bytes));
        }
    }
    found
}

impl Trace {
    /// A stream's next task; returns an earlier task that it races with.
    fn touch(&mut self, by: Rank, touched: &[(At, bool)], size_bytes: usize) -> Option<String> {
        let turn = self.knows[by][by] + 1;
        let fresh = touched.iter().map(|&(at, writes)| Access { by, turn, at, size_bytes, writes });
        let fresh: Vec<_> = fresh.collect();
        let knows = &self.knows[by];
        let races = |new: &Access| {
            let meets = |old: &&Access| {
                let (a, b) = (old.at.offset_bytes, new.at.offset_bytes);
                (old.writes || new.writes)
                    && a < b + new.size_bytes
                    && b < a + old.size_bytes
                    && knows[old.by] < old.turn
                    && old.by != new.by
            };
            let old = self.accesses.get(&(new.at.rank, new.at.place))?.iter().find(meets)?;
            Some(format!("{old:?} races with {new:?}"))
        };
        let found = fresh.iter().find_map(races);
        for access in fresh {
            let memory = (access.at.rank, access.at.place);
            self.accesses.entry(memory).or_default().push(access);
        }
        self.knows[by][by] = turn;
        found
    }
}
