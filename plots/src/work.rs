//! The work of a rank in a simulated step. Each work has its own panel.

use crate::distinct;
use crate::rows::Row;
use crate::theme;

/// Workload, batch, and the times of forward pass, backward pass and optimizer of a row.
pub(crate) fn of(row: &Row) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), theme::plain);
    vec![
        row.workload.clone(),
        number(row.batch),
        number(row.forward_ms),
        number(row.backward_ms),
        number(row.optimizer_ms),
    ]
}

/// The distinct works in the order of their first row.
pub(crate) fn in_order<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<String>> {
    distinct::in_order(rows.map(of))
}

/// A panel's title, such as `resnet50, 64 samples per rank`, with the times of its parts if two works
/// would have the same title otherwise.
pub(crate) fn title(work: &[String], works: &[Vec<String>]) -> String {
    let alike = works.iter().filter(|other| other[..2] == work[..2]).count();
    let mut words = vec![work[0].clone()];
    if !work[1].is_empty() {
        let samples = if work[1] == "1" { "sample" } else { "samples" };
        words.push(format!("{} {samples} per rank", work[1]));
    }
    if alike > 1 {
        let parts = ["forward", "backward", "optimizer"].iter().zip(&work[2..]);
        let known = parts.filter(|(_, ms)| !ms.is_empty());
        words.extend(known.map(|(part, ms)| format!("{part} {ms} ms")));
    }
    words.retain(|word| !word.is_empty());
    words.join(", ")
}
