//! This program's engine: a sweep of one case and one block, in processes that the launcher starts.

use std::fs;
use std::path::{Path, PathBuf};

use measure::back_ends;
use measure::config::Config;
use results::provenance::Build;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use training::back_end::Shares;
use training::outcome::BackEndError;

use crate::engine::{BlockError, Engine, Steps, limit};
use crate::launcher::Launcher;
use crate::one_block::OneBlock;
use crate::plan::{Compared, Plan};

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
        let origin = plan.origin(case);
        let config = Config { host: origin.host, ..origin.config.clone() };
        let block = OneBlock {
            program: &self.program,
            environment: &[],
            launcher: &self.launcher,
            config: &config,
            workload: &origin.workload_path,
            case: &case.case,
            seed: config.measure.seed,
            limit: limit(&config),
        };
        let results = block.run(&folder)?;
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

fn table<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BlockError> {
    let rows = csv::Reader::from_path(path).map_err(BlockError::file("results of the block"))?;
    let rows: Result<Vec<T>, csv::Error> = rows.into_deserialize().collect();
    rows.map_err(BlockError::file("results of the block"))
}
