//! How the policies of simulated steps are called, and in which order they come.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::Row;

/// The policies of all pictures.
pub(crate) struct Policies {
    /// By name, a coordinator's first, for it is what the others are compared with.
    pub names: Vec<String>,
    /// What each machine and policy was simulated with.
    engines: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Policies {
    pub fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Policies {
        let rows: Vec<&Row> =
            rows.filter(|row| !row.policy.is_empty() && row.status == "ok").collect();
        let mut engines: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for row in &rows {
            engines.entry(key(row)).or_default().insert(row.engine.clone());
        }
        let mut policies = Policies { names: Vec::new(), engines };
        let mut names: Vec<String> = rows.iter().map(|row| policies.name(row)).collect();
        names.sort_by_cached_key(|name| (!name.contains("coordinator"), name.clone()));
        names.dedup();
        policies.names = names;
        policies
    }

    /// A row's policy; with its engine where the policy was simulated with several.
    pub fn name(&self, row: &Row) -> String {
        let several = self.engines.get(&key(row)).is_some_and(|engines| engines.len() > 1);
        match several && !row.engine.is_empty() {
            true => format!("{} ({})", row.policy, row.engine),
            false => row.policy.clone(),
        }
    }
}

fn key(row: &Row) -> (String, String) {
    (row.machine.clone(), row.policy.clone())
}
