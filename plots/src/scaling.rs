//! Step time over the number of ranks, one line per algorithm, each at its fastest setting.
//!
//! Every rank has the same work whatever the world (weak scaling), so a step that communicated for free
//! would be a flat line at its bound, which is drawn; the distance from it is what communication costs.
//! Where the same settings were simulated on the cluster's own calibration, that is drawn beside, and goes
//! on to more ranks.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page, SIGN};
use crate::predicted::Predicted;
use crate::rows::{Row, Rows};
use crate::selection::Selection;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "scaling", sheets };

const KIND: &str = "step";

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let selections = Selection::over_layouts(rows, KIND, |row| {
        vec![
            row.algorithm.clone(),
            row.groups.clone(),
            row.control_plane.clone(),
            format!("{:?} {:?}", row.fusion_threshold_bytes, row.cycle_time_ms),
        ]
    });
    let pictures = selections.into_iter().filter_map(|selection| Picture::of(selection, rows));
    let drawn = pictures.map(|picture| (picture.selection.suffix.clone(), picture.draw()));
    Sheet::all(drawn.collect(), || {
        format!(
            "no rows of kind `{KIND}` with status ok have time_us_p50 for several numbers of ranks"
        )
    })
}

/// Algorithms over the same numbers of ranks.
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
    /// None if there are not several numbers of ranks to draw.
    fn of(mut selection: Selection<'a>, rows: &'a Rows) -> Option<Picture<'a>> {
        selection.require(|row| row.time_us.value > Some(0.0) && row.ranks > Some(0.0));
        selection.prefer_most_nodes();
        if selection.ranks().len() < 2 {
            return None;
        }
        let mut names: Vec<String> =
            selection.rows.iter().map(|row| selection.algorithm(row)).collect();
        names.sort();
        names.dedup();
        let line = |algorithm: String| {
            let own = selection.rows.iter().copied();
            let mut own: Vec<&Row> =
                own.filter(|row| selection.algorithm(row) == algorithm).collect();
            own.sort_by(|a, b| {
                (ranks_of(a), time_ms(a)).partial_cmp(&(ranks_of(b), time_ms(b))).expect("numbers")
            });
            own.dedup_by_key(|row| row.ranks);
            // Of one with groups there is none.
            let predicted = Predicted::of(rows, &selection, &algorithm);
            Line { algorithm, rows: own, predicted }
        };
        let lines: Vec<Line> = names.into_iter().map(line).collect();
        selection.rows = lines.iter().flat_map(|line| line.rows.iter().copied()).collect();
        Some(Picture { selection, lines })
    }

    fn draw(&self) -> Drawing {
        let mut page = Page::new("Step time by number of ranks", &self.finding());
        page.legend(&self.lines.iter().enumerate().map(Line::entry).collect::<Vec<_>>());
        let bound_ms = self.bound_ms();
        if bound_ms.is_some() {
            page.legend(&[Entry {
                sign: Box::new(|drawing, (x, y)| {
                    let half = SIGN / 2.0;
                    drawing.dashes((x - half, y), (x + half, y), theme::INK, 3.0);
                }),
                label: "the step's compute alone: no step is shorter".to_string(),
            }]);
        }
        let predicted = || self.lines.iter().filter_map(|line| line.predicted.as_ref());
        page.legend(&predicted().take(1).map(Predicted::entry).collect::<Vec<_>>());
        let (left, right) = (theme::MARGIN + 180.0, theme::WIDTH - theme::MARGIN - 20.0);
        let top = page.y + 16.0;
        let bottom = top + 900.0;
        let simulated = || predicted().flat_map(|line| line.rows.iter().copied());
        let mut ranks = self.selection.ranks();
        ranks.extend(simulated().filter_map(|row| row.ranks));
        ranks.sort_by(f64::total_cmp);
        ranks.dedup();
        let all = self.selection.rows.iter().copied().chain(simulated());
        let spans = all.filter_map(|row| row.time_us.span());
        let times = spans.flat_map(|(low, high)| [low / 1e3, high / 1e3]);
        let times: Vec<f64> = times.chain(bound_ms).collect();
        let (x, y) = (Axis::factor(&ranks, left, right), Axis::measured(&times, bottom, top));
        x.draw_below(&mut page.drawing, top, bottom, &format!("ranks ({})", x.scale()));
        y.draw_left(&mut page.drawing, left, right, &format!("step time (ms, {})", y.scale()));
        if let Some(bound_ms) = bound_ms {
            let at = y.at(bound_ms);
            page.drawing.dashes((left, at), (right, at), theme::INK, 3.0);
        }
        let styled = || self.lines.iter().enumerate();
        let styled_predicted =
            || styled().filter_map(|(style, line)| Some((style, line.predicted.as_ref()?)));
        for (style, predicted) in styled_predicted() {
            predicted.draw_band(&mut page.drawing, style, &x, &y);
        }
        for (style, predicted) in styled_predicted() {
            predicted.draw_line(&mut page.drawing, style, &x, &y);
        }
        for (style, line) in styled() {
            line.draw(&mut page.drawing, style, &x, &y);
        }
        page.drawing.frame(left, top, right, bottom);
        page.y = bottom + 104.0;
        let note = "Each point is the algorithm's fastest setting for that many ranks: control plane, \
                    fusion threshold and cycle time may differ between points. Of layouts of as many \
                    ranks, that over most nodes. Lines only join the points.";
        let mut notes = vec![note.to_string()];
        notes.extend(predicted().take(1).map(|line| {
            format!(
                "Dashed: SIMULATED on machine {}, the fastest of the same settings; the band is what \
                 the intervals of all its parameters make of it at once. Nothing of it is fitted to \
                 these steps.",
                line.machine()
            )
        }));
        let mut caption = Caption::of(&self.selection, |row| row.time_us, notes);
        if predicted().next().is_some() {
            caption.simulated = true;
            caption.origin = caption.origin.replacen("MEASURED", "MEASURED (points)", 1);
            caption.origin += " · SIMULATED (dashed, bands)";
        }
        page.finish(&caption)
    }

    /// A step without communication, where all rows say the same.
    fn bound_ms(&self) -> Option<f64> {
        let mut bounds = self.selection.rows.iter().map(|row| row.bound_us);
        let first = bounds.next()??;
        bounds.all(|other| other == Some(first)).then_some(first / 1e3)
    }

    /// What the picture shows, in a sentence.
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
        let told = |row: &Row| {
            let (time, ranks) = (theme::significant(time_ms(row), 3), theme::exact(ranks_of(row)));
            format!("{time} ms on {ranks} ranks ({})", self.selection.algorithm(row))
        };
        let efficiency = theme::significant(100.0 * time_ms(first) / time_ms(last), 2);
        format!(
            "The fastest step takes {}, and {}: {efficiency} % of the throughput per rank.",
            told(first),
            told(last)
        )
    }
}

impl Line<'_> {
    fn entry((style, line): (usize, &Line)) -> Entry<'static> {
        Entry {
            sign: Box::new(move |drawing, (x, y)| {
                let half = SIGN / 2.0;
                drawing.line(&[(x - half, y), (x + half, y)], theme::series(style), 3.0);
                theme::marker(drawing, style, (x, y), theme::MARKER, false);
            }),
            label: line.algorithm.clone(),
        }
    }

    fn draw(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let color = theme::series(style);
        let place = |row: &&Row| (x.at(ranks_of(row)), y.at(time_ms(row)));
        let path: Vec<Point> = self.rows.iter().map(place).collect();
        drawing.line(&path, color, 3.0);
        for row in &self.rows {
            if let Some((low, high)) = row.time_us.interval {
                theme::interval(
                    drawing,
                    x.at(ranks_of(row)),
                    y.at(low / 1e3),
                    y.at(high / 1e3),
                    color,
                );
            }
            theme::marker(drawing, style, place(row), theme::MARKER, false);
        }
    }
}

fn ranks_of(row: &Row) -> f64 {
    row.ranks.expect("rows without ranks have left the selection")
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

    fn words(rows: &[synthetic::Row]) -> String {
        let mut drawings = FIGURE.drawings(rows);
        assert_eq!(drawings.len(), 1);
        drawings.remove(0).words()
    }

    #[test]
    fn algorithms_are_lines_over_ranks_and_the_bound_is_one_too() {
        let words = words(&[
            on("ring", "1", "2", 30e3),
            on("ring", "2", "4", 60e3),
            on("hierarchical", "1", "2", 40e3),
            on("hierarchical", "2", "4", 50e3),
        ]);
        let finding = "The fastest step takes 30.0 ms on 2 ranks (ring), and 50.0 ms on 4 ranks \
                       (hierarchical): 60 % of the throughput per rank.";
        let plain = words.replace('\n', " ");
        assert!(plain.contains(finding), "{plain}");
        assert!(plain.contains("no step is shorter") && plain.contains("emulated"), "{plain}");
    }

    #[test]
    fn of_one_algorithm_and_world_the_fastest_setting_is_drawn() {
        let slow = on("ring", "2", "4", 90e3).with("cycle_time_ms", "1");
        let packed = on("ring", "1", "4", 10e3);
        let words = words(&[on("ring", "1", "2", 30e3), on("ring", "2", "4", 60e3), slow, packed]);
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
    fn what_was_expected_is_drawn_beside() {
        let ran = [on("ring", "1", "2", 30e3), on("ring", "2", "4", 60e3)];
        let expected = |ranks: &str, time_us: f64| {
            let row = on("ring", "2", ranks, time_us).with("source", "simulated");
            row.with("machine", "here")
        };
        let simulated = [expected("4", 55e3), expected("4", 99e3), expected("16", 70e3)];
        let other = expected("64", 70e3).with("backward_ms", "1");
        let mut drawings = FIGURE.drawings(&[&ran[..], &simulated, &[other]].concat());
        assert_eq!(drawings.len(), 1);
        let words = drawings.remove(0).words().replace('\n', " ");
        assert!(words.contains("SIMULATED on machine here") && words.contains("16"), "{words}");
        assert!(!words.contains("64"), "{words}");
        assert!(words.contains(" · SIMULATED (dashed, bands) "), "{words}");
        assert!(words.contains("MEASURED (points) · "), "{words}");
        assert!(words.contains("30.0 ms on 2 ranks (ring), and 60.0 ms on 4"), "{words}");
    }

    #[test]
    fn one_number_of_ranks_is_no_scaling() {
        assert_eq!(
            FIGURE.refusal(&[on("ring", "2", "4", 60e3)]),
            "no rows of kind `step` with status ok have time_us_p50 for several numbers of ranks"
        );
    }
}
