//! Simulated over published efficiency of training, a panel per group of points.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Published;
use crate::distinct::in_order;
use crate::drawing::{Drawing, HARD_SPACE};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::theme;
use crate::validation::median;
use crate::view::View;

/// How a test point is marked.
const TEST: usize = 0;
/// How a point for calibration is marked.
const CALIBRATION: usize = 3;

/// `None` if there is no training.
pub(crate) fn draw(view: View, points: &[Published]) -> Option<Drawing> {
    let points: Vec<Point> = points.iter().filter_map(Point::of).collect();
    if points.is_empty() {
        return None;
    }
    let title = "Efficiency of training: simulated, and as published";
    let mut page = Page::new(view, title, &finding(&points));
    let entry = |is_fitted: bool, label: &str| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| mark(drawing, is_fitted, at)),
        label: label.to_string(),
    };
    page.legend(&[entry(false, "test"), entry(true, "for calibration"), Entry::dashed("equal")]);
    let groups = in_order(points.iter().map(|point| point.group));
    let titles: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
    let shape = Shape::usual(130.0, 30.0, titles.len());
    let values = points.iter().flat_map(|point| [point.published, point.simulated, point.range.1]);
    let values: Vec<f64> = values.collect();
    panels::lay(&mut page, &titles, shape, |drawing, index, frame| {
        let own = points.iter().filter(|point| point.group == groups[index]);
        draw_panel(&own.collect::<Vec<_>>(), &values, drawing, frame);
    });
    Some(page.finish(&caption(&points)))
}

fn draw_panel(points: &[&Point], values: &[f64], drawing: &mut Drawing, frame: Frame) {
    let x = Axis::shares(1.0, values, frame.left, frame.right);
    let y = Axis::shares(1.0, values, frame.bottom, frame.top);
    x.draw_below(drawing, frame, "published efficiency");
    y.draw_left(drawing, frame, "simulated efficiency");
    let end = x.ends().1;
    drawing.dashes((x.at(0.0), y.at(0.0)), (x.at(end), y.at(end)), theme::INK, 3.0);
    for point in points {
        let at = (x.at(point.published), y.at(point.simulated));
        let (low, high) = point.range;
        let color = if point.is_fitted { theme::SOFT } else { theme::series(TEST) };
        theme::interval(drawing, at.0, y.at(low), y.at(high), color);
        mark(drawing, point.is_fitted, at);
    }
    frame.draw(drawing);
}

fn mark(drawing: &mut Drawing, is_fitted: bool, at: (f64, f64)) {
    if is_fitted {
        theme::marker_in(drawing, CALIBRATION, at, theme::MARKER, false, theme::SOFT);
    } else {
        theme::marker(drawing, TEST, at, theme::MARKER, false);
    }
}

/// A point with efficiencies.
struct Point<'p> {
    group: &'p str,
    published: f64,
    simulated: f64,
    range: (f64, f64),
    is_fitted: bool,
}

impl Point<'_> {
    /// None if perfect scaling is not known, as of an allreduce.
    fn of(point: &Published) -> Option<Point<'_>> {
        let perfect = point.perfect.filter(|&perfect| perfect > 0.0)?;
        let simulated = point.simulated / perfect;
        let range = point
            .range
            .map_or((simulated, simulated), |(low, high)| (low / perfect, high / perfect));
        let published = point.published / perfect;
        Some(Point { group: &point.group, published, simulated, range, is_fitted: point.fitted })
    }

    fn is_within(&self) -> bool {
        (self.range.0..=self.range.1).contains(&self.published)
    }
}

/// The finding of the picture in sentences.
fn finding(points: &[Point]) -> String {
    let tests: Vec<&Point> = points.iter().filter(|point| !point.is_fitted).collect();
    let error = |point: &&Point| 100.0 * (point.simulated - point.published).abs();
    let Some(error) = median(tests.iter().map(error).collect()) else {
        return "Every point is for calibration.".to_string();
    };
    let above = tests.iter().filter(|point| point.simulated > point.published).count();
    let within = tests.iter().filter(|point| point.is_within()).count();
    format!(
        "Of {} test points {above} are simulated too fast, and {within} are published within the simulated range; \
         the median error is {}{HARD_SPACE}points of 100.",
        tests.len(),
        theme::significant(error, 2)
    )
}

fn caption(points: &[Point]) -> Caption {
    let over = points.iter().filter(|point| point.published > 1.0).count();
    let mut paragraphs = vec![
        "Efficiency: throughput over that of as many GPUs that train alone, at the published speed of one. Above the \
         line, training is simulated too fast. Bars: the range of the simulation: seeds, the range of each parameter, and how \
         far points for calibration are from their simulation. Published numbers are quoted; published.csv has their \
         sources."
            .to_string(),
    ];
    if over > 0 {
        paragraphs.push(format!("{} published with more than 1.", theme::count(over, "point")));
    }
    let origin = "SIMULATED, beside what others have MEASURED and published".to_string();
    Caption { simulated: true, origin, paragraphs }
}

#[cfg(test)]
mod tests {
    use crate::rows::Rows;
    use crate::synthetic::published;
    use crate::view::View;

    #[test]
    fn training_points_stand_at_their_efficiencies() {
        let drawing = super::draw(View::default(), &Rows::of(&published()).published)
            .expect("there is training");
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let said = drawing.words().replace('\n', " ");
        for expected in [
            "Of 1 test points 1 are simulated too fast, and 1 are published within",
            "the median error is 13 points",
            "one node",
            "SIMULATED, beside what others have MEASURED and published",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
    }

    #[test]
    fn without_training_there_is_no_picture() {
        let allreduces: Vec<String> = published().lines().take(3).map(str::to_string).collect();
        assert!(
            super::draw(View::default(), &Rows::of(&(allreduces.join("\n") + "\n")).published)
                .is_none()
        );
    }
}
