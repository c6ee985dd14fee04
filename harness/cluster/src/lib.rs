//! The environment of runs: nodes, launchers, Slurm, and detection of failed processes.

pub mod failure_detector;
pub mod job_channel;
pub mod launch;
pub mod nodes;
pub mod slurm;
