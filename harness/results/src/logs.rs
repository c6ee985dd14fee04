//! Logs of other programs: tables of nccl-tests (also those of `kolo bench`), its JSON (`-J`), OSU
//! micro-benchmarks, and Horovod's autotuner.
//!
//! A format is recognised by its content. Each has a parser without I/O, which yields a [`Log`]: what is whole is
//! read, and the rest becomes a [`Note`] with its line.

pub mod autotune;
mod environment;
pub mod fit;
pub mod nccl_json;
pub mod nccl_tests;
pub mod osu;
mod rows;
mod table;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use autotune::Trial;
pub use environment::named_in_path;
pub use table::{Operation, Point, Table};

/// Who wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The table of nccl-tests, of any version.
    NcclTests,
    /// The JSON that nccl-tests writes with `-J`.
    NcclTestsJson,
    /// OSU micro-benchmarks.
    Osu,
    /// Horovod's autotuner (`HOROVOD_AUTOTUNE_LOG`).
    Autotune,
    /// A timeline (`HOROVOD_TIMELINE`), which the crate `workloads` reads; with the library that reduces: `mpi`, `nccl`,
    /// `gloo`, `ccl`, `kolo` or `unknown`.
    Timeline {
        /// The library.
        library: &'static str,
    },
}

impl Format {
    /// The format of a text, by its content; none if it is another.
    pub fn of(text: &str) -> Option<Format> {
        if autotune::is_autotune(text) {
            Some(Format::Autotune)
        } else if osu::is_osu(text) {
            Some(Format::Osu)
        } else if nccl_json::is_json(text) {
            Some(Format::NcclTestsJson)
        } else {
            nccl_tests::is_table(text).then_some(Format::NcclTests)
        }
    }

    /// Its name, as rows have it in the column `transport`.
    pub fn name(self) -> &'static str {
        match self {
            Format::NcclTests | Format::NcclTestsJson => "nccl-tests",
            Format::Osu => "osu",
            Format::Autotune => "horovod-autotune",
            Format::Timeline { .. } => "horovod-timeline",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::NcclTests => "nccl-tests",
            Format::NcclTestsJson => "nccl-tests, JSON",
            Format::Osu => "OSU micro-benchmarks",
            Format::Autotune => "Horovod's autotuner",
            Format::Timeline { .. } => "a timeline",
        })
    }
}

/// What was not read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, from 1.
    pub line: usize,
    /// What is there, and what follows from it.
    pub what: String,
}

/// The contents of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The file.
    pub path: PathBuf,
    /// Who wrote it.
    pub format: Format,
    /// Its tables of times, in the order of the file.
    pub tables: Vec<Table>,
    /// What Horovod's autotuner tried.
    pub trials: Vec<Trial>,
    /// What was not read.
    pub notes: Vec<Note>,
}

/// Why a log cannot be read. The text begins with the file, and the line if there is one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file is not there, or cannot be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// It is no log of a known format.
    #[error(
        "{}:1: found {found:?}, expected a log of nccl-tests (its table, or the JSON of -J), of OSU \
         micro-benchmarks, or of Horovod's autotuner; give the file as the program wrote it", path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The beginning of its first line.
        found: String,
    },
    /// The format is known, and there are no measurements in it.
    #[error("{}:{line}: {found}, expected {expected}; {advice}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is there.
        found: String,
        /// What was expected.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
}

/// What a parser makes of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Tables of times.
    pub tables: Vec<Table>,
    /// What Horovod's autotuner tried.
    pub trials: Vec<Trial>,
    /// What was not read.
    pub notes: Vec<Note>,
}

impl Parsed {
    fn note(&mut self, line: usize, what: impl Into<String>) {
        self.notes.push(Note { line, what: what.into() });
    }
}

impl Log {
    /// The log in a file, if the file holds one: none if it is of another kind or cannot be read.
    ///
    /// # Errors
    /// As [`Log::parse`], of a format that is known.
    pub fn find(path: &Path) -> Result<Option<Log>, LogError> {
        let Ok(bytes) = fs::read(path) else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        Format::of(&text).map(|_| Log::parse(&text, path)).transpose()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or as [`Log::parse`].
    pub fn read(path: &Path) -> Result<Log, LogError> {
        let bytes =
            fs::read(path).map_err(|cause| LogError::Unreadable { path: path.into(), cause })?;
        Log::parse(&String::from_utf8_lossy(&bytes), path)
    }

    /// Reads the contents of a file. Algorithm and protocol that the text does not name are taken from the file's name.
    ///
    /// # Errors
    /// When the format is not known, or nothing was measured.
    pub fn parse(text: &str, path: &Path) -> Result<Log, LogError> {
        let Some(format) = Format::of(text) else {
            let found = text.lines().next().unwrap_or_default().chars().take(60).collect();
            return Err(LogError::Unknown { path: path.into(), found });
        };
        let mut parsed = match format {
            Format::NcclTests => nccl_tests::parse(text),
            Format::NcclTestsJson => nccl_json::parse(text),
            Format::Osu => osu::parse(text),
            Format::Autotune => autotune::parse(text),
            Format::Timeline { .. } => unreachable!("no text is taken for one"),
        };
        parsed.tables.retain(|table| !table.points.is_empty());
        if parsed.tables.is_empty() && parsed.trials.is_empty() {
            let line = text.lines().count().max(1);
            let note = parsed.notes.first();
            return Err(LogError::Empty {
                path: path.into(),
                line: note.map_or(line, |note| note.line),
                found: note.map_or("found no measurement".into(), |note| note.what.clone()),
                expected: "at least one whole line of times",
                advice: "the program may have failed: look at the end of the log",
            });
        }
        let (algorithm, protocol) = named_in_path(path);
        for table in &mut parsed.tables {
            table.algorithm = table.algorithm.take().or_else(|| algorithm.clone());
            table.protocol = table.protocol.take().or_else(|| protocol.clone());
        }
        let Parsed { tables, trials, mut notes } = parsed;
        notes.sort_by_key(|note| note.line);
        Ok(Log { path: path.into(), format, tables, trials, notes })
    }

    /// A line for each note, with file and line.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let at = |note: &Note| format!("{}:{}: {}", self.path.display(), note.line, note.what);
        self.notes.iter().map(at)
    }
}

#[cfg(test)]
mod tests;
