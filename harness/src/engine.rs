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
use algorithms::program::Bounds;
use algorithms::registry::Algorithm;
use algorithms::schedule::{Part, Schedule};
use algorithms::topology::{Rank, Topology};
use thiserror::Error;

use crate::allreduce::{AllReduce, Scheduled};
use crate::for_dtype;
use crate::memory::{Buffer, Memory};
use crate::negotiate::{NegotiateError, Negotiator};
use crate::pattern::{Pattern, Wrong};
use crate::replay::{Replay, StepTimes};
use crate::transport::TransportError;
use crate::transport::threads::{Links, Mail};
use crate::workload::Workload;

/// A rank that waits longer than this for another gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Its schedule for the topology.
    pub schedule: &'a dyn Schedule,
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
    /// Large messages are pipelined in segments of about so many bytes; 0 switches that off.
    pub segment_bytes: usize,
    /// Steps to run; the data of the last one are checked.
    pub steps: usize,
    /// Seed of the data.
    pub seed: u64,
}

/// The memory of one rank, kept between jobs of the same workload and type.
pub struct RankMemory {
    gradients: Vec<Memory>,
    fusion_buffer: Memory,
}

impl RankMemory {
    /// Memory for the gradients of a workload.
    pub fn new(workload: &Workload, dtype: DataType) -> RankMemory {
        let gradients = workload.gradients.iter();
        let memory =
            gradients.map(|gradient| Memory::new(gradient.elements() * dtype.size_bytes()));
        RankMemory { gradients: memory.collect(), fusion_buffer: Memory::new(0) }
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

/// Runs a job on threads, one per rank. `memories` has one entry per rank.
///
/// # Errors
/// When ranks disagree or one does not answer; the first rank's error that says most.
pub fn run(job: &Job, memories: &mut Vec<RankMemory>) -> Result<Outcome, EngineError> {
    let ranks = job.topology.ranks();
    assert_eq!(memories.len(), ranks, "one memory per rank");
    let tensors = Tensors::new(job.workload.tensors(job.dtype, job.op));
    let tensors = Arc::new(tensors.map_err(NegotiateError::from)?);
    let [data, bits, mail] = [(); 3].map(|()| Links::new(ranks, PATIENCE));
    let taken = std::mem::take(memories);
    let written = Mutex::new(Vec::with_capacity(ranks));
    let ended: Vec<_> = std::thread::scope(|scope| {
        let spawn = |(rank, memory): (Rank, RankMemory)| {
            let (data, bits, mail, tensors) = (&data, &bits, &mail, tensors.clone());
            let written = &written;
            scope.spawn(move || {
                let settings = Settings {
                    rank,
                    ranks,
                    fusion_threshold_bytes: job.fusion_threshold_bytes,
                    cache_capacity: job.cache_capacity,
                };
                let plane = control::find(job.control_plane, tensors, &settings)
                    .expect("the configuration was checked");
                let gradients_count = job.workload.gradients.len();
                let groups = job.algorithm.grouping().map(|_| split(gradients_count, job.groups));
                let packing =
                    job.algorithm.grouping().map_or(Packing::Packed, |grouping| grouping.buffer);
                let RankMemory { gradients, fusion_buffer } = memory;
                let mut background = Background {
                    job,
                    replay: Replay::new(job.workload, job.times, groups.as_deref()),
                    negotiator: Negotiator::new(plane, Mail::new(mail.join(rank)), bits.join(rank)),
                    data_plane: Scheduled::new(
                        data.join(rank),
                        job.schedule,
                        job.segment_bytes,
                        packing,
                        fusion_buffer,
                    ),
                    written,
                    step: RankStep::default(),
                    log: RankLog::default(),
                };
                let ended = background.run(scope, rank, gradients);
                if let Err(error) = &ended {
                    let reason = error.to_string();
                    let error = TransportError::Aborted { by: rank, reason };
                    [data, bits, mail].iter().for_each(|links| links.abort(error.clone()));
                }
                let fusion_buffer = background.data_plane.into_fusion_buffer();
                ended.map(|gradients| (background.log, RankMemory { gradients, fusion_buffer }))
            })
        };
        let threads: Vec<_> = taken.into_iter().enumerate().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank's thread panicked")).collect()
    });
    let mut logs = Vec::with_capacity(ranks);
    for ended in ended {
        let (log, memory) = ended?;
        logs.push(log);
        memories.push(memory);
    }
    Ok(Outcome { ranks: logs, wrong: check(job, memories) })
}

/// Elements that all ranks together send inside nodes and between nodes for one message.
pub fn sent_elements(schedule: &dyn Schedule, topology: &Topology, elements: usize) -> [usize; 2] {
    let bounds = Bounds::new(elements, schedule.chunks());
    let (mut sent, mut part) = ([0; 2], Part::default());
    for rank in 0..topology.ranks() {
        for step in 0..schedule.steps() {
            part.clear();
            schedule.part(rank, step, &mut part);
            for entry in &part.sends {
                let between = topology.node_of(rank) != topology.node_of(entry.peer());
                sent[usize::from(between)] += bounds.elements(entry).len();
            }
        }
    }
    sent
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
    replay: Replay,
    negotiator: Negotiator,
    data_plane: Scheduled<'a, T>,
    /// When each rank had the data of the last step.
    written: &'a Mutex<Vec<Instant>>,
    /// The step that runs.
    step: RankStep,
    log: RankLog,
}

impl<'a, T: crate::transport::Transport> Background<'a, T> {
    /// Runs until the last step is over; gives the gradients back.
    fn run<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        rank: Rank,
        gradients: Vec<Memory>,
    ) -> Result<Vec<Memory>, EngineError>
    where
        'a: 'scope,
    {
        let mut gradients = Fresh::Here(gradients);
        let (mut ready, mut responses) = (Vec::new(), Vec::new());
        let mut cycle_start = Instant::now();
        if self.job.steps > 1 {
            self.replay.begin(cycle_start);
        }
        while self.log.steps.len() < self.job.steps {
            if let Some(wait) = self.job.cycle_time.checked_sub(cycle_start.elapsed()) {
                std::thread::sleep(wait);
            }
            cycle_start = Instant::now();
            if self.replay.is_waiting() {
                self.begin_last_step(scope, rank, &mut gradients);
            }
            ready.clear();
            self.replay.ready_until(cycle_start, &mut ready);
            responses.clear();
            self.negotiator.cycle(&ready, &mut responses)?;
            let negotiation = cycle_start.elapsed();
            let step = (!self.replay.is_waiting()).then_some(self.log.steps.len());
            let messages = responses.len();
            self.log.cycles.push(RankCycle { step, negotiation, messages });
            self.step.control_bytes += self.negotiator.take_sent_bytes();
            for response in &responses {
                self.carry_out(response, gradients.here())?;
            }
            if let Some(time) = self.replay.ended(Instant::now()) {
                let step = std::mem::take(&mut self.step);
                self.log.steps.push(RankStep { time, ..step });
                if self.log.steps.len() + 1 == self.job.steps {
                    self.replay.wait();
                }
            }
        }
        self.negotiator.flush()?;
        Ok(gradients.into_here())
    }

    /// The data of the last step are written anew before it begins, on another thread, so that the
    /// loop keeps its cycle meanwhile, as it does while a framework loads data. All ranks begin it
    /// when the last of them has its data.
    fn begin_last_step<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        rank: Rank,
        gradients: &mut Fresh<'scope>,
    ) where
        'a: 'scope,
    {
        let (job, written) = (self.job, self.written);
        match std::mem::replace(gradients, Fresh::Here(Vec::new())) {
            Fresh::Here(mut memories) => {
                *gradients = Fresh::Away(scope.spawn(move || {
                    fill(job, rank, &mut memories);
                    written.lock().expect("nobody panics with it").push(Instant::now());
                    memories
                }));
            }
            Fresh::Away(writer) => {
                let written = written.lock().expect("nobody panics with it");
                if written.len() < job.topology.ranks() {
                    *gradients = Fresh::Away(writer);
                } else {
                    *gradients = Fresh::Here(writer.join().expect("writing gradients panicked"));
                    self.replay.begin(*written.iter().max().expect("one per rank"));
                    self.step = RankStep::default();
                }
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
            return Err(EngineError::Refused(error.clone()));
        }
        let start = Instant::now();
        let mut buffer = Buffer::new(self.job.dtype);
        for memory in gradients.get_disjoint_mut_all(&response.tensors) {
            buffer.push(memory);
        }
        let spent = self.data_plane.all_reduce(&mut buffer, self.job.op)?;
        let time = start.elapsed();
        let elements = buffer.elements();
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

/// Gradients that are here, or away to be written anew.
enum Fresh<'scope> {
    Here(Vec<Memory>),
    Away(ScopedJoinHandle<'scope, Vec<Memory>>),
}

impl Fresh<'_> {
    fn here(&mut self) -> &mut [Memory] {
        match self {
            Fresh::Here(gradients) => gradients,
            // While gradients are away no tensor of this rank is ready, so no response names one.
            Fresh::Away(_) => &mut [],
        }
    }

    fn into_here(self) -> Vec<Memory> {
        match self {
            Fresh::Here(gradients) => gradients,
            Fresh::Away(writer) => writer.join().expect("writing gradients panicked"),
        }
    }
}

/// Several entries of a slice, each borrowed mutably.
trait DisjointMut<T> {
    fn get_disjoint_mut_all<'s>(&'s mut self, indices: &[usize]) -> Vec<&'s mut T>;
}

impl<T> DisjointMut<T> for [T] {
    fn get_disjoint_mut_all<'s>(&'s mut self, indices: &[usize]) -> Vec<&'s mut T> {
        let mut places: Vec<(usize, usize)> =
            indices.iter().enumerate().map(|(place, &index)| (index, place)).collect();
        places.sort_unstable();
        let mut picked: Vec<(usize, &'s mut T)> = Vec::with_capacity(indices.len());
        let mut rest = self;
        let mut skipped = 0;
        for (index, place) in places {
            let (_, tail) = rest.split_at_mut(index - skipped);
            let (entry, tail) = tail.split_first_mut().expect("an index in the slice");
            picked.push((place, entry));
            rest = tail;
            skipped = index + 1;
        }
        picked.sort_unstable_by_key(|(place, _)| *place);
        picked.into_iter().map(|(_, entry)| entry).collect()
    }
}
