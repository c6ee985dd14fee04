//! Halving and doubling whose fold splits the work: in each pair of ranks that have to become one, both
//! add half of the buffer.
//!
//! For n = q + m ranks, q = 2^L, [`crate::halving_doubling`] has the even rank of each of m pairs send
//! its whole buffer, which the odd one adds. Here the pair exchanges halves, each of the two adds the
//! half that it got, and the even rank sends its sum (see [`crate::combinators::Fold::in_halves`]). The
//! odd one then takes part in the inner schedule, and hands the result back at the end.
//!
//! Cost for n a power of two: that of halving-doubling. Otherwise three steps more than for q ranks
//! instead of two; two buffers more on the busiest link, as there; but half a buffer more to combine,
//! not a whole one. It pays where combining is slow, and the buffer large enough for one latency.
//!
//! After Open MPI's form of Rabenseifner's algorithm (`nbc_iallreduce.c`), where the even rank of a pair
//! stays active.

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::combinators::Fold;
use crate::halving_doubling::{BUTTERFLY, HalvingDoubling, reduce_scatter_all_gather};
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// Recursive halving and doubling, with exchanges of halves in the pairs of the fold.
pub struct HalvingDoublingHalves;

impl Algorithm for HalvingDoublingHalves {
    fn name(&self) -> String {
        "halving-doubling-halves".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let ranks = topology.ranks();
        Ok(Box::new(Fold::in_halves(ranks, reduce_scatter_all_gather(ranks, BUTTERFLY))))
    }

    fn steps(&self, topology: &Topology) -> usize {
        HalvingDoubling.steps(topology) + usize::from(!topology.ranks().is_power_of_two())
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let active = 1 << topology.ranks().ilog2();
        let mut volume = HalvingDoubling.volume(topology, rank);
        // One half more goes from the odd rank of a pair to the even one.
        match rank {
            _ if rank >= 2 * (topology.ranks() - active) => {}
            _ if rank.is_multiple_of(2) => volume.received += active / 2,
            _ => volume.sent += active / 2,
        }
        volume
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::recursive_doubling::Exchanges;
    use crate::schedule::Drawing;
    use crate::verify;

    #[test]
    fn every_rank_ends_with_every_part() {
        for n in 1..=64 {
            verify::algorithm(&HalvingDoublingHalves, &Topology::flat(n))
                .unwrap_or_else(|why| panic!("{n}: {why}"));
        }
    }

    #[test]
    fn costs_match_the_header() {
        let cost = |algorithm: &dyn Algorithm, ranks| {
            let world = Topology::flat(ranks);
            Cost::of(&*algorithm.schedule(&world).unwrap(), &world)
        };
        for ranks in 1..=64_usize {
            let active = 1 << ranks.ilog2();
            let mut expected = cost(&HalvingDoubling, active);
            if !ranks.is_power_of_two() {
                let pairs = ranks - active;
                let messages = expected.messages_mean as usize * active + 4 * pairs;
                expected.messages_mean = messages as f64 / ranks as f64;
                expected.messages += 3.0;
                expected.between.latencies += 3.0;
                expected.between.sent += 2.0;
                expected.reduced += 0.5;
            }
            assert_eq!(cost(&HalvingDoublingHalves, ranks), expected, "{ranks} ranks");
        }
    }

    #[test]
    fn a_power_of_two_is_not_folded() {
        for world in [1, 2, 4, 8, 16].map(Topology::flat) {
            let drawn = |algorithm: &dyn Algorithm| {
                Drawing(&*algorithm.schedule(&world).unwrap()).to_string()
            };
            assert_eq!(drawn(&HalvingDoublingHalves), drawn(&HalvingDoubling));
        }
    }

    #[test]
    fn three_ranks_step_by_step() {
        let schedule = HalvingDoublingHalves.schedule(&Topology::flat(3)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c1  1+>0 c0
step 1:  0->1 c0
step 2:  1+>2 c1  2+>1 c0
step 3:  1->2 c0  2->1 c1
step 4:  1->0 c0..2
"
        );
    }

    /// A schedule of one chunk is cut in two for it.
    #[test]
    fn any_inner_schedule_can_be_folded_in_halves() {
        let swaps = Exchanges::new(3, |rank, step, _ranks| rank ^ (1 << step));
        let folded = Fold::in_halves(3, swaps);
        assert_eq!(
            Drawing(&folded).to_string(),
            "\
step 0:  0+>1 c1  1+>0 c0
step 1:  0->1 c0
step 2:  1+>2 c0..2  2+>1 c0..2
step 3:  1->0 c0..2
"
        );
    }
}
