//! Rows of measured training steps, and of their messages.

use super::columns::{Bandwidths, Confidence, Effort, Key, Negotiation, Run, Times, columns};
use super::flat::{Columns, Empty, Field, Flat};
use super::outcome::CaseOutcome;

columns! {
    /// A training step, whatever is tuned.
    #[derive(Default)]
    Training {
        columns {
            workload: String,
            algorithm: String,
            groups: usize,
            backward_passes_per_step: Option<usize>,
            compression: String,
            cache_capacity: usize,
            segment_bytes: usize,
            packing_bytes: usize,
            forward_ms: f64,
            backward_ms: f64,
            optimizer_ms: f64,
            warmup: usize,
        }
    }
}

columns! {
    /// Settings that determine how gradients become messages.
    #[derive(Default)]
    Tuning {
        columns {
            control_plane: String,
            tensors: usize,
            fusion_threshold_bytes: usize,
            cycle_time_ms: f64,
        }
    }
}

columns! {
    /// Options of Horovod's optimizer for measured steps, in addition to those in [`Training`].
    #[derive(Default)]
    Framework {
        columns {
            grouping: String,
            average_aggregated_gradients: Option<bool>,
            gradient_predivide_factor: Option<f64>,
            prescale_factor: Option<f64>,
            postscale_factor: Option<f64>,
        }
    }
}

columns! {
    /// The settings of training steps, known before the measurement.
    #[derive(Default)]
    StepSetting {
        parts { key: Key, run: Run, training: Training, framework: Framework, tuning: Tuning }
    }
}

columns! {
    /// Training steps, measured.
    StepRow {
        parts { setting: StepSetting, outcome: CaseOutcome<StepResult> }
        columns { bound_us: f64 }
    }
}

columns! {
    /// The result of measured training steps: medians over steps, unless the name states otherwise.
    #[derive(Default)]
    StepResult {
        parts { effort: Effort, times: Times, confidence: Confidence, negotiation: Negotiation }
        columns {
            device_us_p50: Option<f64>,
            exposed_us_p50: f64,
            data_us_p50: f64,
            packing_us_p50: f64,
            reduction_us_p50: Option<f64>,
            compression_us_p50: Option<f64>,
            aggregation_us_p50: Option<f64>,
            wait_us_p50: f64,
            negotiation_us_p50: f64,
            negotiation_us_p50_low: Option<f64>,
            negotiation_us_p50_high: Option<f64>,
            negotiation_cycle_us_p50: f64,
            negotiation_cycle_us_p99: Option<f64>,
            cycles_p50: f64,
            idle_cycles_p50: f64,
            messages_p50: f64,
            messages_p50_low: Option<f64>,
            messages_p50_high: Option<f64>,
            tensors_per_message_mean: f64,
            control_bytes_p50: f64,
            inside_bytes: Option<f64>,
            between_bytes: Option<f64>,
            cycle_wait_us_p50: Option<f64>,
            until_cycle_us_p50: Option<f64>,
            stop_empty_p50: Option<f64>,
            stop_threshold_p50: Option<f64>,
            stop_unlike_p50: Option<f64>,
            stop_group_p50: Option<f64>,
            stop_alone_p50: Option<f64>,
            cpu_share_p50: Option<f64>,
        }
    }
}

columns! {
    /// Bandwidth of the messages of measured steps in an octave of sizes.
    MessageRow {
        parts { key: Key, run: Run, training: Training, framework: Framework, bandwidths: Bandwidths }
        columns { samples: usize, interval_over: String }
    }
}

impl Training {
    /// A step without communication, in microseconds.
    pub fn compute_us(&self) -> f64 {
        let passes = self.backward_passes_per_step.unwrap_or(1) as f64;
        ((self.forward_ms + self.backward_ms) * passes + self.optimizer_ms) * 1e3
    }
}

impl StepResult {
    /// Replaces the intervals of times by what `of` makes of a median and its interval. Returns false where it makes none of that
    /// of a step; then nothing is replaced.
    pub fn replace_intervals(
        &mut self,
        of: impl Fn(f64, (f64, f64)) -> Option<(f64, f64)>,
    ) -> bool {
        let negotiation = self.negotiation_us_p50_low.zip(self.negotiation_us_p50_high);
        if let Some(interval) = self.times.median().p50_interval {
            let Some((low, high)) = of(self.times.time_us_p50, interval) else { return false };
            (self.times.time_us_p50_low, self.times.time_us_p50_high) = (Some(low), Some(high));
        }
        if let Some(interval) = negotiation {
            let found = of(self.negotiation_us_p50, interval);
            (self.negotiation_us_p50_low, self.negotiation_us_p50_high) = found.unzip();
        }
        true
    }

    /// Removes the intervals of the medians.
    pub fn withhold_intervals(&mut self) {
        self.times = self.times.clone().without_interval();
        (self.negotiation_us_p50_low, self.negotiation_us_p50_high) = (None, None);
        (self.messages_p50_low, self.messages_p50_high) = (None, None);
        self.confidence.interval_over = String::new();
    }

    /// The step was compared with the fastest, which is another one, in more than one round.
    pub fn is_compared(&self) -> bool {
        let is_another = self.confidence.over_best.is_some_and(|ratio| ratio != 1.0);
        is_another && self.effort.blocks > 1 && self.confidence.over_best_low.is_some()
    }
}

impl StepRow {
    /// A case without measurement.
    pub fn failed(setting: StepSetting, reason: String) -> StepRow {
        StepRow {
            bound_us: setting.training.compute_us(),
            setting,
            outcome: CaseOutcome::Failed(reason),
        }
    }

    /// A case that does not exist.
    pub fn unsupported(setting: StepSetting, reason: String) -> StepRow {
        let outcome = CaseOutcome::Unsupported(reason);
        StepRow { bound_us: setting.training.compute_us(), setting, outcome }
    }

    /// The case's name.
    pub fn case(&self) -> &str {
        &self.setting.key.case
    }
}
