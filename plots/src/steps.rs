//! Training steps that ran, distinguished by their settings.

use crate::rows::{Row, Rows};
use crate::selection::{self, Selection};
use crate::view::View;
use crate::{Sheet, defaults, theme};

/// The settings that a picture distinguishes.
pub(crate) fn settings(row: &Row) -> Vec<String> {
    vec![
        row.algorithm.clone(),
        row.groups.clone(),
        row.control_plane.clone(),
        format!("{:?} {:?}", row.fusion_threshold_bytes, row.cycle_time_ms),
    ]
}

/// The settings to look at: Horovod's defaults, if they were measured, and the fastest ones, the fastest first. At most
/// `most`.
pub(crate) fn notable<'a>(selection: &Selection<'a>, most: usize) -> Vec<&'a Row> {
    let timed = |row: &&Row| row.time_us.value > Some(0.0);
    let mut rows: Vec<&Row> = selection.rows.iter().copied().filter(timed).collect();
    let is_default = |row: &Row| {
        let setting = row.fusion_threshold_bytes.zip(row.cycle_time_ms);
        setting.is_some_and(defaults::is_one)
    };
    rows.sort_by(|a, b| a.time_us.value.partial_cmp(&b.time_us.value).expect("numbers"));
    // Of a default the fastest algorithm and control plane counts.
    let mut seen = Vec::new();
    let defaults = rows.iter().copied().filter(|row| {
        let setting = (row.fusion_threshold_bytes, row.cycle_time_ms);
        let is_first = is_default(row) && !seen.contains(&setting);
        seen.push(setting);
        is_first
    });
    let mut shown: Vec<&Row> = defaults.take(most).collect();
    for row in rows.iter().copied() {
        if shown.len() < most && !shown.iter().any(|other| std::ptr::eq(*other, row)) {
            shown.push(row);
        }
    }
    shown.sort_by(|a, b| a.time_us.value.partial_cmp(&b.time_us.value).expect("numbers"));
    shown
}

/// A setting in words, such as `ring, bitvector, 64 MiB, 5 ms`.
pub(crate) fn name(selection: &Selection, row: &Row) -> String {
    let mut words = vec![selection.algorithm(row), row.control_plane.clone()];
    words.extend(row.fusion_threshold_bytes.map(theme::threshold));
    words.extend(row.cycle_time_ms.map(|ms| format!("{} ms", theme::tick(ms))));
    words.retain(|word| !word.is_empty());
    words.join(", ")
}

/// A sheet for each combination of conditions, or the reason why there is none.
pub(crate) fn sheets(rows: &Rows, view: View, sheet: fn(Selection, View) -> Sheet) -> Vec<Sheet> {
    let selections = Selection::of(rows, "step", settings);
    if selections.is_empty() {
        let reason = selection::none(rows, &["step"], "run a sweep of training steps");
        return vec![Sheet::Skipped { reason }];
    }
    selections.into_iter().map(|selection| sheet(selection, view)).collect()
}
