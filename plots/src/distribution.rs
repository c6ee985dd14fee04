//! The distribution of step times: for a few settings the share of steps that took at most so long.
//!
//! The settings are Horovod's defaults, if they were measured, and the fastest ones. A median hides a second mode and a
//! long tail, which are steps of their own in a line here.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::dash;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, Page, sign_ends};
use crate::panels;
use crate::rows::{Row, Rows};
use crate::selection::Selection;
use crate::view::View;
use crate::{Figure, Sheet, steps, theme};

pub(crate) const FIGURE: Figure = Figure { name: "distribution", sheets };

/// The most settings of a picture.
const SHOWN: usize = 5;
/// The fewest steps of a setting for a line.
const STEPS_MIN: usize = 5;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let selections = Selection::of(rows, "step", steps::settings).into_iter();
    let drawn = selections.filter_map(|mut selection| {
        let lines: Vec<Line> = steps::notable(&selection, SHOWN)
            .into_iter()
            .map(|row| Line { row, times_us: rows.samples_of(row) })
            .filter(|line| line.times_us.len() >= STEPS_MIN)
            .collect();
        selection.rows = lines.iter().map(|line| line.row).collect();
        let suffix = selection.suffix.clone();
        (!lines.is_empty()).then(|| (suffix, draw(view, &selection, &lines)))
    });
    Sheet::all(drawn.collect(), || {
        format!("no samples.csv is among the results, or no case in it has {STEPS_MIN} steps")
    })
}

/// A setting and the times of its steps in ascending order.
struct Line<'a> {
    row: &'a Row,
    times_us: Vec<f64>,
}

impl Line<'_> {
    /// The time that a share of the steps do not exceed.
    fn quantile_ms(&self, share: f64) -> f64 {
        let last = self.times_us.len() - 1;
        let index = (share * self.times_us.len() as f64).ceil() as usize;
        self.times_us[index.saturating_sub(1).min(last)] / 1e3
    }

    /// The corners of the line: at every time a step up.
    fn corners(&self, x: &Axis, y: &Axis) -> Vec<Point> {
        let count = self.times_us.len() as f64;
        let mut corners = Vec::new();
        for (index, time_us) in self.times_us.iter().enumerate() {
            let at = x.at(time_us / 1e3);
            corners.push((at, y.at(100.0 * index as f64 / count)));
            corners.push((at, y.at(100.0 * (index + 1) as f64 / count)));
        }
        corners.extend(corners.last().map(|(_, top)| (x.pixels().1, *top)));
        corners
    }
}

fn draw(view: View, selection: &Selection, lines: &[Line]) -> Drawing {
    let mut page = Page::new(view, "Distribution of step times", &finding(selection, lines));
    let entries = lines.iter().enumerate().map(|(style, line)| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| {
            drawing.broken(&sign_ends(at), theme::series(style), 4.0, dash::pattern(style));
            theme::marker(drawing, style, at, theme::MARKER, false);
        }),
        label: steps::name(selection, line.row),
    });
    page.legend(&entries.collect::<Vec<_>>());
    let all = lines.iter().flat_map(|line| line.times_us.iter().map(|time_us| time_us / 1e3));
    let all: Vec<f64> = all.collect();
    panels::single(&mut page, 160.0, 760.0, |drawing, frame| {
        let x = Axis::spread(&all, frame.left, frame.right);
        let y = Axis::percent(frame.bottom, frame.top);
        x.draw_below(drawing, frame, "step time (ms)");
        y.draw_left(drawing, frame, "share of steps (%)");
        for (style, line) in lines.iter().enumerate() {
            let corners = line.corners(&x, &y);
            drawing.broken(&corners, theme::series(style), 4.0, dash::pattern(style));
        }
        for (style, line) in lines.iter().enumerate() {
            let at = (x.at(line.quantile_ms(0.5)), y.at(50.0));
            theme::marker(drawing, style, at, theme::MARKER, false);
        }
        frame.draw(drawing);
    });
    let note = "Markers: medians. Each step takes as long as its slowest rank. Steps of a block follow one another, so \
                they are not independent. Settings: Horovod's defaults, if they were measured, and the fastest.";
    page.finish(&Caption::of(selection, |row| row.time_us, vec![note.to_string()]))
}

/// The finding of the picture in a sentence: the tail of the fastest setting.
fn finding(selection: &Selection, lines: &[Line]) -> String {
    let fastest = lines.iter().min_by(|a, b| a.quantile_ms(0.5).total_cmp(&b.quantile_ms(0.5)));
    let Some(line) = fastest else { return String::new() };
    let [median, tail, longest] =
        [0.5, 0.9, 1.0].map(|share| theme::significant(line.quantile_ms(share), 3));
    format!(
        "With {}, half of the steps take at most {median} ms, nine of ten at most {tail} ms, and the longest {longest} ms.",
        steps::name(selection, line.row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{step, table};

    /// Rows and the samples of two settings.
    fn run() -> Rows {
        let ring = step("ring", "coordinator", 64.0, 5.0).with("case", "ring");
        let tree = step("tree", "coordinator", 64.0, 1.0).with("case", "tree");
        let rows = table(&[ring.with("time_us_p50", "10000"), tree.with("time_us_p50", "20000")]);
        let mut samples = "case,block,launch,order,step,time_us\n".to_string();
        for index in 1..=10 {
            samples += &format!("ring,0,1,0,{index},{}\n", 1000 * (index + 5));
            samples += &format!("tree,0,1,1,{index},20000\n");
        }
        Rows::of_run(&[&rows, &samples])
    }

    fn drawing(rows: &Rows) -> Drawing {
        match sheets(rows, View::default()).pop() {
            Some(Sheet::Drawn { drawing, .. }) => drawing,
            Some(Sheet::Skipped { reason }) => panic!("{reason}"),
            None => panic!("no sheet"),
        }
    }

    #[test]
    fn a_line_reaches_each_share_at_its_quantile() {
        let drawing = drawing(&run());
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.prose();
        let finding = "With ring, coordinator, 64 MiB, 5 ms, half of the steps take at most 10.0 ms, nine of ten at \
                       most 14.0 ms, and the longest 15.0 ms.";
        assert!(said.contains(finding), "{said}");
        assert!(said.contains(" tree, coordinator, 64 MiB, 1 ms ") && said.contains("MEASURED"));
        let line = Line { row: &run().all().next().unwrap().clone(), times_us: vec![1e3, 3e3] };
        let axis = |from, to| Axis::percent(from, to);
        let corners = line.corners(&axis(0.0, 100.0), &axis(100.0, 0.0));
        let expected = [(1.0, 100.0), (1.0, 50.0), (3.0, 50.0), (3.0, 0.0), (100.0, 0.0)];
        assert_eq!(corners, expected);
    }

    #[test]
    fn without_samples_there_is_nothing_to_draw() {
        let rows = Rows::of(&table(&[step("ring", "coordinator", 64.0, 5.0)]));
        let reason = match sheets(&rows, View::default()).as_slice() {
            [Sheet::Skipped { reason }] => reason.clone(),
            _ => panic!("a refusal"),
        };
        assert_eq!(reason, "no samples.csv is among the results, or no case in it has 5 steps");
    }
}
