//! Errors of control planes.

use std::fmt;

use super::message::Malformed;
use crate::topology::Rank;

/// Why a control plane cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named and Display says what they mean")]
pub enum ControlError {
    /// Two tensors of one rank are equal in everything.
    RegisteredTwice { name: String },
    /// A tensor became ready again before it was reduced.
    ReadyTwice { name: String },
    /// A rank requests a tensor that it has requested before.
    RequestedTwice { from: Rank, name: String },
    /// A message cannot be read.
    Malformed { from: Rank, malformed: Malformed },
    /// A response names a tensor that this rank never registered, or that is not ready on it.
    NotReady { rank: Rank, name: String, is_registered: bool },
    /// Ranks were started with different settings.
    SettingsDiffer { rank: Rank, what: &'static str, own: usize },
    /// The bit vectors of different ranks have different lengths: their caches differ.
    CachesDiffer { rank: Rank, expected_words: usize, found_words: usize },
    /// An event that is not allowed now.
    Unexpected { rank: Rank, event: &'static str },
    /// All ranks have shut down.
    ShutDown { rank: Rank },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::RegisteredTwice { name } => write!(
                f,
                "tensor \"{name}\" is registered twice with the same type and shape; give each \
                 tensor a name of its own"
            ),
            ControlError::ReadyTwice { name } => write!(
                f,
                "tensor \"{name}\" became ready again before it was reduced; wait for its \
                 completion, or use another name"
            ),
            ControlError::RequestedTwice { from, name } => write!(
                f,
                "rank {from} asks for tensor \"{name}\" a second time, before the first was \
                 answered; do all ranks run the same build?"
            ),
            ControlError::Malformed { from, malformed } => {
                write!(f, "message from rank {from}: {malformed}")
            }
            ControlError::NotReady { rank, name, is_registered: false } => write!(
                f,
                "rank {rank} was instructed to reduce tensor \"{name}\", which it never registered; all \
                 ranks must register the same tensors"
            ),
            ControlError::NotReady { rank, name, is_registered: true } => write!(
                f,
                "rank {rank} was instructed to reduce tensor \"{name}\", which is not ready on it; do all \
                 ranks run the same build?"
            ),
            ControlError::SettingsDiffer { rank, what, own } => write!(
                f,
                "rank {rank} has a {what} of {own}, and some other rank another one; give all ranks \
                 the same"
            ),
            ControlError::CachesDiffer { rank, expected_words, found_words } => write!(
                f,
                "rank {rank} expected a bit vector of {expected_words} words and got \
                 {found_words}: the response caches differ between ranks; give all the same \
                 capacity"
            ),
            ControlError::Unexpected { rank, event } => {
                write!(f, "rank {rank} received {event} outside a cycle that expects it")
            }
            ControlError::ShutDown { rank } => {
                write!(f, "rank {rank} was called after all ranks have shut down; start a new job")
            }
        }
    }
}

impl std::error::Error for ControlError {}
