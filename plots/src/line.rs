//! The values of an algorithm over message size.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::drawing::Drawing;
use crate::page::{Entry, Page};
use crate::rows::{Estimate, Row};
use crate::selection::Selection;
use crate::series::{Series, Value};

/// A message size in bytes and the value for it.
pub(crate) struct Point {
    pub size: f64,
    pub value: f64,
    interval: Option<(f64, f64)>,
}

impl Point {
    /// The point of a row, or `None` if its size or the value that `shown` picks is not known.
    pub fn of(row: &Row, shown: impl Fn(&Row) -> Estimate) -> Option<Point> {
        let Estimate { value, interval } = shown(row);
        Some(Point { size: row.size_bytes.filter(|size| *size > 0.0)?, value: value?, interval })
    }

    /// The value and the ends of its interval.
    pub fn span(&self) -> [f64; 3] {
        let (low, high) = self.interval.unwrap_or((self.value, self.value));
        [low, self.value, high]
    }

    fn estimate(&self) -> Estimate {
        Estimate { value: Some(self.value), interval: self.interval }
    }
}

/// An algorithm and its points, in the order of sizes.
pub(crate) struct Line {
    pub algorithm: String,
    pub points: Vec<Point>,
    /// Selects colour and marker.
    style: usize,
}

impl Line {
    /// One line per algorithm, ordered by name, through some rows of a selection.
    pub fn all(
        selection: &Selection,
        rows: &[&Row],
        shown: impl Fn(&Row) -> Estimate,
    ) -> Vec<Line> {
        let algorithms = selection.algorithms();
        let mut lines: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        for row in rows {
            lines.entry(algorithms.name(row)).or_default().extend(Point::of(row, &shown));
        }
        let line = |(algorithm, mut points): (String, Vec<Point>)| {
            points.sort_by(|a, b| a.size.total_cmp(&b.size));
            Line { algorithm, points, style: 0 }
        };
        lines.into_iter().map(line).collect()
    }

    /// Gives an algorithm the same colour and marker in every picture.
    pub fn style<'a>(lines: impl Iterator<Item = &'a mut Line>) {
        let mut alike: BTreeMap<String, Vec<&mut Line>> = BTreeMap::new();
        for line in lines {
            alike.entry(line.algorithm.clone()).or_default().push(line);
        }
        for (style, lines) in alike.into_values().enumerate() {
            lines.into_iter().for_each(|line| line.style = style);
        }
    }

    /// The point with the highest value, and its line.
    pub fn highest(lines: &[Line]) -> Option<(&Line, &Point)> {
        let all = lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)));
        all.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))
    }

    /// Adds a legend with each algorithm once.
    pub fn legend<'a>(page: &mut Page, lines: impl Iterator<Item = &'a Line>) {
        let once: BTreeMap<&str, &Line> =
            lines.map(|line| (line.algorithm.as_str(), line)).collect();
        let entries = once.into_values().map(|line| Entry::series(line.style, &line.algorithm));
        page.legend(&entries.collect::<Vec<_>>());
    }

    /// Draws the line between two axes.
    pub fn draw(&self, drawing: &mut Drawing, x: &Axis, y: &Axis) {
        let value = |point: &Point| Value::of(x.at(point.size), y, point.estimate());
        Series::new(self.style, self.points.iter().filter_map(value)).draw(drawing);
    }
}

/// What a picture of lines distinguishes.
pub(crate) fn case(row: &Row) -> Vec<String> {
    let place_and_size = format!("{:?} {:?}", row.in_place, row.size_bytes);
    vec![row.algorithm.clone(), row.groups.clone(), row.sync.clone(), place_and_size]
}

/// The caption's note on lines through the rows of a selection.
pub(crate) fn note(selection: &Selection) -> String {
    let place = match selection.rows.iter().filter(|row| row.in_place == Some(true)).count() {
        0 if selection.rows.iter().all(|row| row.in_place.is_none()) => "",
        0 => "Out of place. ",
        count if count == selection.rows.len() => "In place. ",
        _ => "In place where rows for that exist, otherwise out of place. ",
    };
    format!("{place}Lines only join the points.")
}
