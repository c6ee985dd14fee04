//! One training step after another in virtual time.
//!
//! A rank's step: forward pass, backward pass during which gradients become ready one after another,
//! optimizer; as often as gradients are added up, forward and backward pass come before that without any
//! communication. Each rank computes at its own pace ([`Paces`]). Ranks begin a step together, because
//! the one before ended with an allreduce of all.
//!
//! The background threads of all ranks run their cycles together. A cycle begins one cycle time after the previous
//! one, or when its negotiation has ended, and includes everything that is ready by then. A thread that slept may wake
//! up late (`late.rs`), and the cycle waits for the last one. Static buckets have no
//! cycles: a bucket begins when the slowest rank has it. Messages use one stream in the agreed order. While one is
//! in flight, computation is slower by a factor, and while the slowest rank computes, so is the message. Traffic of other
//! jobs makes each message longer by another time (`congestion.rs`).
//!
//! With priorities (`priority`) a step does not end with its messages: they continue during the next forward pass,
//! in which each layer waits for its own gradients.

mod busy;
mod congestion;
mod late;
mod priority;
mod progress;

use std::sync::Arc;

use algorithms::control::{ControlError, Settings, TensorId, Tensors};
use congestion::Congested;
pub use congestion::Congestion;
use late::Late;
use priority::Priority;
use progress::Progress;
use results::names::UnknownName;
use thiserror::Error;

use super::data_plane::{DataPlane, Overlap};
use super::jitter::Jitter;
use super::machine_file::Control;
use super::negotiation::Negotiation;
use super::paces::Paces;

/// The job to simulate.
pub struct Job<'j> {
    /// Gradients as they travel.
    pub tensors: Arc<Tensors>,
    /// When each is handed over, as a fraction of the backward pass: ascending, groups with their last one.
    pub ready: Vec<(TensorId, f64)>,
    /// Computation without jitter.
    pub compute: Compute,
    /// Control plane.
    pub plane: &'j str,
    /// Settings of control planes; rank and ranks are filled in.
    pub settings: Settings,
    /// Least time from the beginning of a cycle to that of the next.
    pub cycle_s: f64,
    /// World size.
    pub ranks: usize,
    /// The cost of a negotiation.
    pub control: &'j Control,
    /// The cost of a message.
    pub data: &'j DataPlane,
    /// By how much more each byte counts, where the data plane does not spread them evenly; else 1.
    pub imbalance: f64,
    /// Bytes of the pieces into which messages are split, one allreduce each; infinite: whole messages.
    pub partition_bytes: f64,
    /// Bytes of the blocks in which messages of several tensors are packed, reduced and unpacked one after the other;
    /// infinite: whole messages.
    pub packing_bytes: f64,
    /// The parts of a message that overlap with other messages in flight.
    pub overlap: Overlap,
    /// With priorities: the part of the next forward pass at which each tensor's layer begins. None: a step ends
    /// when all messages have ended.
    pub needed: Option<Vec<f64>>,
    /// A cycle does not end before its messages, as where the background thread moves the data.
    pub blocking: bool,
    /// What the host of a framework that runs ahead of the GPU needs to launch the kernels of one gradient in a backward
    /// pass; half as much in a forward pass. Gradients are handed over then. Their messages begin when they are computed,
    /// and the background thread waits for that. None: gradients are handed over when they are computed.
    pub launch_gradient_s: Option<f64>,
    /// How much longer computation takes while a message is under way.
    pub interference: Interference,
    /// How much other jobs slow messages down.
    pub congestion: Congestion,
    /// No step is shorter, since input comes no faster.
    pub input_s: f64,
    /// How ranks differ.
    pub jitter: &'j Jitter,
    /// Seed of the jitter.
    pub seed: u64,
    /// Which state machines run.
    pub drive: Drive,
}

/// How messages and computation slow each other down: both need multiprocessors and memory of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interference {
    /// What computation takes longer beside any message, in parts of its time.
    pub fixed: f64,
    /// ... and for each byte per second of the message's bus bandwidth.
    pub per_byte_s: f64,
    /// What a message takes longer beside computation where the GPU limits it, in parts of its time.
    pub messages: f64,
    /// Bytes per second of bus bandwidth up to which the GPU moves messages alone; 0: it limits every message.
    pub gpu_bytes_s: f64,
}

impl Interference {
    /// The factor by which computation takes longer beside a message of that bus bandwidth in bytes per second.
    pub fn slowdown(&self, bytes_s: f64) -> f64 {
        1.0 + self.fixed + self.per_byte_s * bytes_s
    }

    /// What the bytes of a message of that bus bandwidth take longer beside computation, in parts of their time. A
    /// network that is slower than the GPU leaves it time.
    pub fn longer(&self, bytes_s: f64) -> f64 {
        if self.gpu_bytes_s == 0.0 {
            return self.messages;
        }
        ((1.0 + self.messages) * bytes_s / self.gpu_bytes_s - 1.0).clamp(0.0, self.messages)
    }
}

/// Seconds of one rank's computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compute {
    /// Forward pass.
    pub forward_s: f64,
    /// Backward pass.
    pub backward_s: f64,
    /// Optimizer, after all gradients are reduced.
    pub optimizer_s: f64,
    /// Forward and backward passes per step.
    pub passes: usize,
}

impl Compute {
    /// Seconds of all forward and backward passes of a step.
    pub fn passes_s(&self) -> f64 {
        self.passes as f64 * (self.forward_s + self.backward_s)
    }
}

/// Which state machines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// Every rank's.
    All,
    /// Rank 0's, and those of the slowest, the fastest and the middle rank of each step.
    Classes,
}

impl Drive {
    /// As in rows.
    pub fn name(self) -> &'static str {
        match self {
            Drive::All => "all",
            Drive::Classes => "classes",
        }
    }
}

/// The breakdown of one step, in seconds; the parts add up to `time`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// From the start of the step to the end of the optimizer.
    pub time: f64,
    /// Computation of a rank that has no jitter.
    pub compute: f64,
    /// The excess of the slowest rank.
    pub jitter: f64,
    /// After computation: nothing in flight, and the next cycle has not begun.
    pub cycle: f64,
    /// After computation: negotiation with nothing in flight.
    pub negotiation: f64,
    /// After computation: messages' latency ...
    pub latency: f64,
    /// ... bytes ...
    pub bandwidth: f64,
    /// ... waiting for shared links, and what computation and messages lost to each other ...
    pub contention: f64,
    /// ... and combining.
    pub reduction: f64,
    /// After all of that: waiting for the input of the next step.
    pub input: f64,
    /// Cycles.
    pub cycles: usize,
    /// Cycles without an agreement.
    pub idle_cycles: usize,
    /// Negotiating, over all cycles with something to agree on.
    pub negotiating: f64,
    /// Messages.
    pub messages: usize,
    /// Their time, under way or waiting for the stream's end.
    pub communicating: f64,
}

impl Step {
    /// The same step, which waits for shared input until that time.
    fn not_before(self, input_s: f64) -> Step {
        let waiting_s = (input_s - self.time).max(0.0);
        Step { time: self.time + waiting_s, input: self.input + waiting_s, ..self }
    }
}

/// A world that goes from step to step.
struct World<'j> {
    job: &'j Job<'j>,
    /// How long each rank computes in the next steps.
    paces: Paces<'j>,
    negotiation: Negotiation,
    /// When the next cycle may begin.
    next_cycle_s: f64,
    /// How long an idle one takes.
    idle_s: f64,
    /// How much later the next one begins than planned.
    late: Late,
    /// What other jobs add to the next message.
    congested: Congested,
    /// What the next forward pass waits for, by layer.
    priority: Option<Priority>,
}

/// Why training steps cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// No control plane has that name.
    #[error(transparent)]
    Plane(#[from] UnknownName),
    /// The control plane reported an error.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Priorities were requested, but the control plane does not support them.
    #[error(
        "control plane \"{plane}\" negotiates in cycles and does not support priorities; use ddp or packs"
    )]
    Priority {
        /// The control plane.
        plane: String,
    },
}

/// Simulates `steps` steps, one after another.
///
/// # Errors
/// An unknown control plane, or its error.
pub fn simulate(job: &Job, steps: usize) -> Result<Vec<Step>, TrainingError> {
    let driven = match job.drive {
        Drive::All => job.ranks,
        Drive::Classes => job.ranks.min(4),
    };
    let worlds = (job.ranks, driven);
    let mut negotiation =
        Negotiation::new(job.plane, &job.tensors, &job.settings, worlds, job.control)?;
    let idle_s = negotiation.idle_s()?;
    if job.needed.is_some() && negotiation.is_paced() {
        return Err(TrainingError::Priority { plane: job.plane.into() });
    }
    let priority = job.needed.as_deref().map(|needed| Priority::new(job, needed));
    let late = Late::new(job.control, job.ranks, job.seed);
    let paces = job.jitter.paces(job.ranks, job.seed, job.compute.passes_s());
    let congested = Congested::new(job.congestion, job.seed);
    let mut world =
        World { job, paces, negotiation, next_cycle_s: 0.0, idle_s, late, congested, priority };
    let (mut start_s, mut all) = (0.0, Vec::new());
    for _ in 0..steps {
        let step = world.step(start_s)?;
        start_s += step.time;
        all.push(step);
    }
    Ok(all)
}

impl World<'_> {
    fn step(&mut self, start_s: f64) -> Result<Step, ControlError> {
        let job = self.job;
        let factors = self.paces.next().expect("there is always one more");
        let mut sorted = factors.clone();
        sorted.sort_by(f64::total_cmp);
        let slowest = sorted[job.ranks - 1];
        let driven = match job.drive {
            _ if !self.negotiation.is_paced() => vec![slowest],
            Drive::Classes if job.ranks > 4 => {
                vec![factors[0], sorted[0], sorted[job.ranks / 2], slowest]
            }
            _ => factors,
        };
        let mut step = Step::default();
        let pause_s = match &self.priority {
            Some(priority) => {
                job.compute.optimizer_s + priority.waits(job, start_s, slowest, &mut step)
            }
            None => 0.0,
        };
        let mut progress = Progress::new(job, start_s + pause_s, (driven, sorted), step);
        if self.negotiation.is_paced() {
            self.cycles(&mut progress)?
        } else {
            self.at_once(&mut progress)?
        }
        let step = match &mut self.priority {
            Some(priority) => priority.ended(job, progress, start_s),
            None => progress.ended(job),
        };
        Ok(step.not_before(job.input_s))
    }

    /// Cycle after cycle until everything is agreed on.
    fn cycles(&mut self, progress: &mut Progress) -> Result<(), ControlError> {
        let job = self.job;
        self.next_cycle_s = self.next_cycle_s.max(progress.start_s());
        while progress.agreed < job.ready.len() {
            self.skip_idle(progress);
            let now_s = self.next_cycle_s;
            let newly_ready = progress.count(job, now_s);
            let ready = progress.hand_over(job, now_s);
            let lists: Vec<&[TensorId]> = ready.iter().map(Vec::as_slice).collect();
            let agreed = self.negotiation.cycle(now_s, |rank| lists[rank], &newly_ready)?;
            let mut over_s = now_s + agreed.seconds;
            progress.step.cycles += 1;
            progress.step.idle_cycles += usize::from(agreed.responses.is_empty());
            if !newly_ready.is_empty() || !agreed.responses.is_empty() {
                progress.negotiations.push((now_s, over_s));
                progress.step.negotiating += agreed.seconds;
            }
            if !agreed.responses.is_empty() {
                over_s += job.control.begin_s();
            }
            for response in &agreed.responses {
                if job.launch_gradient_s.is_some() {
                    over_s = over_s.max(progress.computed_s(job, &response.tensors));
                }
                let copying_s = job.control.copying_s(response.tensors.len());
                over_s += job.control.launch_us.value * 1e-6 + copying_s;
                progress.communicate(job, over_s, &response.tensors, self.congested.next());
                over_s += copying_s;
            }
            if job.blocking && !agreed.responses.is_empty() {
                over_s = over_s.max(progress.stream_free_s);
            }
            self.next_cycle_s = self.late.next_s(over_s, now_s + job.cycle_s);
        }
        Ok(())
    }

    /// Skips cycles in which nothing is new on any rank and no rank waits.
    fn skip_idle(&mut self, progress: &mut Progress) {
        let job = self.job;
        let first = progress.handed_over[0];
        if progress.handed_over.iter().any(|&count| count != first) || progress.agreed != first {
            return;
        }
        if first == job.ready.len() {
            return;
        }
        let fastest = progress.driven.iter().copied().fold(f64::INFINITY, f64::min);
        let next_s = progress.handed_over_s(job, first, fastest);
        let idle = if self.late.is_never() {
            let period_s = job.cycle_s.max(self.idle_s);
            let idle = ((next_s - self.next_cycle_s) / period_s).floor().max(0.0);
            self.next_cycle_s += idle * period_s;
            idle as usize
        } else {
            let mut idle = 0;
            loop {
                let now_s = self.next_cycle_s;
                let (over_s, due_s) = (now_s + self.idle_s, now_s + job.cycle_s);
                let begin_s = self.late.peek_s(over_s, due_s);
                if begin_s > next_s || begin_s <= now_s {
                    break idle;
                }
                self.next_cycle_s = self.late.next_s(over_s, due_s);
                idle += 1;
            }
        };
        progress.step.cycles += idle;
        progress.step.idle_cycles += idle;
    }

    /// Without cycles: messages begin when the slowest rank has their tensors.
    fn at_once(&mut self, progress: &mut Progress) -> Result<(), ControlError> {
        let job = self.job;
        let mut done = 0;
        while let Some(&(_, fraction)) = job.ready.get(done) {
            let slowest = progress.driven[0];
            let now_s = progress.ready_s(job, fraction, slowest);
            let until = job.ready.partition_point(|&(_, other)| other <= fraction);
            let ids: Vec<TensorId> = job.ready[done..until].iter().map(|&(id, _)| id).collect();
            done = until;
            let agreed = self.negotiation.cycle(now_s, |_| &ids, &[])?;
            let mut begin_s = now_s;
            for response in &agreed.responses {
                begin_s += job.control.launch_us.value * 1e-6;
                progress.communicate(job, begin_s, &response.tensors, self.congested.next());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
