//! One step in progress: tensors that ranks have handed over, and messages in flight.

use std::sync::Arc;

use algorithms::control::TensorId;
use algorithms::simulate::Moment;

use super::busy::Busy;
use super::{Compute, Job, Step};
use results::units::bus_factor;

/// One step under way.
pub(super) struct Progress {
    start_s: f64,
    /// Factors of those that are driven.
    pub driven: Vec<f64>,
    /// Factors of all ranks, ascending.
    sorted: Vec<f64>,
    /// How many tensors each driven rank has handed over.
    pub handed_over: Vec<usize>,
    /// How many ranks have handed over each, in the order of readiness.
    counts: Vec<usize>,
    /// Tensors that were agreed on.
    pub agreed: usize,
    pub stream_free_s: f64,
    /// When messages so far are under way.
    busy: Busy,
    pub messages: Vec<Message>,
    pub negotiations: Vec<(f64, f64)>,
    pub step: Step,
}

/// A message, in pieces that follow each other.
pub(super) struct Message {
    pub tensors: Arc<[TensorId]>,
    /// It may begin ...
    pub ready_s: f64,
    /// ... and does, in the order of messages.
    pub begin_s: f64,
    pub pieces: usize,
    /// Computation takes longer beside it by this factor.
    pub slowdown: f64,
    /// One piece by itself, and the time that one more adds.
    pub once: Moment,
    pub next: Moment,
}

impl Message {
    /// All its pieces.
    fn moment(&self) -> Moment {
        self.once.plus((self.pieces - 1) as f64, self.next)
    }
}

impl Progress {
    /// A step that begins at this time, with the factors of those that are driven, and of all, ascending.
    pub fn new(
        job: &Job,
        start_s: f64,
        (driven, sorted): (Vec<f64>, Vec<f64>),
        step: Step,
    ) -> Progress {
        Progress {
            start_s,
            handed_over: vec![0; driven.len()],
            driven,
            sorted,
            counts: vec![0; job.ready.len()],
            agreed: 0,
            stream_free_s: start_s,
            busy: Busy::default(),
            messages: Vec::new(),
            negotiations: Vec::new(),
            step,
        }
    }

    /// When cycles may begin.
    pub fn start_s(&self) -> f64 {
        self.start_s
    }

    /// The factor of the slowest rank.
    fn slowest(&self) -> f64 {
        *self.sorted.last().expect("there is a rank")
    }

    /// When a rank of that pace hands over what is ready at that part of its backward pass, including delays by
    /// messages so far.
    pub fn ready_s(&self, job: &Job, fraction: f64, factor: f64) -> f64 {
        let computed_s = factor * (before_backward_s(job) + fraction * job.compute.backward_s);
        self.busy.end_s(self.start_s, computed_s)
    }

    /// When a rank of that pace hands over the gradient in that place: when it is computed, or before, when the host has
    /// launched its kernels.
    pub fn handed_over_s(&self, job: &Job, place: usize, factor: f64) -> f64 {
        let computed_s = self.ready_s(job, job.ready[place].1, factor);
        match job.launch_gradient_s {
            Some(launch_s) => {
                let launches = launches_before(job) + (place + 1) as f64;
                computed_s.min(self.start_s + launch_s * launches)
            }
            None => computed_s,
        }
    }

    /// What ranks have done by that time.
    fn done(&self, job: &Job, now_s: f64) -> Done {
        let launched =
            |launch_s| ((now_s - self.start_s) / launch_s - launches_before(job)) as usize;
        Done {
            computed_s: self.busy.computed_s((self.start_s, now_s)),
            launched: job.launch_gradient_s.map_or(0, launched),
        }
    }

    /// When the slowest rank has computed all of these tensors.
    pub fn computed_s(&self, job: &Job, tensors: &[TensorId]) -> f64 {
        let ready = job.ready.iter().filter(|(id, _)| tensors.contains(id));
        let last = ready.map(|&(_, fraction)| fraction).fold(0.0, f64::max);
        self.ready_s(job, last, self.slowest())
    }

    /// The tensors that each driven rank hands over now.
    pub fn hand_over(&mut self, job: &Job, now_s: f64) -> Vec<Vec<TensorId>> {
        let done = self.done(job, now_s);
        (0..self.driven.len())
            .map(|rank| {
                let count = done.count(job, self.driven[rank]);
                let from = self.handed_over[rank].min(count);
                self.handed_over[rank] = count.max(from);
                job.ready[from..count].iter().map(|&(id, _)| id).collect()
            })
            .collect()
    }

    /// On how many ranks each tensor has become ready since the cycle before.
    pub fn count(&mut self, job: &Job, now_s: f64) -> Vec<(TensorId, usize)> {
        let mut newly = Vec::new();
        let done = self.done(job, now_s);
        for (place, &(id, _)) in job.ready.iter().enumerate().skip(self.agreed) {
            let has = |&factor: &f64| done.has(job, place, factor);
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

    /// Puts a message on its way, not before a time. Its bytes take longer by a share of their time, `congested`.
    pub fn communicate(
        &mut self,
        job: &Job,
        ready_s: f64,
        tensors: &Arc<[TensorId]>,
        congested: f64,
    ) {
        let bytes: usize = tensors.iter().map(|&id| job.tensors.size_bytes(id)).sum();
        self.agreed += tensors.len();
        self.step.messages += 1;
        let pieces = (bytes as f64 / job.partition_bytes).ceil().max(1.0);
        let piece_bytes = job.imbalance * bytes as f64 / pieces;
        let packing_s = job.control.packing_s(tensors.len(), bytes as f64) / pieces;
        // A single tensor is not packed.
        let block_bytes = if tensors.len() > 1 { job.packing_bytes } else { f64::INFINITY };
        let slowed = |moment: Moment| longer(moment, congested * moment.bandwidth_s);
        let time = |bytes| slowed(job.data.time(bytes));
        let next = |bytes| slowed(job.data.next(bytes, job.overlap));
        let next = packed(in_blocks(piece_bytes, block_bytes, next), packing_s);
        let begin_s = self.stream_free_s.max(ready_s);
        let interference = &job.interference;
        // One rank alone sends nothing.
        let (slowdown, longer_by) = if next.at_s > 0.0 {
            let bytes_s = piece_bytes * bus_factor(job.ranks) / next.at_s;
            (interference.slowdown(bytes_s), interference.longer(bytes_s))
        } else {
            (1.0, 0.0)
        };
        let alone_s = pieces * next.at_s;
        let beside_s = alone_s + longer_by * pieces * next.bandwidth_s;
        let longer_s = self.longer_s(job, begin_s, slowdown, (alone_s, beside_s)) / pieces;
        let next = longer(next, longer_s);
        self.stream_free_s = begin_s + pieces * next.at_s;
        self.busy.add(begin_s, self.stream_free_s, slowdown);
        self.messages.push(Message {
            tensors: tensors.clone(),
            ready_s,
            begin_s,
            pieces: pieces as usize,
            slowdown,
            once: longer(packed(in_blocks(piece_bytes, block_bytes, time), packing_s), longer_s),
            next,
        });
    }

    /// How much longer a message takes, all its pieces together, since the slowest rank computes beside it: from its times
    /// alone and beside computation throughout.
    fn longer_s(
        &self,
        job: &Job,
        begin_s: f64,
        slowdown: f64,
        (alone_s, beside_s): (f64, f64),
    ) -> f64 {
        if beside_s <= alone_s {
            return 0.0;
        }
        let all_s = before_backward_s(job) + job.compute.backward_s;
        let computed_s = self.busy.computed_s((self.start_s, begin_s));
        let left_s = slowdown * (self.slowest() * all_s - computed_s).max(0.0);
        left_s.min(beside_s) * (1.0 - alone_s / beside_s)
    }

    /// Adds up computation, what messages add to it, and messages; returns the end of computation.
    pub fn sum_up(&mut self, job: &Job) -> f64 {
        let Compute { optimizer_s, .. } = job.compute;
        let computed_s = job.compute.passes_s();
        self.step.communicating =
            self.messages.iter().map(|message| message.moment().at_s).sum::<f64>();
        self.step.compute = computed_s + optimizer_s;
        self.step.jitter = (self.slowest() - 1.0) * computed_s;
        let end_s = self.ready_s(job, 1.0, self.slowest());
        self.step.contention += (end_s - self.start_s - self.slowest() * computed_s).max(0.0);
        end_s
    }

    /// Ends the step after all messages: its breakdown.
    pub fn ended(mut self, job: &Job) -> Step {
        let compute_end_s = self.sum_up(job);
        let sent = self.messages.iter().map(|message| (message.begin_s, message.moment()));
        let ends = sent.clone().map(|(begin_s, moment)| begin_s + moment.at_s);
        let end_s = ends.fold(compute_end_s, f64::max);
        self.step.time = end_s + job.compute.optimizer_s - self.start_s;
        self.step.expose((compute_end_s, end_s), sent, &self.negotiations);
        self.step
    }
}

/// Blocks that follow each other, and what is left.
fn in_blocks(size_bytes: f64, block_bytes: f64, time: impl Fn(f64) -> Moment) -> Moment {
    if size_bytes <= block_bytes {
        return time(size_bytes);
    }
    let blocks = (size_bytes / block_bytes).floor();
    let left_bytes = size_bytes - blocks * block_bytes;
    let all = Moment::default().plus(blocks, time(block_bytes));
    if left_bytes > 0.0 { all.plus(1.0, time(left_bytes)) } else { all }
}

/// A message with the copies into and out of its fusion buffer, which count as work on its bytes.
fn packed(moment: Moment, packing_s: f64) -> Moment {
    let Moment { at_s, reduction_s, .. } = moment;
    Moment { at_s: at_s + packing_s, reduction_s: reduction_s + packing_s, ..moment }
}

/// A message that shares the GPU.
fn longer(moment: Moment, longer_s: f64) -> Moment {
    let Moment { at_s, contention_s, .. } = moment;
    Moment { at_s: at_s + longer_s, contention_s: contention_s + longer_s, ..moment }
}

/// What ranks have done.
struct Done {
    /// What one without jitter has computed, in seconds without messages.
    computed_s: f64,
    /// Gradients whose kernels the host has launched; 0 if it does not run ahead.
    launched: usize,
}

impl Done {
    /// Whether a rank of that pace has handed over the gradient in that place.
    fn has(&self, job: &Job, place: usize, factor: f64) -> bool {
        place < self.launched || reached(job, self.computed_s, factor) >= job.ready[place].1
    }

    /// How many gradients a rank of that pace has handed over.
    fn count(&self, job: &Job, factor: f64) -> usize {
        let reached = reached(job, self.computed_s, factor);
        let computed = job.ready.partition_point(|&(_, fraction)| fraction <= reached);
        computed.max(self.launched.min(job.ready.len()))
    }
}

/// Gradients whose kernels a host could launch while it launches what comes before the last backward pass.
fn launches_before(job: &Job) -> f64 {
    job.ready.len() as f64 * (1.5 * job.compute.passes as f64 - 1.0)
}

/// What a rank without jitter computes before its last backward pass.
fn before_backward_s(job: &Job) -> f64 {
    let Compute { forward_s, backward_s, passes, .. } = job.compute;
    (passes - 1) as f64 * (forward_s + backward_s) + forward_s
}

/// The part of the last backward pass that a rank of that pace has reached when one without jitter has computed so long.
fn reached(job: &Job, computed_s: f64, factor: f64) -> f64 {
    let since_s = computed_s - factor * before_backward_s(job);
    let backward_s = factor * job.compute.backward_s;
    if backward_s > 0.0 {
        // A hair more, so that a moment that was computed as the one of readiness is.
        since_s / backward_s + 1e-12
    } else if since_s >= 0.0 {
        1.0
    } else {
        -1.0
    }
}

impl Step {
    /// Divides time without computation: messages first, in order of their start, then negotiations; the rest is
    /// waiting.
    pub fn expose(
        &mut self,
        (from_s, until_s): (f64, f64),
        messages: impl Iterator<Item = (f64, Moment)>,
        negotiations: &[(f64, f64)],
    ) {
        let mut at_s = from_s;
        for (begin_s, moment) in messages.take_while(|(begin_s, _)| *begin_s < until_s) {
            let over_s = (begin_s + moment.at_s).min(until_s);
            if over_s <= at_s {
                continue;
            }
            let idle = (at_s, begin_s.max(at_s));
            let overlap = |&(from, to): &(f64, f64)| (to.min(idle.1) - from.max(idle.0)).max(0.0);
            let negotiating: f64 = negotiations.iter().map(overlap).sum();
            self.negotiation += negotiating;
            self.cycle += (idle.1 - idle.0 - negotiating).max(0.0);
            // One rank alone sends nothing.
            let took_s = moment.at_s.max(f64::MIN_POSITIVE);
            let share = (over_s - begin_s.max(at_s)) / took_s;
            self.latency += share * moment.latency_s;
            self.bandwidth += share * moment.bandwidth_s;
            self.contention += share * moment.contention_s;
            self.reduction += share * moment.reduction_s;
            at_s = over_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole blocks have the time of their own size, which need not grow in proportion.
    #[test]
    fn a_message_in_blocks_takes_their_times_and_that_of_what_is_left() {
        let time = |bytes: f64| Moment { at_s: 1.0 + bytes * bytes, ..Moment::default() };
        let at_s = |size_bytes, block_bytes| in_blocks(size_bytes, block_bytes, time).at_s;
        assert_eq!(at_s(7.0, f64::INFINITY), 50.0);
        assert_eq!(at_s(4.0, 4.0), 17.0);
        assert_eq!(at_s(8.0, 4.0), 34.0);
        assert_eq!(at_s(9.0, 4.0), 34.0 + 2.0);
    }
}
