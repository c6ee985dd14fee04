//! Kinds of configurations, distinguished by their tables.

use std::fmt;

use crate::toml_file::{ConfigError, TomlFile};

/// The kind of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// Training steps to measure, or to tune.
    Training,
    /// Control planes alone.
    ControlPlanes,
    /// Training steps in virtual time.
    Simulated,
    /// Surfaces on which the tuner is tested.
    Regret,
    /// Published measurements.
    PublishedPoints,
    /// A machine to simulate.
    Machine,
}

/// The top-level keys that identify the kind of a file, in order of precedence.
const KEYS: [(ConfigKind, &[&str]); 6] = [
    (ConfigKind::Machine, &["node"]),
    (ConfigKind::ControlPlanes, &["control"]),
    (ConfigKind::Simulated, &["simulate"]),
    (ConfigKind::Regret, &["surface"]),
    (ConfigKind::PublishedPoints, &["allreduce", "training"]),
    (ConfigKind::Training, &["workload", "step", "sweep", "tune"]),
];

/// A file that is no configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its kind is not known: expected `workload`, [step] and [sweep] (training steps), [control] (control planes), \
     [simulate] (a simulated sweep), [[surface]] (regret of tuning), [[allreduce]] or [[training]] (published \
     points), or [node] (a machine file)"
)]
pub struct UnknownKind;

impl ConfigKind {
    /// The kind of a configuration.
    ///
    /// # Errors
    /// When none of these keys is present.
    pub fn of(table: &toml::Table) -> Result<ConfigKind, UnknownKind> {
        let is_there = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
        let kind = KEYS.iter().find(|(_, keys)| is_there(keys)).map(|&(kind, _)| kind);
        kind.ok_or(UnknownKind)
    }

    /// The kind of a file that was read.
    ///
    /// # Errors
    /// When it is not TOML, or of no known kind.
    pub fn of_file(file: &TomlFile) -> Result<ConfigKind, ConfigError> {
        ConfigKind::of(&file.parse()?).map_err(|unknown| file.refuse(unknown))
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigKind::Training => "a configuration of training steps",
            ConfigKind::ControlPlanes => "a sweep of control planes",
            ConfigKind::Simulated => "a simulated sweep",
            ConfigKind::Regret => "a configuration for the regret of tuning",
            ConfigKind::PublishedPoints => "a list of published points",
            ConfigKind::Machine => "a machine file",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<ConfigKind, UnknownKind> {
        ConfigKind::of(&text.parse().unwrap())
    }

    #[test]
    fn tables_tell_kinds_apart() {
        assert_eq!(kind("workload = \"a\"\n[step]\nbackward_ms = 1"), Ok(ConfigKind::Training));
        assert_eq!(kind("[tune]\nbudget = \"1m\""), Ok(ConfigKind::Training));
        assert_eq!(kind("[control]"), Ok(ConfigKind::ControlPlanes));
        assert_eq!(kind("[simulate]\n[[model]]"), Ok(ConfigKind::Simulated));
        assert_eq!(kind("blocks = 1\n[[surface]]"), Ok(ConfigKind::Regret));
        assert_eq!(kind("[[training]]"), Ok(ConfigKind::PublishedPoints));
        assert_eq!(kind("[node]\n[control]"), Ok(ConfigKind::Machine));
        assert_eq!(kind("about = \"\"\nlauncher = \"srun\""), Err(UnknownKind));
        let told = UnknownKind.to_string();
        for (_, keys) in KEYS {
            assert!(keys.iter().any(|key| told.contains(key)), "{keys:?}");
        }
    }
}
