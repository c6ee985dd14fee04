//! Why a workload cannot be read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::FOLDER;
use super::from_timeline::TimelineGap;
use crate::trace::read::TimelineError;
use results::inputs;
use results::toml_file::advice;

/// Why a workload cannot be read. The text begins with file and line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The file is not there or cannot be opened.
    #[error(
        "{}: {cause}; `workload` names a model of the folder workloads beside the configuration, or the path of a CSV file or of a timeline (.json){}", path.display(), models(path)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The timeline is not there, or is none.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// The timeline lacks information that a workload needs.
    #[error("{}: {problem}", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing information, and what to do.
        #[source]
        problem: TimelineGap,
    },
    /// A malformed line.
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The value found, and the value expected.
        #[source]
        problem: TableError,
    },
}

/// An error in a line of a list of gradients, or of their ready times.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The line is no CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// A line is longer or shorter than the first.
    #[error("{found} fields, expected {expected} as in the first line")]
    Fields {
        /// Fields of the line.
        found: u64,
        /// Fields of the first line.
        expected: u64,
    },
    /// A column is missing.
    #[error("column \"{column}\" is missing; found {found}")]
    Column {
        /// The column.
        column: String,
        /// The first line.
        found: String,
    },
    /// A field cannot be read.
    #[error("{column} is \"{found}\", expected {expected}")]
    Field {
        /// Its column.
        column: String,
        /// The field.
        found: String,
        /// The value expected.
        expected: &'static str,
    },
    /// A number out of range.
    #[error("{column} is {found}, expected {expected}")]
    Value {
        /// Its column.
        column: &'static str,
        /// The number.
        found: String,
        /// The value expected.
        expected: String,
    },
    /// Another gradient has that index.
    #[error("gradient {index} is \"{expected}\", found \"{found}\"")]
    Name {
        /// The gradient's index.
        index: usize,
        /// Its name.
        expected: String,
        /// The name in this line.
        found: String,
    },
    /// Two gradients have one name.
    #[error("gradient \"{name}\" is defined twice; give each gradient a name of its own")]
    DefinedTwice {
        /// The name.
        name: String,
    },
    /// A gradient becomes ready twice.
    #[error("gradient \"{name}\" is ready twice, expected one line for each gradient")]
    ReadyTwice {
        /// The gradient.
        name: String,
    },
    /// A gradient is missing among the ready times.
    #[error("gradient \"{name}\" never becomes ready; add a line for it")]
    NeverReady {
        /// The gradient.
        name: String,
    },
    /// The list is empty.
    #[error("no gradients; expected one line for each")]
    Empty,
}

impl TableError {
    pub(super) fn value(
        column: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        TableError::Value { column, found: found.to_string(), expected: expected.into() }
    }
}

/// The nearest model, and the list of models, on disk and embedded; empty if there are none.
fn models(path: &Path) -> String {
    let folders = path.parent().into_iter().chain([Path::new(FOLDER)]);
    let files = folders.flat_map(|folder| inputs::names(folder, "csv"));
    let lists = files.filter(|name| !name.ends_with(".ready.csv"));
    let models: BTreeSet<String> =
        lists.filter_map(|name| Some(name.strip_suffix(".csv")?.to_string())).collect();
    if models.is_empty() {
        return String::new();
    }
    let models = Vec::from_iter(models);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let meant = inputs::meant(&name, &models).map_or("; there".into(), |meant| meant + " There");
    format!("{meant} are {}", advice::listed(&models))
}
