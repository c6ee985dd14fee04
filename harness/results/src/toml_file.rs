//! Reading a TOML file whose errors say where they are.

pub mod advice;
mod invalid;
mod wording;

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

pub use invalid::{Invalid, at_least_1, not_empty, within};

/// Why a configuration is refused. The text begins with the file.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// What was found, what was expected, what to do.
    #[source]
    pub problem: ConfigProblem,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// The file cannot be read.
    #[error("{cause}{advice}")]
    Unreadable {
        /// What the system says.
        #[source]
        cause: io::Error,
        /// Which files there are instead; may be empty.
        advice: String,
    },
    /// No file has that name.
    #[error("there is no such {kind}; choose from {}, or give {instead}", advice::listed(names))]
    Missing {
        /// What was looked for, as in `site file`.
        kind: &'static str,
        /// Names that there are.
        names: Vec<String>,
        /// What to give instead of a name.
        instead: &'static str,
    },
    /// It is no TOML, or a value has the wrong type.
    #[error("line {line}: {message}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// What was found and what was expected, without the names of Rust's types.
        message: String,
    },
    /// A value is refused.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ConfigError {
    /// An error about the file at `path`.
    pub fn at<Problem: Into<ConfigProblem>>(path: &Path) -> impl FnOnce(Problem) -> ConfigError {
        let path = path.to_path_buf();
        move |problem| ConfigError { path, problem: problem.into() }
    }
}

/// Reads a TOML file.
///
/// # Errors
/// When the file cannot be read, is no TOML, or a key or type is wrong; the text names file and line.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let unreadable = |cause| ConfigProblem::Unreadable { cause, advice: advice::on_toml(path) };
    let text = std::fs::read_to_string(path).map_err(unreadable).map_err(ConfigError::at(path))?;
    let malformed = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        ConfigProblem::Toml { line, message: wording::in_words(error.message().trim_end()) }
    };
    toml::from_str(&text).map_err(malformed).map_err(ConfigError::at(path))
}
