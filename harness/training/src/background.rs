//! One rank's background loop: it drives a trainer, whatever that trains on.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use algorithms::control::{Reduction, Response, Tensors};
use algorithms::topology::Rank;
use results::usage::cpu_time;
use transports::transport::{MessageChannel, NonblockingBarrier, Transport, TransportError};
use workloads::replay::{HostCosts, StepTimes};

use crate::fault::Fault;
use crate::host_work::work;
use crate::job::Job;
use crate::negotiate::Negotiator;
use crate::outcome::{EngineError, RankCycle, RankLog, RankMessage, RankStep};
use crate::pace::Pace;
use crate::timeline::record::Track;
use crate::trainer::{EndedStep, Reduced, Trainer};

/// One rank's background loop.
pub struct Background<'a, B, M, S, T> {
    job: &'a Job<'a>,
    rank: Rank,
    tensors: Arc<Tensors>,
    negotiator: Negotiator<B, M>,
    trainer: T,
    /// The owner of the last step's data, and the time since which this rank has paused for it.
    last_step: S,
    paused: Option<Instant>,
    /// The step that runs.
    step: RankStep,
    /// Number of its gradients that have been reduced or refused.
    carried_out: usize,
    log: RankLog,
    /// Time on a core when the step began.
    cpu: Option<Duration>,
    track: Track<'a>,
}

impl<'a, B: Transport, M: MessageChannel, S: NonblockingBarrier, T: Trainer>
    Background<'a, B, M, S, T>
{
    /// A loop that has not begun.
    ///
    /// # Errors
    /// When gradients cannot be registered.
    pub fn new(
        job: &'a Job<'a>,
        rank: Rank,
        (bits, control, last_step): (B, M, S),
        trainer: T,
    ) -> Result<Self, EngineError> {
        let tensors = Arc::new(job.tensors(rank)?);
        Ok(Background {
            job,
            rank,
            negotiator: Negotiator::new(job.plane(rank, tensors.clone()), control, bits),
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
    ///
    /// # Errors
    /// When ranks disagree, or a rank does not answer.
    pub fn run(mut self) -> Result<(T, RankLog), EngineError> {
        let (mut ready, mut responses) = (Vec::new(), Vec::new());
        let mut pace = Pace::new(self.job.cycle_time, Instant::now());
        if self.job.steps > 1 {
            self.trainer.begin(Instant::now())?;
        }
        while !self.is_all_carried_out() {
            let idle_since = Instant::now();
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
            if let Some(first) = ready_at.clone().map(|(at, _)| at).min() {
                let since = first.max(idle_since);
                self.step.until_cycle += cycle_start.saturating_duration_since(since);
            }
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

    /// Waits for asynchronous work of the last step.
    fn finish(&mut self) -> Result<(), EngineError> {
        let StepTimes { forward, backward, optimizer, .. } = self.job.times;
        let passes = self.job.framework.backward_passes_per_step as u32;
        let limit = self.job.timeout + (forward + backward) * passes + optimizer;
        let start = Instant::now();
        while self.log.steps.len() < self.job.steps {
            self.take_reduced()?;
            self.end_step()?;
            if start.elapsed() > limit {
                let (rank, call) = (self.rank, "the last step on its device".into());
                let why = format!("it has not finished after {:.1} s", limit.as_secs_f64());
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
        let limit = self.job.timeout + written.saturating_duration_since(paused) * ranks;
        if now.saturating_duration_since(written) > limit {
            let (rank, call) = (self.rank, "the beginning of the last step".into());
            let why = format!("not all ranks have arrived after {:.1} s", limit.as_secs_f64());
            return Err(TransportError::Failed { rank, peer: None, call, why }.into());
        }
        Ok(())
    }

    /// Sleeps until the next cycle. Results of asynchronous reductions are collected soon.
    fn sleep_until_due(&mut self, pace: &Pace) -> Result<(), EngineError> {
        // Without a pace, the loop looks after its own affairs so often.
        const LOOK: Duration = Duration::from_millis(1);
        let (start, is_paced) = (Instant::now(), self.negotiator.is_paced());
        loop {
            let now = Instant::now();
            let wait = if is_paced { pace.until_next(now) } else { self.trainer.until_next(now) };
            let Some(wait) = wait else { return Ok(()) };
            let nap = self.trainer.nap().unwrap_or(wait);
            std::thread::sleep(wait.min(nap));
            self.take_reduced()?;
            self.end_step()?;
            let is_over = if is_paced {
                wait <= nap
            } else {
                self.trainer.is_waiting() || start.elapsed() >= LOOK
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// Ends the job when gradients are missing long after the last backward pass.
    fn give_up_on_the_missing(&self, now: Instant) -> Result<(), EngineError> {
        let end = self.trainer.backward_end().map(|end| now.saturating_duration_since(end));
        let Some(waited) = end.filter(|&waited| waited > self.job.timeout) else { return Ok(()) };
        let Some(missing) = self.trainer.missing() else { return Ok(()) };
        let missing = missing.in_words(self.job.workload);
        Err(EngineError::NeverReady { rank: self.rank, waited, missing })
    }

    /// One message: an allreduce of one or several gradients.
    fn carry_out(&mut self, response: &Response) -> Result<(), EngineError> {
        self.carried_out += response.tensors.len();
        let HostCosts { loop_gradient, loop_message, .. } = self.job.times.host;
        work(loop_message + loop_gradient * response.tensors.len() as u32);
        if let Some(error) = &response.error {
            // As in Horovod, errors are passed to the framework. This one continues the step.
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

    /// Collects what has been reduced since the last call.
    fn take_reduced(&mut self) -> Result<(), EngineError> {
        while let Some(reduced) = self.trainer.reduced()? {
            let Reduced { end, time, packing, unpacking, reduction, tensors, elements } = reduced;
            self.track.reduced(end, packing, unpacking);
            self.step.data += time;
            self.step.packing += packing + unpacking;
            if let Some(time) = reduction {
                *self.step.reduction.get_or_insert_default() += time;
            }
            let step = self.log.steps.len();
            self.log.messages.push(RankMessage { step, tensors, elements, time });
        }
        Ok(())
    }

    /// Ends the step if all its work has finished.
    fn end_step(&mut self) -> Result<(), EngineError> {
        // There is a pause before the last step.
        let goes_on = self.log.steps.len() + 2 < self.job.steps;
        let Some(ended) = self.trainer.ended(Instant::now(), goes_on)? else { return Ok(()) };
        let EndedStep { time, device, work } = ended;
        self.track.step_ended(time);
        self.carried_out = 0;
        let step = std::mem::take(&mut self.step);
        let cpu_before = std::mem::replace(&mut self.cpu, cpu_time());
        let cpu = self.cpu.zip(cpu_before).map(|(now, before)| now - before);
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.log.steps.push(RankStep { time, ended, device, work, cpu, ..step });
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

    /// Fault injection: after its first message of a step, this rank does not answer until the others have given
    /// up.
    fn fall_silent(&self, tensors: usize) {
        if let Some(Fault::Death { rank, step, lingers }) = self.job.fault
            && (rank, step, tensors) == (self.rank, self.log.steps.len(), self.carried_out)
        {
            std::thread::sleep(lingers);
        }
    }
}
