//! Reading a TOML file whose errors say where they are.

pub mod advice;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::inputs;

/// Why a configuration is refused. The text begins with the file.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// What was found, what was expected, what to do.
    pub problem: String,
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
    /// When it cannot be read; which files there are instead.
    pub fn read(path: &Path) -> Result<TomlFile, ConfigError> {
        let refuse = |problem: String| ConfigError { path: path.into(), problem };
        let unread = |error| refuse(format!("{error}{}", advice::on_toml(path)));
        let (text, _) = inputs::read(path).map_err(unread)?;
        Ok(TomlFile { path: path.into(), text })
    }

    /// What it holds.
    ///
    /// # Errors
    /// Line, what was found, and what was expected.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let text = &self.text;
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let message = advice::in_words(error.message().trim_end());
            self.refuse(format!("line {line}: {message}"))
        })
    }

    /// The error that says what is wrong with the file.
    pub fn refuse(&self, problem: String) -> ConfigError {
        ConfigError { path: self.path.clone(), problem }
    }
}

/// Reads and parses TOML, on disk or embedded; an error says where.
///
/// # Errors
/// See [`TomlFile::read`] and [`TomlFile::parse`].
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    TomlFile::read(path)?.parse()
}
