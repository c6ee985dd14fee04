//! Scaling efficiency over ranks in simulated training, one line per policy and a panel per
//! workload. Efficiency is samples per second and rank, as a share of those of the fastest policy
//! on the fewest ranks: all policies of a panel share one base. Where samples are not known, each
//! row's own efficiency is drawn.

use crate::axis::Axis;
use crate::distinct;
use crate::drawing::{Drawing, HARD_SPACE};
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::{Estimate, Row, Rows};
use crate::selection::ranks_of;
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
    let values = simulation.panels.iter().flat_map(|panel| {
        let base = Base::of(panel);
        let rows = panel.lines.iter().flat_map(|line| &line.rows);
        rows.flat_map(move |row| base.efficiency(row).ends())
    });
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
            let base = Base::of(panel);
            y.draw_left(drawing, frame, &format!("efficiency{}", base.words(panel)));
            let whole = y.at(1.0);
            drawing.dashes((frame.left, whole), (frame.right, whole), theme::INK, 3.0);
            for line in &panel.lines {
                simulation.draw_line(line, drawing, &x, &y, |row| base.efficiency(row));
            }
            frame.draw(drawing);
            let lines = panel.lines.iter();
            simulation.draw_ends(lines, drawing, frame, &y, |row| base.efficiency(row).value);
        },
    );
    let note = "Efficiency: samples per second and rank, as a share of those of the base. All policies \
                of a panel have the same base.";
    let notes = vec![note.to_string(), POINTS.to_string()];
    page.finish(&simulation.caption(|row| row.efficiency, notes))
}

/// What efficiency is relative to.
#[derive(Clone, Copy)]
enum Base {
    /// Samples per second and rank of the fastest policy on the fewest ranks, of which there are so many.
    Fastest { samples_s: f64, ranks: f64 },
    /// Each row's own base.
    Own,
}

impl Base {
    fn of(panel: &Panel) -> Base {
        let rows = || panel.lines.iter().flat_map(|line| &line.rows);
        let ranks = rows().map(|row| ranks_of(row)).fold(f64::INFINITY, f64::min);
        let all = rows().filter(|row| ranks_of(row) == ranks);
        let known = all.filter_map(|row| row.throughput_samples_s.value);
        let fastest = known.fold(0.0, f64::max) / ranks;
        if fastest > 0.0 { Base::Fastest { samples_s: fastest, ranks } } else { Base::Own }
    }

    fn efficiency(self, row: &Row) -> Estimate {
        let Base::Fastest { samples_s, .. } = self else { return row.efficiency };
        let share = |throughput: f64| throughput / ranks_of(row) / samples_s;
        let Estimate { value, interval } = row.throughput_samples_s;
        Estimate {
            value: value.map(share),
            interval: interval.map(|(low, high)| (share(low), share(high))),
        }
    }

    /// In words; empty if it is not known.
    fn words(self, panel: &Panel) -> String {
        if let Base::Fastest { ranks, .. } = self {
            return format!(" relative to the fastest on {}", theme::ranks(ranks));
        }
        let rows = panel.lines.iter().flat_map(|line| &line.rows);
        let bases = distinct::ascending(rows.filter_map(|row| row.efficiency_base_ranks));
        let bases: Vec<String> = bases.into_iter().map(theme::ranks).collect();
        match bases.as_slice() {
            [] => String::new(),
            bases => format!(" relative to {}", bases.join(" or ")),
        }
    }
}

/// The finding of the picture in a sentence.
fn finding(simulation: &Simulation) -> String {
    let Some(ranks) = simulation.selection.ranks().pop() else { return String::new() };
    let of = |panel: &Panel| {
        let base = Base::of(panel);
        let at = |line: &'_ crate::simulation::Line| base.efficiency(line.at(ranks)?).value;
        let mut known: Vec<(f64, &str)> =
            panel.lines.iter().filter_map(|line| Some((at(line)?, line.policy.as_str()))).collect();
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
    fn all_policies_have_one_base_and_the_best_and_worst_are_said() {
        // 100 samples per second and rank at the base are the fastest policy's.
        let rows: Vec<_> =
            [("ddp", 100, 87.5), ("byteps", 80, 50.0), ("horovod-bitvector", 95, 70.0)]
                .into_iter()
                .flat_map(|(name, first, last)| {
                    let row = |ranks: u32, per_rank: f64| {
                        let all = per_rank * f64::from(ranks);
                        policy("vgg16", name, ranks).with_estimate(
                            "throughput_samples_s_p50",
                            all,
                            0.01 * all,
                        )
                    };
                    [row(6, f64::from(first)), row(96, last)]
                })
                .collect();
        let said = FIGURE.words(&rows);
        assert!(said.contains("on 96 ranks: vgg16 0.88 (ddp) to 0.50 (byteps). "), "{said}");
        for expected in [
            "efficiency relative to the fastest on 6 ranks",
            " 0.875 ddp 0.700 horovod-bitvector 0.500 byteps ",
            "SIMULATED on",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
    }

    #[test]
    fn without_samples_each_row_has_its_own_base() {
        let row = |ranks: u32, share: &str| {
            let row = policy("vgg16", "ddp", ranks).with("efficiency_p50", share);
            row.with("throughput_samples_s_p50", "")
                .with("throughput_samples_s_p50_low", "")
                .with("throughput_samples_s_p50_high", "")
        };
        let rows = [row(6, "0.9"), row(96, "0.8")];
        assert!(FIGURE.words(&rows).contains("efficiency relative to 6 ranks"));
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
