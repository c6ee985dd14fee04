//! The colour scale of a heat map, and the bar that explains it.

use plotters::style::RGBColor;

use crate::cell::Cell;
use crate::drawing::{Align, Drawing, Text};
use crate::theme;

/// The colour scale that all panels share: the brighter, the faster.
pub(crate) struct Colors {
    low: f64,
    high: f64,
}

impl Colors {
    pub fn over(cells: &[Cell]) -> Colors {
        let times = || cells.iter().map(|cell| cell.time);
        Colors {
            low: times().fold(f64::INFINITY, f64::min),
            high: times().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// From 0 at the slowest to 1 at the fastest. Logarithmic, so that equal ratios look equal.
    fn part(&self, time: f64) -> f64 {
        if self.high > self.low && self.low > 0.0 {
            (self.high / time).ln() / (self.high / self.low).ln()
        } else {
            1.0
        }
    }

    pub fn of(&self, cell: &Cell) -> RGBColor {
        theme::viridis(self.part(cell.time))
    }

    /// Places on the bar and their times, in as many digits as tell them apart.
    fn ticks(&self) -> Vec<(f64, String)> {
        if self.high <= self.low || self.low <= 0.0 {
            return vec![(1.0, theme::significant(self.low, 3))];
        }
        let parts = [0.0, 0.25, 0.5, 0.75, 1.0];
        let labels = |digits| {
            parts.map(|part| {
                theme::significant(self.high * (self.low / self.high).powf(part), digits)
            })
        };
        let distinct = |labels: &[String; 5]| labels.windows(2).all(|pair| pair[0] != pair[1]);
        let labels = (3..6).map(labels).find(distinct).unwrap_or_else(|| labels(6));
        parts.into_iter().zip(labels).collect()
    }

    /// Draws the bar that explains the scale at the page's right edge, from `left` on.
    pub fn draw_bar(&self, drawing: &mut Drawing, left: f64, top: f64, bottom: f64) {
        const WIDTH: f64 = 40.0;
        const STEPS: usize = 120;
        // A bar as tall as the page is no easier to read.
        let (middle, height) = ((top + bottom) / 2.0, (bottom - top).min(900.0));
        let (top, bottom) = (middle - height / 2.0, middle + height / 2.0);
        let step = height / STEPS as f64;
        for index in 0..STEPS {
            let y = top + index as f64 * step;
            let color = theme::viridis(1.0 - (index as f64 + 0.5) / STEPS as f64);
            // Steps overlap by a pixel, for rounding must leave no gap.
            let tall = (step + 1.0).min(bottom - y);
            drawing.rectangle(left, y, WIDTH, tall, color);
        }
        for (part, label) in self.ticks() {
            let y = bottom - part * height;
            drawing.line(&[(left + WIDTH, y), (left + WIDTH + 10.0, y)], theme::INK, 2.0);
            let label = Text::new(label, (left + WIDTH + 18.0, y), theme::TICK).centered();
            drawing.text(Text { align: Align::Left, ..label });
        }
        let at = (theme::WIDTH - theme::MARGIN - 22.0, middle);
        let short = height < 460.0;
        let words = if short { "step time (ms)" } else { "step time (ms), brighter is faster" };
        drawing.text(Text { upwards: true, ..Text::new(words, at, theme::BODY) }.centered());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_narrow_scale_differ() {
        let words = |low, high| -> Vec<String> {
            Colors { low, high }.ticks().into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(words(100.0, 200.0), ["200", "168", "141", "119", "100"]);
        assert_eq!(words(100.0, 101.0), ["101.0", "100.7", "100.5", "100.2", "100.0"]);
        assert_eq!(words(100.0, 100.0), ["100"]);
    }
}
