//! One parameter of a machine, with its source and range.

use serde::{Deserialize, Serialize};

use results::toml_file::Invalid;

/// Faster than any existing link, in 10^9 bytes per second: a wrong unit.
const MOST_GB_S: f64 = 1e5;

/// Slower than any existing latency, in microseconds.
const MOST_US: f64 = 1e6;

/// One number of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The value for simulations, in the unit of the key.
    pub value: f64,
    /// The lower end of its range; default: the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// It may be as high as this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// A document, a measurement, or `assumed` with the reason.
    pub source: String,
}

impl Parameter {
    /// True if it is neither measured nor documented.
    pub fn is_assumed(&self) -> bool {
        self.source.starts_with("assumed")
    }

    /// Checks the range of values, by the unit in the key.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub(crate) fn check(&self, key: &str) -> Result<(), Invalid> {
        let (most, unit) = match key.rsplit_once('_') {
            _ if key == "interference.gpu_gb_s" => (MOST_GB_S, "GB/s (10^9 bytes per second)"),
            _ if key == "interference.messages" => (10.0, "of the messages' time"),
            _ if key.starts_with("interference.") => (10.0, "of the computation's time"),
            _ if key == "congestion.longer" => (100.0, "of a message's time"),
            _ if key.ends_with("per_partner") => (10.0, "of a byte's time"),
            _ if key.ends_with("announced_from_bytes") => (1e12, "bytes"),
            _ if key.ends_with("behind_data") => (1.0, "of the data under way"),
            _ if key.ends_with("correlation") => (0.999, "of the deviation in the step before"),
            _ if key.ends_with("per_second") => (1e6, "per second"),
            // Minutes, not milliseconds.
            _ if key.ends_with("duration_us") => (1e9, "microseconds"),
            _ if key.ends_with("samples_s") => (1e9, "samples per second"),
            _ if key.ends_with("gb_s") => (MOST_GB_S, "GB/s (10^9 bytes per second)"),
            Some((_, "us")) => (MOST_US, "microseconds"),
            Some((_, "ns")) => (1e9, "nanoseconds"),
            Some((_, "cv")) => (1.0, "of the mean"),
            _ => (1e3, "channels"),
        };
        let is_share = key.starts_with("interference.") && !unit.starts_with("GB/s");
        let least = match unit {
            "channels" | "samples per second" => 1e-6,
            _ if key.ends_with("gb_s") && !is_share => 1e-6,
            _ => 0.0,
        };
        let Parameter { value, low, high, source } = self;
        for found in [Some(*value), *low, *high].into_iter().flatten() {
            if !(least..=most).contains(&found) {
                let hint = if found > most { "is that another unit?" } else { "" };
                let expected = format!("{least} to {most} {unit}");
                return Err(Invalid::value(key, found, expected).with_advice(hint));
            }
        }
        let (low, high) = (low.unwrap_or(*value), high.unwrap_or(*value));
        if !(low..=high).contains(value) {
            let expected = format!("a value between its low {low} and high {high}");
            return Err(Invalid::value(key, value, expected));
        }
        if source.trim().is_empty() {
            let key = format!("{key}.source");
            Err(Invalid::value(key, "empty", "where the value comes from, or \"assumed: why\""))
        } else {
            Ok(())
        }
    }
}
