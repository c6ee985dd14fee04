//! Errors of reading and writing results, with what to do.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::columnar::ColumnarError;
use crate::row::SCHEMA;

/// Why results cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folder exists, and results are never overwritten.
    #[error(
        "{} exists; results are never overwritten: add --resume to continue it, or name another \
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
    #[error("{}: {cause}; earlier results are intact", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be written, and nothing was written before.
    #[error("{} cannot be written: {cause}; name another with --out", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
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
        /// What is wrong with it.
        #[source]
        problem: MalformedLine,
    },
    /// The folder holds another sweep.
    #[error("{}: {problem}", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// What differs and what to do.
        #[source]
        problem: Difference,
    },
    /// A table by columns cannot be read.
    #[error(transparent)]
    Columnar(#[from] ColumnarError),
}

/// What is wrong with a line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MalformedLine {
    /// It is no line of its table.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// It does not begin with a case and a block.
    #[error("expected a case and the number of a block at its beginning")]
    Key,
    /// It holds no latencies.
    #[error("no interval of an HdrHistogram log")]
    Interval,
}

/// How a folder differs from what a run would write into it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Difference {
    /// A file has other columns.
    #[error(
        "its columns are those of another version of kolo; finish this sweep with the version that began it \
         (provenance.json names the commit), or begin another without --resume"
    )]
    Columns,
    /// The provenance is not understood.
    #[error("{cause}; the folder was written by another version: name another")]
    Provenance {
        /// What was found.
        #[source]
        cause: serde_json::Error,
    },
    /// The files have another schema.
    #[error(
        "the folder is of schema {found}, this kolo writes {SCHEMA}; resume it with the kolo that began it, or name \
         another folder with --out"
    )]
    Schema {
        /// The folder's.
        found: u32,
    },
    /// Another commit has measured it.
    #[error(
        "the folder was measured by commit {there}, this kolo is of commit {now}; resume it with the kolo that began it, name \
         another folder with --out, or mix both in a sweep with --force, which writes both commits into its rows"
    )]
    Commit {
        /// That of the folder's last launch.
        there: String,
        /// This program's.
        now: String,
    },
    /// A value of the configuration is another.
    #[error(
        "the folder holds another sweep: {key}: the folder has {there}, now it is {now}; resume it with its own \
         configuration, options and HOROVOD_ variables, or name another folder with --out"
    )]
    Setting {
        /// The key.
        key: String,
        /// The folder's value.
        there: String,
        /// This run's value.
        now: String,
    },
    /// The gradients are others.
    #[error(
        "the folder holds another sweep: workload: the folder has gradients {there}, now they are {now}; resume it \
         with its own configuration, options and HOROVOD_ variables, or name another folder with --out"
    )]
    Workload {
        /// The digest of the folder's gradients.
        there: String,
        /// The digest of this run's.
        now: String,
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
