//! What control planes take of rank 0 per step, over the number of ranks, one line per plane.
//!
//! Solid lines are measured: the time of rank 0's state machine in a world that one thread drives.
//! Dashed lines are not: time on a network, computed from numbers that are assumed. The two are kept
//! apart; their sum would be neither.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page, SIGN};
use crate::rows::{Assumed, Estimate, Row, Rows};
use crate::selection::Selection;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "control_planes", sheets };

const KIND: &str = "control";
/// What the first plane is compared with in words.
const BITS: &str = "bitvector";

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let selections = Selection::over_layouts(rows, KIND, |row| vec![row.control_plane.clone()]);
    if selections.is_empty() {
        let reason = format!("no row of kind `{KIND}`; run a sweep of control planes");
        return vec![Sheet::Skipped { reason }];
    }
    let pictures = selections.into_iter().filter_map(Picture::of);
    let drawn = pictures.map(|picture| (picture.selection.suffix.clone(), picture.draw()));
    Sheet::all(drawn.collect(), || {
        format!(
            "no rows of kind `{KIND}` with status ok have rank0_us_p50 for several numbers of ranks"
        )
    })
}

/// Planes over the same numbers of ranks.
struct Picture<'a> {
    selection: Selection<'a>,
    lines: Vec<Line<'a>>,
}

/// A plane and its rows, by ranks.
struct Line<'a> {
    plane: String,
    rows: Vec<&'a Row>,
}

impl<'a> Picture<'a> {
    /// None if there are not several numbers of ranks to draw.
    fn of(mut selection: Selection<'a>) -> Option<Picture<'a>> {
        selection.require(|row| row.rank0_us.value > Some(0.0) && row.ranks > Some(0.0));
        if selection.ranks().len() < 2 {
            return None;
        }
        let mut planes = selection.control_planes();
        planes.sort_by_cached_key(|plane| in_order(plane));
        let line = |plane: String| {
            let of_it = selection.rows.iter().copied().filter(|row| row.control_plane == plane);
            let mut rows: Vec<&Row> = of_it.collect();
            rows.sort_by(|a, b| ranks_of(a).total_cmp(&ranks_of(b)));
            Line { plane, rows }
        };
        let lines = planes.into_iter().map(line).collect();
        Some(Picture { selection, lines })
    }

    fn draw(&self) -> Drawing {
        let title = "What a control plane takes of rank 0 per step, by ranks";
        let mut page = Page::new(title, &self.finding());
        page.legend(&self.lines.iter().enumerate().map(Line::entry).collect::<Vec<_>>());
        page.legend(&kinds(self.network()));

        let (left, right) = (theme::MARGIN + 180.0, theme::WIDTH - theme::MARGIN - 20.0);
        let top = page.y + 16.0;
        let bottom = top + 940.0;
        let rows = || self.selection.rows.iter();
        let ranks = self.selection.ranks();
        let spans = rows().filter_map(|row| row.rank0_us.span());
        let measured = spans.flat_map(|(low, high)| [low, high]);
        let times: Vec<f64> = measured.chain(rows().filter_map(|row| network(row))).collect();
        let (x, y) = (Axis::factor(&ranks, left, right), Axis::measured(&times, bottom, top));
        x.draw_below(&mut page.drawing, top, bottom, &format!("ranks ({})", x.scale()));
        let title = format!("time per step (µs, {})", y.scale());
        y.draw_left(&mut page.drawing, left, right, &title);
        for (style, line) in self.lines.iter().enumerate() {
            line.draw_network(&mut page.drawing, style, &x, &y);
        }
        for (style, line) in self.lines.iter().enumerate() {
            line.draw(&mut page.drawing, style, &x, &y);
        }
        page.drawing.frame(left, top, right, bottom);
        page.y = bottom + 104.0;
        let mut caption = Caption::of(&self.selection, |row| row.rank0_us, self.notes());
        caption.origin += " (solid) · network ASSUMED (dashed)";
        page.finish(&caption)
    }

    /// What the network is assumed to be, where all rows assume the same.
    fn network(&self) -> Option<Assumed> {
        let mut assumed = self.selection.rows.iter().map(|row| row.network_assumed);
        let first = assumed.next()??;
        assumed.all(|other| other == Some(first)).then_some(first)
    }

    /// What the picture shows, in a sentence.
    fn finding(&self) -> String {
        let Some((first, others)) = self.lines.split_first() else { return String::new() };
        let Some(row) = first.rows.last() else { return String::new() };
        let of = |line: &Line| {
            let same = line.rows.iter().find(|other| other.ranks == row.ranks)?;
            Some(format!("{} with {}", time(same.rank0_us.value?), line.plane))
        };
        let bits = others.iter().filter(|line| line.plane == BITS);
        let said: Vec<String> = [first].into_iter().chain(bits).filter_map(of).collect();
        let ranks = theme::exact(ranks_of(row));
        let said = said.join(", ");
        format!("At {ranks} ranks a step takes {said} of rank 0's time (measured).")
    }

    fn notes(&self) -> Vec<String> {
        let tensors = self.selection.rows.iter().filter_map(|row| row.tensors);
        let tensors = match tensors.reduce(f64::max) {
            Some(tensors) => format!("{} tensors, all", theme::tick(tensors)),
            None => "All tensors".to_string(),
        };
        vec![
            "Solid: time of rank 0's state machine per step once tensors are known. One thread \
             drives all ranks, nothing travels, and in large worlds the other ranks' state pushes \
             rank 0's out of the processor's cache, even where rank 0 does the same work."
                .to_string(),
            "Dashed: nobody measured it; from messages in a row and the bytes that Horovod would \
             send. Planes without a dashed line send nothing."
                .to_string(),
            format!("{tensors} ready at once. Lines only join the points."),
        ]
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
            label: line.plane.clone(),
        }
    }

    /// What is measured.
    fn draw(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let color = theme::series(style);
        let known = || {
            let of = |row: &&Row| Some((x.at(ranks_of(row)), row.rank0_us.value?, row.rank0_us));
            self.rows.iter().filter_map(of).collect::<Vec<_>>()
        };
        let path: Vec<Point> = known().iter().map(|(x, time, _)| (*x, y.at(*time))).collect();
        drawing.line(&path, color, 3.0);
        for (x, time, estimate) in known() {
            let Estimate { interval, .. } = estimate;
            if let Some((low, high)) = interval {
                theme::interval(drawing, x, y.at(low), y.at(high), color);
            }
            theme::marker(drawing, style, (x, y.at(time)), theme::MARKER, false);
        }
    }

    /// What is assumed.
    fn draw_network(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let place = |row: &&Row| Some((x.at(ranks_of(row)), y.at(network(row)?)));
        let path: Vec<Point> = self.rows.iter().filter_map(place).collect();
        for pair in path.windows(2) {
            drawing.dashes(pair[0], pair[1], theme::series(style), 3.0);
        }
    }
}

/// What solid and dashed lines are.
fn kinds(assumed: Option<Assumed>) -> [Entry<'static>; 2] {
    let ends = |(x, y): Point| [(x - SIGN / 2.0, y), (x + SIGN / 2.0, y)];
    let assumed = match assumed {
        Some(Assumed { alpha_us, message_us, bandwidth_gb_s }) => {
            let [alpha_us, gb_s] = [alpha_us, bandwidth_gb_s].map(theme::tick);
            let message = match message_us {
                Some(message_us) => format!(", {} µs a message", theme::tick(message_us)),
                None => String::new(),
            };
            format!("time on a network, assumed: {alpha_us} µs latency{message}, {gb_s} GB/s")
        }
        None => "time on a network, assumed".to_string(),
    };
    [
        Entry {
            sign: Box::new(move |drawing, at| drawing.line(&ends(at), theme::INK, 3.0)),
            label: "time of rank 0, measured".to_string(),
        },
        Entry {
            sign: Box::new(move |drawing, at| {
                let [from, to] = ends(at);
                drawing.dashes(from, to, theme::INK, 3.0);
            }),
            label: assumed,
        },
    ]
}

/// The coordinator first, for it is what the others are compared with; then by name, and the number
/// in it by size.
fn in_order(plane: &str) -> (bool, String, u64) {
    let (base, number) = plane.split_once(':').unwrap_or((plane, ""));
    (base != "coordinator", base.to_string(), number.parse().unwrap_or(0))
}

fn ranks_of(row: &Row) -> f64 {
    row.ranks.expect("rows without ranks have left the selection")
}

/// Time on the network, where there is some.
fn network(row: &Row) -> Option<f64> {
    row.network_us.filter(|time| *time > 0.0)
}

/// A time in a sentence, from microseconds.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e3 => format!("{} ms", theme::significant(us / 1e3, 3)),
        us => format!("{} µs", theme::significant(us, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, control};

    const PLANES: [&str; 7] =
        ["tree:16", "coordinator", "tree:2", "tree:4", "bitvector", "tree:8", "ddp"];

    fn rows(planes: &[&str], ranks: &[u32]) -> Vec<synthetic::Row> {
        let of =
            |plane: &&str| ranks.iter().map(|&ranks| control(plane, ranks)).collect::<Vec<_>>();
        planes.iter().flat_map(of).collect()
    }

    fn draw(rows: &[synthetic::Row]) -> Drawing {
        let mut drawings = FIGURE.drawings(rows);
        assert_eq!(drawings.len(), 1);
        drawings.remove(0)
    }

    fn words(rows: &[synthetic::Row]) -> String {
        draw(rows).words().replace('\n', " ")
    }

    #[test]
    fn measured_and_assumed_are_told_apart() {
        let said = words(&rows(&PLANES, &[6, 96, 768, 1536, 6000, 27600]));
        for expected in [
            "At 27\u{202f}600 ranks a step takes 88.9 ms with coordinator, 3.00 µs with bitvector of",
            "coordinator bitvector ddp tree:2 tree:4 tree:8 tree:16 time of rank 0, measured",
            "time on a network, assumed: 1.5 µs latency, 0.5 µs a message, 23 GB/s",
            "MEASURED (solid) · network ASSUMED (dashed)",
            "transport lockstep; 6 to 27600 ranks;",
            "161 tensors, all ready at once.",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
    }

    #[test]
    fn a_plane_that_sends_nothing_has_no_dashes() {
        let lines = |planes: &[&str]| {
            let marks = draw(&rows(planes, &[6, 96, 768])).marks;
            let long = |points: &[Point]| points.len() == 3;
            let solid = marks
                .iter()
                .filter(|mark| matches!(mark, Mark::Line { points, .. } if long(points)));
            let of_series = |mark: &&Mark| matches!(mark, Mark::Line { points, color, .. } if points.len() == 2 && *color == theme::series(0));
            (solid.count(), marks.iter().filter(of_series).count())
        };
        let (solid, dashes) = lines(&["coordinator"]);
        assert!(solid == 1 && dashes > 20, "{solid} {dashes}");
        let (solid, without) = lines(&["ddp"]);
        assert_eq!(solid, 1);
        // The sign in the legend, and the bars of three intervals.
        assert_eq!(without, 1 + 3 * 3);
    }

    #[test]
    fn other_conditions_and_single_worlds_are_no_lines() {
        let mut all = rows(&PLANES, &[6, 6000]);
        for (column, value) in [
            ("workload", "bert_large"),
            ("ready_order", "shuffled"),
            ("cache_capacity", "0"),
            ("miss_share", "0.1"),
            ("invalid_share", "0.02"),
            ("transport", "threads"),
        ] {
            all.push(control("bitvector", 6000).with(column, value).with("rank0_us_p50", "1e9"));
        }
        let said = words(&all);
        assert!(said.contains("3.00 µs with bitvector"), "{said}");
        let sheets = (FIGURE.sheets)(&Rows::of(&synthetic::table(&all)));
        assert!(matches!(&sheets[..], [Sheet::Drawn { suffix, .. }] if suffix.is_empty()));
        let more = rows(&["ddp"], &[6, 96]);
        all.extend(more.iter().map(|row| row.with("miss_share", "0.5")));
        assert_eq!(FIGURE.drawings(&all).len(), 2);
    }

    #[test]
    fn wrong_rows_are_left_out_and_files_of_older_versions_have_none() {
        let mut all = rows(&["coordinator", "bitvector"], &[6, 96, 768]);
        all[5] = all[5].with("status", "wrong");
        assert!(words(&all).contains("1 case left out: 1 wrong (bitvector)."));
        let step = synthetic::step("ring", "coordinator", 64.0, 5.0);
        let reason = "no row of kind `control`; run a sweep of control planes";
        assert_eq!(FIGURE.refusal(&[step]), reason);
        let reason = "no rows of kind `control` with status ok have rank0_us_p50 for several \
                      numbers of ranks";
        assert_eq!(FIGURE.refusal(&[control("ddp", 6)]), reason);
    }
}
