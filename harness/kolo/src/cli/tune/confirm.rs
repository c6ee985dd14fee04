//! `kolo tune --confirm`.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::super::{Exit, usage};
use tune::confirm::{Finding, read, verdict};
use tune::report::RECOMMENDED;

/// The parts of tune.json that are read.
#[derive(Deserialize)]
struct Promised {
    compared: Vec<Compared>,
}

#[derive(Deserialize)]
struct Compared {
    name: String,
    ratio: Interval,
    /// Older files have none.
    promised: Option<Interval>,
}

#[derive(Deserialize)]
struct Interval {
    low: f64,
    high: f64,
}

/// Compares the output of confirm.py with the promised gain.
pub fn run(printed: &Path, folder: Option<&Path>) -> Result<Exit> {
    let rows = read(printed).map_err(usage)?;
    let beside = printed.parent().unwrap_or(Path::new(""));
    let path = folder.unwrap_or(beside).join("tune.json");
    let refuse = |why: &dyn std::fmt::Display| {
        usage(format!(
            "{}: {why}; name the folder of kolo tune's results with --out",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| refuse(&error))?;
    let promised: Promised = serde_json::from_str(&text).map_err(|error| refuse(&error))?;
    let promised: Vec<(String, (f64, f64))> = promised
        .compared
        .into_iter()
        .map(|Compared { name, ratio, promised }| {
            let promised = promised.unwrap_or(ratio);
            (name, (promised.low, promised.high))
        })
        .filter(|(name, _)| rows.iter().any(|row| row.setting == *name))
        .collect();
    let comparisons = verdict(&rows, RECOMMENDED, &promised);
    comparisons.iter().for_each(|comparison| println!("{comparison}"));
    let findings = || comparisons.iter().filter_map(|comparison| comparison.finding);
    Ok(match findings().next() {
        None => Exit::Inconclusive,
        Some(_) if findings().any(|finding| finding == Finding::Contradicts) => Exit::Wrong,
        Some(_) if findings().all(|finding| finding == Finding::TooNoisy) => Exit::Inconclusive,
        Some(_) => Exit::Right,
    })
}
