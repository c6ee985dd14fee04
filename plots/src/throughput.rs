//! Samples per second over ranks in simulated training, one line per policy and a panel per
//! workload.
//!
//! Every rank has the same work whatever the world (weak scaling), so the ideal is a straight line.

use crate::axis::Axis;
use crate::dash;
use crate::drawing::{Drawing, Point};
use crate::page::Page;
use crate::panels::{self, Frame, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::simulation::{Line, Panel, Simulation, Wanted, dashed, ranks_of};
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "throughput", sheets };

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.throughput_samples_s.value > Some(0.0),
        columns: "throughput_samples_s_p50",
        ranks_min: 2,
    };
    Simulation::sheets(rows, &wanted, |simulation| Some(draw(simulation)))
}

fn draw(simulation: &Simulation) -> Drawing {
    let mut page = Page::new("Training throughput by number of ranks", &finding(simulation));
    let ideal = simulation.panels.iter().any(|panel| ideal(panel).is_some());
    let ideal = ideal.then(|| dashed("ideal: each rank as fast as at the base"));
    simulation.legend(&mut page, None, ideal);
    let titles = simulation.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(150.0, 20.0, titles.len()),
        |drawing, index, frame| {
            draw_panel(simulation, &simulation.panels[index], drawing, frame);
        },
    );
    page.finish(&simulation.caption(|row| row.throughput_samples_s, vec![note(simulation)]))
}

fn draw_panel(simulation: &Simulation, panel: &Panel, drawing: &mut Drawing, frame: Frame) {
    let x = simulation.ranks_axis(drawing, frame);
    let rows = || panel.lines.iter().flat_map(|line| &line.rows);
    let spans = rows().filter_map(|row| row.throughput_samples_s.span());
    let values: Vec<f64> = spans.flat_map(|(low, high)| [low, high]).collect();
    // Large numbers in thousands, or ticks would take half the panel.
    let (unit, of_unit) = match values.iter().copied().fold(0.0, f64::max) {
        most if most >= 1e5 => (1e3, "1000 samples/s"),
        _ => (1.0, "samples/s"),
    };
    let path = ideal(panel).map(|(_, each)| {
        simulation.selection.ranks().into_iter().map(move |ranks| (ranks, ranks * each))
    });
    let path: Vec<Point> = path.into_iter().flatten().collect();
    let all = values.iter().chain(path.iter().map(|(_, value)| value));
    let all: Vec<f64> = all.map(|value| value / unit).collect();
    let y = Axis::measured(&all, frame.bottom, frame.top);
    y.draw_left(drawing, frame.left, frame.right, &format!("{of_unit} ({})", y.scale()));
    let path: Vec<Point> =
        path.into_iter().map(|(ranks, value)| (x.at(ranks), y.at(value / unit))).collect();
    drawing.broken(&path, theme::INK, 3.0, dash::DASHES);
    for line in &panel.lines {
        line.draw(drawing, &x, &y, |row| {
            let Estimate { value, interval } = row.throughput_samples_s;
            Estimate {
                value: value.map(|value| value / unit),
                interval: interval.map(|(low, high)| (low / unit, high / unit)),
            }
        });
    }
    drawing.frame(frame.left, frame.top, frame.right, frame.bottom);
}

/// The base and the samples per second of each rank there, of the policy that has most.
fn ideal(panel: &Panel) -> Option<(f64, f64)> {
    let base = |line: &Line| {
        let of = |row: &&Row| {
            let efficiency = row.efficiency.value.filter(|efficiency| *efficiency > 0.0)?;
            let each = row.throughput_samples_s.value? / ranks_of(row);
            Some((row.efficiency_base_ranks?, each / efficiency))
        };
        line.rows.iter().find_map(of)
    };
    panel.lines.iter().filter_map(base).max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// What the picture shows, in a sentence.
fn finding(simulation: &Simulation) -> String {
    let Some(ranks) = simulation.selection.ranks().pop() else { return String::new() };
    let most = |panel: &Panel| {
        let known = panel.lines.iter().filter_map(|line| {
            Some((line.at(ranks)?.throughput_samples_s.value?, line.policy.clone()))
        });
        let (samples_s, policy) = known.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let samples_s = theme::significant(samples_s, 3);
        Some(format!("{} {samples_s} ({policy})", panel.name))
    };
    let each: Vec<String> = simulation.panels.iter().filter_map(most).collect();
    format!("Most samples/s on {} ranks: {}.", theme::tick(ranks), each.join("; "))
}

fn note(simulation: &Simulation) -> String {
    let mut bases: Vec<f64> =
        simulation.panels.iter().filter_map(ideal).map(|(base, _)| base).collect();
    bases.sort_by(f64::total_cmp);
    bases.dedup();
    let bases: Vec<String> = bases.into_iter().map(theme::tick).collect();
    let ideal = match bases.as_slice() {
        [] => String::new(),
        bases => format!(
            "Ideal: linear from {} ranks, of the policy with most samples/s there. ",
            bases.join(" or ")
        ),
    };
    format!("{ideal}Lines only join the points.")
}
