//! How many blocks tell a difference, at the noise that was found.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use super::Times;
use super::evidence::{Design, rounds, units};
use crate::nested::Level;
use crate::rank_tests::Laws;
use crate::statistics::{median, quantile};

/// The share of runs in which a difference is told: nine of ten, and some in reserve for noise that is no normal variable.
const POWER: f64 = 0.93;

/// The share of runs in which the noise is no larger than it is taken to be.
const SURE: f64 = 0.8;

/// The share of cases that are no noisier than the number of blocks is for.
const CASES: f64 = 0.9;

/// A case is noisier than the others if noise alone makes its variance as large with this probability.
const NOISIER: f64 = 0.05;

/// No number of blocks above this one is asked for.
const BLOCKS_MAX: usize = 10_000;

/// Up to so many blocks, tests are simulated; for more they are nearly those of normal variables.
const SIMULATED: usize = 40;

/// How often.
const TIMES: usize = 500;

/// Efficiency of tests by ranks, relative to those of means, for normal noise: 3 / pi.
const EFFICIENCY: f64 = 0.955;

/// What is computed once for all cases and runs.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Of the tests.
    pub(super) laws: Laws,
    /// What so many blocks tell, by design and the bits of the error.
    tells: BTreeMap<(bool, usize, u64), Option<f64>>,
    /// Quantiles of variances whose truth is 1, by the bits of degrees of freedom and share.
    variances: BTreeMap<(u64, u64), f64>,
}

impl Tables {
    /// This quantile of variances whose truth is 1, with so many degrees of freedom.
    fn variance(&mut self, share: f64, freedom: f64) -> f64 {
        *self.variances.entry((freedom.to_bits(), share.to_bits())).or_insert_with(|| {
            ChiSquared::new(freedom).map_or(1.0, |law| law.inverse_cdf(share) / freedom)
        })
    }
}

/// What blocks tell, or launches. Their numbers are for each case in each run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Needed {
    /// What is taken as independent.
    pub over: Level,
    /// The noise between blocks, as a share of the time: the deviation of a block's median, for runs that took turns that of
    /// the ratio in one round. Nine of ten cases have no more.
    pub noise: f64,
    /// Blocks of a case in the middle case.
    pub has: usize,
    /// The least difference that so many tell in nine of ten runs, as a share; none if they tell nothing.
    pub tells: Option<f64>,
    /// Blocks that tell a difference as large as the threshold in nine of ten runs; none if 10,000 do not.
    pub blocks: Option<usize>,
}

impl Needed {
    /// From the times of cases in both runs. `error` is that of a single case; none if no case has a noise.
    pub(super) fn of(
        cases: &[(&Times, &Times)],
        took_turns: bool,
        error: f64,
        threshold: f64,
        tables: &mut Tables,
    ) -> Option<Needed> {
        let noises: Vec<Noise> =
            cases.iter().filter_map(|both| Noise::of(*both, took_turns)).collect();
        let over = noises.iter().map(|noise| noise.over).max()?;
        let noise = tables.usual(&noises)?;
        let has = median(noises.iter().map(|noise| noise.blocks as f64).collect())? as usize;
        let mut tests = Tests { took_turns, error, tables };
        let tells = tests.tells(has).map(|least| (noise * least).exp() - 1.0);
        let least = threshold.ln_1p() / noise;
        Some(Needed { over, noise, has, tells, blocks: tests.blocks(least) })
    }

    /// In a sentence, for a difference of this share.
    pub(super) fn in_words(&self, threshold: f64) -> String {
        let Needed { over, noise, has, tells, blocks } = self;
        let units = over.plural();
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let now = match tells {
            Some(tells) => {
                format!("{has} {units} of each case tell a difference of {}", percent(*tells))
            }
            None => format!("{has} {units} of each case are too few to tell any difference"),
        };
        let then = match blocks {
            Some(blocks) if blocks <= has => String::new(),
            Some(blocks) => format!(", {blocks} would tell {}", percent(threshold)),
            None => format!(", {BLOCKS_MAX} would not tell {}", percent(threshold)),
        };
        format!("{now}{then} (in nine of ten runs; noise between {units}: {})\n", percent(*noise))
    }
}

/// The noise of one case.
struct Noise {
    /// Of logarithms: of the ratio in one round, or of one run's blocks.
    variance: f64,
    freedom: f64,
    blocks: usize,
    over: Level,
}

impl Noise {
    fn of((first, second): (&Times, &Times), took_turns: bool) -> Option<Noise> {
        let (variance, freedom, blocks, over) = if took_turns {
            let rounds = rounds(first, second);
            let (variance, freedom) = variance(&rounds)?;
            (variance, freedom, rounds.len(), Level::Block)
        } else {
            let logarithms =
                |times: Vec<f64>| times.iter().map(|time| time.ln()).collect::<Vec<_>>();
            let (first, second, over) = units(first, second);
            let blocks = first.len().min(second.len());
            let (one, other) = (variance(&logarithms(first)), variance(&logarithms(second)));
            let ((one, one_freedom), (other, other_freedom)) = one.zip(other)?;
            let freedom = one_freedom + other_freedom;
            ((one * one_freedom + other * other_freedom) / freedom, freedom, blocks, over)
        };
        Some(Noise { variance, freedom, blocks, over })
    }
}

/// The variance of values, and its degrees of freedom; none for one value.
fn variance(values: &[f64]) -> Option<(f64, f64)> {
    let freedom = values.len().checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Some((squares / freedom, freedom))
}

impl Tables {
    /// The deviation that nine of ten cases do not exceed. Cases lend each other their noise: that of a single one is hardly
    /// known from a few blocks, and it counts by itself only if it is larger than chance makes it.
    fn usual(&mut self, noises: &[Noise]) -> Option<f64> {
        // The median of an estimate is below its mean.
        let mut unbiased = |noise: &Noise| noise.variance / self.variance(0.5, noise.freedom);
        let middle = median(noises.iter().map(&mut unbiased).collect())?;
        // A median of many is as good as a mean of 2 / pi as many.
        let all: f64 = noises.iter().map(|noise| noise.freedom).sum();
        let freedom = if noises.len() > 2 { all * std::f64::consts::FRAC_2_PI } else { all };
        let usual = middle / self.variance(1.0 - SURE, freedom);
        let mut own =
            |noise: &Noise| usual.max(noise.variance / self.variance(1.0 - NOISIER, noise.freedom));
        let deviation = quantile(noises.iter().map(&mut own).collect(), CASES)?.sqrt();
        (deviation > 0.0).then_some(deviation)
    }
}

/// Tests of a case, in units of the noise.
struct Tests<'l> {
    took_turns: bool,
    error: f64,
    tables: &'l mut Tables,
}

impl Tests<'_> {
    fn design(&self, blocks: usize) -> Design {
        if self.took_turns { Design::Pairs(blocks) } else { Design::Samples(blocks, blocks) }
    }

    /// The least difference that so many blocks tell; none if they tell nothing.
    fn tells(&mut self, blocks: usize) -> Option<f64> {
        let key = (self.took_turns, blocks, self.error.to_bits());
        if let Some(known) = self.tables.tells.get(&key) {
            return *known;
        }
        let tells = self.computed(blocks);
        self.tables.tells.insert(key, tells);
        tells
    }

    fn computed(&mut self, blocks: usize) -> Option<f64> {
        let design = self.design(blocks);
        let laws = &mut self.tables.laws;
        let outside = match design {
            Design::Pairs(count) => laws.outside_of_pairs(count, self.error)?,
            Design::Samples(one, other) => laws.outside_of_samples((one, other), self.error)?,
        };
        if blocks > SIMULATED {
            let normal = Normal::standard();
            let deviations = normal.inverse_cdf(1.0 - self.error / 2.0) + normal.inverse_cdf(POWER);
            let runs = if self.took_turns { 1.0 } else { 2.0 };
            return Some(deviations * (runs / EFFICIENCY / blocks as f64).sqrt());
        }
        let mut random = ChaCha8Rng::seed_from_u64(blocks as u64);
        // The lower end of the interval of what is 0 in truth: a larger difference is told.
        let ends = (0..TIMES).map(|_| {
            let mut candidates = candidates(design, &mut random);
            -*candidates.select_nth_unstable_by(outside, f64::total_cmp).1
        });
        quantile(ends.collect(), POWER)
    }

    /// The number of blocks that tell this difference.
    fn blocks(&mut self, least: f64) -> Option<usize> {
        let mut is_enough = |blocks: usize| self.tells(blocks).is_some_and(|tells| tells <= least);
        let mut enough = 2;
        while !is_enough(enough) {
            enough *= 2;
            if enough > 2 * BLOCKS_MAX {
                return None;
            }
        }
        let mut too_few = enough / 2;
        while enough - too_few > 1 {
            let middle = usize::midpoint(enough, too_few);
            if is_enough(middle) { enough = middle } else { too_few = middle }
        }
        (enough <= BLOCKS_MAX).then_some(enough)
    }
}

/// The candidates for an estimate from normal noise alone.
fn candidates(design: Design, random: &mut ChaCha8Rng) -> Vec<f64> {
    let mut sample = |count: usize| (0..count).map(|_| normal(random)).collect::<Vec<f64>>();
    match design {
        Design::Pairs(count) => {
            let values = sample(count);
            let of = |(at, one): (usize, &f64)| {
                values[at..].iter().map(|other| (one + other) / 2.0).collect::<Vec<f64>>()
            };
            values.iter().enumerate().flat_map(of).collect()
        }
        Design::Samples(count, other_count) => {
            let (values, others) = (sample(count), sample(other_count));
            values.iter().flat_map(|one| others.iter().map(move |other| one - other)).collect()
        }
    }
}

/// A normal number (G. E. P. Box and M. E. Muller, Annals of Mathematical Statistics 29, 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_tests_are_near_those_of_normal_variables() {
        let mut tables = Tables::default();
        for took_turns in [true, false] {
            let mut tests = Tests { took_turns, error: 0.05, tables: &mut tables };
            let at = tests.tells(SIMULATED).unwrap();
            let beyond = tests.tells(SIMULATED + 1).unwrap();
            assert!((at / beyond - 1.0).abs() < 0.1, "{took_turns}: {at} {beyond}");
        }
    }

    #[test]
    fn fewer_blocks_than_the_test_needs_tell_nothing() {
        let mut tables = Tables::default();
        let mut tests = Tests { took_turns: true, error: 0.05, tables: &mut tables };
        assert_eq!((tests.tells(5), tests.tells(6).is_some()), (None, true));
        // However large the difference.
        assert_eq!(tests.blocks(1e9), Some(6));
        assert_eq!(tests.blocks(1e-9), None);
        tests.error = 0.001;
        assert_eq!(tests.blocks(1e9), Some(11), "2 of 2048 outcomes");
    }

    #[test]
    fn a_noisy_case_does_not_count_for_the_others_and_chance_does_not_make_one() {
        let of = |variance: f64| Noise { variance, freedom: 5.0, blocks: 6, over: Level::Block };
        let mut noises: Vec<Noise> = (0..20).map(|_| of(4e-4)).collect();
        let mut tables = Tables::default();
        let mut usual = |noises: &[Noise]| tables.usual(noises);
        let alike = usual(&noises).unwrap();
        noises[3].variance = 7e-4;
        assert_eq!(usual(&noises), Some(alike));
        noises[3].variance = 1.0;
        assert_eq!(usual(&noises), Some(alike), "one of twenty");
        noises[..5].iter_mut().for_each(|noise| noise.variance = 1.0);
        assert!(usual(&noises).unwrap() > 10.0 * alike);
        assert_eq!(usual(&[]), None);
    }
}
