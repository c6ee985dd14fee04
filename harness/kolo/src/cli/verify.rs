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

use super::{Exit, sizes, usage};
use results::names;

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
        value_parser = sizes::whole::<u64>,
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
}

/// Headings of the options.
const SCHEDULES: &str = "Schedules";
const CONTROL_PLANES: &str = "Control planes";

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(worlds) = arguments.control_planes {
        return Ok(simulate_worlds(arguments.first_seed, worlds));
    }
    let proved = prove(arguments)?;
    if arguments.algorithm.is_empty() && proved == Exit::Right {
        Ok(simulate_worlds(0, WORLDS))
    } else {
        Ok(proved)
    }
}

/// Simulates control planes in the worlds of these seeds.
fn simulate_worlds(first: u64, worlds: u64) -> Exit {
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
    match all {
        Ok(WorldSummary { events, messages }) => {
            println!(
                "control planes         simulated in {worlds} worlds, {events} events, {messages} \
                 messages, {seconds:.2} s"
            );
            Exit::Right
        }
        Err(failure) => {
            println!("control planes         FAILED: {failure}");
            println!("repeat: kolo verify --control-planes 1 --first-seed {}", failure.seed);
            Exit::Wrong
        }
    }
}

fn prove(arguments: &Arguments) -> Result<Exit> {
    let mut names = arguments.algorithm.clone();
    if names.is_empty() {
        // Algorithms that choose have no schedules of their own.
        let all = || ALL.iter().filter(|entry| !entry.chooses());
        names.extend(all().map(|entry| entry.name.to_string()));
        let plain = all().filter(|inner| !inner.takes_inner());
        let inner = plain.filter(|inner| inner.name != DEFAULT_INNER);
        names.extend(inner.map(|inner| format!("hierarchical:{}", inner.name)));
    }
    let mut status = Exit::Right;
    for name in &names {
        let algorithm = names::algorithm(name, &[]).map_err(usage)?;
        let start = Instant::now();
        let proofs: Vec<_> = worlds(arguments.ranks.clone())
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
        let (mut proved, mut transfers, mut unsupported) = (0, 0, 0);
        for (proof, world) in proofs {
            match proof {
                Ok(proof) => {
                    proved += 1;
                    transfers += proof.transfers;
                }
                Err(Violation::Unsupported(_)) => unsupported += 1,
                Err(why) => {
                    println!("{name:<22} FAILED on {world}: {why}");
                    status = Exit::Wrong;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{name:<22} proved on {proved} topologies, {transfers} transfers, {seconds:.2} s{}",
            match unsupported {
                0 => String::new(),
                count => format!("; unsupported on {count}"),
            }
        );
    }
    Ok(status)
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
