//! The cells of a heat map: a setting and its step time, and the size at which they are drawn.

use plotters::style::RGBColor;

use crate::drawing::{Drawing, Text, text_width};
use crate::rows::Row;
use crate::theme;
use crate::view::View;

/// The gap between cells, so that neighbours do not seem to share an outline, in pixels.
const CELL_GAP: f64 = 8.0;
/// The same of cells without numbers.
const DENSE_GAP: f64 = 2.0;
/// The width of the outlines of cells, and of cells without numbers, in pixels.
pub(crate) const OUTLINE: f64 = 6.0;
const DENSE_OUTLINE: f64 = 2.0;
/// Cells whose numbers would be smaller have none, in pixels.
const LEAST_TEXT: f64 = 10.0;
/// The most thresholds of a map that must have numbers on paper.
const MOST_WITH_NUMBERS_ON_PAPER: usize = 20;
/// Room between labels, in pixels.
const BETWEEN: f64 = 14.0;
/// The width of outlines and the edge inside them, in pixels.
const RIM: f64 = 9.0;
/// An interval is written with both ends if half its width is more than this share of the value.
const WIDE: f64 = 0.1;
/// The same for a skewed interval.
const NARROW: f64 = 0.02;
/// An interval is skewed if one side of the value takes more than this share of its width.
const SKEWED: f64 = 0.75;

/// One setting and its step time in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    pub algorithm: String,
    pub plane: String,
    pub threshold: f64,
    pub cycle: f64,
    pub time: f64,
    pub interval: Option<(f64, f64)>,
    /// The comparison with the fastest of its run, if there was one.
    pub over_best: Option<OverBest>,
}

/// A setting over the fastest of a run, by blocks that ran side by side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OverBest {
    /// When the run started.
    pub run: String,
    pub ratio: f64,
    pub low: f64,
}

impl Cell {
    pub fn of(row: &Row) -> Option<Cell> {
        Some(Cell {
            algorithm: row.algorithm.clone(),
            plane: row.control_plane.clone(),
            threshold: row.fusion_threshold_bytes?,
            cycle: row.cycle_time_ms?,
            time: row.time_us.value? / 1e3,
            interval: row.time_us.interval.map(|(low, high)| (low / 1e3, high / 1e3)),
            over_best: row.over_best.zip(row.over_best_low).map(|(ratio, low)| OverBest {
                run: row.started.clone(),
                ratio,
                low,
            }),
        })
    }

    fn span(&self) -> (f64, f64) {
        self.interval.unwrap_or((self.time, self.time))
    }

    /// Whether the samples do not tell which of the two is faster: by their comparison if the other is the fastest of
    /// the run, else because the intervals overlap.
    pub fn ties_with(&self, other: &Cell) -> bool {
        if let Some((own, best)) = self.over_best.as_ref().zip(other.over_best.as_ref())
            && own.run == best.run
            && best.ratio == 1.0
        {
            return own.low <= 1.0;
        }
        let ((low, high), (other_low, other_high)) = (self.span(), other.span());
        low <= other_high && other_low <= high
    }

    pub fn value(&self) -> String {
        theme::significant(self.time, 3)
    }

    /// The interval as text: half its width, or both ends if it is so wide or skewed that half its
    /// width would mislead.
    pub fn spread(&self) -> Option<String> {
        let (low, high) = self.interval?;
        let half = (high - low) / 2.0;
        let longer = (high - self.time).max(self.time - low);
        let even = longer <= SKEWED * 2.0 * half;
        if half <= if even { WIDE } else { NARROW } * self.time {
            return Some(format!("±{}", theme::uncertainty(half, self.time)));
        }
        let [low, high] = [low, high].map(|end| theme::significant(end, 3));
        Some(format!("{low}{DASH}{high}"))
    }

    pub fn setting(&self) -> String {
        let (threshold, cycle) = (theme::threshold(self.threshold), theme::tick(self.cycle));
        format!("{}, {}, {threshold}, {cycle} ms", self.algorithm, self.plane)
    }
}

/// The size of cells and of their texts, so that any number of settings fits the page.
pub(crate) struct Shape {
    columns: usize,
    rows: usize,
    pub cell_width: f64,
    pub cell_height: f64,
    value_size: f64,
    half_width_size: f64,
    ends_size: f64,
    /// Whether the ends of an interval are on separate lines.
    broken: bool,
    pub label_size: f64,
    has_spreads: bool,
    /// Cells are too small for numbers.
    pub is_dense: bool,
    /// The gap between cells in pixels.
    pub gap: f64,
    /// The width of outlines in pixels.
    pub outline: f64,
    /// Of thresholds and of cycle times, every so manieth has a label, counted from the largest.
    every: (usize, usize),
}

impl Shape {
    /// The shape of cells in `panels` panels, one below the other, that are each `room` pixels wide.
    pub fn of(
        view: View,
        cells: &[Cell],
        thresholds: &[f64],
        rows: usize,
        room: f64,
        panels: usize,
    ) -> Shape {
        let columns = thresholds.len();
        let cell_width = room / columns as f64;
        let stacked = (rows * panels) as f64;
        let cell_height = (1900.0 / stacked).clamp(54.0, (280.0 / stacked).max(112.0));
        let free = cell_width - CELL_GAP - 2.0 * RIM;
        let fitting = |size: f64, texts: &mut dyn Iterator<Item = String>| {
            let widest = texts.map(|text| text_width(&text, size, false)).fold(1.0, f64::max);
            size * (free / widest).clamp(0.0, 1.0)
        };
        let inner = cell_height - CELL_GAP;
        let small = if view.is_paper() { theme::TICK } else { (inner * 0.42).min(25.0) };
        let spreads = |ends: bool| {
            let all = cells.iter().filter_map(Cell::spread);
            all.filter(move |spread| spread.contains(DASH) == ends)
        };
        let whole = fitting(small, &mut spreads(true));
        let broken = whole < 0.7 * small && inner > 90.0;
        let parts = |spread: String| lines(&spread, true).map(str::to_string).collect::<Vec<_>>();
        let ends_size =
            if broken { fitting(small, &mut spreads(true).flat_map(parts)) } else { whole };
        let half_width_size = fitting(small, &mut spreads(false));
        let value_size = fitting(
            if view.is_paper() { theme::TICK } else { (inner * 0.5).min(34.0) },
            &mut cells.iter().map(Cell::value),
        );
        // On paper a map of few settings is to have its numbers, or to be left out.
        let is_large = !view.is_paper() || columns > MOST_WITH_NUMBERS_ON_PAPER;
        if value_size < LEAST_TEXT && is_large {
            return Shape::dense(view, thresholds, rows, room, panels);
        }
        Shape {
            columns,
            rows,
            cell_width,
            cell_height,
            value_size,
            half_width_size,
            ends_size,
            broken,
            has_spreads: !view.is_paper()
                || half_width_size.min(ends_size) >= theme::TICK && inner > 80.0,
            label_size: fitting(
                theme::TICK,
                &mut thresholds.iter().map(|threshold| theme::threshold_mib(*threshold)),
            ),
            is_dense: false,
            gap: CELL_GAP,
            outline: OUTLINE,
            every: (1, 1),
        }
    }

    /// The shape of cells without numbers.
    fn dense(view: View, thresholds: &[f64], rows: usize, room: f64, panels: usize) -> Shape {
        let columns = thresholds.len();
        let cell_width = room / columns as f64;
        let all = if view.is_paper() { 1500.0 } else { 1900.0 };
        let cell_height = (all / (rows * panels) as f64).clamp(10.0, 54.0);
        let gap = if cell_width.min(cell_height) > 3.0 * DENSE_GAP { DENSE_GAP } else { 0.0 };
        let label =
            |threshold: &f64| text_width(&theme::threshold_mib(*threshold), theme::TICK, false);
        // The outermost labels are moved inwards by half their width.
        let widest = 1.5 * thresholds.iter().map(label).fold(1.0, f64::max) + BETWEEN;
        let every = |room: f64, cell: f64| (room / cell).ceil().max(1.0) as usize;
        Shape {
            columns,
            rows,
            cell_width,
            cell_height,
            value_size: 0.0,
            half_width_size: 0.0,
            ends_size: 0.0,
            broken: false,
            has_spreads: false,
            label_size: theme::TICK,
            is_dense: true,
            gap,
            outline: DENSE_OUTLINE,
            every: (every(widest, cell_width), every(theme::TICK, cell_height)),
        }
    }

    /// Whether the threshold of an index has a label.
    pub fn labels_threshold(&self, index: usize) -> bool {
        (self.columns - 1 - index).is_multiple_of(self.every.0)
    }

    /// Whether the cycle time of an index has a label.
    pub fn labels_cycle(&self, index: usize) -> bool {
        (self.rows - 1 - index).is_multiple_of(self.every.1)
    }

    /// Whether cells have their intervals. On paper those that would be too small are left out.
    pub fn has_spreads(&self) -> bool {
        self.has_spreads
    }

    pub fn panel_width(&self) -> f64 {
        self.columns as f64 * self.cell_width
    }

    pub fn panel_height(&self) -> f64 {
        self.rows as f64 * self.cell_height
    }

    /// The top of a row's cells. Row 0 is the lowest, so that cycle times grow upwards.
    pub fn cell_top(&self, panel_top: f64, row: usize) -> f64 {
        panel_top + (self.rows - 1 - row) as f64 * self.cell_height
    }

    pub fn write(&self, drawing: &mut Drawing, cell: &Cell, (x, y): (f64, f64), fill: RGBColor) {
        if self.is_dense {
            return;
        }
        let color = theme::readable_on(fill);
        let centered =
            |words: &str, y, size| Text { color, ..Text::new(words, (x, y), size).centered() };
        let spread = cell.spread().filter(|_| self.has_spreads).unwrap_or_default();
        let ends = spread.contains(DASH);
        let size = if ends { self.ends_size } else { self.half_width_size };
        let lines: Vec<&str> = lines(&spread, self.broken).collect();
        let half = 0.55 * size * lines.len() as f64;
        drawing.text(centered(&cell.value(), y - half, self.value_size));
        for (index, line) in lines.into_iter().enumerate() {
            let down = 1.1 * size * (index as f64 + 0.5) - half;
            drawing.text(centered(line, y + 0.5 * self.value_size + down, size));
        }
    }
}

/// The character between the ends of an interval.
const DASH: char = '–';

/// The lines of text below a value.
fn lines(spread: &str, broken: bool) -> impl Iterator<Item = &str> {
    let end = spread.find(DASH).filter(|_| broken).map_or(0, |at| at + DASH.len_utf8());
    let (low, high) = spread.split_at(end);
    [low, high].into_iter().filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_width_is_said_only_of_narrow_and_even_intervals() {
        let said = |time, low, high| {
            let cell = Cell {
                algorithm: "ring".to_string(),
                plane: "coordinator".to_string(),
                threshold: 0.0,
                cycle: 1.0,
                time,
                interval: Some((low, high)),
                over_best: None,
            };
            cell.spread().expect("it has an interval")
        };
        assert_eq!(said(100.0, 98.0, 103.0), "±2.5");
        assert_eq!(said(100.0, 100.0, 100.0), "±0");
        assert_eq!(said(48.2, 34.7, 84.3), "34.7–84.3");
        assert_eq!(said(229.0, 212.0, 896.0), "212–896");
        assert_eq!(said(100.0, 80.0, 120.0), "80.0–120", "even, but wide");
        assert_eq!(said(100.0, 99.5, 105.0), "99.5–105", "skewed");
        assert_eq!(said(100.0, 100.0, 101.0), "±0.5", "skewed, but narrow");
    }

    #[test]
    fn lines_lose_nothing() {
        let said = |spread, broken| lines(spread, broken).collect::<Vec<_>>();
        assert_eq!(said("34.7–84.3", true), ["34.7–", "84.3"]);
        assert_eq!(said("34.7–84.3", false), ["34.7–84.3"]);
        assert_eq!(said("±2.5", true), ["±2.5"]);
        assert_eq!(said("", true), [""; 0]);
    }
}
