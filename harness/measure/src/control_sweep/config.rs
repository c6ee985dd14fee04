//! A sweep of control planes as written in TOML: a base, and one thing at a time that is varied.

use std::collections::BTreeMap;
use std::fmt;

use algorithms::control::{self, bitvector};
use serde::{Deserialize, Serialize};

use super::transport::Transport;
use crate::environment::{Environment, MOST_CACHE_CAPACITY, MOST_FUSION_THRESHOLD_BYTES};
use results::toml_file::{Checked, Invalid, control_plane, not_empty, within};
use results::units::MIB;
use simulator::network::Network;

/// The largest world in one process.
const MOST_RANKS: usize = 100_000;

/// The largest world of threads.
const MOST_THREADS: usize = 64;

/// The most tensors of a step.
const MOST_TENSORS: usize = 100_000;

/// The most steps of a case.
const MOST_STEPS: usize = 10_000;

/// A sweep of control planes. Its table `control` distinguishes it from a sweep of training steps. Unknown keys
/// are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The control planes, and the conditions.
    pub control: Control,
    /// Parameters of the computed time on a network.
    #[serde(default)]
    pub network: Network,
    /// How long each case is measured.
    #[serde(default)]
    pub measure: Measure,
}

/// The control planes, and the conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Control planes; each gets every condition.
    pub plane: Vec<String>,
    /// The condition that the others are compared with.
    pub base: Base,
    /// Other values, one at a time.
    #[serde(default)]
    pub vary: Vary,
}

/// The condition that the others are compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// World size, in one thread.
    pub ranks: usize,
    /// Tensors that become ready in a step.
    pub tensors: Source,
    /// Their order.
    #[serde(default)]
    pub ready_order: ReadyOrder,
    /// Responses that the bit-vector plane remembers.
    #[serde(default = "default_capacity")]
    pub cache_capacity: usize,
    /// Share of a step's tensors whose names are new.
    #[serde(default)]
    pub miss_share: f64,
    /// Share of a step's tensors that have another shape than in the step before.
    #[serde(default)]
    pub invalid_share: f64,
    /// Size of fused messages in MiB; 0 turns fusion off.
    #[serde(default = "default_threshold")]
    pub fusion_threshold_mib: f64,
}

fn default_capacity() -> usize {
    Environment::default().cache_capacity.value
}

fn default_threshold() -> f64 {
    Environment::default().fusion_threshold_bytes.value as f64 / MIB
}

/// The axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "see `Base`")]
pub struct Vary {
    pub ranks: Vec<usize>,
    /// World sizes on real threads.
    pub thread_ranks: Vec<usize>,
    pub tensors: Vec<Source>,
    pub ready_order: Vec<ReadyOrder>,
    pub cache_capacity: Vec<usize>,
    pub miss_share: Vec<f64>,
    pub invalid_share: Vec<f64>,
}

/// The source of a step's tensors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a workload's name, or a number of synthetic tensors")]
pub enum Source {
    /// A number of tensors, with names of typical length.
    Synthetic(usize),
    /// A model in `workloads/` beside the configuration, or the path of a CSV file or a timeline.
    Workload(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Synthetic(count) => write!(f, "synthetic-{count}"),
            Source::Workload(name) => write!(f, "{name}"),
        }
    }
}

/// The order in which a step's tensors become ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadyOrder {
    /// That of the workload, on every rank.
    #[default]
    Same,
    /// Another one on every rank and in every step, at random.
    Shuffled,
}

impl ReadyOrder {
    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            ReadyOrder::Same => "same",
            ReadyOrder::Shuffled => "shuffled",
        }
    }
}

/// How long each case is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Steps of the warm-up; the first is reported separately.
    pub warmup_steps: usize,
    /// The fewest measured steps of a case.
    pub steps_min: usize,
    /// The most measured steps of a case.
    pub steps_max: usize,
    /// No step of a case begins after this time, once it has its minimum.
    pub budget_seconds: f64,
    /// The timeout of a thread that waits for another. The case then fails.
    #[serde(alias = "patience_seconds")]
    pub timeout_seconds: f64,
    /// Seed of the order of cases, and of the orders of readiness.
    pub seed: u64,
}

impl Default for Measure {
    fn default() -> Measure {
        Measure {
            warmup_steps: 2,
            steps_min: 6,
            steps_max: 100,
            budget_seconds: 1.0,
            timeout_seconds: 60.0,
            seed: 1,
        }
    }
}

/// One combination of settings, which becomes one row.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "see `Base`")]
pub struct Case {
    pub transport: Transport,
    pub ranks: usize,
    /// Control plane.
    pub plane: String,
    pub source: Source,
    pub ready_order: ReadyOrder,
    pub cache_capacity: usize,
    pub miss_share: f64,
    pub invalid_share: f64,
}

impl fmt::Display for Case {
    /// The case's name: `lockstep/6000/bitvector/resnet50/same/cache-1024/miss-0/invalid-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { transport, ranks, plane, source, cache_capacity, .. } = self;
        let (order, miss, invalid) = (self.ready_order.name(), self.miss_share, self.invalid_share);
        write!(
            f,
            "{transport}/{ranks}/{plane}/{source}/{order}/cache-{cache_capacity}/miss-{miss}\
             /invalid-{invalid}"
        )
    }
}

impl Case {
    /// True for planes whose messages are fixed in advance.
    pub fn is_static(&self) -> bool {
        let base = self.plane.split(':').next();
        base == Some(control::buckets::DDP) || base == Some(control::buckets::PACKS)
    }

    /// The reason why there is no such case; none if there is one.
    pub fn unsupported(&self) -> Option<String> {
        let changes = self.miss_share > 0.0 || self.invalid_share > 0.0;
        (self.is_static() && changes).then(|| {
            format!(
                "{} reduces the same tensors in every step; new names or shapes are unsupported",
                self.plane
            )
        })
    }
}

impl Config {
    /// Fusion threshold.
    pub fn fusion_threshold_bytes(&self) -> usize {
        (self.control.base.fusion_threshold_mib * MIB).round() as usize
    }

    /// Every source of tensors, once.
    pub fn sources(&self) -> Vec<&Source> {
        let mut sources: Vec<_> =
            [&self.control.base.tensors].into_iter().chain(&self.control.vary.tensors).collect();
        sources.sort();
        sources.dedup();
        sources
    }

    /// Every case, in the order of the configuration: for each plane the base, then whatever differs
    /// from it in one thing.
    pub fn cases(&self) -> Vec<Case> {
        let Control { plane, base, vary } = &self.control;
        let mut cases: Vec<Case> = Vec::new();
        for plane in plane {
            let base = Case {
                transport: Transport::Lockstep,
                ranks: base.ranks,
                plane: control::spelling(plane).expect("the configuration was checked"),
                source: base.tensors.clone(),
                ready_order: base.ready_order,
                cache_capacity: base.cache_capacity,
                miss_share: base.miss_share,
                invalid_share: base.invalid_share,
            };
            let mut add = |change: &dyn Fn(&mut Case)| {
                let mut case = base.clone();
                change(&mut case);
                if !cases.contains(&case) {
                    cases.push(case);
                }
            };
            add(&|_| ());
            vary.ranks.iter().for_each(|&ranks| add(&|case| case.ranks = ranks));
            for &ranks in &vary.thread_ranks {
                add(&|case| (case.transport, case.ranks) = (Transport::Threads, ranks));
            }
            vary.tensors.iter().for_each(|source| add(&|case| case.source = source.clone()));
            vary.ready_order.iter().for_each(|&order| add(&|case| case.ready_order = order));
            if base.plane == bitvector::NAME {
                let capacities = vary.cache_capacity.iter();
                capacities.for_each(|&capacity| add(&|case| case.cache_capacity = capacity));
            }
            vary.miss_share.iter().for_each(|&share| add(&|case| case.miss_share = share));
            vary.invalid_share.iter().for_each(|&share| add(&|case| case.invalid_share = share));
        }
        cases
    }
}

impl Checked for Config {
    fn check(&self) -> Result<(), Invalid> {
        let Control { plane: planes, base, vary } = &self.control;
        not_empty("control.plane", planes.len())?;
        let mut spellings = BTreeMap::new();
        for name in planes {
            let spelling = control_plane("control.plane", name)?;
            if let Some(other) = spellings.insert(spelling, name) {
                let (key, found) =
                    (format!("control.plane \"{name}\""), format!("\"{other}\" again"));
                let twice = Invalid::value(key, found, "each control plane once");
                return Err(twice.with_advice("remove one of them"));
            }
        }
        let each = |key, values: &[usize], least, most| {
            values.iter().try_for_each(|value| within(key, *value as f64, least, most))
        };
        let ranks = MOST_RANKS as f64;
        each("control.base.ranks", &[base.ranks], 1.0, ranks)?;
        each("control.vary.ranks", &vary.ranks, 1.0, ranks)?;
        each("control.vary.thread_ranks", &vary.thread_ranks, 1.0, MOST_THREADS as f64)?;
        let capacity = MOST_CACHE_CAPACITY as f64;
        each("control.base.cache_capacity", &[base.cache_capacity], 0.0, capacity)?;
        each("control.vary.cache_capacity", &vary.cache_capacity, 0.0, capacity)?;
        for source in self.sources() {
            if let Source::Synthetic(count) = source {
                within("control: tensors", *count as f64, 1.0, MOST_TENSORS as f64)?;
            }
        }
        for case in self.cases() {
            let together = case.miss_share + case.invalid_share;
            within("control: miss_share", case.miss_share, 0.0, 1.0)?;
            within("control: invalid_share", case.invalid_share, 0.0, 1.0)?;
            within("control: miss_share and invalid_share together", together, 0.0, 1.0)?;
        }
        let threshold = MOST_FUSION_THRESHOLD_BYTES as f64 / MIB;
        within("control.base.fusion_threshold_mib", base.fusion_threshold_mib, 0.0, threshold)?;
        let Network { alpha_us, message_us, bandwidth_gb_s } = self.network;
        within("network.alpha_us", alpha_us, 0.0, 1e6)?;
        within("network.message_us", message_us, 0.0, 1e6)?;
        within("network.bandwidth_gb_s", bandwidth_gb_s, 1e-3, 1e6)?;
        let measure = &self.measure;
        let steps = MOST_STEPS as f64;
        // The cache is empty in the first step.
        within("measure.warmup_steps", measure.warmup_steps as f64, 1.0, steps)?;
        within("measure.steps_min", measure.steps_min as f64, 1.0, steps)?;
        within("measure.steps_max", measure.steps_max as f64, measure.steps_min as f64, steps)?;
        within("measure.budget_seconds", measure.budget_seconds, 1e-3, 1e5)?;
        within("measure.timeout_seconds", measure.timeout_seconds, 0.0, 1e5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[control]\nplane = [\"coordinator\", \"bitvector\", \"ddp\"]\n\
                          [control.base]\nranks = 96\ntensors = \"resnet50\"\n[control.vary]\n\
                          ranks = [6, 96]\nthread_ranks = [2]\ntensors = [1000]\n\
                          ready_order = [\"same\", \"shuffled\"]\ncache_capacity = [0, 1024]\n\
                          miss_share = [0, 0.1]\ninvalid_share = [0.02]\n";

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| error.problem.to_string())
    }

    #[test]
    fn one_thing_is_varied_at_a_time() {
        let cases: Vec<String> =
            read(CONFIG).unwrap().cases().iter().map(Case::to_string).collect();
        let of = |plane| cases.iter().filter(|case| case.contains(plane)).collect::<Vec<_>>();
        assert_eq!(
            of("bitvector"),
            [
                "lockstep/96/bitvector/resnet50/same/cache-1024/miss-0/invalid-0",
                "lockstep/6/bitvector/resnet50/same/cache-1024/miss-0/invalid-0",
                "threads/2/bitvector/resnet50/same/cache-1024/miss-0/invalid-0",
                "lockstep/96/bitvector/synthetic-1000/same/cache-1024/miss-0/invalid-0",
                "lockstep/96/bitvector/resnet50/shuffled/cache-1024/miss-0/invalid-0",
                "lockstep/96/bitvector/resnet50/same/cache-0/miss-0/invalid-0",
                "lockstep/96/bitvector/resnet50/same/cache-1024/miss-0.1/invalid-0",
                "lockstep/96/bitvector/resnet50/same/cache-1024/miss-0/invalid-0.02",
            ]
        );
        assert_eq!(of("coordinator").len(), 7, "it has no cache");
    }

    #[test]
    fn static_buckets_refuse_changing_tensors() {
        let unsupported = read(CONFIG).unwrap().cases();
        let unsupported = unsupported.iter().filter(|case| case.unsupported().is_some());
        let planes: Vec<_> = unsupported.map(|case| case.plane.as_str()).collect();
        assert_eq!(planes, ["ddp", "ddp"]);
    }

    #[test]
    fn invalid_configurations_are_refused() {
        for (from, to, expected) in [
            ("\"ddp\"", "\"dpd\"", "control.plane is \"dpd\", expected one of coordinator,"),
            (
                "\"ddp\"",
                "\"tree\", \"tree:4\"",
                "control.plane \"tree:4\" is \"tree\" again, expected each",
            ),
            ("ranks = 96", "ranks = 0", "control.base.ranks is 0, expected 1 to 100000"),
            ("[2]", "[65]", "control.vary.thread_ranks is 65, expected 1 to 64"),
            ("[1000]", "[0]", "control: tensors is 0, expected 1 to 100000"),
            ("[1000]", "[true]", "line 9: expected a workload's name, or a number of synthetic"),
            ("[0, 0.1]", "[1.5]", "control: miss_share is 1.5, expected 0 to 1"),
            ("[0, 0.1]", "[nan]", "control: miss_share is NaN, expected 0 to 1"),
            ("\"shuffled\"", "\"random\"", "line 10: unknown variant `random`, expected `same`"),
            ("[control.vary]", "[control.vary]\nrank = 1", "line 7: unknown field `rank`"),
            ("[control.base]", "[mesure]\n[control.base]", "line 3: unknown field `mesure`"),
            (
                "[control.base]",
                "[measure]\nwarmup_steps = 0\n[control.base]",
                "measure.warmup_steps is 0, expected 1 to 10000",
            ),
            (
                "[control.base]",
                "[measure]\nsteps_max = 3\n[control.base]",
                "measure.steps_max is 3, expected 6 to 10000",
            ),
            (
                "[control.base]",
                "[network]\nbandwidth_gb_s = 0\n[control.base]",
                "network.bandwidth_gb_s is 0, expected 0.001 to 1000000",
            ),
        ] {
            assert!(CONFIG.contains(from), "{from}");
            let problem = read(&CONFIG.replacen(from, to, 1)).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}\nexpected {expected}");
        }
    }
}
