//! configs/README.md has every key of every kind of file.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

/// The keys of a table: serde lists them when it meets another.
fn keys<T: DeserializeOwned>() -> Vec<String> {
    let error = match toml::from_str::<T>("no_such_key = 1") {
        Ok(_) => panic!("it has no such key"),
        Err(error) => error.message().to_string(),
    };
    let (_, expected) = error.split_once("expected ").unwrap_or_else(|| panic!("{error}"));
    let keys: Vec<String> = expected.split('`').skip(1).step_by(2).map(str::to_string).collect();
    assert!(!keys.is_empty(), "{error}");
    keys
}

/// Keys of `table` that its section of the page does not name, alone or behind the table's name.
fn missing<T: DeserializeOwned>(page: &str, section: &str, table: &str) -> Vec<String> {
    let heading = format!("\n## {section}\n");
    let (_, text) = page.split_once(&heading).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split_once("\n## ").map_or(text, |(text, _)| text);
    let is_named = |key: &String| {
        let spellings = [
            format!("`{key}`"),
            format!("`{table}.{key}`"),
            format!("`.{key}`"),
            format!("`[{key}]`"),
            format!("`[[{key}]]`"),
            // A table, whose keys are named.
            format!("`{key}."),
            format!("`{table}.{key}."),
        ];
        spellings.iter().any(|spelling| text.contains(spelling))
    };
    let keys = keys::<T>().into_iter().filter(|key| !is_named(key));
    keys.map(|key| format!("{section}: {table}.{key}")).collect()
}

#[test]
fn the_page_of_configurations_names_every_key() {
    use measure::config as steps;
    use measure::control_sweep::config as control;
    use simulator::{claims, config as simulated, jitter, network, policy, published};
    use tune::regret;
    use workloads::framework::Framework;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/README.md");
    let page = fs::read_to_string(path).unwrap();
    let page = page.as_str();
    let all = [
        missing::<steps::Config>(page, "Sweep", "sweep"),
        missing::<steps::Axes>(page, "Sweep", "sweep"),
        missing::<steps::Step>(page, "Sweep", "step"),
        missing::<steps::Host>(page, "Sweep", "host"),
        missing::<steps::Measure>(page, "Sweep", "measure"),
        missing::<Framework>(page, "Sweep", "framework"),
        missing::<control::Config>(page, "Control planes", "control"),
        missing::<control::Base>(page, "Control planes", "control.base"),
        missing::<control::Vary>(page, "Control planes", "control.vary"),
        missing::<control::Measure>(page, "Control planes", "measure"),
        missing::<network::Network>(page, "Control planes", "network"),
        missing::<simulated::Config>(page, "Simulated sweep", "simulate"),
        missing::<simulated::Simulate>(page, "Simulated sweep", "simulate"),
        missing::<jitter::Jitter>(page, "Simulated sweep", "jitter"),
        missing::<simulated::Model>(page, "Simulated sweep", "model"),
        missing::<policy::Policy>(page, "Simulated sweep", "policy"),
        missing::<simulated::Crossover>(page, "Simulated sweep", "crossover"),
        missing::<claims::Claim>(page, "Simulated sweep", "claim"),
        missing::<tune::space::Pins>(page, "Tuning", "tune"),
        missing::<regret::Config>(page, "Regret", "regret"),
        missing::<regret::Noise>(page, "Regret", "noise"),
        missing::<regret::Truth>(page, "Regret", "surface"),
        missing::<published::Series>(page, "Published points", "series"),
        missing::<published::LeftOut>(page, "Published points", "left_out"),
        missing::<published::AllReduce>(page, "Published points", "allreduce"),
        missing::<published::Training>(page, "Published points", "training"),
        missing::<simulator::machine_file::MachineFile>(page, "Machine files", "machine"),
        missing::<cluster::slurm::site::Site>(page, "Site files", "site"),
    ];
    assert_eq!(all.concat(), Vec::<String>::new());
}
