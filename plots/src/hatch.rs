//! Slanted lines in a rectangle.

use plotters::style::RGBColor;

use crate::drawing::Drawing;
use crate::theme;

/// Left, top, width and height.
pub(crate) type Rectangle = [f64; 4];

/// Parallel slanted lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hatch {
    pub color: RGBColor,
    /// The horizontal distance between lines, in pixels.
    pub every: f64,
    pub width: f64,
    /// Whether lines fall to the right rather than rise.
    pub falling: bool,
}

impl Hatch {
    /// Draws the sign for a missing value.
    pub fn missing(drawing: &mut Drawing, [left, top, width, height]: Rectangle) {
        drawing.rectangle(left, top, width, height, theme::PAPER);
        let hatch =
            Hatch { color: RGBColor(190, 190, 190), every: 16.0, width: 2.0, falling: false };
        hatch.draw(drawing, [left, top, width, height]);
    }

    /// Draws the lines on top of what is in the rectangle.
    pub fn draw(&self, drawing: &mut Drawing, [left, top, width, height]: Rectangle) {
        let mut start = self.every / 2.0;
        // Lines x + y = start, cut off at the sides.
        while start < width + height {
            let from = if start < width { (start, 0.0) } else { (width, start - width) };
            let to = if start < height { (0.0, start) } else { (start - height, height) };
            let place = |(x, y): (f64, f64)| {
                (if self.falling { left + width - x } else { left + x }, top + y)
            };
            drawing.line(&[place(from), place(to)], self.color, self.width);
            start += self.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;

    #[test]
    fn lines_stay_within_the_rectangle_and_rise_or_fall() {
        for falling in [false, true] {
            for (width, height) in [(100.0, 30.0), (30.0, 100.0), (5.0, 5.0)] {
                let mut drawing = Drawing::default();
                let hatch = Hatch { color: theme::INK, every: 9.0, width: 2.0, falling };
                hatch.draw(&mut drawing, [10.0, 20.0, width, height]);
                assert_eq!(drawing.marks.len(), ((width + height - 4.5) / 9.0_f64).ceil() as usize);
                for mark in &drawing.marks {
                    let Mark::Line { points, .. } = mark else { panic!("{mark:?}") };
                    let inside = |(x, y): &(f64, f64)| {
                        (10.0..=10.0 + width).contains(x) && (20.0..=20.0 + height).contains(y)
                    };
                    assert!(points.iter().all(inside), "{points:?}");
                    let rises = (points[0].0 - points[1].0) * (points[0].1 - points[1].1) <= 0.0;
                    assert_eq!(rises, !falling, "{points:?}");
                }
            }
        }
    }
}
