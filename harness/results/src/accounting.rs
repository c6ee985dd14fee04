//! The record of a job in a batch system's accounting, stored with its results.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::provenance::{PROVENANCE, Provenance};

/// One job's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// The job, and how often it had been started.
    pub job: String,
    /// Lines of `sacct -P`, the first with the names of fields; none if it is unknown.
    pub lines: Vec<String>,
    /// Why it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl Accounting {
    /// Stores it with the results of a folder, if there are any.
    ///
    /// # Errors
    /// When the provenance exists and cannot be read or written.
    pub fn keep(self, folder: &Path) -> Result<(), RecordError> {
        let path = folder.join(PROVENANCE);
        if !path.exists() {
            return Ok(());
        }
        let mut provenance = Provenance::read(&path)?;
        provenance.accounting.push(self);
        provenance.write(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kept_beside_those_of_earlier_starts() {
        let folder = tempfile::tempdir().unwrap();
        let record = |job: &str| Accounting { job: job.into(), ..Accounting::default() };
        record("0").keep(folder.path()).unwrap();
        assert!(!folder.path().join(PROVENANCE).exists(), "there is nothing to keep it with");
        let provenance = Provenance {
            schema: 1,
            config: serde_json::Value::Null,
            seed: 7,
            workload_digest: String::new(),
            launches: Vec::new(),
            accounting: Vec::new(),
        };
        provenance.write(&folder.path().join(PROVENANCE)).unwrap();
        for job in ["12, start 1", "12, start 2"] {
            record(job).keep(folder.path()).unwrap();
        }
        let kept = Provenance::read(&folder.path().join(PROVENANCE)).unwrap();
        assert_eq!(kept.accounting, ["12, start 1", "12, start 2"].map(record));
        assert_eq!(kept.seed, 7);
    }
}
