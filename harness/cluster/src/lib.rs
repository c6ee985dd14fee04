//! Where runs take place: nodes, launchers, Slurm, and how the processes of a job notice failures.

pub mod failure_detector;
pub mod job_channel;
pub mod launch;
pub mod nodes;
pub mod slurm;
