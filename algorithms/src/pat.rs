//! PAT (parallel aggregated trees): a reduce-scatter and an all-gather over binomial trees, one
//! rooted at every rank, all at once; for any number of ranks.
//!
//! The buffer is cut into n chunks. In the all-gather, distances d run from the largest power of two
//! below n down to 1: rank r sends to rank r - d every chunk that it holds and the other will need:
//! those o ahead of its own, for o a multiple of 2d with o + d < n. So far partners come first, with one
//! chunk, and the many chunks travel near. The reduce-scatter is the same backwards.
//!
//! Cost: 2 ceil(log2 n) steps and 2(n - 1) of n chunks sent for *any* n: the steps of a tree with the
//! bytes of a ring, in many messages, as chunks are not contiguous.
//!
//! After NCCL 2.23, which has it for reduce-scatter and all-gather, and S. Jeaugey, "PAT: a new
//! algorithm for all-gather and reduce-scatter operations at scale", 2025.

use crate::algorithm::{Algorithm, Limit, Unsupported, Volume};
use crate::combinators::Sequence;
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// A binomial tree from every rank.
pub struct Pat;

impl Algorithm for Pat {
    fn name(&self) -> String {
        "pat".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let n = topology.ranks();
        let phase = |action| Box::new(Phase { n, action });
        let phases: Vec<Box<dyn Schedule>> = vec![phase(Action::Reduce), phase(Action::Copy)];
        Ok(Box::new(Sequence::new(phases)))
    }

    fn steps(&self, topology: &Topology) -> usize {
        2 * topology.ranks().next_power_of_two().ilog2() as usize
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let chunks = 2 * (topology.ranks() - 1);
        Volume { sent: chunks, received: chunks }
    }

    /// Up to n/2 messages in a step, each of 1/n of the buffer: 2048 of 16 KiB for 64 MiB here.
    fn limit(&self) -> Option<Limit> {
        Some(Limit {
            ranks: 4096,
            because: "up to half of the chunks travel one by one in a step",
            instead: "halving-doubling or hierarchical:pat",
        })
    }
}

struct Phase {
    n: usize,
    action: Action,
}

impl Schedule for Phase {
    fn ranks(&self) -> usize {
        self.n
    }

    fn chunks(&self) -> usize {
        self.n
    }

    fn steps(&self) -> usize {
        self.n.next_power_of_two().ilog2() as usize
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let n = self.n;
        let (distance, towards) = match self.action {
            // Near partners first, upwards.
            Action::Reduce => (1 << step, 1 << step),
            // Far partners first, downwards.
            Action::Copy => {
                let distance = 1 << (self.steps() - 1 - step);
                (distance, n - distance)
            }
        };
        let (to, from) = ((rank + towards) % n, (rank + n - towards) % n);
        // What travels between r and r - d, whichever way, is named after r.
        let upper = |sender: Rank, receiver: Rank| match self.action {
            Action::Reduce => receiver,
            Action::Copy => sender,
        };
        let moves = |peer: Rank, upper: Rank| {
            (0..n - distance).step_by(2 * distance).map(move |offset| {
                let chunk = (upper + offset) % n;
                Move::new(peer, chunk..chunk + 1, self.action)
            })
        };
        part.sends.extend(moves(to, upper(rank, to)));
        part.receives.extend(moves(from, upper(from, rank)));
    }

    fn rotation(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn three_ranks_step_by_step() {
        let schedule = Pat.schedule(&Topology::flat(3)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c1  1+>2 c2  2+>0 c0
step 1:  0+>2 c2  1+>0 c0  2+>1 c1
step 2:  0->1 c0  1->2 c1  2->0 c2
step 3:  0->2 c0  1->0 c1  2->1 c2
"
        );
    }
}
