//! Binomial tree allreduce: reduce up a binomial tree to rank 0, then broadcast down it.
//!
//! The buffer is one chunk. Going up, in step k every rank whose lowest set bit is 2^k adds its
//! chunk to that of rank r - 2^k and waits for the answer; going down, the same transfers run
//! backwards, from the root's last child to the leaves.
//!
//! Cost: 2 ceil(log2 n) steps for any n. A rank sends the whole buffer once up (rank 0 does not)
//! and once to each of its children, ceil(log2 n) times at the root; it receives as often. Few
//! steps, many bytes: for small buffers.
//!
//! After R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
//! operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// A binomial tree rooted at rank 0.
pub struct Tree;

impl Algorithm for Tree {
    fn name(&self) -> String {
        "tree".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(UpAndDown { n: topology.ranks() }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        2 * UpAndDown { n: topology.ranks() }.depth()
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let tree = UpAndDown { n: topology.ranks() };
        let family = (0..tree.depth()).filter(|&level| tree.edge(rank, level).is_some()).count();
        Volume { sent: family, received: family }
    }
}

struct UpAndDown {
    n: usize,
}

/// The transfers at one level of the tree.
enum Edge {
    Parent(Rank),
    Child(Rank),
}

impl UpAndDown {
    /// ceil(log2 n).
    fn depth(&self) -> usize {
        self.n.next_power_of_two().trailing_zeros() as usize
    }

    /// At level k, ranks that are odd multiples of 2^k exchange with their parents, 2^k below.
    fn edge(&self, rank: Rank, level: usize) -> Option<Edge> {
        let distance = 1 << level;
        if rank % (2 * distance) == distance {
            Some(Edge::Parent(rank - distance))
        } else if rank.is_multiple_of(2 * distance) && rank + distance < self.n {
            Some(Edge::Child(rank + distance))
        } else {
            None
        }
    }
}

impl Schedule for UpAndDown {
    fn ranks(&self) -> usize {
        self.n
    }

    fn chunks(&self) -> usize {
        1
    }

    fn steps(&self) -> usize {
        2 * self.depth()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (level, action) = match step.checked_sub(self.depth()) {
            None => (step, Action::Reduce),
            Some(down) => (self.depth() - 1 - down, Action::Copy),
        };
        match (self.edge(rank, level), action) {
            (Some(Edge::Parent(parent)), Action::Reduce) => {
                part.sends.push(Move::new(parent, 0..1, action));
            }
            (Some(Edge::Child(child)), Action::Reduce) => {
                part.receives.push(Move::new(child, 0..1, action));
            }
            (Some(Edge::Parent(parent)), Action::Copy) => {
                part.receives.push(Move::new(parent, 0..1, action));
            }
            (Some(Edge::Child(child)), Action::Copy) => {
                part.sends.push(Move::new(child, 0..1, action));
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;
    use crate::verify;

    #[test]
    fn every_rank_ends_with_every_part() {
        for n in 1..=64 {
            verify::algorithm(&Tree, &Topology::flat(n)).unwrap_or_else(|why| panic!("{n}: {why}"));
        }
    }

    #[test]
    fn costs_match_the_header() {
        for n in 1..=64_usize {
            let world = Topology::flat(n);
            let depth = (n as f64).log2().ceil() as usize;
            assert_eq!(Tree.schedule(&world).unwrap().steps(), 2 * depth);
            assert_eq!(Tree.volume(&world, 0), Volume { sent: depth, received: depth });
            for rank in (1..n).step_by(2) {
                assert_eq!(Tree.volume(&world, rank), Volume { sent: 1, received: 1 }, "a leaf");
            }
        }
    }

    #[test]
    fn five_ranks_step_by_step() {
        let schedule = Tree.schedule(&Topology::flat(5)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  1+>0 c0  3+>2 c0
step 1:  2+>0 c0
step 2:  4+>0 c0
step 3:  0->4 c0
step 4:  0->2 c0
step 5:  0->1 c0  2->3 c0
"
        );
    }
}
