//! Horovod's background loop, fed by a replayed training job.
//!
//! Each rank runs one thread: sleep until the cycle is due, see which gradients have become ready,
//! negotiate, carry out what was agreed, again. The loop runs free: a training step never resets
//! the phase of the cycle, and an allreduce on the CPU blocks the loop, both as in Horovod. The
//! cycle time is a deadline: after a long cycle the next begins at once, and missed cycles are not
//! made up for.

mod fault;
mod outcome;

use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use algorithms::control::{
    self, ControlPlane, DataType, ReduceOp, Response, Settings, StallCheck, Tensor, TensorId,
    Tensors,
};
use algorithms::fusion::Groups;
use algorithms::topology::{Rank, Topology};

use crate::allreduce::{AllReduce, Reduction, Scheduled, Sizes};
use crate::data_plane::DataPlane;
use crate::framework::Framework;
use crate::gradients::{self, Gradients};
use crate::memory::{Buffer, Memory};
use crate::negotiate::{NegotiateError, Negotiator};
use crate::optimizer::Optimizer;
use crate::pace::Pace;
use crate::pattern::Wrong;
use crate::replay::{Arrival, Replay, StepTimes};
use crate::timeline::record::{Recorder, Track};
use crate::transport::threads::{LastStep, Links, Mail, Start, run_ranks};
use crate::transport::{Connections, Meeting, Post, Transport};
use crate::usage::cpu_time;
use crate::workload::Workload;

pub use fault::Fault;
pub use outcome::{EngineError, Outcome, RankCycle, RankLog, RankMessage, RankStep};

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
    /// How messages are reduced.
    pub data_plane: &'a DataPlane,
    /// What is done to the gradients above the core.
    pub framework: &'a Framework,
    /// Gradients that are handed over as a unit; the others are by themselves.
    pub groups: &'a [Vec<TensorId>],
    /// Groups are not fused with one another, nor with other gradients (`HOROVOD_DISABLE_GROUP_FUSION`).
    pub disable_group_fusion: bool,
    /// Control plane, one of [`control::NAMES`].
    pub control_plane: &'a str,
    /// Whether to look for gradients that some ranks wait for in vain.
    pub stall_check: Option<StallCheck>,
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
    /// What goes wrong, in tests.
    pub fault: Option<Fault>,
}

impl Job<'_> {
    /// The type in which gradients travel.
    pub fn wire(&self) -> DataType {
        self.framework.wire(self.dtype)
    }

    /// What a rank registers.
    fn tensors(&self, rank: Rank) -> Result<Tensors, NegotiateError> {
        let mut list: Vec<Tensor> = self.framework.tensors(self.workload, self.dtype, self.op);
        match self.fault {
            Some(Fault::Mismatch { rank: who, gradient }) if who == rank => {
                list[gradient].shape.push(1);
            }
            _ => {}
        }
        Ok(Tensors::new(list)?)
    }

    /// A rank's control plane.
    fn plane(&self, rank: Rank, tensors: Arc<Tensors>) -> Box<dyn ControlPlane> {
        let plane = control::find(self.control_plane, tensors, &self.settings(rank));
        plane.expect("the configuration was checked")
    }

    /// Whether a cycle is an exchange between all ranks; with static buckets each rank has its own.
    ///
    /// # Errors
    /// When gradients cannot be registered.
    pub fn negotiates(&self) -> Result<bool, NegotiateError> {
        Ok(self.plane(0, Arc::new(self.tensors(0)?)).is_paced())
    }

    /// What a rank's control plane is told.
    fn settings(&self, rank: Rank) -> Settings {
        let groups = self.disable_group_fusion.then(|| Groups::new(self.groups.to_vec()).into());
        Settings {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cache_capacity: self.cache_capacity,
            groups,
            stall_check: self.stall_check,
            ..Settings::new(rank, self.topology.ranks())
        }
    }
}

/// The memory of one rank, kept between jobs.
#[derive(Default)]
pub struct RankMemory {
    gradients: Gradients,
    fusion_buffer: Memory,
}

/// Runs a job on threads, one per rank. `memories` has one entry per rank.
///
/// # Errors
/// When ranks disagree or one does not answer: that of a rank that failed by itself.
pub fn run(job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
    let ranks = job.topology.ranks();
    assert_eq!(memories.len(), ranks, "one memory per rank");
    for rank in 0..ranks {
        job.tensors(rank)?;
    }
    let data = Links::new(ranks, job.patience);
    let (bits, mail, start) = (data.beside(), data.beside(), Start::new(ranks));
    let slots: Vec<_> = memories.iter_mut().map(Mutex::new).collect();
    let logs = run_ranks(&[&data, &bits, &mail], |rank| {
        let mut slot = slots[rank].lock().expect("only this rank takes it");
        let connections = Connections {
            data: data.join(rank),
            bits: bits.join(rank),
            mail: Mail::new(mail.join(rank)),
            last_step: LastStep(start.clone()),
        };
        run_rank(job, rank, connections, &mut slot)
    })?;
    drop(slots);
    let wrong = check(job, &logs[0], memories.iter().enumerate());
    Ok(Outcome { ranks: logs, negotiated: job.negotiates()?, wrong })
}

/// Runs one rank's part of a job, on this thread.
///
/// # Errors
/// When ranks disagree or one does not answer.
pub fn run_rank<D: Transport, B: Transport, M: Post, S: Meeting>(
    job: &Job,
    rank: Rank,
    connections: Connections<D, B, M, S>,
    memory: &mut RankMemory,
) -> Result<RankLog, EngineError> {
    let tensors = Arc::new(job.tensors(rank)?);
    memory.gradients.fit(job);
    let RankMemory { mut gradients, fusion_buffer } = std::mem::take(memory);
    let Connections { data, bits, mail, last_step } = connections;
    let mut background = Background {
        job,
        rank,
        replay: Replay::new(job.workload, job.times, job.framework.backward_passes_per_step),
        optimizer: Optimizer::new(job),
        tensors: &tensors,
        negotiator: Negotiator::new(job.plane(rank, tensors.clone()), mail, bits),
        data_plane: job.data_plane.on(data, job.sizes, fusion_buffer),
        buffer: Buffer::new(job.wire()),
        last_step,
        step: RankStep::default(),
        log: RankLog::default(),
        cpu: cpu_time(),
        track: job.recorder.map_or_else(Track::off, |recorder| recorder.track(rank)),
    };
    let all = job.workload.elements() * job.wire().size_bytes();
    let largest = gradients.travelling().iter().map(Memory::size_bytes).max().unwrap_or(0);
    background.data_plane.prepare(largest, all.min(job.fusion_threshold_bytes));
    let gradients = std::thread::scope(|scope| background.run(scope, gradients))?;
    let fusion_buffer = background.data_plane.into_fusion_buffer();
    *memory = RankMemory { gradients, fusion_buffer };
    Ok(background.log)
}

/// Compares what some ranks are left with, each with its number, with the one right answer.
pub fn check<'m>(
    job: &Job,
    log: &RankLog,
    memories: impl Iterator<Item = (Rank, &'m RankMemory)> + Clone,
) -> Wrong {
    let is_refused = |id| log.refused.iter().any(|(refused, _)| *refused == id);
    let results = memories.map(|(rank, memory)| (rank, &memory.gradients));
    gradients::check(job, results, is_refused)
}

/// One rank's background loop.
struct Background<'a, D, B, M, S> {
    job: &'a Job<'a>,
    rank: Rank,
    replay: Replay,
    optimizer: Optimizer<'a>,
    tensors: &'a Tensors,
    negotiator: Negotiator<B, M>,
    data_plane: Scheduled<'a, D>,
    /// Empty between messages.
    buffer: Buffer<'static>,
    /// Who has the data of the last step.
    last_step: S,
    /// The step that runs.
    step: RankStep,
    log: RankLog,
    /// Time on a core when the step began.
    cpu: Option<Duration>,
    track: Track<'a>,
}

impl<'a, D: Transport, B: Transport, M: Post, S: Meeting> Background<'a, D, B, M, S> {
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
            self.lose_the_missing(&mut arrivals);
            let last_pass = self.job.framework.backward_passes_per_step - 1;
            for arrival in arrivals.iter().filter(|arrival| arrival.pass == last_pass) {
                self.step.cycle_wait += cycle_start.saturating_duration_since(arrival.at);
            }
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
            self.track.negotiation(negotiation_start);
            self.negotiator.cycle(&ready, &mut responses)?;
            let negotiation = negotiation_start.elapsed();
            for stalled in self.negotiator.take_warnings() {
                eprintln!("kolo: {stalled}");
            }
            let step = (!self.replay.is_waiting()).then_some(self.log.steps.len());
            let messages = responses.len();
            self.track.negotiated(negotiation_start + negotiation, messages);
            self.log.cycles.push(RankCycle { step, negotiation, messages });
            self.step.control_bytes += self.negotiator.take_sent_bytes();
            self.step.report += self.negotiator.take_report();
            for response in &responses {
                self.carry_out(response, gradients.here())?;
            }
            self.stop_if_all_do()?;
            if let Some(time) = self.replay.ended(Instant::now()) {
                self.track.step_ended(time);
                let (step, work) = (std::mem::take(&mut self.step), self.optimizer.end_step());
                let cpu_before = std::mem::replace(&mut self.cpu, cpu_time());
                let cpu = self.cpu.zip(cpu_before).map(|(now, before)| now - before);
                self.log.steps.push(RankStep { time, work, cpu, ..step });
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
        let (job, rank) = (self.job, self.rank);
        match gradients {
            Place::Stale(mut gradients) => Place::Away(scope.spawn(move || {
                gradients.fill(job, rank);
                gradients
            })),
            Place::Away(writer) if writer.is_finished() => {
                self.last_step.arrive();
                Place::Fresh(writer.join().expect("writing gradients panicked"))
            }
            Place::Away(writer) => Place::Away(writer),
            Place::Fresh(gradients) => {
                if let Some(begun) = self.last_step.begun() {
                    self.replay.begin(begun);
                    self.step = RankStep::default();
                    self.cpu = cpu_time();
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
            // As with Horovod, what becomes of it is the framework's affair: here, the step goes on.
            let refused = response.tensors.iter().map(|&id| (id, error.to_string()));
            self.log.refused.extend(refused);
            self.optimizer.give_back(&response.tensors, gradients);
            self.replay.reduced(response.tensors.len());
            return Ok(());
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
        self.fall_silent();
        Ok(())
    }

    /// After a shutdown nothing more is reduced.
    fn stop_if_all_do(&self) -> Result<(), EngineError> {
        let Some(unfinished) = self.negotiator.stopped() else { return Ok(()) };
        let names = unfinished.iter().map(|&id| self.tensors.get(id).name.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let nothing = "nothing that was ready";
        let unfinished = if names.is_empty() { nothing.into() } else { names };
        Err(EngineError::ShutDown { unfinished })
    }

    /// A fault: this rank never sees a gradient.
    fn lose_the_missing(&self, arrivals: &mut Vec<Arrival>) {
        if let Some(Fault::Missing { rank, gradient }) = self.job.fault
            && rank == self.rank
        {
            arrivals.retain(|arrival| arrival.gradient != gradient);
        }
    }

    /// A fault: this rank answers nobody, until the others have given up.
    fn fall_silent(&self) {
        if let Some(Fault::Death { rank, step, lingers }) = self.job.fault
            && (rank, step) == (self.rank, self.log.steps.len())
        {
            std::thread::sleep(lingers);
        }
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
