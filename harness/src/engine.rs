//! Horovod's background loop, fed by a replayed training job.
//!
//! Each rank runs one thread: sleep until the cycle is due, see which gradients have become ready,
//! negotiate, carry out what was agreed, again. The loop runs free: a training step never resets
//! the phase of the cycle, and an allreduce on the CPU blocks the loop, both as in Horovod. The
//! cycle time is a deadline: after a long cycle the next begins at once, and missed cycles are not
//! made up for.

use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use algorithms::control::{self, DataType, ReduceOp, Response, Settings, Tensors};
use algorithms::grouped::{Buffer as Packing, split};
use algorithms::registry::{Algorithm, Choice};
use algorithms::topology::{Rank, Topology};
use thiserror::Error;

use crate::allreduce::{AllReduce, Scheduled, Sizes};
use crate::for_dtype;
use crate::memory::{Buffer, Memory};
use crate::negotiate::{NegotiateError, Negotiator};
use crate::pace::Pace;
use crate::pattern::{Pattern, Wrong};
use crate::replay::{Replay, StepTimes};
use crate::timeline::record::{Recorder, Track};
use crate::transport::threads::{Links, Mail, run_ranks};
use crate::transport::{CausedByTransport, TransportError};
use crate::workload::Workload;

/// One training job.
pub struct Job<'a> {
    /// Gradients.
    pub workload: &'a Workload,
    /// Lengths of the parts of a step.
    pub times: StepTimes,
    /// Ranks on nodes.
    pub topology: &'a Topology,
    /// Element type of the gradients.
    pub dtype: DataType,
    /// How they are combined.
    pub op: ReduceOp,
    /// Data plane.
    pub algorithm: &'a dyn Algorithm,
    /// Its schedules for the topology, by size.
    pub choices: &'a [Choice],
    /// Into how many groups gradients are split, if the algorithm groups.
    pub groups: usize,
    /// Control plane, one of [`control::NAMES`].
    pub control_plane: &'a str,
    /// Effective fusion threshold, see [`algorithms::fusion::effective_threshold_bytes`].
    pub fusion_threshold_bytes: usize,
    /// Deadline from the beginning of one cycle to that of the next.
    pub cycle_time: Duration,
    /// Responses that the bit-vector plane remembers.
    pub cache_capacity: usize,
    /// How large messages are cut.
    pub sizes: Sizes,
    /// A rank that waits longer than this for another gives up.
    pub patience: Duration,
    /// Steps to run; the data of the last one are checked.
    pub steps: usize,
    /// Seed of the data.
    pub seed: u64,
    /// Keeps what a timeline shows, if there is to be one.
    pub recorder: Option<&'a Recorder>,
}

/// The memory of one rank, kept between jobs.
#[derive(Default)]
pub struct RankMemory {
    gradients: Vec<Memory>,
    fusion_buffer: Memory,
}

impl RankMemory {
    /// Makes room for the job's gradients, unless it is there.
    fn fit(&mut self, job: &Job) {
        let sizes = job.workload.gradients.iter();
        let sizes = sizes.map(|gradient| gradient.elements() * job.dtype.size_bytes());
        if !sizes.clone().eq(self.gradients.iter().map(Memory::size_bytes)) {
            self.gradients = sizes.map(Memory::new).collect();
        }
    }
}

/// What one rank saw of one step. Times are since the job began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankStep {
    /// From its beginning to the end of the optimizer.
    pub time: Duration,
    /// In allreduces, packing included.
    pub data: Duration,
    /// Copying into and out of the fusion buffer.
    pub packing: Duration,
    /// Bytes of control messages sent.
    pub control_bytes: usize,
}

/// One allreduce of one or several gradients, as one rank saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankMessage {
    /// The step that it belongs to.
    pub step: usize,
    /// How many gradients.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
    /// How long it took, packing included.
    pub time: Duration,
}

/// Everything one rank saw.
#[derive(Clone, Debug, Default)]
pub struct RankLog {
    /// Each step.
    pub steps: Vec<RankStep>,
    /// Each message, in order; the same messages on all ranks.
    pub messages: Vec<RankMessage>,
    /// Each cycle; the same number on all ranks, since each is an exchange between all.
    pub cycles: Vec<RankCycle>,
}

/// One cycle, as one rank saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankCycle {
    /// The step in which it began; none between steps, while data are written.
    pub step: Option<usize>,
    /// In the control plane, waiting for the slowest rank included.
    pub negotiation: Duration,
    /// Messages agreed on.
    pub messages: usize,
}

/// What a job brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What each rank saw.
    pub ranks: Vec<RankLog>,
    /// The check of the last step's data.
    pub wrong: Wrong,
}

/// Why a job ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Ranks cannot agree.
    #[error(transparent)]
    Negotiate(#[from] NegotiateError),
    /// An allreduce failed.
    #[error("data plane: {0}")]
    Transport(#[from] TransportError),
    /// The control plane reports an error for some tensors.
    #[error("{0}")]
    Refused(String),
}

impl CausedByTransport for EngineError {
    fn transport_error(&self) -> Option<&TransportError> {
        match self {
            EngineError::Transport(error)
            | EngineError::Negotiate(NegotiateError::Transport(error)) => Some(error),
            _ => None,
        }
    }
}

/// Runs a job on threads, one per rank. `memories` has one entry per rank.
///
/// # Errors
/// When ranks disagree or one does not answer: that of a rank that failed by itself.
pub fn run(job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
    let ranks = job.topology.ranks();
    assert_eq!(memories.len(), ranks, "one memory per rank");
    let tensors = Tensors::new(job.workload.tensors(job.dtype, job.op));
    let tensors = Arc::new(tensors.map_err(NegotiateError::from)?);
    let [data, bits, mail] = [(); 3].map(|()| Links::new(ranks, job.patience));
    let written = Mutex::new(Vec::with_capacity(ranks));
    let slots: Vec<_> = memories.iter_mut().map(Mutex::new).collect();
    let logs = run_ranks(&[&data, &bits, &mail], |rank| {
        let mut slot = slots[rank].lock().expect("only this rank takes it");
        slot.fit(job);
        let RankMemory { gradients, fusion_buffer } = std::mem::take(*slot);
        let settings = Settings {
            fusion_threshold_bytes: job.fusion_threshold_bytes,
            cache_capacity: job.cache_capacity,
            ..Settings::new(rank, ranks)
        };
        let plane = control::find(job.control_plane, tensors.clone(), &settings)
            .expect("the configuration was checked");
        let grouping = job.algorithm.grouping();
        let groups = grouping.map(|_| split(job.workload.gradients.len(), job.groups));
        let mut background = Background {
            job,
            rank,
            replay: Replay::new(job.workload, job.times, groups.as_deref()),
            negotiator: Negotiator::new(plane, Mail::new(mail.join(rank)), bits.join(rank)),
            data_plane: Scheduled::new(
                data.join(rank),
                job.choices,
                job.sizes,
                grouping.map_or(Packing::Packed, |grouping| grouping.buffer),
                fusion_buffer,
            ),
            buffer: Buffer::new(job.dtype),
            written: &written,
            step: RankStep::default(),
            log: RankLog::default(),
            track: job.recorder.map_or_else(Track::off, |recorder| recorder.track(rank)),
        };
        let all = job.workload.elements() * job.dtype.size_bytes();
        let largest = gradients.iter().map(Memory::size_bytes).max().unwrap_or(0);
        background.data_plane.prepare(largest, all.min(job.fusion_threshold_bytes));
        let gradients = std::thread::scope(|scope| background.run(scope, gradients))?;
        let fusion_buffer = background.data_plane.into_fusion_buffer();
        **slot = RankMemory { gradients, fusion_buffer };
        Ok::<_, EngineError>(background.log)
    })?;
    drop(slots);
    Ok(Outcome { ranks: logs, wrong: check(job, memories) })
}

/// Index of each gradient's first element in the pattern.
fn first_elements(workload: &Workload) -> impl Iterator<Item = usize> + '_ {
    workload.gradients.iter().scan(0, |next, gradient| {
        let first = *next;
        *next += gradient.elements();
        Some(first)
    })
}

fn pattern(job: &Job) -> Pattern {
    Pattern { ranks: job.topology.ranks(), op: job.op, seed: job.seed }
}

/// Writes one rank's input of the step that will be checked.
fn fill(job: &Job, rank: Rank, gradients: &mut [Memory]) {
    for (first, memory) in first_elements(job.workload).zip(gradients) {
        for_dtype!(job.dtype, T => pattern(job).fill::<T>(rank, first, memory));
    }
}

/// Compares every element of every gradient on every rank.
fn check(job: &Job, memories: &[RankMemory]) -> Wrong {
    let gradients = first_elements(job.workload).enumerate().map(|(index, first)| {
        let of_all: Vec<_> = memories.iter().map(|memory| &memory.gradients[index]).collect();
        for_dtype!(job.dtype, T => pattern(job).check::<T>(first, &of_all))
    });
    gradients.fold(Wrong::default(), Wrong::and)
}

/// One rank's background loop.
struct Background<'a, T> {
    job: &'a Job<'a>,
    rank: Rank,
    replay: Replay,
    negotiator: Negotiator,
    data_plane: Scheduled<'a, T>,
    /// Empty between messages.
    buffer: Buffer<'static>,
    /// When each rank had the data of the last step.
    written: &'a Mutex<Vec<Instant>>,
    /// The step that runs.
    step: RankStep,
    log: RankLog,
    track: Track<'a>,
}

impl<'a, T: crate::transport::Transport> Background<'a, T> {
    /// Runs until the last step is over; gives the gradients back.
    fn run<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        gradients: Vec<Memory>,
    ) -> Result<Vec<Memory>, EngineError>
    where
        'a: 'scope,
    {
        let mut gradients = Gradients::Stale(gradients);
        let (mut ready, mut responses) = (Vec::new(), Vec::new());
        let mut pace = Pace::new(self.job.cycle_time, Instant::now());
        if self.job.steps > 1 {
            self.replay.begin(Instant::now());
        }
        while self.log.steps.len() < self.job.steps {
            let now = Instant::now();
            let wait = match self.negotiator.is_paced() {
                true => pace.until_next(now),
                false => self.replay.until_next(now),
            };
            if let Some(wait) = wait {
                std::thread::sleep(wait);
            }
            let cycle_start = Instant::now();
            pace.begin(cycle_start);
            if self.replay.is_waiting() {
                gradients = self.begin_last_step(scope, gradients);
            }
            ready.clear();
            self.replay.ready_until(cycle_start, &mut ready);
            let replay = &self.replay;
            self.track.cycle(cycle_start, replay.begun(), replay.last_ready(ready.len()));
            responses.clear();
            self.negotiator.cycle(&ready, &mut responses)?;
            for stalled in self.negotiator.take_warnings() {
                eprintln!("kolo: {stalled}");
            }
            let negotiation = cycle_start.elapsed();
            let step = (!self.replay.is_waiting()).then_some(self.log.steps.len());
            let messages = responses.len();
            self.track.negotiated(cycle_start + negotiation, messages);
            self.log.cycles.push(RankCycle { step, negotiation, messages });
            self.step.control_bytes += self.negotiator.take_sent_bytes();
            for response in &responses {
                self.carry_out(response, gradients.here())?;
            }
            if let Some(time) = self.replay.ended(Instant::now()) {
                self.track.step_ended(time);
                let step = std::mem::take(&mut self.step);
                self.log.steps.push(RankStep { time, ..step });
                if self.log.steps.len() + 1 == self.job.steps {
                    self.replay.wait();
                }
            }
        }
        self.negotiator.flush()?;
        Ok(std::mem::take(gradients.here()))
    }

    /// The data of the last step are written anew before it begins, on another thread, so that the
    /// loop keeps its cycle meanwhile, as it does while a framework loads data. All ranks begin it
    /// when the last of them has its data.
    fn begin_last_step<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        gradients: Gradients<'scope>,
    ) -> Gradients<'scope>
    where
        'a: 'scope,
    {
        let (job, rank, written) = (self.job, self.rank, self.written);
        match gradients {
            Gradients::Stale(mut memories) => Gradients::Away(scope.spawn(move || {
                fill(job, rank, &mut memories);
                written.lock().expect("nobody panics with it").push(Instant::now());
                memories
            })),
            Gradients::Away(writer) if writer.is_finished() => {
                Gradients::Fresh(writer.join().expect("writing gradients panicked"))
            }
            Gradients::Away(writer) => Gradients::Away(writer),
            Gradients::Fresh(memories) => {
                let written = written.lock().expect("nobody panics with it");
                if written.len() == job.topology.ranks() {
                    self.replay.begin(*written.iter().max().expect("one per rank"));
                    self.step = RankStep::default();
                }
                Gradients::Fresh(memories)
            }
        }
    }

    /// One message: an allreduce of one or several gradients. Blocks the loop.
    fn carry_out(
        &mut self,
        response: &Response,
        gradients: &mut [Memory],
    ) -> Result<(), EngineError> {
        if let Some(error) = &response.error {
            return Err(EngineError::Refused(error.to_string()));
        }
        let start = Instant::now();
        self.track.message(start, &response.tensors);
        let blank = Buffer::new(self.job.dtype);
        let mut buffer = std::mem::replace(&mut self.buffer, blank).emptied();
        buffer.push_each(gradients, &response.tensors);
        let spent = self.data_plane.all_reduce(&mut buffer, self.job.op)?;
        let time = start.elapsed();
        self.track.reduced(start + time, spent.packing - spent.unpacking, spent.unpacking);
        let elements = buffer.elements();
        self.buffer = buffer.emptied();
        let step = &mut self.step;
        step.data += time;
        step.packing += spent.packing;
        let tensors = response.tensors.len();
        let message = RankMessage { step: self.log.steps.len(), tensors, elements, time };
        self.log.messages.push(message);
        self.replay.reduced(tensors);
        Ok(())
    }
}

/// Where one rank's gradients are.
enum Gradients<'scope> {
    /// Here, with what earlier steps have left in them.
    Stale(Vec<Memory>),
    /// With a thread that writes them anew.
    Away(ScopedJoinHandle<'scope, Vec<Memory>>),
    /// Here, for the last step.
    Fresh(Vec<Memory>),
}

impl Gradients<'_> {
    fn here(&mut self) -> &mut Vec<Memory> {
        match self {
            Gradients::Stale(memories) | Gradients::Fresh(memories) => memories,
            Gradients::Away(_) => unreachable!("no tensor is ready while gradients are away"),
        }
    }
}
