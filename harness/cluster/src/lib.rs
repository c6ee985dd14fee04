//! Where runs take place: nodes, launchers, Slurm, checks before a job measures, and how its processes notice failures.

pub mod failure_detector;
pub mod job_channel;
pub mod launch;
pub mod nodes;
pub mod preflight;
pub mod slurm;
