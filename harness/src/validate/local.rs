//! Predictions for the machine at hand, calibrated in the same minutes: in each block, programs of the
//! calibration and the algorithms take turns, in an order of chance, so that the machine's moods fall on
//! both alike. What is predicted is never fitted.

use std::fmt::Write as _;
use std::path::Path;

use algorithms::registry;
use algorithms::simulate::rounds::simulate;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::staging::Staging;
use crate::data_plane::DataPlane;
use crate::machine_calibration::estimate::COMBINE_READ;
use crate::machine_calibration::fit::{median, quantile};
use crate::machine_calibration::runner::Runner;
use crate::machine_calibration::{Calibration, Effort, repeat};
use crate::programs::choice_for;
use crate::provenance::Machine as Host;
use crate::simulate::machine_file::MachineFile;
use crate::statistics::interval_ranks;
use crate::transport::TransportError;

/// Sizes from here on are scored.
pub const SCORED_BYTES: usize = 64 << 10;

/// The goal for each algorithm: the median of errors, either way.
pub const GOAL: f64 = 0.15;

/// Of buffers: those below [`SCORED_BYTES`] are only shown.
const SIZES: [usize; 9] =
    [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A line of `validation.csv`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "named in the file")]
pub struct Row {
    pub transport: String,
    pub nodes: usize,
    pub ranks: usize,
    pub algorithm: String,
    pub size_bytes: usize,
    pub predicted_us: f64,
    /// Median, or another quantile; low and high are its 95 % interval, or all there is.
    pub measured_us: f64,
    pub measured_us_low: f64,
    pub measured_us_high: f64,
    /// Predicted / measured - 1.
    pub error: f64,
    /// It counts for the goal: large enough, and every rank has a core.
    pub scored: bool,
    pub oversubscribed: bool,
}

/// What was found.
pub struct Validation {
    /// By algorithm, then size.
    pub rows: Vec<Row>,
    /// What was calibrated.
    pub machine: MachineFile,
    /// By the calibration, in words.
    pub calibrated: Vec<String>,
    /// Algorithms without a schedule here, and why.
    pub left_out: Vec<(String, String)>,
}

/// One algorithm at one size.
struct Case {
    plane: usize,
    size_bytes: usize,
    samples: Vec<f64>,
}

/// Measures and predicts these algorithms.
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
    let case = |plane, size_bytes| Case { plane, size_bytes, samples: Vec::new() };
    let mut cases: Vec<Case> =
        (0..planes.len()).flat_map(|plane| sizes().map(move |size| case(plane, size))).collect();
    let mut calibration = Calibration::new(runner, effort);
    let points = calibration.points();
    let mut order: Vec<usize> = (0..points + cases.len()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut blocks, mut spent_s) = (0, 0.0);
    while effort.goes_on(blocks, spent_s) {
        order.shuffle(&mut random);
        for &index in &order {
            let Some(case) = index.checked_sub(points).map(|at| &mut cases[at]) else {
                spent_s += calibration.measure(index, runner, effort)?;
                continue;
            };
            let plane = &planes[case.plane].1;
            let times = repeat(runner, plane, case.size_bytes, &case.samples, effort)?;
            spent_s += times.iter().sum::<f64>();
            case.samples.extend(times);
        }
        blocks += 1;
    }
    let machine = calibration.machine_file("validated", &Host::this().host);
    let combine_read = calibration.estimates().get(COMBINE_READ).map(|found| found.value);
    let row = |case: &Case| {
        let (name, plane) = &planes[case.plane];
        let predicted_s = predicted_s(&machine, combine_read, plane, case.size_bytes);
        row(runner, name, predicted_s, case, effort.quantile)
    };
    let rows = cases.iter().map(row).collect();
    Ok(Validation { rows, machine, calibrated: calibration.measured(), left_out })
}

/// On threads, for which there is a rate of combining what was read, exchanges are staged, and combined
/// into chunks that the other has just read.
fn predicted_s(
    file: &MachineFile,
    combine_read_gb_s: Option<f64>,
    plane: &DataPlane,
    size_bytes: usize,
) -> f64 {
    let choices = plane.choices().expect("an algorithm of ours");
    let schedule = &*choice_for(choices, size_bytes).schedule;
    let (staging, mut machine) = (Staging(schedule), file.machine());
    let outcome = match combine_read_gb_s {
        Some(gb_s) if staging.stages() => {
            machine.gamma_s = 1e-9 / gb_s;
            simulate(&staging, &machine, size_bytes as f64, &[])
        }
        _ => simulate(schedule, &machine, size_bytes as f64, &[]),
    };
    outcome.expect("registered schedules are proved to end").end.at_s
}

fn row(runner: &dyn Runner, name: &str, predicted_s: f64, case: &Case, share: f64) -> Row {
    let mut sorted = case.samples.clone();
    let measured_s = quantile(&mut sorted, share);
    sorted.sort_by(f64::total_cmp);
    let ranks = interval_ranks(sorted.len(), share).unwrap_or((1, sorted.len()));
    let (low_s, high_s) = (sorted[ranks.0 - 1], sorted[ranks.1 - 1]);
    let (topology, oversubscribed) = (runner.topology(), runner.is_oversubscribed());
    Row {
        transport: runner.transport().into(),
        nodes: topology.nodes(),
        ranks: topology.ranks(),
        algorithm: name.into(),
        size_bytes: case.size_bytes,
        predicted_us: predicted_s * 1e6,
        measured_us: measured_s * 1e6,
        measured_us_low: low_s * 1e6,
        measured_us_high: high_s * 1e6,
        error: predicted_s / measured_s - 1.0,
        scored: case.size_bytes >= SCORED_BYTES && !oversubscribed,
        oversubscribed,
    }
}

impl Validation {
    /// Algorithms in order, each with the median of its errors from [`SCORED_BYTES`] on, either way; none
    /// where nothing is that large.
    pub fn errors(&self) -> Vec<(&str, Option<f64>)> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.algorithm.as_str()).collect();
        names.dedup();
        let error = |name: &str| {
            let rows = self.rows.iter().filter(|row| row.algorithm == name);
            let large = rows.filter(|row| row.size_bytes >= SCORED_BYTES);
            let mut errors: Vec<f64> = large.map(|row| row.error.abs()).collect();
            (!errors.is_empty()).then(|| median(&mut errors))
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
            "algorithm                 size B   predicted us    measured us  [95 % interval]        error\n",
        );
        for row in &self.rows {
            let mark = if row.scored { "" } else { "  not scored" };
            let _ = writeln!(
                text,
                "{:<22} {:>9} {:>14.2} {:>14.2}  [{:.2}, {:.2}]  {:>+6.1} %{mark}",
                row.algorithm,
                row.size_bytes,
                row.predicted_us,
                row.measured_us,
                row.measured_us_low,
                row.measured_us_high,
                100.0 * row.error
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

    fn row(algorithm: &str, size_bytes: usize, error: f64, oversubscribed: bool) -> Row {
        Row {
            transport: "threads".into(),
            nodes: 1,
            ranks: 2,
            algorithm: algorithm.into(),
            size_bytes,
            predicted_us: 100.0 * (1.0 + error),
            measured_us: 100.0,
            measured_us_low: 90.0,
            measured_us_high: 110.0,
            error,
            scored: size_bytes >= SCORED_BYTES && !oversubscribed,
            oversubscribed,
        }
    }

    /// Small sizes do not count, errors count either way, and nobody misses a goal on too few cores.
    #[test]
    fn the_median_of_large_sizes_counts() {
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
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/machines/summit.toml");
            let machine = MachineFile::read(Path::new(path)).unwrap();
            let (calibrated, left_out) = (Vec::new(), Vec::new());
            let validation = Validation { rows, machine, calibrated, left_out };
            let expected = [("ring", Some(0.12)), ("tree", Some(0.2)), ("pat", None)];
            assert_eq!(validation.errors(), expected);
            assert_eq!(validation.missed(), if oversubscribed { vec![] } else { vec!["tree"] });
        }
    }
}
