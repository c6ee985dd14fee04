//! Tensor fusion: which ready tensors share one message.
//!
//! Horovod's greedy rule (`FuseResponses` in its controller), with its look-ahead: a response that
//! does not fit the message being filled is skipped, and the next ones may still join, as long as the
//! skipped ones would fit, too.

use std::sync::Arc;

use crate::control::mutation::{Mutation, Mutations};
use crate::control::response::Response;
pub use crate::control::stop::Stop;
use crate::control::tensor::TensorId;
use crate::control::tensors::Tensors;
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

/// A tensor that is ready on all ranks, to be fused; or an error about one, which is not fused.
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

/// The groups of tensors, where groups are not fused with one another
/// (`HOROVOD_DISABLE_GROUP_FUSION`). A tensor in no group is a group of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    members: Vec<Vec<TensorId>>,
}

impl Groups {
    /// Groups, each in the order in which its tensors were registered.
    pub fn new(members: Vec<Vec<TensorId>>) -> Groups {
        Groups { members }
    }
}

/// The fusion rule of a rank.
#[derive(Clone, Debug)]
pub struct Fusion {
    threshold_bytes: usize,
    groups: Option<Arc<Groups>>,
}

impl Fusion {
    /// Messages of at most `threshold_bytes`; with groups, each group by itself.
    pub fn new(
        threshold_bytes: usize,
        groups: Option<Arc<Groups>>,
        mutations: Mutations,
    ) -> Fusion {
        let ignored = mutations.has(Mutation::ThresholdIgnored);
        let groups = groups.filter(|_| !mutations.has(Mutation::GroupsFusedTogether));
        let threshold_bytes = if ignored { usize::MAX } else { threshold_bytes };
        Fusion { threshold_bytes, groups }
    }

    /// Merges cached and new tensors into messages, in this order. With groups, the groups come first, in the
    /// order of the new tensors, then of the cached ones.
    pub fn messages(
        &self,
        cached: Vec<Candidate>,
        new: Vec<Candidate>,
        tensors: &Tensors,
    ) -> Vec<Response> {
        let Some(groups) = &self.groups else {
            let all = [cached, new].concat();
            return fuse(&all, tensors, self.threshold_bytes);
        };
        let mut candidates = [new, cached].concat();
        let mut messages = Vec::new();
        while let Some(first) = candidates.first().map(|candidate| candidate.tensor) {
            let group = groups.members.iter().find(|group| group.contains(&first));
            let alone = [first];
            let group = group.map_or(&alone[..], Vec::as_slice);
            let place = |candidate: &Candidate| group.iter().position(|&id| id == candidate.tensor);
            let (mut members, rest): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|candidate| place(candidate).is_some());
            members.sort_by_key(place);
            let mut fused = fuse(&members, tensors, self.threshold_bytes);
            let ends = |message: &&mut Response| message.stop == Stop::Empty;
            fused.iter_mut().filter(ends).for_each(|message| message.stop = Stop::Group);
            messages.append(&mut fused);
            candidates = rest;
        }
        messages
    }
}

/// Merges candidates into messages of at most `threshold_bytes`. A tensor that is larger than the threshold
/// is a message of its own.
pub fn fuse(candidates: &[Candidate], tensors: &Tensors, threshold_bytes: usize) -> Vec<Response> {
    let mut is_taken = vec![false; candidates.len()];
    let mut messages = Vec::new();
    let mut members = Vec::new();
    for (at, first) in candidates.iter().enumerate() {
        if is_taken[at] {
            continue;
        }
        if let Some(error) = &first.error {
            messages.push(Response {
                tensors: [first.tensor].into(),
                error: Some(error.as_str().into()),
                stop: Stop::Alone,
            });
            continue;
        }
        members.clear();
        members.push(first.tensor);
        let (mut stop, mut skipped_bytes) = (Stop::Empty, 0);
        let mut size_bytes = tensors.size_bytes(first.tensor);
        for (next, is_taken) in candidates.iter().zip(&mut is_taken).skip(at + 1) {
            if *is_taken {
                continue;
            }
            // An error has nothing to be reduced, and is never fused.
            let reduces = next.error.is_none();
            let next_bytes = if reduces { tensors.size_bytes(next.tensor) } else { 0 };
            let alike = reduces && tensors.may_fuse(first.tensor, next.tensor);
            if alike && size_bytes.saturating_add(next_bytes) <= threshold_bytes {
                members.push(next.tensor);
                size_bytes += next_bytes;
                *is_taken = true;
                continue;
            }
            stop = if alike || stop == Stop::Threshold { Stop::Threshold } else { Stop::Unlike };
            skipped_bytes += next_bytes;
            if size_bytes + skipped_bytes > threshold_bytes {
                stop = Stop::Threshold;
                break;
            }
        }
        messages.push(Response { tensors: members.as_slice().into(), error: None, stop });
    }
    messages
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
        let candidates: Vec<_> = (0..list.len()).map(Candidate::reduce).collect();
        let messages = fuse(&candidates, &tensors, threshold_bytes);
        let messages: Vec<&[usize]> = messages.iter().map(|message| &*message.tensors).collect();
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
        let messages = fuse(&list, &tensors, 100);
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
