//! A configuration that is checked when it is read.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::{ConfigError, Invalid, TomlFile};

/// A configuration in TOML that is checked when it is read.
pub trait Checked: DeserializeOwned {
    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    fn check(&self) -> Result<(), Invalid>;

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// The file, the line or key, the value found, and the value expected.
    fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of(&TomlFile::read(path)?)
    }

    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// The file, the line or key, the value found, and the value expected.
    fn of(file: &TomlFile) -> Result<Self, ConfigError> {
        let config: Self = file.parse()?;
        config.check().map_err(|problem| file.refuse(problem))?;
        Ok(config)
    }
}
