//! Training steps on a device: kernels that last as long as the passes over a model, and events where gradients
//! are ready.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;

use super::device_rank::DeviceRank;
use crate::cuda::CudaError;
use crate::cuda::streams::{Event, Streams};
use crate::cuda::work::{Address, Work};
use training::job::Job;
use workloads::replay::{Arrival, StepTimes, releases};

/// The host's clock and the device's, at one moment.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    event: Event,
    at: Instant,
    /// Half of the time in which it happened.
    error: Duration,
}

/// How often both clocks are compared; the event counts that happened in the shortest time.
const ANCHORS: usize = 10;

impl Anchor {
    /// Of an event between two readings of the host's clock.
    fn new(streams: &mut impl Streams, device_rank: &DeviceRank) -> Result<Anchor, CudaError> {
        let event = streams.event(device_rank.rank_stream.device, true)?;
        let before = Instant::now();
        streams.record(device_rank.compute, event)?;
        streams.synchronize(device_rank.compute)?;
        let error = before.elapsed() / 2;
        Ok(Anchor { event, at: before + error, error })
    }
}

/// Gradients of passes that the host enqueues ahead: streams take about a thousand launches before they block the
/// host.
const AHEAD: usize = 64;

/// The same of a framework's host, which runs ahead of the device. An assumption: with it, no stream blocks the host.
const HOST_AHEAD: usize = 128;

/// A step that is on the device, or its beginning is.
pub struct Step {
    /// Its beginning.
    start: Event,
    /// The next pass and gradient, and the part of that pass that is enqueued.
    pass: usize,
    index: usize,
    done: Duration,
    /// The previous kernel has stored the time at which the next one starts.
    runs_on: bool,
    /// When the host began with it.
    begun: Instant,
    /// Gradients in the order in which they become ready, each with its pass.
    ready: VecDeque<(usize, TensorId, Event)>,
    /// Of a host that runs ahead: gradients that it has launched and not handed over, and events of computed ones.
    launched: VecDeque<Arrival>,
    computed: Vec<Event>,
    /// Events before and after the accumulation of each gradient.
    added: Vec<[Event; 2]>,
    /// The end of the last backward pass, and of the optimizer, once they are there.
    backward: Option<Event>,
    optimizer: Option<Event>,
}

/// A step that is over.
pub struct Ended {
    /// The time.
    pub at: Instant,
    /// How long it took, by the device's clock, if it has one.
    pub device: Option<Duration>,
    /// Adding up gradients.
    pub aggregation: Duration,
}

/// One rank's passes over the model, replayed by kernels that only take time.
pub struct Backward {
    times: StepTimes,
    passes: usize,
    /// Gradients, with the time after the beginning of a pass at which they become ready, in order.
    releases: Vec<(Duration, TensorId)>,
    /// How long the host takes to launch a gradient's kernels, if it runs ahead of the device.
    launch: Option<Duration>,
    device: usize,
    multiprocessors: usize,
    anchor: Anchor,
    /// How many kernels have written the time.
    ticks: usize,
}

impl Backward {
    /// Nothing is enqueued. Kernels occupy `multiprocessors` multiprocessors.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn new(
        streams: &mut impl Streams,
        job: &Job,
        device_rank: &DeviceRank,
        multiprocessors: usize,
    ) -> Result<Backward, CudaError> {
        let device = device_rank.rank_stream.device;
        let mut anchor = Anchor::new(streams, device_rank)?;
        for _ in 1..ANCHORS {
            let other = Anchor::new(streams, device_rank)?;
            let is_better = other.error < anchor.error;
            let (kept, left) = if is_better { (other, anchor) } else { (anchor, other) };
            streams.give_back(left.event);
            anchor = kept;
        }
        Ok(Backward {
            times: job.times,
            passes: job.framework.backward_passes_per_step,
            releases: releases(job.workload, job.times),
            launch: Some(job.times.host.launch_gradient).filter(|time| !time.is_zero()),
            device,
            multiprocessors,
            anchor,
            ticks: 0,
        })
    }

    /// By how much times of the device may be off by the host's clock at the beginning; zero where it has no clock.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn clock_error(&self, streams: &mut impl Streams) -> Result<Duration, CudaError> {
        let has_clock = streams.elapsed_us(self.anchor.event, self.anchor.event)?.is_some();
        Ok(if has_clock { self.anchor.error } else { Duration::ZERO })
    }

    /// The time of an event by the host's clock; the current time where devices have no clock.
    ///
    /// # Errors
    /// When it has not happened.
    pub fn instant(&self, streams: &mut impl Streams, event: Event) -> Result<Instant, CudaError> {
        let elapsed_us = streams.elapsed_us(self.anchor.event, event)?;
        let since = |us: f64| self.anchor.at + Duration::from_secs_f64(us.max(0.0) * 1e-6);
        Ok(elapsed_us.map_or_else(Instant::now, since))
    }

    /// Puts the beginning of a step on the stream; it begins at once, or with the end of the one before.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn begin(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &mut DeviceRank,
    ) -> Result<Step, CudaError> {
        let mut step = Step {
            start: self.mark(streams, device_rank)?,
            pass: 0,
            index: 0,
            done: Duration::ZERO,
            runs_on: false,
            begun: Instant::now(),
            ready: VecDeque::new(),
            launched: VecDeque::new(),
            computed: Vec::new(),
            added: Vec::new(),
            backward: None,
            optimizer: None,
        };
        self.go_on(streams, device_rank, &mut step)?;
        Ok(step)
    }

    /// Enqueues more of a step, if little of it is left on the stream.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn go_on(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &mut DeviceRank,
        step: &mut Step,
    ) -> Result<(), CudaError> {
        let ahead = if self.launch.is_some() { HOST_AHEAD } else { AHEAD };
        while step.backward.is_none() && step.ready.len() < ahead {
            match self.releases.get(step.index) {
                Some(&(after, gradient)) => {
                    self.begin_pass(streams, device_rank, step)?;
                    if self.launched_at(step).is_some_and(|at| at > Instant::now()) {
                        break;
                    }
                    self.release_one(streams, device_rank, step, (after, gradient))?;
                }
                None => {
                    let whole = self.times.forward + self.times.backward;
                    self.busy(streams, device_rank, whole.saturating_sub(step.done), step)?;
                    (step.pass, step.index, step.done) = (step.pass + 1, 0, Duration::ZERO);
                    if step.pass == self.passes {
                        step.backward = Some(self.mark(streams, device_rank)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The forward pass as one kernel, once a host that runs ahead begins to launch it. It is a part of the first
    /// gradient's kernel otherwise.
    fn begin_pass(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &DeviceRank,
        step: &mut Step,
    ) -> Result<(), CudaError> {
        let is_first = step.index == 0 && step.done.is_zero();
        if is_first && self.pass_at(step).is_some_and(|at| at <= Instant::now()) {
            self.busy(streams, device_rank, self.times.forward, step)?;
            step.done = self.times.forward;
        }
        Ok(())
    }

    /// When the host begins to launch the running pass, if it runs ahead.
    fn pass_at(&self, step: &Step) -> Option<Instant> {
        let gradients = (step.pass * self.releases.len()) as f64;
        Some(step.begun + self.launch?.mul_f64(1.5 * gradients))
    }

    /// When the host has launched the kernels of the next gradient, if it runs ahead.
    fn launched_at(&self, step: &Step) -> Option<Instant> {
        let before = 0.5 * self.releases.len() as f64 + (step.index + 1) as f64;
        Some(self.pass_at(step)? + self.launch?.mul_f64(before))
    }

    /// The part of a pass up to the next gradient.
    fn release_one(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &mut DeviceRank,
        step: &mut Step,
        (after, gradient): (Duration, TensorId),
    ) -> Result<(), CudaError> {
        let at = self.launched_at(step);
        self.busy(streams, device_rank, after.saturating_sub(step.done), step)?;
        (step.done, step.index) = (after.max(step.done), step.index + 1);
        if step.pass > 0 {
            let before = self.mark(streams, device_rank)?;
            device_rank.add(streams, gradient, step.pass)?;
            step.added.push([before, self.mark(streams, device_rank)?]);
            // Later work is delayed by as much.
            step.runs_on = false;
        }
        let mark = self.mark(streams, device_rank)?;
        step.ready.push_back((step.pass, gradient, mark));
        if let Some(at) = at {
            device_rank.computed[gradient] = Some(mark);
            step.launched.push_back(Arrival { pass: step.pass, gradient, at });
        }
        Ok(())
    }

    /// Puts the optimizer on the stream.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn optimize(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &DeviceRank,
        step: &mut Step,
    ) -> Result<(), CudaError> {
        step.runs_on = false;
        self.busy(streams, device_rank, self.times.optimizer, step)?;
        step.optimizer = Some(self.mark(streams, device_rank)?);
        Ok(())
    }

    /// Keeps the device busy for a time; from the end time of the previous kernel, if that continues.
    fn busy(
        &mut self,
        streams: &mut impl Streams,
        device_rank: &DeviceRank,
        length: Duration,
        step: &mut Step,
    ) -> Result<(), CudaError> {
        if length.is_zero() {
            return Ok(());
        }
        // Late blocks read the word that the previous kernel wrote, so each kernel writes the other word.
        let word = |ticks: usize| device_rank.clock + 8 * (ticks % 2) as Address;
        // The device idles until a host that is late launches the next one.
        let from = if step.runs_on && self.launch.is_none() { word(self.ticks) } else { 0 };
        let (into, multiprocessors) = (word(self.ticks + 1), self.multiprocessors);
        let length_ns = length.as_nanos() as u64;
        streams
            .launch(device_rank.compute, &Work::Busy { from, into, length_ns, multiprocessors })?;
        self.ticks += 1;
        step.runs_on = true;
        Ok(())
    }

    fn mark(
        &self,
        streams: &mut impl Streams,
        device_rank: &DeviceRank,
    ) -> Result<Event, CudaError> {
        let mark = streams.event(self.device, true)?;
        streams.record(device_rank.compute, mark)?;
        Ok(mark)
    }

    /// Its event may be another's.
    pub fn release(self, streams: &mut impl Streams) {
        streams.give_back(self.anchor.event);
    }
}

impl Step {
    /// The next gradient to be handed over: once it is computed, or once a host that runs ahead has launched it.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn next_arrival(
        &mut self,
        streams: &mut impl Streams,
        by: &Backward,
    ) -> Result<Option<Arrival>, CudaError> {
        if by.launch.is_some() {
            while let Some((.., event)) = self.next_computed(streams)? {
                // Messages wait for it.
                self.computed.push(event);
            }
            return Ok(self.launched.pop_front());
        }
        let Some((pass, gradient, event)) = self.next_computed(streams)? else { return Ok(None) };
        let at = by.instant(streams, event)?;
        streams.give_back(event);
        Ok(Some(Arrival { pass, gradient, at }))
    }

    /// The next gradient that the device has computed.
    fn next_computed(
        &mut self,
        streams: &mut impl Streams,
    ) -> Result<Option<(usize, TensorId, Event)>, CudaError> {
        match self.ready.front() {
            Some(&(.., event)) if streams.happened(event)? => Ok(self.ready.pop_front()),
            _ => Ok(None),
        }
    }

    /// Whether a gradient can be handed over, or launched.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn is_due(&self, streams: &mut impl Streams, by: &Backward) -> Result<bool, CudaError> {
        if by.launch.is_some() {
            let launches = self.is_growing() && self.ready.len() < HOST_AHEAD;
            let at = by.launched_at(self).filter(|_| launches);
            return Ok(!self.launched.is_empty() || at.is_some_and(|at| at <= Instant::now()));
        }
        self.ready.front().map_or(Ok(false), |&(.., event)| streams.happened(event))
    }

    /// The end of the last backward pass, once it has come.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn backward(&self, streams: &mut impl Streams) -> Result<Option<Event>, CudaError> {
        let Some(end) = self.backward else { return Ok(None) };
        Ok(streams.happened(end)?.then_some(end))
    }

    /// Some of its passes are yet to be put on the device.
    pub fn is_growing(&self) -> bool {
        self.backward.is_none()
    }

    /// Whether the optimizer is enqueued.
    pub fn is_closing(&self) -> bool {
        self.optimizer.is_some()
    }

    /// The times of the step, once its optimizer has finished.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn ended(
        &self,
        streams: &mut impl Streams,
        by: &Backward,
    ) -> Result<Option<Ended>, CudaError> {
        let Some(end) = self.optimizer else { return Ok(None) };
        if !streams.happened(end)? {
            return Ok(None);
        }
        let mut aggregation = Duration::ZERO;
        for &[before, after] in &self.added {
            aggregation += between(streams, before, after)?.unwrap_or_default();
        }
        let (at, device) = (by.instant(streams, end)?, between(streams, self.start, end)?);
        Ok(Some(Ended { at, device, aggregation }))
    }

    /// Its events may be others'.
    pub fn release(self, streams: &mut impl Streams) {
        let Step { start, ready, computed, added, backward, optimizer, .. } = self;
        let all = [start].into_iter().chain(backward).chain(optimizer);
        let all = all.chain(ready.into_iter().map(|(.., event)| event)).chain(computed);
        all.chain(added.into_iter().flatten()).for_each(|event| streams.give_back(event));
    }
}

/// Between two events that have come to pass, by the device's clock, if it has one.
///
/// # Errors
/// When a CUDA call fails.
pub fn between(
    streams: &mut impl Streams,
    from: Event,
    to: Event,
) -> Result<Option<Duration>, CudaError> {
    let elapsed_us = streams.elapsed_us(from, to)?;
    Ok(elapsed_us.map(|us| Duration::from_secs_f64(us.max(0.0) * 1e-6)))
}
