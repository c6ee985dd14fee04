//! Errors in reading rows and writing figures.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::rows::{OLDEST_SCHEMA, SCHEMA};

/// An error in reading rows or writing figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// A file cannot be opened.
    #[error("cannot open {}; give the path of a CSV file written by kolo", file.display())]
    Open {
        /// The file to read.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line is not CSV, or has another number of fields than the header.
    #[error("{}:{line}: the line is not a row of this table; remove it, or run its case again", file.display())]
    Malformed {
        /// The file being read.
        file: PathBuf,
        /// The line, counted from 1; the header is line 1.
        line: u64,
        /// The error of the CSV reader.
        source: csv::Error,
    },
    /// The header lacks a column that figures need.
    #[error(
        "{}:1: column `{column}` is missing; the header has: {found}; write the rows again with \
         this version of kolo, or add the column and leave its fields empty", file.display()
    )]
    MissingColumn {
        /// The file being read.
        file: PathBuf,
        /// The missing column.
        column: &'static str,
        /// The columns in the header, separated by commas.
        found: String,
    },
    /// A file of another version of kolo.
    #[error(
        "{}:{line}: schema {found}, this kolo draws {OLDEST_SCHEMA} to {SCHEMA}; draw it with the kolo that wrote the \
         file (provenance.json names its commit)", file.display()
    )]
    Schema {
        /// The file being read.
        file: PathBuf,
        /// The line, counted from 1; the header is line 1.
        line: u64,
        /// Its schema.
        found: String,
    },
    /// A field has a value that its column does not allow.
    #[error(
        "{}:{line}: column `{column}` has `{found}`, expected {expected}; correct the field, or \
         leave it empty if the value is not known", file.display()
    )]
    BadValue {
        /// The file being read.
        file: PathBuf,
        /// The line, counted from 1; the header is line 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// The text of the field.
        found: String,
        /// The allowed values in words.
        expected: &'static str,
    },
    /// The folder for the figures cannot be created or written to.
    #[error("cannot write to the folder {}; give a folder that you can write to", folder.display())]
    Folder {
        /// The folder for the figures.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// PDF is wanted of a build without it.
    #[error("this build writes no PDF; build with `--features pdf`, or convert the SVG")]
    NoPdf,
    /// A figure cannot be written.
    #[error(
        "cannot write {}: {source}; check the permissions of the folder and the free space",
        file.display()
    )]
    Write {
        /// The file being written.
        file: PathBuf,
        /// The error of the drawing backend.
        source: Box<dyn Error + Send + Sync>,
    },
}
