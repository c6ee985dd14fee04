//! One run: what is in its folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use results::columnar;
use results::conclusion::{CONCLUSION, Conclusion};
use results::provenance::{Launch, PROVENANCE, Provenance};
use results::row::is_readable;
use serde::Deserialize;

use crate::ReportError;
use crate::tables::{FILES, File};

/// A folder of results, or a CSV file of rows with its provenance.
#[derive(Debug)]
pub struct Run {
    /// As the user gave it.
    pub path: PathBuf,
    /// Its tables, in the order of [`FILES`].
    pub files: Vec<File>,
    /// Its launches, the last one last; none without a provenance.
    pub launches: Vec<Launch>,
    /// The configuration in effect, as JSON; empty if it is not known.
    pub config: String,
    /// Fingerprint of its gradients; empty if it is not known.
    pub digest: String,
    /// The text at the end of the run.
    pub summary: Option<String>,
    /// The same in sentences.
    pub conclusion: Option<Conclusion>,
    /// Of a tuner: how long steps took in rounds that do not count, in parts of the others.
    pub disturbed_rounds: Vec<f64>,
    /// Medians of blocks, if the samples are there.
    pub samples: Option<File>,
    /// What the system did besides in each block, if the run recorded it.
    pub conditions: Option<File>,
    /// Files with single steps that figures are drawn from.
    pub steps: Vec<PathBuf>,
    /// Predictions of its cases, which figures show beside what was measured.
    pub predicted: Option<PathBuf>,
    /// Timelines, by name.
    pub timelines: Vec<PathBuf>,
    /// Files that a report uses and that are not there.
    pub missing: Vec<&'static str>,
}

/// The folder of predictions in a folder of results.
pub const PREDICTED: &str = "predicted";

/// The folder of timelines in a folder of results.
pub const TIMELINES: &str = "timelines";

/// The columns of samples that warnings need.
const OF_SAMPLES: [&str; 3] = ["case", "order", "time_us"];

/// The file with the steps of single ranks.
const RANKS: &str = "ranks.csv";

/// The name of the file with samples, unless they are by columns.
const SAMPLES: &str = "samples.csv";

/// The version of a file.
#[derive(Deserialize)]
struct Version {
    schema: Option<u32>,
}

/// What a report needs of `tune.json`.
#[derive(Default, Deserialize)]
struct Tuned {
    #[serde(default)]
    disturbed_rounds: Vec<f64>,
}

/// Where the parts of a run are.
struct Places {
    tables: Vec<PathBuf>,
    provenance: PathBuf,
    folder: Option<PathBuf>,
}

impl Run {
    /// Reads a folder of results, or a CSV file of rows.
    ///
    /// # Errors
    /// When there are no results, or a file cannot be read, or is of another version.
    pub fn read(path: &Path) -> Result<Run, ReportError> {
        let places = Places::of(path)?;
        let files =
            places.tables.iter().map(|table| File::read(table)).collect::<Result<_, _>>()?;
        let (launches, config, digest) = provenance(&places.provenance)?;
        let text = |name: &str| places.in_folder(name).map(|path| read(&path)).transpose();
        let tuned = text("tune.json")?.unwrap_or_default();
        let samples_path = places.samples();
        let samples = samples_path.as_deref();
        let samples = samples.map(|path| File::of_columns(path, Some(&OF_SAMPLES))).transpose()?;
        let conditions =
            places.in_folder("conditions.csv").map(|path| File::read(&path)).transpose()?;
        let conclusion = places.folder.as_deref().map(Conclusion::read).transpose()?.flatten();
        let is_there = |name: &&str| {
            places.in_folder(name).is_some() || (*name == SAMPLES && samples_path.is_some())
        };
        let expected = ["summary.txt", CONCLUSION, SAMPLES];
        let mut missing: Vec<&'static str> = match places.folder {
            Some(_) => expected.into_iter().filter(|name| !is_there(name)).collect(),
            None => Vec::new(),
        };
        if launches.is_empty() {
            missing.push(PROVENANCE);
        }
        Ok(Run {
            path: path.into(),
            files,
            launches,
            config,
            digest,
            summary: text("summary.txt")?,
            conclusion,
            // Another version's answer is none.
            disturbed_rounds: serde_json::from_str::<Tuned>(&tuned)
                .unwrap_or_default()
                .disturbed_rounds,
            samples,
            conditions,
            steps: samples_path.iter().cloned().chain(places.in_folder(RANKS)).collect(),
            predicted: places
                .in_folder(PREDICTED)
                .map(|it| it.join("rows.csv"))
                .filter(|it| it.exists()),
            timelines: places.timelines(),
            missing,
        })
    }

    /// The workloads of its rows.
    pub fn workloads(&self) -> BTreeSet<String> {
        let of = |file: &File| file.column("workload").map(str::to_string).collect::<Vec<_>>();
        let names = self.files.iter().filter(|file| file.is_of_rows()).flat_map(of);
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Refuses a run of another workload than this one's.
    ///
    /// # Errors
    /// When the names of workloads, or the gradients of the only one, differ.
    pub fn same_workload(&self, other: &Run) -> Result<(), ReportError> {
        let (first, second) = (self.workloads(), other.workloads());
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        if !first.is_empty() && !second.is_empty() && first != second {
            return Err(ReportError::Workloads {
                first: self.path.clone(),
                first_has: list(&first),
                second: other.path.clone(),
                second_has: list(&second),
            });
        }
        let is_known = first.len() == 1 && !self.digest.is_empty() && !other.digest.is_empty();
        if first == second && is_known && self.digest != other.digest {
            return Err(ReportError::Gradients {
                workload: list(&first),
                first: self.path.clone(),
                first_has: self.digest.clone(),
                second: other.path.clone(),
                second_has: other.digest.clone(),
            });
        }
        Ok(())
    }

    /// Names of cases that are right, as `kolo compare` calls them: kind and name.
    pub fn cases(&self) -> BTreeSet<String> {
        let of = |file: &File| -> Vec<String> {
            let (kinds, cases) = (file.column("kind"), file.column("case"));
            kinds.zip(cases).map(|(kind, case)| format!("{kind} {case}")).collect()
        };
        self.files.iter().filter(|file| file.is_of_rows()).flat_map(of).collect()
    }
}

impl Places {
    fn of(path: &Path) -> Result<Places, ReportError> {
        let no_results =
            |found: &str| ReportError::NoResults { path: path.into(), found: found.into() };
        if path.is_file() {
            let provenance = path.with_extension("provenance.json");
            return Ok(Places { tables: vec![path.into()], provenance, folder: None });
        }
        if !path.is_dir() {
            return Err(no_results("there is nothing"));
        }
        let tables = FILES.map(|name| path.join(name));
        let tables: Vec<PathBuf> = tables.into_iter().filter(|path| path.exists()).collect();
        if tables.is_empty() {
            return Err(no_results("no table of results there"));
        }
        Ok(Places { tables, provenance: path.join(PROVENANCE), folder: Some(path.into()) })
    }

    fn in_folder(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name)).filter(|path| path.exists())
    }

    /// The samples, in CSV or by columns.
    fn samples(&self) -> Option<PathBuf> {
        columnar::find(self.folder.as_ref()?, "samples")
    }

    fn timelines(&self) -> Vec<PathBuf> {
        let folder = self.in_folder(TIMELINES);
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        paths.sort();
        paths
    }
}

fn read(path: &Path) -> Result<String, ReportError> {
    fs::read_to_string(path).map_err(|cause| ReportError::Io { path: path.into(), cause })
}

/// Launches, configuration and digest of a file of provenance; nothing if there is no file.
fn provenance(path: &Path) -> Result<(Vec<Launch>, String, String), ReportError> {
    if !path.exists() {
        return Ok(Default::default());
    }
    let text = read(path)?;
    let malformed = |cause| ReportError::Provenance { path: path.into(), cause };
    let Version { schema } = serde_json::from_str(&text).map_err(malformed)?;
    match schema {
        Some(schema) if is_readable(schema) => {
            let whole: Provenance = serde_json::from_str(&text).map_err(malformed)?;
            let config = serde_json::to_string_pretty(&whole.config).expect("JSON was read");
            Ok((whole.launches, config, whole.workload_digest))
        }
        Some(found) => Err(ReportError::Schema { path: path.into(), found: found.to_string() }),
        // Beside rows of `kolo bench` it is the launch alone.
        None => {
            let launch = serde_json::from_str(&text).map_err(malformed)?;
            Ok((vec![launch], String::new(), String::new()))
        }
    }
}
