//! The placement of ranks on nodes.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// One participant of a collective, numbered from 0.
pub type Rank = usize;

/// The largest number in the text of a topology: of nodes, and of ranks on a node.
const MAX: usize = 4096;

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

    /// One rank per node.
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

impl FromStr for Topology {
    type Err = ParseTopologyError;

    /// `2x4` is 2 nodes of 4 ranks, `3+1` a node of 3 ranks and one of 1, `5` five nodes of 1 rank. Each
    /// number is from 1 to 4096 and may have white space around it.
    fn from_str(text: &str) -> Result<Topology, ParseTopologyError> {
        let error = || ParseTopologyError { text: text.to_string() };
        let number = |part: &str| match part.trim().parse() {
            Ok(number @ 1..=MAX) => Ok(number),
            _ => Err(error()),
        };
        let topology = match text.split_once('x') {
            Some((nodes, local_size)) => Topology::uniform(number(nodes)?, number(local_size)?),
            None if text.contains('+') => {
                Topology::new(&text.split('+').map(number).collect::<Result<Vec<_>, _>>()?)
            }
            None => Topology::flat(number(text)?),
        };
        Ok(topology)
    }
}

/// A text is no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTopologyError {
    /// The text.
    pub text: String,
}

impl fmt::Display for ParseTopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a topology; write nodes x ranks per node (2x4), the ranks of each node (3+1), \
             or a number of ranks (5), each number from 1 to {MAX}",
            self.text
        )
    }
}

impl std::error::Error for ParseTopologyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_are_parsed() {
        for (text, expected) in [
            ("2x4", Topology::uniform(2, 4)),
            ("3+1", Topology::new(&[3, 1])),
            ("5", Topology::flat(5)),
            ("2+2", Topology::uniform(2, 2)),
            (" 2 x 4 ", Topology::uniform(2, 4)),
            (" 3 + 1", Topology::new(&[3, 1])),
            ("4096", Topology::flat(4096)),
            ("1x4096", Topology::uniform(1, 4096)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_and_the_error_says_what_is_accepted() {
        for text in ["", "0", "2x0", "x", "1+", "-3", "2x2x2", "2x2+1", "4097", "99999999999"] {
            let error = text.parse::<Topology>().unwrap_err();
            assert_eq!(error, ParseTopologyError { text: text.into() });
            assert_eq!(
                error.to_string(),
                format!(
                    "\"{text}\" is not a topology; write nodes x ranks per node (2x4), the ranks of \
                     each node (3+1), or a number of ranks (5), each number from 1 to 4096"
                )
            );
        }
    }

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
