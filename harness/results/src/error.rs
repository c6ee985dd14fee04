//! Why results cannot be written or read, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why results cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folder exists, and results are never overwritten.
    #[error(
        "{} exists; results are never overwritten: add --resume to go on with it, or name another \
         folder with --out", folder.display()
    )]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process writes to the folder.
    #[error("{} is in use by another kolo; wait for it to end", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {cause}; what was written before is safe", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be written, and nothing was written before.
    #[error("{} cannot be written: {cause}; name another with --out", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A complete line cannot be read.
    #[error("{}:{line}: {problem}; remove the line by hand, or name another folder", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What was found.
        problem: String,
    },
    /// The folder holds another sweep.
    #[error("{}: {problem}", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// What differs and what to do.
        problem: String,
    },
}

impl RecordError {
    /// An error of the system about a file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        let path = path.to_path_buf();
        move |cause| RecordError::Io { path, cause }
    }

    /// The same error before anything was written.
    pub fn at_first(self) -> RecordError {
        match self {
            RecordError::Io { path, cause } => RecordError::Unwritable { path, cause },
            other => other,
        }
    }
}
