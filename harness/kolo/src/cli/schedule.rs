//! `kolo schedule`.

use algorithms::combinators::Pipelined;
use algorithms::schedule::{Action, Drawing, Part, Schedule};
use algorithms::simulate::goal::Goal;
use algorithms::topology::Topology;
use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::printed::Printed;
use super::{Exit, sizes, usage};
use results::names::algorithm;

/// Print an algorithm's schedule: the transfers of chunks between ranks, step by step
///
/// `0+>1 c3`: rank 1 adds rank 0's chunk 3 to its own. `0->1 c3`: rank 1 overwrites its chunk 3 with rank 0's.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo schedule --algorithm ring --ranks 4
  kolo schedule --algorithm hierarchical --nodes 2x4 --goal 1M")]
pub struct Arguments {
    /// Algorithm
    #[arg(long, help_heading = SCHEDULE)]
    algorithm: String,
    /// World size, with one rank on each node
    #[arg(long, required_unless_present = "nodes", help_heading = SCHEDULE)]
    ranks: Option<usize>,
    /// Nodes x ranks per node (2x4), or the ranks of each node (3+1)
    #[arg(long, value_name = "TOPOLOGY", conflicts_with = "ranks", help_heading = SCHEDULE)]
    nodes: Option<Topology>,
    /// Number of pipelined segments
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = SCHEDULE
    )]
    segments: u32,
    #[command(flatten)]
    printed: Printed,
    /// Write GOAL, the language of LogGOPSim, for a buffer of this size in f32
    #[arg(long, conflicts_with_all = ["json", "format"], value_name = "SIZE", value_parser = sizes::size, help_heading = GOAL)]
    goal: Option<usize>,
    /// Nanoseconds to combine a byte
    #[arg(long, default_value_t = 0.0, requires = "goal", help_heading = GOAL)]
    gamma_ns: f64,
}

/// Headings of the options.
const SCHEDULE: &str = "Schedule";
const GOAL: &str = "GOAL";

/// The most ranks to print; a larger number is probably a mistake.
const MOST_RANKS: usize = 4096;

/// Version of [`Listed`] as JSON.
const SCHEMA: u32 = 1;

/// A schedule.
#[derive(Serialize, JsonSchema)]
pub struct Listed {
    /// Version of this structure.
    schema: u32,
    /// The algorithm.
    algorithm: String,
    /// World size.
    ranks: usize,
    /// The buffer is cut into so many chunks.
    chunks: usize,
    /// The transfers of each step.
    steps: Vec<Vec<Transfer>>,
}

/// A transfer between two ranks.
#[derive(Serialize, JsonSchema)]
struct Transfer {
    from: usize,
    to: usize,
    /// The first chunk.
    chunk: usize,
    /// How many chunks.
    chunks: usize,
    /// The receiver adds the chunks to its own; otherwise it overwrites them.
    reduces: bool,
}

fn transfers(schedule: &dyn Schedule) -> Vec<Vec<Transfer>> {
    let mut part = Part::default();
    let mut of_step = |step: usize| {
        let mut all = Vec::new();
        for from in 0..schedule.ranks() {
            part.clear();
            schedule.part(from, step, &mut part);
            all.extend(part.sends.iter().map(|send| Transfer {
                from,
                to: send.peer(),
                chunk: send.chunks().start,
                chunks: send.chunks().len(),
                reduces: send.action == Action::Reduce,
            }));
        }
        all
    };
    (0..schedule.steps()).map(&mut of_step).collect()
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let flat = || arguments.ranks.filter(|&ranks| ranks > 0).map(Topology::flat);
    let Some(topology) = arguments.nodes.clone().or_else(flat) else {
        return Err(usage("--ranks is 0, expected at least 1"));
    };
    if topology.ranks() > MOST_RANKS {
        let ranks = topology.ranks();
        return Err(usage(format!("there are {ranks} ranks, expected at most {MOST_RANKS}")));
    }
    let algorithm = algorithm(&arguments.algorithm, &[]).map_err(usage)?;
    let schedule = algorithm.schedule(&topology).map_err(usage)?;
    let schedule = Pipelined::new(schedule, arguments.segments as usize);
    match arguments.goal {
        None if !arguments.printed.is_text() => {
            let transfers = transfers(&schedule);
            let listed = Listed {
                schema: SCHEMA,
                algorithm: arguments.algorithm.clone(),
                ranks: schedule.ranks(),
                chunks: schedule.chunks(),
                steps: transfers,
            };
            arguments.printed.print(&listed, "/steps")?;
        }
        None => print!("{}", Drawing(&schedule)),
        Some(bytes) => {
            let gamma_ns = arguments.gamma_ns;
            print!(
                "{}",
                Goal { schedule: &schedule, elements: bytes / 4, element_bytes: 4, gamma_ns }
            );
        }
    }
    Ok(Exit::Right)
}
