//! Whether blocks of the same case agree as far as their steps tell.
//!
//! An interval over steps takes them as independent. Steps that follow each other, and blocks that begin differently, make
//! blocks differ by more than independent steps would. Two blocks of three steps do not show it, many cases together do.

use std::fmt;

use results::nested::{BLOCKS_MIN, Level, Nested};
use results::row::StepRow;
use statrs::distribution::{ContinuousCDF, Normal};

/// Blocks that agree are found to differ with at most this probability.
const ERROR: f64 = 0.05;

/// The ranks of fewer cases together are not yet normal.
const CASES_MIN: usize = 6;

/// Blocks of the same case differ by more than independent steps would.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlocksDiffer {
    /// Cases that tell it.
    pub cases: usize,
    /// The probability of as large differences by chance.
    pub by_chance: f64,
}

impl BlocksDiffer {
    /// From the step times of all cases, of which only those with an interval over steps count; none if their blocks agree.
    pub fn of(cases: impl Iterator<Item = Nested>) -> Option<BlocksDiffer> {
        let few = cases.filter(|case| case.level() == Level::Sample);
        let (mut cases, mut excess, mut variance) = (0, 0.0, 0.0);
        for ranks in few.filter_map(|case| case.block_ranks()) {
            cases += 1;
            excess += ranks.excess;
            variance += ranks.variance;
        }
        if cases < CASES_MIN {
            return None;
        }
        let by_chance = Normal::standard().sf(excess / variance.sqrt());
        (by_chance <= ERROR).then_some(BlocksDiffer { cases, by_chance })
    }

    /// Rows without the intervals that take steps as independent.
    pub fn withhold_intervals(rows: Vec<StepRow>) -> Vec<StepRow> {
        let without = |mut row: StepRow| match row.outcome.right_mut() {
            Some(result) if result.confidence.interval_over == Level::Sample.plural() => {
                result.withhold_intervals();
                row.rounded()
            }
            _ => row,
        };
        rows.into_iter().map(without).collect()
    }
}

impl fmt::Display for BlocksDiffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlocksDiffer { cases, by_chance } = self;
        let cases_of = if *cases == 1 { "case" } else { "cases" };
        write!(
            f,
            "blocks: those of a case differ by more than their steps do ({cases} {cases_of}; by chance with a probability of \
             {by_chance:.1e}), so times over fewer than {BLOCKS_MIN} blocks have no interval (measure.blocks_min = \
             {BLOCKS_MIN})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Cases of two blocks with three steps; blocks differ by this much.
    fn cases(count: usize, blocks_differ: f64, random: &mut ChaCha8Rng) -> Vec<Nested> {
        let mut case = || {
            let mut nested = Nested::default();
            for block in 0..2 {
                let level = 1.0 + blocks_differ * random.random::<f64>();
                (0..3).for_each(|_| {
                    nested.extend([(1, block, level + 0.1 * random.random::<f64>())])
                });
            }
            nested
        };
        (0..count).map(|_| case()).collect()
    }

    #[test]
    fn many_cases_tell_what_one_does_not() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let found = BlocksDiffer::of(cases(48, 0.2, &mut random).into_iter()).unwrap();
        assert!(found.cases == 48 && found.by_chance < 1e-4, "{found:?}");
        assert_eq!(BlocksDiffer::of(cases(1, 0.2, &mut random).into_iter()), None);
        assert_eq!(BlocksDiffer::of(std::iter::empty()), None);
    }

    #[test]
    fn blocks_that_agree_are_hardly_ever_found_to_differ() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let mut found = || BlocksDiffer::of(cases(12, 0.0, &mut random).into_iter()).is_some();
        let count = (0..1000).filter(|_| found()).count();
        assert!(count <= 70, "{count} of 1000");
    }

    #[test]
    fn intervals_over_blocks_are_none_of_its_business() {
        let five = |case: usize| {
            let level = |block: usize| (case + block * block) as f64 + 1.0;
            (0..5).flat_map(|block| [(1, block, level(block)); 3]).collect::<Nested>()
        };
        assert_eq!(BlocksDiffer::of((0..20).map(five)), None);
    }
}
