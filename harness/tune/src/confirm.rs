//! Checks a promised gain on the cluster.
//!
//! [`script`] writes a Python program that compares settings where Horovod is installed; [`read()`] parses its
//! output, and [`verdict`] compares it with the promise.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use algorithms::control::{ReduceOp, Reduction, TensorId};
use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use super::answer::{LEAST_ROUNDS, Ratio};
use workloads::framework::{Compression, Framework};
use workloads::replay::StepTimes;
use workloads::workload::Workload;

/// The largest half-width of an interval relative to its ratio; a wider one is inconclusive.
const TOO_WIDE: f64 = 0.15;

/// The program without its plan.
const SCRIPT: &str = include_str!("confirm.py");

/// Begins the line of a block's report, which is JSON.
pub const REPORT: &str = "KOLO-REPORT ";

/// The place of the plan.
const PLAN: &str = "# PLAN\n";

/// A setting that the script measures.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Its name in the rows.
    pub label: String,
    /// Horovod's environment variables.
    pub variables: Vec<(&'static str, String)>,
    /// What Horovod's optimizer is asked for.
    pub framework: Framework,
    /// The gradients of each group, by their positions in the workload; empty without groups.
    pub groups: Vec<Vec<TensorId>>,
}

impl Setting {
    /// What differs from the optimizer's defaults, under the script's names; `position` gives a gradient's place in
    /// the script.
    fn options(&self, position: impl Fn(TensorId) -> Option<usize>) -> serde_json::Value {
        let Setting { framework, groups, .. } = self;
        let mut options = serde_json::Map::new();
        if framework.backward_passes_per_step > 1 {
            options.insert("passes".into(), json!(framework.backward_passes_per_step));
        }
        if framework.compression != Compression::None {
            options.insert("compression".into(), json!(framework.compression.name()));
        }
        let Reduction { prescale, postscale, .. } = framework.reduction(ReduceOp::Average);
        for (key, factor) in [("prescale_factor", prescale), ("postscale_factor", postscale)] {
            if factor != 1.0 {
                options.insert(key.into(), json!(factor));
            }
        }
        if !groups.is_empty() {
            let of_group =
                |group: &Vec<TensorId>| group.iter().filter_map(|&id| position(id)).collect();
            let groups: Vec<Vec<usize>> = groups.iter().map(of_group).collect();
            options.insert("groups".into(), json!(groups));
        }
        serde_json::Value::Object(options)
    }
}

/// A Python program that measures settings against each other by replaying the workload's steps. JSON of texts,
/// numbers, lists and maps is Python, too.
pub fn script(
    settings: &[Setting],
    workload: &Workload,
    times: StepTimes,
    blocks: usize,
) -> String {
    let is_ready = |index: &&usize| workload.gradients[**index].ready_fraction.is_finite();
    let ready: Vec<usize> = workload.ready_order.iter().filter(is_ready).copied().collect();
    let position = |id: TensorId| ready.iter().position(|&index| index == id);
    let settings: Vec<_> = settings
        .iter()
        .map(|setting| {
            let variables: serde_json::Map<_, _> = setting
                .variables
                .iter()
                .map(|(name, value)| (name.to_string(), json!(value)))
                .collect();
            json!([setting.label, variables, setting.options(position)])
        })
        .collect();
    let gradients: Vec<_> = ready
        .iter()
        .map(|&index| &workload.gradients[index])
        .map(|gradient| json!([gradient.name, gradient.shape, gradient.ready_fraction]))
        .collect();
    let mut plan = format!("WORKLOAD = {}\nBLOCKS = {blocks}\n", json!(workload.name));
    for (name, time) in
        [("FORWARD", times.forward), ("BACKWARD", times.backward), ("OPTIMIZER", times.optimizer)]
    {
        writeln!(plan, "{name}_MS = {}", json!(milliseconds(time))).expect("texts grow");
    }
    let lists = [
        ("SETTINGS", "label, environment variables, options of Horovod's optimizer", settings),
        ("GRADIENTS", "name, dimensions, share of the backward pass when it is ready", gradients),
    ];
    for (name, what, entries) in lists {
        writeln!(plan, "{name} = [  # {what}").expect("texts grow");
        entries.iter().for_each(|entry| writeln!(plan, "    {entry},").expect("texts grow"));
        plan.push_str("]\n");
    }
    SCRIPT.replacen(PLAN, &plan, 1)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// A row: one setting in one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Rows of the same block were measured one after another.
    pub block: usize,
    /// The setting's label.
    pub setting: String,
    /// Median over steps of the slowest rank's time, in ms.
    pub step_ms: f64,
    /// How many ranks there were.
    pub ranks: usize,
}

/// Why measurements cannot be read. The text begins with file and line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// The file is not there or cannot be opened.
    #[error("{}: {cause}; expected what confirm.py has printed", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// A line is malformed.
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The value found, and the value expected.
        #[source]
        problem: LineError,
    },
}

/// An error in a line of confirm.py's output.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is no CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// It is longer or shorter than the header.
    #[error("{found} fields, expected {expected} as in the header")]
    Fields {
        /// Fields of the line.
        found: u64,
        /// Fields of the header.
        expected: u64,
    },
    /// A column is missing.
    #[error("column \"{column}\" is missing; found \"{found}\"")]
    Column {
        /// The column.
        column: &'static str,
        /// The header.
        found: String,
    },
    /// A field cannot be read.
    #[error("{column} is \"{found}\", expected {expected}")]
    Field {
        /// Its column.
        column: &'static str,
        /// The field.
        found: String,
        /// The value expected.
        expected: &'static str,
    },
    /// A block has a setting twice.
    #[error(
        "block {block} has \"{setting}\" twice, first in line {first}; keep the rows of one run"
    )]
    Twice {
        /// The block.
        block: usize,
        /// The setting.
        setting: String,
        /// The line of the first.
        first: u64,
    },
    /// Rows are of different world sizes.
    #[error("ranks is {found}, expected {expected} as in line {first}; keep the rows of one run")]
    Ranks {
        /// Ranks of the row.
        found: usize,
        /// Ranks of the first row.
        expected: usize,
        /// The line of the first row.
        first: u64,
    },
    /// There are only comments.
    #[error("no rows; the comments in the file say why blocks have no result")]
    NoRows,
}

/// Columns that are read.
const COLUMNS: [&str; 4] = ["block", "setting", "step_ms", "ranks"];

/// Parses the output of [`script`]'s program.
///
/// # Errors
/// When the file is missing, has no rows, a row is malformed, or a setting occurs twice in a block.
pub fn read(path: &Path) -> Result<Vec<Measured>, ConfirmError> {
    let unreadable = |cause| ConfirmError::Unreadable { path: path.into(), cause };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    // Comments are removed first, since the reader does not count their lines.
    let is_row = |line: &str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<(u64, &str)> =
        (1..).zip(text.lines()).filter(|(_, line)| is_row(line)).collect();
    let rows_only = lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
    let line_of = |position: Option<&csv::Position>| {
        let index = position.map_or(0, |position| position.line() as usize - 1);
        lines.get(index).map_or(1, |&(line, _)| line)
    };
    let malformed = |line, problem| ConfirmError::Malformed { path: path.into(), line, problem };
    let refused = |error: csv::Error| {
        let line = line_of(error.position());
        let problem = match *error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len: expected, len: found, .. } => {
                LineError::Fields { found, expected }
            }
            _ => error.into(),
        };
        malformed(line, problem)
    };
    let mut reader = csv::Reader::from_reader(rows_only.as_bytes());
    let header = reader.headers().map_err(refused)?.clone();
    let first_line = line_of(None);
    let mut columns = [0; COLUMNS.len()];
    for (column, name) in columns.iter_mut().zip(COLUMNS) {
        *column = header.iter().position(|field| field == name).ok_or_else(|| {
            let found = header.iter().collect::<Vec<_>>().join(",");
            malformed(first_line, LineError::Column { column: name, found })
        })?;
    }
    let mut rows: Vec<(u64, Measured)> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(refused)?;
        let line = line_of(record.position());
        let row = measured(columns.map(|column| &record[column]))
            .and_then(|row| among(&rows, &row).map(|()| row))
            .map_err(|problem| malformed(line, problem))?;
        rows.push((line, row));
    }
    if rows.is_empty() {
        Err(malformed(first_line, LineError::NoRows))
    } else {
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

fn measured([block, setting, step_ms, ranks]: [&str; 4]) -> Result<Measured, LineError> {
    let wrong =
        |column, found: &str, expected| LineError::Field { column, found: found.into(), expected };
    let whole =
        |column, text: &str| text.parse().map_err(|_| wrong(column, text, "a whole number"));
    let time: Option<f64> = step_ms.parse().ok();
    let time = time.filter(|time| time.is_finite() && *time > 0.0);
    Ok(Measured {
        block: whole("block", block)?,
        setting: setting.into(),
        step_ms: time.ok_or_else(|| wrong("step_ms", step_ms, "a time above 0"))?,
        ranks: whole("ranks", ranks)?,
    })
}

/// A row fits to those above it.
fn among(rows: &[(u64, Measured)], row: &Measured) -> Result<(), LineError> {
    let is_same =
        |other: &&(u64, Measured)| other.1.block == row.block && other.1.setting == row.setting;
    if let Some((line, _)) = rows.iter().find(is_same) {
        let setting = row.setting.clone();
        return Err(LineError::Twice { block: row.block, setting, first: *line });
    }
    match rows.first() {
        Some((line, first)) if first.ranks != row.ranks => {
            Err(LineError::Ranks { found: row.ranks, expected: first.ranks, first: *line })
        }
        _ => Ok(()),
    }
}

impl Ratio {
    /// Compares the ratio with a promised interval.
    pub fn against(&self, (low, high): (f64, f64)) -> Finding {
        let is_wide = (self.high / self.low).sqrt() - 1.0 > TOO_WIDE;
        let may_be_none = (self.low..=self.high).contains(&1.0);
        let none_was_promised = (low..=high).contains(&1.0);
        if self.low > high {
            Finding::Faster
        } else if self.high < low {
            if self.high < 1.0 && low > 1.0 { Finding::Contradicts } else { Finding::Slower }
        } else if is_wide || (may_be_none && !none_was_promised) {
            Finding::TooNoisy
        } else {
            Finding::Agrees
        }
    }
}

/// The result of comparing a measurement with the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The intervals meet.
    Agrees,
    /// More is gained than promised.
    Faster,
    /// Less is gained than promised.
    Slower,
    /// A gain was promised, and it is a loss.
    Contradicts,
    /// The measured interval is too wide, or includes both the promised gain and no gain.
    TooNoisy,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Finding::Agrees => "agrees",
            Finding::Faster => "faster than promised",
            Finding::Slower => "slower than promised",
            Finding::Contradicts => "contradicts the promise",
            Finding::TooNoisy => "too noisy to tell; run it with more blocks or on quieter nodes",
        })
    }
}

/// A setting compared with the recommended one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The recommended setting's label.
    pub recommended: String,
    /// The other's.
    pub other: String,
    /// Blocks that have both.
    pub blocks: usize,
    /// Speedup of the recommended setting, if there are enough blocks.
    pub measured: Option<Ratio>,
    /// The same as promised, lowest and highest.
    pub promised: Option<(f64, f64)>,
    /// The finding, if both are present.
    pub finding: Option<Finding>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { recommended, other, blocks, .. } = self;
        let Some(Ratio { ratio, low, high }) = self.measured else {
            return write!(
                f,
                "{recommended} against {other}: {blocks} blocks have both, expected at least \
                 {LEAST_ROUNDS}; run confirm.py with more --blocks"
            );
        };
        write!(
            f,
            "{recommended} is {ratio:.3} times as fast as {other}, 95 % interval {low:.3} to \
             {high:.3}, {blocks} blocks"
        )?;
        match (self.promised, self.finding) {
            (Some((low, high)), Some(finding)) => {
                write!(f, "; promised {low:.3} to {high:.3}: {finding}")
            }
            _ => Ok(()),
        }
    }
}

/// Compares a setting with each of the others, paired by block; `promised` has the promised intervals of the
/// speedup, in [`Ratio`]'s terms.
pub fn verdict(
    rows: &[Measured],
    recommended: &str,
    promised: &[(String, (f64, f64))],
) -> Vec<Comparison> {
    let mut others: Vec<&str> = Vec::new();
    let labels = promised.iter().map(|(label, _)| label).chain(rows.iter().map(|row| &row.setting));
    for label in labels.filter(|label| *label != recommended) {
        if !others.contains(&label.as_str()) {
            others.push(label);
        }
    }
    let in_block = |label: &str, block| {
        let row = rows.iter().find(|row| row.setting == label && row.block == block)?;
        Some(row.step_ms)
    };
    let comparison = |other: &str| {
        let ratio = |row: &Measured| Some(in_block(other, row.block)? / row.step_ms);
        let own = rows.iter().filter(|row| row.setting == recommended);
        let ratios: Vec<f64> = own.filter_map(ratio).collect();
        let promised = promised.iter().find(|(label, _)| label == other).map(|&(_, gain)| gain);
        let measured = Ratio::of(&ratios);
        Comparison {
            recommended: recommended.into(),
            other: other.into(),
            blocks: ratios.len(),
            measured,
            promised,
            finding: measured.zip(promised).map(|(measured, promised)| measured.against(promised)),
        }
    };
    others.into_iter().map(comparison).collect()
}
