//! The file format of rows: every column of `rows.csv`, in the order of the file.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{OLDEST_SCHEMA, Row, SCHEMA, Status, is_readable};
use crate::record::header;

/// A line with the columns of all kinds. An empty field is unknown, and so is a column that a file of an older
/// version lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Flat {
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
    pub interval_over: String,
    pub samples_effective: Option<f64>,
    pub over_best: Option<f64>,
    pub over_best_low: Option<f64>,
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

/// The kind of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Training steps.
    #[default]
    Step,
    /// An allreduce alone.
    Allreduce,
    /// The messages of training steps, per algorithm and octave of size.
    Message,
    /// Steps of a control plane alone.
    Control,
}

/// The source of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// A clock.
    #[default]
    Measured,
    /// A model.
    Simulated,
}

/// Why a line of a file is no row.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RowError {
    /// Another version wrote it.
    #[error("its rows are of schema {found}, this kolo reads {OLDEST_SCHEMA} to {SCHEMA}")]
    Schema {
        /// The schema of the line.
        found: u32,
    },
    /// Rows of this kind are never simulated.
    #[error("a row of kind {kind} is never simulated, expected source measured")]
    Simulated {
        /// The kind of the line.
        kind: String,
    },
    /// A column is empty that such a row has.
    #[error("column {column} is empty, expected a value in a row of kind {kind}")]
    Empty {
        /// The column.
        column: &'static str,
        /// The kind of the line.
        kind: String,
    },
}

/// A column that has no value.
pub struct Empty(&'static str);

/// A group of columns.
pub trait Columns: Sized {
    /// The group in a line; the first column that should not be empty and is.
    fn read(flat: &Flat) -> Result<Self, Empty>;

    /// Puts the group into a line.
    fn write(&self, flat: &mut Flat);
}

/// A group that not every row of a kind has: it is there if its columns are.
impl<C: Columns> Columns for Option<C> {
    fn read(flat: &Flat) -> Result<Option<C>, Empty> {
        Ok(C::read(flat).ok())
    }

    fn write(&self, flat: &mut Flat) {
        if let Some(columns) = self {
            columns.write(flat);
        }
    }
}

/// A column's type in a group of columns; `F` is its type in the file.
pub trait Field<F>: Sized {
    /// From the file.
    fn from_file(field: &F, column: &'static str) -> Result<Self, Empty>;

    /// To the file.
    fn into_file(self) -> F;
}

impl<T: Clone> Field<T> for T {
    fn from_file(field: &T, _: &'static str) -> Result<T, Empty> {
        Ok(field.clone())
    }

    fn into_file(self) -> T {
        self
    }
}

impl<T: Clone> Field<Option<T>> for T {
    fn from_file(field: &Option<T>, column: &'static str) -> Result<T, Empty> {
        field.clone().ok_or(Empty(column))
    }

    fn into_file(self) -> Option<T> {
        Some(self)
    }
}

impl From<Row> for Flat {
    fn from(row: Row) -> Flat {
        use Kind::{Allreduce, Control, Message, Step};
        use Source::{Measured, Simulated};
        match row {
            Row::Step(row) => line(Step, Measured, &row),
            Row::Message(row) => Flat { wrong: Some(0), ..line(Message, Measured, &row) },
            Row::Collective(row) => line(Allreduce, Measured, &row),
            Row::Control(row) => line(Control, Measured, &row),
            Row::SimulatedStep(row) => line(Step, Simulated, &row),
            Row::SimulatedCollective(row) => line(Allreduce, Simulated, &row),
        }
    }
}

fn line(kind: Kind, source: Source, columns: &impl Columns) -> Flat {
    let mut flat = Flat { schema: SCHEMA, kind, source, ..Flat::default() };
    columns.write(&mut flat);
    flat
}

impl TryFrom<Flat> for Row {
    type Error = RowError;

    fn try_from(flat: Flat) -> Result<Row, RowError> {
        if !is_readable(flat.schema) {
            return Err(RowError::Schema { found: flat.schema });
        }
        let kind = || format!("{:?}", flat.kind).to_lowercase();
        let row = match (flat.kind, flat.source) {
            (Kind::Step, Source::Measured) => Columns::read(&flat).map(Row::Step),
            (Kind::Step, Source::Simulated) => Columns::read(&flat).map(Row::SimulatedStep),
            (Kind::Allreduce, Source::Measured) => Columns::read(&flat).map(Row::Collective),
            (Kind::Allreduce, Source::Simulated) => {
                Columns::read(&flat).map(Row::SimulatedCollective)
            }
            (Kind::Message, Source::Measured) => Columns::read(&flat).map(Row::Message),
            (Kind::Control, Source::Measured) => Columns::read(&flat).map(Row::Control),
            (Kind::Message | Kind::Control, Source::Simulated) => {
                return Err(RowError::Simulated { kind: kind() });
            }
        };
        row.map_err(|Empty(column)| RowError::Empty { column, kind: kind() })
    }
}

/// The header of the file: all columns, separated by commas.
pub fn columns() -> String {
    header::<Flat>()
}

/// A row with numbers rounded to the file's decimals.
pub(super) fn rounded<C: Columns>(row: &C) -> C {
    let mut flat = Flat::default();
    row.write(&mut flat);
    round(&mut flat);
    C::read(&flat).unwrap_or_else(|Empty(column)| unreachable!("{column} was written"))
}

/// Numbers to three decimals: nanoseconds, MB/s; ratios to five.
fn round(flat: &mut Flat) {
    for value in [
        &mut flat.time_us_p50,
        &mut flat.time_us_p50_low,
        &mut flat.time_us_p50_high,
        &mut flat.time_us_mean,
        &mut flat.time_us_min,
        &mut flat.time_us_max,
        &mut flat.time_us_p99,
        &mut flat.samples_effective,
        &mut flat.context_switches_mean,
        &mut flat.bound_us,
        &mut flat.exposed_us_p50,
        &mut flat.data_us_p50,
        &mut flat.packing_us_p50,
        &mut flat.compression_us_p50,
        &mut flat.aggregation_us_p50,
        &mut flat.wait_us_p50,
        &mut flat.negotiation_us_p50,
        &mut flat.negotiation_us_p50_low,
        &mut flat.negotiation_us_p50_high,
        &mut flat.negotiation_cycle_us_p50,
        &mut flat.negotiation_cycle_us_p99,
        &mut flat.tensors_per_message_mean,
        &mut flat.algbw_gb_s,
        &mut flat.busbw_gb_s,
        &mut flat.busbw_gb_s_low,
        &mut flat.busbw_gb_s_high,
        &mut flat.rank0_us_p50,
        &mut flat.rank0_us_p50_low,
        &mut flat.rank0_us_p50_high,
        &mut flat.rank_us_mean,
        &mut flat.first_rank0_us,
        &mut flat.first_time_us,
        &mut flat.network_us_p50,
        &mut flat.throughput_samples_s_p50,
        &mut flat.throughput_samples_s_p50_low,
        &mut flat.throughput_samples_s_p50_high,
        &mut flat.part_compute_us,
        &mut flat.part_jitter_us,
        &mut flat.part_cycle_us,
        &mut flat.part_negotiation_us,
        &mut flat.part_latency_us,
        &mut flat.part_bandwidth_us,
        &mut flat.part_contention_us,
        &mut flat.part_reduction_us,
    ]
    .into_iter()
    .flatten()
    {
        *value = (*value * 1e3).round() / 1e3;
    }
    let ratios = [
        &mut flat.efficiency_p50,
        &mut flat.efficiency_p50_low,
        &mut flat.efficiency_p50_high,
        &mut flat.over_best,
        &mut flat.over_best_low,
    ];
    for value in ratios.into_iter().flatten() {
        *value = (*value * 1e5).round() / 1e5;
    }
}
