//! Where runs take place: nodes, launchers, Slurm, and who of a job has failed.

pub mod failure_detector;
pub mod launch;
pub mod nodes;
pub mod slurm;
