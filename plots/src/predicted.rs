//! Simulated steps beside measured ones: the same settings on a machine file of the same cluster.

use crate::axis::Axis;
use crate::dash::DASHES;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, SIGN, sign_ends};
use crate::rows::{Row, Rows};
use crate::selection::Selection;
use crate::theme;

/// An algorithm's fastest prediction for each number of ranks, in the order of ranks.
pub(crate) struct Predicted<'a> {
    pub rows: Vec<&'a Row>,
}

impl<'a> Predicted<'a> {
    /// The predictions for an algorithm in a selection of measured rows: simulated rows with the same
    /// workload, compute times and transport. `None` if there are none.
    pub fn of(rows: &'a Rows, selection: &Selection, algorithm: &str) -> Option<Predicted<'a>> {
        let measured = selection.rows.first()?;
        let conditions = |row: &Row| {
            let times = [row.forward_ms, row.backward_ms, row.optimizer_ms];
            let sizes = [row.cache_capacity, row.segment_bytes];
            (times.map(Option::unwrap_or_default), sizes.map(Option::unwrap_or_default))
        };
        let is_alike = |row: &&Row| {
            row.of_machine()
                && row.status == "ok"
                && row.algorithm == algorithm
                && (&row.workload, &row.transport) == (&measured.workload, &measured.transport)
                && conditions(row) == conditions(measured)
                && row.ranks > Some(0.0)
                && row.time_us.value > Some(0.0)
        };
        let mut own: Vec<&Row> = rows.of_kind(&measured.kind).filter(is_alike).collect();
        let key = |row: &Row| (row.ranks, row.time_us.value);
        own.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("numbers"));
        own.dedup_by_key(|row| row.ranks);
        (!own.is_empty()).then_some(Predicted { rows: own })
    }

    /// The machine file of the predictions.
    pub fn machine(&self) -> &'a str {
        &self.rows[0].machine
    }

    /// Draws the area between the ends of the intervals. Lines are to be drawn over it.
    pub fn draw_band(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let ends = |end: fn((f64, f64)) -> f64| {
            let of = move |row: &&Row| {
                let ms = end(row.time_us.span()?) / 1e3;
                Some((x.at(row.ranks?), y.at(ms)))
            };
            self.rows.iter().filter_map(of)
        };
        let mut outline: Vec<Point> = ends(|(low, _)| low).collect();
        let mut back: Vec<Point> = ends(|(_, high)| high).collect();
        back.reverse();
        outline.append(&mut back);
        drawing.area(&outline, theme::faint(theme::series(style)));
    }

    /// Draws a dashed line through the values.
    pub fn draw_line(&self, drawing: &mut Drawing, style: usize, x: &Axis, y: &Axis) {
        let place = |row: &&Row| Some((x.at(row.ranks?), y.at(row.time_us.value? / 1e3)));
        let path: Vec<Point> = self.rows.iter().filter_map(place).collect();
        drawing.broken(&path, theme::series(style), 3.0, DASHES);
    }

    /// The legend entry of dashed lines and bands.
    pub fn entry(&self) -> Entry<'static> {
        Entry {
            sign: Box::new(|drawing, (x, y)| {
                let color = theme::series(0);
                drawing.rectangle(x - SIGN / 2.0, y - 9.0, SIGN, 18.0, theme::faint(color));
                drawing.broken(&sign_ends((x, y)), color, 3.0, DASHES);
            }),
            label: "SIMULATED: the same settings on the calibrated machine".to_string(),
        }
    }
}
