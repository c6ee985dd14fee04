//! A series of points: a line through them, and a marker and an interval at each.
//!
//! The line only guides the eye. Nothing is known about values between the points.

use crate::axis::Axis;
use crate::drawing::{Drawing, Point};
use crate::rows::Estimate;
use crate::theme;

/// A point and the ends of its interval, in pixels.
pub(crate) struct Value {
    at: Point,
    interval: Option<(f64, f64)>,
}

impl Value {
    /// An estimate at the pixel `x` of the horizontal axis; `None` if its value is not known.
    pub fn of(x: f64, y: &Axis, estimate: Estimate) -> Option<Value> {
        let Estimate { value, interval } = estimate.map(|value| y.at(value));
        Some(Value { at: (x, value?), interval })
    }
}

/// The points of one legend entry.
pub(crate) struct Series {
    /// Selects colour and marker.
    style: usize,
    /// The radius of the markers in pixels.
    pub radius: f64,
    /// Whether the markers are hollow.
    pub hollow: bool,
    values: Vec<Value>,
}

impl Series {
    /// A series with filled markers of the size of its style.
    pub fn new(style: usize, values: impl Iterator<Item = Value>) -> Series {
        Series { style, radius: theme::radius(style), hollow: false, values: values.collect() }
    }

    /// The places of the points.
    pub fn path(&self) -> Vec<Point> {
        self.values.iter().map(|value| value.at).collect()
    }

    /// Draws a solid line, then markers and intervals.
    pub fn draw(&self, drawing: &mut Drawing) {
        drawing.line(&self.path(), theme::series(self.style), 3.0);
        self.draw_markers(drawing);
    }

    /// Draws markers and intervals without a line.
    pub fn draw_markers(&self, drawing: &mut Drawing) {
        for Value { at, interval } in &self.values {
            if let Some((low, high)) = *interval {
                theme::interval(drawing, at.0, low, high, theme::series(self.style));
            }
            theme::marker(drawing, self.style, *at, self.radius, self.hollow);
        }
    }
}
