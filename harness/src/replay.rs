//! A training job as a clock: when each gradient is handed to the engine, and when a step is over.
//!
//! Nothing is computed. A step is a forward gap, a backward pass in which gradients become ready at
//! their real fractions, and an optimizer, which runs once all gradients are reduced; then the next
//! step begins.

use std::ops::Range;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;

use crate::workload::Workload;

/// What a training step consists of, besides communication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Before the first gradient can become ready.
    pub forward: Duration,
    /// Gradients become ready at their fractions of it.
    pub backward: Duration,
    /// After the last gradient is reduced.
    pub optimizer: Duration,
}

/// One rank's training job.
pub struct Replay {
    times: StepTimes,
    /// What is handed over how long after the beginning of a step, in order.
    releases: Vec<(Duration, TensorId)>,
    /// When the running step began; none while the job waits for data.
    start: Option<Instant>,
    /// Gradients handed over, and gradients still to be reduced.
    released: usize,
    left: usize,
}

impl Replay {
    /// A job that waits for data. With `groups`, gradients of a group are handed over together, in
    /// order of definition, when the last of them is ready.
    pub fn new(workload: &Workload, times: StepTimes, groups: Option<&[Range<usize>]>) -> Replay {
        let at = |id: TensorId| {
            times.forward + times.backward.mul_f64(workload.gradients[id].ready_fraction)
        };
        let releases = match groups {
            None => workload.ready_order.iter().map(|&id| (at(id), id)).collect(),
            Some(groups) => {
                let last = |group: &Range<usize>| group.clone().map(at).max().unwrap_or_default();
                let mut groups: Vec<_> =
                    groups.iter().map(|group| (last(group), group.clone())).collect();
                groups.sort_by_key(|(at, group)| (*at, group.start));
                groups.into_iter().flat_map(|(at, group)| group.map(move |id| (at, id))).collect()
            }
        };
        Replay { times, releases, start: None, released: 0, left: 0 }
    }

    /// A step begins.
    pub fn begin(&mut self, start: Instant) {
        self.start = Some(start);
        self.released = 0;
        self.left = self.releases.len();
    }

    /// True while no step runs.
    pub fn is_waiting(&self) -> bool {
        self.start.is_none()
    }

    /// The next step waits for [`Self::begin`].
    pub fn wait(&mut self) {
        self.start = None;
    }

    /// Appends what has become ready by now.
    pub fn ready_until(&mut self, now: Instant, ready: &mut Vec<TensorId>) {
        let Some(start) = self.start else { return };
        let rest = &self.releases[self.released..];
        let due = rest.iter().take_while(|(after, _)| start + *after <= now);
        let before = ready.len();
        ready.extend(due.map(|&(_, id)| id));
        self.released += ready.len() - before;
    }

    /// When the running step began, or will begin.
    pub fn begun(&self) -> Option<Instant> {
        self.start
    }

    /// The last `count` gradients handed over, and when each became ready.
    pub fn last_ready(&self, count: usize) -> impl Iterator<Item = (Instant, TensorId)> {
        let last = &self.releases[self.released - count..self.released];
        self.start.into_iter().flat_map(|start| last.iter().map(move |&(at, id)| (start + at, id)))
    }

    /// How long until something may become ready; none if it is due. While the job waits for data, a
    /// little while.
    pub fn until_next(&self, now: Instant) -> Option<Duration> {
        const LITTLE: Duration = Duration::from_micros(100);
        let Some(start) = self.start else { return Some(LITTLE) };
        let next = self.releases.get(self.released).map(|(after, _)| start + *after);
        next.and_then(|next| next.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// So many gradients have been reduced.
    pub fn reduced(&mut self, gradients: usize) {
        self.left -= gradients;
    }

    /// If all gradients of the step are reduced: how long the step took, the optimizer included.
    /// The next one begins right after it.
    pub fn ended(&mut self, now: Instant) -> Option<Duration> {
        let start = self.start.filter(|_| self.left == 0)?;
        let backward_end = start + self.times.forward + self.times.backward;
        let end = now.max(backward_end) + self.times.optimizer;
        self.begin(end);
        Some(end - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Gradient;

    const MS: Duration = Duration::from_millis(1);

    fn replay(groups: Option<&[Range<usize>]>) -> Replay {
        let gradient = |(id, ready_fraction): (usize, f64)| Gradient {
            name: format!("{id}"),
            shape: vec![1],
            ready_fraction,
        };
        let fractions = [1.0, 0.75, 0.5, 0.25];
        let workload = Workload {
            name: "four".into(),
            gradients: fractions.into_iter().enumerate().map(gradient).collect(),
            ready_order: vec![3, 2, 1, 0],
            ready_assumed: false,
        };
        let times = StepTimes { forward: 2 * MS, backward: 8 * MS, optimizer: MS };
        Replay::new(&workload, times, groups)
    }

    fn ready(replay: &mut Replay, at: Instant) -> Vec<TensorId> {
        let mut ready = Vec::new();
        replay.ready_until(at, &mut ready);
        ready
    }

    #[test]
    fn gradients_become_ready_at_their_fractions() {
        let (mut replay, t0) = (replay(None), Instant::now());
        assert!(replay.is_waiting() && ready(&mut replay, t0 + 100 * MS).is_empty());
        replay.begin(t0);
        assert_eq!(ready(&mut replay, t0 + 3 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 4 * MS), [3]);
        assert_eq!(ready(&mut replay, t0 + 9 * MS), [2, 1]);
        let last: Vec<_> = replay.last_ready(2).collect();
        assert_eq!(last, [(t0 + 6 * MS, 2), (t0 + 8 * MS, 1)]);
        assert_eq!(ready(&mut replay, t0 + 9 * MS), [0; 0]);
        assert_eq!(replay.until_next(t0 + 9 * MS), Some(MS));
        assert_eq!(replay.until_next(t0 + 10 * MS), None);
        assert_eq!(ready(&mut replay, t0 + 10 * MS), [0]);
        assert_eq!(replay.until_next(t0 + 10 * MS), None);
    }

    #[test]
    fn a_step_ends_after_the_last_reduction_or_the_backward_pass_and_the_optimizer() {
        let (mut replay, t0) = (replay(None), Instant::now());
        replay.begin(t0);
        ready(&mut replay, t0 + 10 * MS);
        replay.reduced(3);
        assert_eq!(replay.ended(t0 + 20 * MS), None);
        replay.reduced(1);
        assert_eq!(replay.ended(t0 + 20 * MS), Some(21 * MS));
        // The next one began at 21 ms, so its first gradient is ready at 25 ms.
        assert_eq!(ready(&mut replay, t0 + 24 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 25 * MS), [3]);
        replay.reduced(4);
        assert_eq!(replay.ended(t0 + 26 * MS), Some(11 * MS), "not before its backward pass");
    }

    #[test]
    fn groups_are_handed_over_as_a_unit() {
        let (mut replay, t0) = (replay(Some(&[0..2, 2..4])), Instant::now());
        replay.begin(t0);
        assert_eq!(ready(&mut replay, t0 + 5 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 6 * MS), [2, 3]);
        assert_eq!(ready(&mut replay, t0 + 9 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 10 * MS), [0, 1]);
    }
}
