//! The parts of a measured step's time as shares of it, two bars for each policy and number of ranks.
//!
//! The upper bar is the step: computation, and communication that computation does not hide. The lower bar is what the
//! communication thread did in the meantime. Rows do not say which of its parts were hidden, so the two are not mixed.
//!
//! The thread waits for a cycle while gradients are ready and it sleeps until the next one. The time that a gradient waits
//! is no part of the bar: it is a mean over gradients, which wait at the same time, and while the thread is busy with earlier
//! ones. The finding names it.

use crate::Sheet;
use crate::axis::Axis;
use crate::drawing::{Align, Drawing, HARD_SPACE, Text};
use crate::frame::Frame;
use crate::look::{Look, Slant};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::theme;
use crate::training::{Panel, Training, Wanted};
use crate::view::View;

/// A picture of measured steps whose rows have a bound and the time in allreduces.
pub(crate) fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| {
            let known = row.bound_us.is_some() && row.data_us.is_some();
            !row.is_simulated() && row.time_us.value > Some(0.0) && known
        },
        columns: "a measured time_us_p50, bound_us and data_us_p50",
        ranks_min: 1,
        predictions: false,
    };
    Training::sheets(rows, view, &wanted, |training| Some(draw(training)))
}

/// A part of a step.
struct Part {
    name: &'static str,
    look: Look,
    time_us: fn(&Row) -> f64,
}

/// The parts of the step itself, which add up to it.
const STEP: [Part; 2] = [
    Part {
        name: "computation",
        look: Look::new((214, 214, 214), Slant::None),
        time_us: |row| step_us(row) - exposed_us(row),
    },
    Part {
        name: "communication not hidden by it",
        look: Look::new((50, 50, 50), Slant::None),
        time_us: exposed_us,
    },
];

/// What the communication thread did. An allreduce is divided where its reduction is timed apart.
const THREAD: [Part; 8] = [
    Part {
        name: "transfer",
        look: Look::new((0, 114, 178), Slant::None),
        time_us: |row| {
            row.reduction_us
                .map_or(0.0, |reduction_us| (in_allreduce_us(row) - reduction_us).max(0.0))
        },
    },
    Part {
        name: "reduction",
        look: Look::new((204, 121, 167), Slant::None),
        time_us: |row| row.reduction_us.unwrap_or_default(),
    },
    Part {
        name: "allreduce, not divided",
        look: Look::new((0, 114, 178), Slant::Rising),
        time_us: |row| row.reduction_us.map_or_else(|| in_allreduce_us(row), |_| 0.0),
    },
    Part {
        name: "packing",
        look: Look::new((86, 180, 233), Slant::Falling),
        time_us: |row| row.packing_us.unwrap_or_default(),
    },
    Part {
        name: "compression",
        look: Look::new((0, 158, 115), Slant::Falling),
        time_us: |row| row.compression_us.unwrap_or_default(),
    },
    Part {
        name: "negotiation",
        look: Look::new((213, 94, 0), Slant::None),
        time_us: |row| row.negotiation_us.value.unwrap_or_default(),
    },
    Part {
        name: "waiting for a rank",
        look: Look::new((240, 228, 66), Slant::Rising),
        time_us: |row| row.wait_us.unwrap_or_default(),
    },
    Part {
        name: "waiting for a cycle",
        look: Look::new((240, 240, 240), Slant::Falling),
        time_us: |row| row.until_cycle_us.unwrap_or_default(),
    },
];

/// At most so many numbers of ranks, the largest ones.
const SHOWN: usize = 3;

fn step_us(row: &Row) -> f64 {
    row.time_us.value.unwrap_or_default()
}

fn exposed_us(row: &Row) -> f64 {
    (step_us(row) - row.bound_us.unwrap_or_default()).max(0.0)
}

/// In allreduces, without packing.
fn in_allreduce_us(row: &Row) -> f64 {
    (row.data_us.unwrap_or_default() - row.packing_us.unwrap_or_default()).max(0.0)
}

const BAR: f64 = 24.0;
const BAR_GAP: f64 = 12.0;
/// The height of a group's heading.
const HEADING: f64 = 50.0;
const GROUP_GAP: f64 = 14.0;

fn draw(training: &Training) -> Drawing {
    let ranks = training.selection.ranks();
    let ranks = ranks[ranks.len().saturating_sub(SHOWN)..].to_vec();
    let mut page =
        Page::new(training.view, "Where a measured step's time goes", &finding(training, &ranks));
    let rows = || training.selection.rows.iter();
    let drawn = |part: &&Part| rows().any(|row| (part.time_us)(row) > 0.0);
    let entries = |parts: &[Part]| {
        let entries = parts.iter().filter(drawn).map(|part| part.look.entry(part.name));
        entries.collect::<Vec<_>>()
    };
    page.legend(&entries(&STEP));
    page.legend(&entries(&THREAD));
    let height = |panel: &Panel| -> f64 {
        let bars =
            |ranks: &f64| panel.lines.iter().filter(|line| line.at(*ranks).is_some()).count();
        let heights =
            ranks.iter().map(|ranks| HEADING + bars(ranks) as f64 * (2.0 * BAR + BAR_GAP));
        heights.sum()
    };
    let height = training.panels.iter().map(height).fold(0.0, f64::max) + GROUP_GAP;
    let names = training.lines().map(|line| line.policy.as_str());
    let left = names.map(|name| crate::drawing::text_width(name, theme::TICK, false));
    let left = left.fold(130.0, f64::max) + 30.0;
    let shape = Shape { left, right: 150.0, height, is_elastic: false };
    panels::lay(&mut page, &training.titles(), shape, |drawing, index, frame| {
        draw_panel(&training.panels[index], &ranks, drawing, frame);
    });
    let note = "Upper bar: the step. Lower bar: what the communication thread did meanwhile, hidden or not; it was \
                idle for the rest, without gradients. Transfer: moving data, and waiting for them; a library's allreduce is \
                not divided. Computation includes the addition of several passes' gradients. Waiting for a cycle: asleep \
                until the next one, although gradients were ready. A gradient's wait for the loop, above, is a mean over \
                gradients, which wait at the same time, and not a part of the step. Each part is a median of its own. A \
                bar ends at 100 %. Right: the step's time.";
    let bar = |row: &Row| Estimate { interval: None, ..row.time_us };
    page.finish(&training.caption_on(&ranks, bar, vec![note.to_string()]))
}

fn draw_panel(panel: &Panel, ranks: &[f64], drawing: &mut Drawing, frame: Frame) {
    let x = Axis::percent(frame.left, frame.right);
    x.draw_below(drawing, frame, "share of the step (%)");
    let mut top = frame.top;
    for ranks in ranks {
        let at = (frame.left - 14.0, top + HEADING / 2.0);
        let heading = Text::new(theme::ranks(*ranks), at, theme::TICK).centered();
        drawing.text(Text { align: Align::Right, bold: true, ..heading });
        top += HEADING;
        for (line, row) in panel.lines.iter().filter_map(|line| Some((line, line.at(*ranks)?))) {
            let name = Text::new(&line.policy, (frame.left - 14.0, top + BAR), theme::TICK);
            drawing.text(Text { align: Align::Right, ..name.centered() });
            stack(&STEP, row, &x, drawing, top);
            stack(&THREAD, row, &x, drawing, top + BAR);
            let words = format!("{} ms", theme::significant(step_us(row) / 1e3, 3));
            let text = Text::new(words, (frame.right + 14.0, top + BAR), theme::TICK);
            drawing.text(Text { align: Align::Left, ..text.centered() });
            top += 2.0 * BAR + BAR_GAP;
        }
    }
    frame.draw(drawing);
}

/// Draws parts one after the other.
fn stack(parts: &[Part], row: &Row, x: &Axis, drawing: &mut Drawing, top: f64) {
    let mut before = 0.0;
    for part in parts {
        let after = before + 100.0 * (part.time_us)(row) / step_us(row);
        let (left, right) = (x.at(before), x.at(after));
        if right > left {
            part.look.fill(drawing, [left, top, right - left, BAR]);
        }
        before = after;
    }
}

/// The finding of the picture in a sentence: the exposed share of the fastest step on most ranks, and how long a gradient
/// waits for the loop in it.
fn finding(training: &Training, ranks: &[f64]) -> String {
    let Some(most) = ranks.last() else { return String::new() };
    let of = |panel: &Panel| {
        let rows = panel.lines.iter().filter_map(|line| Some((line, line.at(*most)?)));
        let (line, row) = rows.min_by(|(_, a), (_, b)| step_us(a).total_cmp(&step_us(b)))?;
        let share = theme::significant(100.0 * exposed_us(row) / step_us(row), 2);
        let wait = row.cycle_wait_us.map_or(String::new(), |wait_us| {
            let wait = theme::significant(wait_us / 1e3, 2);
            format!("; a gradient waits {wait}{HARD_SPACE}ms for the loop")
        });
        Some(format!("{}{HARD_SPACE}{share}{HARD_SPACE}% ({}{wait})", panel.name, line.policy))
    };
    let each: Vec<String> = training.panels.iter().filter_map(of).collect();
    let ranks = theme::exact(*most);
    format!("Not hidden by computation in the fastest step on {ranks} ranks: {}.", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, step};

    /// A step of 100 ms: 40 computation, 55 in allreduces, of which 5 packing and 20 reduction, 2 negotiation, 10 waiting
    /// for a rank, 4 for a cycle.
    fn row(plane: &str, ranks: &str) -> synthetic::Row {
        step("ring", plane, 64.0, 5.0)
            .with("ranks", ranks)
            .with("nodes", ranks)
            .with("time_us_p50", "100000")
            .with("bound_us", "40000")
            .with("data_us_p50", "55000")
            .with("packing_us_p50", "5000")
            .with("reduction_us_p50", "20000")
            .with("negotiation_us_p50", "2000")
            .with("wait_us_p50", "10000")
            .with("until_cycle_us_p50", "4000")
    }

    fn widths(drawing: &Drawing, part: &Part) -> Vec<f64> {
        let area = |mark: &Mark| match mark {
            Mark::Area { points, color } if *color == part.look.color => {
                Some(points[1].0 - points[0].0)
            }
            _ => None,
        };
        drawing.marks.iter().filter_map(area).collect()
    }

    #[test]
    fn bars_are_shares_of_the_step() {
        let drawing = crate::breakdown::FIGURE.drawing(&[row("coordinator", "4")]);
        let width = |part: &Part| *widths(&drawing, part).last().expect("it is drawn");
        let unit = (width(&STEP[0]) + width(&STEP[1])) / 100.0;
        for (part, percent) in STEP.iter().zip([40.0, 60.0]) {
            assert!((width(part) / unit - percent).abs() < 1e-6, "{}", part.name);
        }
        for (part, percent) in THREAD.iter().zip([30.0, 20.0, 0.0, 5.0, 0.0, 2.0, 10.0, 4.0]) {
            if percent > 0.0 {
                assert!((width(part) / unit - percent).abs() < 1e-6, "{}", part.name);
            }
        }
        let said = drawing.prose();
        let finding = "in the fastest step on 4 ranks: resnet50 60 % (ring).";
        assert!(said.contains(finding) && said.contains(" ring 100 ms"), "{said}");
        assert!(!said.contains("compression") && said.contains("MEASURED"), "{said}");
    }

    #[test]
    fn an_allreduce_without_the_time_of_its_reduction_is_not_divided() {
        let library = row("coordinator", "4").with("reduction_us_p50", "");
        let drawing = crate::breakdown::FIGURE.drawing(std::slice::from_ref(&library));
        let said = drawing.prose();
        let legend = "allreduce, not divided packing negotiation waiting for a rank";
        assert!(said.contains(legend) && !said.contains(" reduction "), "{said}");
        let width = |part: &Part| *widths(&drawing, part).last().expect("it is drawn");
        assert!((width(&THREAD[2]) / width(&THREAD[3]) - 10.0).abs() < 1e-6);
        let both = [library.with("case", "mpi-allreduce"), row("bitvector", "4")];
        let said = crate::breakdown::FIGURE.words(&both);
        assert!(said.contains("transfer reduction allreduce, not divided packing"), "{said}");
    }

    /// It is a mean over gradients, so it may be longer than what the thread did, or than the step.
    #[test]
    fn the_wait_of_a_gradient_is_told_and_is_no_part() {
        let figure = crate::breakdown::FIGURE;
        let without = row("coordinator", "4");
        let with = without.with("cycle_wait_us_p50", "2500");
        let said = figure.words(std::slice::from_ref(&with));
        let finding = "resnet50 60 % (ring; a gradient waits 2.5 ms for the loop).";
        assert!(said.contains(finding), "{said}");
        assert!(
            said.contains("is a mean over gradients, which wait at the same time, and not a part")
        );
        let areas = |row: synthetic::Row| {
            let is_area = |mark: &&Mark| matches!(mark, Mark::Area { .. });
            figure.drawing(&[row]).marks.iter().filter(is_area).count()
        };
        assert_eq!(areas(with), areas(without.with("cycle_wait_us_p50", "")));
    }

    #[test]
    fn several_control_planes_and_ranks_are_bars_of_one_picture() {
        let rows = [row("coordinator", "2"), row("coordinator", "4"), row("bitvector", "4")];
        let said = crate::breakdown::FIGURE.words(&rows);
        assert!(
            said.contains(
                " 2 ranks coordinator 100 ms 4 ranks coordinator 100 ms bitvector 100 ms "
            ),
            "{said}"
        );
    }

    #[test]
    fn a_step_below_its_bound_has_no_exposed_part() {
        let drawing =
            crate::breakdown::FIGURE.drawing(&[row("coordinator", "4").with("bound_us", "120000")]);
        // One in the legend is left out too, since no row has it.
        assert_eq!(widths(&drawing, &STEP[1]), Vec::<f64>::new());
    }

    #[test]
    fn parts_differ_in_lightness_or_lines_too() {
        let all = || STEP.iter().chain(&THREAD);
        let light = |part: &Part| {
            let color = part.look.color;
            0.3 * f64::from(color.0) + 0.59 * f64::from(color.1) + 0.11 * f64::from(color.2)
        };
        for (index, one) in all().enumerate() {
            for other in all().take(index) {
                let apart = (light(one) - light(other)).abs() > 25.0;
                assert!(one.look.slant != other.look.slant || apart, "{} {}", one.name, other.name);
            }
        }
    }
}
