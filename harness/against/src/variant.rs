//! A binary of kolo with variables of its environment: one of those that are compared with each other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::process::{ProcessError, output};

/// How long a binary may take to say what it is.
const ANSWER: Duration = Duration::from_secs(60);

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// `a`, `b`, ...: its folder's name.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// Variables that it is given.
    pub environment: Vec<(String, String)>,
}

/// A variant that cannot measure.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VariantError {
    /// There is no such file.
    #[error("{}: there is no such file; expected a binary of kolo", program.display())]
    Missing {
        /// Where it was expected.
        program: PathBuf,
    },
    /// It does not start, or fails.
    #[error("{} is no binary of kolo: `{} --version`: {cause}", program.display(), program.display())]
    Failed {
        /// The file.
        program: PathBuf,
        /// How it ended.
        #[source]
        cause: ProcessError,
    },
    /// It is another program.
    #[error(
        "{} is no binary of kolo: `--version` says {said:?}, expected \"kolo\" and a version", program.display()
    )]
    Other {
        /// The file.
        program: PathBuf,
        /// What it says.
        said: String,
    },
}

/// A text that names no variables.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{word:?} is no variable of the environment; expected NAME=VALUE, several separated by spaces, as \
     \"NCCL_ALGO=Ring NCCL_PROTO=LL\""
)]
pub struct NoVariable {
    word: String,
}

/// Reads `NAME=VALUE NAME=VALUE`.
///
/// # Errors
/// When a word has no name or no `=`.
pub fn parse_environment(text: &str) -> Result<Vec<(String, String)>, NoVariable> {
    let is_name = |name: &str| {
        let first = name.chars().next();
        first.is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let one = |word: &str| match word.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_string(), value.to_string())),
        _ => Err(NoVariable { word: word.into() }),
    };
    let variables: Vec<_> = text.split_whitespace().map(one).collect::<Result<_, _>>()?;
    if variables.is_empty() { Err(NoVariable { word: text.into() }) } else { Ok(variables) }
}

impl Variant {
    /// Asks the binary for its version; `log` gets its output.
    ///
    /// # Errors
    /// When it is missing, does not start, or is another program.
    pub fn version(&self, log: &Path) -> Result<String, VariantError> {
        let program = self.program.clone();
        if !program.is_file() {
            return Err(VariantError::Missing { program });
        }
        let command = [program.display().to_string(), "--version".into()];
        let said = match output(&command, &[], log, ANSWER) {
            Ok(said) => said.trim().to_string(),
            Err(cause) => return Err(VariantError::Failed { program, cause }),
        };
        if said.starts_with("kolo ") && said.lines().count() == 1 {
            Ok(said)
        } else {
            let said = said.lines().next().unwrap_or_default().chars().take(100).collect();
            Err(VariantError::Other { program, said })
        }
    }

    /// Its variables as text; empty without any.
    pub fn variables(&self) -> String {
        let words = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Variant {
    /// `a (target/release/kolo with NCCL_ALGO=Ring)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.program.display())?;
        if !self.environment.is_empty() {
            write!(f, " with {}", self.variables())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_words_with_an_equals_sign() {
        let found = parse_environment("NCCL_ALGO=Ring  X=a=b Y=").unwrap();
        let expected = [("NCCL_ALGO", "Ring"), ("X", "a=b"), ("Y", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.into(), value.into())));
        for wrong in ["", "NCCL_ALGO", "=1", "1X=2", "A B=1"] {
            let why = parse_environment(wrong).unwrap_err().to_string();
            assert!(
                why.contains("is no variable of the environment; expected NAME=VALUE"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_program_that_is_missing_or_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let version = |program: &str| {
            let environment = Vec::new();
            let variant = Variant { name: "a".into(), program: program.into(), environment };
            variant.version(&folder.path().join("log")).unwrap_err().to_string()
        };
        assert!(version("/no/kolo").contains("/no/kolo: there is no such file; expected a binary"));
        let why = version("/bin/false");
        assert!(why.contains("/bin/false is no binary of kolo") && why.contains("exit status: 1"));
        let why = version("/bin/echo");
        assert!(why.contains("`--version` says"), "{why}");
        let text = folder.path().join("a.toml");
        std::fs::write(&text, "workload = \"x\"\n").unwrap();
        let why = version(&text.display().to_string());
        assert!(why.contains("is no binary of kolo") && why.contains("Permission denied"), "{why}");
    }
}
