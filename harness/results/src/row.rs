//! The lines of the CSV files that a run writes. In this crate nothing else knows
//! column names; `plots` reads rows by the same names.

use serde::{Deserialize, Serialize};

use crate::statistics::Summary;
use crate::units::bus_factor;

/// Version of all files of a run. It changes when a column changes its meaning.
pub const SCHEMA: u32 = 1;

/// One case with its statistics. Units are in the names; an empty field is not known, nor is one that a file
/// of an older version lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
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
    pub machine: String,
    pub policy: String,
    pub engine: String,
    pub driven: String,
    pub batch: Option<usize>,
    pub seeds: Option<usize>,
    pub transport: String,
    pub control_plane: String,
    pub algorithm: String,
    pub groups: usize,
    pub grouping: String,
    pub backward_passes_per_step: Option<usize>,
    pub average_aggregated_gradients: Option<bool>,
    pub compression: String,
    pub gradient_predivide_factor: Option<f64>,
    pub prescale_factor: Option<f64>,
    pub postscale_factor: Option<f64>,
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
    pub device_us_p50: Option<f64>,
    pub enqueue_us_p50: Option<f64>,
    pub enqueued: Option<usize>,
    pub graph_nodes: Option<usize>,
    pub bound_us: Option<f64>,
    pub exposed_us_p50: Option<f64>,
    pub data_us_p50: Option<f64>,
    pub packing_us_p50: Option<f64>,
    pub compression_us_p50: Option<f64>,
    pub aggregation_us_p50: Option<f64>,
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
    pub network_message_us: Option<f64>,
    pub network_bandwidth_gb_s: Option<f64>,
    pub network_us_p50: Option<f64>,
    pub cycle_wait_us_p50: Option<f64>,
    pub stop_empty_p50: Option<f64>,
    pub stop_threshold_p50: Option<f64>,
    pub stop_unlike_p50: Option<f64>,
    pub stop_group_p50: Option<f64>,
    pub stop_alone_p50: Option<f64>,
    pub cpu_share_p50: Option<f64>,
    pub throughput_samples_s_p50: Option<f64>,
    pub throughput_samples_s_p50_low: Option<f64>,
    pub throughput_samples_s_p50_high: Option<f64>,
    pub efficiency_p50: Option<f64>,
    pub efficiency_p50_low: Option<f64>,
    pub efficiency_p50_high: Option<f64>,
    pub efficiency_base_ranks: Option<usize>,
    pub part_compute_us: Option<f64>,
    pub part_jitter_us: Option<f64>,
    pub part_cycle_us: Option<f64>,
    pub part_negotiation_us: Option<f64>,
    pub part_latency_us: Option<f64>,
    pub part_bandwidth_us: Option<f64>,
    pub part_contention_us: Option<f64>,
    pub part_reduction_us: Option<f64>,
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

/// One rank in one block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankBlock {
    /// The case's name.
    pub case: String,
    /// Each case once per block.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// World size.
    pub ranks: usize,
    /// The rank.
    pub rank: usize,
    /// Its node.
    pub node: usize,
    /// Steps that count.
    pub steps: usize,
    /// Median of its steps' times.
    pub time_us_p50: f64,
    /// The longest.
    pub time_us_max: f64,
    /// Median of its time in allreduces.
    pub data_us_p50: f64,
    /// Every step's time, in order, separated by spaces: of all ranks, or where there are more than 256 of
    /// the 8 with the largest median.
    pub times_us: String,
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
    /// The same by the clocks of devices, where ranks train on some.
    pub device_us: Option<f64>,
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
    /// Casting gradients to what travels, and results back.
    pub compression_us: f64,
    /// Adding up the gradients of several backward passes, and dividing the result.
    pub aggregation_us: f64,
    /// Cycles of rank 0.
    pub cycles: usize,
    /// Those after which there was nothing to do.
    pub idle_cycles: usize,
    /// Allreduces.
    pub messages: usize,
    /// Bytes of control messages, sent by all ranks together.
    pub control_bytes: usize,
    /// From the moment in which a gradient became ready to the beginning of its cycle: the mean, on rank 0.
    pub cycle_wait_us: f64,
    /// Cycles in which rank 0 was asked.
    pub slow_cycles: usize,
    /// Gradients that were cached when rank 0 drained its queue.
    pub hits: usize,
    /// Gradients that were not.
    pub misses: usize,
    /// Gradients that were cached in another shape or type.
    pub invalid: usize,
    /// Responses that had to make room in the cache.
    pub evictions: usize,
    /// Messages that hold no more because nothing else was ready.
    pub stop_empty: usize,
    /// Messages that hold no more because of the threshold.
    pub stop_threshold: usize,
    /// Messages that hold no more because what else was ready is of another kind.
    pub stop_unlike: usize,
    /// Messages that hold no more because groups are not fused.
    pub stop_group: usize,
    /// Messages that are never fused with others.
    pub stop_alone: usize,
    /// Control messages, sent by all ranks together.
    pub control_messages: usize,
    /// Control messages that rank 0 sent.
    pub rank0_sent: usize,
    /// Control messages that rank 0 got.
    pub rank0_received: usize,
    /// Bytes of those two.
    pub rank0_bytes_wire: usize,
    /// Bytes of control messages in our format, bits apart, sent by all ranks together.
    pub bytes_wire: usize,
    /// Bytes that Horovod would have sent in their place.
    pub bytes_horovod: usize,
    /// Bytes of all ranks' bit vectors.
    pub bits_bytes: usize,
    /// Of the step's time, the share that the thread of a rank's loop was on a core: the largest over ranks.
    pub cpu_share: Option<f64>,
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

/// Fills in a row's times.
pub fn put_times(row: &mut Row, time: &Summary) {
    row.time_us_p50 = Some(time.p50);
    (row.time_us_p50_low, row.time_us_p50_high) = ends(time);
    row.time_us_mean = Some(time.mean);
    row.time_us_min = Some(time.min);
    row.time_us_max = Some(time.max);
    row.time_us_p99 = time.p99;
}

/// Fills in a row's bandwidths from its size, ranks and times: nccl-tests' definitions.
pub fn put_bandwidths(row: &mut Row) {
    let size = row.size_bytes as f64;
    let factor = bus_factor(row.ranks);
    let gb_s = |time_us: Option<f64>| time_us.filter(|&us| us > 0.0).map(|us| size / us / 1e3);
    row.algbw_gb_s = gb_s(row.time_us_p50);
    row.busbw_gb_s = row.algbw_gb_s.map(|gb_s| gb_s * factor);
    row.busbw_gb_s_low = gb_s(row.time_us_p50_high).map(|gb_s| gb_s * factor);
    row.busbw_gb_s_high = gb_s(row.time_us_p50_low).map(|gb_s| gb_s * factor);
}

/// The ends of a median's interval, if it has one.
pub fn ends(summary: &Summary) -> (Option<f64>, Option<f64>) {
    (summary.p50_interval.map(|ends| ends.0), summary.p50_interval.map(|ends| ends.1))
}

/// Numbers to three decimals: nanoseconds, MB/s; ratios to five.
pub fn rounded(mut row: Row) -> Row {
    for value in [
        &mut row.time_us_p50,
        &mut row.time_us_p50_low,
        &mut row.time_us_p50_high,
        &mut row.time_us_mean,
        &mut row.time_us_min,
        &mut row.time_us_max,
        &mut row.time_us_p99,
        &mut row.context_switches_mean,
        &mut row.bound_us,
        &mut row.exposed_us_p50,
        &mut row.data_us_p50,
        &mut row.packing_us_p50,
        &mut row.compression_us_p50,
        &mut row.aggregation_us_p50,
        &mut row.wait_us_p50,
        &mut row.negotiation_us_p50,
        &mut row.negotiation_us_p50_low,
        &mut row.negotiation_us_p50_high,
        &mut row.negotiation_cycle_us_p50,
        &mut row.negotiation_cycle_us_p99,
        &mut row.tensors_per_message_mean,
        &mut row.algbw_gb_s,
        &mut row.busbw_gb_s,
        &mut row.busbw_gb_s_low,
        &mut row.busbw_gb_s_high,
        &mut row.rank0_us_p50,
        &mut row.rank0_us_p50_low,
        &mut row.rank0_us_p50_high,
        &mut row.rank_us_mean,
        &mut row.first_rank0_us,
        &mut row.first_time_us,
        &mut row.network_us_p50,
        &mut row.throughput_samples_s_p50,
        &mut row.throughput_samples_s_p50_low,
        &mut row.throughput_samples_s_p50_high,
        &mut row.part_compute_us,
        &mut row.part_jitter_us,
        &mut row.part_cycle_us,
        &mut row.part_negotiation_us,
        &mut row.part_latency_us,
        &mut row.part_bandwidth_us,
        &mut row.part_contention_us,
        &mut row.part_reduction_us,
    ]
    .into_iter()
    .flatten()
    {
        *value = (*value * 1e3).round() / 1e3;
    }
    let ratios =
        [&mut row.efficiency_p50, &mut row.efficiency_p50_low, &mut row.efficiency_p50_high];
    for value in ratios.into_iter().flatten() {
        *value = (*value * 1e5).round() / 1e5;
    }
    row
}
