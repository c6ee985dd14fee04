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

use std::env;
use std::path::{Path, PathBuf};

/// The batch script, in the repository.
pub const SCRIPT: &str = "slurm/sweep.sh";

/// A file or folder of the repository: below the working folder, or else below a folder that the
/// program lies in.
pub fn find(name: &str) -> Option<PathBuf> {
    if Path::new(name).exists() {
        return Some(name.into());
    }
    let program = env::current_exe().ok()?;
    program.ancestors().skip(1).map(|folder| folder.join(name)).find(|path| path.exists())
}
