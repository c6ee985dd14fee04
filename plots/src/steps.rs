//! Training steps that ran, distinguished by their settings.

use crate::Sheet;
use crate::rows::{Row, Rows};
use crate::selection::{self, Selection};

/// The settings that a picture distinguishes.
pub(crate) fn settings(row: &Row) -> Vec<String> {
    vec![
        row.algorithm.clone(),
        row.groups.clone(),
        row.control_plane.clone(),
        format!("{:?} {:?}", row.fusion_threshold_bytes, row.cycle_time_ms),
    ]
}

/// A sheet for each combination of conditions, or the reason why there is none.
pub(crate) fn sheets(rows: &Rows, sheet: fn(Selection) -> Sheet) -> Vec<Sheet> {
    let selections = Selection::of(rows, "step", settings);
    if selections.is_empty() {
        let reason = selection::none(rows, &["step"], "run a sweep of training steps");
        return vec![Sheet::Skipped { reason }];
    }
    selections.into_iter().map(sheet).collect()
}
