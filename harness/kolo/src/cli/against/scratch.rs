//! The folder of a comparison's own files.

use std::fs::remove_dir_all;
use std::path::{Path, PathBuf};
use std::{env, process, thread};

use anyhow::Result;
use results::files::create_folder;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A folder that is removed with this, and when a signal ends the program.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new folder.
    ///
    /// # Errors
    /// When it cannot be created, or signals cannot be handled.
    pub fn new() -> Result<Scratch> {
        let path = env::temp_dir().join(format!("kolo-against-{}", process::id()));
        create_folder(&path)?;
        let (mut signals, removed) = (Signals::new([SIGHUP, SIGINT, SIGTERM])?, path.clone());
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = remove_dir_all(removed);
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}
