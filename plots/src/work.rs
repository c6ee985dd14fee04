//! The work of a training step: of each rank, or with strong scaling of all ranks together. Each work has its own panel.

use crate::distinct;
use crate::rows::Row;
use crate::theme;

/// What stays the same on more ranks, of rows of training steps.
pub(crate) fn scaling(row: &Row) -> &'static str {
    match row.kind.as_str() {
        "step" if row.is_strong() => "strong scaling",
        "step" => "weak scaling",
        _ => "",
    }
}

/// Workload, batch, the times of forward pass, backward pass and optimizer of a row, and what stays the same on more ranks.
pub(crate) fn of(row: &Row) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or(String::new(), theme::plain);
    let [forward_ms, backward_ms] = row.passes_ms(row.is_strong());
    vec![
        row.workload.clone(),
        number(row.batch),
        number(forward_ms),
        number(backward_ms),
        number(row.optimizer_ms),
        scaling(row).to_string(),
    ]
}

/// The distinct works in the order of their first row.
pub(crate) fn in_order<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<String>> {
    distinct::in_order(rows.map(of))
}

/// A panel's title, such as `resnet50, 64 samples per rank`, with the times of its parts if two works
/// would have the same title otherwise.
pub(crate) fn title(work: &[String], works: &[Vec<String>]) -> String {
    let is_alike = |other: &&Vec<String>| (&other[..2], &other[5]) == (&work[..2], &work[5]);
    let alike = works.iter().filter(is_alike).count();
    let mut words = vec![work[0].clone()];
    if !work[1].is_empty() {
        let samples = if work[1] == "1" { "sample" } else { "samples" };
        words.push(format!("{} {samples} per rank", work[1]));
    }
    let is_strong = work[5].starts_with("strong");
    words.extend(is_strong.then(|| work[5].clone()));
    if alike > 1 {
        let parts = ["forward", "backward", "optimizer"].iter().zip(&work[2..5]);
        let known = parts.filter(|(_, ms)| !ms.is_empty());
        words.extend(known.map(|(part, ms)| format!("{part} {ms} ms")));
        words.extend(is_strong.then(|| "passes of all ranks together".to_string()));
    }
    words.retain(|word| !word.is_empty());
    words.join(", ")
}
