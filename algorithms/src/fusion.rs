//! Tensor fusion: which ready tensors travel together in one message.
//!
//! Horovod's greedy rule (`FuseResponses` in its controller), with its look-ahead: a response that
//! does not fit the message being filled is set aside, and the next ones may still join, as long as
//! what was set aside would fit too.

use std::collections::VecDeque;

use crate::control::{Response, Tensors};
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

/// Merges responses of one tensor each into messages of at most `threshold_bytes`. The first tensor
/// of a message is never refused, so a tensor larger than the threshold travels alone.
pub fn fuse(responses: Vec<Response>, tensors: &Tensors, threshold_bytes: usize) -> Vec<Response> {
    let mut queue = VecDeque::from(responses);
    let mut fused = Vec::new();
    while let Some(mut message) = queue.pop_front() {
        if message.error.is_some() {
            fused.push(message);
            continue;
        }
        let mut size = size_bytes(&message, tensors);
        let mut skipped = Vec::new();
        let mut skipped_size = 0;
        while let Some(next) = queue.front() {
            let next_size = size_bytes(next, tensors);
            if alike(&message, next, tensors) && size + next_size <= threshold_bytes {
                message.tensors.extend(queue.pop_front().expect("there is a front").tensors);
                size += next_size;
            } else {
                skipped_size += next_size;
                if size + skipped_size > threshold_bytes {
                    break;
                }
                skipped.extend(queue.pop_front());
            }
        }
        for response in skipped.into_iter().rev() {
            queue.push_front(response);
        }
        fused.push(message);
    }
    fused
}

/// Bytes to be reduced; an error has none.
fn size_bytes(response: &Response, tensors: &Tensors) -> usize {
    match response.error {
        Some(_) => 0,
        None => response.tensors.iter().map(|&id| tensors.get(id).size_bytes()).sum(),
    }
}

/// May be reduced by one and the same call.
fn alike(a: &Response, b: &Response, tensors: &Tensors) -> bool {
    let key = |response: &Response| {
        let tensor = tensors.get(response.tensors[0]);
        let scales = (tensor.prescale.to_bits(), tensor.postscale.to_bits());
        (tensor.dtype, tensor.op, scales, response.error.is_some())
    };
    key(a) == key(b)
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
        let responses = (0..list.len()).map(Response::reduce).collect();
        let messages = fuse(responses, &tensors, threshold_bytes);
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
    fn the_threshold_is_rounded_up_on_nodes_of_one_size() {
        let on = |threshold, topology: &Topology| effective_threshold_bytes(threshold, topology);
        assert_eq!(on(1, &Topology::uniform(2, 6)), 6 * 512);
        assert_eq!(on(64 << 20, &Topology::uniform(2, 4)), 64 << 20);
        assert_eq!(on(64 << 20, &Topology::uniform(2, 6)), 67_110_912);
        assert_eq!(on(1, &Topology::new(&[2, 1])), 1);
        assert_eq!(on(0, &Topology::uniform(2, 6)), 0);
    }
}
