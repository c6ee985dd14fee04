//! Rows of an allreduce alone.

use super::columns::{Bandwidths, Confidence, Effort, Key, Run, Times, Transfer, columns};
use super::flat::{Columns, Empty, Field, Flat};
use super::outcome::CaseOutcome;

columns! {
    /// An allreduce alone, measured.
    CollectiveRow {
        parts { key: Key, run: Run, outcome: CaseOutcome<CollectiveResult> }
        columns {
            algorithm: String,
            groups: usize,
            tensors: usize,
            segment_bytes: usize,
            packing_bytes: usize,
            warmup: usize,
            sync: String,
        }
    }
}

columns! {
    /// The result of a measured allreduce; without times where there is no clock.
    #[derive(Default)]
    CollectiveResult {
        parts {
            effort: Effort,
            times: Option<Times>,
            confidence: Confidence,
            bandwidths: Option<Bandwidths>,
            enqueued: Option<Enqueued>,
        }
        columns {
            late: Option<usize>,
            clock_error_us: Option<f64>,
            context_switches_mean: Option<f64>,
            device_us_p50: Option<f64>,
            bound_us: Option<f64>,
        }
    }
}

columns! {
    /// Host work to enqueue an allreduce on the streams of GPUs.
    #[derive(Default)]
    Enqueued {
        columns { enqueued: usize, graph_nodes: Option<usize>, enqueue_us_p50: Option<f64> }
    }
}

columns! {
    /// An allreduce alone, simulated.
    SimulatedCollectiveRow {
        parts { key: Key, outcome: CaseOutcome<SimulatedCollectiveResult> }
        columns { machine: String, algorithm: String, segment_bytes: usize }
    }
}

columns! {
    /// The result of a simulated allreduce.
    #[derive(Default)]
    SimulatedCollectiveResult {
        parts { bandwidths: Option<Bandwidths>, transfer: Transfer }
        columns { engine: String, time_us_p50: f64 }
    }
}
