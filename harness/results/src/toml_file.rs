//! Reads TOML files, with errors that have the location.

pub mod advice;
mod checked;
mod invalid;
mod wording;

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::config_kind::UnknownKind;
use crate::inputs::{self, MissingFile};
pub use checked::Checked;
pub use invalid::{Invalid, at_least_1, control_plane, not_empty, within};

/// Why a configuration is refused. The text begins with the file.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The value found, the value expected, and what to do.
    #[source]
    pub problem: ConfigProblem,
}

/// An error in a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// The file cannot be read.
    #[error("{cause}{advice}")]
    Unreadable {
        /// The system's error.
        #[source]
        cause: io::Error,
        /// The list of files, if any.
        advice: String,
    },
    /// No file has that name, on disk or embedded.
    #[error(transparent)]
    Missing(#[from] MissingFile),
    /// It is no TOML, or a value has the wrong type.
    #[error("line {line}: {message}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// The value found and the value expected, without the names of Rust's types.
        message: String,
    },
    /// It is of no known kind.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// A value is refused.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It cannot be used for what was asked.
    #[error(transparent)]
    Unusable(Box<dyn Error + Send + Sync>),
}

impl ConfigProblem {
    /// The configuration cannot be used for what was asked.
    pub fn unusable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> ConfigProblem {
        ConfigProblem::Unusable(cause.into())
    }
}

impl ConfigError {
    /// An error about the file at `path`.
    pub fn at<Problem: Into<ConfigProblem>>(path: &Path) -> impl FnOnce(Problem) -> ConfigError {
        let path = path.to_path_buf();
        move |problem| ConfigError { path, problem: problem.into() }
    }
}

/// The text of a TOML file, on disk or embedded.
#[derive(Clone, Debug)]
pub struct TomlFile {
    /// The file.
    pub path: PathBuf,
    text: Cow<'static, str>,
}

impl TomlFile {
    /// # Errors
    /// When it cannot be read; the error lists the files that exist.
    pub fn read(path: &Path) -> Result<TomlFile, ConfigError> {
        let unreadable = |cause| ConfigProblem::Unreadable { cause, advice: advice::on_toml(path) };
        let (text, _) = inputs::read(path).map_err(unreadable).map_err(ConfigError::at(path))?;
        Ok(TomlFile { path: path.into(), text })
    }

    /// Parses its contents.
    ///
    /// # Errors
    /// The line, the value found, and the value expected.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let text = &self.text;
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let message = wording::in_words(error.message().trim_end());
            self.refuse(ConfigProblem::Toml { line, message })
        })
    }

    /// The error for a problem with the file.
    pub fn refuse(&self, problem: impl Into<ConfigProblem>) -> ConfigError {
        ConfigError { path: self.path.clone(), problem: problem.into() }
    }
}
