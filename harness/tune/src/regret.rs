//! The regret of tuning, on surfaces whose best setting is known.
//!
//! A surface is a model on a machine file: the true step time of every setting of the grid is simulated, with the
//! file's variation between ranks. The search sees it with noise: drift that all blocks share, noise of a block,
//! and occasional disturbed blocks. It runs many times with different noise, and its choice is compared with the
//! best setting.

use std::collections::BTreeMap;
use std::path::Path;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::answer::{Answer, Verdict};
use super::found::{Blocks, Found};
use super::model::{expected, training_job};
use super::search::{Task, search};
use super::space::{self, Pins, PinsError, Space};
use super::surface::{BlockError, Observed, Surface};
use measure::config::{self, Measure, Step};
use measure::plan::Plan;
use results::error::RecordError;
use results::provenance::Subject;
use results::statistics::median;
use results::toml_file::{ConfigError, Invalid, TomlFile};
use results::units::MIB;
use simulator::data_plane::{DataPlane, Engine};
use simulator::jitter::Jitter;
use simulator::machine_file::MachineFile;
use simulator::sweep::CaseError;
use simulator::training;
use transports::threads;
use workloads::workload::workload_path;
use workloads::workload::{Workload, WorkloadError};

/// Steps that Horovod's autotune takes by its own schedule with two switches, as in builds for CPUs: 21
/// evaluations of 50 steps for each of 4 combinations.
pub const HOROVOD_STEPS: usize = 4200;

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

/// One search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "columns, which results/README.md explains")]
pub struct Run {
    pub workload: String,
    pub machine: String,
    pub ranks: usize,
    pub data_plane: String,
    pub source: &'static str,
    pub settings: usize,
    pub seed: u64,
    pub blocks: usize,
    pub steps: usize,
    pub share_of_grid: f64,
    pub share_of_horovod_steps: f64,
    pub verdict: String,
    pub chosen_mib: f64,
    pub chosen_cycle_ms: f64,
    pub chosen_plane: String,
    pub best_mib: f64,
    pub best_cycle_ms: f64,
    pub best_plane: String,
    /// How much longer the recommended setting really takes than the best.
    pub regret: f64,
    /// How much longer the defaults do.
    pub default_regret: f64,
    pub gain: Option<f64>,
    pub gain_low: Option<f64>,
    pub gain_high: Option<f64>,
    pub gain_true: Option<f64>,
    /// The interval holds the truth.
    pub covered: Option<bool>,
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
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// The file, the line or key, the value found, and the value expected.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        Config::of(&TomlFile::read(path)?)
    }

    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// File, line or key, what was found, and what was expected.
    pub fn of(file: &TomlFile) -> Result<Config, ConfigError> {
        let config: Config = file.parse()?;
        config.check().map_err(|problem| file.refuse(problem))?;
        Ok(config)
    }

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
            data: Default::default(),
            framework: Default::default(),
            sweep: axes,
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
        let mut noisy = Noisy { known: self, config, random: random.clone(), drift: 0.0, used: 0 };
        noisy.random.set_stream(1);
        let predict = |blocks: &Blocks| expected(&self.plan, blocks, self.truth.blocking);
        let task = Task {
            points: &self.space.points,
            always: &self.space.always,
            defaults: &self.space.defaults,
            predict: &predict,
        };
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

impl Run {
    /// A search, blocks and steps of each and blocks of every setting of a grid, beside the truth: seconds of
    /// each setting, and which is the fastest. None if the truth of a setting in question is not known.
    pub fn of(
        plan: &Plan,
        space: &Space,
        found: &Found,
        (blocks, steps_per_block, grid_blocks): (usize, usize, usize),
        (times, best): (&BTreeMap<usize, f64>, usize),
    ) -> Option<Run> {
        let default = space.defaults[0];
        let answer = Answer::of(found, default);
        let verdict = answer.as_ref().map_or(Verdict::Unknown, |answer| answer.verdict);
        // Without a word to the contrary the defaults stay.
        let chosen = match &answer {
            Some(answer) if answer.changes() => answer.choice,
            _ => default,
        };
        let case = |setting: usize| &plan.cases[setting].case;
        let mib = |setting: usize| case(setting).fusion_threshold_bytes as f64 / MIB;
        let gain = answer.as_ref().and_then(|answer| answer.others.get(&default));
        let time = |setting: usize| times.get(&setting).copied();
        let gain_true =
            answer.as_ref().and_then(|answer| Some(time(default)? / time(answer.choice)?));
        let steps = blocks * steps_per_block;
        Some(Run {
            workload: plan.workload.name.clone(),
            machine: String::new(),
            ranks: case(default).topology.ranks(),
            data_plane: case(default).algorithm.clone(),
            source: "measured",
            settings: plan.cases.len(),
            seed: plan.config.measure.seed,
            blocks,
            steps,
            share_of_grid: blocks as f64 / (grid_blocks * plan.cases.len()) as f64,
            share_of_horovod_steps: steps as f64 / HOROVOD_STEPS as f64,
            verdict: format!("{verdict:?}").to_lowercase(),
            chosen_mib: mib(chosen),
            chosen_cycle_ms: case(chosen).cycle_time_ms(),
            chosen_plane: case(chosen).control_plane.clone(),
            best_mib: mib(best),
            best_cycle_ms: case(best).cycle_time_ms(),
            best_plane: case(best).control_plane.clone(),
            regret: time(chosen)? / time(best)? - 1.0,
            default_regret: time(default)? / time(best)? - 1.0,
            gain: gain.map(|gain| gain.ratio),
            gain_low: gain.map(|gain| gain.low),
            gain_high: gain.map(|gain| gain.high),
            gain_true: gain_true.filter(|_| gain.is_some()),
            covered: gain
                .zip(gain_true)
                .map(|(gain, truth)| (gain.low..=gain.high).contains(&truth)),
        })
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

/// Seconds of each setting, and which is the fastest.
pub type Surveyed = (BTreeMap<usize, f64>, usize);

/// Measures every setting of a plan `rounds` times, in rounds in random order. Returns the median time of
/// each in seconds over the odd rounds, and the setting that is the fastest in the even ones: so the least of
/// many noisy times is not mistaken for the truth. None if no setting could be measured.
///
/// # Errors
/// When results cannot be written.
pub fn exhaust(
    settings: usize,
    rounds: usize,
    surface: &mut dyn Surface,
    random: &mut ChaCha8Rng,
) -> Result<Option<Surveyed>, RecordError> {
    let mut times: [BTreeMap<usize, Vec<f64>>; 2] = Default::default();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..settings).collect();
        order.shuffle(random);
        for setting in order {
            if let Ok(observed) = surface.block(setting)? {
                times[round % 2].entry(setting).or_default().push(observed.step_s);
            }
        }
    }
    let [even, odd] = times.map(|times| -> BTreeMap<usize, f64> {
        let middle = |(setting, times)| Some((setting, median(times)?));
        times.into_iter().filter_map(middle).collect()
    });
    let fastest = even.keys().copied().min_by(|a, b| even[a].total_cmp(&even[b]));
    Ok(fastest.map(|fastest| (odd, fastest)))
}

/// A surface seen through noise.
struct Noisy<'k> {
    known: &'k Known,
    config: &'k Config,
    random: ChaCha8Rng,
    drift: f64,
    used: usize,
}

impl Noisy<'_> {
    fn normal(&mut self, deviation: f64) -> f64 {
        let value: f64 = StandardNormal.sample(&mut self.random);
        value * deviation
    }
}

impl Surface for Noisy<'_> {
    fn block(&mut self, setting: usize) -> Result<Result<Observed, BlockError>, RecordError> {
        self.used += 1;
        let Noise { drift, memory, block, disturbed, disturbance, cost } = self.config.noise;
        let innovation = self.normal(drift * (1.0 - memory * memory).sqrt());
        self.drift = memory * self.drift + innovation;
        let own = self.normal(block);
        let mut factor = (self.drift + own).exp();
        if self.random.random_bool(disturbed) {
            factor *= self.random.random_range(1.0..disturbance);
        }
        // A block shows what its messages cost: as large as the threshold lets them be, and smaller ones.
        let known = self.known;
        let case = &known.plan.cases[setting].case;
        let sizes = known.plan.workload.gradients.iter();
        let sizes: Vec<f64> = sizes.map(|gradient| 4.0 * gradient.elements() as f64).collect();
        let (all, largest): (f64, f64) =
            (sizes.iter().sum(), sizes.iter().copied().fold(0.0, f64::max));
        let full = (case.fusion_threshold_bytes as f64).clamp(largest, all.max(largest));
        let mut messages = Vec::new();
        for size in [full, full / 2.0, largest] {
            let noise = self.normal(cost).exp();
            messages.push((size, known.data.time(size).at_s * noise));
        }
        let negotiation_s = known.negotiation_s[setting] * self.normal(cost).exp();
        Ok(Ok(Observed { step_s: known.times[setting] * factor, messages, negotiation_s }))
    }

    fn blocks_left(&self) -> usize {
        self.config.blocks.saturating_sub(self.used)
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
}
