//! Why no report can be made.

use std::path::PathBuf;

use results::columnar::ColumnarError;
use results::conclusion::ConclusionError;
use results::row::{OLDEST_SCHEMA, SCHEMA};
use thiserror::Error;

/// Why no report can be made. The text says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// No results are there.
    #[error(
        "{}: {found}; expected a folder that a run wrote, with one of {}, or a CSV file of rows", path.display(),
        crate::tables::FILES.join(", ")
    )]
    NoResults {
        /// The folder or file.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A file cannot be read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// A file is no CSV.
    #[error("{}: {cause}; write it again with kolo, or leave it out", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        cause: csv::Error,
    },
    /// A file is of another version.
    #[error(
        "{}: schema {found}, this kolo reads {OLDEST_SCHEMA} to {SCHEMA}; make the report with the kolo that wrote the file \
         (provenance.json names its commit)", path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: String,
    },
    /// A table of rows lacks columns.
    #[error(
        "{}: {} missing; expected the columns of rows.csv; write the rows again with this kolo", path.display(),
        in_words(columns)
    )]
    Columns {
        /// The file.
        path: PathBuf,
        /// The columns.
        columns: Vec<&'static str>,
    },
    /// A provenance is not understood.
    #[error("{}: {cause}; expected what a run of this version writes", path.display())]
    Provenance {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        cause: serde_json::Error,
    },
    /// Runs trained different models.
    #[error(
        "the runs are of different workloads: {} has {first_has}, {} has {second_has}; give each its own report",
        first.display(), second.display()
    )]
    Workloads {
        /// A run.
        first: PathBuf,
        /// Its workloads.
        first_has: String,
        /// Another.
        second: PathBuf,
        /// Its workloads.
        second_has: String,
    },
    /// Runs trained models of the same name with other gradients.
    #[error(
        "the gradients of {workload} differ: {} has those of digest {first_has}, {} those of {second_has}; give each \
         its own report", first.display(), second.display()
    )]
    Gradients {
        /// The model.
        workload: String,
        /// A run.
        first: PathBuf,
        /// Its digest.
        first_has: String,
        /// Another.
        second: PathBuf,
        /// Its digest.
        second_has: String,
    },
    /// A table by columns cannot be read.
    #[error(transparent)]
    Columnar(#[from] ColumnarError),
    /// A conclusion cannot be read.
    #[error(transparent)]
    Conclusion(#[from] ConclusionError),
    /// Figures cannot be drawn.
    #[error(transparent)]
    Plot(#[from] plots::PlotError),
}

fn in_words(columns: &[&str]) -> String {
    match columns {
        [column] => format!("column {column} is"),
        columns => format!("columns {} are", columns.join(", ")),
    }
}
