//! Predictions for this machine, which is calibrated at the same time: in each block, programs of the calibration
//! and the algorithms alternate in random order, and the measurements of a block are compared with the predictions
//! of that block's calibration. Changes of the machine (a virtual one may move its cores apart, so that messages
//! take three times as long) then affect both alike. Predictions are never fitted.

use std::fmt::Write as _;
use std::path::Path;

use algorithms::algorithm::Unsupported;
use algorithms::registry;
use algorithms::segments::pipelined;
use algorithms::simulate::machine::Machine;
use algorithms::simulate::rounds::simulate;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Serialize;

use super::staging::Staging;
use crate::machine_calibration::estimate::{COMBINE_READ, Estimates};
use crate::machine_calibration::runner::Runner;
use crate::machine_calibration::{Calibration, Effort, repeat};
use results::provenance::Machine as Host;
use results::statistics::{Summary, median, quantile};
use simulator::machine_file::MachineFile;
use transports::data_plane::DataPlane;
use transports::programs::choice_for;
use transports::transport::TransportError;

/// Sizes from here on are scored.
pub const SCORED_BYTES: usize = 64 << 10;

/// The goal for each algorithm: the median of errors, either way.
pub const GOAL: f64 = 0.15;

/// Sizes of buffers. Those below [`SCORED_BYTES`] are shown but not scored.
const SIZES: [usize; 9] =
    [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A line of `validation.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// The transport.
    pub transport: String,
    /// Nodes.
    pub nodes: usize,
    /// Ranks.
    pub ranks: usize,
    /// The algorithm.
    pub algorithm: String,
    /// Bytes of the allreduce.
    pub size_bytes: usize,
    /// Blocks that were compared.
    pub blocks: usize,
    /// The median of the blocks' predictions, each by its own calibration.
    pub predicted_us: f64,
    /// The median over blocks of the median, or another quantile, of a block's samples.
    pub measured_us: f64,
    /// Predicted over measured, less 1: the median over blocks, with its 95 % interval, or the full range of few
    /// blocks.
    pub error: f64,
    /// See `error`.
    pub error_low: f64,
    /// See `error`.
    pub error_high: f64,
    /// Whether it is scored: the size is large enough, and every rank has a core.
    pub scored: bool,
    /// Ranks share cores, as in `rows.csv`.
    pub oversubscribed: bool,
}

/// The result of a validation.
pub struct Validation {
    /// By algorithm, then size.
    pub rows: Vec<Row>,
    /// The calibrated machine.
    pub machine: MachineFile,
    /// The measurements of the calibration, as text.
    pub calibrated: Vec<String>,
    /// Algorithms without a schedule here, and why.
    pub left_out: Vec<(String, Unsupported)>,
}

/// One algorithm at one size.
struct Case {
    plane: usize,
    size_bytes: usize,
    samples: Vec<f64>,
    /// Seconds of each block, predicted and measured.
    blocks: Vec<[f64; 2]>,
}

/// Measures and predicts these algorithms, in segments of about `segment_bytes`; 0: whole.
///
/// # Errors
/// When a rank does not answer.
///
/// # Panics
/// When an algorithm is unknown.
pub fn validate(
    runner: &mut dyn Runner,
    names: &[String],
    most_bytes: usize,
    segment_bytes: usize,
    effort: &Effort,
) -> Result<Validation, TransportError> {
    let topology = runner.topology().clone();
    let (mut planes, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        let algorithm = registry::find(name).expect("the name was checked");
        match DataPlane::ours(algorithm, &topology) {
            Ok(plane) => planes.push((name.clone(), plane)),
            Err(why) => left_out.push((name.clone(), why)),
        }
    }
    let sizes = || SIZES.into_iter().filter(|&bytes| bytes <= most_bytes);
    let case =
        |plane, size_bytes| Case { plane, size_bytes, samples: Vec::new(), blocks: Vec::new() };
    let mut cases: Vec<Case> =
        (0..planes.len()).flat_map(|plane| sizes().map(move |size| case(plane, size))).collect();
    let mut calibration = Calibration::new(runner, effort);
    let points = calibration.points();
    let mut order: Vec<usize> = (0..points + cases.len()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut blocks, mut spent_s) = (0, 0.0);
    while effort.goes_on(blocks, spent_s) {
        let marks = calibration.marks();
        let counts: Vec<usize> = cases.iter().map(|case| case.samples.len()).collect();
        order.shuffle(&mut random);
        for &index in &order {
            let Some(case) = index.checked_sub(points).map(|at| &mut cases[at]) else {
                spent_s += calibration.measure(index, runner, effort)?;
                continue;
            };
            let plane = &planes[case.plane].1;
            let times =
                repeat(runner, plane, (case.size_bytes, segment_bytes), &case.samples, effort)?;
            spent_s += times.iter().sum::<f64>();
            case.samples.extend(times);
        }
        blocks += 1;
        // The first block only determines the numbers of repetitions.
        if blocks > 1 {
            let values = calibration.values_since(&marks);
            let file = calibration.machine_file("block", "", &values);
            let (machine, staged) = (file.machine(), staged(&file, &values));
            for (case, count) in cases.iter_mut().zip(counts) {
                let plane = &planes[case.plane].1;
                let predicted_s =
                    predicted_s(&machine, staged.as_ref(), plane, (case.size_bytes, segment_bytes));
                let samples = case.samples[count..].to_vec();
                let measured_s = quantile(samples, effort.quantile).unwrap_or(0.0);
                case.blocks.push([predicted_s, measured_s]);
            }
        }
    }
    let host = Host::this().host;
    let machine = calibration.machine_file("validated", &host, &calibration.estimates());
    let rows = cases.iter().map(|case| row(runner, &planes[case.plane].0, case)).collect();
    Ok(Validation { rows, machine, calibrated: calibration.measured(), left_out })
}

/// The machine for chunks that another rank has just read, if their rates of combining are known. Staging turns
/// one buffer into two.
fn staged(file: &MachineFile, estimates: &Estimates) -> Option<Machine> {
    let mut machine = file.machine();
    for (bytes, reduction) in &mut machine.reduction_by_buffer {
        let combine_read = estimates.get(&format!("{COMBINE_READ}{bytes}"))?;
        reduction.sending.gamma_s = 1e-9 / combine_read.value;
        *bytes /= 2.0;
    }
    (!machine.reduction_by_buffer.is_empty()).then_some(machine)
}

/// On threads, which have a machine of their own, exchanges are staged.
fn predicted_s(
    machine: &Machine,
    staged: Option<&Machine>,
    plane: &DataPlane,
    (size_bytes, segment_bytes): (usize, usize),
) -> f64 {
    let choices = plane.choices().expect("an algorithm of ours");
    let schedule = &*choice_for(choices, size_bytes).schedule;
    let schedule = &pipelined(schedule, size_bytes, segment_bytes, staged.is_some());
    let staging = Staging(schedule);
    let outcome = match staged {
        Some(staged) if staging.stages() => simulate(&staging, staged, size_bytes as f64, &[]),
        _ => simulate(schedule, machine, size_bytes as f64, &[]),
    };
    outcome.expect("registered schedules are proved to end").end.at_s
}

fn row(runner: &dyn Runner, name: &str, case: &Case) -> Row {
    let summary = |of: fn(&[f64; 2]) -> f64| {
        let values: Vec<f64> = case.blocks.iter().map(of).collect();
        Summary::of(&values).expect("a case has blocks")
    };
    let error = summary(|[predicted_s, measured_s]| predicted_s / measured_s - 1.0);
    let (error_low, error_high) = error.p50_interval.unwrap_or((error.min, error.max));
    let (topology, oversubscribed) = (runner.topology(), runner.is_oversubscribed());
    Row {
        transport: runner.back_end().name().into(),
        nodes: topology.nodes(),
        ranks: topology.ranks(),
        algorithm: name.into(),
        size_bytes: case.size_bytes,
        blocks: case.blocks.len(),
        predicted_us: summary(|block| block[0]).p50 * 1e6,
        measured_us: summary(|block| block[1]).p50 * 1e6,
        error: error.p50,
        error_low,
        error_high,
        scored: case.size_bytes >= SCORED_BYTES && !oversubscribed,
        oversubscribed,
    }
}

impl Validation {
    /// Algorithms in order, each with the median of its absolute errors from [`SCORED_BYTES`] on; none without
    /// such sizes.
    pub fn errors(&self) -> Vec<(&str, Option<f64>)> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.algorithm.as_str()).collect();
        names.dedup();
        let error = |name: &str| {
            let rows = self.rows.iter().filter(|row| row.algorithm == name);
            let large = rows.filter(|row| row.size_bytes >= SCORED_BYTES);
            median(large.map(|row| row.error.abs()).collect())
        };
        names.into_iter().map(|name| (name, error(name))).collect()
    }

    /// Scored algorithms that miss the goal.
    pub fn missed(&self) -> Vec<&str> {
        let scored = self.rows.iter().any(|row| row.scored);
        let misses = |(_, error): &(&str, Option<f64>)| error.is_some_and(|error| error > GOAL);
        self.errors().into_iter().filter(|of| scored && misses(of)).map(|of| of.0).collect()
    }

    /// Writes the rows, and the machine that was calibrated.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut csv = csv::Writer::from_path(folder.join("validation.csv"))?;
        self.rows.iter().try_for_each(|row| csv.serialize(row))?;
        csv.flush()?;
        let machine =
            crate::machine_calibration::write::text(self.machine.clone(), &self.calibrated);
        std::fs::write(folder.join("machine.toml"), machine)
    }

    /// For readers.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "algorithm                 size B   predicted us    measured us        error  [95 % interval]\n",
        );
        for row in &self.rows {
            let mark = if row.scored { "" } else { "  not scored" };
            let _ = writeln!(
                text,
                "{:<22} {:>9} {:>14.2} {:>14.2}  {:>+8.1} %  [{:+.1}, {:+.1}]{mark}",
                row.algorithm,
                row.size_bytes,
                row.predicted_us,
                row.measured_us,
                100.0 * row.error,
                100.0 * row.error_low,
                100.0 * row.error_high
            );
        }
        let _ = writeln!(text, "\nmedian |error| from 64 KiB on");
        for (name, error) in self.errors() {
            let shown = error.map_or("-".into(), |error| format!("{:.1} %", 100.0 * error));
            let _ = writeln!(text, "{name:<22} {shown:>8}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::toml_file::Checked;

    fn row(algorithm: &str, size_bytes: usize, error: f64, oversubscribed: bool) -> Row {
        Row {
            transport: "threads".into(),
            nodes: 1,
            ranks: 2,
            algorithm: algorithm.into(),
            size_bytes,
            blocks: 9,
            predicted_us: 100.0 * (1.0 + error),
            measured_us: 100.0,
            error,
            error_low: error - 0.1,
            error_high: error + 0.1,
            scored: size_bytes >= SCORED_BYTES && !oversubscribed,
            oversubscribed,
        }
    }

    /// Only large sizes are scored, by absolute error; nothing is scored on too few cores.
    #[test]
    fn the_score_is_the_median_of_large_sizes() {
        for oversubscribed in [false, true] {
            let row = |name, bytes, error| row(name, bytes, error, oversubscribed);
            let rows = vec![
                row("ring", 64, 5.0),
                row("ring", 64 << 10, -0.1),
                row("ring", 1 << 20, 0.12),
                row("ring", 16 << 20, -3.0),
                row("tree", 64, 0.0),
                row("tree", 1 << 20, -0.2),
                row("pat", 64, 0.0),
            ];
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines/summit.toml");
            let machine = MachineFile::read(Path::new(path)).unwrap();
            let (calibrated, left_out) = (Vec::new(), Vec::new());
            let validation = Validation { rows, machine, calibrated, left_out };
            let expected = [("ring", Some(0.12)), ("tree", Some(0.2)), ("pat", None)];
            assert_eq!(validation.errors(), expected);
            assert_eq!(validation.missed(), if oversubscribed { vec![] } else { vec!["tree"] });
        }
    }
}
