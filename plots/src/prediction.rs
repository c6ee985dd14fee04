//! Predicted relative to measured time of algorithms on one machine: a row per algorithm, a point per
//! message size.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Prediction;
use crate::distinct::{self, in_order};
use crate::drawing::{Align, Drawing, HARD_SPACE, Point, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::theme;
use crate::validation::{GOAL_PERCENT, band, median};
use crate::view::View;

/// The axis does not extend to unscored points beyond this error; arrows replace them.
const FURTHEST_PERCENT: f64 = 100.0;
/// The height of an algorithm's row.
const ROW: f64 = 58.0;
/// Room right of the frame for a row's median.
const RIGHT: f64 = 120.0;
const RADIUS: f64 = 8.0;
/// The most sizes in the legend.
const MOST_SIZES: usize = 10;

/// The points of one transport and number of ranks.
struct Panel<'a> {
    title: String,
    points: Vec<&'a Prediction>,
}

/// What all panels have in common.
struct Rows {
    /// From top to bottom.
    algorithms: Vec<String>,
    /// In ascending order.
    sizes_bytes: Vec<f64>,
}

/// `None` if there are no points.
pub(crate) fn draw(view: View, points: &[Prediction]) -> Option<Drawing> {
    if points.is_empty() {
        return None;
    }
    let rows = Rows::of(points);
    let title = "Predicted over measured time of an allreduce, by algorithm and size";
    let panels = panels(points);
    let mut page = Page::new(view, title, &finding(points, &rows.algorithms, &panels));
    page.legend(&rows.entries());
    let mut looks = Vec::new();
    if points.iter().any(|point| !point.scored) {
        looks.push(unscored());
    }
    looks.push(band());
    page.legend(&looks);
    let titles: Vec<String> = panels.iter().map(|panel| panel.title.clone()).collect();
    let wide = |name: &String| text_width(name, view.small(), false);
    let left = rows.algorithms.iter().map(wide).fold(0.0, f64::max) + 24.0;
    let shape =
        Shape { left, right: RIGHT, height: ROW * rows.algorithms.len() as f64, is_elastic: false };
    let x = errors_axis(points);
    panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
        rows.draw(&panels[index], &x(frame.left, frame.right), drawing, frame);
    });
    Some(page.finish(&caption(points, &x(0.0, 1.0))))
}

/// The axis of all panels, from the pixels of its low and high end.
fn errors_axis(points: &[Prediction]) -> impl Fn(f64, f64) -> Axis {
    let errors = points.iter().flat_map(|point| {
        let (low, high) = point.span_percent();
        let limit = if point.scored { f64::MAX } else { FURTHEST_PERCENT };
        [low.min(limit), high.min(limit)]
    });
    let errors: Vec<f64> = errors.collect();
    move |from, to| Axis::around(0.0, 2.0 * GOAL_PERCENT, &errors, 6.0, (from, to))
}

impl Rows {
    fn of(points: &[Prediction]) -> Rows {
        let sizes_bytes = distinct::ascending(points.iter().map(|point| point.size_bytes));
        let algorithms = in_order(points.iter().map(|point| point.algorithm.clone()));
        Rows { algorithms, sizes_bytes }
    }

    /// The position of a size from 0 for the smallest to 1 for the largest.
    fn part(&self, size_bytes: f64) -> f64 {
        let place = self.sizes_bytes.iter().position(|size| *size == size_bytes);
        place.unwrap_or_default() as f64 / (self.sizes_bytes.len() - 1).max(1) as f64
    }

    /// The colour of a size. Larger sizes are brighter, but never as bright as the page.
    fn color(&self, size_bytes: f64) -> RGBColor {
        theme::viridis(0.9 * self.part(size_bytes))
    }

    fn entries(&self) -> Vec<Entry<'static>> {
        let every = self.sizes_bytes.len().div_ceil(MOST_SIZES);
        let entry = |size: &f64| {
            let color = self.color(*size);
            Entry {
                sign: Box::new(move |drawing, at| {
                    theme::marker_in(drawing, 0, at, RADIUS + 2.0, false, color);
                }),
                label: theme::bytes(*size),
            }
        };
        let mut entries: Vec<Entry> =
            self.sizes_bytes.iter().rev().step_by(every).map(entry).collect();
        entries.reverse();
        entries
    }

    fn draw(&self, panel: &Panel, x: &Axis, drawing: &mut Drawing, frame: Frame) {
        let (low, high) = (x.at(-GOAL_PERCENT), x.at(GOAL_PERCENT));
        drawing.rectangle(low, frame.top, high - low, frame.bottom - frame.top, theme::BAND);
        x.draw_below(drawing, frame, "predicted / measured − 1 (%)");
        let none = x.at(0.0);
        drawing.dashes((none, frame.top), (none, frame.bottom), theme::INK, 3.0);
        let median = Text::new("median", (frame.right + 14.0, frame.top - 16.0), drawing.small());
        drawing.text(Text { color: theme::SOFT, ..median });
        for (index, algorithm) in self.algorithms.iter().enumerate() {
            let y = frame.top + ROW * (index as f64 + 0.5);
            let name = Text::new(algorithm, (frame.left - 14.0, y), drawing.small()).centered();
            drawing.text(Text { align: Align::Right, ..name });
            let edge = y - ROW / 2.0;
            drawing.line(&[(frame.left, edge), (frame.right, edge)], theme::GRID, 2.0);
            let own = || panel.points.iter().copied().filter(|it| it.algorithm == *algorithm);
            // Scored points cover the others.
            for scored in [false, true] {
                for point in own().filter(|point| point.scored == scored) {
                    // Small sizes are above large ones so that intervals do not cover each other.
                    let down = (self.part(point.size_bytes) - 0.5) * (ROW - 20.0);
                    self.draw_point(point, drawing, x, y + down);
                }
            }
            let numbers =
                Text::new(error(own()), (frame.right + 14.0, y), drawing.small()).centered();
            drawing.text(Text { align: Align::Left, ..numbers });
        }
        frame.draw(drawing);
    }

    fn draw_point(&self, point: &Prediction, drawing: &mut Drawing, x: &Axis, y: f64) {
        let color = self.color(point.size_bytes);
        let at = (x.at(point.error_percent()), y);
        if !x.holds(point.error_percent()) {
            arrow(drawing, at, color);
            return;
        }
        let (low, high) = point.span_percent();
        let line = if point.scored { color } else { theme::faint(color) };
        drawing.line(&[(x.at(low), y), (x.at(high), y)], line, 2.0);
        theme::marker_in(drawing, 0, at, RADIUS, !point.scored, color);
    }
}

/// Draws an arrow to the right at the upper end of an axis.
fn arrow(drawing: &mut Drawing, (end, y): Point, color: RGBColor) {
    drawing.line(&[(end - 40.0, y), (end - 16.0, y)], color, 4.0);
    drawing.area(&[(end - 18.0, y - 9.0), (end - 18.0, y + 9.0), (end - 2.0, y)], color);
}

fn unscored() -> Entry<'static> {
    Entry {
        sign: Box::new(|drawing, at| {
            theme::marker_in(drawing, 0, at, RADIUS + 2.0, true, theme::INK);
        }),
        label: "hollow: not scored".to_string(),
    }
}

/// The median absolute error of the scored points as text; empty if none is scored.
fn error<'a>(points: impl Iterator<Item = &'a Prediction>) -> String {
    let scored = points.filter(|point| point.scored);
    match median(scored.map(|point| point.error_percent().abs()).collect()) {
        Some(error) => format!("{} %", theme::significant(error, 2)),
        None => String::new(),
    }
}

/// The panels in the order of the file.
fn panels(points: &[Prediction]) -> Vec<Panel<'_>> {
    let title = |point: &Prediction| {
        let nodes = theme::count(point.nodes as usize, "node");
        format!("{}, {} on {nodes}", point.transport, theme::ranks(point.ranks))
    };
    let panel = |name: String| {
        let points = points.iter().filter(|point| title(point) == name).collect();
        Panel { title: name, points }
    };
    in_order(points.iter().map(title)).into_iter().map(panel).collect()
}

/// The finding of the picture in a sentence: the median of all points, and the least and largest of those at the right of
/// panels.
fn finding(points: &[Prediction], algorithms: &[String], panels: &[Panel]) -> String {
    let of = |algorithm: &String, panel: &Panel| {
        let own = panel.points.iter().filter(|it| it.scored && it.algorithm == *algorithm);
        let error = median(own.map(|point| point.error_percent().abs()).collect())?;
        let place = if panels.len() > 1 { format!(", {}", panel.title) } else { String::new() };
        Some((error, format!("{algorithm}{place}")))
    };
    let shown = |panel| algorithms.iter().filter_map(move |algorithm| of(algorithm, panel));
    let mut each: Vec<(f64, String)> = panels.iter().flat_map(shown).collect();
    each.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let described = |(error, algorithm): &(f64, String)| {
        format!("{}{HARD_SPACE}% ({algorithm})", theme::significant(*error, 2))
    };
    let all = error(points.iter());
    let all = format!("Median error of the scored points, either way: {all}");
    match each.as_slice() {
        [] => "No point is scored.".to_string(),
        [only] => format!("Median error of the scored points, either way: {}.", described(only)),
        [least, .., most] => format!("{all}, from {} to {}.", described(least), described(most)),
    }
}

fn caption(points: &[Prediction], y: &Axis) -> Caption {
    let over = points.iter().filter(|point| point.oversubscribed).count();
    let over = match over {
        0 => String::new(),
        all if all == points.len() => " · oversubscribed: more ranks than cores".to_string(),
        some => {
            format!(" · {some} of {} points oversubscribed: more ranks than cores", points.len())
        }
    };
    let is_beyond = |point: &Prediction| !y.holds(point.error_percent());
    let beyond = if points.iter().any(is_beyond) { " Arrows: points beyond the axis." } else { "" };
    let words = format!(
        "Times are predicted from a calibration of the machine, to which no allreduce was fitted. \
         Points: the median over blocks, each with a calibration of its own; bars: its 95 % interval. \
         Within a row, small messages stand above large ones. The band is the goal, {GOAL_PERCENT} % \
         either way. Not scored: small messages, and more \
         ranks than cores. At the right, the median error of the scored points, either way.{beyond}"
    );
    let origin = format!("Predicted times are SIMULATED, the others MEASURED{over}");
    Caption { simulated: true, origin, paragraphs: vec![words] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::rows;
    use crate::synthetic::validation;

    fn draw(table: &str) -> Drawing {
        let drawing = super::draw(View::default(), &rows::Rows::of(table).predictions)
            .expect("there are points");
        assert_eq!(drawing.faults(), Vec::<String>::new());
        drawing
    }

    fn words(table: &str) -> String {
        draw(table).words().replace('\n', " ")
    }

    /// The same with other ranks.
    fn on_threads(ranks: &str) -> String {
        validation().replace("mpi,1,4", &format!("threads,1,{ranks}"))
    }

    #[test]
    fn scored_points_are_summed_up_and_panels_are_places() {
        let said = words(&validation());
        for expected in [
            "points, either way: 8.0 %, from 8.0 % (ring) to 12 % (tree). 64 B 1 KiB 64 KiB 1 MiB 16 MiB \
             hollow: not scored within 15 %",
            " ring 8.0 % tree 12 % Predicted times are SIMULATED",
            "mpi, 4 ranks on 1 node",
            "Predicted times are SIMULATED, the others MEASURED Times",
            "Arrows: points beyond the axis.",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        let both = validation() + on_threads("2").split_once('\n').unwrap().1;
        let said = words(&both);
        assert!(said.contains("mpi, 4 ranks on 1 node −"), "{said}");
        assert!(said.contains("threads, 2 ranks on 1 node −"), "{said}");
    }

    /// Of tree, the errors are 12 % on one place and 38 % on another: each is at the right of a panel.
    #[test]
    fn the_range_that_is_said_is_that_of_the_numbers_at_the_right() {
        let other = on_threads("2")
            .replace("-0.1200,-0.1600,-0.0700", "0.4200,0.3800,0.4700")
            .replace("0.1400,0.1000,0.1900", "0.3800,0.3400,0.4300");
        let both = validation() + other.split_once('\n').unwrap().1;
        let said = words(&both);
        let (finding, _) = said.split_once(" 64 B ").unwrap();
        assert!(
            finding.ends_with("from 8.0 % (ring, mpi, 4 ranks on 1 node) to 38 % (tree, threads, 2 ranks on 1 node)."),
            "{finding}"
        );
        for number in [" ring 8.0 % ", " tree 12 % ", " tree 38 % "] {
            assert!(said.contains(number), "{said}");
        }
    }

    #[test]
    fn what_is_not_scored_is_hollow_and_more_ranks_than_cores_are_said() {
        let hollow = |drawing: &Drawing| {
            let own =
                |mark: &&Mark| matches!(mark, Mark::Disc { color, .. } if *color == theme::PAPER);
            drawing.marks.iter().filter(own).count()
        };
        // Of four, an arrow stands for one; the legend has one, too.
        assert_eq!(hollow(&draw(&validation())), 3 + 1);
        let none = validation().replace("true,false\n", "false,true\n");
        assert_eq!(hollow(&draw(&none)), 9 + 1);
        let said = words(&none);
        assert!(said.contains("No point is scored."), "{said}");
        assert!(said.contains(" · 6 of 10 points oversubscribed: more ranks than cores"), "{said}");
    }

    #[test]
    fn many_algorithms_sizes_and_panels_fit() {
        let (header, rows) =
            validation().split_once('\n').map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
        let named = |index: usize| rows.replace("ring", &format!("halving-doubling-{index}"));
        let all: String = (0..20).map(named).collect();
        let sizes: String = (1..30)
            .map(|power| format!("mpi,1,4,ring,{},9,1,1,0.1,0.1,0.1,true,false\n", 1 << power))
            .collect();
        let both = all.replace("mpi,1,4", "threads,1,2");
        let drawing = draw(&format!("{header}\n{all}{sizes}{both}"));
        let names = drawing.texts().into_iter().filter(|text| text.words == "halving-doubling-7");
        assert_eq!(names.count(), 2, "a row in each panel");
    }

    #[test]
    fn the_axis_reaches_every_scored_point() {
        let far = validation().replace("0.0800,0.0400,0.1300", "3.0800,3.0400,3.1300");
        let y = errors_axis(&rows::Rows::of(&far).predictions)(0.0, 1.0);
        assert!(y.holds(308.0));
        let y = errors_axis(&rows::Rows::of(&validation()).predictions)(0.0, 1.0);
        assert!(y.holds(100.0) && !y.holds(400.0));
    }
}
