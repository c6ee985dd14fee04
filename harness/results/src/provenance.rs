//! The provenance of results: commit, command, configuration, machine, environment, time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounting::Accounting;
use crate::error::{Difference, RecordError};
use crate::files::write_whole;
use crate::gpus::Inventory;
use crate::inputs::{self, Input};
use crate::row::SCHEMA;

/// The program that writes results. The binary sets this once when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The commit that the binary was built from, with `-dirty` if files had been changed.
    pub commit: &'static str,
    /// Name and version of the program.
    pub version: &'static str,
    /// The compiler.
    pub rustc: &'static str,
    /// The profile.
    pub profile: &'static str,
}

static BUILD: OnceLock<Build> = OnceLock::new();

impl Build {
    /// Sets the value of [`Build::this`]. Only the first call has an effect.
    pub fn set(self) {
        let _ = BUILD.set(self);
    }

    /// This program; `unknown` if it has not been set, as in tests.
    pub fn this() -> Build {
        let unknown = "unknown";
        let none = Build { commit: unknown, version: "kolo", rustc: unknown, profile: unknown };
        BUILD.get().copied().unwrap_or(none)
    }
}

/// Names of algorithms, each with the smallest size in bytes that it is for; ascending from 0.
pub type AutoTable = Vec<(usize, String)>;

/// The file's name in a folder of results.
pub const PROVENANCE: &str = "provenance.json";

/// Environment variables that are recorded; no others leave the machine with results.
const ENVIRONMENT: [&str; 9] =
    ["CUDA_", "HOROVOD_", "KOLO_", "MALLOC_", "NCCL_", "OMPI_MCA_", "RAYON_", "RUST_", "SLURM_"];

/// Never recorded: the secret of a job's processes.
const SECRET: &str = "KOLO_JOB_SECRET";

fn is_kept(variable: &str) -> bool {
    variable != SECRET && ENVIRONMENT.iter().any(|prefix| variable.starts_with(prefix))
}

/// The most characters of a value in an error about a difference.
const MOST_SHOWN: usize = 120;

/// The subject of a run: runs with equal subjects can be continued.
pub trait Subject {
    /// The effective configuration, as plain data.
    fn config(&self) -> Value;

    /// Seed of order and data.
    fn seed(&self) -> u64;

    /// Fingerprint of the gradients: names, shapes and ready times.
    fn workload_digest(&self) -> String;
}

/// Everything about a folder of results, as `provenance.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this file and of those beside it.
    pub schema: u32,
    /// The effective configuration: the file's, with the overrides of options and variables.
    pub config: Value,
    /// Seed of order and data, also in the configuration.
    pub seed: u64,
    /// Fingerprint of the gradients: names, shapes and ready times.
    pub workload_digest: String,
    /// Each run of the program that has worked on the folder.
    pub launches: Vec<Launch>,
    /// The records of its jobs in Slurm's accounting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<Accounting>,
}

/// One run of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// See [`Build::commit`].
    pub commit: String,
    /// Name and version of the program.
    pub version: String,
    /// Compiler and profile.
    pub build: String,
    /// Arguments, the program's name included.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The tables of `auto`, for each topology: names of algorithms, each with its smallest size in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub auto: BTreeMap<String, AutoTable>,
    /// The nodes of a job of several processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFacts>,
    /// Bandwidth from the first of them to each other, in Gbit/s, from a short test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links_gbit_s: Vec<f64>,
    /// What checks before measuring found, and was measured on nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
    /// NCCL if it is used, the driver of GPUs, and the GPU of each rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// GPUs and network cards, from NVML and the kernel, before the run and after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Inventory>,
    /// Allowed environment variables that are set.
    pub environment: Vec<(String, String)>,
    /// The files that were read, on disk or embedded: configuration, machine, workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// Overridden values of the configuration's file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// With which other runs it took turns, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved: Option<Interleaved>,
    /// Start of the launch, UTC.
    pub started: String,
    /// Its end, UTC; none if it was killed.
    pub ended: Option<String>,
}

/// The place of a run among those with which it took turns, block by block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interleaved {
    /// The same in all of these runs, and in no other.
    pub session: String,
    /// This one: `a`, `b`, ...
    pub name: String,
    /// The program that measured it.
    pub program: String,
    /// The variables that it was given, `NAME=VALUE` separated by spaces.
    pub environment: String,
}

/// An overridden value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Key of the configuration.
    pub key: String,
    /// The effective value.
    pub value: String,
    /// The value in the file, or the default.
    pub instead_of: String,
    /// `HOROVOD_CYCLE_TIME=5`, or `--cycle-time-ms 5`.
    pub set_by: String,
}

impl Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Override { key, value, instead_of, set_by } = self;
        write!(f, "{key} is {value} instead of {instead_of}: {set_by}")
    }
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Processor, as the kernel calls it.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: String,
    /// The kernel's clock source.
    pub clock_source: String,
    /// The frequency governor, if the kernel reports it.
    pub frequency_governor: Option<String>,
}

/// One node of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its machine.
    pub machine: Machine,
    /// The MPI library.
    pub library: String,
    /// Processes on it, and the cores that each may use, as the system numbers them.
    pub ranks: Vec<(usize, Vec<usize>)>,
}

impl Launch {
    /// The last of some launches, with the commits of all, separated by `+`.
    ///
    /// # Panics
    /// Without a launch.
    pub fn of_all(launches: &[Launch]) -> Launch {
        let mut commits: Vec<&str> = Vec::new();
        for Launch { commit, .. } in launches {
            if !commits.contains(&&**commit) {
                commits.push(commit);
            }
        }
        let commit = commits.join("+");
        Launch { commit, ..launches.last().expect("this run of the program").clone() }
    }

    /// This run of the program.
    pub fn now() -> Launch {
        let build = Build::this();
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let environment = std::env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .filter(|(name, _)| is_kept(name));
        let mut environment: Vec<_> = environment.collect();
        environment.sort();
        Launch {
            commit: build.commit.into(),
            version: build.version.into(),
            build: format!("{}, {}", build.rustc, build.profile),
            command: std::env::args().collect(),
            machine: Machine::this(),
            auto: BTreeMap::new(),
            nodes: Vec::new(),
            links_gbit_s: Vec::new(),
            gpus: Vec::new(),
            inventory: None,
            forced: Vec::new(),
            environment,
            inputs: Vec::new(),
            overrides: Vec::new(),
            interleaved: None,
            started: now(),
            ended: None,
        }
    }

    /// Adds the files that this process has read so far.
    #[must_use]
    pub fn with_inputs(self) -> Launch {
        Launch { inputs: inputs::used(), ..self }
    }

    /// Writes the launch alone, with the files read so far, for runs without a configuration.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let launch = self.clone().with_inputs();
        let text = serde_json::to_string_pretty(&launch).expect("provenance is plain data");
        write_whole(path, (text + "\n").as_bytes())
    }

    /// Records the end. `ask_again` queries the GPUs again, if they were used; returns failed queries, and
    /// conditions that make times unreliable.
    pub fn end(&mut self, ask_again: impl FnOnce(&mut Inventory)) -> Vec<String> {
        self.ended = Some(now());
        let Some(inventory) = &mut self.inventory else { return Vec::new() };
        ask_again(inventory);
        let unknown = inventory.unknown.iter().map(|why| format!("not known: {why}"));
        let warnings = inventory.warnings().into_iter().map(|why| format!("warning: {why}"));
        unknown.chain(warnings).collect()
    }
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let cpus = "/sys/devices/system";
        let clock = format!("{cpus}/clocksource/clocksource0/current_clocksource");
        Machine {
            host: first_line("/proc/sys/kernel/hostname").unwrap_or("unknown".into()),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or("unknown".into()),
            cores: cores(),
            memory_bytes: memory_bytes("MemTotal"),
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or("unknown".into()),
            clock_source: first_line(&clock).unwrap_or("unknown".into()),
            frequency_governor: first_line(&format!("{cpus}/cpu/cpu0/cpufreq/scaling_governor")),
        }
    }
}

/// Cores that this process may use. The system is asked once: it reads several files for the answer, and a sweep of many
/// cases asks for each of them.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A line of `/proc/meminfo`, in bytes: `MemTotal`, `MemAvailable`.
pub fn memory_bytes(name: &str) -> Option<u64> {
    let kib = field("/proc/meminfo", name)?;
    Some(kib.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

/// The time of the day, UTC, to the second, of a moment in seconds since 1970.
pub fn time_of_day(since_1970_s: f64) -> String {
    let moment = DateTime::from_timestamp(since_1970_s as i64, 0).unwrap_or_default();
    moment.format("%H:%M:%S").to_string()
}

/// The time, UTC, to the second.
pub fn now() -> String {
    Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Provenance {
    /// A new folder's, with the files that this process has read so far.
    pub fn new(subject: &impl Subject, launch: Launch) -> Provenance {
        Provenance {
            schema: SCHEMA,
            config: subject.config(),
            seed: subject.seed(),
            workload_digest: subject.workload_digest(),
            launches: vec![launch.with_inputs()],
            accounting: Vec::new(),
        }
    }

    /// Reads a folder's.
    ///
    /// # Errors
    /// When the file is missing, or of another version.
    pub fn read(path: &Path) -> Result<Provenance, RecordError> {
        let text = fs::read_to_string(path).map_err(RecordError::io(path))?;
        serde_json::from_str(&text).map_err(|cause| RecordError::Differs {
            path: path.into(),
            problem: Difference::Provenance { cause },
        })
    }

    /// Reads a folder's provenance, and refuses to continue another sweep, or that of another commit unless they may be
    /// mixed.
    ///
    /// # Errors
    /// As [`Self::read`], or when the folder holds the results of another sweep or commit.
    pub fn resume(
        path: &Path,
        subject: &impl Subject,
        launch: Launch,
        mixes_commits: bool,
    ) -> Result<Provenance, RecordError> {
        let differs = |problem| RecordError::Differs { path: path.into(), problem };
        let mut provenance = Provenance::read(path)?;
        if provenance.schema != SCHEMA {
            return Err(differs(Difference::Schema { found: provenance.schema }));
        }
        let config = subject.config();
        if provenance.wants_more_launches(&config) {
            provenance.config[MEASURE][LAUNCHES] = config[MEASURE][LAUNCHES].clone();
        }
        let now = (&config, &*subject.workload_digest());
        if let Some(other) = provenance.difference(now) {
            return Err(differs(other));
        }
        let there = provenance.launches.last().map(|last| last.commit.clone());
        if let Some(there) = there.filter(|there| *there != launch.commit && !mixes_commits) {
            return Err(differs(Difference::Commit { there, now: launch.commit }));
        }
        provenance.launches.push(launch.with_inputs());
        Ok(provenance)
    }

    /// The configuration is to have more launches than the folder's, which other jobs may add.
    pub fn wants_more_launches(&self, config: &Value) -> bool {
        let launches = |config: &Value| config[MEASURE][LAUNCHES].as_u64().unwrap_or(1);
        launches(config) > launches(&self.config)
    }

    /// In what this differs from the subject of another run: the first key of the configuration, or the gradients.
    pub fn difference(&self, (config, workload): (&Value, &str)) -> Option<Difference> {
        difference(&self.config, config).or_else(|| {
            let (there, now) = (self.workload_digest.clone(), workload.to_string());
            (there != now).then_some(Difference::Workload { there, now })
        })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let text = serde_json::to_string_pretty(self).expect("provenance is plain data");
        write_whole(path, (text + "\n").as_bytes())
    }
}

/// The key of a configuration that may grow while a folder is resumed.
const MEASURE: &str = "measure";
const LAUNCHES: &str = "launches";

/// Keys of the configuration that folders of older versions have under another name: old, new.
const RENAMED_KEYS: [(&str, &str); 1] = [("patience_seconds", "timeout_seconds")];

/// The first key that differs between the configuration of a folder and that of now, and in what.
fn difference(there: &Value, now: &Value) -> Option<Difference> {
    let flat = |config: &Value| {
        let mut keys = BTreeMap::new();
        flatten(config, String::new(), &mut keys);
        keys
    };
    let (there, now) = (flat(there), flat(now));
    let key = there.keys().chain(now.keys()).find(|key| there.get(*key) != now.get(*key))?;
    let value = |values: &BTreeMap<String, String>| values.get(key).map_or("none", |it| it).into();
    let (there, now): (String, String) = (value(&there), value(&now));
    Some(Difference::Setting { key: key.clone(), there: short(there), now: short(now) })
}

/// As much of a value as fits into a sentence.
fn short(value: String) -> String {
    match value.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{} ...", &value[..end]),
        None => value,
    }
}

fn flatten(value: &Value, key: String, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            let renamed = RENAMED_KEYS.iter().find(|(old, _)| old == name);
            let name = renamed.map_or(name.as_str(), |&(_, new)| new);
            let dot = if key.is_empty() { "" } else { "." };
            flatten(value, format!("{key}{dot}{name}"), into);
        }),
        leaf => {
            into.insert(key, leaf.to_string());
        }
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_string())
}

/// The value of `name : value` in a file of the kernel.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_job_is_not_kept() {
        assert!(is_kept("KOLO_RENDEZVOUS") && is_kept("SLURM_JOB_ID"));
        assert!(!is_kept("KOLO_JOB_SECRET") && !is_kept("HOME"));
    }
    use serde_json::json;

    #[test]
    fn a_renamed_key_is_no_difference_and_another_value_is() {
        let before = json!({"measure": {"patience_seconds": 60.0}});
        let now = json!({"measure": {"timeout_seconds": 60.0}});
        assert!(difference(&before, &now).is_none());
        let other = json!({"measure": {"timeout_seconds": 5.0}});
        let told = difference(&before, &other).unwrap();
        let expected = "measure.timeout_seconds: the folder has 60.0, now it is 5.0";
        assert!(told.to_string().contains(expected), "{told}");
    }
}
