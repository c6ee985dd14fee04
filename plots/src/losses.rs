//! Where efficiency goes as simulated training scales: for each number of ranks the parts of a step that are not
//! computation, stacked down from perfect scaling to the efficiency. For trainings of one policy; a panel per workload.

use crate::axis::Axis;
use crate::breakdown::{LOOKS, entry, fill};
use crate::drawing::{Align, Drawing, HARD_SPACE, Text, text_width};
use crate::frame::Frame;
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Estimate, PARTS, Row, Rows};
use crate::selection::ranks_of;
use crate::training::{Panel, Training, Wanted};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "losses", sheets };

/// The width of a column, as a share of the room for it.
const COLUMN: f64 = 0.72;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.parts_us[0] > Some(0.0) && row.time_us.value > Some(0.0),
        columns: "time_us_p50 and part_compute_us (and no second policy)",
        ranks_min: 2,
        predictions: false,
    };
    let one_policy = |training: &Training| {
        training.panels.iter().all(|panel| panel.lines.len() == 1).then(|| draw(training))
    };
    Training::sheets(rows, view, &wanted, one_policy)
}

fn draw(training: &Training) -> Drawing {
    let mut page = Page::new(
        training.view,
        "Where efficiency is lost, by number of ranks",
        &finding(training),
    );
    let drawn = |part: &usize| training.selection.rows.iter().any(|row| share(row, *part) > 0.0);
    page.legend(&(1..PARTS.len()).filter(drawn).map(entry).collect::<Vec<_>>());
    let titles = training.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(130.0, 30.0, titles.len()),
        |drawing, index, frame| {
            draw_panel(&training.panels[index], drawing, frame);
        },
    );
    let note = "Efficiency: the share of computation in a step, that is, throughput over that of as \
                many ranks that train alone. Only exposed communication is shown. Slowest rank: its \
                excess over the mean.";
    page.finish(&training.caption(plain, vec![note.to_string()]))
}

fn plain(row: &Row) -> Estimate {
    Estimate { interval: None, ..row.time_us }
}

fn draw_panel(panel: &Panel, drawing: &mut Drawing, frame: Frame) {
    let rows = &panel.lines[0].rows;
    let least = rows.iter().map(|row| share(row, 0)).fold(1.0, f64::min);
    // Room for the numbers below the columns.
    let reach = (0.56 * (1.0 - least)).max(0.02);
    let y = Axis::around(1.0 - reach, reach, &[1.0], 8.0, (frame.bottom, frame.top));
    y.draw_left(drawing, frame, "efficiency");
    let room = (frame.right - frame.left) / rows.len() as f64;
    let width = COLUMN * room;
    let (mut free_from, mut numbers_from) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (index, row) in rows.iter().enumerate() {
        let middle = frame.left + (index as f64 + 0.5) * room;
        let mut from = 1.0;
        for part in 1..PARTS.len() {
            let to = from - share(row, part);
            let (top, bottom) = (y.at(from), y.at(to));
            if bottom > top {
                fill(drawing, part, [middle - width / 2.0, top, width, bottom - top]);
            }
            from = to;
        }
        let end = y.at(from);
        drawing.line(&[(middle - width / 2.0, end), (middle + width / 2.0, end)], theme::INK, 3.0);
        let words = theme::significant(from, 2);
        let half = text_width(&words, drawing.small(), false) / 2.0;
        if middle - half >= numbers_from {
            let text = Text::new(words, (middle, end + 24.0), drawing.small()).centered();
            drawing.text(Text { align: Align::Middle, ..text });
            numbers_from = middle + half + 4.0;
        }
        let label = theme::exact(ranks_of(row));
        let half = text_width(&label, theme::TICK, false) / 2.0;
        if middle - half >= free_from {
            let text = Text::new(label, (middle, frame.bottom + 40.0), theme::TICK);
            drawing.text(Text { align: Align::Middle, ..text });
            free_from = middle + half + 12.0;
        }
    }
    let at = ((frame.left + frame.right) / 2.0, frame.bottom + 92.0);
    drawing.text(Text { align: Align::Middle, ..Text::new("ranks", at, theme::BODY) });
    frame.draw(drawing);
}

/// A part of a step as a share of it.
fn share(row: &Row, part: usize) -> f64 {
    let time_us = row.time_us.value.unwrap_or(f64::INFINITY);
    row.parts_us[part].unwrap_or(0.0) / time_us
}

/// The finding of the picture in a sentence: the largest loss of the largest world.
fn finding(training: &Training) -> String {
    let Some(ranks) = training.selection.ranks().pop() else { return String::new() };
    let of = |panel: &Panel| {
        let row = panel.lines[0].at(ranks)?;
        let most = (1..PARTS.len()).max_by(|&a, &b| share(row, a).total_cmp(&share(row, b)))?;
        let lost = theme::significant(100.0 * (1.0 - share(row, 0)), 2);
        let part = theme::significant(100.0 * share(row, most), 2);
        let name = &panel.name;
        Some(format!("{name} {lost}{HARD_SPACE}%, of which {} {part}{HARD_SPACE}%", LOOKS[most].0))
    };
    let each: Vec<String> = training.panels.iter().filter_map(of).collect();
    format!("Lost on {} ranks: {}.", theme::exact(ranks), each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, policy};

    /// 400 of 500 ms are computation; 60 wait for the slowest rank and 40 are bandwidth.
    fn row(ranks: u32) -> synthetic::Row {
        let row = policy("vgg16", "bitvector", ranks).with("time_us_p50", "500000");
        let none = PARTS.iter().fold(row, |row, column| row.with(column, "0"));
        none.with("part_compute_us", "400000")
            .with("part_jitter_us", "60000")
            .with("part_bandwidth_us", "40000")
    }

    #[test]
    fn losses_are_stacked_down_from_perfect_scaling_to_the_efficiency() {
        let drawing = FIGURE.drawing(&[row(6), row(12)]);
        let heights = |part: usize| -> Vec<(f64, f64)> {
            let area = |mark: &Mark| match mark {
                Mark::Area { points, color } if *color == LOOKS[part].1 => {
                    let ys: Vec<f64> = points.iter().map(|point| point.1).collect();
                    let (top, bottom) = (
                        ys.iter().copied().fold(f64::INFINITY, f64::min),
                        ys.iter().copied().fold(0.0, f64::max),
                    );
                    Some((top, bottom - top))
                }
                _ => None,
            };
            drawing.marks.iter().filter_map(area).collect()
        };
        let (jitter, bandwidth) = (heights(1).pop().unwrap(), heights(5).pop().unwrap());
        assert!((jitter.1 / bandwidth.1 - 1.5).abs() < 1e-6, "{jitter:?} {bandwidth:?}");
        assert!((jitter.0 + jitter.1 - bandwidth.0).abs() < 1e-6, "one below the other");
        let said = drawing.prose();
        assert!(said.contains("on 12 ranks: vgg16 20 %, of which slowest rank 12 %."), "{said}");
        assert!(said.contains(" 0.80 ") && said.contains("SIMULATED on"), "{said}");
        assert!(!said.contains("negotiation"), "parts without time are not in the legend: {said}");
    }

    #[test]
    fn several_policies_are_left_to_the_breakdown() {
        let other = policy("vgg16", "ddp", 6);
        let why = FIGURE.refusal(&[row(6), row(12), other]);
        assert!(why.contains("and no second policy"), "{why}");
    }
}
