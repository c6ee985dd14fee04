//! The colour scale of a heat map, and its bar.

use plotters::style::RGBColor;

use crate::cell::Cell;
use crate::drawing::{Align, Drawing, Text};
use crate::page::{Entry, Sign};
use crate::theme;

/// The scale ends at this quantile of the times if the slowest one is [`FAR`] from it, so that a few
/// slow settings do not take most of the colours.
const QUANTILE: f64 = 0.9;
/// The slowest time is far from the quantile if it is more than this many times as long.
const FAR: f64 = 1.5;

/// The colour scale of all panels. Faster settings are brighter.
pub(crate) struct Colors {
    low: f64,
    high: f64,
    /// Whether some times are beyond the dark end.
    clipped: bool,
}

impl Colors {
    /// The scale of some cells, of which there must be at least one.
    pub fn over(cells: &[Cell]) -> Colors {
        let mut times: Vec<f64> = cells.iter().map(|cell| cell.time).collect();
        times.sort_by(f64::total_cmp);
        let last = times.len() - 1;
        let most = times[(QUANTILE * times.len() as f64).ceil() as usize - 1];
        let clipped = times[last] > FAR * most;
        let high = if clipped { most } else { times[last] };
        // Small differences must not look large. A single time needs no scale.
        let high = if high > times[0] { high.max(LEAST * times[0]) } else { high };
        Colors { low: times[0], high, clipped }
    }

    /// The legend entry of cells beyond the dark end, if there are any.
    pub fn entry(&self) -> Option<Entry<'static>> {
        let label = format!("{} ms or more: all as dark", theme::significant(self.high, 3));
        let sign: Sign = Box::new(|drawing, (x, y)| {
            drawing.rectangle(x - 24.0, y - 16.0, 48.0, 32.0, theme::viridis(0.0));
        });
        self.clipped.then_some(Entry { sign, label })
    }

    /// The position of a time from 0 for the slowest to 1 for the fastest, on a logarithmic scale so
    /// that equal ratios look equal.
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

    /// Positions on the bar and their times, with as many digits as make them distinct.
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
        let mut labels = (3..6).map(labels).find(distinct).unwrap_or_else(|| labels(6));
        if self.clipped {
            labels[0].insert(0, '≥');
        }
        parts.into_iter().zip(labels).collect()
    }

    /// Draws the bar of the scale, with its left edge at `left`.
    pub fn draw_bar(&self, drawing: &mut Drawing, left: f64, top: f64, bottom: f64) {
        const WIDTH: f64 = 40.0;
        const STEPS: usize = 120;
        // A higher bar would not be easier to read.
        let (middle, height) = ((top + bottom) / 2.0, (bottom - top).min(900.0));
        let (top, bottom) = (middle - height / 2.0, middle + height / 2.0);
        let step = height / STEPS as f64;
        for index in 0..STEPS {
            let y = top + index as f64 * step;
            let color = theme::viridis(1.0 - (index as f64 + 0.5) / STEPS as f64);
            // Steps overlap by a pixel so that rounding leaves no gap.
            let tall = (step + 1.0).min(bottom - y);
            drawing.rectangle(left, y, WIDTH, tall, color);
        }
        for (part, label) in self.ticks() {
            let y = bottom - part * height;
            drawing.line(&[(left + WIDTH, y), (left + WIDTH + 10.0, y)], theme::INK, 2.0);
            let label = Text::new(label, (left + WIDTH + 18.0, y), theme::TICK).centered();
            drawing.text(Text { align: Align::Left, ..label });
        }
        let at = (drawing.width - theme::MARGIN - 22.0, middle);
        let short = height < 460.0;
        let words = if short { "step time (ms)" } else { "step time (ms), brighter is faster" };
        drawing.text(Text { upwards: true, ..Text::new(words, at, theme::BODY) }.centered());
    }
}

/// The slow end of the scale is at least so many times the fast end.
const LEAST: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_narrow_scale_differ() {
        let words = |low, high| -> Vec<String> {
            Colors { low, high, clipped: false }
                .ticks()
                .into_iter()
                .map(|(_, label)| label)
                .collect()
        };
        assert_eq!(words(100.0, 200.0), ["200", "168", "141", "119", "100"]);
        assert_eq!(words(100.0, 101.0), ["101.0", "100.7", "100.5", "100.2", "100.0"]);
        assert_eq!(words(100.0, 100.0), ["100"]);
    }

    #[test]
    fn small_differences_do_not_look_large() {
        let cell = |time| Cell {
            algorithm: "ring".to_string(),
            plane: "coordinator".to_string(),
            threshold: 0.0,
            cycle: 1.0,
            time,
            interval: None,
            over_best: None,
        };
        let colors = Colors::over(&[cell(300.0), cell(303.0)]);
        assert!(colors.part(303.0) > 0.85, "1 % is a small part of the scale");
        assert_eq!(colors.ticks()[0].1, "330");
        assert_eq!(Colors::over(&[cell(300.0)]).ticks().len(), 1);
    }

    #[test]
    fn one_slow_setting_does_not_take_the_colours_of_all_others() {
        let of = |slowest: f64| {
            let time = |index: u32| if index == 0 { slowest } else { 100.0 + f64::from(index) };
            let cell = |index| Cell {
                algorithm: "ring".to_string(),
                plane: "coordinator".to_string(),
                threshold: 0.0,
                cycle: 1.0,
                time: time(index),
                interval: None,
                over_best: None,
            };
            Colors::over(&(0..20).map(cell).collect::<Vec<_>>())
        };
        let clipped = of(900.0);
        assert_eq!(clipped.ticks()[0].1, "≥118");
        assert_eq!(clipped.entry().expect("it is clipped").label, "118 ms or more: all as dark");
        assert_eq!((clipped.part(101.0), clipped.part(900.0) <= 0.0), (1.0, true));
        let whole = of(150.0);
        assert_eq!(whole.ticks()[0].1, "150");
        assert!(whole.entry().is_none());
    }
}
