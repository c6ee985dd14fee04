//! Files of the repository that a program needs when it runs: configurations, models, machines, sites, scripts.

use std::env;
use std::path::{Path, PathBuf};

/// A file or folder of the repository: below the working folder, or else below a folder that the
/// program lies in.
pub fn find(name: &str) -> Option<PathBuf> {
    if Path::new(name).exists() {
        return Some(name.into());
    }
    let program = env::current_exe().ok()?;
    program.ancestors().skip(1).map(|folder| folder.join(name)).find(|path| path.exists())
}

/// A file beside the configuration at `path`, or else among those of the repository's `configs`; where there is
/// none, the first of these.
pub fn beside_or_shipped(name: &str, path: &Path) -> PathBuf {
    let beside = path.parent().unwrap_or(Path::new("")).join(name);
    if beside.exists() { beside } else { find(&format!("configs/{name}")).unwrap_or(beside) }
}
