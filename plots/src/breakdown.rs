//! The parts of a step's time: a stacked bar per policy, a panel per workload. Of simulated steps the
//! parts besides computation are shown, in percent of it, for one number of ranks; those of measured
//! steps are in `shares.rs`.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::drawing::{Align, Drawing, HARD_SPACE, Text, text_width};
use crate::frame::Frame;
use crate::look::{Look, Slant};
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::{Estimate, PARTS, Row, Rows};
use crate::speedup::near;
use crate::training::{Line, Panel, Training, Wanted};
use crate::view::View;
use crate::{Figure, Sheet, shares, theme, validation};

pub(crate) const FIGURE: Figure = Figure { name: "breakdown", sheets };

/// The number of ranks to show if there are rows for about as many, otherwise the largest: the most that results of
/// several policies were published for.
const SHOWN: f64 = 6000.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.parts_us[0] > Some(0.0) && row.time_us.value > Some(0.0),
        columns: "time_us_p50 and part_compute_us (simulated), or time_us_p50, bound_us and data_us_p50 (measured)",
        ranks_min: 1,
        predictions: false,
    };
    let sheets = Training::sheets(rows, view, &wanted, |training| Some(draw(training)));
    Sheet::either(sheets, shares::sheets(rows, view), "measured")
}

/// Name, colour and slanted lines of each part, in the order of [`PARTS`].
pub(crate) const LOOKS: [(&str, RGBColor, Slant); PARTS.len()] = [
    ("compute", RGBColor(214, 214, 214), Slant::None),
    ("slowest rank", RGBColor(50, 50, 50), Slant::None),
    ("waiting for a cycle", RGBColor(240, 228, 66), Slant::Rising),
    ("negotiation", RGBColor(213, 94, 0), Slant::None),
    ("latency", RGBColor(86, 180, 233), Slant::Falling),
    ("bandwidth", RGBColor(0, 114, 178), Slant::None),
    ("contention", RGBColor(204, 121, 167), Slant::Rising),
    ("reduction", RGBColor(0, 158, 115), Slant::Falling),
];

fn draw(training: &Training) -> Drawing {
    let ranks = shown(&training.selection.ranks());
    let title =
        format!("What a training step takes besides computation, on {}", theme::ranks(ranks));
    let mut page = Page::new(training.view, &title, &finding(training, ranks));
    let drawn = |part: &usize| {
        let rows = training.selection.rows.iter().filter(|row| row.ranks == Some(ranks));
        rows.clone().any(|row| row.parts_us[*part] > Some(0.0))
    };
    page.legend(&(1..PARTS.len()).filter(drawn).map(entry).collect::<Vec<_>>());
    let bars: Vec<Vec<Bar>> = training.panels.iter().map(|panel| Bar::all(panel, ranks)).collect();
    let most = bars.iter().map(Vec::len).max().unwrap_or_default();
    let height = most as f64 * (BAR + BAR_GAP) + BAR_GAP;
    let names = training.lines().map(|line| text_width(&line.policy, training.view.small(), false));
    let left = names.fold(100.0, f64::max) + 24.0;
    let shape = Shape { left, right: 160.0, height, is_elastic: false };
    panels::lay(&mut page, &training.titles(), shape, |drawing, index, frame| {
        draw_panel(&bars[index], drawing, frame);
    });
    let note = "Only exposed communication is shown. Slowest rank: its excess over the others. Right: the whole step. \
                Panels have scales of their own; a bar far longer than the others is cut, with its length in the gap.";
    let bar = |row: &Row| Estimate { interval: None, ..row.time_us };
    page.finish(&training.caption_on(&[ranks], bar, vec![note.to_string()]))
}

const BAR: f64 = 32.0;
const BAR_GAP: f64 = 14.0;
/// A bar is cut if it is longer than so many times the median bar.
const FAR: f64 = 4.0;
/// The length of a cut bar's end behind the gap.
const REST: f64 = 26.0;
/// The horizontal slope of a gap's ends to either side.
const SLOPE: f64 = 7.0;

/// A policy and its row for the number of ranks.
struct Bar<'a> {
    line: &'a Line<'a>,
    row: &'a Row,
}

impl<'a> Bar<'a> {
    fn all(panel: &'a Panel, ranks: f64) -> Vec<Bar<'a>> {
        let of = |line: &'a Line| Some(Bar { line, row: line.at(ranks)? });
        panel.lines.iter().filter_map(of).collect()
    }

    /// A part in percent of the computation.
    fn percent(&self, part: usize) -> f64 {
        let compute_us = self.row.parts_us[0].unwrap_or(f64::INFINITY);
        100.0 * self.row.parts_us[part].unwrap_or_default() / compute_us
    }

    /// All parts but the computation.
    fn length(&self) -> f64 {
        (1..PARTS.len()).map(|part| self.percent(part)).sum()
    }
}

fn draw_panel(bars: &[Bar], drawing: &mut Drawing, frame: Frame) {
    let lengths: Vec<f64> = bars.iter().map(Bar::length).collect();
    let most = FAR * validation::median(lengths.clone()).unwrap_or_default();
    let longest = |within: &dyn Fn(f64) -> bool| {
        lengths.iter().copied().filter(|length| within(*length)).fold(0.0, f64::max)
    };
    let whole = longest(&|length| length <= most);
    let has_cut = longest(&|_| true) > most;
    // A cut bar reaches beyond the others.
    let end = if has_cut { 1.6 * whole } else { whole };
    let x = Axis::measured(&[0.0, end], frame.left, frame.right);
    x.draw_below(drawing, frame, "% of the computation");
    let mut top = frame.top + BAR_GAP;
    for bar in bars {
        let (middle, length) = (top + BAR / 2.0, bar.length());
        let name = Text::new(&bar.line.policy, (frame.left - 14.0, middle), drawing.small());
        drawing.text(Text { align: Align::Right, ..name.centered() });
        draw_bar(bar, &x, drawing, top);
        if !x.holds(length) {
            cut(drawing, length, frame.right, top);
        }
        let time = bar.row.time_us.value.unwrap_or_default() / 1e3;
        let words = format!("{} ms", theme::significant(time, 3));
        let text = Text::new(words, (frame.right + 14.0, middle), drawing.small());
        drawing.text(Text { align: Align::Left, ..text.centered() });
        top += BAR + BAR_GAP;
    }
    frame.draw(drawing);
}

/// Draws the parts of a row one after the other.
fn draw_bar(bar: &Bar, x: &Axis, drawing: &mut Drawing, top: f64) {
    let mut before = 0.0;
    for part in 1..PARTS.len() {
        let after = before + bar.percent(part);
        let (left, right) = (x.at(before), x.at(after));
        if right > left {
            fill(drawing, part, [left, top, right - left, BAR]);
        }
        before = after;
    }
}

/// Draws a gap in a bar that is longer than the frame, with its length in the gap.
fn cut(drawing: &mut Drawing, percent: f64, right: f64, top: f64) {
    let words = format!("{} %", theme::significant(percent, 3));
    let width = text_width(&words, drawing.small(), true) + 2.0 * SLOPE + 12.0;
    let (from, to) = (right - REST - width, right - REST);
    let (above, below) = (top - 2.0, top + BAR + 2.0);
    let corners =
        [(from + SLOPE, above), (to + SLOPE, above), (to - SLOPE, below), (from - SLOPE, below)];
    drawing.area(&corners, theme::PAPER);
    for [start, end] in [[corners[0], corners[3]], [corners[1], corners[2]]] {
        drawing.line(&[start, end], theme::INK, 3.0);
    }
    let text = Text::new(words, ((from + to) / 2.0, top + BAR / 2.0), drawing.small());
    drawing.text(Text { bold: true, ..text.centered() });
}

pub(crate) fn fill(drawing: &mut Drawing, part: usize, rectangle: [f64; 4]) {
    let (_, color, slant) = LOOKS[part];
    Look { color, slant }.fill(drawing, rectangle);
}

pub(crate) fn entry(part: usize) -> Entry<'static> {
    let (label, color, slant) = LOOKS[part];
    Look { color, slant }.entry(label)
}

/// The number of ranks that is shown.
fn shown(ranks: &[f64]) -> f64 {
    near(ranks, SHOWN).or(ranks.last().copied()).unwrap_or_default()
}

/// The finding of the picture in a sentence: the largest part beside the computation of the slowest policy.
fn finding(training: &Training, ranks: f64) -> String {
    let of = |panel: &Panel| {
        let bars = Bar::all(panel, ranks);
        let bar = bars.iter().max_by(|a, b| a.length().total_cmp(&b.length()))?;
        let parts = 1..PARTS.len();
        let part = parts.max_by(|&a, &b| bar.percent(a).total_cmp(&bar.percent(b)))?;
        let (share, word) = (theme::significant(bar.percent(part), 2), LOOKS[part].0);
        Some(format!("{}, {word} {share}{HARD_SPACE}% ({})", panel.name, bar.line.policy))
    };
    let each: Vec<String> = training.panels.iter().filter_map(of).collect();
    format!("Largest part of the slowest step, in % of its computation: {}.", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, POLICIES, RANKS, WORKLOADS, policy, scaling};

    /// A step with parts of 400, 20, 30, 40 ... ms.
    fn row(name: &str, ranks: u32) -> synthetic::Row {
        let row = policy("vgg16", name, ranks).with("time_us_p50", "750000");
        let parts = PARTS.iter().enumerate();
        parts.fold(row, |row, (part, column)| row.with(column, &format!("{}", units(part) * 10000)))
    }

    fn units(part: usize) -> usize {
        if part == 0 { 40 } else { part + 1 }
    }

    #[test]
    fn a_bar_is_its_parts_one_after_the_other_in_proportion() {
        let drawing = FIGURE.drawing(&[row("ddp", 6)]);
        let widths = |part: usize| {
            let area = |mark: &Mark| match mark {
                Mark::Area { points, color } if *color == LOOKS[part].1 => {
                    Some((points[0].0, points[1].0 - points[0].0))
                }
                _ => None,
            };
            drawing.marks.iter().filter_map(area).next_back()
        };
        assert_eq!(widths(0), None, "the computation is not drawn");
        let (mut left, jitter) = widths(1).expect("it is drawn");
        let unit = jitter / units(1) as f64;
        for part in 1..PARTS.len() {
            let (from, width) = widths(part).expect("it is drawn");
            assert!((from - left).abs() < 1e-6, "{part} begins where the former ends");
            assert!((width - unit * units(part) as f64).abs() < 1e-6, "{part}: {width}");
            left = from + width;
        }
        let said = drawing.prose();
        assert!(said.contains("computation: vgg16, reduction 20 % (ddp)."), "{said}");
        assert!(said.contains(" ddp 750 ms "), "{said}");
    }

    #[test]
    fn a_bar_far_longer_than_the_others_is_cut_and_says_its_length() {
        let usual = ["ddp", "byteps", "horovod-bitvector"].map(|name| row(name, 6));
        let slow = row("horovod-coordinator", 6).with("part_negotiation_us", "8000000");
        let said = FIGURE.words(&[&usual[..], std::slice::from_ref(&slow)].concat());
        assert!(said.contains(" horovod-coordinator 2080 % 750 ms byteps 750 ms "), "{said}");
        let said = FIGURE.words(&usual);
        assert!(!said.contains("88.0 %") && !said.contains("88 %"), "none is cut: {said}");
    }

    #[test]
    fn every_part_has_a_name_and_absent_parts_are_left_out() {
        let all = "slowest rank waiting for a cycle negotiation latency bandwidth contention \
                   reduction";
        assert!(FIGURE.words(&[row("ddp", 6)]).contains(all));
        let without = row("ddp", 6).with("part_cycle_us", "0").with("part_contention_us", "");
        assert!(
            FIGURE
                .words(&[without])
                .contains("slowest rank negotiation latency bandwidth reduction")
        );
    }

    #[test]
    fn one_number_of_ranks_is_shown() {
        assert_eq!(shown(&RANKS.map(f64::from)), 6000.0);
        assert_eq!(shown(&[6.0, 1600.0, 6144.0, 27600.0]), 6144.0);
        assert_eq!(shown(&[6.0, 12.0, 24.0, 48.0]), 48.0);
        let said = FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        assert!(said.contains("besides computation, on 6000 ranks"), "{said}");
        assert_eq!(said.matches("horovod-bitvector").count(), WORKLOADS.len(), "{said}");
        assert!(said.contains("SIMULATED on machine file summit"), "{said}");
        assert!(said.contains("Median without interval;"), "{said}");
    }

    #[test]
    fn parts_differ_in_lightness_or_lines_too() {
        let light = |color: RGBColor| {
            0.3 * f64::from(color.0) + 0.59 * f64::from(color.1) + 0.11 * f64::from(color.2)
        };
        for (index, (word, one, slant)) in LOOKS.into_iter().enumerate() {
            for (other_word, other, other_slant) in &LOOKS[..index] {
                let apart = (light(one) - light(*other)).abs() > 25.0;
                assert!(slant != *other_slant || apart, "{word} and {other_word}");
            }
        }
    }

    #[test]
    fn steps_without_parts_are_refused() {
        let bare = row("ddp", 6).with("part_compute_us", "");
        let reason = "no rows of kind `step` with status ok have time_us_p50 and part_compute_us (simulated), or \
                      time_us_p50, bound_us and data_us_p50 (measured)";
        assert_eq!(FIGURE.refusal(&[bare]), reason);
    }
}
