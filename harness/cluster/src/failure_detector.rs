//! Detects a process of a job that has ended, is silent or makes no progress, and names it.
//!
//! Neither MPI nor NCCL does that: a rank that waits for such a process waits forever. Each process therefore has
//! a thread that sends heartbeats to rank 0 over the job's channel ([`detector`]), with its current activity
//! ([`activity`]). From them rank 0 concludes which process is at fault ([`suspicion`]), and notifies all
//! ([`diagnosis`]).

pub mod activity;
pub mod connect;
pub mod detector;
pub mod diagnosis;
pub mod suspicion;

pub use connect::{DetectorError, Job};
pub use detector::{BROKEN, FailureDetector, Mode};
pub use diagnosis::Diagnosis;
pub use suspicion::Limits;
