//! What Slurm's accounting says of a job, kept with its results.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ask::ask;
use crate::provenance::{PROVENANCE, Provenance};
use crate::record::RecordError;

/// Fields of a record, as `sacct` calls them.
const FIELDS: &str = "JobID,JobName,State,ExitCode,Start,End,Elapsed,NNodes,NTasks,NodeList,TotalCPU,MaxRSS,ConsumedEnergyRaw";

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
    /// Asks for a job's record. The job itself still runs while it asks, its steps are over.
    pub fn of(id: &str, start: u32) -> Accounting {
        let job = format!("{id}, start {start}");
        match ask(&["sacct", "-P", "-j", id, "-o", FIELDS]) {
            Ok(text) if text.lines().count() > 1 => {
                Accounting { job, lines: text.lines().map(str::to_string).collect(), unknown: None }
            }
            Ok(_) => Accounting {
                job,
                unknown: Some("sacct knows no such job".into()),
                ..Accounting::default()
            },
            Err(error) => {
                Accounting { job, unknown: Some(error.to_string()), ..Accounting::default() }
            }
        }
    }

    /// Keeps it with the results of a folder, if there are any.
    ///
    /// # Errors
    /// When provenance is there and cannot be read or written.
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

    #[test]
    fn a_job_that_nobody_knows_is_unknown_with_the_reason() {
        let record = Accounting::of("4294967290", 1);
        assert!(record.lines.is_empty() && record.unknown.is_some_and(|why| !why.is_empty()));
    }
}
