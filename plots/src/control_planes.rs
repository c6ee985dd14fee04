//! Time that control planes take of rank 0 per step, over the number of ranks, one line per plane.
//!
//! Solid lines are measured: the time of rank 0's state machine in a world that one thread drives.
//! Dashed lines are computed: time on a network with assumed parameters. They are never added up.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::{Assumed, Row, Rows};
use crate::selection::{self, Selection, ranks_of};
use crate::series::{Series, Value};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "control_planes", sheets };

const KIND: &str = "control";
/// The plane that the finding compares with the first one.
const BITS: &str = "bitvector";

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let selections = Selection::over_layouts(rows, KIND, |row| vec![row.control_plane.clone()]);
    if selections.is_empty() {
        let reason = format!("no row of kind `{KIND}`; run a sweep of control planes");
        return vec![Sheet::Skipped { reason }];
    }
    let pictures = selections.into_iter().filter_map(Picture::of);
    let drawn = pictures.map(|picture| (picture.selection.suffix.clone(), picture.draw(view)));
    Sheet::all(drawn.collect(), || selection::none_over_ranks(KIND, "rank0_us_p50"))
}

/// The planes of one picture.
struct Picture<'a> {
    selection: Selection<'a>,
    lines: Vec<Line<'a>>,
}

/// A plane and its rows, in the order of ranks.
struct Line<'a> {
    plane: String,
    rows: Vec<&'a Row>,
}

impl<'a> Picture<'a> {
    /// `None` if there are fewer than two numbers of ranks.
    fn of(mut selection: Selection<'a>) -> Option<Picture<'a>> {
        selection.require(|row| row.rank0_us.value > Some(0.0) && row.ranks > Some(0.0));
        if selection.ranks().len() < 2 {
            return None;
        }
        let mut planes = selection.control_planes();
        planes.sort_by_cached_key(|plane| sort_key(plane));
        let line = |plane: String| {
            let of_it = selection.rows.iter().copied().filter(|row| row.control_plane == plane);
            let mut rows: Vec<&Row> = of_it.collect();
            rows.sort_by(|a, b| ranks_of(a).total_cmp(&ranks_of(b)));
            Line { plane, rows }
        };
        let lines = planes.into_iter().map(line).collect();
        Some(Picture { selection, lines })
    }

    fn draw(&self, view: View) -> Drawing {
        let title = "Control plane time of rank 0 per step, by number of ranks";
        let mut page = Page::new(view, title, &self.finding());
        let planes = self.lines.iter().enumerate();
        let entries = planes.map(|(style, line)| Entry::series(style, &line.plane));
        page.legend(&entries.collect::<Vec<_>>());

        let rows = || self.selection.rows.iter();
        let ranks = self.selection.ranks();
        let measured = rows().flat_map(|row| row.rank0_us.ends());
        let times: Vec<f64> = measured.chain(rows().filter_map(|row| network(row))).collect();
        // Both panels have the same axes.
        let mut titles = vec!["time of rank 0, measured".to_string()];
        if rows().any(|row| network(row).is_some()) {
            titles.push("time on a network, assumed".to_string());
        }
        let shape = Shape { left: 180.0, right: 30.0, height: 800.0, is_elastic: true };
        panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
            let x = Axis::ranks(&ranks, frame.left, frame.right);
            let y = Axis::measured(&times, frame.bottom, frame.top);
            x.draw_below(drawing, frame, "ranks");
            y.draw_left(drawing, frame, "time per step (µs)");
            for (style, line) in self.lines.iter().enumerate() {
                match index {
                    0 => line.draw(drawing, style, &x, &y),
                    _ => line.draw_network(drawing, style, &x, &y),
                }
            }
            frame.draw(drawing);
        });
        let mut caption = Caption::of(&self.selection, |row| row.rank0_us, self.notes());
        caption.origin += " (solid) · network ASSUMED (dashed)";
        page.finish(&caption)
    }

    /// The assumed network, if all rows assume the same.
    fn network(&self) -> Option<Assumed> {
        let mut assumed = self.selection.rows.iter().map(|row| row.network_assumed);
        let first = assumed.next()??;
        assumed.all(|other| other == Some(first)).then_some(first)
    }

    /// The finding of the picture in a sentence.
    fn finding(&self) -> String {
        let Some((first, others)) = self.lines.split_first() else { return String::new() };
        let Some(row) = first.rows.last() else { return String::new() };
        let of = |line: &Line| {
            let same = line.rows.iter().find(|other| other.ranks == row.ranks)?;
            Some(format!("{} with {}", time(same.rank0_us.value?), line.plane))
        };
        let bits = others.iter().filter(|line| line.plane == BITS);
        let said: Vec<String> = [first].into_iter().chain(bits).filter_map(of).collect();
        let ranks = theme::exact(ranks_of(row));
        let said = said.join(", ");
        format!("At {ranks} ranks a step takes {said} of rank 0's time (measured).")
    }

    fn notes(&self) -> Vec<String> {
        let tensors = self.selection.rows.iter().filter_map(|row| row.tensors);
        let tensors = match tensors.reduce(f64::max) {
            Some(tensors) => format!("{} tensors, all", theme::tick(tensors)),
            None => "All tensors".to_string(),
        };
        vec![
            "Solid: time of rank 0's state machine per step once tensors are known. One thread \
             drives all ranks, nothing travels, and in large worlds the other ranks' state pushes \
             rank 0's out of the processor's cache, even where rank 0 does the same work."
                .to_string(),
            format!(
                "Dashed, hollow: computed, not measured, from sequential messages and the bytes that \
                 Horovod would send{}. Planes without a dashed line send nothing.",
                assumed_in_words(self.network())
            ),
            format!("{tensors} ready at once. Lines only join the points."),
        ]
    }
}

impl Line<'_> {
    /// Draws the measured time of rank 0.
    fn draw(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let value = |row: &&Row| Value::of(x.at(ranks_of(row)), y, row.rank0_us);
        Series::new(style, self.rows.iter().filter_map(value)).draw(drawing);
    }

    /// Draws the time on the assumed network.
    fn draw_network(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let place = |row: &&Row| Some((x.at(ranks_of(row)), y.at(network(row)?)));
        let path: Vec<Point> = self.rows.iter().filter_map(place).collect();
        for pair in path.windows(2) {
            drawing.dashes(pair[0], pair[1], theme::series(style), 3.0);
        }
        for at in path {
            theme::marker(drawing, style, at, theme::MARKER, true);
        }
    }
}

/// The assumed network, for the middle of a sentence.
fn assumed_in_words(assumed: Option<Assumed>) -> String {
    let Some(Assumed { alpha_us, message_us, bandwidth_gb_s }) = assumed else {
        return String::new();
    };
    let [alpha_us, gb_s] = [alpha_us, bandwidth_gb_s].map(theme::tick);
    let message = match message_us {
        Some(message_us) => format!(", {} µs a message", theme::tick(message_us)),
        None => String::new(),
    };
    format!(", with {alpha_us} µs latency{message} and {gb_s} GB/s")
}

/// A sort key: the coordinator first, as the others are compared with it; then by name, and by the
/// number after a colon.
fn sort_key(plane: &str) -> (bool, String, u64) {
    let (base, number) = plane.split_once(':').unwrap_or((plane, ""));
    (base != "coordinator", base.to_string(), number.parse().unwrap_or(0))
}

/// The time on the network, if it is more than zero.
fn network(row: &Row) -> Option<f64> {
    row.network_us.filter(|time| *time > 0.0)
}

/// A time in microseconds as text.
fn time(us: f64) -> String {
    if us >= 1e3 {
        format!("{} ms", theme::significant(us / 1e3, 3))
    } else {
        format!("{} µs", theme::significant(us, 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, control};

    const PLANES: [&str; 7] =
        ["tree:16", "coordinator", "tree:2", "tree:4", "bitvector", "tree:8", "ddp"];

    fn rows(planes: &[&str], ranks: &[u32]) -> Vec<synthetic::Row> {
        let of =
            |plane: &&str| ranks.iter().map(|&ranks| control(plane, ranks)).collect::<Vec<_>>();
        planes.iter().flat_map(of).collect()
    }

    #[test]
    fn measured_and_assumed_values_are_distinguished() {
        let said = FIGURE.words(&rows(&PLANES, &[6, 96, 768, 1536, 6000, 27600]));
        for expected in [
            "At 27\u{202f}600 ranks a step takes 88.9 ms with coordinator, 3.00 µs with bitvector of",
            "coordinator bitvector ddp tree:2 tree:4 tree:8 tree:16 time of rank 0, measured",
            " time on a network, assumed ",
            "would send, with 1.5 µs latency, 0.5 µs a message and 23 GB/s. Planes",
            "MEASURED (solid) · network ASSUMED (dashed)",
            "transport lockstep; 6 to 27600 ranks;",
            "161 tensors, all ready at once.",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
    }

    #[test]
    fn a_plane_that_sends_nothing_has_no_dashes() {
        let lines = |planes: &[&str]| {
            let marks = FIGURE.drawing(&rows(planes, &[6, 96, 768])).marks;
            let long = |points: &[Point]| points.len() == 3;
            let solid = marks
                .iter()
                .filter(|mark| matches!(mark, Mark::Line { points, .. } if long(points)));
            let of_series = |mark: &&Mark| matches!(mark, Mark::Line { points, color, .. } if points.len() == 2 && *color == theme::series(0));
            (solid.count(), marks.iter().filter(of_series).count())
        };
        let (solid, dashes) = lines(&["coordinator"]);
        assert!(solid == 1 && dashes > 20, "{solid} {dashes}");
        let (solid, without) = lines(&["ddp"]);
        assert_eq!(solid, 1);
        // The sign in the legend, and the bars of three intervals.
        assert_eq!(without, 1 + 3 * 3);
    }

    #[test]
    fn other_conditions_and_single_worlds_are_no_lines() {
        let mut all = rows(&PLANES, &[6, 6000]);
        for (column, value) in [
            ("workload", "bert_large"),
            ("ready_order", "shuffled"),
            ("cache_capacity", "0"),
            ("miss_share", "0.1"),
            ("invalid_share", "0.02"),
            ("transport", "threads"),
        ] {
            all.push(control("bitvector", 6000).with(column, value).with("rank0_us_p50", "1e9"));
        }
        let said = FIGURE.words(&all);
        assert!(said.contains("3.00 µs with bitvector"), "{said}");
        let sheets = (FIGURE.sheets)(&Rows::of(&synthetic::table(&all)), View::default());
        assert!(matches!(&sheets[..], [Sheet::Drawn { suffix, .. }] if suffix.is_empty()));
        let more = rows(&["ddp"], &[6, 96]);
        all.extend(more.iter().map(|row| row.with("miss_share", "0.5")));
        assert_eq!(FIGURE.drawings(&all).len(), 2);
    }

    #[test]
    fn wrong_rows_are_left_out_and_files_of_older_versions_have_none() {
        let mut all = rows(&["coordinator", "bitvector"], &[6, 96, 768]);
        all[5] = all[5].with("status", "wrong");
        assert!(FIGURE.words(&all).contains("1 case left out: 1 wrong (bitvector)."));
        let step = synthetic::step("ring", "coordinator", 64.0, 5.0);
        let reason = "no row of kind `control`; run a sweep of control planes";
        assert_eq!(FIGURE.refusal(&[step]), reason);
        let reason = "no rows of kind `control` with status ok have rank0_us_p50 for several \
                      numbers of ranks";
        assert_eq!(FIGURE.refusal(&[control("ddp", 6)]), reason);
    }
}
