//! Recursive halving and doubling (Rabenseifner): a reduce-scatter that halves what is exchanged in
//! every step, then an all-gather that doubles it again.
//!
//! The buffer is cut into q = 2^L chunks. In step k of the reduce-scatter, partners v and v xor 2^k
//! split the window of chunks that both still work on: one keeps the lower half, the other the upper,
//! and each sends the half that it gives up. After L steps every rank holds one finished chunk; the
//! all-gather runs the same exchanges backwards.
//!
//! Cost for n a power of two: 2 log2 n steps and 2(n - 1) of n chunks sent, the fewest bytes there
//! are. Otherwise ranks beyond the power of two are folded (see [`crate::combinators::Fold`]): two steps
//! and two buffers more for the busiest rank. For medium and large buffers.
//!
//! After R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.

use std::ops::Range;

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combinators::{Fold, Sequence, folded_steps, folded_volume};
use crate::schedule::{Action, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Recursive halving and doubling.
pub struct HalvingDoubling;

impl Algorithm for HalvingDoubling {
    fn name(&self) -> String {
        "halving-doubling".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(Fold::new(
            topology.ranks(),
            reduce_scatter_all_gather(topology.ranks(), BUTTERFLY),
        )))
    }

    fn steps(&self, topology: &Topology) -> usize {
        folded_steps(topology.ranks(), 2 * topology.ranks().ilog2() as usize)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let ranks = topology.ranks();
        let chunks = 1 << ranks.ilog2();
        let inner = Volume { sent: 2 * (chunks - 1), received: 2 * (chunks - 1) };
        folded_volume(ranks, rank, chunks, inner)
    }
}

/// Halves at doubling distances.
pub const BUTTERFLY: Butterfly = Butterfly { peer, window };

/// Nearest partner first, with the most to exchange.
fn peer(rank: Rank, step: usize, _ranks: usize) -> Rank {
    rank ^ (1 << step)
}

/// The window of chunks of a rank after `steps` steps: each step keeps the upper half if the rank's bit
/// of that step is set.
fn window(rank: Rank, steps: usize, ranks: usize) -> Range<usize> {
    let first = (0..steps).map(|step| (rank >> step & 1) * (ranks >> (step + 1))).sum();
    first..first + (ranks >> steps)
}

/// The partners of each step, and the window of chunks of a rank after some steps, in a world of a power
/// of two. Partners have the same window before a step and one half of it each afterwards.
#[derive(Clone, Copy)]
pub struct Butterfly {
    /// `peer(rank, step, ranks)`, mutual.
    pub peer: fn(Rank, usize, usize) -> Rank,
    /// `window(rank, steps, ranks)`, of `ranks >> steps` chunks.
    pub window: fn(Rank, usize, usize) -> Range<usize>,
}

/// Reduce-scatter and all-gather along a butterfly, over the power of two that `ranks` folds to.
pub fn reduce_scatter_all_gather(ranks: usize, butterfly: Butterfly) -> Sequence {
    let ranks = Fold::<Phase>::active(ranks);
    let phase = |action| Box::new(Phase { ranks, butterfly, action });
    Sequence::new(vec![phase(Action::Reduce), phase(Action::Copy)])
}

/// One way through a butterfly: halving and adding, or doubling and copying.
struct Phase {
    ranks: usize,
    butterfly: Butterfly,
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
        let Butterfly { peer, window } = self.butterfly;
        match self.action {
            // Each sends what its partner keeps.
            Action::Reduce => {
                let partner = peer(rank, step, self.ranks);
                part.pass(rank, partner, partner, self.action, |sender| {
                    window(peer(sender, step, self.ranks), step + 1, self.ranks)
                });
            }
            // The same steps backwards: each sends all that it has.
            Action::Copy => {
                let step = self.steps() - 1 - step;
                let partner = peer(rank, step, self.ranks);
                part.pass(rank, partner, partner, self.action, |sender| {
                    window(sender, step + 1, self.ranks)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn four_ranks_step_by_step() {
        let schedule = HalvingDoubling.schedule(&Topology::flat(4)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c2..4  1+>0 c0..2  2+>3 c2..4  3+>2 c0..2
step 1:  0+>2 c1  1+>3 c3  2+>0 c0  3+>1 c2
step 2:  0->2 c0  1->3 c2  2->0 c1  3->1 c3
step 3:  0->1 c0..2  1->0 c2..4  2->3 c0..2  3->2 c2..4
"
        );
    }
}
