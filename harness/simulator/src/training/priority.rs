//! Messages in the order in which the next forward pass needs them. Each of its layers waits only for its own
//! gradients, and is updated before it begins.
//!
//! Here a step is the time between the ends of two backward passes: waiting, updates, forward pass, backward pass.
//! All ranks begin a forward pass together, since the first layer's gradients come last from the slowest rank;
//! from there on the slowest rank is always last, and the simulation follows it. The position of a layer in the
//! forward pass is derived from the backward pass in reverse. Whenever the stream is free, the piece that is
//! needed first is sent. All pieces end before the forward pass does, so that those of two steps never meet.
//!
//! After ByteScheduler (Y. Peng et al., "A generic communication scheduler for distributed DNN training
//! acceleration", SOSP 2019), which BytePS has taken over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use algorithms::control::TensorId;
use algorithms::simulate::Moment;

use super::busy::Busy;
use super::progress::{Message, Progress};
use super::{Job, Step};

/// What the next forward pass waits for.
pub(super) struct Priority {
    /// In forward order.
    layers: Vec<Layer>,
    /// By tensor: the part of the forward pass at which it is needed.
    needed: Vec<f64>,
    /// From the previous step: when each tensor is reduced, and the pieces in their order.
    reduced_s: Vec<f64>,
    pieces: Vec<(f64, Moment)>,
    /// When those are under way.
    busy: Busy,
}

/// A tensor as the forward pass meets it.
struct Layer {
    tensor: TensorId,
    needed: f64,
    /// Its share of the optimizer, by bytes.
    update_s: f64,
}

impl Priority {
    /// The first step waits for nothing.
    pub fn new(job: &Job, needed: &[f64]) -> Priority {
        let bytes = |tensor: TensorId| job.tensors.size_bytes(tensor) as f64;
        let all = (0..needed.len()).map(bytes).sum::<f64>().max(1.0);
        let layer = |(tensor, &needed): (TensorId, &f64)| {
            let update_s = job.compute.optimizer_s * bytes(tensor) / all;
            Layer { tensor, needed, update_s }
        };
        let mut layers: Vec<Layer> = needed.iter().enumerate().map(layer).collect();
        layers.sort_by(|a, b| a.needed.total_cmp(&b.needed));
        Priority {
            layers,
            needed: needed.to_vec(),
            reduced_s: vec![f64::NEG_INFINITY; needed.len()],
            pieces: Vec::new(),
            busy: Busy::default(),
        }
    }

    /// Seconds that messages add to the slowest rank's forward pass that begins now: waiting, and computing beside them.
    pub fn waits(&self, job: &Job, start_s: f64, slowest: f64, step: &mut Step) -> f64 {
        let forward_s = slowest * job.compute.forward_s;
        let (mut now_s, mut passed, mut waited_s) = (start_s, 0.0, 0.0);
        for &Layer { tensor, needed, update_s } in &self.layers {
            let alone_s = (needed - passed) * forward_s;
            let end_s = self.busy.end_s(now_s, alone_s);
            let held_up_s = end_s - now_s - alone_s;
            step.contention += held_up_s;
            waited_s += held_up_s;
            (now_s, passed) = (end_s, needed);
            let reduced_s = self.reduced_s[tensor];
            if reduced_s > now_s {
                step.expose((now_s, reduced_s), self.pieces.iter().copied(), &[]);
                waited_s += reduced_s - now_s;
                now_s = reduced_s;
            }
            now_s += update_s;
        }
        waited_s
    }

    /// The backward pass is over, of a step that began when the one before was.
    pub fn ended(&mut self, job: &Job, mut progress: Progress, start_s: f64) -> Step {
        let end_s = progress.sum_up(job);
        self.send(&progress.messages);
        Step { time: end_s - start_s, ..progress.step }
    }

    /// Sends messages piece by piece.
    fn send(&mut self, messages: &[Message]) {
        let first = |index: usize| {
            let needed = messages[index].tensors.iter().map(|&tensor| self.needed[tensor]);
            // Not negative: the order of the bits is then that of the values.
            needed.fold(1.0, f64::min).to_bits()
        };
        let urgency: Vec<u64> = (0..messages.len()).map(first).collect();
        let mut coming: Vec<usize> = (0..messages.len()).collect();
        coming.sort_by(|&a, &b| messages[b].ready_s.total_cmp(&messages[a].ready_s));
        let mut left: Vec<usize> = messages.iter().map(|message| message.pieces).collect();
        let mut queue = BinaryHeap::new();
        let mut now_s = f64::NEG_INFINITY;
        self.pieces.clear();
        self.busy = Busy::default();
        loop {
            while let Some(index) = coming.pop_if(|index| messages[*index].ready_s <= now_s) {
                queue.push(Reverse((urgency[index], index)));
            }
            let Some(Reverse((_, index))) = queue.pop() else {
                let Some(&next) = coming.last() else { break };
                now_s = messages[next].ready_s;
                continue;
            };
            let Message { tensors, once, next, slowdown, .. } = &messages[index];
            self.pieces.push((now_s, *once));
            left[index] -= 1;
            match left[index] {
                0 => tensors.iter().for_each(|&id| self.reduced_s[id] = now_s + once.at_s),
                _ => queue.push(Reverse((urgency[index], index))),
            }
            self.busy.add(now_s, now_s + next.at_s, *slowdown);
            now_s += next.at_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tensor: TensorId, ready_s: f64, pieces: usize) -> Message {
        let once = Moment { at_s: 1.5, latency_s: 0.5, ..Moment::default() };
        let (tensors, next) = ([tensor].into(), once.without_latency());
        Message { tensors, ready_s, begin_s: ready_s, pieces, slowdown: 1.0, once, next }
    }

    /// The last layer's gradients come first; then those of the first, and later those of the middle.
    #[test]
    fn a_piece_that_is_needed_first_goes_before_those_that_wait() {
        let mut priority = Priority {
            layers: Vec::new(),
            needed: vec![0.0, 0.3, 0.9],
            reduced_s: vec![f64::NEG_INFINITY; 3],
            pieces: Vec::new(),
            busy: Busy::default(),
        };
        // Out of order, as buckets may be that become ready within a launch of each other.
        priority.send(&[message(2, 0.0, 3), message(1, 2.5, 2), message(0, 0.5, 1)]);
        let begins: Vec<f64> = priority.pieces.iter().map(|(begin_s, _)| *begin_s).collect();
        assert_eq!(begins, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        // 2 begins, 0 passes it, one more of 2, both of 1, and the last of 2.
        assert_eq!(priority.reduced_s, [2.5, 5.5, 6.5]);
        // The stream is idle until something is ready.
        priority.send(&[message(2, 0.0, 1), message(0, 7.0, 1)]);
        assert_eq!((priority.reduced_s[2], priority.reduced_s[0]), (1.5, 8.5));
    }
}
