//! Training steps on a device: kernels that last as long as the passes over a model, and events where
//! gradients are ready.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;

use super::super::Job;
use super::station::Station;
use crate::cuda::CudaError;
use crate::cuda::streams::{Event, Streams};
use crate::cuda::work::{Address, Work};
use crate::replay::{StepTimes, releases};

/// The host's clock and the device's, at one moment.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    event: Event,
    at: Instant,
}

/// A step that is on the device.
pub struct Step {
    /// Its beginning.
    start: Event,
    /// Gradients in the order in which they become ready in the last pass.
    ready: VecDeque<(TensorId, Event)>,
    /// Before and after what adds up each gradient.
    added: Vec<[Event; 2]>,
    /// The end of the last backward pass, and of the optimizer, which is enqueued later.
    backward: Event,
    optimizer: Option<Event>,
}

/// A step that is over.
pub struct Ended {
    /// When it was.
    pub at: Instant,
    /// How long it took, by the device's clock, if it has one.
    pub device: Option<Duration>,
    /// Adding up gradients.
    pub aggregation: Duration,
}

/// One rank's passes over the model, replayed by kernels that do nothing.
pub struct Backward {
    times: StepTimes,
    passes: usize,
    /// What becomes ready how long after the beginning of a pass, in order.
    releases: Vec<(Duration, TensorId)>,
    device: usize,
    multiprocessors: usize,
    anchor: Anchor,
    /// How many kernels have written the time.
    ticks: usize,
}

impl Backward {
    /// Nothing is on the device. Kernels occupy so many multiprocessors.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn new(
        streams: &mut impl Streams,
        job: &Job,
        station: &Station,
        multiprocessors: usize,
    ) -> Result<Backward, CudaError> {
        let device = station.seat.device;
        let anchor = streams.event(device, true)?;
        streams.record(station.compute, anchor)?;
        streams.synchronize(station.compute)?;
        Ok(Backward {
            times: job.times,
            passes: job.framework.backward_passes_per_step,
            releases: releases(job.workload, job.times),
            device,
            multiprocessors,
            anchor: Anchor { event: anchor, at: Instant::now() },
            ticks: 0,
        })
    }

    /// When an event came to pass, by the host's clock; where devices have none, now.
    ///
    /// # Errors
    /// When it has not.
    pub fn instant(&self, streams: &mut impl Streams, event: Event) -> Result<Instant, CudaError> {
        let elapsed_us = streams.elapsed_us(self.anchor.event, event)?;
        let since = |us: f64| self.anchor.at + Duration::from_secs_f64(us.max(0.0) * 1e-6);
        Ok(elapsed_us.map_or_else(Instant::now, since))
    }

    /// Puts a step on the stream; it begins at once, or with the end of the one before.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn begin(
        &mut self,
        streams: &mut impl Streams,
        station: &Station,
    ) -> Result<Step, CudaError> {
        let start = self.mark(streams, station)?;
        let (mut ready, mut added) = (VecDeque::new(), Vec::new());
        let mut runs_on = false;
        for pass in 0..self.passes {
            let mut done = Duration::ZERO;
            for index in 0..self.releases.len() {
                let (after, gradient) = self.releases[index];
                self.busy(streams, station, after - done, &mut runs_on)?;
                done = after;
                if pass > 0 {
                    let before = self.mark(streams, station)?;
                    station.add(streams, gradient, pass)?;
                    added.push([before, self.mark(streams, station)?]);
                    // What comes later comes later by as much.
                    runs_on = false;
                }
                if pass + 1 == self.passes {
                    ready.push_back((gradient, self.mark(streams, station)?));
                }
            }
            let whole = self.times.forward + self.times.backward;
            self.busy(streams, station, whole.saturating_sub(done), &mut runs_on)?;
        }
        let backward = self.mark(streams, station)?;
        Ok(Step { start, ready, added, backward, optimizer: None })
    }

    /// Puts the optimizer on the stream.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn optimize(
        &mut self,
        streams: &mut impl Streams,
        station: &Station,
        step: &mut Step,
    ) -> Result<(), CudaError> {
        self.busy(streams, station, self.times.optimizer, &mut false)?;
        step.optimizer = Some(self.mark(streams, station)?);
        Ok(())
    }

    /// Time passes; from where the kernel before left it, if that runs on.
    fn busy(
        &mut self,
        streams: &mut impl Streams,
        station: &Station,
        length: Duration,
        runs_on: &mut bool,
    ) -> Result<(), CudaError> {
        if length.is_zero() {
            return Ok(());
        }
        // Blocks that come late read what the kernel before wrote, so each kernel writes the other word.
        let word = |ticks: usize| station.clock + 8 * (ticks % 2) as Address;
        let from = if *runs_on { word(self.ticks) } else { 0 };
        let (into, multiprocessors) = (word(self.ticks + 1), self.multiprocessors);
        let length_ns = length.as_nanos() as u64;
        streams.launch(station.compute, &Work::Busy { from, into, length_ns, multiprocessors })?;
        self.ticks += 1;
        *runs_on = true;
        Ok(())
    }

    fn mark(&self, streams: &mut impl Streams, station: &Station) -> Result<Event, CudaError> {
        let mark = streams.event(self.device, true)?;
        streams.record(station.compute, mark)?;
        Ok(mark)
    }

    /// Its event may be another's.
    pub fn release(self, streams: &mut impl Streams) {
        streams.give_back(self.anchor.event);
    }
}

impl Step {
    /// The next gradient, if it is ready, and since when.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn next_ready(
        &mut self,
        streams: &mut impl Streams,
        by: &Backward,
    ) -> Result<Option<(TensorId, Instant)>, CudaError> {
        let Some(&(gradient, event)) = self.ready.front() else { return Ok(None) };
        if !streams.happened(event)? {
            return Ok(None);
        }
        let at = by.instant(streams, event)?;
        self.ready.pop_front();
        streams.give_back(event);
        Ok(Some((gradient, at)))
    }

    /// Whether the next gradient is ready.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn is_due(&self, streams: &mut impl Streams) -> Result<bool, CudaError> {
        self.ready.front().map_or(Ok(false), |&(_, event)| streams.happened(event))
    }

    /// The end of the last backward pass, once it has come.
    ///
    /// # Errors
    /// When a device has failed.
    pub fn backward(&self, streams: &mut impl Streams) -> Result<Option<Event>, CudaError> {
        Ok(streams.happened(self.backward)?.then_some(self.backward))
    }

    /// Whether the optimizer is on the device.
    pub fn is_closing(&self) -> bool {
        self.optimizer.is_some()
    }

    /// What is known of the step, once its optimizer is over.
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
        let Step { start, ready, added, backward, optimizer } = self;
        let all = [start, backward].into_iter().chain(optimizer);
        let all = all.chain(ready.into_iter().map(|(_, event)| event));
        all.chain(added.into_iter().flatten()).for_each(|event| streams.give_back(event));
    }
}

/// Between two events that have come to pass, by the device's clock, if it has one.
pub fn between(
    streams: &mut impl Streams,
    from: Event,
    to: Event,
) -> Result<Option<Duration>, CudaError> {
    let elapsed_us = streams.elapsed_us(from, to)?;
    Ok(elapsed_us.map(|us| Duration::from_secs_f64(us.max(0.0) * 1e-6)))
}
