//! A configuration that is checked when it is read.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::{ConfigError, Invalid, TomlFile};

/// A configuration in TOML that is checked when it is read.
pub trait Checked: DeserializeOwned {
    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// The key, what was found, what was expected.
    fn check(&self) -> Result<(), Invalid>;

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// File, line or key, what was found, and what was expected.
    fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of(&TomlFile::read(path)?)
    }

    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// File, line or key, what was found, and what was expected.
    fn of(file: &TomlFile) -> Result<Self, ConfigError> {
        let config: Self = file.parse()?;
        config.check().map_err(|problem| file.refuse(problem))?;
        Ok(config)
    }
}
