//! One training step after another in virtual time.
//!
//! A rank's step: forward pass, backward pass during which gradients become ready one after another,
//! optimizer; as often as gradients are added up, forward and backward pass come before that without any
//! communication. Each rank computes at its own pace ([`Jitter`]). Ranks begin a step together, because
//! the one before ended with an allreduce of all.
//!
//! The background threads of all ranks go through their cycles together: a cycle begins a cycle time after
//! the one before, or when that one's negotiation is over, and what is ready on a rank by then takes part.
//! Static buckets know no cycles: a bucket begins when the slowest rank has it. Messages go through one
//! stream in the order agreed on. While one is under way, computation is slower by a factor.

use std::sync::Arc;

use algorithms::control::{ControlError, Settings, TensorId, Tensors};
use algorithms::simulate::Moment;

use super::data_plane::DataPlane;
use super::jitter::Jitter;
use super::machine_file::Control;
use super::negotiation::Negotiation;

/// What is simulated.
pub struct Job<'j> {
    /// Gradients as they travel.
    pub tensors: Arc<Tensors>,
    /// When each is handed over, as a part of the backward pass: ascending, groups with their last one.
    pub ready: Vec<(TensorId, f64)>,
    /// Computation without jitter.
    pub compute: Compute,
    /// Control plane.
    pub plane: &'j str,
    /// What control planes are told; rank and ranks are filled in.
    pub settings: Settings,
    /// Least time from the beginning of a cycle to that of the next.
    pub cycle_s: f64,
    /// World size.
    pub ranks: usize,
    /// What a negotiation costs.
    pub control: &'j Control,
    /// What a message costs.
    pub data: &'j DataPlane,
    /// Messages are cut into pieces of at most so many bytes, one allreduce each; infinite: they are not.
    pub partition_bytes: f64,
    /// The latency of one message passes while the bytes of the next ones travel.
    pub overlap_latency: bool,
    /// A cycle does not end before its messages are over, as where the background thread moves the bytes.
    pub blocking: bool,
    /// Computation takes longer by this factor while a message is under way.
    pub slowdown: f64,
    /// How ranks differ.
    pub jitter: &'j Jitter,
    /// Of jitter.
    pub seed: u64,
    /// Which state machines run.
    pub drive: Drive,
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

/// Where the time of one step went, in seconds; the parts add up to `time`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// From its beginning to the end of the optimizer.
    pub time: f64,
    /// Computation of a rank that has no jitter.
    pub compute: f64,
    /// What the slowest rank took more.
    pub jitter: f64,
    /// After computation: nothing was under way, the next cycle had not begun.
    pub cycle: f64,
    /// After computation: negotiating while nothing was under way.
    pub negotiation: f64,
    /// After computation: messages' latency ...
    pub latency: f64,
    /// ... bytes ...
    pub bandwidth: f64,
    /// ... waiting for shared links, and what computation lost to messages ...
    pub contention: f64,
    /// ... and combining.
    pub reduction: f64,
    /// Cycles.
    pub cycles: usize,
    /// Those in which nothing was agreed on.
    pub idle_cycles: usize,
    /// Negotiating, over all cycles with something to agree on.
    pub negotiating: f64,
    /// Messages.
    pub messages: usize,
    /// Their time, under way or waiting for the stream's end.
    pub communicating: f64,
}

/// A world that goes from step to step.
struct World<'j> {
    job: &'j Job<'j>,
    negotiation: Negotiation,
    /// When the next cycle may begin.
    next_cycle_s: f64,
    /// How long an idle one takes.
    idle_s: f64,
}

/// One step under way.
struct Progress {
    start_s: f64,
    /// Factors of those that are driven.
    driven: Vec<f64>,
    /// Factors of all ranks, ascending.
    sorted: Vec<f64>,
    /// How many tensors each driven rank has handed over.
    handed_over: Vec<usize>,
    /// How many ranks have handed over each, in the order of readiness.
    counts: Vec<usize>,
    /// Tensors that were agreed on.
    agreed: usize,
    stream_free_s: f64,
    /// Under way, without what overlaps, so far.
    busy_s: f64,
    messages: Vec<(f64, Moment)>,
    negotiations: Vec<(f64, f64)>,
    step: Step,
}

/// Simulates so many steps, one after another.
///
/// # Errors
/// An unknown control plane, or one that refuses to go on.
pub fn simulate(job: &Job, steps: usize) -> Result<Vec<Step>, String> {
    let driven = match job.drive {
        Drive::All => job.ranks,
        Drive::Classes => job.ranks.min(4),
    };
    let worlds = (job.ranks, driven);
    let mut negotiation =
        Negotiation::new(job.plane, &job.tensors, &job.settings, worlds, job.control)?;
    let idle_s = negotiation.idle_s().map_err(|error| error.to_string())?;
    let mut world = World { job, negotiation, next_cycle_s: 0.0, idle_s };
    let (mut start_s, mut all) = (0.0, Vec::new());
    for number in 0..steps {
        let step = world.step(start_s, number).map_err(|error| error.to_string())?;
        start_s += step.time;
        all.push(step);
    }
    Ok(all)
}

impl World<'_> {
    fn step(&mut self, start_s: f64, number: usize) -> Result<Step, ControlError> {
        let job = self.job;
        let factors = job.jitter.factors(job.ranks, job.seed, number);
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
        let mut progress = Progress {
            start_s,
            handed_over: vec![0; driven.len()],
            driven,
            sorted,
            counts: vec![0; job.ready.len()],
            agreed: 0,
            stream_free_s: start_s,
            busy_s: 0.0,
            messages: Vec::new(),
            negotiations: Vec::new(),
            step: Step::default(),
        };
        match self.negotiation.is_paced() {
            true => self.cycles(&mut progress)?,
            false => self.at_once(&mut progress)?,
        }
        Ok(progress.ended(job, slowest))
    }

    /// Cycle after cycle until everything is agreed on.
    fn cycles(&mut self, progress: &mut Progress) -> Result<(), ControlError> {
        let job = self.job;
        self.next_cycle_s = self.next_cycle_s.max(progress.start_s);
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
            for response in &agreed.responses {
                over_s += job.control.launch_us.value * 1e-6;
                progress.communicate(job, over_s, &response.tensors);
            }
            if job.blocking && !agreed.responses.is_empty() {
                over_s = over_s.max(progress.stream_free_s);
            }
            self.next_cycle_s = over_s.max(now_s + job.cycle_s);
        }
        Ok(())
    }

    /// Passes over cycles at whose beginning nothing is new on any rank and nobody waits for another.
    fn skip_idle(&mut self, progress: &mut Progress) {
        let job = self.job;
        let first = progress.handed_over[0];
        if progress.handed_over.iter().any(|&count| count != first) || progress.agreed != first {
            return;
        }
        let Some(&(_, fraction)) = job.ready.get(first) else { return };
        let fastest = progress.driven.iter().copied().fold(f64::INFINITY, f64::min);
        let next_s = progress.ready_s(job, fraction, fastest);
        let period_s = job.cycle_s.max(self.idle_s);
        let idle = ((next_s - self.next_cycle_s) / period_s).floor();
        if idle > 0.0 {
            self.next_cycle_s += idle * period_s;
            progress.step.cycles += idle as usize;
            progress.step.idle_cycles += idle as usize;
        }
    }

    /// As soon as the slowest rank has something: what other ranks wait for.
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
                progress.communicate(job, begin_s, &response.tensors);
            }
        }
        Ok(())
    }
}

impl Progress {
    /// When a rank of that pace hands over what is ready at that part of its backward pass, as far as
    /// messages so far have held it up.
    fn ready_s(&self, job: &Job, fraction: f64, factor: f64) -> f64 {
        let Compute { forward_s, backward_s, passes, .. } = job.compute;
        let before_s = (passes - 1) as f64 * (forward_s + backward_s) + forward_s;
        let held_up_s = (job.slowdown - 1.0) * self.busy_s;
        self.start_s + factor * (before_s + fraction * backward_s) + held_up_s
    }

    /// The part of the backward pass that a rank of that pace has reached.
    fn reached(&self, job: &Job, now_s: f64, factor: f64) -> f64 {
        let begin_s = self.ready_s(job, 0.0, factor);
        let end_s = self.ready_s(job, 1.0, factor);
        match end_s > begin_s {
            true => (now_s - begin_s) / (end_s - begin_s),
            false if now_s >= end_s => 1.0,
            false => -1.0,
        }
    }

    /// What each driven rank hands over now.
    fn hand_over(&mut self, job: &Job, now_s: f64) -> Vec<Vec<TensorId>> {
        (0..self.driven.len())
            .map(|rank| {
                // A hair more, so that a moment that was computed as the one of readiness is.
                let reached = self.reached(job, now_s, self.driven[rank]) + 1e-12;
                let count = job.ready.partition_point(|&(_, fraction)| fraction <= reached);
                let from = self.handed_over[rank].min(count);
                self.handed_over[rank] = count.max(from);
                job.ready[from..count].iter().map(|&(id, _)| id).collect()
            })
            .collect()
    }

    /// On how many ranks each tensor has become ready since the cycle before.
    fn count(&mut self, job: &Job, now_s: f64) -> Vec<(TensorId, usize)> {
        let mut newly = Vec::new();
        for (place, &(id, fraction)) in job.ready.iter().enumerate().skip(self.agreed) {
            let has = |&factor: &f64| self.reached(job, now_s, factor) + 1e-12 >= fraction;
            let count = self.sorted.partition_point(has);
            if count > self.counts[place] {
                newly.push((id, count - self.counts[place]));
                self.counts[place] = count;
            } else if count == 0 {
                break;
            }
        }
        newly
    }

    /// Puts a message on its way, not before a time.
    fn communicate(&mut self, job: &Job, ready_s: f64, tensors: &[TensorId]) {
        let bytes: usize = tensors.iter().map(|&id| job.tensors.size_bytes(id)).sum();
        self.agreed += tensors.len();
        self.step.messages += 1;
        let pieces = (bytes as f64 / job.partition_bytes).ceil().max(1.0);
        let once = job.data.time(bytes as f64 / pieces);
        let begin_s = self.stream_free_s.max(ready_s);
        let latencies = if job.overlap_latency { 1.0 } else { pieces };
        let moment = Moment {
            at_s: latencies * once.latency_s + pieces * (once.at_s - once.latency_s),
            latency_s: latencies * once.latency_s,
            bandwidth_s: pieces * once.bandwidth_s,
            contention_s: pieces * once.contention_s,
            reduction_s: pieces * once.reduction_s,
        };
        let occupied_s = moment.at_s - if job.overlap_latency { moment.latency_s } else { 0.0 };
        self.stream_free_s = begin_s + occupied_s;
        self.busy_s += occupied_s;
        self.messages.push((begin_s, moment));
    }

    /// The step is over: where its time went.
    fn ended(mut self, job: &Job, slowest: f64) -> Step {
        let Compute { forward_s, backward_s, optimizer_s, passes } = job.compute;
        let computed_s = passes as f64 * (forward_s + backward_s);
        let own_end_s = self.start_s + slowest * computed_s;
        let compute_end_s = self.ready_s(job, 1.0, slowest);
        let ends = self.messages.iter().map(|(begin_s, moment)| begin_s + moment.at_s);
        let end_s = ends.fold(compute_end_s, f64::max);
        self.step.communicating = self.messages.iter().map(|(_, moment)| moment.at_s).sum::<f64>();
        let step = &mut self.step;
        step.compute = computed_s + optimizer_s;
        step.jitter = (slowest - 1.0) * computed_s;
        step.contention = compute_end_s - own_end_s;
        step.time = end_s + optimizer_s - self.start_s;
        // What is exposed after `at_s`: messages first, then negotiations, the rest is waiting.
        let mut at_s = compute_end_s;
        for &(begin_s, moment) in &self.messages {
            let over_s = begin_s + moment.at_s;
            if over_s <= at_s {
                continue;
            }
            let idle = (at_s, begin_s.max(at_s));
            let overlap = |&(from, to): &(f64, f64)| (to.min(idle.1) - from.max(idle.0)).max(0.0);
            let negotiating: f64 = self.negotiations.iter().map(overlap).sum();
            step.negotiation += negotiating;
            step.cycle += (idle.1 - idle.0 - negotiating).max(0.0);
            // One rank alone sends nothing.
            let took_s = moment.at_s.max(f64::MIN_POSITIVE);
            let share = (over_s - begin_s.max(at_s)) / took_s;
            step.latency += share * moment.latency_s;
            step.bandwidth += share * moment.bandwidth_s;
            step.contention += share * moment.contention_s;
            step.reduction += share * moment.reduction_s;
            at_s = over_s;
        }
        self.step
    }
}

#[cfg(test)]
mod tests;
