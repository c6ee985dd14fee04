//! Throughput over ranks, one line per policy and a panel per workload: samples per second of
//! simulated training, and of measured steps the steps of all ranks per second.
//!
//! Every rank has the same work for any number of ranks (weak scaling), or all ranks together have (strong scaling), so
//! the ideal is a straight line.

use crate::axis::Axis;
use crate::dash;
use crate::distinct;
use crate::drawing::{Drawing, HARD_SPACE, Point};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::{Row, Rows};
use crate::selection::ranks_of;
use crate::training::{Line, POINTS, Panel, Training, Wanted};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "throughput", sheets };

/// Room left of a panel for labels and title, in pixels.
const LEFT: f64 = 190.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.throughput().value > Some(0.0),
        columns: "throughput_samples_s_p50, or a measured time_us_p50,",
        ranks_min: 2,
        predictions: true,
    };
    Training::sheets(rows, view, &wanted, |training| Some(draw(training)))
}

fn draw(training: &Training) -> Drawing {
    let mut page =
        Page::new(training.view, "Training throughput by number of ranks", &finding(training));
    let ideal = training.panels.iter().any(|panel| ideal(panel).is_some());
    let ideal = ideal.then(|| Entry::dashed("ideal: each rank as fast as at the base"));
    training.legend(&mut page, None, ideal);
    let titles = training.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(LEFT, training.ends_room(), titles.len()),
        |drawing, index, frame| {
            draw_panel(training, &training.panels[index], drawing, frame);
        },
    );
    page.finish(&training.caption(Row::throughput, vec![note(training)]))
}

fn draw_panel(training: &Training, panel: &Panel, drawing: &mut Drawing, frame: Frame) {
    let x = training.ranks_axis(drawing, frame);
    let rows = || panel.lines.iter().flat_map(|line| &line.rows);
    let predicted = panel.lines.iter().flat_map(|line| &line.predicted).flat_map(|it| &it.rows);
    let predicted = predicted.flat_map(|row| row.steps_s(training.is_strong()).ends());
    let values: Vec<f64> =
        rows().flat_map(|row| row.throughput().ends()).chain(predicted).collect();
    // Large numbers are in thousands, as the labels would take half the panel otherwise.
    let most = values.iter().copied().fold(0.0, f64::max);
    let (unit, of_unit) = match (training.is_simulated(), most >= 1e5) {
        (true, true) => (1e3, "1000 samples/s"),
        (true, false) => (1.0, "samples/s"),
        (false, _) if training.is_strong() => (1.0, "steps/s"),
        (false, _) => (1.0, "ranks × steps/s"),
    };
    let path = ideal(panel)
        .map(|(_, each)| training.ranks().into_iter().map(move |ranks| (ranks, ranks * each)));
    let path: Vec<Point> = path.into_iter().flatten().collect();
    let all = values.iter().chain(path.iter().map(|(_, value)| value));
    let all: Vec<f64> = all.map(|value| value / unit).collect();
    let y = Axis::logarithmic(&all, frame.bottom, frame.top);
    y.draw_left(drawing, frame, of_unit);
    let path: Vec<Point> =
        path.into_iter().map(|(ranks, value)| (x.at(ranks), y.at(value / unit))).collect();
    drawing.broken(&path, theme::INK, 3.0, dash::DASHES);
    training.draw_predictions(panel, drawing, (&x, &y), |line, row| {
        line.predicted_steps_s(row).map(|all| all / unit)
    });
    for line in &panel.lines {
        training.draw_line(line, drawing, &x, &y, |row| row.throughput().map(|all| all / unit));
    }
    frame.draw(drawing);
    training.draw_ends(panel.lines.iter(), drawing, frame, &y, |line, row| {
        let beside = training.is_predicted && row.is_simulated();
        let throughput = if beside { line.predicted_steps_s(row) } else { row.throughput() };
        Some(throughput.value? / unit)
    });
}

/// The base number of ranks and the samples per second and rank there, of the policy with the most.
fn ideal(panel: &Panel) -> Option<(f64, f64)> {
    let base = |line: &Line| {
        let of = |row: &&Row| {
            let each = row.throughput().value? / ranks_of(row);
            if !row.is_simulated() {
                return Some((ranks_of(row), each));
            }
            let efficiency = row.efficiency.value.filter(|efficiency| *efficiency > 0.0)?;
            Some((row.efficiency_base_ranks?, each / efficiency))
        };
        line.rows.iter().find_map(of)
    };
    panel.lines.iter().filter_map(base).max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The finding of the picture in a sentence.
fn finding(training: &Training) -> String {
    let Some(ranks) = training.selection.ranks().pop() else { return String::new() };
    let most = |panel: &Panel| {
        let known = panel
            .lines
            .iter()
            .filter_map(|line| Some((line.at(ranks)?.throughput().value?, line.policy.clone())));
        let (samples_s, policy) = known.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let samples_s = theme::significant(samples_s, 3);
        Some(format!("{}{HARD_SPACE}{samples_s} ({policy})", panel.name))
    };
    let each: Vec<String> = training.panels.iter().filter_map(most).collect();
    let unit = match training.is_simulated() {
        true => "samples/s",
        false if training.is_strong() => "steps per second",
        false => "steps of all ranks per second",
    };
    format!("Most {unit} on {} ranks: {}.", theme::exact(ranks), each.join("; "))
}

fn note(training: &Training) -> String {
    let bases = training.panels.iter().filter_map(ideal).map(|(base, _)| base);
    let bases: Vec<String> = distinct::ascending(bases).into_iter().map(theme::ranks).collect();
    let ideal = match bases.as_slice() {
        [] => String::new(),
        bases => format!("Ideal: linear from {}, of the fastest line there. ", bases.join(" or ")),
    };
    format!("{ideal}{POINTS}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::{Mark, text_width};
    use crate::synthetic::{self, POLICIES, RANKS, WORKLOADS, policy, scaling};

    /// 1000 and 1800 samples per second of one policy, on 6 and 12 ranks.
    fn two() -> [synthetic::Row; 2] {
        [(6, "1000", "1"), (12, "1800", "0.9")].map(|(ranks, samples_s, efficiency)| {
            policy("vgg16", "ddp", ranks)
                .with("throughput_samples_s_p50", samples_s)
                .with("efficiency_p50", efficiency)
        })
    }

    #[test]
    fn the_most_samples_are_said_for_each_workload_and_every_policy_is_in_the_legend() {
        let said = FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        assert!(said.starts_with("Training throughput by number of ranks Most samples/s on 27"));
        for expected in POLICIES.iter().chain(&WORKLOADS).chain(&[
            "bert_large, 8 samples per rank",
            "ideal: each rank as fast as at the base",
            "1000 samples/s",
            "SIMULATED on machine file summit · engine rounds (our schedules in virtual time) · 10 \
             seeds",
            "6 to 27600 ranks, 6 per node;",
            "Median with 95 % interval over seeds;",
            "Ideal: linear from 6 ranks, of the fastest line there.",
        ]) {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        assert!(
            FIGURE.words(&two()).contains("Most samples/s on 12 ranks: vgg16 1800 (ddp). ddp ")
        );
    }

    #[test]
    fn wide_numbers_of_neighbouring_panels_do_not_meet() {
        let row = |workload, ranks, samples_s: &str| {
            policy(workload, "ddp", ranks)
                .with("throughput_samples_s_p50", samples_s)
                .with("throughput_samples_s_p50_low", "")
        };
        let of = |workload, few, many| [row(workload, 6, few), row(workload, 27600, many)];
        let rows = [of("stemdl", "4.47", "20100"), of("vgg16", "1300", "12300000")].concat();
        let drawing = FIGURE.drawing(&[rows, of("x", "4.47", "20100").to_vec()].concat());
        let right = |words: &str| {
            let texts = drawing.texts();
            let text = texts.iter().find(|text| text.words == words).expect("it is drawn");
            text.at.0 + text_width(&text.words, text.size, text.bold)
        };
        let texts = drawing.texts();
        let title = texts.iter().find(|text| text.words.starts_with("1000 samples/s"));
        let title = title.expect("it is drawn");
        // The place of a text that reads upwards is its baseline; ascenders are left of it.
        let left = title.at.0 - title.size;
        assert!(right("20\u{202f}100") + 10.0 < left, "{} {left}", right("20\u{202f}100"));
    }

    #[test]
    fn the_ideal_is_what_the_base_would_give() {
        // The base itself may be missing.
        let more = policy("vgg16", "ddp", 24).with("throughput_samples_s_p50", "3000");
        let rows = [two()[1].clone(), more.with("efficiency_p50", "0.75")];
        let rows = Rows::of(&synthetic::table(&rows));
        let wanted = Wanted { complete: |_| true, columns: "", ranks_min: 2, predictions: false };
        let seen = std::cell::Cell::new(0);
        Training::sheets(&rows, View::default(), &wanted, |training| {
            let (base, each) = ideal(&training.panels[0]).expect("efficiency is known");
            assert_eq!(base, 6.0);
            assert!((each - 1000.0 / 6.0).abs() < 1e-9, "{each}");
            seen.set(seen.get() + 1);
            None
        });
        assert_eq!(seen.get(), 1);
        let without = two().map(|row| row.with("efficiency_p50", ""));
        let said = FIGURE.words(&without);
        assert!(!said.contains("ideal") && !said.contains("Ideal"), "{said}");
    }

    #[test]
    fn an_interval_without_width_has_no_bar() {
        let bars = |rows: &[synthetic::Row]| {
            let own = |mark: &&Mark| {
                let of = |color| color == theme::series(0);
                matches!(mark, Mark::Line { points, color, .. } if of(*color) && points.len() == 2)
            };
            FIGURE.drawing(rows).marks.iter().filter(own).count()
        };
        let set = |low, high| {
            two().map(|row| {
                let row = row.with("throughput_samples_s_p50_low", low);
                row.with("throughput_samples_s_p50_high", high)
            })
        };
        // A bar has three strokes; the legend's line and the line itself are there either way.
        assert_eq!(bars(&set("900", "2000")), bars(&set("", "")) + 2 * 3);
        assert_eq!(bars(&set("1000", "1000")), bars(&set("", "")));
    }

    #[test]
    fn a_policy_looks_the_same_in_every_picture() {
        let summit = scaling(&["vgg16"], &POLICIES, &[6, 12]);
        let other = scaling(&["vgg16"], &["tf-distribute"], &[6, 12]);
        let other: Vec<_> = other.iter().map(|row| row.with("machine", "frontier")).collect();
        let drawings = FIGURE.drawings(&[summit, other].concat());
        assert_eq!(drawings.len(), 2);
        for drawing in drawings {
            let color = theme::series(5);
            let own = |mark: &&Mark| matches!(mark, Mark::Area { color: own, .. } if *own == color);
            assert!(drawing.marks.iter().any(|mark| own(&mark)), "of tf-distribute");
        }
    }
}
