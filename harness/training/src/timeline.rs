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
//! [`workloads::trace`] reads such files and Horovod's own, and [`mod@analyse`] says where the time went.
//! What recording costs: `cargo bench -p training --bench timeline`.

pub mod analyse;
mod history;
pub mod intervals;
pub mod record;
pub mod write;
