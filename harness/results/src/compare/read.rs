//! Reads a run: its rows, its samples, and where it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Difference, Times};
use crate::logs::{Log, LogError};
use crate::provenance::PROVENANCE;
use crate::statistics::median;

/// What a comparison needs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Where it is.
    pub path: PathBuf,
    /// Times of cases that are right, by kind and name.
    pub cases: BTreeMap<String, Times>,
    /// Workloads of its rows; the empty name for allreduces alone.
    pub workloads: BTreeSet<String>,
    /// Cases without a time: how many.
    pub left_out: usize,
    /// Its nodes are emulated, or ranks share cores.
    pub is_doubtful: bool,
    /// Its last launch, from the provenance beside the rows.
    pub launch: Option<Value>,
}

/// A run that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file of rows or samples.
    #[error("{path}: {why}")]
    Rows {
        /// The file.
        path: String,
        /// Why not, and what is expected.
        why: String,
    },
    /// A log of another program.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The columns of `rows.csv` that count.
#[derive(Deserialize)]
struct Line {
    kind: String,
    case: String,
    status: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    workload: String,
    emulated: Option<bool>,
    oversubscribed: Option<bool>,
    time_us_p50: Option<f64>,
    time_us_p50_low: Option<f64>,
    time_us_p50_high: Option<f64>,
}

/// Those of `samples.csv`.
#[derive(Deserialize)]
struct Sample {
    case: String,
    block: usize,
    time_us: f64,
}

/// Where a run's launch says what may make it faster or slower.
const FACTS: [(&str, &str); 10] = [
    ("program", "/interleaved/program"),
    ("with", "/interleaved/environment"),
    ("commit", "/commit"),
    ("version", "/version"),
    ("build", "/build"),
    ("host", "/machine/host"),
    ("processor", "/machine/cpu"),
    ("cores", "/machine/cores"),
    ("kernel", "/machine/kernel"),
    ("frequency governor", "/machine/frequency_governor"),
];

/// Variables that differ from job to job: Slurm's, and those that Open MPI's launcher sets.
const OF_JOBS: [&str; 3] = ["SLURM_", "OMPI_MCA_ess_", "OMPI_MCA_orte_"];

impl Run {
    /// Reads a folder of results, a CSV file of rows, or a log of another program.
    ///
    /// # Errors
    /// When rows cannot be read, or have no times.
    pub fn read(path: &Path) -> Result<Run, ReadError> {
        let is_folder = path.is_dir();
        if !is_folder && let Some(log) = Log::find(path)? {
            return Run::of_log(&log);
        }
        let rows = if is_folder { path.join("rows.csv") } else { path.to_path_buf() };
        let lines: Vec<Line> = csv(&rows)?;
        let mut run = Run { path: path.into(), ..Run::default() };
        for line in lines {
            let right = line.status == "ok" && line.source != "simulated";
            let Some(median_us) = line.time_us_p50.filter(|&time_us| right && time_us > 0.0) else {
                run.left_out += 1;
                continue;
            };
            let interval_us = line.time_us_p50_low.zip(line.time_us_p50_high);
            let times = Times { median_us, interval_us, blocks_us: Vec::new() };
            run.is_doubtful |= line.emulated == Some(true) || line.oversubscribed == Some(true);
            run.workloads.insert(line.workload);
            run.cases.insert(format!("{} {}", line.kind, line.case), times);
        }
        if run.cases.is_empty() {
            let why = "no row is measured, right and has time_us_p50; expected results of kolo sweep, tune or bench";
            return Err(ReadError::Rows { path: rows.display().to_string(), why: why.into() });
        }
        let samples = path.join("samples.csv");
        if is_folder && samples.exists() {
            run.add_samples(csv(&samples)?);
        }
        let provenance =
            if is_folder { path.join(PROVENANCE) } else { path.with_extension("provenance.json") };
        run.launch = launch(&provenance);
        Ok(run)
    }

    /// The allreduces of a log, or the scores of an autotuner as times for a million bytes. A case that occurs several
    /// times has as many blocks.
    fn of_log(log: &Log) -> Result<Run, ReadError> {
        let mut run = Run { path: log.path.clone(), ..Run::default() };
        let mut times_us: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for row in log.rows(None) {
            match row.outcome.right().and_then(|result| result.times.as_ref()) {
                Some(times) => {
                    times_us
                        .entry(format!("allreduce {}", row.key.case))
                        .or_default()
                        .push(times.time_us_p50);
                }
                None => run.left_out += 1,
            }
            run.is_doubtful |= row.run.emulated || row.run.oversubscribed;
        }
        for trial in &log.trials {
            let case = format!("autotune, a million bytes with {}", trial.setting());
            times_us.entry(case).or_default().push(trial.us_per_mb());
        }
        if times_us.is_empty() {
            let path = log.path.display().to_string();
            let why = "the log has no allreduce; expected one of all_reduce_perf, osu_allreduce or Horovod's autotuner";
            return Err(ReadError::Rows { path, why: why.into() });
        }
        run.workloads.insert(String::new());
        let times = |(case, blocks_us): (String, Vec<f64>)| {
            let median_us = median(blocks_us.clone()).unwrap_or_default();
            (case, Times { median_us, interval_us: None, blocks_us })
        };
        run.cases = times_us.into_iter().map(times).collect();
        Ok(run)
    }

    fn add_samples(&mut self, samples: Vec<Sample>) {
        let mut blocks: BTreeMap<String, BTreeMap<usize, Vec<f64>>> = BTreeMap::new();
        for Sample { case, block, time_us } in samples {
            blocks
                .entry(format!("step {case}"))
                .or_default()
                .entry(block)
                .or_default()
                .push(time_us);
        }
        for (case, times) in &mut self.cases {
            if let Some(blocks) = blocks.get(case) {
                times.blocks_us = Times::of_blocks(blocks);
            }
        }
    }

    /// The runs took turns, block by block, as their provenance says.
    pub fn took_turns_with(&self, other: &Run) -> bool {
        let session = |run: &Run| {
            let session = run.launch.as_ref()?.pointer("/interleaved/session")?.as_str()?;
            Some(session.to_string())
        };
        session(self).is_some_and(|own| Some(own) == session(other))
    }

    /// Facts in which the runs' launches differ; those that one of them does not have are left out.
    pub fn differences(&self, other: &Run) -> Vec<Difference> {
        let Some((first, second)) = self.launch.as_ref().zip(other.launch.as_ref()) else {
            return Vec::new();
        };
        let difference = |(what, pointer): (&str, &str)| {
            let (first, second) = (first.pointer(pointer)?, second.pointer(pointer)?);
            let (first, second) = (in_words(first), in_words(second));
            (first != second).then(|| Difference { what: what.into(), first, second })
        };
        let library = |launch: &Value| launch.pointer("/nodes/0/library").map(in_words);
        let libraries =
            library(first).zip(library(second)).filter(|(first, second)| first != second);
        let libraries = libraries.map(|(first, second)| Difference {
            what: "MPI library".into(),
            first,
            second,
        });
        let facts = FACTS.into_iter().filter_map(difference).chain(libraries);
        facts.chain(environment(first, second)).collect()
    }
}

/// Variables of the environment in which two launches differ, but for those of the job.
fn environment(first: &Value, second: &Value) -> Vec<Difference> {
    let variables = |launch: &Value| -> BTreeMap<String, String> {
        let pairs = launch.pointer("/environment").cloned().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_json::from_value(pairs).unwrap_or_default();
        let is_of_job = |name: &str| OF_JOBS.iter().any(|prefix| name.starts_with(prefix));
        pairs.into_iter().filter(|(name, _)| !is_of_job(name)).collect()
    };
    let (first, second) = (variables(first), variables(second));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |variables: &BTreeMap<String, String>, name: &String| {
        variables.get(name).cloned().unwrap_or("not set".into())
    };
    let difference = |name: &String| {
        let (first, second) = (value(&first, name), value(&second, name));
        (first != second).then(|| Difference { what: name.clone(), first, second })
    };
    names.into_iter().filter_map(difference).collect()
}

fn in_words(value: &Value) -> String {
    match value.as_str() {
        Some("") => "none".into(),
        Some(text) => text.into(),
        None => value.to_string(),
    }
}

/// The last launch in a file of provenance; of rows of `kolo bench` it is the whole file.
fn launch(path: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(path).ok()?;
    let whole: Value = serde_json::from_str(&text).ok()?;
    match whole.get("launches") {
        Some(launches) => launches.as_array()?.last().cloned(),
        None => Some(whole),
    }
}

fn csv<Record: DeserializeOwned>(path: &Path) -> Result<Vec<Record>, ReadError> {
    let refuse = |error: csv::Error| ReadError::Rows {
        path: path.display().to_string(),
        why: format!("{error}; expected a folder of results, or a CSV file of rows"),
    };
    csv::Reader::from_path(path)
        .map_err(refuse)?
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(refuse)
}
