//! Cases that both engines can run, and the random order of their blocks.

use std::path::{Path, PathBuf};

use algorithms::control::ReduceOp;
use measure::back_ends;
use measure::config::{Case, Config, Host, Scaling};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use results::provenance::Subject;
use results::toml_file::{Checked, ConfigError, ConfigProblem, Invalid, TomlFile};
use serde_json::json;
use thiserror::Error;
use transports::data_plane::MPI_ALLREDUCE;
use transports::transport::MPI;
use tune::space::{CACHED, UNCACHED};
use workloads::framework::{Compression, Framework};
use workloads::workload::Workload;

use crate::block::Runner;

/// The algorithm that stands for Gloo: its allreduce is a ring, with the options that Horovod chooses.
pub(crate) const RING: &str = "ring";

/// The fewest steps of a block that a sweep of one block ranks.
const LEAST_STEPS: usize = 6;

/// A configuration whose cases are compared.
pub struct Origin {
    /// Its file's name without the extension.
    pub name: String,
    /// What it says.
    pub config: Config,
    /// Its gradients.
    pub workload: Workload,
    /// Where they were read.
    pub workload_path: PathBuf,
    /// How long Horovod's threads are busy with each gradient and message.
    pub host: Host,
}

impl Origin {
    /// Reads a configuration of training steps, and its workload.
    ///
    /// # Errors
    /// When the file is not such a configuration, or its workload cannot be read.
    pub fn read(file: &TomlFile) -> Result<Origin, ConfigError> {
        let config = Config::of(file)?;
        let workload_path = config.workload_path(&file.path);
        let workload = Workload::read(&workload_path)
            .map_err(|error| file.refuse(ConfigProblem::unusable(error)))?;
        if config.step.scaling != Scaling::Weak {
            let found = format!("\"{}\"", config.step.scaling);
            return Err(file.refuse(Invalid::value("step.scaling", found, "\"weak\"")));
        }
        let steps = config.measure.steps_per_block;
        let is_compared = |case: &Case| unrepresented(&config, case).is_none();
        if steps < LEAST_STEPS && config.cases().iter().any(is_compared) {
            let expected = format!("at least {LEAST_STEPS}, for the median of a block");
            let invalid = Invalid::value("measure.steps_per_block", steps, expected);
            return Err(file.refuse(invalid));
        }
        for case in config.cases() {
            let groups = case.varied.apply(&config.framework).groups(&workload, None);
            groups.map_err(|invalid| file.refuse(invalid))?;
        }
        let name = file.path.file_stem().unwrap_or(file.path.as_os_str());
        let host = config.host;
        let name = name.to_string_lossy().into_owned();
        Ok(Origin { name, config, workload, workload_path, host })
    }
}

/// Why Horovod cannot run a case as the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unrepresented {
    /// Horovod's processes are connected by MPI.
    #[error("Horovod runs over MPI here; choose transport = [\"{MPI}\"]")]
    Transport,
    /// Horovod's allreduce on processors is MPI's or Gloo's.
    #[error(
        "Horovod calls MPI_Allreduce, or Gloo, which is a ring; choose algorithm = [\"{MPI_ALLREDUCE}\", \"{RING}\"]"
    )]
    Algorithm,
    /// It is another framework's.
    #[error("Horovod has the control planes {UNCACHED} and {CACHED}")]
    ControlPlane,
    /// Horovod has no such compression.
    #[error("Horovod has no compression \"bf16\"")]
    Compression,
    /// TensorFlow alone has it.
    #[error("Horovod with PyTorch has no average_aggregated_gradients")]
    AverageAggregated,
    /// The script of Horovod's steps averages.
    #[error("Horovod's steps are replayed with op = \"average\" and dtype f32, f64 or f16")]
    Data,
}

/// One setting that both engines run.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The position of its configuration in the plan.
    pub origin: usize,
    /// The setting.
    pub case: Case,
    /// Its name, unique in the plan: `quick:mpi/1x2/bitvector/mpi-allreduce/64MiB/1ms`.
    pub name: String,
    /// Who runs it.
    pub runners: Vec<Runner>,
}

impl Compared {
    /// Whether Horovod runs it with Gloo's allreduce in place of MPI's.
    pub fn is_over_gloo(&self) -> bool {
        self.case.algorithm == RING
    }

    /// What Horovod's optimizer is asked for.
    pub fn framework(&self, origin: &Origin) -> Framework {
        self.case.varied.apply(&origin.config.framework)
    }
}

/// Cases of several configurations.
pub struct Plan {
    /// The configurations.
    pub origins: Vec<Origin>,
    /// Cases that are compared.
    pub cases: Vec<Compared>,
    /// Why cases are left out, and how many for each reason.
    pub left_out: Vec<(Unrepresented, usize)>,
    /// What else the comparison depends on: launcher, versions.
    pub conditions: Vec<String>,
}

/// One entry of the order: a case, who runs it, and in which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The position of the case.
    pub case: usize,
    /// Who runs it.
    pub runner: Runner,
    /// The block, from 0.
    pub block: usize,
}

/// Random numbers of further rounds, apart from those of configurations.
const FURTHER: u64 = 1 << 32;

impl Plan {
    /// The cases of configurations, those left out that Horovod cannot run.
    pub fn new(origins: Vec<Origin>) -> Plan {
        let (mut cases, mut left_out) = (Vec::new(), Vec::<(Unrepresented, usize)>::new());
        for (index, origin) in origins.iter().enumerate() {
            for case in origin.config.cases() {
                let name = format!("{}:{case}", origin.name);
                let Some(why) = unrepresented(&origin.config, &case) else {
                    let runners = Runner::ALL.into();
                    cases.push(Compared { origin: index, case, name, runners });
                    continue;
                };
                match left_out.iter_mut().find(|(other, _)| *other == why) {
                    Some((_, count)) => *count += 1,
                    None => left_out.push((why, 1)),
                }
            }
        }
        Plan { origins, cases, left_out, conditions: Vec::new() }
    }

    /// The configuration of a case.
    pub fn origin(&self, case: &Compared) -> &Origin {
        &self.origins[case.origin]
    }

    /// How many blocks a case has of each runner, at least.
    pub fn blocks(&self, case: &Compared) -> usize {
        self.origin(case).config.measure.blocks_min
    }

    /// How many it has at most, if some do not count.
    pub fn blocks_max(&self, case: &Compared) -> usize {
        self.origin(case).config.measure.blocks_max
    }

    /// Every turn, in random order: in each round every case comes once, and its runners one after the other.
    pub fn order(&self) -> Vec<Turn> {
        self.shuffled((0..self.cases.len()).collect(), 0)
    }

    /// The turns of one configuration alone, in an order that does not depend on the others.
    pub fn order_of(&self, origin: usize) -> Vec<Turn> {
        let is_of_origin = |&case: &usize| self.cases[case].origin == origin;
        self.shuffled((0..self.cases.len()).filter(is_of_origin).collect(), origin as u64)
    }

    /// One more block of each of these cases by Horovod, in random order.
    pub fn again(&self, mut cases: Vec<usize>, block: usize) -> Vec<Turn> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed());
        random.set_stream(u64::MAX - block as u64);
        cases.shuffle(&mut random);
        let turn = |case| Turn { case, runner: Runner::Horovod, block };
        cases.into_iter().map(turn).collect()
    }

    /// A round of these cases by all of their runners, in random order. With each case the number of its block.
    pub fn further_round(&self, cases: Vec<(usize, usize)>) -> Vec<Turn> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed());
        let latest = cases.iter().map(|&(_, block)| block).max().unwrap_or_default();
        random.set_stream(FURTHER | latest as u64);
        self.round(cases, &mut random)
    }

    fn shuffled(&self, cases: Vec<usize>, stream: u64) -> Vec<Turn> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed());
        random.set_stream(stream);
        let blocks = cases.iter().map(|&case| self.blocks(&self.cases[case]));
        let rounds = blocks.max().unwrap_or_default();
        let mut turns = Vec::new();
        for block in 0..rounds {
            let mut cases = cases.clone();
            cases.retain(|&case| block < self.blocks(&self.cases[case]));
            let cases = cases.into_iter().map(|case| (case, block)).collect();
            turns.extend(self.round(cases, &mut random));
        }
        turns
    }

    fn round(&self, mut cases: Vec<(usize, usize)>, random: &mut ChaCha8Rng) -> Vec<Turn> {
        cases.shuffle(random);
        let mut turns = Vec::new();
        for (case, block) in cases {
            let mut runners = self.cases[case].runners.clone();
            runners.shuffle(random);
            turns.extend(runners.into_iter().map(|runner| Turn { case, runner, block }));
        }
        turns
    }
}

impl Subject for Plan {
    fn config(&self) -> serde_json::Value {
        let configs = self.origins.iter().map(|origin| json!({ &origin.name: origin.config }));
        json!({ "configs": configs.collect::<Vec<_>>(), "conditions": self.conditions })
    }

    fn seed(&self) -> u64 {
        self.origins.first().map_or(1, |origin| origin.config.measure.seed)
    }

    fn workload_digest(&self) -> String {
        let digests = self.origins.iter().map(|origin| origin.workload.digest());
        digests.collect::<Vec<_>>().join(" ")
    }
}

fn unrepresented(config: &Config, case: &Case) -> Option<Unrepresented> {
    let framework = case.varied.apply(&config.framework);
    if case.transport != back_ends::default_of_processes() {
        Some(Unrepresented::Transport)
    } else if ![MPI_ALLREDUCE, RING].contains(&&*case.algorithm) {
        Some(Unrepresented::Algorithm)
    } else if ![CACHED, UNCACHED].contains(&&*case.control_plane) {
        Some(Unrepresented::ControlPlane)
    } else if framework.compression == Compression::Bf16 {
        Some(Unrepresented::Compression)
    } else if framework.average_aggregated_gradients {
        Some(Unrepresented::AverageAggregated)
    } else if config.op() != ReduceOp::Average || dtype_name(config).is_none() {
        Some(Unrepresented::Data)
    } else {
        None
    }
}

/// The element type as PyTorch calls it.
pub(crate) fn dtype_name(config: &Config) -> Option<&'static str> {
    match config.dtype().name() {
        "f32" => Some("float32"),
        "f64" => Some("float64"),
        "f16" => Some("float16"),
        _ => None,
    }
}

/// The name of a folder of results for these configurations.
pub fn folder_name(started: &str, program: &str, origins: &[Origin]) -> PathBuf {
    let names: Vec<&str> = origins.iter().map(|origin| origin.name.as_str()).collect();
    let started = started.replace(':', "");
    Path::new("results").join(format!("{started}-against-{program}-{}", names.join("-")))
}
