//! The numbers of nodes of a sweep that depend on where it runs.

use std::path::Path;

use anyhow::Result;

use super::Arguments;
use crate::cli::usage;
use algorithms::topology::Topology;
use cluster::launch::Launched;
use measure::config::{Allocation, Axes, Config, Nodes};
use results::provenance::{PROVENANCE, Provenance};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Nodes")]
pub struct NodeOptions {
    /// Nodes to request with --slurm, and the end of `sweep.nodes = "powers"`
    ///
    /// Default: with --slurm as many as the largest topology has, or 4; otherwise what the machine or mpirun offers.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=4096),
        hide_short_help = true
    )]
    pub nodes: Option<u32>,
    /// Ranks on each of `sweep.nodes` [default: those of the job, or of the site]
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=4096),
        hide_short_help = true
    )]
    pub ranks_per_node: Option<u32>,
}

/// Fixes the numbers of nodes and of ranks on each: by the options, as the folder of results has them, as the
/// configuration says, or as they are `here`.
///
/// # Errors
/// When options are given for a configuration with topologies, or the folder's provenance cannot be read.
pub fn settle(
    config: &mut Config,
    arguments: &Arguments,
    folder: Option<&Path>,
    here: impl FnOnce() -> Allocation,
) -> Result<()> {
    let NodeOptions { nodes, ranks_per_node } = arguments.nodes;
    let sweep = &mut config.sweep;
    if sweep.nodes.is_none() {
        let option = match (nodes, ranks_per_node) {
            (Some(_), _) if !arguments.slurm.is_set() && !arguments.go_on => "--nodes",
            (_, Some(_)) => "--ranks-per-node",
            _ => return Ok(()),
        };
        return Err(usage(format!(
            "{option} is for a configuration with sweep.nodes, and {} has sweep.topology",
            arguments.config.display()
        )));
    }
    if let Some(ranks) = ranks_per_node {
        sweep.ranks_per_node = Some(ranks as usize);
    }
    if let (None, Some(folder)) = (nodes, folder) {
        keep(sweep, folder)?;
    }
    let mut allocation = here();
    if let Some(nodes) = nodes {
        allocation.nodes = nodes as usize;
    }
    sweep.settle(allocation);
    Ok(())
}

/// A sweep that goes on has the numbers that it began with, whatever the new allocation.
fn keep(sweep: &mut Axes, folder: &Path) -> Result<()> {
    let path = folder.join(PROVENANCE);
    if !path.exists() {
        return Ok(());
    }
    let began = Provenance::read(&path)?.config;
    let kept: Option<Nodes> = serde_json::from_value(began["sweep"]["nodes"].clone()).ok();
    if let (Some(Nodes::Powers), Some(kept)) = (&sweep.nodes, kept) {
        sweep.nodes = Some(kept);
    }
    let ranks = began["sweep"]["ranks_per_node"].as_u64();
    sweep.ranks_per_node = sweep.ranks_per_node.or(ranks.map(|ranks| ranks as usize));
    Ok(())
}

/// The nodes outside of Slurm: those on which a launcher has started processes, or this machine.
pub fn here() -> Allocation {
    let launched = Launched::here().filter(|launched| launched.tasks > 1);
    let shape = launched.map(|launched| launched.shape(|name| std::env::var(name).ok()));
    let started = shape.and_then(|shape| shape.parse::<Topology>().ok());
    started.map_or_else(Allocation::of_this_machine, |started| Allocation {
        nodes: started.nodes(),
        ranks_per_node: started.ranks() / started.nodes(),
    })
}
