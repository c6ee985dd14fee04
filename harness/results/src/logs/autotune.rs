//! The log of Horovod's autotuner (`HOROVOD_AUTOTUNE_LOG`, `horovod/common/parameter_manager.cc`): CSV with a header
//! that grew over the versions (`cache_enabled` since 0.17, `torus_allreduce` since 0.28). A score is bytes per
//! microsecond, the median of five samples. The last line repeats the best setting and its score if the tuner ended.

use super::Parsed;

/// The columns of every version.
const SCORE: [&str; 3] = ["cycle_time_ms", "tensor_fusion_threshold", "score"];

/// One setting that the tuner tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// The line, from 1.
    pub line: usize,
    /// Hierarchical allreduce.
    pub hierarchical_allreduce: bool,
    /// Torus allreduce, if the version has it.
    pub torus_allreduce: bool,
    /// The response cache; on in versions without the column.
    pub cache_enabled: bool,
    /// In milliseconds.
    pub cycle_time_ms: f64,
    /// In MiB.
    pub fusion_threshold_mib: f64,
    /// Bytes per microsecond.
    pub score: f64,
}

impl Trial {
    /// The setting in words.
    pub fn setting(&self) -> String {
        let Trial { fusion_threshold_mib, cycle_time_ms, .. } = self;
        format!("{fusion_threshold_mib} MiB, {cycle_time_ms} ms, {}", self.switches())
    }

    /// What is on and off, in words.
    pub fn switches(&self) -> String {
        let mut text = String::from(if self.cache_enabled { "cache on" } else { "cache off" });
        for (is_on, name) in
            [(self.hierarchical_allreduce, "hierarchical"), (self.torus_allreduce, "torus")]
        {
            if is_on {
                text += ", ";
                text += name;
            }
        }
        text
    }

    /// Microseconds for a million bytes.
    pub fn us_per_mb(&self) -> f64 {
        1e6 / self.score
    }
}

/// What was tried, and the tuner's answer: the last line if it repeats an earlier one; none if the tuner did not end.
pub fn answer(trials: &[Trial]) -> (&[Trial], Option<&Trial>) {
    let Some((last, earlier)) = trials.split_last() else { return (trials, None) };
    let is_repeated = |trial: &Trial| Trial { line: last.line, ..trial.clone() } == *last;
    match earlier.iter().any(is_repeated) {
        true => (earlier, Some(last)),
        false => (trials, None),
    }
}

/// Whether a text has the header of such a log.
pub fn is_autotune(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    SCORE.iter().all(|name| first.split(',').any(|column| column.trim() == *name))
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let last = text.lines().count();
    for (index, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 2;
        let words: Vec<&str> = line.split(',').map(str::trim).collect();
        let value = |name: &str| -> Option<f64> {
            let at = names.iter().position(|found| *found == name)?;
            words.get(at)?.parse().ok().filter(|value: &f64| value.is_finite())
        };
        let is_on = |name: &str, otherwise| value(name).map_or(otherwise, |value| value != 0.0);
        let [cycle, threshold, score] = SCORE.map(value);
        let is_last = number == last;
        match (cycle, threshold, score) {
            // Horovod ends every line; the score's last digits may be missing.
            (.., Some(_)) if is_last && words.len() == names.len() && !text.ends_with('\n') => {
                parsed.note(number, "the line has no end, so its score may be cut; it is left out");
            }
            (Some(cycle_time_ms), Some(fusion_threshold_mib), Some(score))
                if words.len() == names.len() && score > 0.0 =>
            {
                parsed.trials.push(Trial {
                    line: number,
                    hierarchical_allreduce: is_on("hierarchical_allreduce", false),
                    torus_allreduce: is_on("torus_allreduce", false),
                    cache_enabled: is_on("cache_enabled", true),
                    cycle_time_ms,
                    fusion_threshold_mib,
                    score,
                });
            }
            _ if is_last => parsed.note(number, "the line is cut; it is left out"),
            _ => {
                let (found, expected) = (words.len(), names.len());
                let what = format!(
                    "found {found} columns, expected {expected} numbers as in the header; the line is left out"
                );
                parsed.note(number, what);
            }
        }
    }
    if parsed.trials.is_empty() {
        parsed.note(1, "found a header alone: the tuner had no time for a first sample");
    }
    parsed
}
