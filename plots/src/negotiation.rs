//! Negotiation time and fused messages of a training step, over the cycle time.
//!
//! The left panel has the time that a step spends in negotiation, the right one the number of fused
//! messages. With a longer cycle time, negotiation is rarer and messages have more tensors. Both
//! depend on the control plane and the fusion threshold and little on the algorithm, so the rows of
//! one algorithm are shown.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Drawing, Point};
use crate::frame::Frame;
use crate::page::{Entry, Page, sign_ends};
use crate::panels::{self, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::selection::Selection;
use crate::series::{Series, Value};
use crate::view::View;
use crate::{Figure, Sheet, distinct, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "negotiation", sheets };

/// The algorithm to show if there are rows of it, otherwise the first by name.
const PREFERRED: &str = "ring";
/// The most thresholds to show, each with a line per control plane.
const THRESHOLDS: usize = 5;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    steps::sheets(rows, view, sheet)
}

fn sheet(mut selection: Selection, view: View) -> Sheet {
    selection.require(|row| {
        let measured = row.negotiation_us.value.is_some() || row.messages.value.is_some();
        measured && row.cycle_time_ms.is_some() && row.fusion_threshold_bytes.is_some()
    });
    let algorithms = selection.algorithms();
    let names: Vec<String> = selection.rows.iter().map(|row| algorithms.name(row)).collect();
    let preferred = names.iter().find(|name| *name == PREFERRED).or(names.iter().min());
    let Some(algorithm) = preferred else {
        let needed = "cycle_time_ms, fusion_threshold_bytes and one of negotiation_us_p50 and \
                      messages_p50";
        return Sheet::Skipped { reason: selection.nothing_to_draw("step", needed) };
    };
    let name = names.iter().position(|name| name == algorithm).map(|index| selection.rows[index]);
    let (word, groups) = name.map(|row| (&row.algorithm, &row.groups)).expect("it is a row's name");
    selection.restrict(|row| row.algorithm == *word && row.groups == *groups);

    let known = selection.rows.iter().filter_map(|row| row.fusion_threshold_bytes);
    let thresholds = distinct::ascending(known);
    let shown = spread(&thresholds, THRESHOLDS);
    let mut note = "Points of one cycle time stand side by side; lines, from three cycle times on, only join them.".to_string();
    if shown.len() < thresholds.len() {
        note = format!("{} of {} fusion thresholds shown. {note}", shown.len(), thresholds.len());
    }
    selection.restrict(|row| row.fusion_threshold_bytes.is_none_or(|value| shown.contains(&value)));
    let drawing = draw(view, algorithm, &shown, &selection, note);
    Sheet::Drawn { suffix: selection.suffix, drawing }
}

/// At most `count` of the values at even steps, including the first and the last.
fn spread(values: &[f64], count: usize) -> Vec<f64> {
    if values.len() <= count {
        return values.to_vec();
    }
    (0..count).map(|index| values[index * (values.len() - 1) / (count - 1)]).collect()
}

/// A control plane and a fusion threshold, both by their positions in the legend, and their rows in
/// the order of cycle times.
struct Line<'a> {
    plane: usize,
    threshold: usize,
    rows: Vec<&'a Row>,
}

fn draw(
    view: View,
    algorithm: &str,
    thresholds: &[f64],
    selection: &Selection,
    note: String,
) -> Drawing {
    let planes = selection.control_planes();
    let mut lines = Vec::new();
    for (plane, name) in planes.iter().enumerate() {
        for (threshold, bytes) in thresholds.iter().enumerate() {
            let mut rows = selection.rows.clone();
            rows.retain(|row| {
                row.control_plane == *name && row.fusion_threshold_bytes == Some(*bytes)
            });
            rows.sort_by(|a, b| cycle(a).total_cmp(&cycle(b)));
            lines.push(Line { plane, threshold, rows });
        }
    }

    let title = format!("Negotiation and fusion in a training step, by cycle time ({algorithm})");
    let mut page = Page::new(view, &title, &finding(&selection.rows));
    let mut entries: Vec<Entry> = Vec::new();
    for (index, threshold) in thresholds.iter().enumerate() {
        entries.push(Entry {
            sign: Box::new(move |drawing, at| {
                theme::marker(drawing, index, at, theme::MARKER, false);
            }),
            label: theme::threshold(*threshold),
        });
    }
    page.legend(&entries);
    let of_planes = planes.iter().enumerate().map(|(plane, name)| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| {
            join(drawing, &sign_ends(at), plane, theme::INK);
            theme::marker_in(drawing, 0, at, theme::MARKER, hollow(plane), theme::INK);
        }),
        label: name.clone(),
    });
    page.legend(&of_planes.collect::<Vec<_>>());

    let panels: [Panel; 2] = [
        Panel { title: "negotiation time per step (µs)", value: |row| row.negotiation_us },
        Panel { title: "fused messages per step", value: |row| row.messages },
    ];
    let shape = Shape { left: 160.0, right: 30.0, height: 760.0, is_elastic: true };
    let untitled = [const { String::new() }; 2];
    panels::lay(&mut page, &untitled, shape, |drawing, index, frame| {
        panels[index].draw(drawing, frame, &lines);
    });
    let drawn = |row: &Row| match row.negotiation_us.value {
        Some(_) => row.negotiation_us,
        None => row.messages,
    };
    page.finish(&Caption::of(selection, drawn, vec![note]))
}

/// One of the two quantities over the cycle time.
struct Panel {
    title: &'static str,
    value: fn(&Row) -> Estimate,
}

impl Panel {
    fn draw(&self, drawing: &mut Drawing, frame: Frame, lines: &[Line]) {
        let rows = || lines.iter().flat_map(|line| &line.rows);
        let cycles = distinct::ascending(rows().map(|row| cycle(row)));
        let values: Vec<f64> = rows().flat_map(|row| (self.value)(row).ends()).collect();
        // Between two cycle times a line says nothing, and there is room for points side by side.
        let is_joined = cycles.len() > 2;
        let inset = if is_joined { 0.0 } else { 0.18 * (frame.right - frame.left) };
        let x = Axis::factor(&cycles, frame.left + inset, frame.right - inset);
        let y = Axis::measured(&values, frame.bottom, frame.top);
        x.draw_below(drawing, frame, "cycle time (ms)");
        y.draw_left(drawing, frame, self.title);

        for (index, line) in lines.iter().enumerate() {
            // Lines have the same cycle times. Side by side, their intervals stay visible.
            let (room, most) = if is_joined { (40.0, 7.0) } else { (2.0 * inset, 40.0) };
            let apart = (room / lines.len() as f64).min(most);
            let aside = (index as f64 - (lines.len() - 1) as f64 / 2.0) * apart;
            let value = |row: &&Row| Value::of(x.at(cycle(row)) + aside, &y, (self.value)(row));
            let values = line.rows.iter().filter_map(value);
            let mut series = Series::new(line.threshold, values);
            series.hollow = hollow(line.plane);
            // They are side by side.
            series.radius = theme::MARKER;
            if is_joined {
                join(drawing, &series.path(), line.plane, theme::series(line.threshold));
            }
            series.draw_markers(drawing);
        }
        frame.draw(drawing);
    }
}

/// The finding of the picture in a sentence.
fn finding(rows: &[&Row]) -> String {
    let times = || rows.iter().filter_map(|row| Some((row, row.negotiation_us.value?)));
    let least = times().min_by(|(_, a), (_, b)| a.total_cmp(b));
    let most = times().max_by(|(_, a), (_, b)| a.total_cmp(b));
    let Some(((least_row, least), (most_row, most))) = least.zip(most) else {
        return "Negotiation times are not known.".to_string();
    };
    let setting = |row: &Row| {
        let threshold = row.fusion_threshold_bytes.map_or(String::new(), theme::threshold);
        format!("{}, {threshold}, {} ms", row.control_plane, theme::tick(cycle(row)))
    };
    let micros = |value: f64| format!("{} µs", theme::significant(value, 3));
    if least == most {
        return format!("Negotiation takes {} of a step.", micros(least));
    }
    format!(
        "Negotiation takes from {} ({}) to {} ({}) of a step.",
        micros(least),
        setting(least_row),
        micros(most),
        setting(most_row)
    )
}

fn cycle(row: &Row) -> f64 {
    row.cycle_time_ms.expect("the selection has no rows without a cycle time")
}

/// Whether a control plane has hollow markers and dashed lines. The first one has not.
fn hollow(plane: usize) -> bool {
    plane > 0
}

/// Draws the line of a control plane.
fn join(drawing: &mut Drawing, path: &[Point], plane: usize, color: RGBColor) {
    if hollow(plane) {
        path.windows(2).for_each(|pair| drawing.dashes(pair[0], pair[1], color, 3.0));
    } else {
        drawing.line(path, color, 3.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, grid, step};

    #[test]
    fn the_ring_is_shown_where_there_is_one_and_named() {
        let words =
            FIGURE.drawing(&grid(&["grouped", "ring", "tree"], &[0.0], &[1.0, 5.0])).words();
        assert!(words.contains("by cycle time (ring)"), "{words}");
        let words = FIGURE.drawing(&grid(&["tree", "grouped"], &[0.0], &[1.0, 5.0])).words();
        assert!(words.contains("by cycle time (grouped)"), "{words}");
    }

    #[test]
    fn only_what_the_shown_algorithm_leaves_out_is_counted() {
        let mut rows = grid(&["ring", "tree"], &[0.0], &[1.0, 5.0]);
        rows[0] = rows[0].with("status", "wrong");
        rows[7] = rows[7].with("status", "failed");
        assert!(FIGURE.drawing(&rows).words().contains("1 case left out: 1 wrong."));
    }

    #[test]
    fn thresholds_and_control_planes_are_in_the_legend() {
        let words = FIGURE.drawing(&grid(&["ring"], &[0.0, 64.0], &[1.0, 5.0])).words();
        assert!(words.contains("fusion off\n64 MiB\ncoordinator\nbitvector\n"), "{words}");
        assert!(words.contains("negotiation time per step (µs)\n"), "{words}");
        assert!(words.contains("fused messages per step\n"), "{words}");
        assert!(words.contains("cycle time (ms)\n"), "{words}");
    }

    #[test]
    fn only_some_of_many_thresholds_are_drawn_and_the_note_has_the_number() {
        let thresholds = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let words = FIGURE.drawing(&grid(&["ring"], &thresholds, &[1.0, 5.0])).words();
        assert!(words.contains("5 of 9 fusion thresholds shown."), "{words}");
        assert!(words.contains("fusion off\n2 MiB\n8 MiB\n32 MiB\n128 MiB\n"), "{words}");
        assert_eq!(spread(&thresholds[..2], 5), [0.0, 1.0]);
    }

    #[test]
    fn bars_are_drawn_where_there_are_intervals() {
        let strokes = |rows: &[synthetic::Row]| {
            let own = |mark: &&Mark| matches!(mark, Mark::Line { color, .. } if *color == theme::series(0));
            FIGURE.drawing(rows).marks.iter().filter(own).count()
        };
        let row = step("ring", "coordinator", 64.0, 5.0);
        let bare = row.with("messages_p50_low", "").with("negotiation_us_p50_high", "");
        assert_eq!(strokes(&[row]), strokes(&[bare]) + 2 * 3);
    }

    #[test]
    fn zeros_are_drawn_on_linear_axes() {
        let still = |row: synthetic::Row| {
            row.with("negotiation_us_p50", "0").with("negotiation_us_p50_low", "0")
        };
        let rows: Vec<_> = grid(&["ring"], &[0.0], &[0.0, 5.0]).into_iter().map(still).collect();
        let drawing = FIGURE.drawing(&rows);
        let on_page = |(x, y): &Point| {
            (0.0..=drawing.width).contains(x) && (0.0..=drawing.height).contains(y)
        };
        for mark in &drawing.marks {
            if let Mark::Line { points, .. } = mark {
                assert!(points.iter().all(on_page), "{points:?}");
            }
        }
        FIGURE.drawing(&rows[..1]);
    }

    #[test]
    fn rows_without_negotiation_are_refused_with_a_reason() {
        let row = step("ring", "coordinator", 64.0, 5.0).with("cycle_time_ms", "");
        assert_eq!(
            FIGURE.refusal(&[row]),
            "no row of kind `step` has status ok and cycle_time_ms, fusion_threshold_bytes and \
             one of negotiation_us_p50 and messages_p50; 1 case left out: 1 without a value"
        );
    }
}
