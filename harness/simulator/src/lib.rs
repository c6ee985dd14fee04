//! Training steps in virtual time, on machines that nobody has at hand: the same schedules and the same
//! control planes as on threads and over MPI, with times from a machine file.
//!
//! What is simulated is one step after another of a data-parallel job: gradients become ready during the
//! backward pass, on every rank at its own pace ([`jitter`]); the control plane's state machines negotiate
//! in free-running cycles ([`negotiation`]); agreed messages go through one communication stream, each as
//! long as [`data_plane`] says; the optimizer waits for the last ([`training`]).

pub mod claims;
pub mod config;
pub mod crossover;
pub mod data_plane;
pub mod jitter;
pub mod machine_file;
pub mod negotiation;
pub mod network;
pub mod policy;
pub mod predict;
pub mod published;
pub mod summary;
pub mod sweep;
pub mod tabulate;
pub mod training;
