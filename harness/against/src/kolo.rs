//! This program's engine: a sweep of one case and one block, in processes that the launcher starts.

use std::fs;
use std::path::{Path, PathBuf};

use algorithms::control::bitvector;
use algorithms::topology::Topology;
use measure::back_ends;
use measure::config::{Case, Config, Host, Measure, Step, Varied};
use measure::environment::cycle_time;
use results::provenance::Build;
use results::statistics::quantile;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use training::back_end::Shares;
use training::outcome::BackEndError;
use workloads::framework::Framework;

use crate::engine::{BlockError, Engine, Steps, limit};
use crate::horovod::FUSED_BYTES;
use crate::host_times::{LOOP_GRADIENTS, LoopTimes};
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
    ended_s: Option<f64>,
    cpu_share: Option<f64>,
}

#[derive(Deserialize)]
struct Moment {
    began_s: f64,
    elapsed_s: f64,
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

/// Cycle time and forward pass of the steps in which the loop is timed, in ms: the loop is idle before all gradients are
/// ready at once.
const TIMED_CYCLE_MS: f64 = 1.0;
const TIMED_FORWARD_MS: f64 = 20.0;
const TIMED_BACKWARD_MS: f64 = 0.1;
const TIMED_STEPS: usize = 60;

/// So many of these steps are shorter than the one that counts, as in Horovod: nothing slows the loop down in it.
const AT_BEST: f64 = 0.1;

impl Kolo {
    /// How long the engine's loop is on a core for each gradient of one element where nothing slows it down, in a group of one
    /// rank: a step of [`LOOP_GRADIENTS`], less a step of one gradient.
    ///
    /// # Errors
    /// When the rank fails.
    pub fn loop_times(
        &mut self,
        plan: &Plan,
        origin: usize,
        host: Host,
    ) -> Result<LoopTimes, BlockError> {
        let mut each_us = |threshold_bytes: usize| -> Result<f64, BlockError> {
            let all = self.loop_us(plan, origin, host, (LOOP_GRADIENTS, threshold_bytes))?;
            let one = self.loop_us(plan, origin, host, (1, threshold_bytes))?;
            Ok((all - one) / (LOOP_GRADIENTS - 1) as f64)
        };
        Ok(LoopTimes { fused_us: each_us(FUSED_BYTES)?, alone_us: each_us(0)? })
    }

    /// Time on a core of the loop in a step with so many gradients of one element.
    fn loop_us(
        &mut self,
        plan: &Plan,
        origin: usize,
        host: Host,
        (gradients, fusion_threshold_bytes): (usize, usize),
    ) -> Result<f64, BlockError> {
        const WHAT: &str = "gradients of one element";
        self.blocks += 1;
        let folder = self.scratch.join(format!("kolo-{}", self.blocks));
        let workload = self.scratch.join(format!("elements-{gradients}.csv"));
        let lines = (0..gradients).map(|index| format!("{index},gradient.{index},1,1\n"));
        let text = format!("index,name,shape,elements\n{}", lines.collect::<String>());
        fs::write(&workload, text).map_err(BlockError::file(WHAT))?;
        let like = plan.cases.iter().find(|case| case.origin == origin);
        let case = Case {
            topology: Topology::uniform(1, 1),
            control_plane: bitvector::NAME.into(),
            fusion_threshold_bytes,
            cycle_time: cycle_time(TIMED_CYCLE_MS),
            varied: Varied::default(),
            ..like.expect("a configuration has a case").case.clone()
        };
        let config = &plan.origins[origin].config;
        let config = Config {
            host,
            step: Step {
                forward_ms: TIMED_FORWARD_MS,
                backward_ms: TIMED_BACKWARD_MS,
                optimizer_ms: 0.0,
                ..config.step
            },
            framework: Framework::default(),
            measure: Measure { steps_per_block: TIMED_STEPS, ..config.measure.clone() },
            ..config.clone()
        };
        let block = OneBlock {
            program: &self.program,
            environment: &[],
            launcher: &self.launcher,
            config: &config,
            workload: &workload,
            case: &case,
            seed: config.measure.seed,
            limit: limit(&config),
        };
        let results = block.run(&folder)?;
        let samples: Vec<Sample> = table(&results.join("samples.csv"))?;
        let _ = fs::remove_dir_all(&folder);
        let on_core_us = |sample: &Sample| Some(sample.time_us * sample.cpu_share?);
        let times_us: Option<Vec<f64>> = samples.iter().map(on_core_us).collect();
        let at_best = |times_us| quantile(times_us, AT_BEST);
        times_us.and_then(at_best).ok_or_else(|| {
            BlockError::Result("the system does not tell how long a thread was on a core".into())
        })
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
        let moments: Vec<Moment> = table(&results.join("conditions.csv"))?;
        let _ = fs::remove_dir_all(&folder);
        let moments_s = moments.first().map(|it| [it.began_s, it.began_s + it.elapsed_s]);
        let times_ms = samples.iter().map(|sample| sample.time_us / 1e3).collect();
        let shares = rows
            .first()
            .map(|&Row { emulated, oversubscribed, .. }| Shares { emulated, oversubscribed });
        Ok(Steps { times_ms, moments_s, ends_s: ends_s(&samples), shares })
    }
}

/// When the first measured step began, and when each one ended; empty if that is not known.
fn ends_s(samples: &[Sample]) -> Vec<f64> {
    let begin_s = |first: &Sample| Some(first.ended_s? - first.time_us / 1e6);
    let ends_s = samples.iter().map(|sample| sample.ended_s);
    samples
        .first()
        .map(begin_s)
        .into_iter()
        .chain(ends_s)
        .collect::<Option<_>>()
        .unwrap_or_default()
}

fn table<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BlockError> {
    let rows = csv::Reader::from_path(path).map_err(BlockError::file("results of the block"))?;
    let rows: Result<Vec<T>, csv::Error> = rows.into_deserialize().collect();
    rows.map_err(BlockError::file("results of the block"))
}
