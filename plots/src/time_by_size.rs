//! The time of an allreduce over message size, one line per algorithm, on logarithmic axes.
//!
//! What an MPI or NCCL library does by itself is one of the lines. Each layout of ranks is a panel, and all panels have
//! the same axes.

use crate::axis::Axis;
use crate::line::{Line, Point};
use crate::relative::{Panel, Relative};
use crate::rows::{Row, Rows};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "time_by_size", sheets };

/// What libraries do by themselves, by name.
const OF_LIBRARIES: [&str; 2] = ["mpi-allreduce", "nccl-allreduce"];

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    TIME.sheets(rows, view)
}

static TIME: Relative = Relative {
    title: "Time of an allreduce by message size",
    of: |row: &Row| row.time_us.value.filter(|time_us| *time_us > 0.0),
    shown: |row, _| row.time_us,
    needed: "size_bytes and time_us_p50",
    least_lines: 1,
    axis: Axis::logarithmic,
    axis_title: "time (µs)",
    mark: None,
    finding,
    note: "Both axes are logarithmic.",
};

/// The algorithm is that of a library.
fn is_of_library(line: &Line) -> bool {
    let name = line.algorithm.split([',', ':']).next().unwrap_or_default();
    OF_LIBRARIES.contains(&name)
}

/// The finding of the picture in a sentence: how often a library's own is the fastest, else the fastest at the largest
/// size.
fn finding(panels: &[Panel]) -> String {
    let (mut all, mut of_library) = (0, 0);
    for panel in panels.iter().filter(|panel| has_both(panel)) {
        for size in sizes(panel) {
            let fastest = fastest(panel, size);
            all += 1;
            of_library += usize::from(fastest.is_some_and(|(line, _)| is_of_library(line)));
        }
    }
    if all > 0 {
        let names: Vec<&str> = panels
            .iter()
            .flat_map(|panel| &panel.lines)
            .filter(|line| is_of_library(line))
            .map(|line| line.algorithm.as_str())
            .collect();
        let name = names[0];
        return format!(
            "At {of_library} of {all} sizes the library's own ({name}) is the fastest, at the others one of ours."
        );
    }
    let Some(panel) = panels.last() else { return String::new() };
    let largest = sizes(panel).into_iter().next_back();
    let found = largest.and_then(|size| fastest(panel, size));
    found.map_or(String::new(), |(line, point)| {
        let (size, time) = (theme::bytes(point.size), theme::significant(point.value, 3));
        let on = match panel.layout.to_string() {
            layout if layout.is_empty() => layout,
            layout => format!(" on {layout}"),
        };
        format!("Fastest at {size}{on}: {} with {time} us.", line.algorithm)
    })
}

/// Whether a panel has a library's own and one of ours.
fn has_both(panel: &Panel) -> bool {
    panel.lines.iter().any(is_of_library) && !panel.lines.iter().all(is_of_library)
}

/// The sizes that both a library's own and one of ours have; without a library's own, all.
fn sizes(panel: &Panel) -> Vec<f64> {
    let of = |wanted: bool| {
        let lines = panel.lines.iter().filter(move |line| is_of_library(line) == wanted);
        let mut sizes: Vec<f64> =
            lines.flat_map(|line| &line.points).map(|point| point.size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    };
    let (own, of_libraries) = (of(false), of(true));
    match (own.is_empty(), of_libraries.is_empty()) {
        (_, true) => own,
        (true, _) => of_libraries,
        _ => own.into_iter().filter(|size| of_libraries.contains(size)).collect(),
    }
}

/// The line with the least time of a size, and its point.
fn fastest(panel: &Panel, size: f64) -> Option<(&Line, &Point)> {
    let lines = panel.lines.iter();
    let points = lines.flat_map(|line| line.points.iter().map(move |point| (line, point)));
    let of_size = points.filter(|(_, point)| point.size == size);
    of_size.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, message, step};

    fn row(algorithm: &str, size: f64, time: &str) -> synthetic::Row {
        let row = message("allreduce", algorithm, size).with("time_us_p50", time);
        row.with("time_us_p50_low", "").with("time_us_p50_high", "")
    }

    #[test]
    fn the_librarys_own_is_beside_ours() {
        let rows = [
            row("ring", 1024.0, "40"),
            row("mpi-allreduce", 1024.0, "12.5"),
            row("ring", 4096.0, "40"),
            row("mpi-allreduce", 4096.0, "500"),
            row("tree", 4096.0, "80"),
            row("tree", 8192.0, "80"),
        ];
        let words = FIGURE.words(&rows);
        let finding = "At 1 of 2 sizes the library's own (mpi-allreduce) is the fastest, at the others one of ours.";
        for expected in
            [finding, "time (µs)", "message size", "4 KiB", "100", "Both axes are logarithmic."]
        {
            assert!(words.contains(expected), "{words}\nexpected {expected}");
        }
    }

    #[test]
    fn without_it_the_fastest_at_the_largest_size_is_said() {
        let words = FIGURE.words(&[row("ring", 1024.0, "40"), row("tree", 1024.0, "12.5")]);
        assert!(
            words.contains("Fastest at 1 KiB on 4 ranks = 2 nodes × 2: tree with 12.5 us."),
            "{words}"
        );
    }

    /// As of a log of osu_allreduce, or a timeline.
    #[test]
    fn ranks_types_and_reductions_that_are_not_known_are_not_said() {
        let known = row("mpi-allreduce", 1024.0, "40");
        let unknown = ["ranks", "nodes"].iter().fold(known, |row, column| row.with(column, "0"));
        let words = ["dtype", "op"].iter().fold(unknown, |row, column| row.with(column, "unknown"));
        let words = FIGURE.words(&[words.with("local_size", "").with("oversubscribed", "false")]);
        assert!(words.contains("Fastest at 1 KiB: mpi-allreduce with 40.0 us."), "{words}");
        assert!(!words.contains("0 ranks") && !words.contains("nknown"), "{words}");
    }

    #[test]
    fn rows_without_times_and_other_kinds_are_refused_with_a_reason() {
        let reason = FIGURE.refusal(&[row("ring", 8.0, "")]);
        assert!(reason.contains("has status ok and size_bytes and time_us_p50"), "{reason}");
        let reason = FIGURE.refusal(&[step("ring", "coordinator", 64.0, 5.0)]);
        assert!(reason.starts_with("no row of kind `allreduce`;"), "{reason}");
    }
}
