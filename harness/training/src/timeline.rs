//! Timelines of jobs, for Perfetto and chrome://tracing.
//!
//! The format is Chrome's trace event format, a JSON array, with the event names of Horovod 0.28. In Horovod rank
//! 0 writes the file while the job runs, which adds traffic. Here each rank records its events in memory
//! ([`record`]), and the file is written from the records of all ranks after the job ([`mod@write`]): there is no
//! extra traffic, and the late rank is known on every path.
//!
//! | process | track | holds |
//! |---|---|---|
//! | `all ranks` | each tensor | `NEGOTIATE_ALLREDUCE`, from the first rank that is ready until the last has agreed; in it a tick for each rank, named by its number, when that rank was ready |
//! | `rank N` | `steps` | `STEP`; in it `FORWARD`, `BACKWARD` and `OPTIMIZER` as they are replayed |
//! | | `cycles` | a mark `CYCLE_START` and `CYCLE`; in it `NEGOTIATE`, the time in the control plane |
//! | | `messages` | `MESSAGE`: one allreduce of one or several tensors |
//! | | each tensor | `NEGOTIATE_ALLREDUCE`, from its own readiness until this rank has agreed; `ALLREDUCE` with `dtype` and `shape`, and its activities |
//!
//! Activities of an `ALLREDUCE` are `QUEUE` (earlier messages of the same cycle), `MEMCPY_IN_FUSION_BUFFER`,
//! `KOLO_ALLREDUCE` and `MEMCPY_OUT_FUSION_BUFFER`. If messages are packed piece by piece, the copies of all
//! pieces are drawn as one at either end. There is no `WAIT_FOR_OTHER_TENSOR_DATA`: a tensor's data are available
//! when it is ready. Spans that had not ended when the job failed have no end in the file.
//!
//! All times are on rank 0's clock. Ranks of other systems compare their clocks with it before and after a block
//! ([`mod@anchor`]), and a GPU's clock is compared with its host's at the beginning of a block. The metadata event `kolo` has
//! the largest bound of the errors as `clock_error_us`: 0 of threads, null where a clock could not be compared. The bound of a rank is a label of its process.
//!
//! [`workloads::trace`] reads these files and Horovod's own; [`mod@analyse`] computes the breakdown of time. For
//! the cost of recording: `cargo bench -p training --bench timeline`.

pub mod analyse;
pub mod anchor;
mod history;
pub mod intervals;
pub mod record;
pub mod write;
