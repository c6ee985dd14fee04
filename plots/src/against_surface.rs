//! Step time over fusion threshold and cycle time, by kolo's engine and by real Horovod, side by side.
//!
//! The figure has a sheet for each configuration and topology whose cases differ in threshold or cycle time. Both heat
//! maps have the same colour scale, and each has its own star: settings are chosen by kolo, and used with Horovod.

use crate::against::origin;
use crate::caption::Caption;
use crate::cell::Cell;
use crate::comparison::Compared;
use crate::distinct::{ascending, in_order};
use crate::drawing::Drawing;
use crate::rows::Rows;
use crate::surface::{Stars, Surface};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "against_surface", sheets };

/// The titles of the two columns.
const ENGINES: [&str; 2] = ["kolo", "Horovod"];

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let groups = in_order(rows.compared.iter().map(|case| case.group.as_str()));
    let drawn = groups.into_iter().filter_map(|group| {
        let own: Vec<&Compared> = rows.compared.iter().filter(|case| case.group == group).collect();
        Some((group.replace(' ', "-"), draw(view, group, &own)?))
    });
    Sheet::all(drawn.collect(), || {
        "comparison.csv has no group of cases with several fusion thresholds or cycle times".into()
    })
}

/// None where both engines have fewer than two settings.
fn draw(view: View, group: &str, cases: &[&Compared]) -> Option<Drawing> {
    let cells: Vec<Cell> = cases.iter().flat_map(|case| cells(case)).collect();
    let settings = |value: fn(&Cell) -> f64| ascending(cells.iter().map(value)).len();
    if settings(|cell| cell.threshold) < 2 && settings(|cell| cell.cycle) < 2 {
        return None;
    }
    let variants = in_order(cases.iter().map(|case| case.variant.as_str()));
    let surface = Surface::of(cells, ENGINES.map(str::to_string).into(), Stars::Each);
    let findings: Vec<String> =
        variants.iter().map(|variant| finding(&surface, variant, cases)).collect();
    let caption =
        Caption { simulated: false, origin: origin(cases), paragraphs: vec![surface.note(view)] };
    let title = format!("Step time by kolo's engine and by real Horovod: {group}");
    Some(surface.draw(view, &title, &findings.join(" "), &caption))
}

/// The case in both engines; empty unless both have it.
fn cells(case: &Compared) -> Vec<Cell> {
    let cell = |plane: &str| {
        let of = if plane == ENGINES[0] { &case.kolo_ms } else { &case.horovod_ms };
        Some(Cell {
            algorithm: case.variant.clone(),
            plane: plane.into(),
            threshold: case.fusion_threshold_bytes?,
            cycle: case.cycle_time_ms?,
            time: of.value?,
            interval: of.interval,
            over_best: None,
        })
    };
    let both: Option<Vec<Cell>> = ENGINES.into_iter().map(cell).collect();
    both.unwrap_or_default()
}

/// Which setting each engine likes best, and what kolo's costs with Horovod.
fn finding(surface: &Surface, variant: &str, cases: &[&Compared]) -> String {
    let [chosen, best] = ENGINES.map(|engine| surface.best_for(variant, engine));
    let setting = |cell: &Cell| {
        format!("{}, {} ms", theme::threshold(cell.threshold), theme::tick(cell.cycle))
    };
    if setting(chosen) == setting(best) {
        return format!("{variant}: {} is fastest with both.", setting(best));
    }
    let is_chosen = |case: &&&Compared| {
        case.variant == variant
            && case.fusion_threshold_bytes == Some(chosen.threshold)
            && case.cycle_time_ms == Some(chosen.cycle)
    };
    let there = cases.iter().find(is_chosen).and_then(|case| case.horovod_ms.value);
    let more = 100.0 * (there.unwrap_or(f64::NAN) / best.time - 1.0);
    format!(
        "{variant}: kolo's fastest setting is {}, Horovod's {}; with kolo's choice Horovod takes {} % longer.",
        setting(chosen),
        setting(best),
        theme::significant(more, 2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::against;

    #[test]
    fn each_engine_has_its_star_and_the_choice_its_price() {
        let drawn: Vec<(String, Drawing)> = sheets(&Rows::of(&against()), View::default())
            .into_iter()
            .filter_map(|sheet| match sheet {
                Sheet::Drawn { suffix, drawing } => Some((suffix, drawing)),
                Sheet::Skipped { .. } => None,
            })
            .collect();
        let [(suffix, drawing)] = &drawn[..] else { panic!("one group has two thresholds") };
        assert_eq!(suffix, "", "one picture needs none");
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let words = drawing.words().replace('\n', " ");
        for expected in [
            "resnet50 1x2",
            "bitvector: 64 MiB, 1 ms is fastest with both.",
            "bitvector, kolo",
            "bitvector, Horovod",
        ] {
            assert!(words.contains(expected), "{words}\nexpected {expected}");
        }
    }

    #[test]
    fn a_choice_that_horovod_does_not_share_costs_something() {
        let other = against().replace(",90,88,93,", ",70,68,73,");
        let Some(Sheet::Drawn { drawing, .. }) =
            sheets(&Rows::of(&other), View::default()).into_iter().next()
        else {
            panic!("it is drawn")
        };
        let words = drawing.words().replace('\n', " ");
        let expected = "kolo's fastest setting is 128 MiB, 1 ms, Horovod's 64 MiB, 1 ms; with kolo's choice Horovod takes 33 % longer";
        assert!(words.contains(expected), "{words}");
    }
}
