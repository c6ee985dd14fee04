//! Scaling efficiency over ranks in simulated training, one line per policy and a panel per
//! workload: samples per second and rank, as a share of those at the base.

use crate::axis::Axis;
use crate::drawing::Drawing;
use crate::page::Page;
use crate::panels::{self, Shape};
use crate::rows::Rows;
use crate::simulation::{Panel, Simulation, Wanted};
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
    let spans = simulation.selection.rows.iter().filter_map(|row| row.efficiency.span());
    let values: Vec<f64> = spans.flat_map(|(low, high)| [low, high]).collect();
    let titles = simulation.titles();
    panels::lay(
        &mut page,
        &titles,
        Shape::usual(130.0, 20.0, titles.len()),
        |drawing, index, frame| {
            let panel = &simulation.panels[index];
            let x = simulation.ranks_axis(drawing, frame);
            let y = Axis::shares(1.0, &values, frame.bottom, frame.top);
            let title = format!("efficiency{}", base(panel));
            y.draw_left(drawing, frame.left, frame.right, &title);
            let whole = y.at(1.0);
            drawing.dashes((frame.left, whole), (frame.right, whole), theme::INK, 3.0);
            for line in &panel.lines {
                line.draw(drawing, &x, &y, |row| row.efficiency);
            }
            drawing.frame(frame.left, frame.top, frame.right, frame.bottom);
        },
    );
    let note = "Efficiency: samples per second and rank, as a share of those of the same policy at \
                the base. Lines only join the points.";
    page.finish(&simulation.caption(|row| row.efficiency, vec![note.to_string()]))
}

/// What efficiency is relative to, where that is known.
fn base(panel: &Panel) -> String {
    let rows = panel.lines.iter().flat_map(|line| &line.rows);
    let mut bases: Vec<f64> = rows.filter_map(|row| row.efficiency_base_ranks).collect();
    bases.sort_by(f64::total_cmp);
    bases.dedup();
    let bases: Vec<String> = bases.into_iter().map(theme::tick).collect();
    match bases.as_slice() {
        [] => String::new(),
        bases => format!(" relative to {} ranks", bases.join(" or ")),
    }
}

/// What the picture shows, in a sentence.
fn finding(simulation: &Simulation) -> String {
    let Some(ranks) = simulation.selection.ranks().pop() else { return String::new() };
    let of = |panel: &Panel| {
        let mut known: Vec<(f64, &str)> = panel
            .lines
            .iter()
            .filter_map(|line| Some((line.at(ranks)?.efficiency.value?, line.policy.as_str())))
            .collect();
        known.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let told = |(efficiency, policy): &(f64, &str)| {
            format!("{} ({policy})", theme::significant(*efficiency, 2))
        };
        let (first, last) = (known.first()?, known.last()?);
        let to = if known.len() > 1 { format!(" to {}", told(last)) } else { String::new() };
        Some(format!("{} {}{to}", panel.name, told(first)))
    };
    let each: Vec<String> = simulation.panels.iter().filter_map(of).collect();
    format!("Efficiency on {} ranks: {}.", theme::tick(ranks), each.join("; "))
}
