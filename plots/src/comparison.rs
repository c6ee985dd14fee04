//! Comparisons of simulated with published or measured values, and of kolo with Horovod: the lines of
//! `published.csv`, `validation.csv` and `comparison.csv`.

use crate::PlotError;
use crate::fields::Fields;
use crate::rows::Estimate;

/// A published value and the simulated one.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub point: String,
    pub machine: String,
    pub unit: String,
    pub published: f64,
    pub simulated: f64,
    /// The range of the simulated value.
    pub range: Option<(f64, f64)>,
    /// What perfect scaling would give; none of an allreduce.
    pub perfect: Option<f64>,
    /// Points whose errors can be compared.
    pub group: String,
    /// Whether a parameter of the machine was fitted to it.
    pub fitted: bool,
    /// Whether the simulated value is within the goal.
    pub met: bool,
    /// The reason why it is missed; empty if it is not known.
    pub why: String,
}

impl Published {
    /// # Errors
    /// When a column is missing or its field cannot be read.
    pub fn of(fields: &Fields) -> Result<Published, PlotError> {
        let verdict = fields.one_of("verdict", &["met", "missed"], "met or missed")?;
        Ok(Published {
            point: fields.text("point")?,
            machine: fields.text("machine")?,
            unit: fields.text("unit")?,
            published: fields.positive("published")?,
            simulated: fields.positive("simulated")?,
            range: fields.number("simulated_low")?.zip(fields.number("simulated_high")?),
            perfect: fields.number("perfect")?,
            group: fields.text("group")?,
            fitted: fields.truth("fitted")?.unwrap_or_default(),
            met: verdict == "met",
            why: fields.text("why")?,
        })
    }

    pub fn ratio(&self) -> f64 {
        self.simulated / self.published
    }
}

/// Predicted and measured time of an algorithm for one message size.
#[derive(Debug, Clone)]
pub(crate) struct Prediction {
    pub transport: String,
    pub nodes: f64,
    pub ranks: f64,
    pub algorithm: String,
    pub size_bytes: f64,
    /// The median over blocks of predicted / measured − 1, and its interval.
    error: f64,
    error_span: (f64, f64),
    /// Whether it counts: the message is large enough, and every rank had a core.
    pub scored: bool,
    pub oversubscribed: bool,
}

impl Prediction {
    /// # Errors
    /// When a column is missing or its field cannot be read.
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

    /// Predicted / measured − 1, in percent.
    pub fn error_percent(&self) -> f64 {
        100.0 * self.error
    }

    /// The interval of the error, in percent.
    pub fn span_percent(&self) -> (f64, f64) {
        (100.0 * self.error_span.0, 100.0 * self.error_span.1)
    }
}

/// The steps of kolo and of Horovod in one case.
#[derive(Debug, Clone)]
pub(crate) struct Compared {
    pub case: String,
    /// Settings of the same configuration and topology.
    pub group: String,
    /// Control plane, and what else differs from other cases of the group besides threshold and cycle time.
    pub variant: String,
    pub fusion_threshold_bytes: Option<f64>,
    pub cycle_time_ms: Option<f64>,
    pub kolo_ms: Estimate,
    pub horovod_ms: Estimate,
    /// kolo's step in parts of Horovod's, paired by block.
    pub ratio: Option<f64>,
    /// Horovod's in parts of its own.
    pub control_ratio: Option<f64>,
    pub emulated: Option<bool>,
    pub oversubscribed: Option<bool>,
}

impl Compared {
    /// # Errors
    /// When a column is missing or its field cannot be read.
    pub fn of(fields: &Fields) -> Result<Compared, PlotError> {
        Ok(Compared {
            case: fields.text("case")?,
            group: fields.text("group")?,
            variant: fields.text("variant")?,
            fusion_threshold_bytes: fields.number("fusion_threshold_bytes")?,
            cycle_time_ms: fields.number("cycle_time_ms")?,
            kolo_ms: fields.estimate("kolo_ms", "kolo_ms_low", "kolo_ms_high")?,
            horovod_ms: fields.estimate("horovod_ms", "horovod_ms_low", "horovod_ms_high")?,
            ratio: fields.number("ratio")?,
            control_ratio: fields.number("control_ratio")?,
            emulated: fields.truth("emulated")?,
            oversubscribed: fields.truth("oversubscribed")?,
        })
    }
}
