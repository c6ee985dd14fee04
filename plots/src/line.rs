//! An algorithm's values over message size, as a line with markers and intervals.
//!
//! The lines between points only lead the eye; nothing is known of sizes between.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::drawing::Drawing;
use crate::page::{Entry, Page, SIGN};
use crate::rows::{Estimate, Row};
use crate::selection::Selection;
use crate::theme;

/// A message size in bytes, and the value there.
pub(crate) struct Point {
    pub size: f64,
    pub value: f64,
    interval: Option<(f64, f64)>,
}

impl Point {
    /// The point of a row, if the row has a size and the estimate that a figure shows.
    pub fn of(row: &Row, shown: fn(&Row) -> Estimate) -> Option<Point> {
        let Estimate { value, interval } = shown(row);
        Some(Point { size: row.size_bytes.filter(|size| *size > 0.0)?, value: value?, interval })
    }

    /// The value and the ends of its interval.
    pub fn span(&self) -> [f64; 3] {
        let (low, high) = self.interval.unwrap_or((self.value, self.value));
        [low, self.value, high]
    }
}

/// An algorithm and its points, by size.
pub(crate) struct Line {
    pub algorithm: String,
    pub points: Vec<Point>,
    /// Its colour and marker.
    style: usize,
}

impl Line {
    /// One line per algorithm, by name, through some rows of a selection.
    pub fn all(selection: &Selection, rows: &[&Row], shown: fn(&Row) -> Estimate) -> Vec<Line> {
        let mut lines: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        for row in rows {
            lines.entry(selection.algorithm(row)).or_default().extend(Point::of(row, shown));
        }
        let line = |(algorithm, mut points): (String, Vec<Point>)| {
            points.sort_by(|a, b| a.size.total_cmp(&b.size));
            Line { algorithm, points, style: 0 }
        };
        lines.into_iter().map(line).collect()
    }

    /// Gives an algorithm the same looks in every picture, so that one can leaf between them.
    pub fn style<'a>(lines: impl Iterator<Item = &'a mut Line>) {
        let mut alike: BTreeMap<String, Vec<&mut Line>> = BTreeMap::new();
        for line in lines {
            alike.entry(line.algorithm.clone()).or_default().push(line);
        }
        for (style, lines) in alike.into_values().enumerate() {
            lines.into_iter().for_each(|line| line.style = style);
        }
    }

    /// The highest point of some lines, and whose it is.
    pub fn highest(lines: &[Line]) -> Option<(&Line, &Point)> {
        let all = lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)));
        all.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))
    }

    /// A legend of some lines, each algorithm once.
    pub fn legend<'a>(page: &mut Page, lines: impl Iterator<Item = &'a Line>) {
        let once: BTreeMap<&str, &Line> =
            lines.map(|line| (line.algorithm.as_str(), line)).collect();
        page.legend(&once.into_values().map(Line::entry).collect::<Vec<_>>());
    }

    fn entry(&self) -> Entry<'static> {
        let style = self.style;
        Entry {
            sign: Box::new(move |drawing, (x, y)| {
                let half = SIGN / 2.0;
                drawing.line(&[(x - half, y), (x + half, y)], theme::series(style), 3.0);
                theme::marker(drawing, style, (x, y), theme::MARKER, false);
            }),
            label: self.algorithm.clone(),
        }
    }

    /// Draws the line between two axes.
    pub fn draw(&self, drawing: &mut Drawing, x: &Axis, y: &Axis) {
        let color = theme::series(self.style);
        let place = |point: &Point| (x.at(point.size), y.at(point.value));
        let path: Vec<_> = self.points.iter().map(place).collect();
        drawing.line(&path, color, 3.0);
        for point in &self.points {
            if let Some((low, high)) = point.interval {
                theme::interval(drawing, x.at(point.size), y.at(low), y.at(high), color);
            }
            theme::marker(drawing, self.style, place(point), theme::MARKER, false);
        }
    }
}

/// What lines tell apart within a picture.
pub(crate) fn case(row: &Row) -> Vec<String> {
    let place_and_size = format!("{:?} {:?}", row.in_place, row.size_bytes);
    vec![row.algorithm.clone(), row.groups.clone(), place_and_size]
}

/// What a caption says of lines through the rows of a selection.
pub(crate) fn note(selection: &Selection) -> String {
    let place = match selection.rows.iter().filter(|row| row.in_place == Some(true)).count() {
        0 if selection.rows.iter().all(|row| row.in_place.is_none()) => "",
        0 => "Out of place. ",
        count if count == selection.rows.len() => "In place. ",
        _ => "In place where rows for that exist, otherwise out of place. ",
    };
    format!("{place}Lines only join the points.")
}
