//! A table of results, read by column name.
//!
//! Columns may be in any order, and unknown columns are ignored, so that files of several versions
//! can be drawn together. Every file must have the columns that figures need. An empty field means
//! that the value is not known.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::PlotError;
use crate::comparison::{Compared, Kernel, Prediction, Published};
use crate::fields::Fields;
use crate::logs::{RankTimes, Sample};
use crate::ratios::{Changes, Gains};
use crate::timeline::Timeline;
use crate::trials::Trials;

/// The latest version of rows whose columns are known. Files without a column `schema` have no version.
pub const SCHEMA: u32 = 9;

/// The oldest one.
pub const OLDEST_SCHEMA: u32 = 1;

/// The rows of one or more CSV files.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// The files read.
    pub(crate) files: Vec<PathBuf>,
    rows: Vec<Row>,
    pub(crate) published: Vec<Published>,
    pub(crate) predictions: Vec<Prediction>,
    pub(crate) compared: Vec<Compared>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) rank_times: Vec<RankTimes>,
    pub(crate) gains: Vec<Gains>,
    pub(crate) changes: Vec<Changes>,
    pub(crate) timelines: Vec<Timeline>,
    pub(crate) trials: Vec<Trials>,
    /// What was left out of the files, a sentence each.
    left_out: Vec<String>,
}

impl Rows {
    /// Reads CSV files in the order given. The columns of a file tell whether it has rows of a run,
    /// or comparisons of simulated with published (`published.csv`) or measured (`validation.csv`)
    /// values, of kolo with Horovod (`comparison.csv`), or of kernels with a copy (`kernels.csv`), or steps (`samples.csv`, `ranks.csv`). A
    /// last line that is cut, as after a kill, is left out.
    ///
    /// # Errors
    ///
    /// - [`PlotError::Open`] if a file cannot be opened.
    /// - [`PlotError::Malformed`] if a line is not CSV or has another number of fields than the header.
    /// - [`PlotError::Schema`] if a row is of a version that is not known.
    /// - [`PlotError::MissingColumn`] if a file lacks a column that figures need.
    /// - [`PlotError::BadValue`] if a field has a value that its column does not allow.
    pub fn read(paths: &[PathBuf]) -> Result<Rows, PlotError> {
        let mut rows = Rows::default();
        for path in paths {
            let file = File::open(path)
                .map_err(|source| PlotError::Open { file: path.to_path_buf(), source })?;
            read_table(path, file, &mut rows)?;
        }
        Ok(rows)
    }

    /// Adds the rows of a CSV text; `path` is for errors and captions.
    ///
    /// # Errors
    ///
    /// As [`Rows::read`].
    pub fn add_table(&mut self, path: &Path, text: &[u8]) -> Result<(), PlotError> {
        read_table(path, text, self)
    }

    /// The number of rows read, including those that no figure draws.
    pub fn len(&self) -> usize {
        let compared = self.published.len() + self.predictions.len() + self.compared.len();
        self.rows.len() + compared + self.kernels.len() + self.samples.len() + self.rank_times.len()
    }

    /// Adds what a tuner's setting saves.
    pub fn add_gains(&mut self, gains: Gains) {
        self.gains.push(gains);
    }

    /// Adds a comparison of two runs.
    pub fn add_changes(&mut self, changes: Changes) {
        self.changes.push(changes);
    }

    /// Adds a training step of a timeline.
    pub fn add_timeline(&mut self, timeline: Timeline) {
        self.timelines.push(timeline);
    }

    /// Adds what a tuner tried.
    pub fn add_trials(&mut self, trials: Trials) {
        self.trials.push(trials);
    }

    /// What was left out of the files, a sentence each.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Whether the files had no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of every kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// The rows of one kind.
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.kind == kind)
    }
}

/// The fields of a row that figures use. `None` and empty text mean that a value is not known.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The index of its file among those read.
    pub file: usize,
    pub kind: String,
    /// The name of the setting, unique in a run.
    pub case: String,
    pub status: String,
    pub source: String,
    pub emulated: Option<bool>,
    pub oversubscribed: Option<bool>,
    pub pinned: Option<bool>,
    pub host: String,
    pub commit: String,
    pub started: String,
    pub workload: String,
    pub transport: String,
    pub control_plane: String,
    pub algorithm: String,
    pub groups: String,
    /// How ranks start an allreduce together.
    pub sync: String,
    pub nodes: Option<f64>,
    pub local_size: Option<f64>,
    pub ranks: Option<f64>,
    pub dtype: String,
    pub op: String,
    pub in_place: Option<bool>,
    pub size_bytes: Option<f64>,
    pub fusion_threshold_bytes: Option<f64>,
    pub cycle_time_ms: Option<f64>,
    pub cache_capacity: Option<f64>,
    pub segment_bytes: Option<f64>,
    pub packing_bytes: Option<f64>,
    pub forward_ms: Option<f64>,
    pub backward_ms: Option<f64>,
    pub optimizer_ms: Option<f64>,
    pub samples: Option<f64>,
    pub time_us: Estimate,
    /// Its time over that of the fastest with the same work in the same run, and the lower end of that.
    pub over_best: Option<f64>,
    pub over_best_low: Option<f64>,
    pub bound_us: Option<f64>,
    /// Time in allreduces per step, packing included.
    pub data_us: Option<f64>,
    pub packing_us: Option<f64>,
    /// Combining elements, in allreduces that time it apart.
    pub reduction_us: Option<f64>,
    pub compression_us: Option<f64>,
    /// Time in the control plane per step, waiting for the slowest rank.
    pub wait_us: Option<f64>,
    /// From a gradient's readiness to the start of its cycle: the mean over gradients.
    pub cycle_wait_us: Option<f64>,
    /// The loop was idle until its next cycle although gradients were ready.
    pub until_cycle_us: Option<f64>,
    pub negotiation_us: Estimate,
    pub messages: Estimate,
    pub busbw_gb_s: Estimate,
    pub tensors: Option<f64>,
    pub ready_order: String,
    pub miss_share: Option<f64>,
    pub invalid_share: Option<f64>,
    pub rank0_us: Estimate,
    pub network_us: Option<f64>,
    /// The network that `network_us` was computed for.
    pub network_assumed: Option<Assumed>,
    /// The machine file that the row was simulated with; empty if it was measured.
    pub machine: String,
    /// The simulated policy of negotiation and fusion, such as `horovod-coordinator`.
    pub policy: String,
    /// The model that predicted the time of an allreduce.
    pub engine: String,
    pub driven: String,
    /// Samples per rank and step of training.
    pub batch: Option<f64>,
    pub seeds: Option<f64>,
    /// Why no further block of the case was measured.
    pub stop_reason: String,
    /// What intervals contain, if a simulation states it.
    pub interval_over: String,
    pub throughput_samples_s: Estimate,
    pub efficiency: Estimate,
    pub efficiency_base_ranks: Option<f64>,
    /// The parts of the step's time, in the order of [`PARTS`].
    pub parts_us: [Option<f64>; PARTS.len()],
}

/// The columns of the parts of a simulated step's time. The parts add up to the time.
pub(crate) const PARTS: [&str; 8] = [
    "part_compute_us",
    "part_jitter_us",
    "part_cycle_us",
    "part_negotiation_us",
    "part_latency_us",
    "part_bandwidth_us",
    "part_contention_us",
    "part_reduction_us",
];

impl Row {
    /// Whether the row was simulated on a machine file or with a policy. Figures of simulations draw
    /// such rows; figures of measurements do not.
    pub fn of_machine(&self) -> bool {
        self.source == "simulated" && !(self.machine.is_empty() && self.policy.is_empty())
    }

    /// Whether the row is simulated. Anything else was measured.
    pub fn is_simulated(&self) -> bool {
        self.source == "simulated"
    }

    /// Whether all ranks together have the same work in any world (strong scaling), and not each of them.
    pub fn is_strong(&self) -> bool {
        self.case.ends_with("/strong")
    }

    /// The times of forward and backward pass in milliseconds: of each rank, or with strong scaling of all ranks together.
    pub fn passes_ms(&self, is_strong: bool) -> [Option<f64>; 2] {
        let ranks = self.ranks.filter(|_| is_strong).unwrap_or(1.0);
        // Shares times ranks differ in their last digits.
        let of_work = |ms: f64| if is_strong { (100.0 * ranks * ms).round() / 100.0 } else { ms };
        [self.forward_ms, self.backward_ms].map(|ms| ms.map(of_work))
    }

    /// How fast all ranks train together: samples per second of a simulated step, [`Row::steps_s`] of a measured one.
    pub fn throughput(&self) -> Estimate {
        if self.is_simulated() { self.throughput_samples_s } else { self.steps_s(self.is_strong()) }
    }

    /// The steps of all ranks per second, which is the throughput for one sample per rank; with strong scaling all ranks
    /// share a step.
    pub fn steps_s(&self, is_strong: bool) -> Estimate {
        let Some(ranks) = self.ranks.filter(|_| self.time_us.value > Some(0.0)) else {
            return Estimate::default();
        };
        let steps = if is_strong { 1.0 } else { ranks };
        let Estimate { value, interval } = self.time_us.map(|time_us| steps * 1e6 / time_us);
        Estimate { value, interval: interval.map(|(low, high)| (high, low)) }
    }
}

/// The assumed parameters of a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Assumed {
    /// Latency of a message in microseconds.
    pub alpha_us: f64,
    /// Time of one of many messages at rank 0 in microseconds.
    pub message_us: Option<f64>,
    /// Bandwidth of a rank, in 10^9 bytes per second.
    pub bandwidth_gb_s: f64,
}

/// A value and its confidence interval, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Estimate {
    pub value: Option<f64>,
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// The interval, or the value as both ends if there is none.
    pub fn span(&self) -> Option<(f64, f64)> {
        self.interval.or(self.value.map(|value| (value, value)))
    }

    /// The ends of the span.
    pub fn ends(self) -> impl Iterator<Item = f64> {
        self.span().into_iter().flat_map(|(low, high)| [low, high])
    }

    /// The estimate of a function of the quantity.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Estimate {
        Estimate {
            value: self.value.map(&of),
            interval: self.interval.map(|(low, high)| (of(low), of(high))),
        }
    }
}

fn read_table(path: &Path, mut table: impl Read, rows: &mut Rows) -> Result<(), PlotError> {
    let malformed = |line: u64| {
        move |source: csv::Error| {
            let line = source.position().map_or(line, csv::Position::line);
            PlotError::Malformed { file: path.to_path_buf(), line, source }
        }
    };
    let mut text = Vec::new();
    table
        .read_to_end(&mut text)
        .map_err(|source| PlotError::Open { file: path.to_path_buf(), source })?;
    if let Some(line) = cut(&mut text) {
        rows.left_out.push(format!(
            "{}:{line}: the last line is cut, as when a run is killed; it is left out",
            path.display()
        ));
    }
    let mut reader = csv::Reader::from_reader(text.as_slice());
    let header = reader.headers().map_err(malformed(1))?.clone();
    let columns: HashMap<&str, usize> =
        header.iter().enumerate().map(|(index, name)| (name, index)).collect();
    let is_samples =
        ["case", "order", "step", "time_us"].iter().all(|name| columns.contains_key(name));
    for (count, record) in reader.records().enumerate() {
        let record = record.map_err(malformed(count as u64 + 2))?;
        let fields = Fields { path, columns: &columns, record: &record };
        known_schema(&fields)?;
        if columns.contains_key("published") {
            rows.published.push(Published::of(&fields)?);
        } else if columns.contains_key("predicted_us") {
            rows.predictions.push(Prediction::of(&fields)?);
        } else if columns.contains_key("horovod_ms") {
            rows.compared.push(Compared::of(&fields)?);
        } else if columns.contains_key("kernel") {
            rows.kernels.push(Kernel::of(&fields)?);
        } else if columns.contains_key("times_us") {
            rows.rank_times.push(RankTimes::of(&fields)?);
        } else if is_samples {
            rows.samples.push(Sample::of(&fields)?);
        } else {
            rows.rows.push(Row { file: rows.files.len(), ..row(&fields)? });
        }
    }
    rows.files.push(path.to_path_buf());
    Ok(())
}

/// Refuses a record of a version that is not known.
fn known_schema(fields: &Fields) -> Result<(), PlotError> {
    let Some(found) = fields.columns.get("schema").and_then(|&index| fields.record.get(index))
    else {
        return Ok(());
    };
    let is_known = |schema: u32| (OLDEST_SCHEMA..=SCHEMA).contains(&schema);
    if found.parse().is_ok_and(is_known) {
        return Ok(());
    }
    let line = fields.record.position().map_or(0, csv::Position::line);
    Err(PlotError::Schema { file: fields.path.to_path_buf(), line, found: found.into() })
}

/// Removes a last line without an end that has fewer fields than the header. Returns its number, counted from 1.
fn cut(text: &mut Vec<u8>) -> Option<usize> {
    let begin = text.iter().rposition(|byte| *byte == b'\n')? + 1;
    let fields = |line: &[u8]| line.iter().filter(|byte| **byte == b',').count();
    let header = text.split(|byte| *byte == b'\n').next()?;
    let is_cut = begin < text.len() && fields(&text[begin..]) < fields(header);
    let line = text[..begin].iter().filter(|byte| **byte == b'\n').count() + 1;
    is_cut.then(|| {
        text.truncate(begin);
        line
    })
}

/// The assumed network of a row. Rows of older versions have no time per message.
fn assumed(fields: &Fields) -> Result<Option<Assumed>, PlotError> {
    let alpha_us = fields.number("network_alpha_us")?;
    let message_us = fields.number("network_message_us")?;
    let bandwidth_gb_s = fields.number("network_bandwidth_gb_s")?;
    let both = alpha_us.zip(bandwidth_gb_s);
    Ok(both.map(|(alpha_us, bandwidth_gb_s)| Assumed { alpha_us, message_us, bandwidth_gb_s }))
}

fn row(fields: &Fields) -> Result<Row, PlotError> {
    let mut parts_us = [None; PARTS.len()];
    for (part, column) in parts_us.iter_mut().zip(PARTS) {
        *part = fields.number(column)?;
    }
    Ok(Row {
        file: 0,
        kind: fields.one_of("kind", &["step", "allreduce", "message", "control"], KINDS)?,
        case: fields.text("case")?,
        status: fields.one_of("status", &["ok", "wrong", "failed", "unsupported"], STATUSES)?,
        source: fields.one_of("source", &["measured", "simulated"], SOURCES)?,
        emulated: fields.truth("emulated")?,
        oversubscribed: fields.truth("oversubscribed")?,
        pinned: fields.truth("pinned")?,
        host: fields.text("host")?,
        commit: fields.text("commit")?,
        started: fields.text("started")?,
        workload: fields.text("workload")?,
        transport: fields.text("transport")?,
        control_plane: fields.text("control_plane")?,
        algorithm: fields.text("algorithm")?,
        groups: fields.text("groups")?,
        sync: fields.text("sync")?,
        nodes: fields.number("nodes")?,
        local_size: fields.number("local_size")?,
        ranks: fields.number("ranks")?,
        dtype: fields.text("dtype")?,
        op: fields.text("op")?,
        in_place: fields.truth("in_place")?,
        size_bytes: fields.number("size_bytes")?,
        fusion_threshold_bytes: fields.number("fusion_threshold_bytes")?,
        cycle_time_ms: fields.number("cycle_time_ms")?,
        cache_capacity: fields.number("cache_capacity")?,
        segment_bytes: fields.number("segment_bytes")?,
        packing_bytes: fields.number("packing_bytes")?,
        forward_ms: fields.number("forward_ms")?,
        backward_ms: fields.number("backward_ms")?,
        optimizer_ms: fields.number("optimizer_ms")?,
        samples: fields.number("samples")?,
        time_us: fields.estimate("time_us_p50", "time_us_p50_low", "time_us_p50_high")?,
        over_best: fields.number("over_best")?,
        over_best_low: fields.number("over_best_low")?,
        bound_us: fields.number("bound_us")?,
        data_us: fields.number("data_us_p50")?,
        packing_us: fields.number("packing_us_p50")?,
        reduction_us: fields.number("reduction_us_p50")?,
        compression_us: fields.number("compression_us_p50")?,
        wait_us: fields.number("wait_us_p50")?,
        cycle_wait_us: fields.number("cycle_wait_us_p50")?,
        until_cycle_us: fields.number("until_cycle_us_p50")?,
        negotiation_us: fields.estimate(
            "negotiation_us_p50",
            "negotiation_us_p50_low",
            "negotiation_us_p50_high",
        )?,
        messages: fields.estimate("messages_p50", "messages_p50_low", "messages_p50_high")?,
        busbw_gb_s: fields.estimate("busbw_gb_s", "busbw_gb_s_low", "busbw_gb_s_high")?,
        tensors: fields.number("tensors")?,
        ready_order: fields.text("ready_order")?,
        miss_share: fields.number("miss_share")?,
        invalid_share: fields.number("invalid_share")?,
        rank0_us: fields.estimate("rank0_us_p50", "rank0_us_p50_low", "rank0_us_p50_high")?,
        network_us: fields.number("network_us_p50")?,
        network_assumed: assumed(fields)?,
        machine: fields.text("machine")?,
        policy: fields.text("policy")?,
        engine: fields.text("engine")?,
        driven: fields.text("driven")?,
        batch: fields.number("batch")?,
        seeds: fields.number("seeds")?,
        stop_reason: fields.text("stop_reason")?,
        interval_over: fields.text("interval_over")?,
        throughput_samples_s: fields.estimate(
            "throughput_samples_s_p50",
            "throughput_samples_s_p50_low",
            "throughput_samples_s_p50_high",
        )?,
        efficiency: fields.estimate(
            "efficiency_p50",
            "efficiency_p50_low",
            "efficiency_p50_high",
        )?,
        efficiency_base_ranks: fields.number("efficiency_base_ranks")?,
        parts_us,
    })
}

const KINDS: &str = "step, allreduce, message or control";
const STATUSES: &str = "ok, wrong, failed or unsupported";
const SOURCES: &str = "measured or simulated";

#[cfg(test)]
impl Rows {
    /// Rows from the text of a CSV file.
    pub(crate) fn of(table: &str) -> Rows {
        Rows::of_all(&[table])
    }

    /// Rows from the texts of several CSV files, each of a folder of its own.
    pub(crate) fn of_all(tables: &[&str]) -> Rows {
        Rows::of_files(tables, |index| format!("{index}/rows.csv"))
    }

    /// Rows from the texts of the CSV files of one run.
    pub(crate) fn of_run(tables: &[&str]) -> Rows {
        Rows::of_files(tables, |index| format!("run/{index}.csv"))
    }

    fn of_files(tables: &[&str], path: fn(usize) -> String) -> Rows {
        let mut rows = Rows::default();
        for (index, table) in tables.iter().enumerate() {
            let read = read_table(Path::new(&path(index)), table.as_bytes(), &mut rows);
            read.expect("the table is whole");
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn columns_are_found_by_name_and_further_ones_ignored() {
        let row = synthetic::step("ring", "bitvector", 64.0, 5.0).with("surplus", "1");
        let rows = Rows::of(&synthetic::table(&[row.with("time_us_p50", "1500")]));
        let row = &rows.rows[0];
        assert_eq!(row.algorithm, "ring");
        assert_eq!(row.fusion_threshold_bytes, Some(64.0 * 1048576.0));
        assert_eq!(row.time_us.value, Some(1500.0));
    }

    #[test]
    fn rows_of_other_schemas_are_refused_and_older_ones_are_read() {
        let row = synthetic::step("ring", "bitvector", 64.0, 5.0);
        let of = |schema: &str| {
            let table = synthetic::table(&[row.with("schema", schema)]);
            Rows::default().add_table(Path::new("r/rows.csv"), table.as_bytes())
        };
        assert!(of("1").is_ok() && of(&SCHEMA.to_string()).is_ok());
        for other in [&(SCHEMA + 1).to_string(), "0", "x", ""] {
            let why = of(other).unwrap_err().to_string();
            assert_eq!(
                why,
                format!(
                    "r/rows.csv:2: schema {other}, this kolo draws 1 to {SCHEMA}; draw it with the kolo that wrote the file \
                     (provenance.json names its commit)"
                )
            );
        }
    }

    #[test]
    fn an_empty_field_is_unknown_and_half_an_interval_is_none() {
        let row = synthetic::step("ring", "bitvector", 64.0, 5.0);
        let rows = Rows::of(&synthetic::table(&[row
            .with("samples", "")
            .with("emulated", "")
            .with("time_us_p50_high", "")]));
        let row = &rows.rows[0];
        assert_eq!((row.samples, row.emulated), (None, None));
        assert!(row.time_us.value.is_some());
        assert_eq!(row.time_us.interval, None);
    }

    #[test]
    fn columns_of_simulations_may_be_missing() {
        let rows = Rows::of(&synthetic::table(&[synthetic::step("ring", "bitvector", 64.0, 5.0)]));
        assert_eq!((rows.rows[0].machine.as_str(), rows.rows[0].parts_us), ("", [None; 8]));
        let rows = Rows::of(&synthetic::table(&[synthetic::policy("vgg16", "ddp", 96)]));
        assert_eq!(rows.rows[0].machine, "summit");
        let known = rows.rows[0].parts_us.map(|part| part.expect("it is known"));
        let time_us = rows.rows[0].time_us.value.expect("it is known");
        assert!((known.iter().sum::<f64>() - time_us).abs() < 0.1);
    }
}
