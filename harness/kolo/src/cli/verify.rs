//! `kolo verify`.

use std::ops::RangeInclusive;
use std::time::Instant;

use algorithms::algorithm::DEFAULT_INNER;
use algorithms::control::mutation::Mutations;
use algorithms::control::simulation_test::{Failure, WorldSummary, run_world};
use algorithms::registry::ALL;
use algorithms::topology::Topology;
use algorithms::verify::{self, Violation};
use anyhow::Result;
use rayon::prelude::*;

use super::printed::Printed;
use super::{Exit, sizes, usage};
use results::names;
use schemars::JsonSchema;
use serde::Serialize;

/// The most ranks for which the pipelined form, in three segments, is proved, too.
const PIPELINED_RANKS: usize = 16;

/// Default number of worlds in which control planes are simulated.
const WORLDS: u64 = 2000;

/// Prove that schedules are allreduces, and simulate control planes in random worlds
///
/// Schedules are proved symbolically, for every world size and every division of the ranks into nodes of one size.
/// Control planes run in small random worlds, in which messages are late, tensors differ or are missing, and ranks
/// shut down or fail.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo verify --algorithm ring,hierarchical --ranks 1..4
  kolo verify --control-planes 1000000")]
pub struct Arguments {
    /// Algorithms, separated by commas [default: all, and hierarchical over each]
    #[arg(long, value_delimiter = ',', help_heading = SCHEDULES)]
    algorithm: Vec<String>,
    /// World sizes, both ends included
    #[arg(long, default_value = "1..64", value_parser = sizes::ranks, help_heading = SCHEDULES)]
    ranks: RangeInclusive<usize>,
    /// Simulate control planes only, in this many worlds
    #[arg(
        long,
        value_name = "WORLDS",
        value_parser = sizes::positive,
        conflicts_with_all = ["algorithm", "ranks"],
        help_heading = CONTROL_PLANES
    )]
    control_planes: Option<u64>,
    /// Seed of the first world
    #[arg(
        long,
        default_value_t = 0,
        value_parser = sizes::whole::<u64>,
        requires = "control_planes",
        help_heading = CONTROL_PLANES
    )]
    first_seed: u64,
    #[command(flatten)]
    printed: Printed,
}

/// Headings of the options.
const SCHEDULES: &str = "Schedules";
const CONTROL_PLANES: &str = "Control planes";

/// Version of [`Verified`] as JSON.
const SCHEMA: u32 = 1;

/// What was proved and simulated.
#[derive(Serialize, JsonSchema)]
pub struct Verified {
    /// Version of this structure.
    schema: u32,
    /// Nothing failed.
    right: bool,
    /// Algorithms, in the order in which they were asked for.
    schedules: Vec<Proved>,
    /// Control planes in random worlds; null if they were not simulated.
    control_planes: Option<Simulated>,
}

/// The schedules of an algorithm.
#[derive(Serialize, JsonSchema)]
struct Proved {
    algorithm: String,
    /// Topologies on which it is proved to be an allreduce.
    topologies: usize,
    /// Transfers between two ranks, over all steps and topologies.
    transfers: usize,
    /// Topologies for which it does not exist.
    unsupported: usize,
    /// Topologies on which the proof failed, and why.
    failures: Vec<String>,
    /// How long the proofs took, in seconds.
    seconds: f64,
}

/// Control planes in random worlds.
#[derive(Serialize, JsonSchema)]
struct Simulated {
    worlds: u64,
    events: usize,
    messages: usize,
    /// The first failure, and its seed; null: none.
    failure: Option<Failed>,
    /// How long it took, in seconds.
    seconds: f64,
}

/// A world in which control planes failed.
#[derive(Serialize, JsonSchema)]
struct Failed {
    seed: u64,
    why: String,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let say = arguments.printed.is_text();
    let (mut schedules, mut control_planes) = (Vec::new(), None);
    if let Some(worlds) = arguments.control_planes {
        control_planes = Some(simulate_worlds(arguments.first_seed, worlds));
    } else {
        schedules = prove(arguments, say)?;
        if arguments.algorithm.is_empty() && schedules.iter().all(Proved::is_right) {
            control_planes = Some(simulate_worlds(0, WORLDS));
        }
    }
    let failed = control_planes.as_ref().is_some_and(|simulated| simulated.failure.is_some());
    let right = !failed && schedules.iter().all(Proved::is_right);
    let is_unproved = |one: &&Proved| one.topologies == 0;
    let unproved: Vec<String> =
        schedules.iter().filter(is_unproved).map(|one| one.algorithm.clone()).collect();
    if say {
        control_planes.iter().for_each(print_simulated);
    } else {
        let verified = Verified { schema: SCHEMA, right, schedules, control_planes };
        arguments.printed.print(&verified, "/schedules")?;
    }
    if right && !unproved.is_empty() {
        eprintln!(
            "kolo: nothing is proved of {}: unsupported on every topology; give other --ranks",
            unproved.join(", ")
        );
        return Ok(Exit::Inconclusive);
    }
    Ok(if right { Exit::Right } else { Exit::Wrong })
}

impl Proved {
    fn is_right(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Simulates control planes in the worlds of these seeds.
fn simulate_worlds(first: u64, worlds: u64) -> Simulated {
    let start = Instant::now();
    let simulated = |seed| run_world(seed, |_| Mutations::default());
    let sum = |a: WorldSummary, b: WorldSummary| WorldSummary {
        events: a.events + b.events,
        messages: a.messages + b.messages,
    };
    let seeds = first..first.saturating_add(worlds);
    let all: Result<WorldSummary, Failure> = seeds
        .into_par_iter()
        .map(simulated)
        .try_reduce(WorldSummary::default, |a, b| Ok(sum(a, b)));
    let seconds = start.elapsed().as_secs_f64();
    let failure = all.as_ref().err();
    let failure = failure.map(|failure| Failed { seed: failure.seed, why: failure.to_string() });
    let WorldSummary { events, messages } = all.unwrap_or_default();
    Simulated { worlds, events, messages, failure, seconds }
}

fn print_simulated(simulated: &Simulated) {
    let Simulated { worlds, events, messages, failure, seconds } = simulated;
    match failure {
        None => println!(
            "control planes         simulated in {worlds} worlds, {events} events, {messages} \
             messages, {seconds:.2} s"
        ),
        Some(Failed { seed, why }) => {
            println!("control planes         FAILED: {why}");
            println!("repeat: kolo verify --control-planes 1 --first-seed {seed}");
        }
    }
}

/// Proves schedules; with `say` it prints each algorithm as it is done.
fn prove(arguments: &Arguments, say: bool) -> Result<Vec<Proved>> {
    let mut names = arguments.algorithm.clone();
    if names.is_empty() {
        // Algorithms that choose have no schedules of their own.
        let all = || ALL.iter().filter(|entry| !entry.chooses());
        names.extend(all().map(|entry| entry.name.to_string()));
        let plain = all().filter(|inner| !inner.takes_inner());
        let inner = plain.filter(|inner| inner.name != DEFAULT_INNER);
        names.extend(inner.map(|inner| format!("hierarchical:{}", inner.name)));
    }
    let mut all = Vec::new();
    for name in &names {
        let proved = prove_one(name, arguments.ranks.clone())?;
        if say {
            print_proved(&proved);
        }
        all.push(proved);
    }
    Ok(all)
}

fn prove_one(name: &str, ranks: RangeInclusive<usize>) -> Result<Proved> {
    let algorithm = names::algorithm(name, &[]).map_err(usage)?;
    let start = Instant::now();
    let proofs: Vec<_> = worlds(ranks)
        .into_par_iter()
        .map(|world| {
            let proof = verify::algorithm(&*algorithm, &world).and_then(|proof| {
                if world.ranks() <= PIPELINED_RANKS {
                    verify::pipelined(&*algorithm, &world, 3, 1)?;
                }
                Ok(proof)
            });
            (proof, world)
        })
        .collect();
    let (mut topologies, mut transfers, mut unsupported) = (0, 0, 0);
    let mut failures = Vec::new();
    for (proof, world) in proofs {
        match proof {
            Ok(proof) => {
                topologies += 1;
                transfers += proof.transfers;
            }
            Err(Violation::Unsupported(_)) => unsupported += 1,
            Err(why) => failures.push(format!("{world}: {why}")),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Proved { algorithm: name.into(), topologies, transfers, unsupported, failures, seconds })
}

fn print_proved(proved: &Proved) {
    let Proved { algorithm, topologies, transfers, unsupported, failures, seconds } = proved;
    for failure in failures {
        println!("{algorithm:<22} FAILED on {failure}");
    }
    println!(
        "{algorithm:<22} proved on {topologies} topologies, {transfers} transfers, {seconds:.2} s{}",
        match unsupported {
            0 => String::new(),
            count => format!("; unsupported on {count}"),
        }
    );
}

/// Every world size on nodes of every size that divides it.
fn worlds(ranks: RangeInclusive<usize>) -> Vec<Topology> {
    let shapes = |ranks: usize| {
        (1..=ranks)
            .filter(move |size| ranks.is_multiple_of(*size))
            .map(move |size| Topology::uniform(ranks / size, size))
    };
    ranks.flat_map(shapes).collect()
}
