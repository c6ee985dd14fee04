//! The regret of tuning, on surfaces whose best setting is known.
//!
//! A surface is a model on a machine file: the true step time of every setting of the grid is simulated, with the
//! file's variation between ranks. The search sees it with noise: drift that all blocks share, noise of a block,
//! and occasional disturbed blocks. It runs many times with different noise, and its choice is compared with the
//! best setting.

mod exhaust;
mod noisy;
mod run;

use std::collections::BTreeMap;
use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::noisy::Noisy;
use super::answer::Ratio;
use super::found::{Blocks, Found};
use super::model::{expected, training_job};
use super::search::search;
use super::space::{self, Pins, PinsError, Space};
use measure::config::{self, Measure, Step};
use measure::plan::Plan;
use results::provenance::Subject;
use results::toml_file::{Checked, ConfigError, Invalid};
use simulator::data_plane::{DataPlane, Engine};
use simulator::jitter::Jitter;
use simulator::machine_file::MachineFile;
use simulator::sweep::CaseError;
use simulator::training;
use transports::threads;
use workloads::workload::workload_path;
use workloads::workload::{Workload, WorkloadError};

pub use self::exhaust::{Surveyed, exhaust};
pub use self::run::{HOROVOD_STEPS, Run};

/// Simulated steps of each seed, whose mean is the true time, and warm-up steps before them.
const STEPS: usize = 20;
const WARMUP: usize = 3;
const SEEDS: u64 = 3;

/// The comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How measurements differ from the truth.
    pub noise: Noise,
    /// Blocks that a search may measure.
    pub blocks: usize,
    /// Steps of a block.
    pub steps_per_block: usize,
    /// Blocks of every setting that an exhaustive grid would measure.
    pub grid_blocks: usize,
    /// Searches on each surface, with different noise.
    pub runs: u64,
    /// Models on machines.
    pub surface: Vec<Truth>,
}

/// Standard deviations of logarithms, and disturbances.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Standard deviation of the slow drift that all blocks share.
    pub drift: f64,
    /// The share of the drift that remains in the next block.
    pub memory: f64,
    /// Standard deviation of a single block.
    pub block: f64,
    /// The share of disturbed blocks.
    pub disturbed: f64,
    /// ... and take longer by up to this factor.
    pub disturbance: f64,
    /// Noise in the observed cost of a message or a negotiation.
    pub cost: f64,
}

/// A model on a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// Its gradients.
    pub workload: String,
    /// A machine file.
    pub machine: String,
    /// World size.
    pub ranks: usize,
    /// The data plane, as in simulated sweeps.
    pub data_plane: String,
    /// A cycle does not end before its messages, as on CPUs.
    #[serde(default)]
    pub blocking: bool,
    /// Parts of the step.
    pub step: Step,
}

/// A surface ready to be searched.
struct Known {
    truth: Truth,
    plan: Plan,
    space: Space,
    /// In seconds.
    times: Vec<f64>,
    machine: MachineFile,
    data: DataPlane,
    /// Time of a cycle with messages, by setting.
    negotiation_s: Vec<f64>,
}

impl Config {
    /// All searches on all surfaces, in order; the same on any number of cores.
    ///
    /// # Errors
    /// A surface that cannot be made, and why.
    pub fn run(&self, path: &Path, progress: impl Fn() + Sync) -> Result<Vec<Run>, TruthError> {
        let known = |truth: &Truth| Known::new(truth, self, path);
        let surfaces: Vec<Known> =
            self.surface.par_iter().map(known).collect::<Result<_, TruthError>>()?;
        let cases: Vec<(&Known, u64)> = surfaces
            .iter()
            .flat_map(|surface| (0..self.runs).map(move |seed| (surface, seed)))
            .collect();
        let run = |&(surface, seed): &(&Known, u64)| {
            let run = surface.search(self, seed);
            progress();
            run
        };
        Ok(cases.par_iter().with_max_len(1).map(run).collect())
    }
}

impl Checked for Config {
    fn check(&self) -> Result<(), Invalid> {
        let Noise { memory, disturbed, disturbance, .. } = self.noise;
        let least_steps = self.steps_per_block.saturating_sub(1);
        let least_ranks = self.surface.iter().map(|surface| surface.ranks).min().unwrap_or(0);
        for (key, is_right, found, expected) in [
            ("runs", self.runs > 0, self.runs as f64, "at least 1"),
            ("blocks", self.blocks > 0, self.blocks as f64, "at least 1"),
            ("grid_blocks", self.grid_blocks > 0, self.grid_blocks as f64, "at least 1"),
            ("steps_per_block", least_steps > 0, self.steps_per_block as f64, "at least 2"),
            (
                "surface.ranks",
                least_ranks > 0,
                least_ranks as f64,
                "at least 1 surface, of at least 1 rank",
            ),
            ("noise.memory", (0.0..=1.0).contains(&memory), memory, "0 to 1"),
            ("noise.disturbed", (0.0..=1.0).contains(&disturbed), disturbed, "0 to 1"),
            ("noise.disturbance", disturbance > 1.0, disturbance, "more than 1"),
        ] {
            if !is_right {
                return Err(Invalid::value(key, found, expected));
            }
        }
        Ok(())
    }
}

impl Subject for Config {
    fn config(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a configuration is plain data")
    }

    fn seed(&self) -> u64 {
        0
    }

    /// The files that surfaces name are part of the program's commit.
    fn workload_digest(&self) -> String {
        String::new()
    }
}

/// Why the truth of a surface cannot be worked out.
#[derive(Debug, Error)]
#[error("surface {surface}: {cause}")]
pub struct TruthError {
    /// The surface: workload, ranks, machine and data plane.
    pub surface: String,
    /// Why.
    #[source]
    pub cause: Box<TruthCause>,
}

/// What is wrong with a surface.
#[derive(Debug, Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum TruthCause {
    /// The machine file cannot be read.
    Machine(#[from] ConfigError),
    /// The workload cannot be read.
    Workload(#[from] WorkloadError),
    /// The fixed settings contradict each other.
    Pins(#[from] PinsError),
    /// A setting cannot be simulated.
    Case(#[from] CaseError),
}

impl Known {
    fn new(truth: &Truth, config: &Config, path: &Path) -> Result<Known, TruthError> {
        let refuse =
            |cause: TruthCause| TruthError { surface: truth.to_string(), cause: cause.into() };
        let machine = MachineFile::read(&MachineFile::path(&truth.machine, path));
        let machine = machine.map_err(|error| refuse(error.into()))?;
        let workload = Workload::read(&workload_path(&truth.workload, path));
        let workload = workload.map_err(|error| refuse(error.into()))?;
        let segment_bytes = 0.0;
        let data =
            DataPlane::new(&truth.data_plane, &machine, truth.ranks, segment_bytes, Engine::Rounds);
        let data = data.map_err(|error| refuse(CaseError::from(error).into()))?;
        let per_node = machine.node.ranks.min(truth.ranks);
        let topology = format!("{}x{per_node}", truth.ranks / per_node);
        let pins = Pins { hierarchical: Some(space::Switch::Off), ..Pins::default() };
        let bytes = workload.elements() * 4;
        let axes = space::axes(threads::NAME, &topology, bytes, &pins);
        let axes = axes.map_err(|error| refuse(error.into()))?;
        let measure = Measure {
            warmup_steps: 1,
            steps_per_block: config.steps_per_block - 1,
            ..Measure::default()
        };
        let sweep = config::Config {
            workload: truth.workload.clone(),
            step: truth.step,
            host: Default::default(),
            data: Default::default(),
            framework: Default::default(),
            sweep: axes,
            also: Vec::new(),
            measure,
        };
        let plan = Plan::new(sweep, workload);
        let space = Space::of(&plan);
        let missing = || CaseError::NoControl { machine: machine.name.clone() };
        let control = machine.control.as_ref().ok_or_else(|| refuse(missing().into()))?;
        let measured_cv = control.compute_cv.as_ref().map(|cv| cv.value);
        let jitter = Jitter { cv: Some(measured_cv.unwrap_or(0.02)), ..Jitter::default() };
        let simulate = |setting: usize| -> Result<(f64, f64), CaseError> {
            let (mut times, mut negotiating, mut cycles) = (0.0, 0.0, 0);
            for seed in 0..SEEDS {
                let planned = &plan.cases[setting];
                let job = training_job(&plan, planned, (control, &data, &jitter), truth.blocking)?;
                let job = training::Job { seed, ..job };
                for step in &training::simulate(&job, WARMUP + STEPS)?[WARMUP..] {
                    times += step.time;
                    negotiating += step.negotiating;
                    cycles += step.cycles - step.idle_cycles;
                }
            }
            Ok((times / (SEEDS as usize * STEPS) as f64, negotiating / cycles.max(1) as f64))
        };
        let all: Result<Vec<(f64, f64)>, CaseError> =
            (0..plan.cases.len()).into_par_iter().map(simulate).collect();
        let (times, negotiation_s) = all.map_err(|error| refuse(error.into()))?.into_iter().unzip();
        let truth = truth.clone();
        Ok(Known { truth, plan, space, times, data, machine, negotiation_s })
    }

    fn search(&self, config: &Config, seed: u64) -> Run {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut noise = random.clone();
        noise.set_stream(1);
        let mut noisy = Noisy::new(self, config, noise);
        let predict = |blocks: &Blocks| expected(&self.plan, blocks, self.truth.blocking);
        let as_it_is = |ratio: &Ratio, _| *ratio;
        let task = self.space.task(&predict, &as_it_is);
        let found = search(&task, &mut noisy, &mut random).expect("nothing is written");
        self.row(config, seed, &found, noisy.used)
    }

    fn row(&self, config: &Config, seed: u64, found: &Found, blocks: usize) -> Run {
        let times = BTreeMap::from_iter(self.times.iter().copied().enumerate());
        let fastest = times.keys().copied().min_by(|a, b| times[a].total_cmp(&times[b]));
        Run {
            machine: self.machine.name.clone(),
            data_plane: self.truth.data_plane.clone(),
            source: "simulated",
            seed,
            ..Run::of(
                &self.plan,
                &self.space,
                found,
                (blocks, config.steps_per_block, config.grid_blocks),
                (&times, fastest.expect("there are settings")),
            )
            .expect("the truth of every setting is known")
        }
    }
}

impl std::fmt::Display for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} on {} ranks of {}, {}",
            self.workload, self.ranks, self.machine, self.data_plane
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(runs: u64) -> Config {
        let text = r#"
            blocks = 60
            steps_per_block = 5
            grid_blocks = 4
            noise = { drift = 0.02, memory = 0.9, block = 0.01, disturbed = 0.02, disturbance = 1.3, cost = 0.1 }
            [[surface]]
            workload = "alexnet"
            machine = "p100-25gbe-tcp"
            ranks = 8
            data_plane = "ring"
            blocking = true
            step = { forward_ms = 5, backward_ms = 10 }
        "#;
        toml::from_str(&format!("runs = {runs}\n{text}")).unwrap()
    }

    fn path() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/tune-regret.toml")
    }

    #[test]
    fn little_is_lost_on_a_small_model_and_on_any_number_of_cores() {
        let all = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
        let run = || config(if all { 3 } else { 1 }).run(&path(), || ()).unwrap();
        let runs = run();
        for run in &runs {
            assert!(run.regret < 0.05 && run.blocks <= 60, "{run:?}");
            assert!(run.share_of_grid < 0.15 && run.share_of_horovod_steps < 0.1, "{run:?}");
        }
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(alone.install(run), runs);
    }

    #[test]
    fn a_surface_that_cannot_be_made_is_named() {
        let mut config = config(1);
        config.surface[0].ranks = 7;
        let problem = config.run(&path(), || ()).unwrap_err().to_string();
        assert!(
            problem.starts_with("surface alexnet on 7 ranks of p100-25gbe-tcp, ring: "),
            "{problem}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = config(1);
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|config| config.runs = 0), "runs is 0, expected at least 1");
        assert!(refused(|config| config.surface.clear()).starts_with("surface.ranks is 0"));
        assert!(
            refused(|config| config.steps_per_block = 1).ends_with("is 1, expected at least 2")
        );
        assert!(refused(|config| config.noise.disturbed = 2.0).ends_with("is 2, expected 0 to 1"));
        assert!(refused(|config| config.noise.disturbance = 1.0).ends_with("expected more than 1"));
    }

    #[test]
    fn the_grid_that_is_committed_can_be_read() {
        let config = Config::read(&path()).unwrap();
        assert!(config.surface.len() >= 12);
    }

    /// What `results/reference/tune/regret` says: a recommended change makes steps longer in at most 2.5 % of searches.
    #[test]
    fn recommended_changes_are_hardly_ever_to_the_wrong_side() {
        #[derive(serde::Deserialize)]
        struct Line {
            verdict: String,
            gain_true: Option<f64>,
        }
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/tune/regret/regret.csv");
        let mut file = csv::Reader::from_path(path).unwrap();
        let lines = file.deserialize().map(|line: Result<Line, csv::Error>| line.unwrap());
        let changes: Vec<f64> = lines
            .filter(|line| ["change", "lean"].contains(&line.verdict.as_str()))
            .map(|line| line.gain_true.unwrap())
            .collect();
        let wrong = changes.iter().filter(|&&gain| gain < 1.0).count();
        assert!(changes.len() >= 40, "{}", changes.len());
        assert!(wrong as f64 <= 0.025 * changes.len() as f64, "{wrong} of {}", changes.len());
    }
}
