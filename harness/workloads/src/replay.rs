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
    /// What the host spends besides.
    pub host: HostCosts,
}

/// How long the threads of a rank are busy, besides copying, casting and reducing, and what memory they have besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCosts {
    /// The framework's thread, waking up from a wait for a gradient.
    pub wake: Duration,
    /// Handing over a gradient, once it is ready.
    pub hand_over: Duration,
    /// Taking back a result, after the backward pass.
    pub take_back: Duration,
    /// The background loop, with each gradient that is reduced or refused.
    pub loop_gradient: Duration,
    /// The same, with each message.
    pub loop_message: Duration,
    /// Adding a megabyte of gradients to those of earlier passes takes at least this long.
    pub add_mb: Duration,
    /// The same, casting a megabyte of gradients.
    pub cast_mb: Duration,
    /// The same, casting results back to a megabyte of gradients.
    pub cast_back_mb: Duration,
    /// Launching the kernels of one gradient in a backward pass on a device; half as much in a forward pass. Gradients are
    /// handed over when they are launched, and their message waits on the device until they are computed, as with
    /// PyTorch and Horovod since 0.21. Zero: they are handed over when they are computed.
    pub launch_gradient: Duration,
    /// Memory of the framework, which a process touches before it allocates that of gradients.
    pub framework_bytes: usize,
}

impl HostCosts {
    /// Whether the framework has a thread of its own: it takes time to hand over a gradient.
    pub fn has_framework_thread(&self) -> bool {
        !(self.hand_over.is_zero() && self.wake.is_zero())
    }
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
    /// Gradients of a step, those included that never become ready.
    gradients: usize,
    /// Start of the running step; none while the job waits for data.
    start: Option<Instant>,
    /// Work of this step that was done while the clock stood still.
    worked: Duration,
    /// Gradients that became ready, over all passes, and gradients still to be reduced.
    released: usize,
    left: usize,
}

impl Replay {
    /// A job that waits for data. A gradient whose fraction is not finite never becomes ready.
    pub fn new(workload: &Workload, times: StepTimes, passes: usize) -> Replay {
        Replay {
            times,
            passes,
            releases: releases(workload, times),
            gradients: workload.gradients.len(),
            start: None,
            worked: Duration::ZERO,
            released: 0,
            left: 0,
        }
    }

    /// A step begins.
    pub fn begin(&mut self, start: Instant) {
        self.start = Some(start);
        self.worked = Duration::ZERO;
        self.released = 0;
        self.left = self.gradients;
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

    /// The next gradient of the running step, and when it becomes ready.
    fn next(&self) -> Option<Arrival> {
        let pass = self.released.checked_div(self.releases.len())?;
        let (after, gradient) = self.releases[self.released % self.releases.len()];
        let at = self.start? + self.worked + self.passes_time(pass) + after;
        (pass < self.passes).then_some(Arrival { pass, gradient, at })
    }

    /// Appends the gradients that are ready by now.
    pub fn ready_until(&mut self, now: Instant, ready: &mut Vec<Arrival>) {
        while let Some(arrival) = self.next().filter(|arrival| arrival.at <= now) {
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
        let (after, _) = self.releases.iter().find(|(_, id)| *id == gradient)?;
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
        next.at.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Records that this many gradients have been reduced.
    pub fn reduced(&mut self, gradients: usize) {
        self.left -= gradients;
    }

    /// The end of the last backward pass of the running step.
    pub fn backward_end(&self) -> Option<Instant> {
        Some(self.start? + self.worked + self.passes_time(self.passes))
    }

    /// If all gradients of the step are reduced: how long the step took, the optimizer included.
    /// The next one begins right after it.
    pub fn ended(&mut self, now: Instant) -> Option<Duration> {
        let start = self.start.filter(|_| self.left == 0)?;
        let end = self.backward_end()?.max(now) + self.times.optimizer;
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
        replay.reduced(4);
        assert_eq!(replay.ended(t0 + 30 * MS), Some(36 * MS));
        assert_eq!(replay.backward_end(), Some(t0 + 66 * MS), "nothing is left of the work");
    }
}
