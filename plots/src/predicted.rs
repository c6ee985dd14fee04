//! Simulated steps beside measured ones: the same settings on a machine file of the same cluster.

use std::collections::BTreeSet;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::dash::DASHES;
use crate::drawing::{Drawing, Point};
use crate::page::{Entry, SIGN, sign_ends};
use crate::rows::{Estimate, Row, Rows};
use crate::theme;

/// The radius of the hollow markers of predictions in pixels.
const MARKER: f64 = 8.0;
/// How far the dashes of a line are from those of the line before it in pixels, and after how many lines they repeat.
const SHIFT: f64 = 10.0;
const SHIFTS: usize = 3;
/// The width of the outline of a band in pixels.
const OUTLINE: f64 = 2.0;

/// The fastest predictions of a line for each number of ranks, in the order of ranks.
pub(crate) struct Predicted<'a> {
    pub rows: Vec<&'a Row>,
    /// The algorithms that there are predictions of, also slower ones.
    pub algorithms: BTreeSet<&'a str>,
}

impl<'a> Predicted<'a> {
    /// The predictions beside a measured row: simulated rows of the same line with the same workload, compute times and
    /// transport. `None` if there are none.
    pub fn of(
        rows: &'a Rows,
        measured: &Row,
        is_own: impl Fn(&Row) -> bool,
    ) -> Option<Predicted<'a>> {
        let is_strong = measured.is_strong();
        let conditions = |row: &Row| {
            let [forward_ms, backward_ms] = row.passes_ms(is_strong);
            let times = [forward_ms, backward_ms, row.optimizer_ms];
            let sizes = [row.cache_capacity, row.segment_bytes];
            (times.map(Option::unwrap_or_default), sizes.map(Option::unwrap_or_default))
        };
        let is_alike = |row: &&Row| {
            row.of_machine()
                && row.policy.is_empty()
                && row.status == "ok"
                && is_own(row)
                && (&row.workload, &row.transport) == (&measured.workload, &measured.transport)
                && conditions(row) == conditions(measured)
                && row.ranks > Some(0.0)
                && row.time_us.value > Some(0.0)
        };
        let mut own: Vec<&Row> = rows.of_kind(&measured.kind).filter(is_alike).collect();
        let algorithms = own.iter().map(|row| row.algorithm.as_str()).collect();
        let key = |row: &Row| (row.ranks, row.time_us.value);
        own.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("numbers"));
        own.dedup_by_key(|row| row.ranks);
        (!own.is_empty()).then_some(Predicted { rows: own, algorithms })
    }

    /// The prediction for a number of ranks.
    pub fn at(&self, ranks: f64) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.ranks == Some(ranks))
    }

    /// The machine file of the predictions.
    pub fn machine(&self) -> &'a str {
        &self.rows[0].machine
    }

    /// Draws the area between the ends of the intervals of a quantity, and its outline, so that bands show through each
    /// other. Lines are to be drawn over it.
    pub fn draw_band(
        &self,
        drawing: &mut Drawing,
        style: usize,
        (x, y): (&Axis, &Axis),
        quantity: impl Fn(&Row) -> Estimate,
    ) {
        let ends = |is_high: bool| -> Vec<Point> {
            let of = |row: &&Row| {
                let (one, other) = quantity(row).span()?;
                let end = if is_high { f64::max(one, other) } else { f64::min(one, other) };
                Some((x.at(row.ranks?), y.at(end)))
            };
            self.rows.iter().filter_map(of).collect()
        };
        let (low, high) = (ends(false), ends(true));
        if low == high {
            return;
        }
        let outline: Vec<Point> = low.iter().chain(high.iter().rev()).copied().collect();
        drawing.veil(&outline, theme::series(style));
        for edge in [low, high] {
            drawing.line(&edge, theme::faint(theme::series(style)), OUTLINE);
        }
    }

    /// Draws a dashed line through the values of a quantity, with small hollow markers. Dashes of lines at the same place
    /// are beside each other.
    pub fn draw_line(
        &self,
        drawing: &mut Drawing,
        style: usize,
        (x, y): (&Axis, &Axis),
        quantity: impl Fn(&Row) -> Estimate,
    ) {
        let place = |row: &&Row| Some((x.at(row.ranks?), y.at(quantity(row).value?)));
        let path: Vec<Point> = self.rows.iter().filter_map(place).collect();
        let begin = (style % SHIFTS) as f64 * SHIFT;
        drawing.broken_from(begin, &path, theme::series(style), 3.0, DASHES);
        for at in path {
            theme::marker(drawing, style, at, MARKER, true);
        }
    }

    /// The legend entry of dashed lines and bands.
    pub fn entry(&self) -> Entry<'static> {
        Entry {
            sign: Box::new(|drawing, (x, y)| {
                let color = theme::series(0);
                let (left, right) = (x - SIGN / 2.0, x + SIGN / 2.0);
                let corners =
                    [(left, y - 9.0), (right, y - 9.0), (right, y + 9.0), (left, y + 9.0)];
                drawing.veil(&corners, color);
                drawing.broken(&sign_ends((x, y)), color, 3.0, DASHES);
                theme::marker(drawing, 0, (x, y), MARKER, true);
            }),
            label: "SIMULATED: the same settings on the calibrated machine".to_string(),
        }
    }

    /// What the caption says of them.
    pub fn note(&self) -> String {
        format!(
            "Dashed: SIMULATED on machine {}, the fastest of the same settings. Bands of 90 %: the intervals of its \
             parameters, how far known times are from their predictions, and 5 % for each doubling of ranks beyond \
             the known ones.",
            self.machine()
        )
    }
}

/// Says in a caption of measured values that predictions are beside them.
pub(crate) fn mark(caption: &mut Caption) {
    caption.simulated = true;
    caption.origin = caption.origin.replacen("MEASURED", "MEASURED (points)", 1);
    caption.origin += " · SIMULATED (dashed, bands)";
}
