//! Notices when a process of a job is gone or makes no progress any more, says which, and ends the job.
//!
//! MPI cannot tell: a process that waits for another waits for ever. So each process has a thread that sends
//! heartbeats to rank 0 over TCP, beside MPI ([`detector`]), with what the process is doing ([`activity`]);
//! from these rank 0 concludes who is to blame ([`suspicion`]).

pub mod activity;
pub mod detector;
pub mod suspicion;

pub use detector::{BROKEN, DetectorError, FailureDetector, Job, Limits};
