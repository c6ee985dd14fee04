//! What `kolo tune` wrote, for the figure of gains.

use std::fs;
use std::path::Path;

use anyhow::Result;
use plots::{Gains, Origin, Ratio};
use results::compare::Run;
use serde::Deserialize;

use super::super::usage;

/// The file that `kolo tune` writes.
pub const FILE: &str = "tune.json";

/// The parts of it that are read.
#[derive(Deserialize)]
struct Answer {
    workload: String,
    transport: String,
    topology: String,
    /// None if nothing is recommended.
    recommended: Option<Setting>,
    compared: Vec<Compared>,
}

#[derive(Deserialize)]
struct Setting {
    fusion_threshold_bytes: u64,
    cycle_time_ms: f64,
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
    /// Older promises have none.
    ratio: Option<f64>,
    low: f64,
    high: f64,
}

/// Reads the answer in a folder of results; none if there is no such file, or if it recommends nothing.
///
/// # Errors
/// When the file is not what `kolo tune` writes.
pub fn read(folder: &Path) -> Result<Option<Gains>> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let refuse = |why: String| usage(format!("{}: {why}; run kolo tune again", path.display()));
    let text = fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
    let answer: Answer = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let is_doubtful = Run::read(folder).is_ok_and(|run| run.is_doubtful);
    let Some(Setting { fusion_threshold_bytes, cycle_time_ms }) = answer.recommended else {
        return Ok(None);
    };
    let mib = fusion_threshold_bytes as f64 / f64::from(1 << 20);
    let other = |compared: Compared| {
        let Compared { name, ratio, promised } = compared;
        let interval = promised.as_ref().unwrap_or(&ratio);
        let value = ratio.ratio.unwrap_or((interval.low * interval.high).sqrt());
        Ratio { name, value, interval: Some((interval.low, interval.high)) }
    };
    Ok(Some(Gains {
        recommended: format!("{mib} MiB, {cycle_time_ms} ms"),
        others: answer.compared.into_iter().map(other).collect(),
        origin: Origin {
            is_doubtful,
            words: format!(
                "Workload {}; transport {}; topology {}.",
                answer.workload, answer.transport, answer.topology
            ),
        },
    }))
}
