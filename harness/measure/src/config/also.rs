//! Cases beside those of `[sweep]`.

use results::toml_file::{Invalid, not_empty};
use serde::{Deserialize, Serialize};

use super::Axes;

/// A table `[[also]]`: the axes of `[sweep]` with other values for these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "see `Axes`")]
pub struct Also {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion_threshold_mib: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_time_ms: Option<Vec<f64>>,
}

impl Also {
    /// The axes of its cases.
    pub(super) fn beside(&self, axes: &Axes) -> Axes {
        let Also { control_plane, algorithm, fusion_threshold_mib, cycle_time_ms } = self.clone();
        Axes {
            control_plane: control_plane.unwrap_or(axes.control_plane.clone()),
            algorithm: algorithm.unwrap_or(axes.algorithm.clone()),
            fusion_threshold_mib: fusion_threshold_mib.unwrap_or(axes.fusion_threshold_mib.clone()),
            cycle_time_ms: cycle_time_ms.unwrap_or(axes.cycle_time_ms.clone()),
            ..axes.clone()
        }
    }

    /// Some axis is given, and none without a value.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let lengths = [
            ("also.control_plane", self.control_plane.as_ref().map(Vec::len)),
            ("also.algorithm", self.algorithm.as_ref().map(Vec::len)),
            ("also.fusion_threshold_mib", self.fusion_threshold_mib.as_ref().map(Vec::len)),
            ("also.cycle_time_ms", self.cycle_time_ms.as_ref().map(Vec::len)),
        ];
        if lengths.iter().all(|(_, length)| length.is_none()) {
            let expected = "another list of control planes, algorithms, thresholds or cycle times";
            return Err(Invalid::value("also", "empty", expected));
        }
        lengths.iter().try_for_each(|(key, length)| not_empty(key, length.unwrap_or(1)))
    }
}
