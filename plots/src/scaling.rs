//! Step time over the number of ranks, one line per algorithm, each at its fastest setting.
//!
//! Every rank has the same work for any number of ranks (weak scaling), or all ranks together have (strong scaling).
//! Without communication, step time would be that of computation. This bound is drawn as a dashed line, and the distance
//! from it is the cost of communication. If rows have simulations of the same settings on the
//! calibrated machine, these are drawn too; they may continue to more ranks.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::dash::DASHES;
use crate::distinct;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page};
use crate::panels;
use crate::predicted::{self, Predicted};
use crate::rows::{Estimate, Row, Rows};
use crate::selection::{self, Selection, ranks_of};
use crate::series::{Series, Value};
use crate::view::View;
use crate::{Figure, Sheet, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "scaling", sheets };

const KIND: &str = "step";

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let selections = Selection::over_layouts(rows, KIND, steps::settings);
    let pictures = selections.into_iter().filter_map(|selection| Picture::of(selection, rows));
    let drawn = pictures.map(|picture| (picture.selection.suffix.clone(), picture.draw(view)));
    Sheet::all(drawn.collect(), || selection::none_over_ranks(KIND, "time_us_p50"))
}

/// The algorithms of one picture.
struct Picture<'a> {
    selection: Selection<'a>,
    lines: Vec<Line<'a>>,
}

/// An algorithm and its fastest row for each number of ranks.
struct Line<'a> {
    algorithm: String,
    rows: Vec<&'a Row>,
    predicted: Option<Predicted<'a>>,
}

impl<'a> Picture<'a> {
    /// `None` if there are fewer than two numbers of ranks.
    fn of(mut selection: Selection<'a>, rows: &'a Rows) -> Option<Picture<'a>> {
        selection.require(|row| row.time_us.value > Some(0.0) && row.ranks > Some(0.0));
        selection.prefer_most_nodes();
        if selection.ranks().len() < 2 {
            return None;
        }
        let algorithms = selection.algorithms();
        let mut names: Vec<String> =
            selection.rows.iter().map(|row| algorithms.name(row)).collect();
        names.sort();
        names.dedup();
        let line = |algorithm: String| {
            let own = selection.rows.iter().copied();
            let mut own: Vec<&Row> = own.filter(|row| algorithms.name(row) == algorithm).collect();
            own.sort_by(|a, b| {
                (ranks_of(a), time_ms(a)).partial_cmp(&(ranks_of(b), time_ms(b))).expect("numbers")
            });
            own.dedup_by_key(|row| row.ranks);
            // Algorithms with groups have no prediction.
            let predicted = selection.rows.first().and_then(|measured| {
                Predicted::of(rows, measured, |row| row.algorithm == algorithm)
            });
            Line { algorithm, rows: own, predicted }
        };
        let lines: Vec<Line> = names.into_iter().map(line).collect();
        selection.rows = lines.iter().flat_map(|line| line.rows.iter().copied()).collect();
        Some(Picture { selection, lines })
    }

    fn draw(&self, view: View) -> Drawing {
        let mut page = Page::new(view, "Step time by number of ranks", &self.finding());
        let styled = || self.lines.iter().enumerate();
        let entries = styled().map(|(style, line)| Entry::series(style, &line.algorithm));
        page.legend(&entries.collect::<Vec<_>>());
        let bounds = self.bounds_ms();
        if !bounds.is_empty() {
            page.legend(&[Entry::dashed("compute time alone, the lower bound")]);
        }
        let predicted = || self.lines.iter().filter_map(|line| line.predicted.as_ref());
        page.legend(&predicted().take(1).map(Predicted::entry).collect::<Vec<_>>());
        let all = || {
            let simulated = predicted().flat_map(|line| line.rows.iter().copied());
            self.selection.rows.iter().copied().chain(simulated)
        };
        let ranks = distinct::ascending(all().filter_map(|row| row.ranks));
        let times = all().flat_map(|row| row.time_us.ends()).map(|time_us| time_us / 1e3);
        let times: Vec<f64> = times.chain(bounds.iter().map(|(_, bound_ms)| *bound_ms)).collect();
        panels::single(&mut page, 180.0, 900.0, |drawing, frame| {
            let x = Axis::factor(&ranks, frame.left, frame.right);
            let y = Axis::measured(&times, frame.bottom, frame.top);
            x.draw_below(drawing, frame, "ranks");
            y.draw_left(drawing, frame, "step time (ms)");
            let bound = |(ranks, bound_ms): &(f64, f64)| (x.at(*ranks), y.at(*bound_ms));
            let mut path: Vec<Point> = bounds.iter().map(bound).collect();
            if let Some(&(_, first)) = path.first()
                && path.iter().all(|(_, at)| *at == first)
            {
                path = vec![(frame.left, first), (frame.right, first)];
            }
            drawing.broken(&path, theme::INK, 3.0, DASHES);
            let styled_predicted =
                || styled().filter_map(|(style, line)| Some((style, line.predicted.as_ref()?)));
            for (style, predicted) in styled_predicted() {
                predicted.draw_band(drawing, style, (&x, &y), in_ms);
            }
            for (style, predicted) in styled_predicted() {
                predicted.draw_line(drawing, style, (&x, &y), in_ms);
            }
            for (style, line) in styled() {
                line.draw(drawing, style, &x, &y);
            }
            frame.draw(drawing);
        });
        let note = "Each point is the algorithm's fastest setting for that many ranks: control plane, \
                    fusion threshold and cycle time may differ between points. Among layouts with \
                    equal ranks, the one on most nodes. Lines only join the points.";
        let mut notes = vec![note.to_string()];
        notes.extend(predicted().take(1).map(Predicted::note));
        let mut caption = Caption::of(&self.selection, |row| row.time_us, notes);
        if predicted().next().is_some() {
            predicted::mark(&mut caption);
        }
        page.finish(&caption)
    }

    /// The time of a step without communication for each number of ranks, if it is the same in all rows of that number.
    fn bounds_ms(&self) -> Vec<(f64, f64)> {
        let bound_ms = |ranks: f64| {
            let rows = self.selection.rows.iter().filter(|row| ranks_of(row) == ranks);
            let mut bounds = rows.map(|row| row.bound_us);
            let first = bounds.next()??;
            bounds.all(|other| other == Some(first)).then_some((ranks, first / 1e3))
        };
        let ranks = self.selection.ranks().into_iter();
        ranks.map(bound_ms).collect::<Option<_>>().unwrap_or_default()
    }

    /// The finding of the picture in a sentence.
    fn finding(&self) -> String {
        let all = || self.selection.rows.iter().copied();
        let ranks = all().map(ranks_of);
        let (few, many) =
            ranks.fold((f64::MAX, 0.0), |(few, many), n| (f64::min(few, n), f64::max(many, n)));
        let fastest = |ranks: f64| {
            let alike = all().filter(|row| ranks_of(row) == ranks);
            alike.min_by(|a, b| time_ms(a).total_cmp(&time_ms(b)))
        };
        let Some((first, last)) = fastest(few).zip(fastest(many)) else { return String::new() };
        let described = |row: &Row| {
            let (time, ranks) = (theme::significant(time_ms(row), 3), theme::exact(ranks_of(row)));
            let plural = if ranks == "1" { "" } else { "s" };
            format!("{time} ms on {ranks} rank{plural} ({})", self.selection.algorithm(row))
        };
        let per_rank = |row: &Row| row.throughput().value.unwrap_or_default() / ranks_of(row);
        let efficiency = theme::significant(100.0 * per_rank(last) / per_rank(first), 2);
        format!(
            "The fastest step takes {}, and {}: {efficiency} % of the throughput per rank.",
            described(first),
            described(last)
        )
    }
}

impl Line<'_> {
    fn draw(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let value = |row: &&Row| Value::of(x.at(ranks_of(row)), y, in_ms(row));
        Series::new(style, self.rows.iter().filter_map(value)).draw(drawing);
    }
}

fn in_ms(row: &Row) -> Estimate {
    row.time_us.map(|time_us| time_us / 1e3)
}

fn time_ms(row: &Row) -> f64 {
    row.time_us.value.expect("rows without a time have left the selection") / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, step};

    fn on(algorithm: &str, nodes: &str, ranks: &str, time_us: f64) -> synthetic::Row {
        let row = step(algorithm, "bitvector", 64.0, 5.0).with("nodes", nodes).with("ranks", ranks);
        row.with("emulated", if nodes == "1" { "false" } else { "true" })
            .with("bound_us", "24000")
            .with_estimate("time_us_p50", time_us, 500.0)
    }

    #[test]
    fn algorithms_are_lines_over_ranks_and_the_bound_is_one_too() {
        let words = FIGURE.words(&[
            on("ring", "1", "2", 30e3),
            on("ring", "2", "4", 60e3),
            on("hierarchical", "1", "2", 40e3),
            on("hierarchical", "2", "4", 50e3),
        ]);
        let finding = "The fastest step takes 30.0 ms on 2 ranks (ring), and 50.0 ms on 4 ranks \
                       (hierarchical): 60 % of the throughput per rank.";
        let plain = words.replace('\n', " ");
        assert!(plain.contains(finding), "{plain}");
        assert!(plain.contains("the lower bound") && plain.contains("emulated"), "{plain}");
    }

    #[test]
    fn of_one_algorithm_and_world_the_fastest_setting_is_drawn() {
        let slow = on("ring", "2", "4", 90e3).with("cycle_time_ms", "1");
        let packed = on("ring", "1", "4", 10e3);
        let words =
            FIGURE.words(&[on("ring", "1", "2", 30e3), on("ring", "2", "4", 60e3), slow, packed]);
        let plain = words.replace('\n', " ");
        assert!(plain.contains("and 60.0 ms on 4 ranks (ring): 50 %"), "over most nodes: {plain}");
    }

    #[test]
    fn steps_of_a_simulated_machine_are_left_to_figures_of_their_own() {
        let ran = [on("ring", "1", "2", 30e3), on("ring", "2", "4", 60e3)];
        let policies = synthetic::scaling(&["resnet50"], &["ddp"], &[6, 12]);
        let mut drawings = FIGURE.drawings(&[ran.to_vec(), policies.clone()].concat());
        assert_eq!(drawings.len(), 1);
        assert!(!drawings.remove(0).words().contains("SIMULATED"));
        assert!(FIGURE.refusal(&policies).starts_with("no rows of kind `step`"));
    }

    /// The fastest simulated setting of the same conditions, and on more ranks than were measured.
    #[test]
    fn predictions_are_drawn_beside_measurements() {
        let ran = [on("ring", "1", "2", 30e3), on("ring", "2", "4", 60e3)];
        let expected = |ranks: &str, time_us: f64| {
            let row = on("ring", "2", ranks, time_us).with("source", "simulated");
            row.with("machine", "here")
        };
        let simulated = [expected("4", 55e3), expected("4", 99e3), expected("16", 70e3)];
        let other = expected("64", 70e3).with("backward_ms", "1");
        let mut drawings = FIGURE.drawings(&[&ran[..], &simulated, &[other]].concat());
        assert_eq!(drawings.len(), 1);
        let words = drawings.remove(0).prose();
        assert!(words.contains("SIMULATED on machine here") && words.contains("16"), "{words}");
        assert!(!words.contains("64"), "{words}");
        assert!(words.contains(" · SIMULATED (dashed, bands) "), "{words}");
        assert!(words.contains("MEASURED (points) · "), "{words}");
        assert!(words.contains("30.0 ms on 2 ranks (ring), and 60.0 ms on 4"), "{words}");
    }

    /// Half of the work each, in two thirds of the time.
    #[test]
    fn with_strong_scaling_the_bound_falls() {
        let strong = |nodes: &str, ranks: &str, backward_ms: &str, time_us: f64| {
            let case = format!("threads/{nodes}x2/bitvector/ring/64MiB/5ms/strong");
            let row = on("ring", nodes, ranks, time_us).with("case", &case);
            row.with("backward_ms", backward_ms)
                .with("bound_us", &(backward_ms.to_string() + "000"))
        };
        let rows = [strong("1", "2", "24", 30e3), strong("2", "4", "12", 20e3)];
        let words = FIGURE.words(&rows).replace('\n', " ");
        assert!(words.contains("and 20.0 ms on 4 ranks (ring): 75 %"), "{words}");
        let rows = Rows::of(&synthetic::table(&rows));
        let selection = Selection::over_layouts(&rows, KIND, steps::settings).remove(0);
        let picture = Picture::of(selection, &rows).unwrap();
        assert_eq!(picture.bounds_ms(), [(2.0, 24.0), (4.0, 12.0)]);
    }

    #[test]
    fn one_number_of_ranks_is_no_scaling() {
        assert_eq!(
            FIGURE.refusal(&[on("ring", "2", "4", 60e3)]),
            "no rows of kind `step` with status ok have time_us_p50 for several numbers of ranks"
        );
    }
}
