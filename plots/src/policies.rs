//! The names of the policies of simulated steps, and their order.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::Row;

/// The policies of all pictures.
pub(crate) struct Policies {
    /// The names in order, those with a coordinator first, as the others are compared with them.
    pub names: Vec<String>,
    /// The engines that each machine and policy was simulated with.
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

    /// A row's policy, with its engine if the policy was simulated with several engines.
    pub fn name(&self, row: &Row) -> String {
        let several = self.engines.get(&key(row)).is_some_and(|engines| engines.len() > 1);
        if several && !row.engine.is_empty() {
            format!("{} ({})", row.policy, row.engine)
        } else {
            row.policy.clone()
        }
    }
}

fn key(row: &Row) -> (String, String) {
    (row.machine.clone(), row.policy.clone())
}
