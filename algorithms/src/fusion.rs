//! Tensor fusion: which ready tensors travel together in one message.
//!
//! Horovod's greedy rule (`FuseResponses` in its controller), with its look-ahead: a response that
//! does not fit the message being filled is set aside, and the next ones may still join, as long as
//! what was set aside would fit too.

use std::collections::VecDeque;

use crate::control::{Response, TensorId, Tensors};
use crate::topology::Topology;

/// Horovod rounds the threshold to a multiple of this many bytes (64 doubles) per local rank.
const ATOMIC_UNIT_BYTES: usize = 64 * 8;

/// The threshold that Horovod really uses: on nodes of one size, rounded up to a multiple of
/// `local_size` x 512 bytes, so that a hierarchical allreduce can cut the buffer evenly. 0 stays 0.
pub fn effective_threshold_bytes(threshold_bytes: usize, topology: &Topology) -> usize {
    match topology.local_size() {
        Some(local_size) => threshold_bytes.next_multiple_of(local_size * ATOMIC_UNIT_BYTES),
        None => threshold_bytes,
    }
}

/// What is to be fused: a tensor that is ready everywhere, or an error about one, which travels alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The tensor.
    pub tensor: TensorId,
    /// Why it cannot be reduced.
    pub error: Option<String>,
}

impl Candidate {
    /// A tensor that can be reduced.
    pub fn reduce(tensor: TensorId) -> Candidate {
        Candidate { tensor, error: None }
    }
}

/// Merges candidates into messages of at most `threshold_bytes`. The first tensor of a message is
/// never refused, so a tensor larger than the threshold travels alone.
pub fn fuse(
    candidates: Vec<Candidate>,
    tensors: &Tensors,
    threshold_bytes: usize,
) -> Vec<Response> {
    let mut queue = VecDeque::from(candidates);
    let mut fused = Vec::new();
    let mut skipped = Vec::new();
    while let Some(first) = queue.pop_front() {
        let mut message = Response { tensors: vec![first.tensor], error: first.error };
        if message.error.is_some() {
            fused.push(message);
            continue;
        }
        let mut size = tensors.size_bytes(first.tensor);
        let mut skipped_size = 0;
        while let Some(next) = queue.front() {
            // An error has nothing to be reduced, and is never fused.
            let next_size = if next.error.is_some() { 0 } else { tensors.size_bytes(next.tensor) };
            let alike = next.error.is_none() && tensors.may_fuse(first.tensor, next.tensor);
            if alike && size + next_size <= threshold_bytes {
                message.tensors.push(next.tensor);
                size += next_size;
                queue.pop_front();
            } else {
                skipped_size += next_size;
                if size + skipped_size > threshold_bytes {
                    break;
                }
                skipped.extend(queue.pop_front());
            }
        }
        for candidate in skipped.drain(..).rev() {
            queue.push_front(candidate);
        }
        fused.push(message);
    }
    fused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{DataType, ReduceOp, Tensor};

    /// Fuses tensors given as (dtype, elements) and shows the messages as lists of ids.
    fn check(list: &[(DataType, u64)], threshold_bytes: usize, expected: &[&[usize]]) {
        let tensors = list.iter().enumerate().map(|(id, &(dtype, elements))| {
            Tensor::new(format!("t{id}"), dtype, ReduceOp::Sum, &[elements])
        });
        let tensors = Tensors::new(tensors.collect()).unwrap();
        let candidates = (0..list.len()).map(Candidate::reduce).collect();
        let messages = fuse(candidates, &tensors, threshold_bytes);
        let messages: Vec<_> = messages.into_iter().map(|message| message.tensors).collect();
        assert_eq!(messages, expected);
    }

    use DataType::{F16, F32};

    #[test]
    fn messages_fill_up_to_the_threshold() {
        check(&[(F32, 10), (F32, 10), (F32, 10)], 80, &[&[0, 1], &[2]]);
        check(&[(F32, 10), (F32, 10), (F32, 10)], 120, &[&[0, 1, 2]]);
        check(&[(F32, 10), (F32, 10), (F32, 10)], 79, &[&[0], &[1], &[2]]);
    }

    #[test]
    fn threshold_zero_turns_fusion_off() {
        check(&[(F32, 1), (F32, 1)], 0, &[&[0], &[1]]);
    }

    #[test]
    fn empty_tensors_join_even_at_threshold_zero() {
        check(&[(F32, 0), (F32, 0), (F32, 1)], 0, &[&[0, 1], &[2]]);
    }

    #[test]
    fn a_tensor_above_the_threshold_goes_alone() {
        check(&[(F32, 1), (F32, 100), (F32, 1)], 40, &[&[0], &[1], &[2]]);
    }

    #[test]
    fn look_ahead_passes_other_types_while_they_would_fit_too() {
        check(&[(F32, 2), (F16, 2), (F32, 2), (F16, 2)], 24, &[&[0, 2], &[1, 3]]);
    }

    #[test]
    fn look_ahead_stops_when_what_was_skipped_no_longer_fits() {
        // 8 bytes taken, 40 skipped: 48 is above 24, so the scan ends before tensor 2.
        check(&[(F32, 2), (F16, 20), (F32, 2)], 24, &[&[0], &[1], &[2]]);
        // A skipped response counts even where it could never have joined.
        check(&[(F32, 2), (F32, 6), (F32, 1)], 24, &[&[0], &[1], &[2]]);
        check(&[(F32, 3), (F32, 4), (F32, 2)], 24, &[&[0], &[1, 2]]);
    }

    #[test]
    fn errors_travel_alone_and_in_their_place() {
        let tensor = |id| Tensor::new(format!("t{id}"), F32, ReduceOp::Sum, &[1]);
        let tensors = Tensors::new((0..3).map(tensor).collect()).unwrap();
        let error = Candidate { tensor: 1, error: Some("no".into()) };
        let list = vec![Candidate::reduce(0), error, Candidate::reduce(2)];
        let messages = fuse(list, &tensors, 100);
        let messages: Vec<_> =
            messages.iter().map(|m| (&m.tensors[..], m.error.is_some())).collect();
        assert_eq!(messages, [(&[0, 2][..], false), (&[1], true)]);
    }

    #[test]
    fn the_threshold_is_rounded_up_on_nodes_of_one_size() {
        let on = |threshold, topology: &Topology| effective_threshold_bytes(threshold, topology);
        assert_eq!(on(1, &Topology::uniform(2, 6)), 6 * 512);
        assert_eq!(on(64 << 20, &Topology::uniform(2, 4)), 64 << 20);
        assert_eq!(on(64 << 20, &Topology::uniform(2, 6)), 67_110_912);
        assert_eq!(on(1, &Topology::new(&[2, 1])), 1);
        assert_eq!(on(0, &Topology::uniform(2, 6)), 0);
    }
}
