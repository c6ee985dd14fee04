//! Sweeps on a cluster: site files, submission, and the work of the batch script.

pub mod accounting;
pub mod ask;
pub mod drive;
pub mod hostlist;
pub mod job;
pub mod launch;
pub mod offer;
pub mod progress;
pub mod site;
pub mod step;
pub mod stop;
pub mod submit;
pub mod time_limit;

/// The batch script, in the repository.
pub const SCRIPT: &str = "slurm/sweep.sh";
