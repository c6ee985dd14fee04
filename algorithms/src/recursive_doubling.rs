//! Recursive doubling: partners at distance 1, 2, 4, ... exchange everything they have, and add.
//!
//! The buffer is one chunk. In step k each of q = 2^L ranks swaps its whole buffer with rank
//! v xor 2^k; afterwards both hold the sum of 2^(k+1) ranks. Every combination is of the same two
//! values on both sides, so all ranks end with the same bits.
//!
//! Cost for n a power of two: log2 n steps, the whole buffer sent in each. Otherwise ranks beyond the
//! power of two are folded (see [`crate::combinators::Fold`]): two steps and two buffers more. The fewest
//! steps there are, for small buffers.
//!
//! After R. Thakur, R. Rabenseifner and W. Gropp (2005).

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combinators::{Fold, folded_steps, folded_volume};
use crate::schedule::{Action, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Recursive doubling.
pub struct RecursiveDoubling;

impl Algorithm for RecursiveDoubling {
    fn name(&self) -> String {
        "recursive-doubling".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let ranks = topology.ranks();
        let peer = |rank, step: usize, _ranks| rank ^ (1_usize << step);
        Ok(Box::new(Fold::new(ranks, Exchanges::new(ranks, peer))))
    }

    fn steps(&self, topology: &Topology) -> usize {
        folded_steps(topology.ranks(), topology.ranks().ilog2() as usize)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let swaps = topology.ranks().ilog2() as usize;
        folded_volume(topology.ranks(), rank, 1, Volume { sent: swaps, received: swaps })
    }
}

/// log2 q steps, in each of which every rank exchanges its whole buffer with one peer.
pub struct Exchanges {
    ranks: usize,
    peer: fn(Rank, usize, usize) -> Rank,
}

impl Exchanges {
    /// Over the power of two that `ranks` folds to; `peer(rank, step, q)` is mutual.
    pub fn new(ranks: usize, peer: fn(Rank, usize, usize) -> Rank) -> Exchanges {
        Exchanges { ranks: Fold::<Exchanges>::active(ranks), peer }
    }
}

impl Schedule for Exchanges {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        1
    }

    fn steps(&self) -> usize {
        self.ranks.ilog2() as usize
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let peer = (self.peer)(rank, step, self.ranks);
        part.pass(rank, peer, peer, Action::Reduce, |_| 0..1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn five_ranks_step_by_step() {
        let schedule = RecursiveDoubling.schedule(&Topology::flat(5)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c0
step 1:  1+>2 c0  2+>1 c0  3+>4 c0  4+>3 c0
step 2:  1+>3 c0  2+>4 c0  3+>1 c0  4+>2 c0
step 3:  1->0 c0
"
        );
    }
}
