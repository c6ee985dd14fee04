//! Training steps in virtual time, for machines that are not available: the same schedules and control planes as
//! on threads and over MPI, with times from a machine file.
//!
//! The simulation runs consecutive steps of a data-parallel job. Gradients become ready during the backward pass,
//! on every rank at its own pace ([`paces`]). The control plane's state machines negotiate in free-running cycles
//! ([`negotiation`]). Agreed messages use one communication stream, with times from [`data_plane`]. The optimizer
//! waits for the last message ([`training`]).

pub mod claims;
pub mod config;
pub mod crossover;
pub mod data_plane;
pub mod interruption;
pub mod jitter;
pub mod limit;
pub mod machine_file;
pub mod negotiation;
pub mod network;
pub mod paces;
pub mod policy;
pub mod predict;
pub mod published;
pub mod range;
pub mod summary;
pub mod sweep;
pub mod tabulate;
pub mod training;
pub mod variability;
pub mod variable_servers;
