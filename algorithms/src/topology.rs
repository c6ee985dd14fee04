//! Where ranks live: nodes, and the ranks on each of them.

use std::fmt;
use std::ops::Range;

/// One participant of a collective, numbered from 0.
pub type Rank = usize;

/// How ranks are placed on nodes.
///
/// Ranks fill nodes in order: node 0 hosts ranks 0, 1, ..., node 1 the next ones, as
/// Horovod's launcher assigns them. Nodes may differ in size ("ragged").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    /// First rank of each node, and the world size at the end; strictly increasing.
    starts: Vec<Rank>,
}

impl Topology {
    /// Nodes of the given sizes.
    ///
    /// # Panics
    /// When there is no node or a node has no rank.
    pub fn new(node_sizes: &[usize]) -> Topology {
        assert!(!node_sizes.is_empty(), "a topology needs at least one node");
        let mut starts = vec![0];
        for (node, &size) in node_sizes.iter().enumerate() {
            assert!(size > 0, "node {node} has no rank");
            starts.push(starts[node] + size);
        }
        Topology { starts }
    }

    /// `nodes` nodes of `local_size` ranks each.
    ///
    /// # Panics
    /// When either is zero.
    pub fn uniform(nodes: usize, local_size: usize) -> Topology {
        Topology::new(&vec![local_size; nodes])
    }

    /// One rank per node: nothing is near, nothing is far.
    ///
    /// # Panics
    /// When `ranks` is zero.
    pub fn flat(ranks: usize) -> Topology {
        Topology::uniform(ranks, 1)
    }

    /// World size: the number of ranks.
    pub fn ranks(&self) -> usize {
        self.starts[self.nodes()]
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The ranks of one node.
    pub fn node(&self, node: usize) -> Range<Rank> {
        self.starts[node]..self.starts[node + 1]
    }

    /// The node that hosts `rank`.
    pub fn node_of(&self, rank: Rank) -> usize {
        self.starts.partition_point(|&start| start <= rank) - 1
    }

    /// The position of `rank` on its node.
    pub fn local_rank(&self, rank: Rank) -> usize {
        rank - self.starts[self.node_of(rank)]
    }

    /// Ranks per node if all nodes have the same number ("homogeneous" in Horovod).
    pub fn local_size(&self) -> Option<usize> {
        let size = self.node(0).len();
        (0..self.nodes()).all(|node| self.node(node).len() == size).then_some(size)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.local_size() {
            Some(local_size) => write!(f, "{}x{local_size}", self.nodes()),
            None => {
                let sizes = (0..self.nodes()).map(|node| self.node(node).len().to_string());
                write!(f, "{}", sizes.collect::<Vec<_>>().join("+"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fill_nodes_in_order() {
        let topology = Topology::new(&[3, 1, 2]);
        let nodes: Vec<_> = (0..6).map(|rank| topology.node_of(rank)).collect();
        let local: Vec<_> = (0..6).map(|rank| topology.local_rank(rank)).collect();
        assert_eq!(nodes, [0, 0, 0, 1, 2, 2]);
        assert_eq!(local, [0, 1, 2, 0, 0, 1]);
        assert_eq!((topology.ranks(), topology.nodes(), topology.local_size()), (6, 3, None));
        assert_eq!(topology.to_string(), "3+1+2");
    }

    #[test]
    fn uniform_nodes_know_their_local_size() {
        assert_eq!(Topology::uniform(4, 6).local_size(), Some(6));
        assert_eq!(Topology::flat(5).local_size(), Some(1));
        assert_eq!(Topology::uniform(2, 3).to_string(), "2x3");
    }
}
