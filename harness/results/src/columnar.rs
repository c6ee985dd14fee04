//! Samples and messages by columns: `samples.parquet` and `messages.parquet` in the place of `samples.csv` and
//! `messages.csv`, as [Apache Parquet](https://parquet.apache.org).
//!
//! Such a file ends with the places of its columns, so it cannot grow. A sweep appends to CSV as ever, and converts when all
//! its cases are done. The CSV file is removed once the other one is on the disk and has given the same bytes back. Where a
//! kill has left both, the CSV file counts. A sweep that is resumed converts back first.
//!
//! Only builds with the feature `parquet` read and write these files. Others tell so.

#[cfg(feature = "parquet")]
mod text;
#[cfg(feature = "parquet")]
mod values;
#[cfg(feature = "parquet")]
mod write;

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::error::RecordError;

/// This build reads and writes tables by columns.
pub const IS_BUILT: bool = cfg!(feature = "parquet");

/// The tables of single steps.
const TABLES: [&str; 2] = ["samples", "messages"];

/// Why a table by columns cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ColumnarError {
    /// A build without Parquet has found such a file.
    #[error(
        "{}: it is Apache Parquet, which this build of kolo does not read; expected a CSV file, or a build that reads it: \
         cargo build --release --features parquet", path.display()
    )]
    CannotRead {
        /// The file.
        path: PathBuf,
    },
    /// A build without Parquet is to write such files.
    #[error(
        "--samples parquet: this build of kolo writes no Apache Parquet; leave the option out, or build one that does: \
         cargo build --release --features parquet"
    )]
    CannotWrite,
    /// A file is none that kolo wrote.
    #[error("{}: {cause}; expected a table that `kolo sweep --samples parquet` wrote", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        cause: Box<dyn StdError + Send + Sync>,
    },
    /// A table in CSV has a field that its column does not allow.
    #[error("{}:{line}: {problem}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column, its field, and what it holds.
        problem: String,
    },
    /// A table in CSV cannot be written by columns without a change.
    #[error(
        "{}: read back from columns, it differs from byte {at}; expected a file that kolo alone has written", path.display()
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// Place of the first other byte, from 0.
        at: u64,
    },
    /// A system call has failed.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

impl ColumnarError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> ColumnarError {
        let path = path.to_path_buf();
        move |cause| ColumnarError::Io { path, cause }
    }
}

/// A table that was converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The file by columns.
    pub path: PathBuf,
    /// The number of lines, without the header.
    pub lines: u64,
    /// The size of the CSV file in bytes.
    pub before_bytes: u64,
    /// The size of the file by columns in bytes.
    pub after_bytes: u64,
}

impl Display for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Converted { path, lines, before_bytes, after_bytes } = self;
        let [before, after] = [before_bytes, after_bytes].map(|&bytes| bytes as f64 / 1e6);
        write!(
            f,
            "{}: {lines} lines, {after:.1} MB in place of {before:.1} MB as CSV",
            path.display()
        )
    }
}

/// A file is a table by columns, as its name tells.
pub fn is_columnar(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "parquet")
}

/// The file of a table in a folder of results, such as `samples`: in CSV, or else by columns. None if there is neither.
pub fn find(folder: &Path, table: &str) -> Option<PathBuf> {
    let [text, columns] = files(folder, table);
    [text, columns].into_iter().find(|path| path.exists())
}

/// Refuses a folder of results whose tables are by columns, if this build cannot read them.
///
/// # Errors
/// [`ColumnarError::CannotRead`], with the first such file.
pub fn check_readable(folder: &Path) -> Result<(), ColumnarError> {
    let paths = TABLES.iter().filter_map(|table| find(folder, table));
    match { paths }.find(|path| is_columnar(path)) {
        Some(path) if !IS_BUILT => Err(ColumnarError::CannotRead { path }),
        _ => Ok(()),
    }
}

/// The text of a table as CSV, whichever file it is in. Of a table by columns only these `columns` are read, or all; a CSV
/// file is read as it is. A table by columns is never in memory as a whole.
///
/// # Errors
/// When the file cannot be opened, or is by columns and this build does not read that. Reading may fail, too.
pub fn open(path: &Path, columns: Option<&[&str]>) -> Result<Box<dyn Read>, ColumnarError> {
    if !is_columnar(path) {
        return Ok(Box::new(File::open(path).map_err(ColumnarError::io(path))?));
    }
    text::open(path, columns)
}

/// Converts the tables of single steps of a folder into files by columns, and removes the CSV files. The folder must not be
/// written to meanwhile. A table that cannot be converted stays as it is.
///
/// # Errors
/// When a table has a field that its column does not allow, or would not be the same when it is read back, or a system call
/// fails; or when this build cannot do that.
pub fn convert(folder: &Path) -> Result<Vec<Converted>, ColumnarError> {
    let mut converted = Vec::new();
    for table in TABLES {
        let [text, columns] = files(folder, table);
        if text.exists() {
            converted.push(write::convert(table, &text, columns)?);
        }
    }
    Ok(converted)
}

/// Converts tables by columns back into CSV files, so that a sweep can append to them. The folder must not be written to
/// meanwhile. Where a CSV file is there, it counts, and that by columns is removed.
///
/// # Errors
/// When this build cannot read the file, the file is none of kolo's, or a system call fails.
pub fn restore(folder: &Path) -> Result<(), RecordError> {
    for table in TABLES {
        let [text, columns] = files(folder, table);
        if !columns.exists() {
            continue;
        }
        if !text.exists() {
            let mut whole = open(&columns, None)?;
            crate::files::write_streamed(&text, |out| io::copy(&mut whole, out).map(drop))?;
        }
        fs::remove_file(&columns).map_err(RecordError::io(&columns))?;
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
mod text {
    use super::{ColumnarError, Path, Read};

    pub fn open(path: &Path, _: Option<&[&str]>) -> Result<Box<dyn Read>, ColumnarError> {
        Err(ColumnarError::CannotRead { path: path.into() })
    }
}

#[cfg(not(feature = "parquet"))]
mod write {
    use super::{ColumnarError, Converted, Path, PathBuf};

    pub fn convert(_: &str, _: &Path, _: PathBuf) -> Result<Converted, ColumnarError> {
        Err(ColumnarError::CannotWrite)
    }
}

/// The two files in which a table may be.
fn files(folder: &Path, table: &str) -> [PathBuf; 2] {
    ["csv", "parquet"].map(|end| folder.join(format!("{table}.{end}")))
}

#[cfg(test)]
mod tests;
