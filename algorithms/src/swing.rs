//! Swing: butterflies whose partners swing to and fro, to cross fewer links of a torus.
//!
//! In step s, rank r meets r + rho(s) if it is even and r - rho(s) if it is odd, modulo n, where
//! rho(s) = 1 - 2 + 4 - ... = (1 - (-2)^(s+1)) / 3: distances 1, 1, 3, 5, 11, 21, ..., each shorter than
//! the 2^s of recursive doubling.
//!
//! `swing-latency` exchanges the whole buffer: log2 n steps. `swing` is a reduce-scatter and an
//! all-gather: in step s a rank sends its partner every chunk that the partner's later partners can
//! still reach; 2 log2 n steps, 2(n - 1) of n chunks, in several messages per step as those chunks are
//! not contiguous. For n that is no power of two both are folded (see [`crate::combinators::Fold`]).
//!
//! After D. De Sensi et al., "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", NSDI 2024.

use crate::algorithm::{Algorithm, Limit, Unsupported, Volume};
use crate::combinators::{Fold, Sequence};
use crate::halving_doubling::HalvingDoubling;
use crate::recursive_doubling::{Exchanges, RecursiveDoubling};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// The `swing-latency` algorithm.
pub struct SwingLatency;

impl Algorithm for SwingLatency {
    fn name(&self) -> String {
        "swing-latency".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let ranks = topology.ranks();
        Ok(Box::new(Fold::new(ranks, Exchanges::new(ranks, peer))))
    }

    fn steps(&self, topology: &Topology) -> usize {
        RecursiveDoubling.steps(topology)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        RecursiveDoubling.volume(topology, rank)
    }
}

/// The `swing` algorithm.
pub struct Swing;

impl Algorithm for Swing {
    fn name(&self) -> String {
        "swing".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let ranks = topology.ranks();
        let active = Fold::<Phase>::active(ranks);
        let phase = |action| Box::new(Phase { ranks: active, action });
        let phases: Vec<Box<dyn Schedule>> = vec![phase(Action::Reduce), phase(Action::Copy)];
        Ok(Box::new(Fold::new(ranks, Sequence::new(phases))))
    }

    fn steps(&self, topology: &Topology) -> usize {
        HalvingDoubling.steps(topology)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        HalvingDoubling.volume(topology, rank)
    }

    /// Up to n/2 messages in a step, each of 1/n of the buffer: 512 of 64 KiB for 64 MiB here.
    fn limit(&self) -> Option<Limit> {
        Some(Limit {
            ranks: 1024,
            because: "up to half of the chunks travel one by one in a step",
            instead: "bine, which has the same partners and contiguous chunks",
        })
    }
}

/// The partner of a rank in a step, in a world of a power of two.
pub fn peer(rank: Rank, step: usize, ranks: usize) -> Rank {
    let rho = (1 - (-2_i64).pow(step as u32 + 1)) / 3;
    let signed = if rank.is_multiple_of(2) { rho } else { -rho };
    (rank as i64 + signed).rem_euclid(ranks as i64) as Rank
}

/// The chunks for which a rank is responsible from a step on: its own, and those of all ranks that it can
/// still reach.
fn reach(rank: Rank, step: usize, ranks: usize) -> Vec<usize> {
    let mut chunks = vec![rank];
    for later in (step..ranks.ilog2() as usize).rev() {
        // From the last step backwards, each partner brings as many chunks as are there already.
        let met: Vec<_> = reach(peer(rank, later, ranks), later + 1, ranks);
        chunks.extend(met);
    }
    chunks.sort_unstable();
    chunks
}

struct Phase {
    ranks: usize,
    action: Action,
}

impl Schedule for Phase {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        self.ranks
    }

    fn steps(&self) -> usize {
        self.ranks.ilog2() as usize
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let step = match self.action {
            Action::Reduce => step,
            Action::Copy => self.steps() - 1 - step,
        };
        let partner = peer(rank, step, self.ranks);
        let what = |sender: Rank| match self.action {
            // What the receiver can still reach.
            Action::Reduce => reach(peer(sender, step, self.ranks), step + 1, self.ranks),
            Action::Copy => reach(sender, step + 1, self.ranks),
        };
        let moves = |chunks: Vec<usize>| {
            let action = self.action;
            chunks.into_iter().map(move |chunk| Move::new(partner, chunk..chunk + 1, action))
        };
        part.sends.extend(moves(what(rank)));
        part.receives.extend(moves(what(partner)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn partners_are_mutual_and_swing() {
        let distances: Vec<_> = (0..6).map(|step| peer(0, step, 1 << 20)).collect();
        assert_eq!(distances, [1, (1 << 20) - 1, 3, (1 << 20) - 5, 11, (1 << 20) - 21]);
        for step in 0..6 {
            assert!((0..64).all(|rank| peer(peer(rank, step, 64), step, 64) == rank));
        }
    }

    #[test]
    fn four_ranks_step_by_step() {
        let schedule = Swing.schedule(&Topology::flat(4)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c1  0+>1 c2  1+>0 c0  1+>0 c3  2+>3 c0  2+>3 c3  3+>2 c1  3+>2 c2
step 1:  0+>3 c3  1+>2 c2  2+>1 c1  3+>0 c0
step 2:  0->3 c0  1->2 c1  2->1 c2  3->0 c3
step 3:  0->1 c0  0->1 c3  1->0 c1  1->0 c2  2->3 c1  2->3 c2  3->2 c0  3->2 c3
"
        );
    }
}
