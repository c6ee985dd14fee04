//! 2-D torus: rings along the rows of a grid of ranks, then along its columns, then along the rows
//! again.
//!
//! n ranks form a grid of a x b, a the largest divisor of n up to its square root, rank y a + x in
//! column x of row y. A ring reduce-scatter along each row leaves one of a shards with each column; a
//! ring allreduce along each column finishes the shards; a ring all-gather along each row hands them
//! round. It is the hierarchical algorithm on rows instead of nodes, with a ring inside.
//!
//! Cost: 2(a - 1) + 2(b - 1) steps instead of the ring's 2(n - 1), and as few bytes: 2(n - 1) of n
//! chunks sent. For a prime n it is the ring.
//!
//! After H. Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018.

use std::sync::Arc;

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::hierarchical::Hierarchical;
use crate::ring::Ring;
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// Rings along the rows and columns of a grid.
pub struct Torus;

impl Torus {
    /// The grid as a topology whose nodes are the rows.
    fn rows(topology: &Topology) -> Topology {
        let n = topology.ranks();
        let across = (1..=n.isqrt()).rev().find(|a| n.is_multiple_of(*a)).unwrap_or(1);
        Topology::uniform(n / across, across)
    }
}

fn on_rows() -> Hierarchical {
    Hierarchical { inner: Arc::new(Ring) }
}

impl Algorithm for Torus {
    fn name(&self) -> String {
        "torus".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        on_rows().schedule(&Torus::rows(topology))
    }

    fn steps(&self, topology: &Topology) -> usize {
        on_rows().steps(&Torus::rows(topology))
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        on_rows().volume(&Torus::rows(topology), rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_match_the_header() {
        for (ranks, steps) in [(1, 0), (7, 12), (12, 2 * 2 + 2 * 3), (27_600, 2 * 149 + 2 * 183)] {
            assert_eq!(Torus.steps(&Topology::flat(ranks)), steps);
        }
        for ranks in 1..=64 {
            let volume = Torus.volume(&Topology::flat(ranks), 0);
            assert_eq!(volume.sent, 2 * (ranks - 1), "of {ranks} chunks");
        }
    }
}
