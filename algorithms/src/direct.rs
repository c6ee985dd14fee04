//! Direct algorithms: every rank exchanges with every other, in one step or two.
//!
//! `one-shot`: every rank sends its whole buffer to every other, and each adds what it gets. One
//! step, (n - 1) buffers sent: for tiny buffers inside a node. Ranks add in different orders, so
//! floating-point results may differ in their last bits from rank to rank.
//!
//! `two-shot`: rank d gets chunk d from all, adds, and sends the finished chunk back to all. Two
//! steps, 2(n - 1) of n chunks sent, as few bytes as a ring: for everything else inside a node, where
//! all ranks reach each other equally well.
//!
//! After the all-pairs algorithms of MSCCL++ (Microsoft).

use crate::algorithm::{Algorithm, Limit, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// The `one-shot` algorithm.
pub struct OneShot;

/// The `two-shot` algorithm.
pub struct TwoShot;

impl Algorithm for OneShot {
    fn name(&self) -> String {
        "one-shot".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(AllPairs { ranks: topology.ranks(), shots: 1 }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        usize::from(topology.ranks() > 1)
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let others = topology.ranks() - 1;
        Volume { sent: others, received: others }
    }

    /// A rank sends n - 1 buffers. Beyond a large node every other algorithm sends less, in few steps more.
    fn limit(&self) -> Option<Limit> {
        Some(Limit {
            ranks: 64,
            because: "every rank sends its whole buffer to every other",
            instead: "two-shot or recursive-doubling",
        })
    }
}

impl Algorithm for TwoShot {
    fn name(&self) -> String {
        "two-shot".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(AllPairs { ranks: topology.ranks(), shots: 2 }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        if topology.ranks() > 1 { 2 } else { 0 }
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let others = topology.ranks() - 1;
        Volume { sent: 2 * others, received: 2 * others }
    }

    /// A rank sends a message to every other rank at once; no larger machine connects all ranks directly.
    fn limit(&self) -> Option<Limit> {
        Some(Limit {
            ranks: 1024,
            because: "every rank sends to every other at once",
            instead: "halving-doubling or hierarchical:two-shot",
        })
    }
}

struct AllPairs {
    ranks: usize,
    shots: usize,
}

impl Schedule for AllPairs {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        if self.shots == 1 { 1 } else { self.ranks }
    }

    fn steps(&self) -> usize {
        if self.ranks > 1 { self.shots } else { 0 }
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let one = |chunk: usize| chunk..chunk + 1;
        // Beginning with the next rank, so that not all read from the same one at once.
        for peer in (1..self.ranks).map(|distance| (rank + distance) % self.ranks) {
            let (sent, received, action) = match (self.shots, step) {
                (1, _) => (one(0), one(0), Action::Reduce),
                (_, 0) => (one(peer), one(rank), Action::Reduce),
                _ => (one(rank), one(peer), Action::Copy),
            };
            part.sends.push(Move::new(peer, sent, action));
            part.receives.push(Move::new(peer, received, action));
        }
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
        let drawn = |algorithm: &dyn Algorithm| {
            Drawing(&*algorithm.schedule(&Topology::flat(3)).unwrap()).to_string()
        };
        assert_eq!(
            drawn(&OneShot),
            "step 0:  0+>1 c0  0+>2 c0  1+>2 c0  1+>0 c0  2+>0 c0  2+>1 c0\n"
        );
        assert_eq!(
            drawn(&TwoShot),
            "\
step 0:  0+>1 c1  0+>2 c2  1+>2 c2  1+>0 c0  2+>0 c0  2+>1 c1
step 1:  0->1 c0  0->2 c0  1->2 c1  1->0 c1  2->0 c2  2->1 c2
"
        );
    }
}
