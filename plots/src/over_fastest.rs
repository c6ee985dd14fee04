//! The time of an allreduce over the shortest time at the same size, one line per algorithm.
//!
//! Times differ by orders of magnitude between sizes, ratios do not: at each size the fastest is at 1. What an MPI or
//! NCCL library does by itself is one of the lines. Each layout of ranks is a panel, and all panels have the same axes.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Text};
use crate::frame::Frame;
use crate::layout::Layout;
use crate::line::{self, Line, Point};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::selection::{self, Selection};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "over_fastest", sheets };

/// Rows of steps have times, too.
const KIND: &str = "allreduce";

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let mut pictures: Vec<Picture> =
        Selection::over_layouts(rows, KIND, line::case).into_iter().map(Picture::of).collect();
    if pictures.is_empty() {
        let reason = selection::none(rows, &[KIND], "`kolo bench --out FILE` writes them");
        return vec![Sheet::Skipped { reason }];
    }
    let panels = pictures.iter_mut().flat_map(|picture| &mut picture.panels);
    Line::style(panels.flat_map(|panel| &mut panel.lines));
    pictures.into_iter().map(|picture| picture.sheet(view)).collect()
}

fn time(row: &Row) -> Estimate {
    row.time_us
}

/// The shortest time of a layout at each size, in microseconds.
fn shortest(rows: &[&Row]) -> BTreeMap<u64, f64> {
    let mut shortest: BTreeMap<u64, f64> = BTreeMap::new();
    for row in rows {
        if let Some(Point { size, value, .. }) = Point::of(row, time) {
            let time = shortest.entry(size as u64).or_insert(value);
            *time = time.min(value);
        }
    }
    shortest
}

/// A row's time in parts of the shortest, with the interval of its time.
fn ratio(row: &Row, shortest: &BTreeMap<u64, f64>) -> Estimate {
    let least = row.size_bytes.and_then(|size| shortest.get(&(size as u64))).copied();
    let ratio = |time: f64| Some(time / least.filter(|least| *least > 0.0)?);
    Estimate {
        value: row.time_us.value.and_then(ratio),
        interval: row.time_us.interval.and_then(|(low, high)| ratio(low).zip(ratio(high))),
    }
}

/// The content of one sheet.
struct Picture<'a> {
    selection: Selection<'a>,
    panels: Vec<Panel>,
}

/// The lines of one layout of ranks.
struct Panel {
    layout: Layout,
    lines: Vec<Line>,
}

impl<'a> Picture<'a> {
    fn of(mut selection: Selection<'a>) -> Picture<'a> {
        selection.require(|row| Point::of(row, time).is_some());
        selection.prefer_in_place();
        let mut layouts: BTreeMap<Layout, Vec<&Row>> = BTreeMap::new();
        for row in &selection.rows {
            layouts.entry(Layout::of(row)).or_default().push(row);
        }
        let panel = |(layout, rows): (Layout, Vec<&Row>)| {
            let shortest = shortest(&rows);
            let lines = Line::all(&selection, &rows, |row| ratio(row, &shortest));
            Panel { layout, lines }
        };
        // One algorithm alone is the fastest everywhere.
        let panels = layouts.into_iter().map(panel).filter(|panel| panel.lines.len() > 1).collect();
        Picture { selection, panels }
    }

    fn sheet(self, view: View) -> Sheet {
        if self.panels.is_empty() {
            let needed = "size_bytes and time_us_p50 for several algorithms";
            return Sheet::Skipped { reason: self.selection.nothing_to_draw(KIND, needed) };
        }
        let drawing = self.draw(view);
        Sheet::Drawn { suffix: self.selection.suffix, drawing }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.panels.iter().flat_map(|panel| &panel.lines)
    }

    fn draw(&self, view: View) -> Drawing {
        let mut page = Page::new(
            view,
            "Time of an allreduce over the shortest, by message size",
            &self.finding(),
        );
        Line::legend(&mut page, self.lines());
        let points = || self.lines().flat_map(|line| &line.points);
        let sizes: Vec<f64> = points().map(|point| point.size).collect();
        let ratios: Vec<f64> = points().flat_map(Point::span).collect();
        let titles: Vec<String> = match self.panels.as_slice() {
            [_] => vec![String::new()],
            panels => panels.iter().map(|panel| panel.layout.to_string()).collect(),
        };
        panels::lay(
            &mut page,
            &titles,
            Shape::usual(LEFT, RIGHT, titles.len()),
            |drawing, index, frame| {
                let x = Axis::bytes(&sizes, frame.left, frame.right);
                let y = Axis::logarithmic(&ratios, frame.bottom, frame.top);
                self.panels[index].draw(drawing, frame, &x, &y);
            },
        );
        let fastest = "Each point is relative to the fastest algorithm at its size. Intervals are those of the \
                       time.";
        let notes = vec![fastest.to_string(), line::note(&self.selection)];
        page.finish(&Caption::of(&self.selection, time, notes))
    }

    /// The finding of the picture in a sentence: of the algorithms with most points, the one that loses least.
    fn finding(&self) -> String {
        let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for line in self.lines() {
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
}

/// Room for the labels of the ratios, in pixels.
const LEFT: f64 = 140.0;
/// Room for the word at 1, in pixels.
const RIGHT: f64 = 120.0;

impl Panel {
    fn draw(&self, drawing: &mut Drawing, frame: Frame, x: &Axis, y: &Axis) {
        let Frame { left, right, .. } = frame;
        x.draw_below(drawing, frame, "message size");
        y.draw_left(drawing, frame, "time over the shortest");
        let fastest = y.at(1.0);
        drawing.dashes((left, fastest), (right, fastest), theme::INK, 3.0);
        let word = Text::new("fastest", (0.0, fastest), theme::TICK).centered();
        drawing.text(Text { align: Align::Left, at: (right + 14.0, word.at.1), ..word });
        for line in &self.lines {
            line.draw(drawing, x, y);
        }
        frame.draw(drawing);
    }
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
        let shortest = shortest(&rows);
        let found = ratio(rows[0], &shortest);
        assert_eq!(found, Estimate { value: Some(3.0), interval: Some((2.0, 4.0)) });
        assert_eq!(ratio(rows[2], &shortest).value, Some(1.0));
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
    fn one_algorithm_and_training_steps_are_refused_with_a_reason() {
        let reason = FIGURE.refusal(&[row("ring", 8.0, "1"), row("ring", 16.0, "2")]);
        assert!(reason.contains("size_bytes and time_us_p50 for several algorithms"), "{reason}");
        let reason = FIGURE.refusal(&[step("ring", "coordinator", 64.0, 5.0)]);
        assert!(reason.starts_with("no row of kind `allreduce`;"), "{reason}");
    }
}
