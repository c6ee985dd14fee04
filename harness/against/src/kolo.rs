//! This program's engine: a sweep of one case and one block, in processes that the launcher starts.

use std::fs;
use std::path::{Path, PathBuf};

use measure::back_ends;
use measure::config::{Axes, Config, Measure};
use results::provenance::Build;
use results::units::MIB;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use training::back_end::Shares;
use training::outcome::BackEndError;

use crate::engine::{BlockError, Engine, Steps, limit};
use crate::launcher::Launcher;
use crate::plan::{Compared, Origin, Plan};
use crate::process::output;

/// The engine.
pub struct Kolo {
    program: PathBuf,
    launcher: Launcher,
    scratch: PathBuf,
    /// The MPI library.
    library: String,
    blocks: usize,
}

#[derive(Deserialize)]
struct Sample {
    time_us: f64,
}

#[derive(Deserialize)]
struct Row {
    status: String,
    reason: String,
    emulated: bool,
    oversubscribed: bool,
}

impl Kolo {
    /// The engine of a program file, which keeps the files of its blocks in `scratch`.
    ///
    /// # Errors
    /// When the program was built without MPI.
    pub fn new(program: PathBuf, launcher: Launcher, scratch: &Path) -> Result<Kolo, BackEndError> {
        let library = back_ends::default_of_processes().availability()?;
        let library = library.split(';').next().unwrap_or_default().to_string();
        Ok(Kolo { program, launcher, scratch: scratch.into(), library, blocks: 0 })
    }
}

impl Engine for Kolo {
    fn about(&self) -> String {
        let Build { version, commit, profile, .. } = Build::this();
        format!("{version}, {profile} build of {commit}, over {}", self.library)
    }

    fn run(&mut self, plan: &Plan, case: &Compared) -> Result<Steps, BlockError> {
        self.blocks += 1;
        let folder = self.scratch.join(format!("kolo-{}", self.blocks));
        fs::create_dir_all(&folder).map_err(BlockError::file("scratch folder"))?;
        let config = toml::to_string(&alone(plan.origin(case), case));
        let config = config.map_err(BlockError::file("configuration of the block"))?;
        let file = folder.join("block.toml");
        fs::write(&file, config).map_err(BlockError::file("configuration of the block"))?;
        let results = folder.join("results");
        let [program, file, out] =
            [&self.program, &file, &results].map(|path| path.display().to_string());
        let words = [&*program, "sweep", &file, "--out", &out, "--force", "--no-figures"];
        let words: Vec<String> = words.map(str::to_string).into();
        let command = self.launcher.command(case.case.topology.ranks(), &words);
        let own =
            |(name, _): (String, String)| name.starts_with("HOROVOD_").then_some((name, None));
        let variables: Vec<_> = std::env::vars().filter_map(own).collect();
        output(&command, &variables, &folder.join("output"), limit(plan, case))?;
        let rows: Vec<Row> = table(&results.join("rows.csv"))?;
        if let Some(row) = rows.iter().find(|row| row.status != "ok") {
            return Err(BlockError::Result(format!("{}: {}", row.status, row.reason)));
        }
        let samples: Vec<Sample> = table(&results.join("samples.csv"))?;
        let _ = fs::remove_dir_all(&folder);
        let times_ms = samples.into_iter().map(|sample| sample.time_us / 1e3).collect();
        let shares = rows
            .first()
            .map(|&Row { emulated, oversubscribed, .. }| Shares { emulated, oversubscribed });
        Ok(Steps { times_ms, shares })
    }
}

/// The configuration of one block of one case.
fn alone(origin: &Origin, case: &Compared) -> Config {
    let framework = case.framework(origin);
    let Compared { case, .. } = case;
    let config = &origin.config;
    let workload = origin.workload_path.canonicalize().unwrap_or(origin.workload_path.clone());
    Config {
        framework,
        workload: workload.display().to_string(),
        sweep: Axes {
            transport: vec![case.transport.name().into()],
            topology: vec![case.topology.to_string()],
            nodes: None,
            ranks_per_node: None,
            control_plane: vec![case.control_plane.clone()],
            algorithm: vec![case.algorithm.clone()],
            fusion_threshold_mib: vec![case.fusion_threshold_bytes as f64 / MIB],
            cycle_time_ms: vec![case.cycle_time_ms()],
            compression: Vec::new(),
            num_groups: Vec::new(),
            ..config.sweep.clone()
        },
        also: Vec::new(),
        host: origin.host,
        measure: Measure { blocks_min: 1, blocks_max: 1, ..config.measure.clone() },
        ..config.clone()
    }
}

fn table<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BlockError> {
    let rows = csv::Reader::from_path(path).map_err(BlockError::file("results of the block"))?;
    let rows: Result<Vec<T>, csv::Error> = rows.into_deserialize().collect();
    rows.map_err(BlockError::file("results of the block"))
}
