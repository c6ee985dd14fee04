//! The preflight of processes that MPI connects.

use serde::{Deserialize, Serialize};

use super::reports::Reports;
use super::{ExecutorError, links};
use cluster::nodes::Node;
use cluster::preflight::links::{expected_gbit_s, findings as link_findings};
use cluster::preflight::process_facts::findings as process_findings;
use cluster::preflight::{Finding, Preflight, ProcessFacts, Severity};
use results::provenance::{Launch, NodeFacts};
use transports::mpi::{World, library};

/// What one process reports.
#[derive(Serialize, Deserialize)]
struct Reported {
    facts: ProcessFacts,
    /// Bandwidth to the other nodes, and what is expected; rank 0's counts.
    links_gbit_s: Vec<f64>,
    expected_gbit_s: Option<f64>,
}

/// Checks the processes of a job and their nodes, adds the `findings` of back ends, and decides whether the job
/// measures. Notes in `launch` what the nodes are, and the report. Called by all, and all come to the same end.
///
/// # Errors
/// What is refused, unless the user insists; or that processes do not answer.
pub fn check(
    (world, reports): (&World, &mut Reports),
    launch: &mut Launch,
    crowded: Severity,
    findings: Vec<Finding>,
    is_forced: bool,
) -> Result<(), ExecutorError> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let cores = cores.into_iter().map(|core| core.id).collect();
    let own = Reported {
        facts: ProcessFacts::here(launch.machine.clone(), library(), cores),
        links_gbit_s: links::gbit_s(world)?,
        expected_gbit_s: expected_gbit_s(),
    };
    let mut all = reports.share(own)?;
    let links = std::mem::take(&mut all[0].links_gbit_s);
    let expected = all[0].expected_gbit_s;
    let facts: Vec<ProcessFacts> = all.into_iter().map(|reported| reported.facts).collect();
    let hosts = world.nodes().iter().map(|node| facts[node.ranks[0]].machine.host.as_str());
    let mut preflight = Preflight::default();
    preflight.add(process_findings(world.nodes(), &facts, crowded));
    preflight.add(findings);
    preflight.add(link_findings(&links, &hosts.collect::<Vec<_>>(), expected));
    launch.links_gbit_s = links;
    launch.nodes = world.nodes().iter().map(|node| facts_of(node, &facts)).collect();
    launch.forced = preflight.decide(is_forced)?;
    Ok(())
}

/// The properties of a node.
fn facts_of(node: &Node, facts: &[ProcessFacts]) -> NodeFacts {
    let first = &facts[node.ranks[0]];
    NodeFacts {
        machine: first.machine.clone(),
        library: first.library.clone(),
        ranks: node.ranks.iter().map(|&rank| (rank, facts[rank].cores.clone())).collect(),
    }
}
