//! The engines that predicted the times of simulated allreduces, for captions.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::Row;

/// The engines of some rows in words. Of several engines, each has the names of its policies, except
/// the one that most policies have.
pub(crate) fn in_words(rows: &[&Row]) -> String {
    let mut policies: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.engine.is_empty()) {
        policies.entry(&row.engine).or_default().insert(&row.policy);
    }
    let most = policies.values().map(BTreeSet::len).max().unwrap_or_default();
    let several = policies.values().filter(|own| own.len() == most).count() > 1;
    let described = |(engine, own): (&str, BTreeSet<&str>)| {
        let usual = own.len() == most && !several;
        let names: Vec<&str> = own.into_iter().filter(|name| !name.is_empty()).collect();
        let colon = if usual || names.is_empty() { "" } else { ": " };
        let names = if usual { String::new() } else { names.join(", ") };
        (!usual, format!("{}{colon}{names}", described(engine)))
    };
    let mut described: Vec<(bool, String)> = policies.into_iter().map(described).collect();
    described.sort();
    let described: Vec<String> = described.into_iter().map(|(_, words)| words).collect();
    match described.as_slice() {
        [] => String::new(),
        [only] => format!("engine {only}"),
        all => format!("engines: {}", all.join("; ")),
    }
}

/// An engine's name and description.
fn described(engine: &str) -> String {
    match engine {
        "nccl" => "nccl (the model by which NCCL itself chooses)".to_string(),
        "rounds" => "rounds (our schedules in virtual time)".to_string(),
        "events" => "events (our schedules in virtual time, message by message)".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::selection::Selection;
    use crate::synthetic::{step, table};

    #[test]
    fn of_several_engines_those_of_few_policies_name_them() {
        let of = |named: &[(&str, &str)]| {
            let row = |(policy, engine): &(&str, &str)| {
                step("ring", "coordinator", 64.0, 5.0)
                    .with("source", "simulated")
                    .with("policy", policy)
                    .with("engine", engine)
            };
            let rows = Rows::of(&table(&named.iter().map(row).collect::<Vec<_>>()));
            let case = |row: &Row| vec![row.policy.clone(), row.engine.clone()];
            let selections = Selection::simulated(&rows, "step", |_| vec![], case);
            in_words(&selections[0].rows)
        };
        let rounds = "rounds (our schedules in virtual time)";
        let nccl = "nccl (the model by which NCCL itself chooses)";
        let ddp = ("ddp", "rounds");
        let most = of(&[ddp, ("byteps", "nccl"), ("tf", "rounds")]);
        assert_eq!(most, format!("engines: {rounds}; {nccl}: byteps"));
        let half = of(&[ddp, ("byteps", "nccl")]);
        assert_eq!(half, format!("engines: {nccl}: byteps; {rounds}: ddp"));
        assert_eq!(of(&[ddp]), format!("engine {rounds}"));
        assert_eq!(of(&[("ddp", "")]), "");
    }
}
