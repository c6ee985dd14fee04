//! What is simulated beside what was measured, by others or here: lines of `published.csv` and
//! `validation.csv`.

use crate::PlotError;
use crate::fields::Fields;

/// A number that others published.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub point: String,
    pub machine: String,
    pub unit: String,
    pub published: f64,
    pub simulated: f64,
    /// A parameter of the machine was fitted to it.
    pub fitted: bool,
    /// It is as near as was hoped for.
    pub met: bool,
    /// Why it is missed, where that is known.
    pub why: String,
}

impl Published {
    pub fn of(fields: &Fields) -> Result<Published, PlotError> {
        let verdict = fields.one_of("verdict", &["met", "missed"], "met or missed")?;
        Ok(Published {
            point: fields.text("point")?,
            machine: fields.text("machine")?,
            unit: fields.text("unit")?,
            published: fields.positive("published")?,
            simulated: fields.positive("simulated")?,
            fitted: fields.truth("fitted")?.unwrap_or_default(),
            met: verdict == "met",
            why: fields.text("why")?,
        })
    }

    pub fn ratio(&self) -> f64 {
        self.simulated / self.published
    }
}

/// An algorithm's time at one message size.
#[derive(Debug, Clone)]
pub(crate) struct Prediction {
    pub transport: String,
    pub nodes: f64,
    pub ranks: f64,
    pub algorithm: String,
    pub size_bytes: f64,
    /// The median over blocks of predicted over measured, less 1, and its interval.
    error: f64,
    error_span: (f64, f64),
    /// It is large enough to count, and every rank had a core.
    pub scored: bool,
    pub oversubscribed: bool,
}

impl Prediction {
    pub fn of(fields: &Fields) -> Result<Prediction, PlotError> {
        Ok(Prediction {
            transport: fields.text("transport")?,
            nodes: fields.positive("nodes")?,
            ranks: fields.positive("ranks")?,
            algorithm: fields.text("algorithm")?,
            size_bytes: fields.positive("size_bytes")?,
            error: fields.signed("error")?,
            error_span: (fields.signed("error_low")?, fields.signed("error_high")?),
            scored: fields.truth("scored")?.unwrap_or_default(),
            oversubscribed: fields.truth("oversubscribed")?.unwrap_or_default(),
        })
    }

    /// Predicted over measured, less 1, in percent.
    pub fn error_percent(&self) -> f64 {
        100.0 * self.error
    }

    /// Its interval, the lower error first.
    pub fn span_percent(&self) -> (f64, f64) {
        (100.0 * self.error_span.0, 100.0 * self.error_span.1)
    }
}
