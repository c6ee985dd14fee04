//! A cell of a heat map: a setting and its step time, and how large it is drawn.

use plotters::style::RGBColor;

use crate::drawing::{Drawing, Text, text_width};
use crate::rows::Row;
use crate::theme;

/// Between cells, so that an outline has its own place.
pub(crate) const CELL_GAP: f64 = 8.0;

/// One setting and its step time in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    pub algorithm: String,
    pub plane: String,
    pub threshold: f64,
    pub cycle: f64,
    pub time: f64,
    pub interval: Option<(f64, f64)>,
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
        })
    }

    fn span(&self) -> (f64, f64) {
        self.interval.unwrap_or((self.time, self.time))
    }

    /// Whether the samples leave open which of two is faster.
    pub fn ties_with(&self, other: &Cell) -> bool {
        let ((low, high), (other_low, other_high)) = (self.span(), other.span());
        low <= other_high && other_low <= high
    }

    pub fn value(&self) -> String {
        theme::significant(self.time, 3)
    }

    /// Half the interval's width, in a smaller type under the value.
    pub fn half_width(&self) -> Option<String> {
        let (low, high) = self.interval?;
        Some(format!("±{}", theme::uncertainty((high - low) / 2.0, self.time)))
    }

    pub fn setting(&self) -> String {
        let (threshold, cycle) = (theme::threshold(self.threshold), theme::tick(self.cycle));
        format!("{}, {}, {threshold}, {cycle} ms", self.algorithm, self.plane)
    }
}

/// How large cells and their texts are, so that any number of settings fits the page.
pub(crate) struct Shape {
    columns: usize,
    rows: usize,
    pub cell_width: f64,
    pub cell_height: f64,
    value_size: f64,
    interval_size: f64,
    pub label_size: f64,
}

impl Shape {
    /// Of cells in panels that are each `room` wide, so many of them one below the other.
    pub fn of(cells: &[Cell], thresholds: &[f64], rows: usize, room: f64, panels: usize) -> Shape {
        let columns = thresholds.len();
        let cell_width = room / columns as f64;
        let lines = (rows * panels) as f64;
        let cell_height = (1900.0 / lines).clamp(54.0, (280.0 / lines).max(112.0));
        let free = cell_width - CELL_GAP - 12.0;
        let fitting = |size: f64, texts: &mut dyn Iterator<Item = String>| {
            let widest = texts.map(|text| text_width(&text, size, false)).fold(1.0, f64::max);
            size * (free / widest).min(1.0)
        };
        let inner = cell_height - CELL_GAP;
        Shape {
            columns,
            rows,
            cell_width,
            cell_height,
            value_size: fitting((inner * 0.5).min(34.0), &mut cells.iter().map(Cell::value)),
            interval_size: fitting(
                (inner * 0.42).min(25.0),
                &mut cells.iter().filter_map(Cell::half_width),
            ),
            label_size: fitting(
                theme::TICK,
                &mut thresholds.iter().map(|threshold| theme::threshold_mib(*threshold)),
            ),
        }
    }

    pub fn panel_width(&self) -> f64 {
        self.columns as f64 * self.cell_width
    }

    pub fn panel_height(&self) -> f64 {
        self.rows as f64 * self.cell_height
    }

    /// Cycle times grow upwards.
    pub fn cell_top(&self, panel_top: f64, row: usize) -> f64 {
        panel_top + (self.rows - 1 - row) as f64 * self.cell_height
    }

    pub fn write(&self, drawing: &mut Drawing, cell: &Cell, (x, y): (f64, f64), fill: RGBColor) {
        let color = theme::readable_on(fill);
        let value =
            |y| Text { color, ..Text::new(cell.value(), (x, y), self.value_size).centered() };
        match cell.half_width() {
            None => drawing.text(value(y)),
            Some(half) => {
                drawing.text(value(y - self.interval_size * 0.55));
                let at = (x, y + self.value_size * 0.5);
                let text = Text::new(half, at, self.interval_size).centered();
                drawing.text(Text { color, ..text });
            }
        }
    }
}
