//! Numbers of nodes, which may depend on the nodes that there are.

use std::fmt;

use algorithms::topology::Topology;
use results::provenance::cores;
use results::toml_file::{Invalid, not_empty};
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Axes;

/// The word for 1, 2, 4, ... nodes.
const POWERS: &str = "powers";

/// As many nodes, or ranks of a node, as a topology may have.
const MOST: usize = 4096;

/// Without a job, this machine stands for at most so many nodes.
const MOST_EMULATED: usize = 4;

/// From this number of cores on, this machine stands for nodes of two ranks.
const CORES_FOR_TWO_RANKS: usize = 8;

/// The numbers of nodes of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// 1, 2, 4, ... up to those of the allocation.
    Powers,
    /// These.
    List(Vec<usize>),
}

/// The nodes that a sweep may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Nodes.
    pub nodes: usize,
    /// Ranks of each.
    pub ranks_per_node: usize,
}

impl Allocation {
    /// This machine, whose cores stand for the ranks of emulated nodes: 1, 2 or 4 nodes of 1 rank, or from 8 cores on 4
    /// nodes of 2 ranks.
    pub fn of_this_machine() -> Allocation {
        Allocation::of_cores(cores())
    }

    fn of_cores(cores: usize) -> Allocation {
        let ranks_per_node = if cores < CORES_FOR_TWO_RANKS { 1 } else { 2 };
        let nodes = (cores / ranks_per_node).clamp(1, MOST_EMULATED);
        Allocation { nodes, ranks_per_node }
    }
}

impl Nodes {
    /// The largest number in a list.
    pub fn most(&self) -> usize {
        self.counts(1).into_iter().max().unwrap_or(1)
    }

    /// The numbers, on that many nodes at most.
    fn counts(&self, most: usize) -> Vec<usize> {
        match self {
            Nodes::Powers => {
                let doubled = |count: &usize| count.checked_mul(2);
                std::iter::successors(Some(1), doubled).take_while(|&count| count <= most).collect()
            }
            Nodes::List(counts) => counts.clone(),
        }
    }
}

impl Axes {
    /// Fixes what depends on the allocation: the numbers of nodes, and the ranks of each. A list of numbers stays as it
    /// is.
    pub fn settle(&mut self, allocation: Allocation) {
        if let Some(nodes) = &mut self.nodes {
            *nodes = Nodes::List(nodes.counts(allocation.nodes));
            self.ranks_per_node.get_or_insert(allocation.ranks_per_node);
        }
    }

    /// Every topology. What depends on an allocation and is not settled is for this machine.
    ///
    /// # Panics
    /// If the axes were not checked.
    pub fn topologies(&self) -> Vec<Topology> {
        let Some(nodes) = &self.nodes else {
            let parse = |text: &String| text.parse().expect("the configuration was checked");
            return self.topology.iter().map(parse).collect();
        };
        let here = Allocation::of_this_machine();
        let ranks_per_node = self.ranks_per_node.unwrap_or(here.ranks_per_node);
        let uniform = |nodes| Topology::uniform(nodes, ranks_per_node);
        nodes.counts(here.nodes).into_iter().map(uniform).collect()
    }

    /// Topologies are given in one of two ways.
    pub(super) fn check_nodes(&self) -> Result<(), Invalid> {
        let Some(nodes) = &self.nodes else {
            if let Some(ranks) = self.ranks_per_node {
                let wrong =
                    Invalid::value("sweep.ranks_per_node", ranks, "none with sweep.topology");
                return Err(wrong.with_advice("it belongs to sweep.nodes"));
            }
            return not_empty("sweep.topology", self.topology.len())
                .map_err(|wrong| wrong.with_advice("or give sweep.nodes"));
        };
        if !self.topology.is_empty() {
            let wrong = Invalid::value("sweep.nodes", "given beside sweep.topology", "one of them");
            return Err(wrong.with_advice("leave one out"));
        }
        let within = |key: &str, value: usize| match value {
            1..=MOST => Ok(()),
            _ => Err(Invalid::value(key, value, format!("1 to {MOST}"))),
        };
        if let Nodes::List(counts) = nodes {
            not_empty("sweep.nodes", counts.len())?;
            counts.iter().try_for_each(|&count| within("sweep.nodes", count))?;
        }
        within("sweep.ranks_per_node", self.ranks_per_node.unwrap_or(1))
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Nodes::Powers => serializer.serialize_str(POWERS),
            Nodes::List(counts) => counts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nodes, D::Error> {
        deserializer.deserialize_any(WordOrList)
    }
}

/// Reads [`Nodes`].
struct WordOrList;

impl<'de> Visitor<'de> for WordOrList {
    type Value = Nodes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{POWERS}\" or a list of numbers of nodes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Nodes, E> {
        match text {
            POWERS => Ok(Nodes::Powers),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Nodes, A::Error> {
        let mut counts = Vec::new();
        while let Some(count) = list.next_element()? {
            counts.push(count);
        }
        Ok(Nodes::List(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topologies(axes: &Axes) -> Vec<String> {
        axes.topologies().iter().map(Topology::to_string).collect()
    }

    #[test]
    fn powers_end_with_the_allocation_and_lists_are_kept() {
        for (nodes, allocated, expected) in [
            (Nodes::Powers, 1, &["1x2"][..]),
            (Nodes::Powers, 8, &["1x2", "2x2", "4x2", "8x2"]),
            (Nodes::Powers, 11, &["1x2", "2x2", "4x2", "8x2"]),
            (Nodes::List(vec![3, 16]), 4, &["3x2", "16x2"]),
        ] {
            let mut axes = Axes { nodes: Some(nodes), ..Axes::default() };
            axes.settle(Allocation { nodes: allocated, ranks_per_node: 2 });
            assert_eq!(topologies(&axes), expected);
            axes.settle(Allocation { nodes: 64, ranks_per_node: 7 });
            assert_eq!(topologies(&axes), expected, "it is settled once");
        }
        let mut axes = Axes { topology: vec!["3+1".into()], ..Axes::default() };
        axes.settle(Allocation { nodes: 8, ranks_per_node: 2 });
        assert_eq!(topologies(&axes), ["3+1"]);
    }

    #[test]
    fn the_cores_of_this_machine_stand_for_nodes() {
        for (cores, nodes, ranks_per_node) in
            [(1, 1, 1), (2, 2, 1), (4, 4, 1), (6, 4, 1), (8, 4, 2), (128, 4, 2)]
        {
            assert_eq!(Allocation::of_cores(cores), Allocation { nodes, ranks_per_node });
        }
    }
}
