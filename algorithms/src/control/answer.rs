//! The answer of rank 0 to the requests of a cycle.

use std::sync::Arc;

use super::error::ControlError;
use super::message::{Items, Writer, name_horovod, responses_horovod};
use super::queue::Queue;
use super::response::Response;
use super::tensor::TensorId;
use super::tensors::Tensors;
use crate::topology::Rank;

/// Responses in order, and whether all ranks stop after them.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) responses: Vec<Response>,
    pub(super) shut_down: bool,
}

/// Encodes responses, with names for numbers.
pub(super) fn write(responses: &[Response], shut_down: bool, tensors: &Tensors) -> Vec<u8> {
    let mut answer = Writer::responses(shut_down, responses.len());
    for response in responses {
        let name = |&id: &TensorId| tensors.get(id).name.as_str();
        let names = response.tensors.iter().map(name);
        answer.response(names, response.error.as_deref(), response.stop);
    }
    answer.finish()
}

/// Decodes a message of `from` on a rank with these tensors.
pub(super) fn read(
    (from, message): (Rank, &[u8]),
    rank: Rank,
    tensors: &Tensors,
    queue: &Queue,
) -> Result<Answer, ControlError> {
    let refuse = |malformed| ControlError::Malformed { from, malformed };
    let mut items = Items::responses(message).map_err(refuse)?;
    let mut responses = Vec::new();
    while let Some(item) = items.next_response().map_err(refuse)? {
        let id = |&name: &&str| {
            let known = tensors.find(name);
            known.and_then(|number| queue.pending(number)).ok_or(ControlError::NotReady {
                rank,
                name: name.into(),
                is_registered: known.is_some(),
            })
        };
        responses.push(Response {
            tensors: item.names.iter().map(id).collect::<Result<_, _>>()?,
            error: item.error.map(Arc::from),
            stop: item.stop,
        });
    }
    Ok(Answer { responses, shut_down: items.shut_down })
}

/// The bytes that Horovod would send to each of `ranks` ranks for this message, by [`responses_horovod`].
pub(super) fn horovod_bytes(message: &[u8], ranks: usize) -> usize {
    let Ok(mut items) = Items::responses(message) else { return 0 };
    let responses = std::iter::from_fn(|| items.next_response().ok().flatten());
    let names = responses.map(|item| item.names.iter().map(|name| name_horovod(name.len())).sum());
    responses_horovod(ranks, names)
}
