//! Comparisons of simulated with published or measured values, of kolo with Horovod, and of kernels with a copy: the
//! lines of `published.csv`, `validation.csv`, `comparison.csv` and `kernels.csv`.

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
/// A kernel on a GPU, and the device's own copy in the same run.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub device: String,
    pub workload: String,
    pub name: String,
    /// Of all gradients, f32.
    pub elements: f64,
    pub repetitions: u64,
    /// Moved bytes over the median time; none of a launch alone.
    pub bandwidth_gb_s: Option<f64>,
    /// As a share of the copy's.
    pub of_copy: Option<f64>,
    /// The share that is expected; none of the copy.
    pub goal: Option<f64>,
    /// The shortest, median and longest time.
    times_us: [f64; 3],
}

impl Kernel {
    /// # Errors
    /// When a column is missing or its field cannot be read.
    pub fn of(fields: &Fields) -> Result<Kernel, PlotError> {
        let times = ["time_us_min", "time_us_p50", "time_us_max"];
        let mut times_us = [0.0; 3];
        for (time, column) in times_us.iter_mut().zip(times) {
            *time = fields.positive(column)?;
        }
        Ok(Kernel {
            device: fields.text("device")?,
            workload: fields.text("workload")?,
            name: fields.text("kernel")?,
            elements: fields.positive("elements")?,
            repetitions: fields.whole("repetitions")?,
            bandwidth_gb_s: fields.number("bandwidth_gb_s")?,
            of_copy: fields.number("of_copy")?,
            goal: fields.number("goal")?,
            times_us,
        })
    }

    /// The bandwidths of the longest and of the shortest repetition, if `median_gb_s` is that of the median.
    pub fn range_gb_s(&self, median_gb_s: f64) -> (f64, f64) {
        let [shortest, median, longest] = self.times_us;
        (median_gb_s * median / longest, median_gb_s * median / shortest)
    }
}
