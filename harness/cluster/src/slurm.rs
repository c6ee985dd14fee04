//! A sweep on a cluster: what the site is like, what to submit, and what the batch script does.

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
