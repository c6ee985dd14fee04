//! Rows of an allreduce alone.

use super::columns::{Bandwidths, Effort, Key, Run, Times, Transfer, columns};
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
        }
    }
}

columns! {
    /// What a measured allreduce came to; without times where no clock means anything.
    #[derive(Default)]
    CollectiveResult {
        parts {
            effort: Effort,
            times: Option<Times>,
            bandwidths: Option<Bandwidths>,
            enqueued: Option<Enqueued>,
        }
        columns {
            context_switches_mean: Option<f64>,
            device_us_p50: Option<f64>,
            bound_us: Option<f64>,
        }
    }
}

columns! {
    /// What the host does to put an allreduce on the streams of GPUs.
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
    /// What a simulated allreduce came to.
    #[derive(Default)]
    SimulatedCollectiveResult {
        parts { bandwidths: Option<Bandwidths>, transfer: Transfer }
        columns { engine: String, time_us_p50: f64 }
    }
}
