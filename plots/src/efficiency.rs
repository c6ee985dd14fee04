//! Scaling efficiency over ranks in simulated training, one line per policy and a panel per
//! workload. Efficiency is samples per second and rank, as a share of those on the base number of
//! ranks.

use crate::axis::Axis;
use crate::distinct;
use crate::drawing::{Drawing, HARD_SPACE};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::Rows;
use crate::simulation::{POINTS, Panel, Simulation, Wanted};
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "efficiency", sheets };

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let wanted = Wanted {
        complete: |row| row.efficiency.value.is_some(),
        columns: "efficiency_p50",
        ranks_min: 2,
    };
    Simulation::sheets(rows, &wanted, |simulation| Some(draw(simulation)))
}

fn draw(simulation: &Simulation) -> Drawing {
    let mut page = Page::new("Scaling efficiency by number of ranks", &finding(simulation));
    simulation.legend(&mut page, None, None);
    let values = simulation.selection.rows.iter().flat_map(|row| row.efficiency.ends());
    let values: Vec<f64> = values.collect();
    let titles = simulation.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(130.0, simulation.ends_room(), titles.len()),
        |drawing, index, frame| {
            let panel = &simulation.panels[index];
            let x = simulation.ranks_axis(drawing, frame);
            let y = Axis::shares(1.0, &values, frame.bottom, frame.top);
            y.draw_left(drawing, frame, &format!("efficiency{}", base(panel)));
            let whole = y.at(1.0);
            drawing.dashes((frame.left, whole), (frame.right, whole), theme::INK, 3.0);
            for line in &panel.lines {
                simulation.draw_line(line, drawing, &x, &y, |row| row.efficiency);
            }
            frame.draw(drawing);
            let lines = panel.lines.iter();
            simulation.draw_ends(lines, drawing, frame, &y, |row| row.efficiency.value);
        },
    );
    let note = "Efficiency: samples per second and rank, as a share of those of the same policy at \
                the base.";
    let notes = vec![note.to_string(), POINTS.to_string()];
    page.finish(&simulation.caption(|row| row.efficiency, notes))
}

/// The base number of ranks in words; empty if it is not known.
fn base(panel: &Panel) -> String {
    let rows = panel.lines.iter().flat_map(|line| &line.rows);
    let bases = distinct::ascending(rows.filter_map(|row| row.efficiency_base_ranks));
    let bases: Vec<String> = bases.into_iter().map(theme::ranks).collect();
    match bases.as_slice() {
        [] => String::new(),
        bases => format!(" relative to {}", bases.join(" or ")),
    }
}

/// The finding of the picture in a sentence.
fn finding(simulation: &Simulation) -> String {
    let Some(ranks) = simulation.selection.ranks().pop() else { return String::new() };
    let of = |panel: &Panel| {
        let mut known: Vec<(f64, &str)> = panel
            .lines
            .iter()
            .filter_map(|line| Some((line.at(ranks)?.efficiency.value?, line.policy.as_str())))
            .collect();
        known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let described = |(efficiency, policy): &(f64, &str)| {
            format!("{} ({policy})", theme::significant(*efficiency, 2))
        };
        let (first, last) = (known.first()?, known.last()?);
        let to = if known.len() > 1 { format!(" to {}", described(last)) } else { String::new() };
        Some(format!("{}{HARD_SPACE}{}{to}", panel.name, described(first)))
    };
    let each: Vec<String> = simulation.panels.iter().filter_map(of).collect();
    format!("Efficiency on {} ranks: {}.", theme::exact(ranks), each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{POLICIES, RANKS, WORKLOADS, policy, scaling};

    #[test]
    fn the_base_is_in_the_axis_and_the_best_and_worst_are_said() {
        let rows: Vec<_> = [("ddp", "0.875"), ("byteps", "0.5"), ("horovod-bitvector", "0.7")]
            .into_iter()
            .flat_map(|(name, share)| {
                let last = policy("vgg16", name, 96).with("efficiency_p50", share);
                [policy("vgg16", name, 6), last]
            })
            .collect();
        let said = FIGURE.words(&rows);
        assert!(said.contains("on 96 ranks: vgg16 0.88 (ddp) to 0.50 (byteps). "), "{said}");
        for expected in [
            "efficiency relative to 6 ranks",
            " 0.875 ddp 0.700 horovod-bitvector 0.500 byteps ",
            "SIMULATED on",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        let other: Vec<_> = rows.iter().map(|row| row.with("efficiency_base_ranks", "1")).collect();
        assert!(FIGURE.words(&other).contains("efficiency relative to 1 rank "));
        let unknown: Vec<_> =
            rows.iter().map(|row| row.with("efficiency_base_ranks", "")).collect();
        assert!(!FIGURE.words(&unknown).contains("relative"));
    }

    #[test]
    fn all_workloads_fit() {
        FIGURE.words(&scaling(&WORKLOADS, &POLICIES, &RANKS));
        FIGURE.words(&scaling(&WORKLOADS[..1], &POLICIES, &RANKS));
    }
}
