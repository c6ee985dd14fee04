//! Axes: the mapping from values to pixels, and the ticks.

use crate::drawing::{Align, Drawing, Text, text_width};
use crate::frame::Frame;
use crate::theme;

/// A linear or logarithmic scale from one pixel to another.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// Below this value the axis is compressed into [`COMPRESSED`] of its length.
    bend: Option<f64>,
    /// The values of the ticks and their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis for a measured quantity: logarithmic if the values span a factor of ten or more,
    /// otherwise linear from zero. `from` and `to` are the pixels of its low and high end.
    pub fn measured(values: &[f64], from: f64, to: f64) -> Axis {
        let (low, high) = extremes(values);
        if low > 0.0 && high / low >= 10.0 {
            Axis::logarithmic(values, from, to)
        } else {
            let mut axis =
                Axis::spanning(false, 0.0, if high > 0.0 { high } else { 1.0 }, from, to);
            axis.ticks = axis.even_ticks(5.0);
            axis
        }
    }

    /// A logarithmic axis for a quantity above zero.
    pub fn logarithmic(values: &[f64], from: f64, to: f64) -> Axis {
        let (low, high) = extremes(values);
        let mut axis = Axis::spanning(true, low, high, from, to);
        let decades = (axis.high / axis.low).log10();
        let digits: &[f64] = match decades {
            few if few < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            some if some < 2.6 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let exponents = axis.low.log10().floor() as i32..=axis.high.log10().ceil() as i32;
        let marks = exponents
            .flat_map(|exponent| digits.iter().map(move |digit| digit * 10f64.powi(exponent)));
        let within = marks.filter(|mark| axis.low <= *mark && *mark <= axis.high);
        axis.ticks = within.map(|mark| (mark, theme::tick(mark))).collect();
        axis
    }

    /// A linear axis for shares of `whole`, from 0 to 10 % above `whole`, or to the largest value if
    /// that is more.
    pub fn shares(whole: f64, values: &[f64], from: f64, to: f64) -> Axis {
        let mut axis = Axis::spanning(false, 0.0, extremes(values).1, from, to);
        axis.high = axis.high.max(whole + whole / 10.0);
        axis.ticks = axis.even_ticks(10.0);
        axis
    }

    /// A linear axis for efficiencies up to 1. Where most of them are high, it begins above 0, or is compressed below
    /// them if a few are lower.
    pub fn efficiencies(values: &[f64], from: f64, to: f64) -> Axis {
        let mut axis = Axis::shares(1.0, values, from, to);
        axis.high = extremes(values).1.max(1.0) + 0.04;
        axis.ticks.retain(|(value, _)| *value <= axis.high);
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        // Of five efficiencies four are higher.
        let Some(high) = sorted.get(sorted.len() / 5) else { return axis };
        let (bend, lowest) = ((high * 10.0).floor() / 10.0, (sorted[0] * 10.0).floor() / 10.0);
        if bend < 0.6 {
            return axis;
        }
        if lowest >= bend - 0.15 {
            axis.low = lowest;
            axis.ticks.retain(|(value, _)| *value >= lowest - 1e-9);
        } else {
            axis.bend = Some(bend);
        }
        let step = 0.05;
        let first = axis.bend.unwrap_or(axis.low);
        axis.ticks.retain(|(value, _)| *value < first - 0.15);
        let steps = (first / step).round() as i32..=(axis.high / step + 1e-9).floor() as i32;
        let fine = steps.map(|index| f64::from(index) * step);
        axis.ticks.extend(fine.map(|value| (value, theme::tick(value))));
        axis
    }

    /// Says that the axis is compressed, if it is.
    pub fn bend_in_words(&self) -> String {
        let words = |bend| format!(" Below {} the axis is compressed.", theme::tick(bend));
        self.bend.map_or(String::new(), words)
    }

    /// A linear axis from the lowest to the highest value, which need not be near zero.
    pub fn spread(values: &[f64], from: f64, to: f64) -> Axis {
        let (low, high) = extremes(values);
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        let mut axis = Axis::around(middle, half.max(0.01 * middle), values, 6.0, (from, to));
        axis.low = axis.low.max(0.0);
        axis.ticks.retain(|(value, _)| *value >= axis.low);
        axis
    }

    /// A linear axis from 0 to `end`.
    pub fn until(end: f64, from: f64, to: f64) -> Axis {
        let mut axis = Axis {
            logarithmic: false,
            low: 0.0,
            high: end,
            from,
            to,
            bend: None,
            ticks: Vec::new(),
        };
        axis.ticks = axis.even_ticks(8.0);
        axis
    }

    /// A linear axis from 0 to 100 %.
    pub fn percent(from: f64, to: f64) -> Axis {
        let mut axis = Axis {
            logarithmic: false,
            low: 0.0,
            high: 100.0,
            from,
            to,
            bend: None,
            ticks: Vec::new(),
        };
        axis.ticks = axis.even_ticks(5.0);
        axis
    }

    /// A linear axis from the lowest to the highest value that extends at least `reach` to either
    /// side of `middle`, with about `most` ticks at the most.
    pub fn around(
        middle: f64,
        reach: f64,
        values: &[f64],
        most: f64,
        (from, to): (f64, f64),
    ) -> Axis {
        let (low, high) = extremes(values);
        let (low, high) = (low.min(middle - reach), high.max(middle + reach));
        let mut axis = Axis::spanning(false, low, high, from, to);
        axis.low -= axis.high - high;
        let step = nice_step((axis.high - axis.low) / most);
        let steps = (axis.low / step).ceil() as i32..=(axis.high / step).floor() as i32;
        let ticks = steps.map(|index| f64::from(index) * step);
        axis.ticks = ticks.map(|value| (value, theme::tick(value).replace('-', "−"))).collect();
        axis
    }

    /// An axis for a parameter, such as the cycle time, with a tick at each value: logarithmic if
    /// all values are above zero.
    pub fn factor(values: &[f64], from: f64, to: f64) -> Axis {
        let (low, high) = extremes(values);
        let mut axis = if low > 0.0 {
            let (low, high) = if high > low { (low, high) } else { (low / 2.0, high * 2.0) };
            Axis::spanning(true, low, high, from, to)
        } else {
            Axis::spanning(false, low, if high > low { high } else { 1.0 }, from, to)
        };
        axis.ticks = values.iter().map(|value| (*value, theme::exact(*value))).collect();
        axis
    }

    /// A horizontal axis for numbers of ranks: [`Axis::factor`] without the labels that have no
    /// room. The largest number is always labelled.
    pub fn ranks(values: &[f64], from: f64, to: f64) -> Axis {
        let mut axis = Axis::factor(values, from, to);
        axis.thin(|label| text_width(label, theme::TICK, false) + 16.0);
        axis
    }

    /// A logarithmic axis of adjacent cells, one for each value. Returns it with the pixels of each
    /// cell's low and high end. `extent` is the room that a label needs, in pixels.
    pub fn cells(
        values: &[f64],
        label: fn(f64) -> String,
        extent: fn(&str) -> f64,
        from: f64,
        to: f64,
    ) -> (Axis, Vec<(f64, f64)>) {
        let middle = |index: usize| (values[index - 1] * values[index]).sqrt();
        let last = values.len() - 1;
        let (low, high) = if last == 0 {
            (values[0] / 2.0, values[0] * 2.0)
        } else {
            (values[0].powi(2) / middle(1), values[last].powi(2) / middle(last))
        };
        let ticks = values.iter().map(|value| (*value, label(*value))).collect();
        let mut axis = Axis { logarithmic: true, low, high, from, to, bend: None, ticks };
        axis.thin_evenly(extent);
        let edge = |index: usize| {
            if index == 0 {
                from
            } else if index > last {
                to
            } else {
                axis.at(middle(index))
            }
        };
        let cells = (0..=last).map(|index| (edge(index), edge(index + 1))).collect();
        (axis, cells)
    }

    /// A logarithmic axis for sizes in bytes, with ticks at powers of two.
    pub fn bytes(values: &[f64], from: f64, to: f64) -> Axis {
        let (low, high) = extremes(values);
        let low = low.max(1.0);
        let (low, high) = if high > low { (low, high) } else { (low / 2.0, low * 2.0) };
        let mut axis = Axis::spanning(true, low, high, from, to);
        let powers: Vec<i32> =
            (axis.low.log2().ceil() as i32..=axis.high.log2().floor() as i32).collect();
        // Every power if there is room, otherwise every second, fifth or tenth, so that labels are
        // at 1, 32 and 1024 of a unit.
        let room = ((to - from).abs() / 140.0).max(1.0) as usize;
        let every =
            [1, 2, 5, 10].into_iter().find(|every| powers.len() / every < room).unwrap_or(20);
        let kept = powers.into_iter().filter(|power| power % every as i32 == 0);
        axis.ticks = kept.map(|power| 2f64.powi(power)).map(|v| (v, theme::bytes(v))).collect();
        axis
    }

    /// The pixel of a value. A value beyond the axis gets the pixel of the nearer end.
    pub fn at(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else if let Some(bend) = self.bend {
            if value < bend {
                COMPRESSED * (value - self.low) / (bend - self.low)
            } else {
                COMPRESSED + (1.0 - COMPRESSED) * (value - bend) / (self.high - bend)
            }
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// Its low and high end.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Whether a value is between the ends of the axis.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The pixels of its low and high end.
    pub fn pixels(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Whether the scale is logarithmic.
    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Draws this axis along the bottom of a frame: grid, labels, title.
    pub fn draw_below(&self, drawing: &mut Drawing, frame: Frame, title: &str) {
        let Frame { top, bottom, .. } = frame;
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.ticks {
            let x = self.at(*value);
            drawing.line(&[(x, top), (x, bottom)], theme::GRID, 2.0);
            let half = text_width(label, theme::TICK, false) / 2.0;
            if !label.is_empty() && x - half >= free_from {
                let at = (x, bottom + 40.0);
                drawing.text(Text { align: Align::Middle, ..Text::new(label, at, theme::TICK) });
                free_from = x + half + 12.0;
            }
        }
        if frame.has_panel_below {
            return;
        }
        let at = ((self.from + self.to) / 2.0, bottom + 92.0);
        drawing.text(Text { align: Align::Middle, ..Text::new(title, at, theme::BODY) });
    }

    /// Draws this axis along the left of a frame: grid, labels, title.
    pub fn draw_left(&self, drawing: &mut Drawing, frame: Frame, title: &str) {
        let Frame { left, right, .. } = frame;
        let mut widest: f64 = 0.0;
        let mut axis = self.clone();
        axis.thin(|_| LABEL);
        for (value, label) in &axis.ticks {
            let y = self.at(*value);
            drawing.line(&[(left, y), (right, y)], theme::GRID, 2.0);
            let at = (left - 14.0, y);
            let text = Text::new(label, at, theme::TICK).centered();
            drawing.text(Text { align: Align::Right, ..text });
            widest = widest.max(text_width(label, theme::TICK, false));
        }
        if let Some(bend) = self.bend {
            let y = self.at(bend);
            drawing.dashes((left, y), (right, y), theme::SOFT, 2.0);
            for off in [-5.0, 5.0] {
                drawing.line(
                    &[(left - 12.0, y + off + 6.0), (left + 12.0, y + off - 6.0)],
                    theme::INK,
                    3.0,
                );
            }
        }
        let at = (left - 14.0 - widest - 34.0, (self.from + self.to) / 2.0);
        let text = Text { upwards: true, ..Text::new(title, at, theme::BODY) };
        drawing.text(text.centered());
    }

    /// Keeps the last label and every second, third and so on before it, as many as fit. The others
    /// become empty.
    fn thin_evenly(&mut self, extent: impl Fn(&str) -> f64) {
        let last = self.ticks.len() - 1;
        let places: Vec<(f64, f64)> = self
            .ticks
            .iter()
            .map(|(value, label)| (self.at(*value), extent(label) / 2.0))
            .collect();
        let apart = |every: &usize| {
            let kept: Vec<(f64, f64)> = places.iter().rev().step_by(*every).copied().collect();
            let free = |pair: &[(f64, f64)]| (pair[0].0 - pair[1].0).abs() >= pair[0].1 + pair[1].1;
            kept.windows(2).all(free)
        };
        let every = (1..=last).find(apart).unwrap_or(last + 1);
        for (index, (_, label)) in self.ticks.iter_mut().enumerate() {
            if !(last - index).is_multiple_of(every) {
                label.clear();
            }
        }
    }

    /// Clears the labels that would touch the label of the next higher value.
    fn thin(&mut self, extent: impl Fn(&str) -> f64) {
        let places: Vec<f64> = self.ticks.iter().map(|(value, _)| self.at(*value)).collect();
        let mut free = f64::INFINITY;
        for ((_, label), place) in self.ticks.iter_mut().zip(places).rev() {
            // Measured from the axis's low end, which may be at the bottom.
            let (place, half) = ((place - self.from).abs(), extent(label) / 2.0);
            if place + half > free {
                label.clear();
            } else {
                free = place - half;
            }
        }
    }

    /// Evenly spaced ticks from zero, at most `most` of them above zero.
    fn even_ticks(&self, most: f64) -> Vec<(f64, String)> {
        let step = nice_step(self.high / most);
        let steps = (self.high / step).floor() as i32;
        (0..=steps).map(|i| f64::from(i) * step).map(|v| (v, theme::tick(v))).collect()
    }

    fn spanning(logarithmic: bool, low: f64, high: f64, from: f64, to: f64) -> Axis {
        // Room at the ends keeps markers off the frame.
        const ROOM: f64 = 0.06;
        let (low, high) = if logarithmic {
            let room = (high / low).powf(ROOM);
            (low / room, high * room)
        } else {
            (low, high + (high - low) * ROOM)
        };
        Axis { logarithmic, low, high, from, to, bend: None, ticks: Vec::new() }
    }
}

/// The room that a label of a vertical axis needs, in pixels.
const LABEL: f64 = 1.1 * theme::TICK;

/// The share of a bent axis below its bend.
const COMPRESSED: f64 = 0.3;

/// The smallest and the largest value; (1, 1) if there are none.
fn extremes(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
    (low, values.iter().copied().reduce(f64::max).unwrap_or(1.0))
}

/// The smallest 1, 2 or 5 times a power of ten that is at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn a_wide_range_is_logarithmic_and_a_narrow_one_starts_at_zero() {
        let wide = Axis::measured(&[1.0, 1000.0], 0.0, 100.0);
        assert!(wide.is_logarithmic());
        assert_eq!(labels(&wide), ["1", "10", "100", "1000"]);
        let narrow = Axis::measured(&[7.0, 9.0], 0.0, 100.0);
        assert!(!narrow.is_logarithmic());
        assert_eq!(labels(&narrow), ["0", "2", "4", "6", "8"]);
        assert_eq!(narrow.at(0.0), 0.0);
    }

    #[test]
    fn zero_forbids_a_logarithm() {
        assert!(!Axis::measured(&[0.0, 1000.0], 0.0, 100.0).is_logarithmic());
        assert!(!Axis::factor(&[0.0, 5.0], 0.0, 100.0).is_logarithmic());
    }

    #[test]
    fn shares_reach_beyond_the_whole_only_where_values_do() {
        let axis = Axis::shares(100.0, &[3.0, 80.0], 0.0, 110.0);
        assert_eq!(labels(&axis), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!((axis.at(0.0), axis.at(100.0)), (0.0, 100.0));
        let beyond = Axis::shares(100.0, &[3.0, 150.0], 0.0, 100.0);
        assert!(beyond.at(150.0) < 100.0, "within the frame");
        let ones = Axis::shares(1.0, &[0.03, 0.8], 0.0, 110.0);
        assert_eq!(labels(&ones), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn efficiencies_have_the_room_where_most_of_them_are() {
        let of = |values: &[f64]| Axis::efficiencies(values, 0.0, 100.0);
        let low = of(&[1.0, 0.4, 0.6]);
        assert_eq!((low.at(0.0), low.bend_in_words().as_str()), (0.0, ""));
        let high = of(&[1.0, 0.95, 0.84]);
        assert_eq!(labels(&high), ["0.8", "0.85", "0.9", "0.95", "1"]);
        let few = of(&[1.0, 0.95, 0.84, 0.86, 0.9, 0.02]);
        assert_eq!(few.bend_in_words(), " Below 0.8 the axis is compressed.");
        assert_eq!(labels(&few)[..5], ["0", "0.2", "0.4", "0.6", "0.8"]);
        assert!(few.at(0.0) == 0.0 && (few.at(0.8) - 30.0).abs() < 1e-9 && few.at(1.0) > 70.0);
        let ordered = [0.0, 0.5, 0.79, 0.81, 1.0].map(|value| few.at(value));
        assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]), "{ordered:?}");
        assert!(labels(&of(&[])).contains(&"1"));
    }

    #[test]
    fn an_axis_around_a_middle_reaches_both_ways() {
        let axis = Axis::around(0.0, 20.0, &[-5.0, 48.0], 10.0, (0.0, 100.0));
        assert_eq!(labels(&axis), ["−20", "−10", "0", "10", "20", "30", "40", "50"]);
        assert!(axis.at(-20.0) > 0.0 && axis.at(48.0) < 100.0, "off the ends");
        assert!(axis.holds(48.0) && !axis.holds(60.0) && !axis.holds(-30.0));
        assert_eq!(labels(&Axis::around(1.0, 0.2, &[], 10.0, (0.0, 9.0)))[0], "0.8");
        let few = Axis::around(0.0, 20.0, &[-5.0, 48.0], 5.0, (0.0, 100.0));
        assert_eq!(labels(&few), ["−20", "0", "20", "40"]);
    }

    #[test]
    fn of_crowded_numbers_of_ranks_the_largest_is_labelled() {
        let ranks = [6.0, 12.0, 768.0, 1536.0, 3072.0, 6000.0, 12288.0, 27600.0];
        let axis = Axis::ranks(&ranks, 0.0, 700.0);
        let kept = ["6", "12", "", "1536", "", "6000", "", "27\u{202f}600"];
        assert_eq!(labels(&axis), kept);
        let wide = Axis::ranks(&ranks, 0.0, 3000.0);
        assert!(labels(&wide).iter().all(|label| !label.is_empty()));
    }

    #[test]
    fn cells_touch_and_fill_the_axis_in_either_direction() {
        let of = |values: &[f64], from, to| Axis::cells(values, theme::tick, |_| 40.0, from, to);
        let (axis, cells) = of(&[10.0, 100.0, 1000.0], 0.0, 90.0);
        let close = |(low, high): (f64, f64), (l, h): (f64, f64)| {
            assert!((low - l).abs() < 1e-9 && (high - h).abs() < 1e-9, "{low} {high}");
        };
        let expected = [(0.0, 30.0), (30.0, 60.0), (60.0, 90.0)];
        cells.into_iter().zip(expected).for_each(|(cell, expected)| close(cell, expected));
        assert_eq!(labels(&axis), ["10", "", "1000"]);
        let (axis, cells) = of(&[10.0, 100.0], 90.0, 0.0);
        close(cells[0], (90.0, 45.0));
        assert_eq!(labels(&axis), ["10", "100"]);
        assert_eq!(of(&[6.0], 0.0, 90.0).1, [(0.0, 90.0)]);
    }

    #[test]
    fn cells_are_labelled_at_even_steps_up_to_the_last() {
        let sizes: Vec<f64> = (2..=30).map(|power| 2f64.powi(power)).collect();
        let wide = |label: &str| text_width(label, theme::TICK, false) + 16.0;
        for width in [300.0, 700.0, 1700.0, 4000.0] {
            let (axis, _) = Axis::cells(&sizes, theme::bytes, wide, 0.0, width);
            let kept: Vec<usize> =
                (0..sizes.len()).filter(|index| !labels(&axis)[*index].is_empty()).collect();
            let step = kept[1] - kept[0];
            assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == step), "{kept:?}");
            assert_eq!(labels(&axis).last(), Some(&"1 GiB"));
        }
    }

    #[test]
    fn a_single_value_stands_in_the_middle() {
        let axis = Axis::factor(&[5.0], 0.0, 100.0);
        assert!((axis.at(5.0) - 50.0).abs() < 1e-9);
        assert_eq!(labels(&axis), ["5"]);
    }

    #[test]
    fn sizes_are_labelled_in_binary_units() {
        let axis = Axis::bytes(&[65536.0, 1048576.0], 0.0, 1800.0);
        assert_eq!(labels(&axis), ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB"]);
        let long = Axis::bytes(&[1024.0, 1073741824.0], 0.0, 1800.0);
        assert!(long.ticks.len() <= 12 && labels(&long).contains(&"1 MiB"));
    }
}
