//! A simulated sweep as written in TOML: models x policies x world sizes on one machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::data_plane::{Engine, check_name};
use super::jitter::Jitter;
use super::policy::Policy;
use results::toml_file::{Checked, Invalid, not_empty, within};
use workloads::framework::Compression;

/// A simulated sweep. Its table `simulate` distinguishes it from a measured one. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The machine, and the numbers of runs.
    pub simulate: Simulate,
    /// How ranks differ.
    #[serde(default)]
    pub jitter: Jitter,
    /// The models.
    pub model: Vec<Model>,
    /// The policies that reduce gradients.
    pub policy: Vec<Policy>,
    /// Single allreduces, to find the fastest algorithm for each size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossover: Option<Crossover>,
    /// Published ratios to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<Claim>,
}

/// The machine, and the numbers of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulate {
    /// A file in `machines/` beside the configuration, or a path.
    pub machine: String,
    /// World sizes, ascending.
    pub ranks: Vec<usize>,
    /// Scaling efficiency is relative to the throughput per rank of this world.
    pub base_ranks: usize,
    /// Seeds per case.
    #[serde(default = "default_seeds")]
    pub seeds: usize,
    /// ... from this one on ...
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Steps of the warm-up per seed.
    #[serde(default = "default_warmup")]
    pub warmup_steps: usize,
    /// Measured steps per seed.
    #[serde(default = "default_steps")]
    pub steps: usize,
    /// The engine for this project's schedules.
    #[serde(default)]
    pub engine: Engine,
    /// Up to this world size every rank's state machine is driven; of larger ones some.
    #[serde(default)]
    pub drive_all_up_to: usize,
    /// Intervals contain what all parameters of the machine together change at either end of their ranges.
    #[serde(default)]
    pub vary_parameters: bool,
}

impl Simulate {
    /// These world sizes on a machine, with defaults for every other key.
    ///
    /// # Panics
    /// When there is no world size.
    pub fn new(machine: &str, ranks: Vec<usize>) -> Simulate {
        Simulate {
            machine: machine.into(),
            base_ranks: ranks[0],
            ranks,
            seeds: default_seeds(),
            seed: default_seed(),
            warmup_steps: default_warmup(),
            steps: default_steps(),
            engine: Engine::default(),
            drive_all_up_to: 0,
            vary_parameters: false,
        }
    }
}

fn default_seeds() -> usize {
    7
}

fn default_seed() -> u64 {
    1
}

fn default_warmup() -> usize {
    2
}

fn default_steps() -> usize {
    5
}

/// A model, with its times on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// A model in `workloads/` beside the configuration, or the path of a CSV file or a timeline.
    pub workload: String,
    /// Samples per rank and step.
    pub batch: usize,
    /// Forward pass.
    pub forward_ms: f64,
    /// Backward pass.
    pub backward_ms: f64,
    /// Optimizer.
    #[serde(default)]
    pub optimizer_ms: f64,
    /// Type to which gradients are cast.
    #[serde(default)]
    pub compression: Compression,
    /// The source of batch size and times.
    pub source: String,
}

/// Allreduces alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossover {
    /// Algorithms. If one has no schedule for a world, its row has the reason.
    pub algorithm: Vec<String>,
    /// World sizes.
    pub ranks: Vec<usize>,
    /// Sizes of the buffer per rank: each power of two from 2^a to 2^b bytes.
    pub size_log2: (u32, u32),
    /// As in [`Policy`].
    #[serde(default)]
    pub segment_kib: f64,
}

/// One combination of settings, which becomes one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case<'c> {
    /// The model.
    pub model: &'c Model,
    /// The policy that reduces gradients.
    pub policy: &'c Policy,
    /// World size.
    pub ranks: usize,
}

impl fmt::Display for Case<'_> {
    /// The case's name: `summit/6000/bitvector/resnet50` without the machine.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.ranks, self.policy.name, self.model.workload)
    }
}

impl Config {
    /// One model with some policies.
    pub fn plain(simulate: Simulate, model: Model, policy: Vec<Policy>) -> Config {
        let jitter = Jitter::default();
        Config { simulate, jitter, model: vec![model], policy, crossover: None, claim: Vec::new() }
    }

    /// Every case, in the order of the configuration.
    pub fn cases(&self) -> Vec<Case<'_>> {
        let of = |model, policy| {
            self.simulate.ranks.iter().map(move |&ranks| Case { model, policy, ranks })
        };
        let of_model = |model| self.policy.iter().flat_map(move |policy| of(model, policy));
        self.model.iter().flat_map(of_model).collect()
    }

    /// The policy of that name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policy.iter().find(|policy| policy.name == name)
    }
}

impl Checked for Config {
    fn check(&self) -> Result<(), Invalid> {
        let Simulate { ranks, base_ranks, seeds, steps, warmup_steps, .. } = &self.simulate;
        if ranks.is_empty() || !ranks.is_sorted_by(|a, b| a < b) {
            let expected = "world sizes in ascending order";
            return Err(Invalid::value("simulate.ranks", format!("{ranks:?}"), expected));
        }
        if !ranks.contains(base_ranks) {
            let expected = format!("one of simulate.ranks ({ranks:?})");
            return Err(Invalid::value("simulate.base_ranks", base_ranks, expected));
        }
        within("simulate.seeds", *seeds as f64, 1.0, 1000.0)?;
        within("simulate.steps", *steps as f64, 1.0, 1000.0)?;
        within("simulate.warmup_steps", *warmup_steps as f64, 1.0, 1000.0)?;
        self.jitter.check()?;
        not_empty("model", self.model.len())?;
        not_empty("policy", self.policy.len())?;
        for model in &self.model {
            let key = |field: &str| format!("model \"{}\": {field}", model.workload);
            within(&key("batch"), model.batch as f64, 1.0, 1e6)?;
            within(&key("forward_ms"), model.forward_ms, 0.0, 1e7)?;
            within(&key("backward_ms"), model.backward_ms, 1e-3, 1e7)?;
            within(&key("optimizer_ms"), model.optimizer_ms, 0.0, 1e7)?;
        }
        for (index, policy) in self.policy.iter().enumerate() {
            policy.check()?;
            if self.policy[..index].iter().any(|other| other.name == policy.name) {
                let key = format!("policy \"{}\"", policy.name);
                let twice = Invalid::value(key, "given twice", "once");
                return Err(twice.with_advice("give each policy a name of its own"));
            }
        }
        if let Some(crossover) = &self.crossover {
            crossover.check()?;
        }
        self.claim.iter().try_for_each(|claim| claim.check(self))
    }
}

impl Crossover {
    fn check(&self) -> Result<(), Invalid> {
        let (from, to) = self.size_log2;
        not_empty("crossover.algorithm", self.algorithm.len())?;
        for name in &self.algorithm {
            check_name(name).map_err(|cause| Invalid::because("crossover.algorithm", cause))?;
        }
        not_empty("crossover.ranks", self.ranks.len())?;
        within("crossover.size_log2", f64::from(from), 0.0, f64::from(to))?;
        within("crossover.size_log2", f64::from(to), 0.0, 34.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMIT: &str = include_str!("../../../configs/summit-scaling.toml");

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| error.problem.to_string())
    }

    #[test]
    fn shipped_configurations_are_read() {
        let config = read(SUMMIT).unwrap();
        let cases = config.cases();
        let sizes = config.simulate.ranks.len();
        assert_eq!(cases.len(), config.model.len() * config.policy.len() * sizes);
        assert_eq!(cases[0].to_string(), "6/horovod-coordinator/resnet50");
        read(include_str!("../../../configs/paper-claims.toml")).unwrap();
    }

    #[test]
    fn invalid_configurations_are_refused() {
        for (from, to, expected) in [
            (
                "base_ranks = 6",
                "base_ranks = 7",
                "simulate.base_ranks is 7, expected one of simulate.ranks ([6, ",
            ),
            ("ranks = [6,", "ranks = [7, 6,", "simulate.ranks is [7, 6, "),
            ("seeds = ", "seeds = 0 # ", "simulate.seeds is 0, expected 1 to 1000"),
            ("batch = ", "batch = 0 # ", "model \"resnet50\": batch is 0, expected 1 to 1000000"),
            (
                "\"coordinator\"",
                "\"star\"",
                "policy \"horovod-coordinator\": control_plane is \"star\", expected one of coordinator",
            ),
            (
                "cycle_time_ms = 5",
                "cycle_time_ms = -5",
                "policy \"horovod-coordinator\": cycle_time_ms is -5, expected 0 to 10000",
            ),
            ("[simulate]", "[jitter]\ncv = 3\n[simulate]", "jitter.cv is 3, expected 0 to 1"),
            ("[simulate]", "[simulate]\nmachines = 1", "unknown field `machines`"),
            (
                "name = \"ddp\"",
                "name = \"horovod-coordinator\"",
                "policy \"horovod-coordinator\" is given twice, expected once; give each policy",
            ),
        ] {
            assert!(SUMMIT.contains(from), "{from}");
            let problem = read(&SUMMIT.replacen(from, to, 1)).unwrap_err();
            assert!(problem.contains(expected), "{problem}\nexpected {expected}");
        }
    }
}
