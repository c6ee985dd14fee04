//! What Horovod's autotuner tried, for its figure.

use std::path::Path;

use plots::{Trial, Trials};
use results::logs::autotune;

/// The trials of a log, and the tuner's answer if it ended.
pub fn of(path: &Path, tried: &[autotune::Trial], answer: Option<&autotune::Trial>) -> Trials {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Trials {
        name: file.into_owned(),
        tried: tried.iter().map(trial).collect(),
        answer: answer.map(trial),
    }
}

fn trial(trial: &autotune::Trial) -> Trial {
    Trial {
        fusion_threshold_mib: trial.fusion_threshold_mib,
        cycle_time_ms: trial.cycle_time_ms,
        switches: trial.switches(),
        us_per_mb: trial.us_per_mb(),
    }
}
