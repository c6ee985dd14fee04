//! How far a model scales on a machine: the largest world that reaches an efficiency, what is lost there, and what one
//! change would bring.
//!
//! Efficiency is the throughput over that of as many GPUs that train alone, each at the mean pace: the share of
//! computation in a step.

mod change;
mod text;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Config, Model, Simulate};
use crate::machine_file::MachineFile;
use crate::policy::Policy;
use crate::published::{Group, Residuals};
use crate::range::{deviations, together};
use crate::sweep::{CaseError, Plan, Simulated};
use crate::training::Step;
use results::statistics::Summary;
use workloads::workload::Workload;

/// A model on a machine.
#[derive(Clone, Debug)]
pub struct Question {
    /// The machine.
    pub machine: MachineFile,
    /// The gradients.
    pub workload: Workload,
    /// Times on one rank.
    pub model: Model,
    /// How gradients are reduced.
    pub policy: Policy,
    /// The efficiency that is wanted, above 0 and below 1.
    pub target: f64,
    /// The largest world to simulate; none: the whole machine.
    pub up_to: Option<usize>,
    /// How far published efficiencies are from simulated ones; ranges reach as far.
    pub residuals: Residuals,
}

/// One world size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct World {
    /// Its ranks.
    pub ranks: usize,
    /// The median over seeds.
    pub efficiency: f64,
    /// With seeds, and each parameter of the machine, at their ends, and as far as published efficiencies are from simulated
    /// ones.
    pub range: (f64, f64),
}

/// How far an efficiency is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Not by the smallest world.
    Nowhere,
    /// Up to that many ranks.
    UpTo(usize),
    /// By the largest world, too.
    Everywhere,
}

/// Part of a step without computation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Loss {
    /// What it is.
    pub what: &'static str,
    /// In parts of the step.
    pub share: f64,
}

/// One thing that is otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Changed {
    /// What it is.
    pub what: String,
    /// The efficiency with it.
    pub efficiency: f64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Answer {
    /// The efficiency that is wanted.
    pub target: f64,
    /// Each world, ascending.
    pub worlds: Vec<World>,
    /// How far it is reached: by the medians, by the lower ends of the ranges, and by the upper ones.
    pub reach: [Reach; 3],
    /// The world of losses and changes: the first that misses the target, or else the largest.
    pub at: World,
    /// What is lost there, the most first.
    pub losses: Vec<Loss>,
    /// Changes there, the best first.
    pub changes: Vec<Changed>,
}

/// Seeds of a value ...
const SEEDS: usize = 7;
/// ... and of the ends of its range.
const FEW_SEEDS: usize = 1;

impl Question {
    /// Simulates one node, two, four and so on, up to the whole machine.
    ///
    /// # Errors
    /// When a world cannot be simulated.
    pub fn answer(&self, progress: impl Fn() + Sync) -> Result<Answer, CaseError> {
        let all = self.sizes();
        let world = |&ranks: &usize| {
            let world = self.world(ranks);
            progress();
            world
        };
        let worlds: Vec<World> = all.par_iter().map(world).collect::<Result<_, _>>()?;
        let local_size = self.machine.node.ranks;
        let reached = |value: fn(&World) -> f64| reach(&worlds, self.target, local_size, value);
        let reach = [
            reached(|world| world.efficiency),
            reached(|world| world.range.0),
            reached(|world| world.range.1),
        ];
        let misses = |world: &&World| world.efficiency < self.target;
        let at = *worlds.iter().find(misses).or(worlds.last()).expect("a machine has a node");
        let losses = losses(&self.simulated(&self.machine, at.ranks, SEEDS)?);
        let changes = self.changes(at.ranks);
        Ok(Answer { target: self.target, worlds, reach, at, losses, changes })
    }

    /// World sizes to simulate.
    pub fn sizes(&self) -> Vec<usize> {
        let node = &self.machine.node;
        let most = self.up_to.unwrap_or(usize::MAX).min(node.ranks * node.nodes);
        let doubled = std::iter::successors(Some(node.ranks), |ranks| Some(2 * ranks));
        let mut sizes: Vec<usize> = doubled.take_while(|&ranks| ranks < most).collect();
        // Whole nodes, or a part of one.
        let last = if most > node.ranks { most - most % node.ranks } else { most };
        sizes.retain(|&ranks| ranks < last);
        sizes.push(last);
        sizes
    }

    /// A plan of all world sizes, with the seeds of their values.
    pub fn whole_plan(&self) -> Plan {
        self.plan(&self.machine, self.sizes(), SEEDS)
    }

    fn plan(&self, machine: &MachineFile, ranks: Vec<usize>, seeds: usize) -> Plan {
        let simulate = Simulate { seeds, ..Simulate::new(&machine.name, ranks) };
        let config = Config::plain(simulate, self.model.clone(), vec![self.policy.clone()]);
        Plan::of(config, machine.clone(), vec![self.workload.clone()])
    }

    fn world(&self, ranks: usize) -> Result<World, CaseError> {
        let seeds = efficiencies(&self.simulated(&self.machine, ranks, SEEDS)?);
        let seeds = Summary::of(&seeds).expect("there is a seed");
        let (below, above) = deviations(&self.machine, |machine| -> Result<f64, CaseError> {
            Ok(efficiencies(&self.simulated(machine, ranks, FEW_SEEDS)?)[0])
        })?;
        let efficiency = seeds.p50;
        let range = (
            efficiency - together([below, efficiency - seeds.min]),
            (efficiency + together([above, seeds.max - efficiency])).min(1.0),
        );
        let node = self.machine.node;
        let group = if ranks > node.ranks { Group::across(node.network) } else { Group::OneNode };
        Ok(World { ranks, efficiency, range: self.residuals.widened(group, efficiency, range) })
    }

    fn simulated(
        &self,
        machine: &MachineFile,
        ranks: usize,
        seeds: usize,
    ) -> Result<Simulated, CaseError> {
        let plan = self.plan(machine, vec![ranks], seeds);
        let (_, simulated) = plan.run(|| ()).pop().expect("there is a world");
        simulated
    }
}

/// The share of computation in each seed's steps.
fn efficiencies(simulated: &Simulated) -> Vec<f64> {
    let of = |steps: &Vec<Step>| {
        let sum = |value: fn(&Step) -> f64| steps.iter().map(value).sum::<f64>();
        sum(|step| step.compute) / sum(|step| step.time)
    };
    simulated.steps.iter().map(of).collect()
}

/// The name of a part of a step, and how long it takes.
type Part = (&'static str, fn(&Step) -> f64);

/// What the steps of the median seed consist of besides computation.
fn losses(simulated: &Simulated) -> Vec<Loss> {
    let mut seeds: Vec<(f64, &Vec<Step>)> =
        efficiencies(simulated).into_iter().zip(&simulated.steps).collect();
    seeds.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (_, steps) = seeds[seeds.len() / 2];
    let time_s: f64 = steps.iter().map(|step| step.time).sum();
    let parts: [Part; 8] = [
        ("the slowest rank's computation", |step| step.jitter),
        ("waiting for a cycle", |step| step.cycle),
        ("negotiation", |step| step.negotiation),
        ("latency of messages", |step| step.latency),
        ("bandwidth of messages", |step| step.bandwidth),
        ("contention, and computing beside messages", |step| step.contention),
        ("combining", |step| step.reduction),
        ("waiting for input", |step| step.input),
    ];
    let share = |(what, part): Part| {
        let part_s: f64 = steps.iter().map(part).sum();
        Loss { what, share: part_s / time_s }
    };
    let mut losses: Vec<Loss> = parts.map(share).to_vec();
    losses.sort_by(|a, b| b.share.total_cmp(&a.share));
    losses
}

/// The largest world that reaches the target, in whole nodes: between two simulated worlds, efficiency is taken as
/// linear in the logarithm of their sizes.
fn reach(worlds: &[World], target: f64, local_size: usize, value: impl Fn(&World) -> f64) -> Reach {
    let Some(missed) = worlds.iter().position(|world| value(world) < target) else {
        return Reach::Everywhere;
    };
    let Some(last) = missed.checked_sub(1) else { return Reach::Nowhere };
    let (last, missed) = (&worlds[last], &worlds[missed]);
    let part = (value(last) - target) / (value(last) - value(missed));
    let ranks = last.ranks as f64 * (missed.ranks as f64 / last.ranks as f64).powf(part);
    let nodes = (ranks / local_size as f64 + 1e-9).floor() as usize;
    Reach::UpTo((nodes * local_size).max(last.ranks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::toml_file::Checked;
    use std::path::Path;
    use workloads::framework::Compression;

    fn question() -> Question {
        let configs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
        Question {
            machine: MachineFile::read(&configs.join("machines/summit.toml")).unwrap(),
            workload: Workload::read(&configs.join("workloads/resnet50.csv")).unwrap(),
            model: Model {
                workload: "resnet50".into(),
                batch: 64,
                forward_ms: 58.0,
                backward_ms: 116.0,
                optimizer_ms: 0.6,
                compression: Compression::None,
                source: "a test".into(),
            },
            policy: Policy::new("bitvector", "bitvector", "nccl"),
            target: 0.9,
            up_to: Some(100),
            residuals: Residuals::default(),
        }
    }

    fn world(ranks: usize, efficiency: f64) -> World {
        World { ranks, efficiency, range: (efficiency, efficiency) }
    }

    #[test]
    fn worlds_double_up_to_the_last_whole_node() {
        let mut question = question();
        assert_eq!(question.sizes(), [6, 12, 24, 48, 96]);
        for (up_to, expected) in
            [(3, vec![3]), (6, vec![6]), (13, vec![6, 12]), (30, vec![6, 12, 24, 30])]
        {
            question.up_to = Some(up_to);
            assert_eq!(question.sizes(), expected, "{up_to}");
        }
        question.up_to = None;
        assert_eq!(question.sizes().last(), Some(&27_648));
    }

    #[test]
    fn the_target_is_crossed_between_two_worlds() {
        let worlds = [world(8, 0.98), world(16, 0.94), world(32, 0.86)];
        let found = |target| reach(&worlds, target, 8, |world| world.efficiency);
        assert_eq!(found(0.99), Reach::Nowhere);
        assert_eq!(found(0.94), Reach::UpTo(16));
        // Half of the way from 16 to 32, in whole nodes.
        assert_eq!(found(0.9), Reach::UpTo(16));
        assert_eq!(found(0.88), Reach::UpTo(24));
        assert_eq!(found(0.86), Reach::Everywhere);
    }

    #[test]
    fn losses_add_up_and_changes_come_with_their_gain() {
        let question = question();
        let answer = question.answer(|| ()).unwrap();
        assert_eq!(answer.worlds.len(), 5);
        for world in &answer.worlds {
            let (low, high) = world.range;
            assert!(low <= world.efficiency && world.efficiency <= high, "{world:?}");
        }
        let lost: f64 = answer.losses.iter().map(|loss| loss.share).sum();
        assert!((lost - (1.0 - answer.at.efficiency)).abs() < 0.01, "{lost} of {:?}", answer.at);
        assert!(answer.losses.is_sorted_by(|a, b| a.share >= b.share));
        let with = |what: &str| {
            let found = answer.changes.iter().find(|changed| changed.what.starts_with(what));
            found.unwrap_or_else(|| panic!("{what}: {:?}", answer.changes)).efficiency
        };
        assert!(with("network twice") >= answer.at.efficiency - 1e-9);
        assert!(with("GPUs equally fast") > answer.at.efficiency);
        let text = answer.text(&question);
        for words in ["SIMULATED", "efficiency 0.90", "one change at"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_network_to_oneself_is_a_change_where_others_use_it() {
        let mut question = Question { target: 0.1, up_to: Some(24), ..question() };
        let alone = |question: &Question| {
            let answer = question.answer(|| ()).unwrap();
            let is_alone = |changed: &&Changed| changed.what == "no other jobs on the network";
            let changed = answer.changes.iter().find(is_alone).map(|it| it.efficiency);
            (answer.at.efficiency, changed)
        };
        let (usual, none) = alone(&question);
        assert_eq!(none, None);
        let congestion = r#"longer = { value = 20, source = "a test" }"#;
        question.machine.congestion = Some(toml::from_str(congestion).unwrap());
        let (congested, changed) = alone(&question);
        assert!(congested < usual - 0.01, "{congested}, {usual}");
        assert!(
            changed.is_some_and(|changed| (changed - usual).abs() < 1e-9),
            "{changed:?}, {usual}"
        );
    }

    #[test]
    fn a_machine_without_control_planes_is_refused() {
        let mut question = question();
        question.machine.control = None;
        let why = question.answer(|| ()).unwrap_err().to_string();
        assert!(why.starts_with("machine summit has no [control]"), "{why}");
    }
}
