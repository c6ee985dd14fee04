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

use algorithms::control::{self, DataType, ReduceOp, Response, Settings, TensorId, Tensors};
use algorithms::grouped::Buffer as Packing;
use algorithms::registry::{Algorithm, Choice};
use algorithms::topology::{Rank, Topology};
use thiserror::Error;

use crate::allreduce::{AllReduce, Reduction, Scheduled, Sizes};
use crate::framework::Framework;
use crate::gradients::{self, Gradients};
use crate::memory::{Buffer, Memory};
use crate::negotiate::{NegotiateError, Negotiator};
use crate::optimizer::{Optimizer, Work};
use crate::pace::Pace;
use crate::pattern::Wrong;
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
    /// What is done to the gradients above the core.
    pub framework: &'a Framework,
    /// Gradients that are handed over as a unit; the others are by themselves.
    pub groups: &'a [Vec<TensorId>],
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

impl Job<'_> {
    /// The type in which gradients travel.
    pub fn wire(&self) -> DataType {
        self.framework.wire(self.dtype)
    }
}

/// The memory of one rank, kept between jobs.
#[derive(Default)]
pub struct RankMemory {
    gradients: Gradients,
    fusion_buffer: Memory,
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
    /// Work on gradients above the core.
    pub work: Work,
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
    /// Each cycle; if ranks negotiate, the same number on all, since each is an exchange between all.
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
    /// Whether a cycle is an exchange between all ranks; with static buckets each rank has its own.
    pub negotiated: bool,
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
    /// Gradients do not become ready.
    #[error(
        "rank {rank}: {} s after the last backward pass {missing}; see that every gradient becomes \
         ready in every step",
        waited.as_secs_f64()
    )]
    NeverReady {
        /// Who waits.
        rank: Rank,
        /// How long it has waited.
        waited: Duration,
        /// Which gradients, of which group.
        missing: String,
    },
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
    let tensors = Tensors::new(job.framework.tensors(job.workload, job.dtype, job.op));
    let tensors = Arc::new(tensors.map_err(NegotiateError::from)?);
    let data = Links::new(ranks, job.patience);
    let (bits, mail) = (data.beside(), data.beside());
    let written = Mutex::new(Vec::with_capacity(ranks));
    let slots: Vec<_> = memories.iter_mut().map(Mutex::new).collect();
    let logs = run_ranks(&[&data, &bits, &mail], |rank| {
        let mut slot = slots[rank].lock().expect("only this rank takes it");
        slot.gradients.fit(job);
        let RankMemory { mut gradients, fusion_buffer } = std::mem::take(*slot);
        let settings = Settings {
            fusion_threshold_bytes: job.fusion_threshold_bytes,
            cache_capacity: job.cache_capacity,
            ..Settings::new(rank, ranks)
        };
        let plane = control::find(job.control_plane, tensors.clone(), &settings)
            .expect("the configuration was checked");
        let packing = job.algorithm.grouping().map_or(Packing::Packed, |grouping| grouping.buffer);
        let mut background = Background {
            job,
            rank,
            replay: Replay::new(job.workload, job.times, job.framework.backward_passes_per_step),
            optimizer: Optimizer::new(job),
            tensors: &tensors,
            negotiator: Negotiator::new(plane, Mail::new(mail.join(rank)), bits.join(rank)),
            data_plane: Scheduled::new(
                data.join(rank),
                job.choices,
                job.sizes,
                packing,
                fusion_buffer,
            ),
            buffer: Buffer::new(job.wire()),
            written: &written,
            step: RankStep::default(),
            log: RankLog::default(),
            track: job.recorder.map_or_else(Track::off, |recorder| recorder.track(rank)),
        };
        let all = job.workload.elements() * job.wire().size_bytes();
        let largest = gradients.travelling().iter().map(Memory::size_bytes).max().unwrap_or(0);
        background.data_plane.prepare(largest, all.min(job.fusion_threshold_bytes));
        let gradients = std::thread::scope(|scope| background.run(scope, gradients))?;
        let fusion_buffer = background.data_plane.into_fusion_buffer();
        **slot = RankMemory { gradients, fusion_buffer };
        Ok::<_, EngineError>(background.log)
    })?;
    drop(slots);
    let negotiated = control::find(job.control_plane, tensors, &Settings::new(0, ranks))
        .is_some_and(|plane| plane.is_paced());
    let results = memories.iter().map(|memory| &memory.gradients);
    Ok(Outcome { ranks: logs, negotiated, wrong: gradients::check(job, results) })
}

/// One rank's background loop.
struct Background<'a, T> {
    job: &'a Job<'a>,
    rank: Rank,
    replay: Replay,
    optimizer: Optimizer<'a>,
    tensors: &'a Tensors,
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
        gradients: Gradients,
    ) -> Result<Gradients, EngineError>
    where
        'a: 'scope,
    {
        let mut gradients = Place::Stale(gradients);
        let (mut arrivals, mut ready, mut responses) = (Vec::new(), Vec::new(), Vec::new());
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
            arrivals.clear();
            self.replay.ready_until(cycle_start, &mut arrivals);
            ready.clear();
            if !arrivals.is_empty() {
                let time = self.optimizer.take(&arrivals, gradients.here(), &mut ready);
                self.replay.work(time);
            }
            self.give_up_on_the_missing(cycle_start)?;
            let replay = &self.replay;
            let ready_at = ready.iter().filter_map(|&id| Some((replay.ready_at(id)?, id)));
            self.track.cycle(cycle_start, replay.begun(), ready_at);
            responses.clear();
            let negotiation_start = Instant::now();
            self.negotiator.cycle(&ready, &mut responses)?;
            let negotiation = negotiation_start.elapsed();
            for stalled in self.negotiator.take_warnings() {
                eprintln!("kolo: {stalled}");
            }
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
                let (step, work) = (std::mem::take(&mut self.step), self.optimizer.end_step());
                self.log.steps.push(RankStep { time, work, ..step });
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
        gradients: Place<'scope>,
    ) -> Place<'scope>
    where
        'a: 'scope,
    {
        let (job, rank, written) = (self.job, self.rank, self.written);
        match gradients {
            Place::Stale(mut gradients) => Place::Away(scope.spawn(move || {
                gradients.fill(job, rank);
                written.lock().expect("nobody panics with it").push(Instant::now());
                gradients
            })),
            Place::Away(writer) if writer.is_finished() => {
                Place::Fresh(writer.join().expect("writing gradients panicked"))
            }
            Place::Away(writer) => Place::Away(writer),
            Place::Fresh(gradients) => {
                let written = written.lock().expect("nobody panics with it");
                if written.len() == job.topology.ranks() {
                    self.replay.begin(*written.iter().max().expect("one per rank"));
                    self.step = RankStep::default();
                }
                Place::Fresh(gradients)
            }
        }
    }

    /// Ends the job when gradients are missing long after the last backward pass.
    fn give_up_on_the_missing(&self, now: Instant) -> Result<(), EngineError> {
        let end = self.replay.backward_end().map(|end| now.saturating_duration_since(end));
        let Some(waited) = end.filter(|&waited| waited > self.job.patience) else { return Ok(()) };
        let Some(missing) = self.optimizer.missing() else { return Ok(()) };
        let missing = missing.in_words(self.job.workload);
        Err(EngineError::NeverReady { rank: self.rank, waited, missing })
    }

    /// One message: an allreduce of one or several gradients. Blocks the loop.
    fn carry_out(
        &mut self,
        response: &Response,
        gradients: &mut Gradients,
    ) -> Result<(), EngineError> {
        if let Some(error) = &response.error {
            return Err(EngineError::Refused(error.to_string()));
        }
        let start = Instant::now();
        self.track.message(start, &response.tensors);
        let blank = Buffer::new(self.job.wire());
        let mut buffer = std::mem::replace(&mut self.buffer, blank).emptied();
        buffer.push_each(gradients.travelling(), &response.tensors);
        let reduction = Reduction::of(self.tensors.get(response.tensors[0]));
        let spent = self.data_plane.all_reduce(&mut buffer, reduction)?;
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
        self.optimizer.give_back(&response.tensors, gradients);
        self.replay.reduced(tensors);
        Ok(())
    }
}

/// Where one rank's gradients are.
enum Place<'scope> {
    /// Here, with what earlier steps have left in them.
    Stale(Gradients),
    /// With a thread that writes them anew.
    Away(ScopedJoinHandle<'scope, Gradients>),
    /// Here, for the last step.
    Fresh(Gradients),
}

impl Place<'_> {
    fn here(&mut self) -> &mut Gradients {
        match self {
            Place::Stale(gradients) | Place::Fresh(gradients) => gradients,
            Place::Away(_) => unreachable!("no tensor is ready while gradients are away"),
        }
    }
}
