//! The nodes of a job, and which of its processes act as the ranks of a case.

use algorithms::topology::{Rank, Topology};
use thiserror::Error;

/// Set by a virtual cluster, whose nodes share one machine; its value describes that.
pub const EMULATED: &str = "KOLO_EMULATED";

/// Expected bandwidth of one network card of a node in each direction, in Gbit/s; set from the site file.
pub const LINK_GBIT_S: &str = "KOLO_LINK_GBIT_S";

/// The network interface that all nodes share; the variable by which a site names it.
pub const INTERFACE: &str = "KOLO_INTERFACE";

/// One node, with this job's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Processes on it, ascending.
    pub ranks: Vec<Rank>,
    /// Cores that any of them may use.
    pub cores: usize,
}

impl Node {
    /// More of these ranks are on it than it has cores.
    pub fn is_crowded(&self, members: &[Rank]) -> bool {
        members.iter().filter(|member| self.ranks.binary_search(member).is_ok()).count()
            > self.cores
    }
}

/// A topology has more ranks than the job has processes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "topology {topology} needs {} processes, but the job has {processes} on {nodes} {}; start more, or \
     leave this topology out", topology.ranks(), if *nodes == 1 { "node" } else { "nodes" }
)]
pub struct TooFewProcesses {
    /// The topology.
    pub topology: Topology,
    /// Processes of the job.
    pub processes: usize,
    /// Their nodes.
    pub nodes: usize,
}

/// The processes that act as the ranks of a topology, and whether its nodes are emulated: they are real if
/// the job has as many nodes with room for their ranks.
///
/// # Errors
/// When there are too few processes.
pub fn place(nodes: &[Node], topology: &Topology) -> Result<(Vec<Rank>, bool), TooFewProcesses> {
    let wanted: Vec<usize> = (0..topology.nodes()).map(|node| topology.node(node).len()).collect();
    let fits = wanted.len() <= nodes.len()
        && wanted.iter().zip(nodes).all(|(wanted, node)| *wanted <= node.ranks.len());
    if fits {
        let members = wanted.iter().zip(nodes).flat_map(|(&wanted, node)| &node.ranks[..wanted]);
        return Ok((members.copied().collect(), false));
    }
    let all: Vec<Rank> = nodes.iter().flat_map(|node| &node.ranks).copied().collect();
    match all.get(..topology.ranks()) {
        Some(members) => Ok((members.to_vec(), true)),
        None => Err(TooFewProcesses {
            topology: topology.clone(),
            processes: all.len(),
            nodes: nodes.len(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_placed_on_real_nodes_if_they_have_room() {
        let nodes = [vec![0, 2, 4], vec![1, 3]].map(|ranks| Node { ranks, cores: 2 });
        let on = |topology: &str| place(&nodes, &topology.parse().unwrap());
        assert!(nodes[0].is_crowded(&[0, 1, 2, 4]) && !nodes[0].is_crowded(&[0, 1, 2, 3]));
        assert_eq!(on("2x2"), Ok((vec![0, 2, 1, 3], false)));
        assert_eq!(on("1x3"), Ok((vec![0, 2, 4], false)));
        assert_eq!(on("1x1"), Ok((vec![0], false)));
        assert_eq!(on("3+2"), Ok((vec![0, 2, 4, 1, 3], false)));
        assert_eq!(on("2+3"), Ok((vec![0, 2, 4, 1, 3], true)));
        assert_eq!(on("5x1"), Ok((vec![0, 2, 4, 1, 3], true)));
        let error = "topology 3x2 needs 6 processes, but the job has 5 on 2 nodes; start more, or leave \
                     this topology out";
        assert_eq!(on("3x2").unwrap_err().to_string(), error);
    }
}
