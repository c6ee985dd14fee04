//! The file of rows that `--out` names.

use std::path::Path;

use anyhow::Result;

use crate::cli::usage;
use results::error::RecordError;
use results::provenance::Launch;
use results::record::Appended;
use results::row::{CollectiveRow, columns};

/// A file of rows that grows line by line, with its provenance beside it.
pub struct Out(Appended);

impl Out {
    pub fn create(path: &Path, launch: &Launch) -> Result<Out> {
        check_columns(path)?;
        let mut file = Appended::open(path.to_path_buf()).map_err(RecordError::at_first)?;
        file.begin(&columns()).map_err(RecordError::at_first)?;
        let out = Out(file);
        write_provenance(path, launch)?;
        Ok(out)
    }
}

/// Rows of this version are not appended to those of another.
fn check_columns(path: &Path) -> Result<()> {
    // A file that cannot be read is reported when it is opened.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    if text.lines().next().is_some_and(|header| header != columns()) {
        return Err(usage(format!(
            "{}: its columns are not those of this version of kolo; name another file with --out",
            path.display()
        )));
    }
    Ok(())
}

/// Writes where rows come from beside them, in place of what was said before.
pub fn write_provenance(rows: &Path, launch: &Launch) -> Result<()> {
    Ok(launch.write(&rows.with_extension("provenance.json"))?)
}

pub fn append(out: &mut Option<Out>, row: &CollectiveRow) -> Result<()> {
    if let Some(Out(file)) = out {
        file.append(std::slice::from_ref(row))?;
    }
    Ok(())
}
