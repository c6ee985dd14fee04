//! Rows of simulated training steps.

use super::columns::{Key, Times, Transfer, columns};
use super::flat::{Columns, Empty, Field, Flat};
use super::outcome::CaseOutcome;
use super::step::{Training, Tuning};

columns! {
    /// Training steps, simulated. `transport` is empty, or that of the measured steps which are predicted.
    SimulatedStepRow {
        parts {
            key: Key,
            training: Training,
            tuning: Tuning,
            outcome: CaseOutcome<SimulatedStepResult>,
        }
        columns {
            seed: u64,
            seeds: Option<usize>,
            machine: String,
            policy: String,
            batch: Option<usize>,
            transport: String,
        }
    }
}

columns! {
    /// The result of simulated training steps: medians over seeds of the mean over steps.
    #[derive(Default)]
    SimulatedStepResult {
        parts { times: Times, transfer: Transfer }
        columns {
            engine: String,
            driven: String,
            samples: usize,
            interval_over: String,
            exposed_us_p50: f64,
            data_us_p50: f64,
            negotiation_us_p50: f64,
            cycles_p50: f64,
            idle_cycles_p50: f64,
            messages_p50: f64,
            throughput_samples_s_p50: Option<f64>,
            throughput_samples_s_p50_low: Option<f64>,
            throughput_samples_s_p50_high: Option<f64>,
            efficiency_p50: Option<f64>,
            efficiency_p50_low: Option<f64>,
            efficiency_p50_high: Option<f64>,
            efficiency_base_ranks: Option<usize>,
            part_compute_us: f64,
            part_jitter_us: f64,
            part_cycle_us: f64,
            part_negotiation_us: f64,
        }
    }
}
