//! The file of rows that `--out` names.

use std::path::Path;

use anyhow::Result;

use results::error::RecordError;
use results::provenance::Launch;
use results::record::Appended;
use results::row::CollectiveRow;

/// A file of rows that grows line by line, with its provenance beside it.
pub struct Out(Appended);

impl Out {
    pub fn create(path: &Path, launch: &Launch) -> Result<Out> {
        let out = Out(Appended::open(path.to_path_buf()).map_err(RecordError::at_first)?);
        write_provenance(path, launch)?;
        Ok(out)
    }
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
