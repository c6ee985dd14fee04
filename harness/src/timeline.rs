//! Where the time of a job went: one file that Perfetto and chrome://tracing show.
//!
//! The format is Chrome's trace event format, a JSON array, with the event names of Horovod 0.28.
//! Horovod's rank 0 writes while the job runs, and sends more because of it. Here each rank keeps
//! records of itself in memory ([`record`]), and the file is written from those of all ranks after
//! the job ([`mod@write`]): nothing more travels, and who was late is known on every path.
//!
//! | process | track | holds |
//! |---|---|---|
//! | `all ranks` | each tensor | `NEGOTIATE_ALLREDUCE`, from the first rank that is ready until the last has agreed; in it a tick for each rank, named by its number, when that rank was ready |
//! | `rank N` | `steps` | `STEP`; in it `FORWARD`, `BACKWARD` and `OPTIMIZER` as they are replayed |
//! | | `cycles` | a mark `CYCLE_START` and `CYCLE`; in it `NEGOTIATE`, the time in the control plane |
//! | | `messages` | `MESSAGE`: one allreduce of one or several tensors |
//! | | each tensor | `NEGOTIATE_ALLREDUCE`, from its own readiness until this rank has agreed; `ALLREDUCE` with `dtype` and `shape`, and its activities |
//!
//! Activities of an `ALLREDUCE` are `QUEUE` (earlier messages of the same cycle),
//! `MEMCPY_IN_FUSION_BUFFER`, `KOLO_ALLREDUCE` and `MEMCPY_OUT_FUSION_BUFFER`. Where messages are
//! packed piece by piece, the copies of all pieces are drawn as one at either end. There is no
//! `WAIT_FOR_OTHER_TENSOR_DATA`: a tensor's data are there when it is ready. What had no end when
//! the job failed has none in the file.
//!
//! [`mod@read`] takes such files and Horovod's own, and [`mod@analyse`] says where the time went.
//! What recording costs: `cargo bench -p harness --bench timeline`.

pub mod analyse;
mod build;
mod history;
pub mod intervals;
pub mod read;
pub mod record;
pub mod write;

/// What spans are named in files, by Horovod where it has a name.
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
    /// The negotiation of a tensor that is to be reduced.
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
    /// The process of what concerns all ranks.
    pub const ALL_RANKS: &str = "all ranks";
    /// How the process of a rank is named, before its number.
    pub const RANK_PREFIX: &str = "rank ";
    /// The metadata event by which a file of ours is known.
    pub const HEADER: &str = "kolo";
}

/// What a span belongs to: the category (`cat`) of its event. Horovod writes none, and all its spans
/// are of tensors.
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
