//! Predicted over measured time of algorithms on one machine, over message size.

use plotters::style::RGBColor;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Prediction;
use crate::drawing::{Drawing, HARD_SPACE, Point};
use crate::page::{Entry, Page, SIGN, Sign};
use crate::panels::{self, Frame, Shape};
use crate::theme;
use crate::validation::{GOAL_PERCENT, band, median};

/// Points that are not scored may lie further off: an arrow then stands for them.
const FURTHEST_PERCENT: f64 = 100.0;

/// The points of a transport and number of ranks.
struct Panel<'a> {
    title: String,
    points: Vec<&'a Prediction>,
}

/// None of no points.
pub(crate) fn draw(points: &[Prediction]) -> Option<Drawing> {
    if points.is_empty() {
        return None;
    }
    let title = "Predicted over measured time of an allreduce, by message size";
    let algorithms = in_order(points.iter().map(|point| point.algorithm.clone()));
    let mut page = Page::new(title, &finding(points, &algorithms));
    let mut entries: Vec<Entry> = algorithms.iter().enumerate().map(entry).collect();
    if points.iter().any(|point| !point.scored) {
        entries.push(unscored());
    }
    entries.push(band());
    page.legend(&entries);
    let panels = panels(points);
    let titles: Vec<String> = panels.iter().map(|panel| panel.title.clone()).collect();
    let shape = Shape::usual(150.0, 30.0, panels.len());
    let y = errors_axis(points);
    panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
        draw_panel(&panels[index], &algorithms, &y, drawing, frame);
    });
    Some(page.finish(&caption(points, &y(0.0, 1.0))))
}

/// The same axis for all panels, once it is known where.
fn errors_axis(points: &[Prediction]) -> impl Fn(f64, f64) -> Axis {
    let errors = points.iter().flat_map(|point| {
        let (low, high) = point.span_percent();
        let limit = if point.scored { f64::MAX } else { FURTHEST_PERCENT };
        [low.min(limit), high.min(limit)]
    });
    let errors: Vec<f64> = errors.collect();
    move |from, to| Axis::around(0.0, 2.0 * GOAL_PERCENT, &errors, from, to)
}

fn draw_panel(
    panel: &Panel,
    algorithms: &[String],
    y: &impl Fn(f64, f64) -> Axis,
    drawing: &mut Drawing,
    frame: Frame,
) {
    let sizes: Vec<f64> = panel.points.iter().map(|point| point.size_bytes).collect();
    let x = Axis::bytes(&sizes, frame.left, frame.right);
    let y = y(frame.bottom, frame.top);
    let (high, low) = (y.at(GOAL_PERCENT), y.at(-GOAL_PERCENT));
    drawing.rectangle(frame.left, high, frame.right - frame.left, low - high, theme::BAND);
    x.draw_below(drawing, frame.top, frame.bottom, "message size (logarithmic)");
    y.draw_left(drawing, frame.left, frame.right, "predicted / measured − 1 (%)");
    let none = y.at(0.0);
    drawing.dashes((frame.left, none), (frame.right, none), theme::INK, 3.0);
    for (style, algorithm) in algorithms.iter().enumerate() {
        let own = panel.points.iter().copied().filter(|point| point.algorithm == *algorithm);
        let mut own: Vec<&Prediction> = own.collect();
        own.sort_by(|a, b| a.size_bytes.total_cmp(&b.size_bytes));
        draw_line(&own, style, drawing, &x, &y);
    }
    drawing.frame(frame.left, frame.top, frame.right, frame.bottom);
}

fn draw_line(points: &[&Prediction], style: usize, drawing: &mut Drawing, x: &Axis, y: &Axis) {
    let place =
        |point: &Prediction| -> Point { (x.at(point.size_bytes), y.at(point.error_percent())) };
    let there = |point: &Prediction| y.holds(point.error_percent());
    for pair in points.windows(2).filter(|pair| pair.iter().all(|point| there(point))) {
        let color = color(style, pair[0].scored && pair[1].scored);
        drawing.line(&[place(pair[0]), place(pair[1])], color, 3.0);
    }
    // What counts lies above what does not.
    let (scored, faint): (Vec<&Prediction>, Vec<&Prediction>) =
        points.iter().partition(|point| point.scored);
    for point in faint.into_iter().chain(scored) {
        let (low, high) = point.span_percent();
        let color = color(style, point.scored);
        if !there(point) {
            arrow(drawing, place(point), color);
            continue;
        }
        if low < high {
            theme::interval(drawing, x.at(point.size_bytes), y.at(low), y.at(high), color);
        }
        theme::marker_in(drawing, style, place(point), theme::MARKER, false, color);
    }
}

/// Points upwards at the upper end of an axis.
fn arrow(drawing: &mut Drawing, (x, end): Point, color: RGBColor) {
    drawing.line(&[(x, end + 46.0), (x, end + 20.0)], color, 5.0);
    drawing.area(&[(x - 12.0, end + 24.0), (x + 12.0, end + 24.0), (x, end + 4.0)], color);
}

fn color(style: usize, scored: bool) -> RGBColor {
    let color = theme::series(style);
    if scored { color } else { theme::faint(color) }
}

fn entry((style, algorithm): (usize, &String)) -> Entry<'static> {
    Entry { sign: sign(style, theme::series(style)), label: algorithm.clone() }
}

fn unscored() -> Entry<'static> {
    Entry { sign: sign(0, theme::faint(theme::INK)), label: "faint: not scored".to_string() }
}

fn sign(style: usize, color: RGBColor) -> Sign<'static> {
    Box::new(move |drawing, (x, y)| {
        let half = SIGN / 2.0;
        drawing.line(&[(x - half, y), (x + half, y)], color, 3.0);
        theme::marker_in(drawing, style, (x, y), theme::MARKER, false, color);
    })
}

/// In the order of the file.
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

/// The distinct values, each at its first place.
fn in_order(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// What the picture shows, in a sentence.
fn finding(points: &[Prediction], algorithms: &[String]) -> String {
    let of = |algorithm: &String| {
        let own = points.iter().filter(|point| point.scored && point.algorithm == *algorithm);
        let error = median(own.map(|point| point.error_percent().abs()).collect())?;
        Some(format!("{algorithm}{HARD_SPACE}{}{HARD_SPACE}%", theme::significant(error, 2)))
    };
    let each: Vec<String> = algorithms.iter().filter_map(of).collect();
    match each.as_slice() {
        [] => "No point is scored.".to_string(),
        each => format!("Median error of the scored points, either way: {}.", each.join("; ")),
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
    let beyond = match points.iter().any(|point| !y.holds(point.error_percent())) {
        true => " Arrows: points beyond the axis.",
        false => "",
    };
    let words = format!(
        "Times are predicted from a calibration of the machine, to which no allreduce was fitted. \
         Points: the median over blocks, each with a calibration of its own; bars: its 95 % interval. The \
         band is the goal, {GOAL_PERCENT} % either way. Not scored: small messages, and more \
         ranks than cores.{beyond} Lines only join the points."
    );
    let origin = format!("Predicted times are SIMULATED, the others MEASURED{over}");
    Caption { simulated: true, origin, paragraphs: vec![words] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::rows::Rows;
    use crate::synthetic::validation;

    fn draw(table: &str) -> Drawing {
        let drawing = super::draw(&Rows::of(table).predictions).expect("there are points");
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
            "points, either way: ring 8.0 %; tree 12 %. ring tree faint: not scored within 15 %",
            "mpi, 4 ranks on 1 node",
            "Predicted times are SIMULATED, the others MEASURED Times",
            "Arrows: points beyond the axis.",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        let both = validation() + on_threads("2").split_once('\n').unwrap().1;
        let said = words(&both);
        assert!(said.contains("mpi, 4 ranks on 1 node 32 B"), "{said}");
        assert!(said.contains("threads, 2 ranks on 1 node 32 B"), "{said}");
    }

    #[test]
    fn what_is_not_scored_is_faint_and_more_ranks_than_cores_are_said() {
        let faint = |drawing: &Drawing| {
            let own = |mark: &&Mark| {
                let of = theme::faint(theme::series(0));
                matches!(mark, Mark::Disc { color, .. } if *color == of)
            };
            drawing.marks.iter().filter(own).count()
        };
        // Of two, an arrow stands for the one.
        assert_eq!(faint(&draw(&validation())), 1);
        let none = validation().replace("true,false\n", "false,true\n");
        assert_eq!(faint(&draw(&none)), 4);
        let said = words(&none);
        assert!(said.contains("No point is scored."), "{said}");
        assert!(said.contains(" · 6 of 10 points oversubscribed: more ranks than cores"), "{said}");
    }

    #[test]
    fn the_axis_reaches_every_scored_point() {
        let far = validation().replace("0.0800,0.0400,0.1300", "3.0800,3.0400,3.1300");
        let y = errors_axis(&Rows::of(&far).predictions)(0.0, 1.0);
        assert!(y.holds(308.0));
        let y = errors_axis(&Rows::of(&validation()).predictions)(0.0, 1.0);
        assert!(y.holds(100.0) && !y.holds(400.0));
    }
}
