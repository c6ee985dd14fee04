//! What ranks have agreed on.

use std::sync::Arc;

use super::stop::Stop;
use super::tensor::TensorId;

/// Tensors that all ranks reduce as one message, or an error that all ranks report for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The tensors, in the order in which they are packed.
    pub tensors: Arc<[TensorId]>,
    /// Why they cannot be reduced; the same text on every rank.
    pub error: Option<Arc<str>>,
    /// Why no more tensors were fused; the same on every rank.
    pub stop: Stop,
}
