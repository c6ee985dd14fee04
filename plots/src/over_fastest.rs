//! The time of an allreduce over the shortest time at the same size, one line per algorithm.
//!
//! Times differ by orders of magnitude between sizes, ratios do not: at each size the fastest is at 1. What an MPI or
//! NCCL library does by itself is one of the lines. Each layout of ranks is a panel, and all panels have the same axes.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::relative::{Panel, Relative};
use crate::rows::{Estimate, Row, Rows};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "over_fastest", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    RATIO.sheets(rows, view)
}

static RATIO: Relative = Relative {
    title: "Time of an allreduce over the shortest, by message size",
    of: time_us,
    shown: ratio,
    needed: "size_bytes and time_us_p50 for several algorithms",
    // One algorithm alone is the fastest everywhere.
    least_lines: 2,
    axis: Axis::logarithmic,
    axis_title: "time over the shortest",
    mark: Some((1.0, "fastest", 120.0)),
    finding,
    note: "Each point is relative to the fastest algorithm at its size. Intervals are those of the time.",
};

fn time_us(row: &Row) -> Option<f64> {
    row.time_us.value.filter(|time| *time > 0.0)
}

/// A row's time in parts of the shortest, with the interval of its time.
fn ratio(row: &Row, shortest_us: f64) -> Estimate {
    Estimate {
        value: row.time_us.value.map(|time| time / shortest_us),
        interval: row.time_us.interval.map(|(low, high)| (low / shortest_us, high / shortest_us)),
    }
}

/// The finding of the picture in a sentence: of the algorithms with most points, the one that loses least.
fn finding(panels: &[Panel]) -> String {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        let ratios = line.points.iter().map(|point| point.value);
        all.entry(&line.algorithm).or_default().extend(ratios);
    }
    let most_points = all.values().map(Vec::len).max().unwrap_or(0);
    let whole = all.into_iter().filter(|(_, ratios)| ratios.len() == most_points);
    let worst = whole.map(|(name, ratios)| (name, ratios.into_iter().fold(1.0, f64::max)));
    let best = worst.min_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map_or(String::new(), |(algorithm, most)| {
        let most = theme::significant(most, 2);
        format!("{algorithm} takes at most {most} times as long as the fastest at any size.")
    })
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
    fn a_ratio_is_to_the_shortest_time_of_the_size() {
        let all = [
            row("ring", 1024.0, "30").with("time_us_p50_low", "20").with("time_us_p50_high", "40"),
            row("tree", 1024.0, "10"),
            row("tree", 2048.0, "90"),
        ];
        let rows = Rows::of(&synthetic::table(&all));
        let rows: Vec<&Row> = rows.of_kind("allreduce").collect();
        let found = ratio(rows[0], 10.0);
        assert_eq!(found, Estimate { value: Some(3.0), interval: Some((2.0, 4.0)) });
        assert_eq!(ratio(rows[2], 90.0).value, Some(1.0));
    }

    #[test]
    fn the_finding_names_the_algorithm_that_loses_least() {
        let words = FIGURE.words(&[
            row("ring", 1024.0, "40"),
            row("mpi-allreduce", 1024.0, "12.5"),
            row("tree", 1024.0, "10"),
            row("ring", 4096.0, "40"),
            row("mpi-allreduce", 4096.0, "50"),
            row("tree", 4096.0, "80"),
            row("swing", 4096.0, "40"),
        ]);
        let finding = "mpi-allreduce takes at most 1.3 times as long as the fastest at any size.";
        assert!(words.contains(finding), "{words}");
        for word in ["time over the shortest", "message size", "fastest", "4 KiB", "ring"] {
            assert!(words.contains(word), "{word} in {words}");
        }
    }

    #[test]
    fn layouts_are_panels_with_shortest_times_of_their_own() {
        let on = |ranks: &str, time: &str, algorithm: &str| {
            let row = row(algorithm, 1024.0, time).with("ranks", ranks);
            row.with("nodes", ranks).with("local_size", "1")
        };
        let rows = [
            on("2", "10", "ring"),
            on("2", "20", "tree"),
            on("4", "60", "ring"),
            on("4", "30", "tree"),
        ];
        let words = FIGURE.words(&rows);
        assert!(words.contains("2 ranks = 2 nodes × 1") && words.contains("4 ranks = 4 nodes × 1"));
        assert!(words.contains("takes at most 2.0 times as long"), "{words}");
    }

    #[test]
    fn starts_are_lines_of_their_own() {
        let of = |sync: &str, time: &str| row("ring", 1024.0, time).with("sync", sync);
        let words = FIGURE.words(&[of("barrier", "8"), of("round-time", "10")]);
        for word in ["ring, barrier", "ring, round-time"] {
            assert!(words.contains(word), "{word} in {words}");
        }
    }

    #[test]
    fn one_algorithm_and_training_steps_are_refused_with_a_reason() {
        let reason = FIGURE.refusal(&[row("ring", 8.0, "1"), row("ring", 16.0, "2")]);
        assert!(reason.contains("size_bytes and time_us_p50 for several algorithms"), "{reason}");
        let reason = FIGURE.refusal(&[step("ring", "coordinator", 64.0, 5.0)]);
        assert!(reason.starts_with("no row of kind `allreduce`;"), "{reason}");
    }
}
