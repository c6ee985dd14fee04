//! Notices that a process of a job has ended, is silent or makes no progress, and says which.
//!
//! Neither MPI nor NCCL can tell: a rank that waits for such a process waits forever. Each process therefore has a
//! thread that sends heartbeats to rank 0 over the job's channel ([`detector`]), with what the process is doing
//! ([`activity`]). From them rank 0 concludes which process is at fault ([`suspicion`]), and tells all ([`diagnosis`]).

pub mod activity;
pub mod connect;
pub mod detector;
pub mod diagnosis;
pub mod suspicion;

pub use connect::{DetectorError, Job};
pub use detector::{BROKEN, FailureDetector, Mode};
pub use diagnosis::Diagnosis;
pub use suspicion::Limits;
