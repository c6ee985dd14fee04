//! Ring allreduce: a reduce-scatter, then an all-gather, around one ring.
//!
//! The buffer is cut into n chunks, one per rank. First every chunk travels once around the ring,
//! gathers each rank's part on the way and ends complete at its owner; then every owner's chunk
//! travels once more and replaces the partial sums.
//!
//! Cost per rank: 2(n - 1) steps; 2(n - 1) of the n chunks sent, and as many received. No
//! point-to-point allreduce asks less of its busiest rank, but the steps grow with n: for small
//! buffers prefer a tree.
//!
//! After P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", J. Parallel Distrib. Comput. 69 (2009).

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combinators::Sequence;
use crate::schedule::{Action, Part, Schedule};
use crate::topology::{Rank, Topology};

/// One ring through all ranks, in rank order.
pub struct Ring;

impl Algorithm for Ring {
    fn name(&self) -> String {
        "ring".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let n = topology.ranks();
        Ok(Box::new(Sequence::new(vec![Box::new(reduce_scatter(n)), Box::new(all_gather(n))])))
    }

    fn steps(&self, topology: &Topology) -> usize {
        2 * (topology.ranks() - 1)
    }

    fn volume(&self, topology: &Topology, _rank: Rank) -> Volume {
        let hops = 2 * (topology.ranks() - 1);
        Volume { sent: hops, received: hops }
    }
}

/// A reduce-scatter around a ring: rank r of n ends with chunk r reduced over all ranks.
///
/// Chunk c starts at rank c + 1 and reaches rank c after n - 1 hops: in step s, rank r sends the chunk
/// s + 1 behind its own.
pub fn reduce_scatter(n: usize) -> RingPass {
    RingPass { n, lag: 1, action: Action::Reduce }
}

/// An all-gather around a ring: every rank gets every chunk, if rank r of n begins with chunk r.
///
/// In step s, rank r sends the chunk s behind its own: first its own, then the one that it received in the
/// step before.
pub fn all_gather(n: usize) -> RingPass {
    RingPass { n, lag: 0, action: Action::Copy }
}

/// n - 1 steps around the ring; in step s, rank r sends chunk r - s - lag (mod n) to rank r + 1.
pub struct RingPass {
    n: usize,
    lag: usize,
    action: Action,
}

impl Schedule for RingPass {
    fn ranks(&self) -> usize {
        self.n
    }

    fn chunks(&self) -> usize {
        self.n
    }

    fn steps(&self) -> usize {
        self.n - 1
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let n = self.n;
        part.pass(rank, (rank + 1) % n, (rank + n - 1) % n, self.action, |sender| {
            let chunk = (sender + 2 * n - step - self.lag) % n;
            chunk..chunk + 1
        });
    }

    fn rotation(&self) -> usize {
        1
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
            verify::algorithm(&Ring, &Topology::flat(n)).unwrap_or_else(|why| panic!("{n}: {why}"));
        }
    }

    #[test]
    fn costs_match_the_header() {
        for n in 1..=64 {
            let schedule = Ring.schedule(&Topology::flat(n)).unwrap();
            assert_eq!((schedule.steps(), schedule.chunks()), (2 * (n - 1), n));
        }
    }

    #[test]
    fn three_ranks_step_by_step() {
        let schedule = Ring.schedule(&Topology::flat(3)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c2  1+>2 c0  2+>0 c1
step 1:  0+>1 c1  1+>2 c2  2+>0 c0
step 2:  0->1 c0  1->2 c1  2->0 c2
step 3:  0->1 c2  1->2 c0  2->0 c1
"
        );
    }
}
