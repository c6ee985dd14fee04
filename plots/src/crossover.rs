//! The fastest algorithm of simulated allreduces, by message size and number of ranks.

use std::collections::{BTreeMap, BTreeSet};

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::distinct;
use crate::drawing::{Drawing, text_width};
use crate::frame::Frame;
use crate::hatch::{Hatch, Rectangle};
use crate::page::{Entry, Page};
use crate::panels;
use crate::rows::{Row, Rows};
use crate::selection::{Algorithms, Selection};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "crossover", sheets };

const KIND: &str = "allreduce";
/// The runner-up is close if it takes at most this many times the fastest time.
const CLOSE: f64 = 1.05;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let selections = Selection::simulated(rows, KIND, apart, |row| {
        let sizes = format!("{:?} {:?} {:?}", row.size_bytes, row.segment_bytes, row.packing_bytes);
        let layout = format!("{:?} {:?} {:?}", row.ranks, row.nodes, row.local_size);
        vec![row.algorithm.clone(), row.groups.clone(), sizes, layout]
    });
    let maps: Vec<Map> = selections.into_iter().filter_map(Map::of).collect();
    // An algorithm has the same colour and marker in every picture.
    let winners: BTreeSet<&String> = maps.iter().flat_map(Map::winners).collect();
    let styles: BTreeMap<String, usize> =
        winners.into_iter().cloned().enumerate().map(|(style, name)| (name, style)).collect();
    let drawn = maps.iter().map(|map| (map.selection.suffix.clone(), map.draw(view, &styles)));
    Sheet::all(drawn.collect(), || {
        format!(
            "no simulated rows of kind `{KIND}` with status ok have time_us_p50 for several sizes \
             and algorithms"
        )
    })
}

fn apart(row: &Row) -> Vec<&str> {
    vec![&row.machine, &row.engine, &row.dtype, &row.op]
}

/// The fastest algorithm for one size and number of ranks.
struct Cell {
    fastest: String,
    /// The runner-up if it is [`CLOSE`].
    close: Option<String>,
}

struct Map<'a> {
    selection: Selection<'a>,
    sizes: Vec<f64>,
    ranks: Vec<f64>,
    /// The cells by the indices of ranks and size.
    cells: BTreeMap<(usize, usize), Cell>,
}

impl<'a> Map<'a> {
    /// `None` if there are fewer than two sizes or algorithms.
    fn of(mut selection: Selection<'a>) -> Option<Map<'a>> {
        selection.require(|row| {
            row.time_us.value > Some(0.0) && row.size_bytes > Some(0.0) && row.ranks > Some(0.0)
        });
        selection.prefer_most_nodes();
        let sizes = distinct::ascending(selection.rows.iter().filter_map(|row| row.size_bytes));
        let ranks = selection.ranks();
        let names: BTreeSet<&String> = selection.rows.iter().map(|row| &row.algorithm).collect();
        if sizes.len() < 2 || names.len() < 2 {
            return None;
        }
        let mut cells = BTreeMap::new();
        let algorithms = selection.algorithms();
        for (y, world) in ranks.iter().enumerate() {
            for (x, size) in sizes.iter().enumerate() {
                let here = selection
                    .rows
                    .iter()
                    .copied()
                    .filter(|row| row.ranks == Some(*world) && row.size_bytes == Some(*size));
                cells.extend(Cell::of(&algorithms, here).map(|cell| ((y, x), cell)));
            }
        }
        Some(Map { selection, sizes, ranks, cells })
    }

    fn winners(&self) -> impl Iterator<Item = &String> {
        self.cells.values().map(|cell| &cell.fastest)
    }

    fn draw(&self, view: View, styles: &BTreeMap<String, usize>) -> Drawing {
        let title = "Fastest allreduce algorithm, by message size and number of ranks";
        let mut page = Page::new(view, title, &self.finding());
        page.legend(&self.entries(styles));
        let height = (72.0 * self.ranks.len() as f64).clamp(260.0, 1000.0);
        panels::single(&mut page, 190.0, height, |drawing, frame| {
            self.draw_cells(drawing, frame, styles);
        });
        page.finish(&Caption::of(&self.selection, |row| row.time_us, vec![self.note()]))
    }

    fn draw_cells(&self, drawing: &mut Drawing, frame: Frame, styles: &BTreeMap<String, usize>) {
        let wide = |label: &str| text_width(label, theme::TICK, false) + 16.0;
        let (x, columns) = Axis::cells(&self.sizes, theme::bytes, wide, frame.left, frame.right);
        let tall = |_: &str| theme::TICK + 8.0;
        let (y, rows) = Axis::cells(&self.ranks, theme::exact, tall, frame.bottom, frame.top);
        x.draw_below(drawing, frame, "message size");
        y.draw_left(drawing, frame, "ranks");
        for (row, (low, high)) in rows.iter().enumerate() {
            for (column, (from, to)) in columns.iter().enumerate() {
                let place = [*from, *high, to - from, low - high];
                match self.cells.get(&(row, column)) {
                    Some(cell) => cell.draw(drawing, styles, place),
                    None => Hatch::missing(drawing, place),
                }
            }
        }
        frame.draw(drawing);
    }

    fn entries(&self, styles: &BTreeMap<String, usize>) -> Vec<Entry<'static>> {
        const SIZE: Rectangle = [-30.0, -18.0, 60.0, 36.0];
        let around = |(x, y): (f64, f64)| [x + SIZE[0], y + SIZE[1], SIZE[2], SIZE[3]];
        let here: BTreeSet<&String> = self.winners().collect();
        let entry = |(name, style): (&String, &usize)| {
            let style = *style;
            Entry {
                sign: Box::new(move |drawing: &mut Drawing, at| {
                    paint(drawing, style, None, around(at));
                }),
                label: name.clone(),
            }
        };
        let known = styles.iter().filter(|(name, _)| here.contains(name));
        let mut entries: Vec<Entry> = known.map(entry).collect();
        if self.cells.values().any(|cell| cell.close.is_some()) {
            entries.push(Entry {
                sign: Box::new(move |drawing: &mut Drawing, at| {
                    let [left, top, width, height] = around(at);
                    drawing.rectangle(left, top, width, height, theme::SOFT);
                    stripes(drawing, theme::PAPER, around(at));
                }),
                label: "striped: the runner-up (stripes in its colour) is within 5 %".to_string(),
            });
        }
        if self.cells.len() < self.sizes.len() * self.ranks.len() {
            entries.push(Entry {
                sign: Box::new(move |drawing: &mut Drawing, at| {
                    Hatch::missing(drawing, around(at));
                }),
                label: "no value".to_string(),
            });
        }
        entries
    }

    /// The finding of the picture in a sentence.
    fn finding(&self) -> String {
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        self.winners().for_each(|name| *counts.entry(name).or_default() += 1);
        let mut counts: Vec<(&String, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} in {count}")).collect();
        let close = self.cells.values().filter(|cell| cell.close.is_some()).count();
        format!(
            "Of {}, fastest is {}; in {close} the runner-up is within 5 %.",
            theme::count(self.cells.len(), "case"),
            each.join(", ")
        )
    }

    fn note(&self) -> String {
        let winners: BTreeSet<&String> = self.winners().collect();
        let algorithms = self.selection.algorithms();
        let names: BTreeSet<String> =
            self.selection.rows.iter().map(|row| algorithms.name(row)).collect();
        let left_out = self.selection.left_out.iter().map(|(row, _)| algorithms.name(row));
        let left_out: BTreeSet<String> = left_out.filter(|name| !names.contains(name)).collect();
        let left_out: Vec<String> = left_out.into_iter().collect();
        let never: Vec<String> = names.into_iter().filter(|name| !winners.contains(name)).collect();
        match (never.as_slice(), left_out.as_slice()) {
            ([], []) => "Every algorithm is fastest somewhere.".to_string(),
            ([], none) => {
                format!("No result for: {}. Every other is fastest somewhere.", none.join(", "))
            }
            (never, []) => format!("Nowhere fastest: {}.", never.join(", ")),
            (never, none) => {
                format!(
                    "No result for: {}. Nowhere fastest: {}.",
                    none.join(", "),
                    never.join(", ")
                )
            }
        }
    }
}

impl Cell {
    /// The cell of the rows of one size and number of ranks. Each algorithm counts with its fastest
    /// setting.
    fn of<'a>(algorithms: &Algorithms, rows: impl Iterator<Item = &'a Row>) -> Option<Cell> {
        let mut best: BTreeMap<String, f64> = BTreeMap::new();
        for row in rows {
            let time_us = row.time_us.value?;
            let best = best.entry(algorithms.name(row)).or_insert(time_us);
            *best = best.min(time_us);
        }
        let mut best: Vec<(String, f64)> = best.into_iter().collect();
        best.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let mut best = best.into_iter();
        let (fastest, time_us) = best.next()?;
        let close = best.next().filter(|(_, second_us)| *second_us <= CLOSE * time_us);
        Some(Cell { fastest, close: close.map(|(name, _)| name) })
    }

    fn draw(&self, drawing: &mut Drawing, styles: &BTreeMap<String, usize>, place: Rectangle) {
        // A runner-up that is never fastest has no colour of its own.
        let stripes = self.close.as_ref().map(|name| styles.get(name).copied());
        paint(drawing, styles[&self.fastest], stripes, place);
    }
}

/// Draws a cell in an algorithm's colour with its marker, and stripes if the runner-up is close.
fn paint(drawing: &mut Drawing, style: usize, close: Option<Option<usize>>, place: Rectangle) {
    let [left, top, width, height] = place;
    let color = theme::series(style);
    drawing.rectangle(left, top, width, height, color);
    if let Some(runner_up) = close {
        stripes(drawing, runner_up.map_or(theme::PAPER, theme::series), place);
    }
    let center = (left + width / 2.0, top + height / 2.0);
    let radius = theme::MARKER.min(width / 5.0).min(height / 3.5);
    theme::marker_in(drawing, style, center, radius * 1.35, false, color);
    theme::marker_in(drawing, style, center, radius, false, theme::readable_on(color));
}

fn stripes(drawing: &mut Drawing, color: RGBColor, place: Rectangle) {
    let [left, top, width, height] = place;
    // Broad lines extend half their width beyond their ends.
    let place = [left + 3.0, top + 3.0, width - 6.0, height - 6.0];
    // White on either side, as two colours may be the same grey.
    for (color, width) in [(theme::PAPER, 9.0), (color, 5.0)] {
        Hatch { color, every: 22.0, width, falling: false }.draw(drawing, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, RANKS, allreduce, allreduces, message};

    const ALGORITHMS: [&str; 5] =
        ["ring", "hierarchical", "double-tree", "halving-doubling", "recursive-doubling"];

    fn row(algorithm: &str, ranks: u32, size: f64, time_us: &str) -> synthetic::Row {
        allreduce(algorithm, ranks, size).with("time_us_p50", time_us)
    }

    #[test]
    fn the_fastest_of_each_cell_wins_and_close_runners_up_are_counted() {
        let rows = [
            row("ring", 6, 1024.0, "100"),
            row("double-tree", 6, 1024.0, "95"),
            row("ring", 6, 2048.0, "100"),
            row("double-tree", 6, 2048.0, "105.1"),
            row("ring", 12, 1024.0, "100"),
            row("double-tree", 12, 1024.0, "105"),
            row("swing", 12, 1024.0, "900"),
        ];
        let said = FIGURE.words(&rows);
        let finding = "Of 3 cases, fastest is ring in 2, double-tree in 1; in 1 the runner-up is \
                       within 5 %. double-tree ring striped: the runner-up (stripes in its \
                       colour) is within 5 % no value 1 KiB 2 KiB message size";
        assert!(said.contains(finding), "{said}");
        assert!(said.contains("Nowhere fastest: swing."), "{said}");
        assert!(said.contains("SIMULATED on machine file summit · engine rounds"), "{said}");
        assert!(said.contains("Computed once per point, without interval."), "{said}");
        let whole = FIGURE.words(&rows[..4]);
        assert!(!whole.contains("no value") && !whole.contains("striped"), "{whole}");
    }

    #[test]
    fn of_an_algorithm_the_fastest_setting_counts_and_no_runner_up_is_itself() {
        let rows = [
            row("ring", 6, 1024.0, "100").with("segment_bytes", "0"),
            row("ring", 6, 1024.0, "101").with("segment_bytes", "65536"),
            row("double-tree", 6, 1024.0, "200"),
            row("double-tree", 6, 2048.0, "300"),
        ];
        let said = FIGURE.words(&rows);
        assert!(said.contains("double-tree in 1, ring in 1; in 0 the runner-up"), "{said}");
    }

    #[test]
    fn what_is_unsupported_or_measured_is_no_winner() {
        let rows = [
            row("ring", 6, 1024.0, "100"),
            row("ring", 6, 2048.0, "100"),
            row("double-tree", 6, 1024.0, "200"),
            row("swing", 6, 1024.0, "").with("status", "unsupported"),
            row("bine", 6, 1024.0, "1").with("source", "measured"),
        ];
        let said = FIGURE.words(&rows);
        assert!(said.contains("Of 2 cases, fastest is ring in 2; in 0"), "{said}");
        assert!(said.contains("No result for: swing. Nowhere fastest: double-tree."), "{said}");
        assert!(said.contains("1 case left out: 1 unsupported (swing)."), "{said}");
        assert!(!said.contains("bine"), "{said}");
        let said = FIGURE
            .words(&[&rows[..2], &[row("double-tree", 6, 2048.0, "50")], &rows[3..]].concat());
        assert!(said.contains("Every other is fastest somewhere."), "{said}");
    }

    #[test]
    fn machines_and_engines_are_pictures_of_their_own() {
        let rows = allreduces(&["ring", "double-tree"], &[6, 12], 10..14);
        let other = |column: &str, value: &str| {
            rows.iter().map(|row| row.with(column, value)).collect::<Vec<_>>()
        };
        let all = [rows.clone(), other("machine", "frontier"), other("engine", "nccl")].concat();
        let sheets = (FIGURE.sheets)(&Rows::of(&synthetic::table(&all)), View::default());
        let suffix = |sheet: &Sheet| match sheet {
            Sheet::Drawn { suffix, .. } => suffix.clone(),
            Sheet::Skipped { reason } => panic!("{reason}"),
        };
        let suffixes: Vec<String> = sheets.iter().map(suffix).collect();
        assert_eq!(suffixes, ["frontier_rounds", "summit_nccl", "summit_rounds"]);
    }

    #[test]
    fn large_maps_and_small_ones_fit() {
        FIGURE.words(&allreduces(&ALGORITHMS, &RANKS, 2..31));
        FIGURE.words(&allreduces(&ALGORITHMS, &RANKS[..1], 10..12));
        FIGURE.words(&allreduces(&ALGORITHMS, &RANKS, 10..12));
    }

    #[test]
    fn nothing_to_compare_is_refused() {
        let reason = "no simulated rows of kind `allreduce` with status ok have time_us_p50 for \
                      several sizes and algorithms";
        assert_eq!(FIGURE.refusal(&allreduces(&["ring"], &[6, 12], 10..14)), reason);
        assert_eq!(FIGURE.refusal(&[message("allreduce", "ring", 1024.0)]), reason);
    }
}
