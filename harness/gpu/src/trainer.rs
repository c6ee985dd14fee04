//! Training on devices: passes are kernels, an event marks when a gradient is ready, and messages are reduced
//! asynchronously to the background loop, as in Horovod over NCCL.

mod backward;
mod device_rank;
mod devices;
mod process;
mod world;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;

use crate::cuda::streams::Streams;
use crate::cuda::{CudaError, NAME};
use crate::nccl::NcclError;
use crate::nccl::allreduce::DeviceAllReduce;
use algorithms::control::Reduction;
use backward::{Backward, Ended, Step, between};
use device_rank::{DeviceRank, InFlight, Message};
pub use devices::Devices;
use process::Process;
use training::background::Background;
use training::engine::{RankMemory, check};
use training::job::Job;
use training::optimizer::Work;
use training::outcome::{BackEndError, EngineError, Outcome, RankLog};
use training::trainer::{EndedStep, Place, Reduced, Trainer, is_lost};
use transports::threads::{Arrivals, ControlChannel, LastStep, Links, run_ranks};
use transports::transport::{MessageChannel, NonblockingBarrier, Transport, TransportError};
use workloads::groups::{Assembly, Missing};
use workloads::replay::Arrival;
use world::World;

/// While something is under way on a device, the loop looks so often whether it is over.
const NAP: Duration = Duration::from_micros(50);

impl From<CudaError> for EngineError {
    fn from(error: CudaError) -> EngineError {
        EngineError::BackEnd(BackEndError { what: "device", source: Arc::new(error) })
    }
}

impl From<NcclError> for EngineError {
    fn from(error: NcclError) -> EngineError {
        EngineError::BackEnd(BackEndError { what: "NCCL", source: Arc::new(error) })
    }
}

/// Reduces the messages of one rank, or of several.
pub trait Hub {
    /// The type of the streams.
    type Streams: Streams;

    /// A rank's place.
    fn device_rank(&mut self, rank: Rank) -> (&mut Self::Streams, &mut DeviceRank);

    /// Ranks that share a rank's device, itself among them.
    fn share(&self, rank: Rank) -> usize;

    /// A rank requests its next message, at `now`: the same messages for all ranks, in the same order.
    ///
    /// # Errors
    /// When a device call fails.
    fn reduce(&mut self, rank: Rank, message: &Message, now: Instant) -> Result<(), EngineError>;

    /// A rank that has not requested a message that this one has requested, if that is known.
    fn awaited(&self, rank: Rank) -> Option<Rank>;

    /// Checks for failures of work in flight that no event reports.
    ///
    /// # Errors
    /// The failure.
    fn check(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Runs a job on devices of this process, with a stream and a thread with a background loop for each rank.
/// `memories` has one entry per rank.
///
/// # Errors
/// When ranks disagree, a rank does not answer, or a device call fails.
pub fn run<S: Streams + Send>(
    job: &Job,
    memories: &mut [RankMemory],
    devices: &mut Devices<S>,
) -> Result<Outcome, EngineError> {
    let ranks = job.topology.ranks();
    assert_eq!(memories.len(), ranks, "one memory per rank");
    for rank in 0..ranks {
        job.tensors(rank)?;
    }
    let bits = Links::new(ranks, job.timeout);
    let (control, arrivals) = (bits.beside(), Arrivals::new(ranks));
    let slots: Vec<_> = memories.iter_mut().map(Mutex::new).collect();
    let schedules = job.data_plane.schedules(NAME);
    let schedules =
        schedules.map_err(|error| EngineError::BackEnd(BackEndError::new(NAME, error)))?;
    let world = Mutex::new(World::new(devices, job, schedules)?);
    let logs = run_ranks(&[&bits, &control], |rank| {
        let mut slot = slots[rank].lock().expect("only this rank takes it");
        let beside =
            (bits.join(rank), ControlChannel::new(control.join(rank)), LastStep(arrivals.clone()));
        run_rank(job, rank, beside, &world, &mut slot)
    });
    drop(slots);
    let mut world = world.into_inner().unwrap_or_else(PoisonError::into_inner);
    let result = match &logs {
        Ok(_) => memories.iter_mut().enumerate().try_for_each(|(rank, memory)| {
            let (streams, device_rank) = world.device_rank(rank);
            device_rank.download(streams, &mut memory.gradients)
        }),
        Err(_) => Ok(()),
    };
    let released = world.release();
    let logs = logs?;
    result.and(released)?;
    let wrong = check(job, &logs[0], memories.iter().enumerate());
    Ok(Outcome { ranks: logs, negotiated: job.negotiates()?, wrong })
}

/// Runs one rank's part of a job whose other ranks are processes, each with its own GPU or `share` ranks on one.
///
/// # Errors
/// When ranks disagree, a rank does not answer, or a call of driver or NCCL fails.
pub fn run_process<S: Streams, B: Transport, M: MessageChannel, L: NonblockingBarrier>(
    job: &Job,
    rank: Rank,
    beside: (B, M, L),
    (devices, share): (&mut Devices<S>, usize),
    all_reduce: DeviceAllReduce,
    memory: &mut RankMemory,
) -> Result<RankLog, EngineError> {
    let process = Mutex::new(Process::new(devices, job, all_reduce, share)?);
    let log = run_rank(job, rank, beside, &process, memory)?;
    let mut process = process.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (streams, device_rank) = process.device_rank(rank);
    device_rank.download(streams, &mut memory.gradients)?;
    process.release()?;
    Ok(log)
}

/// Runs one rank's part of a job on this thread, with its control connections. Results stay on the device.
///
/// # Errors
/// When ranks disagree, a rank does not answer, or a device call fails.
pub fn run_rank<H: Hub, B: Transport, M: MessageChannel, S: NonblockingBarrier>(
    job: &Job,
    rank: Rank,
    beside: (B, M, S),
    hub: &Mutex<H>,
    memory: &mut RankMemory,
) -> Result<RankLog, EngineError> {
    std::thread::scope(|scope| {
        let device = Device::new(scope, job, rank, hub, std::mem::take(memory))?;
        let (device, log) = Background::new(job, rank, beside, device)?.run()?;
        *memory = device.into_memory();
        Ok(log)
    })
}

/// One rank's training on a device.
struct Device<'scope, 'env, 'a, H> {
    job: &'a Job<'a>,
    rank: Rank,
    scope: &'scope Scope<'scope, 'env>,
    hub: &'scope Mutex<H>,
    backward: Backward,
    assembly: Assembly<'a>,
    /// Host memory: data to upload for the last step, and its results.
    gradients: Place<'scope>,
    /// The step that runs; while its optimizer does, the one after it is on the device, too.
    step: Option<Step>,
    next: Option<Step>,
    /// When the step began, by the device's clock, and when the host noticed.
    begun: Option<Instant>,
    since: Instant,
    /// When its gradients became ready, and when its last backward pass ended.
    ready_at: Vec<Option<Instant>>,
    backward_end: Option<Instant>,
    /// Gradients of the step that are not reduced.
    left: usize,
    /// Request times of messages in flight.
    asked: VecDeque<Instant>,
    /// Ready gradients that no cycle has taken yet.
    arrived: Vec<Arrival>,
    /// The last time at which this rank polled, and since when it has polled continuously.
    looked: Instant,
    awake: Instant,
}

impl<'scope, 'env, 'a: 'scope, H: Hub> Device<'scope, 'env, 'a, H> {
    /// A rank that has not begun.
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        job: &'a Job<'a>,
        rank: Rank,
        hub: &'scope Mutex<H>,
        memory: RankMemory,
    ) -> Result<Self, EngineError> {
        let mut gradients = memory.gradients;
        gradients.fit(job);
        let backward = {
            let mut hub = lock(hub);
            let share = hub.share(rank);
            let (streams, device_rank) = hub.device_rank(rank);
            let all = streams.multiprocessors(device_rank.rank_stream.device);
            let backward = Backward::new(streams, job, device_rank, (all / share).max(1))?;
            if let Some(recorder) = job.recorder {
                recorder.may_be_off(rank, backward.clock_error(streams)?);
            }
            backward
        };
        let count = job.workload.gradients.len();
        Ok(Device {
            job,
            rank,
            scope,
            hub,
            backward,
            assembly: Assembly::new(job.groups, count),
            gradients: Place::Stale(gradients),
            step: None,
            next: None,
            begun: None,
            since: Instant::now(),
            ready_at: vec![None; count],
            backward_end: None,
            left: count,
            asked: VecDeque::new(),
            arrived: Vec::new(),
            looked: Instant::now(),
            awake: Instant::now(),
        })
    }

    /// Host memory for the results; ranks copy one at a time.
    fn into_memory(mut self) -> RankMemory {
        let gradients = std::mem::take(self.gradients.here());
        let mut hub = lock(self.hub);
        let (streams, _) = hub.device_rank(self.rank);
        for step in self.step.into_iter().chain(self.next) {
            step.release(streams);
        }
        self.backward.release(streams);
        RankMemory { gradients, ..RankMemory::default() }
    }

    /// A step is on the device, from now on the one that runs.
    fn enter(&mut self, step: Option<Step>, begun: Instant) {
        self.begun = step.is_some().then_some(begun);
        self.step = step;
        self.ready_at.fill(None);
        self.backward_end = None;
        self.left = self.ready_at.len();
        self.assembly.begin();
    }

    /// Gives up a message that will not be reduced.
    fn give_up(&self, hub: &H, now: Instant) -> Result<(), EngineError> {
        // Time in which this rank itself slept is not a delay of others.
        let oldest = self.asked.front().map(|&asked| asked.max(self.awake));
        let oldest = oldest.map(|since| now.saturating_duration_since(since));
        let Some(waited) = oldest.filter(|&waited| waited > self.job.timeout) else {
            return Ok(());
        };
        let rank = self.rank;
        Err(EngineError::Transport(match hub.awaited(rank) {
            Some(peer) => TransportError::Silent { rank, peer, waited },
            None => TransportError::Failed {
                rank,
                peer: None,
                call: "a message on its device".into(),
                why: format!("it has not finished after {:.1} s", waited.as_secs_f64()),
            },
        }))
    }
}

impl<'scope, 'a: 'scope, H: Hub> Trainer for Device<'scope, '_, 'a, H> {
    fn begin(&mut self, start: Instant) -> Result<(), EngineError> {
        let step = {
            let mut hub = lock(self.hub);
            let (streams, device_rank) = hub.device_rank(self.rank);
            self.backward.begin(streams, device_rank)?
        };
        self.since = start;
        self.enter(Some(step), start);
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.step.is_none()
    }

    fn begin_last_step(
        &mut self,
        barrier: &mut impl NonblockingBarrier,
    ) -> Result<bool, EngineError> {
        if self.written().is_some() {
            let begun = barrier.begun().is_some();
            if begun {
                self.begin(Instant::now())?;
            }
            return Ok(begun);
        }
        let gradients = std::mem::take(&mut self.gradients);
        self.gradients = gradients.advance(self.scope, self.job, self.rank);
        if self.written().is_some() {
            let mut hub = lock(self.hub);
            let (streams, device_rank) = hub.device_rank(self.rank);
            device_rank.upload(streams, self.gradients.here())?;
            barrier.arrive();
        }
        Ok(false)
    }

    fn written(&self) -> Option<Instant> {
        self.gradients.written()
    }

    fn begun(&self) -> Option<Instant> {
        self.begun
    }

    fn ready_at(&self, gradient: TensorId) -> Option<Instant> {
        self.ready_at[gradient]
    }

    fn take_ready(
        &mut self,
        now: Instant,
        hand_over: &mut Vec<TensorId>,
    ) -> Result<Duration, EngineError> {
        let Some(step) = &mut self.step else { return Ok(Duration::ZERO) };
        let mut hub = lock(self.hub);
        let (streams, device_rank) = hub.device_rank(self.rank);
        let mut arrivals = std::mem::take(&mut self.arrived);
        take_arrivals(step, &self.backward, streams, &mut arrivals)?;
        self.backward.go_on(streams, device_rank, step)?;
        let last = self.job.framework.backward_passes_per_step - 1;
        arrivals.retain(|arrival| arrival.pass == last);
        if self.backward_end.is_none()
            && let Some(end) = step.backward(streams)?
        {
            self.backward_end = Some(self.backward.instant(streams, end)?);
        }
        arrivals.retain(|arrival| !is_lost(self.job, self.rank, arrival.gradient));
        let mut waited = Duration::ZERO;
        for Arrival { gradient, at, .. } in arrivals {
            self.ready_at[gradient] = Some(at);
            waited += now.saturating_duration_since(at);
            self.assembly.ready(gradient, hand_over);
        }
        Ok(waited)
    }

    fn until_next(&self, _: Instant) -> Option<Duration> {
        let Some(step) = &self.step else { return Some(NAP) };
        let mut hub = lock(self.hub);
        let (streams, _) = hub.device_rank(self.rank);
        // Device errors are reported when the gradients are taken.
        let due = !self.arrived.is_empty() || step.is_due(streams, &self.backward).unwrap_or(true);
        (!due).then_some(NAP)
    }

    fn backward_end(&self) -> Option<Instant> {
        self.backward_end
    }

    fn missing(&self) -> Option<Missing> {
        self.assembly.missing()
    }

    fn reduce(
        &mut self,
        start: Instant,
        tensors: &[TensorId],
        reduction: Reduction,
    ) -> Result<(), EngineError> {
        let message = Message { tensors: tensors.to_vec(), reduction };
        lock(self.hub).reduce(self.rank, &message, start)?;
        self.asked.push_back(start);
        Ok(())
    }

    fn refuse(&mut self, tensors: &[TensorId]) {
        self.left -= tensors.len();
    }

    fn reduced(&mut self) -> Result<Option<Reduced>, EngineError> {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) > self.job.timeout / 4 {
            self.awake = now;
        }
        self.looked = now;
        let mut hub = lock(self.hub);
        let (streams, device_rank) = hub.device_rank(self.rank);
        if let Some(step) = self.step.as_mut().filter(|step| step.is_growing()) {
            take_arrivals(step, &self.backward, streams, &mut self.arrived)?;
            self.backward.go_on(streams, device_rank, step)?;
        }
        let is_over = match device_rank.in_flight.front() {
            Some(InFlight { marks, .. }) => streams.happened(marks[3])?,
            None => false,
        };
        if !is_over {
            hub.check()?;
            return self.give_up(&hub, now).map(|()| None);
        }
        let in_flight = device_rank.in_flight.pop_front().expect("it is over");
        let [begun, packed, reduced, unpacked] = in_flight.marks;
        let end = self.backward.instant(streams, unpacked)?;
        let time = between(streams, begun, unpacked)?;
        let time = time.unwrap_or_else(|| end.saturating_duration_since(in_flight.asked));
        let packing = between(streams, begun, packed)?.unwrap_or_default();
        let unpacking = between(streams, reduced, unpacked)?.unwrap_or_default();
        device_rank.finish(streams, &in_flight);
        self.asked.pop_front();
        self.left -= in_flight.tensors.len();
        let (tensors, elements) = (in_flight.tensors.len(), in_flight.elements);
        Ok(Some(Reduced { end, time, packing, unpacking, reduction: None, tensors, elements }))
    }

    fn nap(&self) -> Option<Duration> {
        let step = self.step.as_ref();
        let looks = step.is_some_and(|step| self.left == 0 || step.is_growing());
        (looks || !self.asked.is_empty()).then_some(NAP)
    }

    fn ended(&mut self, now: Instant, goes_on: bool) -> Result<Option<EndedStep>, EngineError> {
        let Some(step) = self.step.as_mut().filter(|_| self.left == 0) else { return Ok(None) };
        let mut hub = lock(self.hub);
        let (streams, device_rank) = hub.device_rank(self.rank);
        if !step.is_closing() && step.backward(streams)?.is_some() {
            self.backward.optimize(streams, device_rank, step)?;
            self.next =
                if goes_on { Some(self.backward.begin(streams, device_rank)?) } else { None };
        }
        let Some(Ended { at, device, aggregation }) = step.ended(streams, &self.backward)? else {
            return Ok(None);
        };
        self.step.take().into_iter().for_each(|step| step.release(streams));
        drop(hub);
        let time = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        let next = self.next.take();
        self.enter(next, at);
        let work = Work { aggregation, ..Work::default() };
        Ok(Some(EndedStep { time, device, work }))
    }
}

/// Appends gradients that can be handed over.
fn take_arrivals(
    step: &mut Step,
    by: &Backward,
    streams: &mut impl Streams,
    arrivals: &mut Vec<Arrival>,
) -> Result<(), CudaError> {
    while let Some(arrival) = step.next_arrival(streams, by)? {
        arrivals.push(arrival);
    }
    Ok(())
}

/// A rank that panicked has left everything as it was between two calls.
fn lock<H>(hub: &Mutex<H>) -> MutexGuard<'_, H> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}
