//! Reading timelines in Chrome's trace event format: Horovod's and ours.

mod build;
pub mod horovod;
pub mod messages;
pub mod read;
pub mod steps;

/// Names of spans in files; Horovod's where it has one.
pub mod names {
    /// The beginning of a cycle, a mark.
    pub const CYCLE_START: &str = "CYCLE_START";
    /// A cycle, until its last message is over.
    pub const CYCLE: &str = "CYCLE";
    /// The control plane's part of a cycle.
    pub const NEGOTIATE: &str = "NEGOTIATE";
    /// One allreduce of one or several tensors.
    pub const MESSAGE: &str = "MESSAGE";
    /// A training step.
    pub const STEP: &str = "STEP";
    /// Before the first gradient can become ready.
    pub const FORWARD: &str = "FORWARD";
    /// Gradients become ready.
    pub const BACKWARD: &str = "BACKWARD";
    /// After the last gradient is reduced.
    pub const OPTIMIZER: &str = "OPTIMIZER";
    /// How the negotiation of a tensor is named, before its operation.
    pub const NEGOTIATE_PREFIX: &str = "NEGOTIATE_";
    /// The negotiation of a tensor for an allreduce.
    pub const NEGOTIATE_ALLREDUCE: &str = "NEGOTIATE_ALLREDUCE";
    /// The operation on a tensor, once it is agreed on.
    pub const ALLREDUCE: &str = "ALLREDUCE";
    /// Waiting for earlier messages.
    pub const QUEUE: &str = "QUEUE";
    /// Copying into the fusion buffer.
    pub const MEMCPY_IN: &str = "MEMCPY_IN_FUSION_BUFFER";
    /// Moving and combining.
    pub const KOLO_ALLREDUCE: &str = "KOLO_ALLREDUCE";
    /// Copying out of the fusion buffer.
    pub const MEMCPY_OUT: &str = "MEMCPY_OUT_FUSION_BUFFER";
    /// Horovod's operations.
    pub const OPERATIONS: [&str; 8] = [
        ALLREDUCE,
        "ALLGATHER",
        "BROADCAST",
        "JOIN",
        "ADASUM",
        "ALLTOALL",
        "BARRIER",
        "REDUCESCATTER",
    ];
    /// The process of events that concern all ranks.
    pub const ALL_RANKS: &str = "all ranks";
    /// How the process of a rank is named, before its number.
    pub const RANK_PREFIX: &str = "rank ";
    /// The metadata event that identifies kolo's files.
    pub const HEADER: &str = "kolo";
}

/// The category (`cat`) of an event. Horovod writes none, and all its spans are of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// A training step.
    Step,
    /// A cycle of the background loop.
    Cycle,
    /// An allreduce of one or several tensors.
    Message,
    /// A tensor.
    Tensor,
}

/// Timelines for tests.
#[cfg(test)]
mod golden {
    use std::path::Path;

    use super::read::Trace;

    /// Files that the tests of `training` keep.
    pub const HOROVOD: &str = include_str!("../../training/tests/all/golden/horovod_training.json");
    pub const KOLO: &str = include_str!("../../training/tests/all/golden/timeline.json");

    pub fn trace(text: &str) -> Trace {
        Trace::parse(text.as_bytes(), Path::new("a.json")).unwrap()
    }
}
