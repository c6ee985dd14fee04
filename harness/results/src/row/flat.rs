//! The file format of rows: every column of `rows.csv`, in the order of the file.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{OLDEST_SCHEMA, Row, SCHEMA, Status, is_readable};
use crate::described::columns_in;
use crate::record::header;

/// A line with the columns of all kinds. An empty field is unknown, and so is a column that a file of an older
/// version lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Flat {
    /// version of these columns, which changes with them; files of version 1 lack some of them
    pub schema: u32,
    /// `step`: a training step of the engine; `allreduce`: an allreduce alone (`kolo bench`); `message`: the fused
    /// messages of a sweep; `control`: a step of control planes alone
    pub kind: Kind,
    /// the setting's name, unique in a run; with strong scaling it ends with `/strong`
    pub case: String,
    /// `ok`; `wrong` (data were wrong, or ranks executed different messages: do not use the times); `failed`;
    /// `unsupported`
    pub status: Status,
    /// See `status`.
    pub reason: String,
    /// `measured` or `simulated`
    pub source: Source,
    /// threads, processes or streams stand for nodes, or nodes share one machine (`KOLO_EMULATED`), or host memory
    /// stands for GPUs (`KOLO_CUDA_EMULATED`, for tests; then there are no times)
    pub emulated: bool,
    /// more ranks than cores, on some node; transports `cuda` and `nccl`: than GPUs
    pub oversubscribed: bool,
    /// each rank is bound to a core, its own unless oversubscribed
    pub pinned: bool,
    /// where, what and when (UTC); the seed of order and data. Commits are joined by `+` where `--resume --force` mixed
    /// them
    pub host: String,
    /// See `host`.
    pub commit: String,
    /// See `host`.
    pub started: String,
    /// See `host`.
    pub seed: u64,
    /// what ran; `groups` is 0 without grouping; transport `lockstep`: one thread drives the state machines of all
    /// ranks, and nothing travels; workload `synthetic-N`: N tensors of no model, with names of typical length
    pub workload: String,
    /// the machine file, such as `summit`; empty unless simulated
    pub machine: String,
    /// the rules of negotiation and fusion of the step: `horovod-coordinator`, `horovod-bitvector`, `horovod-grouped`,
    /// `ddp`, `tf-distribute`; BytePS as `byteps` (servers on the training nodes, steps end with all messages),
    /// `byteps-priority` (the next forward pass goes on as far as it has its gradients) and `byteps-servers` (the same,
    /// with servers on more nodes, of which `nodes` and `ranks` know nothing); empty for an allreduce alone
    pub policy: String,
    /// the model that predicts the time of an allreduce: `nccl`, the model by which NCCL itself chooses; `rounds` or
    /// `events`, our schedules in virtual time, among them `server-nodes[:K]` in `algorithm`: servers on as many more
    /// nodes, or on K
    pub engine: String,
    /// the state machines that ran: `all`, every rank's; `classes`, one rank's of each class of ranks that behave alike
    pub driven: String,
    /// samples per rank and step
    pub batch: Option<usize>,
    /// random seeds with which a point was simulated; intervals (`_low`, `_high`) are 95 % over them; see
    /// `interval_over`
    pub seeds: Option<usize>,
    /// See `workload`.
    pub transport: String,
    /// See `workload`.
    pub control_plane: String,
    /// See `workload`.
    pub algorithm: String,
    /// See `workload`.
    pub groups: usize,
    /// how gradients are grouped: `even`, `layers`, `listed`; empty without grouping, and of `kolo bench`
    pub grouping: String,
    /// forward and backward passes of a step, whose gradients are added up before they are communicated; whether the
    /// result is divided by their number
    pub backward_passes_per_step: Option<usize>,
    /// See `backward_passes_per_step`.
    pub average_aggregated_gradients: Option<bool>,
    /// what wider floating-point gradients are cast to before they are handed over: `none`, `fp16`, `bf16`
    pub compression: String,
    /// factors before and after the reduction, as asked for
    pub gradient_predivide_factor: Option<f64>,
    /// See `gradient_predivide_factor`.
    pub prescale_factor: Option<f64>,
    /// See `gradient_predivide_factor`.
    pub postscale_factor: Option<f64>,
    /// the topology; `local_size` is empty if nodes differ
    pub nodes: usize,
    /// See `nodes`.
    pub local_size: Option<usize>,
    /// See `nodes`.
    pub ranks: usize,
    /// element type of the gradients (`compression` is the type on the wire), reduction, and whether the result
    /// replaces the input
    pub dtype: String,
    /// See `dtype`.
    pub op: String,
    /// See `dtype`.
    pub in_place: bool,
    /// of one step, or of one allreduce, per rank, as it travels: with `compression`, what gradients are cast to
    pub size_bytes: usize,
    /// See `size_bytes`.
    pub tensors: usize,
    /// the engine's settings as asked for
    pub fusion_threshold_bytes: Option<usize>,
    /// See `fusion_threshold_bytes`.
    pub cycle_time_ms: Option<f64>,
    /// See `fusion_threshold_bytes`.
    pub cache_capacity: Option<usize>,
    /// large messages are pipelined in segments of about this size; 0: not
    pub segment_bytes: usize,
    /// several tensors are packed so many bytes at a time; 0: whole messages, as Horovod does
    pub packing_bytes: usize,
    /// the replayed parts of a step, with strong scaling those on this number of ranks; a step has
    /// `backward_passes_per_step` of the first two
    pub forward_ms: Option<f64>,
    /// See `forward_ms`.
    pub backward_ms: Option<f64>,
    /// See `forward_ms`.
    pub optimizer_ms: Option<f64>,
    /// steps (or repetitions) per block that do not count
    pub warmup: usize,
    /// of `kolo bench`: how ranks start a repetition together: `barrier`, `window`, `round-time`
    /// ([how](../harness/transports/README.md#starts)); empty before schema 4 (a barrier)
    pub sync: String,
    /// steps that count, blocks they come from, runs of the program
    pub samples: usize,
    /// See `samples`.
    pub blocks: usize,
    /// See `samples`.
    pub launches: usize,
    /// `interval` (narrow enough), `count` (most blocks), `budget` (time), `end` (the base case, which is repeated
    /// until the end), `other-failed` (in `kolo compare --interleaved`, another run could not measure the case); of a
    /// row from another program's log `log: mean over iterations`, or `median`: what its `time_us_p50` is
    pub stop_reason: String,
    /// samples whose data were compared; wrong elements in them; the first of these
    pub checked: usize,
    /// See `checked`.
    pub wrong: Option<usize>,
    /// See `checked`.
    pub first_wrong: String,
    /// time of a step: its beginning to the end of the optimizer, the maximum over ranks; of control planes alone on
    /// threads, from everything ready to everything executed
    pub time_us_p50: Option<f64>,
    /// See `time_us_p50`.
    pub time_us_p50_low: Option<f64>,
    /// See `time_us_p50`.
    pub time_us_p50_high: Option<f64>,
    /// of the same; p90 only from 36 samples on, p99 from 368
    pub time_us_mean: Option<f64>,
    /// See `time_us_mean`.
    pub time_us_min: Option<f64>,
    /// See `time_us_mean`.
    pub time_us_max: Option<f64>,
    /// See `time_us_mean`.
    pub time_us_p90: Option<f64>,
    /// See `time_us_mean`.
    pub time_us_p99: Option<f64>,
    /// of a sweep's step: what `time_us_p50_low` and `_high` take as independent: `launches` (three or more), `blocks`
    /// (five or more) or `steps` (of one block of 20 or more), and nothing where there is no interval; of `kolo bench`: `blocks` or `repetitions`; in `bandwidth.csv`:
    /// `launches`, `blocks` (rounds of blocks, if there are five or more), `cases` (blocks of different cases in fewer
    /// rounds) or `messages`; of a simulated step: `seeds and parameters` where the intervals contain the ranges of the
    /// machine's parameters, and nothing where they are over seeds alone
    pub interval_over: String,
    /// how much slower the machine was in its slowest part of the run than in its fastest, in percent, if that is more
    /// than 3. `time_us_p50_low` and `_high` then contain how much rounds of blocks differ, or are empty where cases do
    /// not show it. For an interval over launches only changes within launches count
    pub speed_change_percent: Option<f64>,
    /// how many independent steps (or repetitions) tell as much about the median as those that were measured: by the
    /// variance between launches, blocks and steps, or in a single block of at least 20 by their correlation
    pub samples_effective: Option<f64>,
    /// time of a step over that of the fastest with the same work and ranks in the same run, round by round; the lower
    /// ends of all settings hold together with 95 %. A setting ties with the fastest if its end is 1 or less. Written
    /// when the sweep ends
    pub over_best: Option<f64>,
    /// See `over_best`.
    pub over_best_low: Option<f64>,
    /// of `kolo bench` with another start than a barrier: repetitions that a rank began late, which do not count unless
    /// they are more than half; the bound of the errors of the ranks' clocks, 0 on one system
    pub late: Option<usize>,
    /// See `late`.
    pub clock_error_us: Option<f64>,
    /// context switches, voluntary or not, per repetition and the barrier before it, of all ranks together; of a step
    /// of control planes alone likewise, in lockstep of the one thread; only on Linux; sweeps of training steps leave
    /// it empty
    pub context_switches_mean: Option<f64>,
    /// transport `cuda`: median of the time between two events on the GPUs, before the first rank's work and behind the
    /// last one's; `time_us_p50` is the host's, from the first launch until all is done. Transport `nccl`: the longest
    /// of all ranks, each by its own GPU and host, from when all have met on their GPUs. Sweeps: median of a step's
    /// time by the GPUs' clocks, the maximum over ranks (also `device_us` in `samples.csv`); times of messages, packing
    /// and aggregation are the GPUs', too
    pub device_us_p50: Option<f64>,
    /// transport `cuda`: median of the host's time to put an allreduce on the streams, part of `time_us_p50`
    pub enqueue_us_p50: Option<f64>,
    /// transport `cuda`: copies and kernels of one allreduce, packing and scaling included; nodes of the CUDA graph
    /// that is launched in their place (`--graph`), empty where they are put on the streams one by one
    pub enqueued: Option<usize>,
    /// See `enqueued`.
    pub graph_nodes: Option<usize>,
    /// Of a step, a lower bound: all forward and backward passes, adding up their gradients (`aggregation_us_p50`), and
    /// the optimizer, without any communication. Of an allreduce (`kolo bench --bound`): the [reference
    /// kernel](../harness/transports/README.md#reference-kernel), with the reads and writes of an allreduce by the same
    /// threads, without synchronisation, or the time in which cores pass each other a cache line, whichever is longer.
    /// It is measured beside the row and is not a bound
    pub bound_us: Option<f64>,
    /// time of a step above that bound: communication that computation does not hide
    pub exposed_us_p50: Option<f64>,
    /// time in allreduces per step, packing included
    pub data_us_p50: Option<f64>,
    /// copying into and out of the fusion buffer, per step
    pub packing_us_p50: Option<f64>,
    /// the reduction: combining received elements with own ones, per step, where a transfer has 4 KiB or more; part of
    /// `data_us_p50`. Threads combine out of each other's memory, so it includes moving these data; empty if a library or a
    /// GPU reduces, and before schema 7
    pub reduction_us_p50: Option<f64>,
    /// casting gradients to what travels and results back, per step; not part of `data_us_p50`
    pub compression_us_p50: Option<f64>,
    /// adding up the gradients of several backward passes, and dividing the result, per step; not part of `data_us_p50`
    pub aggregation_us_p50: Option<f64>,
    /// time in the control plane per step, waiting for the slowest rank
    pub wait_us_p50: Option<f64>,
    /// time in the control plane per step, as seen by the rank that entered each cycle last
    pub negotiation_us_p50: Option<f64>,
    /// See `negotiation_us_p50`.
    pub negotiation_us_p50_low: Option<f64>,
    /// See `negotiation_us_p50`.
    pub negotiation_us_p50_high: Option<f64>,
    /// the same per cycle
    pub negotiation_cycle_us_p50: Option<f64>,
    /// See `negotiation_cycle_us_p50`.
    pub negotiation_cycle_us_p99: Option<f64>,
    /// cycles per step, and those that found nothing to do
    pub cycles_p50: Option<f64>,
    /// See `cycles_p50`.
    pub idle_cycles_p50: Option<f64>,
    /// fused messages per step
    pub messages_p50: Option<f64>,
    /// See `messages_p50`.
    pub messages_p50_low: Option<f64>,
    /// See `messages_p50`.
    pub messages_p50_high: Option<f64>,
    /// gradients per message
    pub tensors_per_message_mean: Option<f64>,
    /// bytes of control messages and bit vectors per step, as sent on the wire by all ranks
    pub control_bytes_p50: Option<f64>,
    /// bytes of data per step that all ranks send within and between nodes, counted from the schedule; empty if a
    /// library reduces
    pub inside_bytes: Option<f64>,
    /// See `inside_bytes`.
    pub between_bytes: Option<f64>,
    /// algorithm bandwidth and bus bandwidth as nccl-tests defines them
    pub algbw_gb_s: Option<f64>,
    /// See `algbw_gb_s`.
    pub busbw_gb_s: Option<f64>,
    /// See `algbw_gb_s`.
    pub busbw_gb_s_low: Option<f64>,
    /// See `algbw_gb_s`.
    pub busbw_gb_s_high: Option<f64>,
    /// of control planes alone: `same`: tensors become ready in the workload's order on every rank; `shuffled`: in
    /// another one on every rank and in every step
    pub ready_order: String,
    /// share of a step's tensors that have new names, or another shape than in the step before
    pub miss_share: Option<f64>,
    /// See `miss_share`.
    pub invalid_share: Option<f64>,
    /// in lockstep: time of rank 0's state machine, measured by the wall clock of a thread that never waits
    /// (`context_switches_mean` counts its interruptions); two readings of the clock per event are in it, some 20 ns
    /// each. In large worlds the other ranks' state evicts rank 0's from the caches between its events
    pub rank0_us_p50: Option<f64>,
    /// See `rank0_us_p50`.
    pub rank0_us_p50_low: Option<f64>,
    /// See `rank0_us_p50`.
    pub rank0_us_p50_high: Option<f64>,
    /// in lockstep: time of all ranks' state machines and of their driver, divided by ranks; median over steps
    pub rank_us_mean: Option<f64>,
    /// the first step, in which nothing is cached: as `rank0_us_p50`, as `time_us_p50`
    pub first_rank0_us: Option<f64>,
    /// See `first_rank0_us`.
    pub first_time_us: Option<f64>,
    /// cycles per step that used rank 0; with the coordinator, all
    pub slow_cycles_p50: Option<f64>,
    /// of the response cache, per step and on rank 0: gradients found (counted again in every cycle in which they
    /// wait), not found, found with another shape or type, and responses that were evicted
    pub hits_p50: Option<f64>,
    /// See `hits_p50`.
    pub misses_p50: Option<f64>,
    /// See `hits_p50`.
    pub invalid_p50: Option<f64>,
    /// See `hits_p50`.
    pub evictions_p50: Option<f64>,
    /// control messages per step: sent by rank 0, received by rank 0, and sent by all ranks. A broadcast counts once
    /// per receiver; bit vectors do not count
    pub rank0_sent_p50: Option<f64>,
    /// See `rank0_sent_p50`.
    pub rank0_received_p50: Option<f64>,
    /// See `rank0_sent_p50`.
    pub control_messages_p50: Option<f64>,
    /// bytes of these messages in kolo's format: at rank 0, and of all ranks
    pub rank0_bytes_wire_p50: Option<f64>,
    /// See `rank0_bytes_wire_p50`.
    pub bytes_wire_p50: Option<f64>,
    /// bytes that Horovod would have sent for the same, by formulas: FlatBuffers, lengths, the list of devices in every
    /// response
    pub bytes_horovod_p50: Option<f64>,
    /// bytes of all ranks' bit vectors, each counted once per collective
    pub bits_bytes_p50: Option<f64>,
    /// `assumed`: `network_us_p50` is not measured
    pub network_source: String,
    /// assumed: latency of a message, time per message of many at rank 0, bandwidth of a rank
    pub network_alpha_us: Option<f64>,
    /// See `network_alpha_us`.
    pub network_message_us: Option<f64>,
    /// See `network_alpha_us`.
    pub network_bandwidth_gb_s: Option<f64>,
    /// time on a network with these parameters, by the formulas of the network model of control sweeps (`network.rs`);
    /// not included in any other column
    pub network_us_p50: Option<f64>,
    /// time from a gradient's readiness to the start of its cycle: mean over rank 0's gradients, per step
    pub cycle_wait_us_p50: Option<f64>,
    /// time per step in which the loop was idle until its next cycle although gradients were ready: in each cycle from the
    /// first that became ready; empty before schema 7
    pub until_cycle_us_p50: Option<f64>,
    /// fused messages per step, by the reason why they hold no more tensors: nothing else was ready; the fusion
    /// threshold; the other ready tensors differ in type, ReduceOp, factor or device; groups are not fused; the message
    /// is never fused (errors, static buckets)
    pub stop_empty_p50: Option<f64>,
    /// See `stop_empty_p50`.
    pub stop_threshold_p50: Option<f64>,
    /// See `stop_empty_p50`.
    pub stop_unlike_p50: Option<f64>,
    /// See `stop_empty_p50`.
    pub stop_group_p50: Option<f64>,
    /// See `stop_empty_p50`.
    pub stop_alone_p50: Option<f64>,
    /// share of a step's time that a rank's loop was running on a core, the largest over ranks; empty if the system
    /// does not report it
    pub cpu_share_p50: Option<f64>,
    /// samples per second of all ranks together
    pub throughput_samples_s_p50: Option<f64>,
    /// See `throughput_samples_s_p50`.
    pub throughput_samples_s_p50_low: Option<f64>,
    /// See `throughput_samples_s_p50`.
    pub throughput_samples_s_p50_high: Option<f64>,
    /// scaling efficiency: throughput per rank, as a share of that of the same policy on `efficiency_base_ranks`
    pub efficiency_p50: Option<f64>,
    /// See `efficiency_p50`.
    pub efficiency_p50_low: Option<f64>,
    /// See `efficiency_p50`.
    pub efficiency_p50_high: Option<f64>,
    /// the number of ranks that efficiency is relative to
    pub efficiency_base_ranks: Option<usize>,
    /// of the step's time (with priorities: between the ends of two backward passes), the computation of a rank without
    /// jitter. It and the other parts add up to `time_us_p50`; of communication only what no computation hides counts
    pub part_compute_us: Option<f64>,
    /// additional time of the slowest rank
    pub part_jitter_us: Option<f64>,
    /// waiting for the next cycle
    pub part_cycle_us: Option<f64>,
    /// in the control plane
    pub part_negotiation_us: Option<f64>,
    /// time in allreduces: latency of messages; moving bytes over links that are not shared; additional time because
    /// links are shared; processors (combining, copying, handing messages over)
    pub part_latency_us: Option<f64>,
    /// See `part_latency_us`.
    pub part_bandwidth_us: Option<f64>,
    /// See `part_latency_us`.
    pub part_contention_us: Option<f64>,
    /// See `part_latency_us`.
    pub part_reduction_us: Option<f64>,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// The JSON Schema of a line, with what each column means.
pub fn schema() -> Schema {
    schema_for!(Flat)
}

/// The columns and what they mean, as a table in Markdown.
///
/// # Panics
/// When a column has no description.
pub fn described() -> String {
    columns_in(&schema())
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
        &mut flat.time_us_p90,
        &mut flat.time_us_p99,
        &mut flat.speed_change_percent,
        &mut flat.samples_effective,
        &mut flat.clock_error_us,
        &mut flat.context_switches_mean,
        &mut flat.bound_us,
        &mut flat.exposed_us_p50,
        &mut flat.data_us_p50,
        &mut flat.packing_us_p50,
        &mut flat.reduction_us_p50,
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
