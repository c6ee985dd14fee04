//! What a run concludes, as `conclusion.json`: the sentences of its summary that a report leads with.

use std::path::{Path, PathBuf};
use std::{fs, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The file's name in a folder of results.
pub const CONCLUSION: &str = "conclusion.json";

/// See [`Conclusion::schema`].
const SCHEMA: u32 = 1;

/// A run's conclusion, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclusion {
    /// Version of this structure.
    pub schema: u32,
    /// What the run says, a sentence or two for each thing that it was asked.
    pub verdicts: Vec<String>,
    /// What limits the verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// What to copy to follow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_copy: Vec<ToCopy>,
}

/// Lines to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToCopy {
    /// Where they go: `for a job script`.
    pub purpose: String,
    /// The lines.
    pub lines: Vec<String>,
}

/// Why a conclusion cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConclusionError {
    /// The system cannot read it.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// It is no conclusion.
    #[error("{}: {cause}; expected what kolo sweep or kolo tune writes", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        cause: serde_json::Error,
    },
    /// It is of another version.
    #[error(
        "{}: the file is of schema {found}, this kolo reads {SCHEMA}; use the kolo that wrote it (provenance.json \
         names its commit)", path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

impl Default for Conclusion {
    fn default() -> Conclusion {
        let (verdicts, limits, to_copy) = Default::default();
        Conclusion { schema: SCHEMA, verdicts, limits, to_copy }
    }
}

impl Conclusion {
    /// Reads a folder's; none if the run wrote none.
    ///
    /// # Errors
    /// When the file cannot be read, is malformed, or is of another version.
    pub fn read(folder: &Path) -> Result<Option<Conclusion>, ConclusionError> {
        let path = folder.join(CONCLUSION);
        if !path.exists() {
            return Ok(None);
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(cause) => return Err(ConclusionError::Io { path, cause }),
        };
        let conclusion: Conclusion = match serde_json::from_str(&text) {
            Ok(conclusion) => conclusion,
            Err(cause) => return Err(ConclusionError::Malformed { path, cause }),
        };
        if conclusion.schema != SCHEMA {
            return Err(ConclusionError::Schema { path, found: conclusion.schema });
        }
        Ok(Some(conclusion))
    }

    /// Adds the conclusion of another part of the same run. Limits that were there are not repeated.
    pub fn add(&mut self, other: Conclusion) {
        self.verdicts.extend(other.verdicts);
        let limits = other.limits.into_iter().filter(|limit| !self.limits.contains(limit));
        self.limits.extend(limits.collect::<Vec<_>>());
        self.to_copy.extend(other.to_copy);
    }

    /// The file's bytes.
    pub fn json(&self) -> Vec<u8> {
        let text = serde_json::to_string_pretty(self).expect("a conclusion is plain data");
        (text + "\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Conclusion::read(folder.path()).unwrap(), None);
        let lines = vec!["export HOROVOD_CYCLE_TIME=1".to_string()];
        let conclusion = Conclusion {
            verdicts: vec!["Keep the default.".into()],
            to_copy: vec![ToCopy { purpose: "for a job script".into(), lines }],
            ..Conclusion::default()
        };
        fs::write(folder.path().join(CONCLUSION), conclusion.json()).unwrap();
        assert_eq!(Conclusion::read(folder.path()).unwrap(), Some(conclusion));
    }

    #[test]
    fn other_versions_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            fs::write(folder.path().join(CONCLUSION), text).unwrap();
            Conclusion::read(folder.path()).unwrap_err().to_string()
        };
        let other = refused(r#"{"schema": 7, "verdicts": []}"#);
        assert!(other.contains("is of schema 7, this kolo reads 1; use the kolo"), "{other}");
        let malformed = refused("[]");
        assert!(malformed.ends_with("expected what kolo sweep or kolo tune writes"), "{malformed}");
    }
}
