//! Bine butterfly: halving and doubling with the partners of Swing, chunks renumbered so that every
//! exchange is one contiguous half.
//!
//! Partners are at the distances of [`crate::swing`] (1, -1, 3, -5, 11, ...). The chunk that rank r
//! ends with is the bit reversal of the Gray code of the base -2 digits of r (of -r for even r); with
//! that numbering, partners agree on the first s bits in step s and differ in the next, so the window
//! of chunks that a rank works on is again contiguous.
//!
//! Cost: that of [`crate::halving_doubling`]: 2 log2 n steps and 2(n - 1) of n chunks for n a power
//! of two, else folded. On dragonflies and tapered trees fewer bytes cross the far links.
//!
//! After D. De Sensi et al., "Bine Trees: Enhancing Collective Operations by Optimizing Communication
//! Locality", SC 2025.

use std::ops::Range;

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combinators::Fold;
use crate::halving_doubling::{Butterfly, HalvingDoubling, reduce_scatter_all_gather};
use crate::schedule::Schedule;
use crate::swing::peer;
use crate::topology::{Rank, Topology};

/// Recursive halving and doubling with the distances of Swing.
pub struct Bine;

impl Algorithm for Bine {
    fn name(&self) -> String {
        "bine".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let butterfly = Butterfly { peer, window };
        Ok(Box::new(Fold::new(
            topology.ranks(),
            reduce_scatter_all_gather(topology.ranks(), butterfly),
        )))
    }

    fn steps(&self, topology: &Topology) -> usize {
        HalvingDoubling.steps(topology)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        HalvingDoubling.volume(topology, rank)
    }
}

/// The chunks whose numbers begin with the first `steps` bits of the rank's own.
fn window(rank: Rank, steps: usize, ranks: usize) -> Range<usize> {
    let size = ranks >> steps;
    let first = chunk(rank, ranks) / size * size;
    first..first + size
}

/// The chunk that a rank ends with.
fn chunk(rank: Rank, ranks: usize) -> usize {
    let residue = if rank.is_multiple_of(2) { ranks - rank } else { rank };
    // Digits in base -2, by the usual trick with the mask of the odd positions, modulo `ranks`.
    let odd = 0xAAAA_AAAA_AAAA_AAAA_u64 as usize;
    let digits = ((residue.wrapping_add(odd)) ^ odd) & (ranks - 1);
    let gray = digits ^ (digits >> 1);
    match ranks.ilog2() {
        0 => 0,
        bits => gray.reverse_bits() >> (usize::BITS - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn every_chunk_has_one_owner() {
        for ranks in [1, 2, 4, 64, 4096] {
            let mut owners: Vec<_> = (0..ranks).map(|rank| chunk(rank, ranks)).collect();
            owners.sort_unstable();
            assert!(owners.into_iter().eq(0..ranks));
        }
    }

    #[test]
    fn four_ranks_step_by_step() {
        let schedule = Bine.schedule(&Topology::flat(4)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c2..4  1+>0 c0..2  2+>3 c0..2  3+>2 c2..4
step 1:  0+>3 c1  1+>2 c3  2+>1 c2  3+>0 c0
step 2:  0->3 c0  1->2 c2  2->1 c3  3->0 c1
step 3:  0->1 c0..2  1->0 c2..4  2->3 c2..4  3->2 c0..2
"
        );
    }
}
