//! Writing whole files, so that a kill leaves the old file or the new one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::RecordError;

/// Makes a folder of results, and those above it.
///
/// # Errors
/// When a system call fails.
pub fn create_folder(path: &Path) -> Result<(), RecordError> {
    fs::create_dir_all(path).map_err(RecordError::io(path)).map_err(RecordError::at_first)
}

/// Checks that [`write_whole`] could write a file; leaves nothing behind.
///
/// # Errors
/// When a system call fails.
pub fn check_writable(path: &Path) -> Result<(), RecordError> {
    let beside = path.with_extension("new");
    let tried = File::create(&beside).and_then(|_| fs::remove_file(&beside));
    tried.map_err(RecordError::io(path)).map_err(RecordError::at_first)
}

/// Writes a whole file atomically: to a temporary file, which is then renamed.
///
/// # Errors
/// When a system call fails.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    write_streamed(path, |out| out.write_all(bytes))
}

/// The same without the whole file in memory.
///
/// # Errors
/// When a system call fails.
pub fn write_streamed(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), RecordError> {
    let beside = path.with_extension("new");
    let write = || {
        let mut out = BufWriter::new(File::create(&beside)?);
        write(&mut out)?;
        out.into_inner()?.sync_data()?;
        fs::rename(&beside, path)
    };
    write().map_err(RecordError::io(path))
}
