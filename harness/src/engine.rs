//! Horovod's background loop, fed by a replayed training job.
//!
//! Each rank runs one thread: sleep until the cycle is due, see which gradients have become ready,
//! negotiate, carry out what was agreed, again. The loop runs free: a training step never resets
//! the phase of the cycle, and an allreduce on the CPU blocks the loop, both as in Horovod. The
//! cycle time is a deadline: after a long cycle the next begins at once, and missed cycles are not
//! made up for.

pub mod device;
mod fault;
mod host;
mod outcome;
mod trainer;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use algorithms::control::{
    self, ControlPlane, DataType, ReduceOp, Response, Settings, StallCheck, Tensor, TensorId,
    Tensors,
};
use algorithms::fusion::Groups;
use algorithms::topology::{Rank, Topology};

use crate::allreduce::{Reduction, Sizes};
use crate::data_plane::DataPlane;
use crate::framework::Framework;
use crate::gradients::{self, Gradients};
use crate::memory::Memory;
use crate::negotiate::{NegotiateError, Negotiator};
use crate::pace::Pace;
use crate::pattern::Wrong;
use crate::replay::StepTimes;
use crate::timeline::record::{Recorder, Track};
use crate::transport::threads::{LastStep, Links, Mail, Start, run_ranks};
use crate::transport::{Connections, Meeting, Post, Transport, TransportError};
use crate::usage::cpu_time;
use crate::workload::Workload;

use host::Host;
use trainer::{EndedStep, Reduced, Trainer};

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
    let Connections { data, bits, mail, last_step } = connections;
    std::thread::scope(|scope| {
        let host = Host::new(scope, job, rank, data, std::mem::take(memory));
        let background = Background::new(job, rank, (bits, mail, last_step), host)?;
        let (host, log) = background.run()?;
        *memory = host.into_memory();
        Ok(log)
    })
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
struct Background<'a, B, M, S, T> {
    job: &'a Job<'a>,
    rank: Rank,
    tensors: Arc<Tensors>,
    negotiator: Negotiator<B, M>,
    trainer: T,
    /// Who has the data of the last step, and since when this rank runs no step for its sake.
    last_step: S,
    paused: Option<Instant>,
    /// The step that runs.
    step: RankStep,
    /// So many of its gradients have been carried out, well or not.
    carried_out: usize,
    log: RankLog,
    /// Time on a core when the step began.
    cpu: Option<Duration>,
    track: Track<'a>,
}

impl<'a, B: Transport, M: Post, S: Meeting, T: Trainer> Background<'a, B, M, S, T> {
    /// A loop that has not begun.
    fn new(
        job: &'a Job<'a>,
        rank: Rank,
        (bits, mail, last_step): (B, M, S),
        trainer: T,
    ) -> Result<Self, EngineError> {
        let tensors = Arc::new(job.tensors(rank)?);
        Ok(Background {
            job,
            rank,
            negotiator: Negotiator::new(job.plane(rank, tensors.clone()), mail, bits),
            tensors,
            trainer,
            last_step,
            paused: None,
            step: RankStep::default(),
            carried_out: 0,
            log: RankLog::default(),
            cpu: cpu_time(),
            track: job.recorder.map_or_else(Track::off, |recorder| recorder.track(rank)),
        })
    }

    /// Runs until the last step is over; gives the trainer back.
    fn run(mut self) -> Result<(T, RankLog), EngineError> {
        let (mut ready, mut responses) = (Vec::new(), Vec::new());
        let mut pace = Pace::new(self.job.cycle_time, Instant::now());
        if self.job.steps > 1 {
            self.trainer.begin(Instant::now())?;
        }
        while !self.is_all_carried_out() {
            self.sleep_until_due(&pace)?;
            let cycle_start = Instant::now();
            pace.begin(cycle_start);
            if self.trainer.is_waiting() {
                self.begin_last_step(cycle_start)?;
            }
            ready.clear();
            self.step.cycle_wait += self.trainer.take_ready(cycle_start, &mut ready)?;
            self.give_up_on_the_missing(cycle_start)?;
            let trainer = &self.trainer;
            let ready_at = ready.iter().filter_map(|&id| Some((trainer.ready_at(id)?, id)));
            self.track.cycle(cycle_start, trainer.begun(), ready_at);
            responses.clear();
            let negotiation_start = Instant::now();
            self.track.negotiation(negotiation_start);
            self.negotiator.cycle(&ready, &mut responses)?;
            let negotiation = negotiation_start.elapsed();
            for stalled in self.negotiator.take_warnings() {
                eprintln!("kolo: {stalled}");
            }
            let step = (!self.trainer.is_waiting()).then_some(self.log.steps.len());
            let messages = responses.len();
            self.track.negotiated(negotiation_start + negotiation, messages);
            self.log.cycles.push(RankCycle { step, negotiation, messages });
            self.step.control_bytes += self.negotiator.take_sent_bytes();
            self.step.report += self.negotiator.take_report();
            for response in &responses {
                self.carry_out(response)?;
            }
            self.stop_if_all_do()?;
            self.take_reduced()?;
            self.end_step()?;
        }
        self.finish()?;
        self.negotiator.flush()?;
        Ok((self.trainer, self.log))
    }

    /// All gradients of the last step have been carried out. Ranks learn it in the same cycle, and then need
    /// each other no more.
    fn is_all_carried_out(&self) -> bool {
        let gradients = self.job.workload.gradients.len();
        match self.job.steps - self.log.steps.len() {
            0 => true,
            1 => !self.trainer.is_waiting() && self.carried_out == gradients,
            _ => false,
        }
    }

    /// Waits for what of the last step is under way beside the loop.
    fn finish(&mut self) -> Result<(), EngineError> {
        let StepTimes { forward, backward, optimizer } = self.job.times;
        let passes = self.job.framework.backward_passes_per_step as u32;
        let limit = self.job.patience + (forward + backward) * passes + optimizer;
        let start = Instant::now();
        while self.log.steps.len() < self.job.steps {
            self.take_reduced()?;
            self.end_step()?;
            if start.elapsed() > limit {
                let (rank, call) = (self.rank, "the last step on its device".into());
                let why = format!("it is not over after {:.1} s", limit.as_secs_f64());
                return Err(TransportError::Failed { rank, peer: None, call, why }.into());
            }
            self.trainer.nap().into_iter().for_each(std::thread::sleep);
        }
        Ok(())
    }

    /// Begins the last step, once all ranks have its data.
    fn begin_last_step(&mut self, now: Instant) -> Result<(), EngineError> {
        if self.trainer.begin_last_step(&mut self.last_step)? {
            self.step = RankStep::default();
            self.cpu = cpu_time();
            return Ok(());
        }
        let paused = *self.paused.get_or_insert(now);
        let Some(written) = self.trainer.written() else { return Ok(()) };
        // Others take as long to write theirs, one after the other at the worst.
        let ranks = self.job.topology.ranks() as u32;
        let limit = self.job.patience + written.saturating_duration_since(paused) * ranks;
        if now.saturating_duration_since(written) > limit {
            let (rank, call) = (self.rank, "the beginning of the last step".into());
            let why = format!("not all ranks are there after {:.1} s", limit.as_secs_f64());
            return Err(TransportError::Failed { rank, peer: None, call, why }.into());
        }
        Ok(())
    }

    /// Sleeps until the next cycle. What is reduced meanwhile, beside this loop, is taken up soon.
    fn sleep_until_due(&mut self, pace: &Pace) -> Result<(), EngineError> {
        // Without a pace, the loop looks after its own affairs so often.
        const LOOK: Duration = Duration::from_millis(1);
        let (start, is_paced) = (Instant::now(), self.negotiator.is_paced());
        loop {
            let now = Instant::now();
            let wait = match is_paced {
                true => pace.until_next(now),
                false => self.trainer.until_next(now),
            };
            let Some(wait) = wait else { return Ok(()) };
            let nap = self.trainer.nap().unwrap_or(wait);
            std::thread::sleep(wait.min(nap));
            self.take_reduced()?;
            self.end_step()?;
            let is_over = match is_paced {
                true => wait <= nap,
                false => self.trainer.is_waiting() || start.elapsed() >= LOOK,
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// Ends the job when gradients are missing long after the last backward pass.
    fn give_up_on_the_missing(&self, now: Instant) -> Result<(), EngineError> {
        let end = self.trainer.backward_end().map(|end| now.saturating_duration_since(end));
        let Some(waited) = end.filter(|&waited| waited > self.job.patience) else { return Ok(()) };
        let Some(missing) = self.trainer.missing() else { return Ok(()) };
        let missing = missing.in_words(self.job.workload);
        Err(EngineError::NeverReady { rank: self.rank, waited, missing })
    }

    /// One message: an allreduce of one or several gradients.
    fn carry_out(&mut self, response: &Response) -> Result<(), EngineError> {
        self.carried_out += response.tensors.len();
        if let Some(error) = &response.error {
            // As with Horovod, what becomes of it is the framework's affair: here, the step goes on.
            let refused = response.tensors.iter().map(|&id| (id, error.to_string()));
            self.log.refused.extend(refused);
            self.trainer.refuse(&response.tensors);
            return Ok(());
        }
        let start = Instant::now();
        self.track.message(start, &response.tensors);
        let reduction = Reduction::of(self.tensors.get(response.tensors[0]));
        self.trainer.reduce(start, &response.tensors, reduction)?;
        self.take_reduced()?;
        self.fall_silent(response.tensors.len());
        Ok(())
    }

    /// Notes what has been reduced since somebody asked last.
    fn take_reduced(&mut self) -> Result<(), EngineError> {
        while let Some(reduced) = self.trainer.reduced()? {
            let Reduced { end, time, packing, unpacking, tensors, elements } = reduced;
            self.track.reduced(end, packing, unpacking);
            self.step.data += time;
            self.step.packing += packing + unpacking;
            let step = self.log.steps.len();
            self.log.messages.push(RankMessage { step, tensors, elements, time });
        }
        Ok(())
    }

    /// Ends the step if all of it is over.
    fn end_step(&mut self) -> Result<(), EngineError> {
        // Before the last step there is a pause.
        let goes_on = self.log.steps.len() + 2 < self.job.steps;
        let Some(ended) = self.trainer.ended(Instant::now(), goes_on)? else { return Ok(()) };
        let EndedStep { time, device, work } = ended;
        self.track.step_ended(time);
        self.carried_out = 0;
        let step = std::mem::take(&mut self.step);
        let cpu_before = std::mem::replace(&mut self.cpu, cpu_time());
        let cpu = self.cpu.zip(cpu_before).map(|(now, before)| now - before);
        self.log.steps.push(RankStep { time, device, work, cpu, ..step });
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

    /// A fault: this rank answers nobody, after its first message of a step, until the others have given up.
    fn fall_silent(&self, tensors: usize) {
        if let Some(Fault::Death { rank, step, lingers }) = self.job.fault
            && (rank, step, tensors) == (self.rank, self.log.steps.len(), self.carried_out)
        {
            std::thread::sleep(lingers);
        }
    }
}
