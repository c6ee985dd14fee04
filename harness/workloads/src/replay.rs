//! A training job as a clock: when each gradient is ready, and when a step is over.
//!
//! Nothing is computed. A step has one or several passes, each of a forward gap and a backward pass in which
//! gradients become ready at their measured fractions. An optimizer runs once all gradients are reduced; then the
//! next step begins.

use std::time::{Duration, Instant};

use algorithms::control::TensorId;

use crate::workload::Workload;

/// The parts of a training step besides communication.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// Before the first gradient of a pass can become ready.
    pub forward: Duration,
    /// Gradients become ready at their fractions of it.
    pub backward: Duration,
    /// After the last gradient is reduced.
    pub optimizer: Duration,
    /// How long the framework's thread is busy with each gradient that it hands over, after the gradient is ready.
    pub hand_over: Duration,
    /// How long it is busy before, with waking up for a gradient.
    pub wake: Duration,
    /// How long it is busy with each result that it takes back, after the backward pass.
    pub take_back: Duration,
}

/// A gradient that has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The pass of its step, from 0.
    pub pass: usize,
    /// Which.
    pub gradient: TensorId,
    /// The time.
    pub at: Instant,
}

/// One rank's training job.
pub struct Replay {
    times: StepTimes,
    /// Forward and backward passes of a step.
    passes: usize,
    /// Gradients, with the time after the beginning of a pass at which they become ready, in order.
    releases: Vec<(Duration, TensorId)>,
    /// The same for the last pass, which hands them over one after the other.
    handed_over: Vec<(Duration, TensorId)>,
    /// How many gradients the framework's thread has handed over in the running step; none if there is no such
    /// thread, and the clock alone decides.
    allowed: Option<usize>,
    /// Gradients of a step, those included that never become ready.
    gradients: usize,
    /// Start of the running step; none while the job waits for data.
    start: Option<Instant>,
    /// Work of this step that was done while the clock stood still.
    worked: Duration,
    /// Gradients that became ready, over all passes, and gradients still to be reduced.
    released: usize,
    left: usize,
    /// Until when the framework's thread takes back results of the running step.
    taken_back: Option<Instant>,
}

impl Replay {
    /// A job that waits for data. A gradient whose fraction is not finite never becomes ready.
    pub fn new(workload: &Workload, times: StepTimes, passes: usize) -> Replay {
        let releases = releases(workload, times);
        Replay {
            times,
            passes,
            handed_over: one_after_the_other(&releases, times.hand_over),
            releases,
            allowed: None,
            gradients: workload.gradients.len(),
            start: None,
            worked: Duration::ZERO,
            released: 0,
            left: 0,
            taken_back: None,
        }
    }

    /// A step begins.
    pub fn begin(&mut self, start: Instant) {
        self.start = Some(start);
        self.worked = Duration::ZERO;
        self.released = 0;
        self.left = self.gradients;
        self.taken_back = None;
    }

    /// True while no step runs.
    pub fn is_waiting(&self) -> bool {
        self.start.is_none()
    }

    /// The next step waits for [`Self::begin`].
    pub fn wait(&mut self) {
        self.start = None;
    }

    /// Work of this length is part of a pass: everything afterwards is later by as much.
    pub fn work(&mut self, time: Duration) {
        self.worked += time;
    }

    /// So many gradients of the running step have been handed over by the framework's thread.
    pub fn allow(&mut self, handed_over: usize) {
        self.allowed = Some(handed_over);
    }

    /// The framework's thread has not handed over the next gradient of the last pass, whatever the clock says.
    fn is_held(&self) -> bool {
        let earlier = (self.passes - 1) * self.releases.len();
        let in_last_pass = self.released.checked_sub(earlier);
        in_last_pass.zip(self.allowed).is_some_and(|(released, allowed)| released >= allowed)
    }

    /// The next gradient of the running step, and when it becomes ready.
    fn next(&self) -> Option<Arrival> {
        let pass = self.released.checked_div(self.releases.len())?;
        let of_pass = if pass + 1 < self.passes { &self.releases } else { &self.handed_over };
        let (after, gradient) = of_pass[self.released % of_pass.len()];
        let at = self.start? + self.worked + self.passes_time(pass) + after;
        (pass < self.passes).then_some(Arrival { pass, gradient, at })
    }

    /// Appends the gradients that are ready by now.
    pub fn ready_until(&mut self, now: Instant, ready: &mut Vec<Arrival>) {
        while let Some(arrival) = self.next().filter(|arrival| arrival.at <= now) {
            if self.is_held() {
                return;
            }
            ready.push(arrival);
            self.released += 1;
        }
    }

    fn passes_time(&self, passes: usize) -> Duration {
        (self.times.forward + self.times.backward) * passes as u32
    }

    /// When the running step began or will begin.
    pub fn begun(&self) -> Option<Instant> {
        self.start
    }

    /// When a gradient becomes ready in the last pass of the running step, as currently expected.
    pub fn ready_at(&self, gradient: TensorId) -> Option<Instant> {
        let (after, _) = self.handed_over.iter().find(|(_, id)| *id == gradient)?;
        Some(self.start? + self.worked + self.passes_time(self.passes - 1) + *after)
    }

    /// Time until the next gradient may become ready; none if one is due. While the job waits for data, a short
    /// time.
    pub fn until_next(&self, now: Instant) -> Option<Duration> {
        const LITTLE: Duration = Duration::from_micros(100);
        if self.is_waiting() {
            return Some(LITTLE);
        }
        let next = self.next()?;
        let wait = next.at.checked_duration_since(now).filter(|wait| !wait.is_zero());
        wait.or(self.is_held().then_some(LITTLE))
    }

    /// Records that this many gradients have been reduced by now.
    pub fn reduced(&mut self, gradients: usize, now: Instant) {
        self.left -= gradients;
        if let Some(end) = self.backward_end().filter(|_| !self.times.take_back.is_zero()) {
            let free = self.taken_back.unwrap_or(end).max(end).max(now);
            self.taken_back = Some(free + self.times.take_back * gradients as u32);
        }
    }

    /// The end of the last backward pass of the running step.
    pub fn backward_end(&self) -> Option<Instant> {
        let last = self.handed_over.last().map_or(Duration::ZERO, |&(after, _)| after);
        let length = self.passes_time(self.passes - 1) + last.max(self.passes_time(1));
        self.start.map(|start| start + self.worked + length)
    }

    /// If all gradients of the step are reduced: how long the step took, the optimizer included.
    /// The next one begins right after it.
    pub fn ended(&mut self, now: Instant) -> Option<Duration> {
        let start = self.start.filter(|_| self.left == 0)?;
        let end = self.backward_end()?.max(now);
        let end = self.taken_back.map_or(end, |taken_back| end.max(taken_back));
        let end = end + self.times.optimizer;
        self.begin(end);
        Some(end - start)
    }
}

/// Gradients with the time after the beginning of a pass at which they become ready, in order; without those that
/// never do.
pub fn releases(workload: &Workload, times: StepTimes) -> Vec<(Duration, TensorId)> {
    let fraction = |id: TensorId| workload.gradients[id].ready_fraction;
    let ready = workload.ready_order.iter().filter(|&&id| fraction(id).is_finite());
    ready.map(|&id| (times.forward + times.backward.mul_f64(fraction(id)), id)).collect()
}

/// When each gradient is handed over, by a thread that is busy with each for so long.
fn one_after_the_other(
    releases: &[(Duration, TensorId)],
    hand_over: Duration,
) -> Vec<(Duration, TensorId)> {
    let mut free = Duration::ZERO;
    let handed_over = |&(after, gradient): &(Duration, TensorId)| {
        free = after.max(free) + hand_over;
        (free, gradient)
    };
    releases.iter().map(handed_over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Gradient;

    const MS: Duration = Duration::from_millis(1);

    fn replay(passes: usize) -> Replay {
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
        let times =
            StepTimes { forward: 2 * MS, backward: 8 * MS, optimizer: MS, ..StepTimes::default() };
        Replay::new(&workload, times, passes)
    }

    /// The same, with a thread that needs 3 ms for each gradient: ready after 4, 6, 8, 10 ms.
    #[test]
    fn gradients_are_handed_over_one_after_the_other() {
        let mut replay = replay(1);
        replay.handed_over = one_after_the_other(&replay.releases, 3 * MS);
        let t0 = Instant::now();
        replay.begin(t0);
        assert_eq!(replay.ready_at(0), Some(t0 + 16 * MS));
        assert_eq!(
            replay.backward_end(),
            Some(t0 + 16 * MS),
            "it lasts until the last is handed over"
        );
        assert_eq!(ready(&mut replay, t0 + 6 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 10 * MS), [3, 2]);
        replay.allow(3);
        assert_eq!(ready(&mut replay, t0 + 20 * MS), [1], "the thread is late");
        assert_eq!(replay.until_next(t0 + 20 * MS), Some(Duration::from_micros(100)));
        replay.allow(4);
        assert_eq!(ready(&mut replay, t0 + 20 * MS), [0]);
    }

    fn ready(replay: &mut Replay, at: Instant) -> Vec<TensorId> {
        let mut ready = Vec::new();
        replay.ready_until(at, &mut ready);
        ready.into_iter().map(|arrival| arrival.gradient).collect()
    }

    #[test]
    fn gradients_become_ready_at_their_fractions() {
        let (mut replay, t0) = (replay(1), Instant::now());
        assert!(replay.is_waiting() && ready(&mut replay, t0 + 100 * MS).is_empty());
        replay.begin(t0);
        assert_eq!(ready(&mut replay, t0 + 3 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 4 * MS), [3]);
        assert_eq!(ready(&mut replay, t0 + 9 * MS), [2, 1]);
        assert_eq!([2, 1].map(|id| replay.ready_at(id)), [6, 8].map(|ms| Some(t0 + ms * MS)));
        assert_eq!(ready(&mut replay, t0 + 9 * MS), [0; 0]);
        assert_eq!(replay.until_next(t0 + 9 * MS), Some(MS));
        assert_eq!(replay.until_next(t0 + 10 * MS), None);
        assert_eq!(ready(&mut replay, t0 + 10 * MS), [0]);
        assert_eq!(replay.until_next(t0 + 10 * MS), None);
    }

    #[test]
    fn a_step_ends_after_the_last_reduction_or_the_backward_pass_and_the_optimizer() {
        let (mut replay, t0) = (replay(1), Instant::now());
        replay.begin(t0);
        ready(&mut replay, t0 + 10 * MS);
        replay.reduced(3, t0 + 20 * MS);
        assert_eq!(replay.ended(t0 + 20 * MS), None);
        replay.reduced(1, t0 + 20 * MS);
        assert_eq!(replay.ended(t0 + 20 * MS), Some(21 * MS));
        // The next one began at 21 ms, so its first gradient is ready at 25 ms.
        assert_eq!(ready(&mut replay, t0 + 24 * MS), [0; 0]);
        assert_eq!(ready(&mut replay, t0 + 25 * MS), [3]);
        replay.reduced(4, t0 + 26 * MS);
        assert_eq!(replay.ended(t0 + 26 * MS), Some(11 * MS), "not before its backward pass");
    }

    #[test]
    fn results_are_taken_back_after_the_backward_pass_one_after_the_other() {
        let (mut replay, t0) = (replay(1), Instant::now());
        replay.times.take_back = 2 * MS;
        replay.begin(t0);
        ready(&mut replay, t0 + 10 * MS);
        replay.reduced(2, t0 + 8 * MS);
        replay.reduced(1, t0 + 13 * MS);
        replay.reduced(1, t0 + 20 * MS);
        // Two from 10 to 14 ms, one until 16, one from 20 to 22; then the optimizer.
        assert_eq!(replay.ended(t0 + 20 * MS), Some(23 * MS));
    }

    /// Passes of 10 ms, then one optimizer; work shifts what comes after it.
    #[test]
    fn every_pass_has_all_gradients_and_work_stops_the_clock() {
        let (mut replay, t0) = (replay(3), Instant::now());
        replay.begin(t0);
        let mut arrivals = Vec::new();
        replay.ready_until(t0 + 15 * MS, &mut arrivals);
        let seen: Vec<_> =
            arrivals.iter().map(|arrival| (arrival.pass, arrival.gradient)).collect();
        assert_eq!(seen, [(0, 3), (0, 2), (0, 1), (0, 0), (1, 3)]);
        replay.work(5 * MS);
        assert_eq!(replay.until_next(t0 + 15 * MS), Some(6 * MS));
        assert_eq!(ready(&mut replay, t0 + 20 * MS), [0; 0], "16 + 5 ms");
        assert_eq!(ready(&mut replay, t0 + 21 * MS), [2]);
        assert_eq!(ready(&mut replay, t0 + 35 * MS), [1, 0, 3, 2, 1, 0]);
        assert_eq!(replay.backward_end(), Some(t0 + 35 * MS));
        replay.reduced(4, t0 + 30 * MS);
        assert_eq!(replay.ended(t0 + 30 * MS), Some(36 * MS));
        assert_eq!(replay.backward_end(), Some(t0 + 66 * MS), "nothing is left of the work");
    }
}
