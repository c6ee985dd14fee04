//! The names of the policies of training steps, and their order.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::Row;

/// The policies of all pictures.
pub(crate) struct Policies {
    /// The names in order, those with a coordinator first, as the others are compared with them.
    pub names: Vec<String>,
    by: By,
    /// The engines that each machine and policy was simulated with.
    engines: BTreeMap<(String, String), BTreeSet<String>>,
}

/// What distinguishes policies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Policy,
    ControlPlane,
    Algorithm,
}

impl Policies {
    /// The policies of measured steps: control planes, or algorithms if all steps have the same control plane.
    pub fn measured<'a>(rows: impl Iterator<Item = &'a Row>) -> Policies {
        let rows: Vec<&Row> = rows.filter(|row| row.status == "ok").collect();
        let planes: BTreeSet<&str> = rows.iter().map(|row| row.control_plane.as_str()).collect();
        let by = if planes.len() > 1 { By::ControlPlane } else { By::Algorithm };
        let mut policies = Policies { names: Vec::new(), by, engines: BTreeMap::new() };
        policies.names = in_order(rows.iter().map(|row| policies.name(row)).collect());
        policies
    }

    /// The policies of simulated steps.
    pub fn simulated<'a>(rows: impl Iterator<Item = &'a Row>) -> Policies {
        let rows: Vec<&Row> =
            rows.filter(|row| !row.policy.is_empty() && row.status == "ok").collect();
        let mut engines: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for row in &rows {
            engines.entry(key(row)).or_default().insert(row.engine.clone());
        }
        let mut policies = Policies { names: Vec::new(), by: By::Policy, engines };
        policies.names = in_order(rows.iter().map(|row| policies.name(row)).collect());
        policies
    }

    /// What a name stands for.
    pub fn noun(&self) -> &'static str {
        match self.by {
            By::Policy => "policy",
            By::ControlPlane => "control plane",
            By::Algorithm => "algorithm",
        }
    }

    /// A row's policy, with its engine if the policy was simulated with several engines.
    pub fn name(&self, row: &Row) -> String {
        match self.by {
            By::Policy => {}
            By::ControlPlane => return row.control_plane.clone(),
            By::Algorithm if matches!(row.groups.as_str(), "" | "0") => {
                return row.algorithm.clone();
            }
            By::Algorithm => return format!("{}, groups {}", row.algorithm, row.groups),
        }
        let several = self.engines.get(&key(row)).is_some_and(|engines| engines.len() > 1);
        if several && !row.engine.is_empty() {
            format!("{} ({})", row.policy, row.engine)
        } else {
            row.policy.clone()
        }
    }
}

fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_cached_key(|name| (!name.contains("coordinator"), name.clone()));
    names.dedup();
    names
}

fn key(row: &Row) -> (String, String) {
    (row.machine.clone(), row.policy.clone())
}
