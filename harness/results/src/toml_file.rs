//! Reading a TOML file whose errors say where they are.

pub mod advice;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a configuration is refused. The text begins with the file.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// What was found, what was expected, what to do.
    pub problem: String,
}

/// Reads TOML; an error says where.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let refuse = |problem: String| ConfigError { path: path.into(), problem };
    let unread = |error| refuse(format!("{error}{}", advice::on_toml(path)));
    let text = std::fs::read_to_string(path).map_err(unread)?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        refuse(format!("line {line}: {}", advice::in_words(error.message().trim_end())))
    })
}
