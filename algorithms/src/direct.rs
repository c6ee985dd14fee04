//! Direct algorithms: everybody talks to everybody, in one step or two.
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

use crate::registry::{Algorithm, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Everything to everybody.
pub struct OneShot;

/// A chunk to its owner, and back to everybody.
pub struct TwoShot;

/// More ranks than any machine connects all to all.
const MOST_RANKS: usize = 1024;

fn refuse_large(name: &str, topology: &Topology) -> Result<(), Unsupported> {
    match topology.ranks() {
        ranks if ranks > MOST_RANKS => Err(Unsupported(format!(
            "{name} connects every rank with every other, which {ranks} ranks are too many for; use \
             it with at most {MOST_RANKS}, or inside nodes"
        ))),
        _ => Ok(()),
    }
}

impl Algorithm for OneShot {
    fn name(&self) -> String {
        "one-shot".into()
    }

    fn schedule(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        refuse_large("one-shot", topology)?;
        Ok(Box::new(AllPairs { ranks: topology.ranks(), shots: 1 }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        usize::from(topology.ranks() > 1)
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let others = topology.ranks() - 1;
        Volume { sent: others, received: others }
    }
}

impl Algorithm for TwoShot {
    fn name(&self) -> String {
        "two-shot".into()
    }

    fn schedule(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        refuse_large("two-shot", topology)?;
        Ok(Box::new(AllPairs { ranks: topology.ranks(), shots: 2 }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        if topology.ranks() > 1 { 2 } else { 0 }
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let others = topology.ranks() - 1;
        Volume { sent: 2 * others, received: 2 * others }
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

    #[test]
    fn thousands_of_ranks_are_refused() {
        let Err(why) = TwoShot.schedule(&Topology::flat(27_600)) else { panic!("accepted") };
        assert!(why.to_string().contains("27600 ranks are too many"), "{why}");
    }
}
