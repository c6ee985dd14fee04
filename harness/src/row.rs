//! The lines of the CSV files that a run writes. In this crate nothing else knows
//! column names; `plots` reads rows by the same names.

use serde::{Deserialize, Serialize};

/// Version of all files of a run. It changes when a column changes its meaning.
pub const SCHEMA: u32 = 1;

/// One case with its statistics. Units are in the names; an empty field is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "results/README.md explains each column to those who read the CSV")]
pub struct Row {
    pub schema: u32,
    pub kind: Kind,
    pub case: String,
    pub status: Status,
    pub reason: String,
    pub source: Source,
    pub emulated: bool,
    pub oversubscribed: bool,
    pub pinned: bool,
    pub host: String,
    pub commit: String,
    pub started: String,
    pub seed: u64,
    pub workload: String,
    pub transport: String,
    pub control_plane: String,
    pub algorithm: String,
    pub groups: usize,
    pub nodes: usize,
    pub local_size: Option<usize>,
    pub ranks: usize,
    pub dtype: String,
    pub op: String,
    pub in_place: bool,
    pub size_bytes: usize,
    pub tensors: usize,
    pub fusion_threshold_bytes: Option<usize>,
    pub cycle_time_ms: Option<f64>,
    pub cache_capacity: Option<usize>,
    pub segment_bytes: usize,
    pub packing_bytes: usize,
    pub forward_ms: Option<f64>,
    pub backward_ms: Option<f64>,
    pub optimizer_ms: Option<f64>,
    pub warmup: usize,
    pub samples: usize,
    pub blocks: usize,
    pub launches: usize,
    pub stop_reason: String,
    pub checked: usize,
    pub wrong: Option<usize>,
    pub first_wrong: String,
    pub time_us_p50: Option<f64>,
    pub time_us_p50_low: Option<f64>,
    pub time_us_p50_high: Option<f64>,
    pub time_us_mean: Option<f64>,
    pub time_us_min: Option<f64>,
    pub time_us_max: Option<f64>,
    pub time_us_p99: Option<f64>,
    pub context_switches_mean: Option<f64>,
    pub bound_us: Option<f64>,
    pub exposed_us_p50: Option<f64>,
    pub data_us_p50: Option<f64>,
    pub packing_us_p50: Option<f64>,
    pub wait_us_p50: Option<f64>,
    pub negotiation_us_p50: Option<f64>,
    pub negotiation_us_p50_low: Option<f64>,
    pub negotiation_us_p50_high: Option<f64>,
    pub negotiation_cycle_us_p50: Option<f64>,
    pub negotiation_cycle_us_p99: Option<f64>,
    pub cycles_p50: Option<f64>,
    pub idle_cycles_p50: Option<f64>,
    pub messages_p50: Option<f64>,
    pub messages_p50_low: Option<f64>,
    pub messages_p50_high: Option<f64>,
    pub tensors_per_message_mean: Option<f64>,
    pub control_bytes_p50: Option<f64>,
    pub inside_bytes: Option<f64>,
    pub between_bytes: Option<f64>,
    pub algbw_gb_s: Option<f64>,
    pub busbw_gb_s: Option<f64>,
    pub busbw_gb_s_low: Option<f64>,
    pub busbw_gb_s_high: Option<f64>,
    pub ready_order: String,
    pub miss_share: Option<f64>,
    pub invalid_share: Option<f64>,
    pub rank0_us_p50: Option<f64>,
    pub rank0_us_p50_low: Option<f64>,
    pub rank0_us_p50_high: Option<f64>,
    pub rank_us_mean: Option<f64>,
    pub first_rank0_us: Option<f64>,
    pub first_time_us: Option<f64>,
    pub slow_cycles_p50: Option<f64>,
    pub hits_p50: Option<f64>,
    pub misses_p50: Option<f64>,
    pub invalid_p50: Option<f64>,
    pub evictions_p50: Option<f64>,
    pub rank0_sent_p50: Option<f64>,
    pub rank0_received_p50: Option<f64>,
    pub control_messages_p50: Option<f64>,
    pub rank0_bytes_wire_p50: Option<f64>,
    pub bytes_wire_p50: Option<f64>,
    pub bytes_horovod_p50: Option<f64>,
    pub bits_bytes_p50: Option<f64>,
    pub network_source: String,
    pub network_alpha_us: Option<f64>,
    pub network_bandwidth_gb_s: Option<f64>,
    pub network_us_p50: Option<f64>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A training step of the engine.
    #[default]
    Step,
    /// An allreduce alone.
    Allreduce,
    /// The messages of a sweep, per algorithm and octave of size.
    Message,
    /// A step of control planes alone.
    Control,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Measured, and the data were right.
    #[default]
    Ok,
    /// Measured, and the data were not; its times are not to be believed.
    Wrong,
    /// Not measured; the reason says why.
    Failed,
    /// There is no such case; the reason says why.
    Unsupported,
}

/// Where times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A clock.
    #[default]
    Measured,
    /// A model.
    Simulated,
}

/// One training step; what ranks differ in is the maximum over them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The case's name.
    pub case: String,
    /// Each case once per block.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// Position of the case within the block.
    pub order: usize,
    /// Steps that count, from 0; the last one of a block completes it.
    pub step: usize,
    /// From its beginning to the end of the optimizer.
    pub time_us: f64,
    /// In the control plane, over all cycles of the step: of each cycle what the rank needed that
    /// came last, and so waited for nobody.
    pub negotiation_us: f64,
    /// In the control plane, waiting for the rank that came last, over all cycles of the step: of
    /// each cycle what the rank waited that came first.
    pub wait_us: f64,
    /// In allreduces, packing included.
    pub data_us: f64,
    /// Copying into and out of the fusion buffer.
    pub packing_us: f64,
    /// Cycles of rank 0.
    pub cycles: usize,
    /// Those after which there was nothing to do.
    pub idle_cycles: usize,
    /// Allreduces.
    pub messages: usize,
    /// Bytes of control messages, sent by all ranks together.
    pub control_bytes: usize,
    /// Bytes of data sent inside nodes, by all ranks together.
    pub inside_bytes: usize,
    /// Bytes of data sent between nodes, by all ranks together.
    pub between_bytes: usize,
    /// The data after this step were compared.
    pub checked: bool,
    /// Wrong elements.
    pub wrong: usize,
    /// The first one.
    pub first_wrong: String,
}

/// One allreduce of a training step; the time is the maximum over ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "as in `Sample`")]
pub struct Message {
    pub case: String,
    pub block: usize,
    pub step: usize,
    pub index: usize,
    pub tensors: usize,
    pub size_bytes: usize,
    pub time_us: f64,
}
