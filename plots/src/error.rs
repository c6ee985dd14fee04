//! What can go wrong between a CSV file and a figure.

use std::io;
use std::path::PathBuf;

/// Why rows could not be read or a figure not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// A file of rows does not open.
    #[error("cannot open {}; give the path of a CSV file that a sweep has written", file.display())]
    Open {
        /// The file asked for.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not CSV, or has more or fewer fields than the header.
    #[error("{}:{line}: the line is not a row of this table; remove it, or run its case again", file.display())]
    Malformed {
        /// The file being read.
        file: PathBuf,
        /// The line, counted from 1; the header is line 1.
        line: u64,
        /// What the reader says.
        source: csv::Error,
    },
    /// A column that a figure needs is not in the header.
    #[error(
        "{}:1: column `{column}` is missing; the header has: {found}; write the rows again with \
         this version of kolo, or add the column and leave its fields empty", file.display()
    )]
    MissingColumn {
        /// The file being read.
        file: PathBuf,
        /// The column looked for.
        column: &'static str,
        /// The columns there are.
        found: String,
    },
    /// A field does not hold what its column promises.
    #[error(
        "{}:{line}: column `{column}` holds `{found}` where {expected} was expected; correct the \
         field, or empty it if the value is not known", file.display()
    )]
    BadValue {
        /// The file being read.
        file: PathBuf,
        /// The line, counted from 1; the header is line 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// The field's text.
        found: String,
        /// What would have been right, in words.
        expected: &'static str,
    },
    /// The folder for the figures cannot be made.
    #[error("cannot make the folder {}; give one that you may write to", folder.display())]
    Folder {
        /// The folder asked for.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A figure cannot be written.
    #[error("cannot write {}: {message}; check the folder's rights and the space left", file.display())]
    Write {
        /// The file being written.
        file: PathBuf,
        /// What the drawing backend says.
        message: String,
    },
}
