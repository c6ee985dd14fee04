//! What ranks have agreed on.

use std::sync::Arc;

use super::stop::Stop;
use super::tensor::TensorId;

/// What all ranks do together: reduce these tensors as one message, or report this error for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The tensors, in the order in which they are packed.
    pub tensors: Arc<[TensorId]>,
    /// Why they cannot be reduced; the same text on every rank.
    pub error: Option<Arc<str>>,
    /// Why no more were fused; the same on every rank.
    pub stop: Stop,
}
