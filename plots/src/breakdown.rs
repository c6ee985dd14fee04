//! The parts of a step's time in simulated training: stacked bars per policy for a few numbers of
//! ranks, a panel per workload.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::drawing::{Align, Drawing, HARD_SPACE, Text, text_width};
use crate::frame::Frame;
use crate::hatch::Hatch;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::{Estimate, PARTS, Row, Rows};
use crate::simulation::{Line, Panel, Simulation, Wanted};
use crate::speedup::near;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "breakdown", sheets };

/// Numbers of ranks to show besides the largest, if there are rows for about as many.
const SHOWN: [f64; 2] = [1536.0, 6000.0];

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.parts_us[0] > Some(0.0) && row.time_us.value > Some(0.0),
        columns: "time_us_p50 and part_compute_us",
        ranks_min: 1,
    };
    Simulation::sheets(rows, &wanted, |simulation| Some(draw(simulation)))
}

/// Slanted lines that distinguish a part from its neighbours without colour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Slant {
    None,
    Rising,
    Falling,
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

fn draw(simulation: &Simulation) -> Drawing {
    let title = "Where a training step's time goes, by policy";
    let ranks = shown(&simulation.selection.ranks());
    let mut page = Page::new(title, &finding(simulation, &ranks));
    let drawn = |part: &usize| {
        let rows = simulation.selection.rows.iter();
        rows.filter(|row| ranks.contains(&row.ranks.unwrap_or_default()))
            .any(|row| row.parts_us[*part] > Some(0.0))
    };
    page.legend(&(0..PARTS.len()).filter(drawn).map(entry).collect::<Vec<_>>());
    let bars: Vec<Vec<Group>> =
        simulation.panels.iter().map(|panel| Group::all(panel, &ranks)).collect();
    let height = bars.iter().map(|groups| groups.iter().map(Group::height).sum::<f64>());
    let height = height.fold(0.0, f64::max) + GROUP_GAP;
    let shape = Shape { left: 320.0, right: 110.0, height };
    panels::lay(&mut page, &simulation.titles(), shape, |drawing, index, frame| {
        draw_panel(&bars[index], drawing, frame);
    });
    let note = "Only exposed communication is shown. Slowest rank: its \
                excess over the others. Right: the step's time over that of its \
                compute. Panels have scales of their own; a bar longer than about twice the \
                compute is cut, with its whole time in the gap.";
    let bar = |row: &Row| Estimate { interval: None, ..row.time_us };
    page.finish(&simulation.caption_on(&ranks, bar, vec![note.to_string()]))
}

const BAR: f64 = 26.0;
const BAR_GAP: f64 = 9.0;
/// The height of a group's heading.
const HEADING: f64 = 50.0;
const GROUP_GAP: f64 = 14.0;
/// An axis ends at this many times the compute if bars are longer.
const COMPUTES_SHOWN: f64 = 2.0;
/// The length of a cut bar's end behind the gap.
const REST: f64 = 26.0;
/// The horizontal slope of a gap's ends to either side.
const SLOPE: f64 = 7.0;

/// The policies for one number of ranks.
struct Group<'a> {
    ranks: f64,
    bars: Vec<(&'a Line<'a>, &'a Row)>,
}

impl<'a> Group<'a> {
    fn all(panel: &'a Panel, ranks: &[f64]) -> Vec<Group<'a>> {
        let group = |ranks: f64| {
            let bars = panel.lines.iter().filter_map(|line| Some((line, line.at(ranks)?)));
            Group { ranks, bars: bars.collect() }
        };
        let groups = ranks.iter().copied().map(group);
        groups.filter(|group| !group.bars.is_empty()).collect()
    }

    fn height(&self) -> f64 {
        HEADING + self.bars.len() as f64 * (BAR + BAR_GAP)
    }
}

fn draw_panel(groups: &[Group], drawing: &mut Drawing, frame: Frame) {
    let rows = || groups.iter().flat_map(|group| group.bars.iter().map(|(_, row)| *row));
    let longest_ms = rows().map(time_ms).fold(0.0, f64::max);
    let compute_ms = rows().filter_map(|row| row.parts_us[0]).fold(0.0, f64::max) / 1e3;
    let end_ms = longest_ms.min(COMPUTES_SHOWN * compute_ms);
    let x = Axis::measured(&[0.0, end_ms], frame.left, frame.right);
    x.draw_below(drawing, frame, "step time (ms)");
    let mut top = frame.top;
    for group in groups {
        let middle = top + HEADING / 2.0;
        let count = theme::ranks(group.ranks);
        let heading = Text::new(count, (frame.left - 14.0, middle), theme::TICK);
        drawing.text(Text { align: Align::Right, bold: true, ..heading.centered() });
        top += HEADING;
        for (line, row) in &group.bars {
            let middle = top + BAR / 2.0;
            let name = Text::new(&line.policy, (frame.left - 14.0, middle), theme::SMALL);
            drawing.text(Text { align: Align::Right, ..name.centered() });
            draw_bar(row, &x, drawing, top);
            if !x.holds(time_ms(row)) {
                cut(drawing, time_ms(row), frame.right, top);
            }
            let over = row.time_us.value.zip(row.parts_us[0]).map(|(time, compute)| time / compute);
            let over = over.map_or(String::new(), |over| theme::significant(over, 3));
            let text = Text::new(format!("{over} ×"), (frame.right + 14.0, middle), theme::SMALL);
            drawing.text(Text { align: Align::Left, ..text.centered() });
            top += BAR + BAR_GAP;
        }
    }
    frame.draw(drawing);
}

/// Draws the parts of a row one after the other.
fn draw_bar(row: &Row, x: &Axis, drawing: &mut Drawing, top: f64) {
    let mut before_ms = 0.0;
    for (part, time_us) in row.parts_us.iter().enumerate() {
        let after_ms = before_ms + time_us.unwrap_or_default() / 1e3;
        let (left, right) = (x.at(before_ms), x.at(after_ms));
        if right > left {
            fill(drawing, part, [left, top, right - left, BAR]);
        }
        before_ms = after_ms;
    }
}

/// Draws a gap in a bar that is longer than the frame, with its time in the gap.
fn cut(drawing: &mut Drawing, time_ms: f64, right: f64, top: f64) {
    let words = format!("{} ms", theme::significant(time_ms, 3));
    let width = text_width(&words, theme::SMALL, true) + 2.0 * SLOPE + 12.0;
    let (from, to) = (right - REST - width, right - REST);
    let (above, below) = (top - 2.0, top + BAR + 2.0);
    let corners =
        [(from + SLOPE, above), (to + SLOPE, above), (to - SLOPE, below), (from - SLOPE, below)];
    drawing.area(&corners, theme::PAPER);
    for [start, end] in [[corners[0], corners[3]], [corners[1], corners[2]]] {
        drawing.line(&[start, end], theme::INK, 3.0);
    }
    let text = Text::new(words, ((from + to) / 2.0, top + BAR / 2.0), theme::SMALL);
    drawing.text(Text { bold: true, ..text.centered() });
}

fn time_ms(row: &Row) -> f64 {
    row.time_us.value.unwrap_or_default() / 1e3
}

pub(crate) fn fill(drawing: &mut Drawing, part: usize, rectangle: [f64; 4]) {
    let [left, top, width, height] = rectangle;
    let (_, color, slant) = LOOKS[part];
    drawing.rectangle(left, top, width, height, color);
    if slant != Slant::None {
        let falling = slant == Slant::Falling;
        Hatch { color: theme::INK, every: 12.0, width: 2.0, falling }.draw(drawing, rectangle);
    }
}

pub(crate) fn entry(part: usize) -> Entry<'static> {
    Entry {
        sign: Box::new(move |drawing, (x, y)| {
            fill(drawing, part, [x - 30.0, y - 15.0, 60.0, 30.0]);
        }),
        label: LOOKS[part].0.to_string(),
    }
}

/// The largest number of ranks and those of [`SHOWN`], or the largest three if there are none of
/// [`SHOWN`].
fn shown(ranks: &[f64]) -> Vec<f64> {
    let mut shown: Vec<f64> = SHOWN.iter().filter_map(|target| near(ranks, *target)).collect();
    shown.extend(ranks.last());
    shown.dedup();
    if shown.len() == 1 { ranks[ranks.len().saturating_sub(3)..].to_vec() } else { shown }
}

/// The finding of the picture in a sentence: the largest part except compute of the slowest policy.
fn finding(simulation: &Simulation, ranks: &[f64]) -> String {
    let Some(most) = ranks.last() else { return String::new() };
    let of = |panel: &Panel| {
        let rows = panel.lines.iter().filter_map(|line| Some((line, line.at(*most)?)));
        let time = |row: &Row| row.time_us.value.unwrap_or_default();
        let (line, row) = rows.max_by(|(_, a), (_, b)| time(a).total_cmp(&time(b)))?;
        let parts = row.parts_us.iter().enumerate().skip(1);
        let known = parts.filter_map(|(part, time_us)| Some((part, (*time_us)?)));
        let (part, part_us) = known.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let (share, word) = (theme::significant(100.0 * part_us / time(row), 2), LOOKS[part].0);
        Some(format!("{}, {share}{HARD_SPACE}% {word} ({})", panel.name, line.policy))
    };
    let each: Vec<String> = simulation.panels.iter().filter_map(of).collect();
    format!(
        "Largest part beside compute in the slowest step on {} ranks: {}.",
        theme::exact(*most),
        each.join("; ")
    )
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

    /// The compute is long, or bars would be cut.
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
            drawing.marks.iter().filter_map(area).next_back().expect("the part is drawn")
        };
        let (mut left, compute) = widths(0);
        let unit = compute / units(0) as f64;
        for part in 0..PARTS.len() {
            let (from, width) = widths(part);
            assert!((from - left).abs() < 1e-6, "{part} begins where the former ends");
            assert!((width - unit * units(part) as f64).abs() < 1e-6, "{part}: {width}");
            left = from + width;
        }
        let said = drawing.prose();
        assert!(said.contains("on 6 ranks: vgg16, 11 % reduction (ddp)."), "{said}");
        assert!(said.contains("6 ranks ddp 1.88 ×"), "{said}");
    }

    #[test]
    fn a_bar_beyond_twice_the_compute_is_cut_and_says_its_time() {
        let ended = |row: &synthetic::Row| {
            let drawing = FIGURE.drawing(&[policy("vgg16", "ddp", 6), row.clone()]);
            let areas = drawing.marks.iter().filter_map(|mark| match mark {
                Mark::Area { points, color } if *color == LOOKS[3].1 => Some(points[1].0),
                _ => None,
            });
            (areas.fold(0.0, f64::max), drawing.prose())
        };
        let slow = policy("vgg16", "horovod-coordinator", 6)
            .with("time_us_p50", "2900000")
            .with("part_compute_us", "290000")
            .with("part_negotiation_us", "2610000");
        let (end, said) = ended(&slow);
        assert!(said.contains(" horovod-coordinator 2900 ms 10.0 × ddp 1."), "{said}");
        let (further, said) = ended(&slow.with("time_us_p50", "5800000"));
        assert!(said.contains(" 5800 ms 20.0 ×"), "{said}");
        assert_eq!(end, further, "both end at the frame");
        let (shorter, said) =
            ended(&slow.with("time_us_p50", "570000").with("part_negotiation_us", "280000"));
        assert!(shorter < end && !said.contains("570 ms"), "{said}");
    }

    #[test]
    fn every_part_has_a_name_and_absent_parts_are_left_out() {
        let all = "compute slowest rank waiting for a cycle negotiation latency bandwidth \
                   contention reduction";
        assert!(FIGURE.words(&[row("ddp", 6)]).contains(all));
        let without = row("ddp", 6).with("part_cycle_us", "0").with("part_contention_us", "");
        assert!(
            FIGURE
                .words(&[without])
                .contains("slowest rank negotiation latency bandwidth reduction")
        );
    }

    #[test]
    fn the_largest_world_and_those_of_the_paper_are_shown() {
        assert_eq!(shown(&RANKS.map(f64::from)), [1536.0, 6000.0, 27600.0]);
        assert_eq!(shown(&[6.0, 1600.0, 5000.0, 6144.0]), [1600.0, 6144.0]);
        assert_eq!(shown(&[6.0, 12.0, 24.0, 48.0]), [12.0, 24.0, 48.0]);
        assert_eq!(shown(&[6.0]), [6.0]);
        let said = FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        assert!(!said.contains("3072 ranks"), "{said}");
        assert_eq!(
            said.matches("6000 ranks horovod-coordinator").count(),
            WORKLOADS.len(),
            "{said}"
        );
        assert!(said.contains("SIMULATED on machine file summit"), "{said}");
        let shown = "; 1536 ranks = 256 nodes × 6 and 6000 ranks = 1000 nodes × 6 and";
        assert!(said.contains(shown) && said.contains("Median without interval;"), "{said}");
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
        let reason = "no simulated rows of kind `step` with status ok have a policy and \
                      time_us_p50 and part_compute_us";
        assert_eq!(FIGURE.refusal(&[bare]), reason);
    }
}
