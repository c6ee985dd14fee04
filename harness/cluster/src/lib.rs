//! The environment of runs: nodes, launchers, Slurm, checks before a job measures, and detection of failed processes.

pub mod failure_detector;
pub mod job_channel;
pub mod launch;
pub mod nodes;
pub mod preflight;
pub mod slurm;
