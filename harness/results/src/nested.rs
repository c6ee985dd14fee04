//! Samples nested in blocks and launches, and the interval of their median.
//!
//! Steps of one block share what the block began with: placement, memory, the load of the machine. Blocks of one launch
//! share its processes and nodes. Only units of the highest level that has enough of them count as independent, and the
//! interval is that of a bootstrap over those units: each resample draws units with replacement and keeps what is in
//! them (the cluster bootstrap; A. C. Davison and D. V. Hinkley, "Bootstrap Methods and their Application", 3.8). Lower
//! levels are kept as they are: a unit that is drawn brings their spread with it, and resampling them, too, would count it
//! twice.
//! Percentiles of few units are too narrow. The ends are t(n - 1) deviations of the bootstrap from the median, times
//! sqrt(n / (n - 1)), which for a mean is Student's interval.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::over_best::Rounds;
use crate::statistics::{CONFIDENCE, Summary, interval_ranks, median};

/// Resamples of a bootstrap over many units.
const RESAMPLES: usize = 10_000;

/// Fewer launches carry no interval: the t distribution of two units makes one of them 12.7 deviations wide.
pub const LAUNCHES_MIN: usize = 3;

/// Fewer blocks carry none: a machine that drifts is alike by chance for three rounds in one run of four, for five in one
/// of twenty.
pub const BLOCKS_MIN: usize = 5;

/// More samples are thinned out, evenly by size within each unit.
const SAMPLES_MAX: usize = 4_000;

/// Of more units, an even part of so many shows how much they differ (the bootstrap "m out of n": deviations of medians fall with
/// the square root of the number of units).
const UNITS_MAX: usize = 1_000;

/// What an interval takes as independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Samples of a single block: fewer than five blocks have none.
    Sample,
    /// Blocks of one launch or two.
    Block,
    /// Launches.
    Launch,
}

impl Level {
    /// The plural of its name.
    pub fn plural(self) -> &'static str {
        match self {
            Level::Sample => "steps",
            Level::Block => "blocks",
            Level::Launch => "launches",
        }
    }
}

/// Samples by launch and block, in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nested {
    launches: BTreeMap<usize, BTreeMap<usize, Vec<f64>>>,
}

impl Extend<(usize, usize, f64)> for Nested {
    fn extend<I: IntoIterator<Item = (usize, usize, f64)>>(&mut self, samples: I) {
        for (launch, block, value) in samples {
            let blocks = self.launches.entry(launch).or_default();
            blocks.entry(block).or_default().push(value);
        }
    }
}

impl FromIterator<(usize, usize, f64)> for Nested {
    /// From launch, block and value of each sample.
    fn from_iter<I: IntoIterator<Item = (usize, usize, f64)>>(samples: I) -> Nested {
        let mut nested = Nested::default();
        nested.extend(samples);
        nested
    }
}

impl Nested {
    /// All samples in a few numbers, with the interval of [`Nested::interval`]; `None` if there is none.
    pub fn summary(&self) -> Option<Summary> {
        let samples: Vec<f64> = self.blocks().flatten().copied().collect();
        let summary = Summary::of(&samples)?;
        Some(Summary { p50_interval: self.interval(), ..summary })
    }

    /// The highest level with enough units for an interval.
    pub fn level(&self) -> Level {
        if self.launches.len() >= LAUNCHES_MIN {
            Level::Launch
        } else if self.blocks().count() >= BLOCKS_MIN {
            Level::Block
        } else {
            Level::Sample
        }
    }

    /// The 95 % interval of the median over units of [`Nested::level`]. Samples have one in a single block of at least
    /// [`CORRELATED_MIN`], exact if they are independent. Shorter blocks do not show whether they are, and a few blocks do not
    /// show how much blocks differ.
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.level() {
            Level::Sample => self.of_samples(),
            Level::Block => Some(over_units(self.blocks().map(Vec::clone).collect())),
            Level::Launch => {
                let units = self.launches.values();
                Some(over_units(
                    units.map(|blocks| blocks.values().flatten().copied().collect()).collect(),
                ))
            }
        }
    }

    /// By order statistics of as many independent samples as those of a single block are worth.
    fn of_samples(&self) -> Option<(f64, f64)> {
        let (block, None) = ({ self.blocks() }.next()?, self.blocks().nth(1)) else { return None };
        if block.len() < CORRELATED_MIN {
            return None;
        }
        let mut sorted = block.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let effective = ((count as f64 / samples_for_one(block)) as usize).min(count);
        let (low, high) = interval_ranks(effective, 0.5)?;
        // The same shares of the sample, rounded outwards.
        let share = count as f64 / effective as f64;
        let low = ((low as f64 * share).floor() as usize).clamp(1, count);
        let high = (((high - 1) as f64 * share).ceil() as usize + 1).clamp(1, count);
        Some((sorted[low - 1], sorted[high - 1]))
    }

    /// How much of the variance is between launches, blocks and steps; `None` for fewer than two blocks, or values that
    /// are not positive.
    pub fn components(&self) -> Option<Components> {
        Components::of(self)
    }

    /// How many independent samples tell as much about the median as these: by the variance between launches, blocks and
    /// samples, or by the correlation with the next sample in a single block of at least twenty; `None` where neither shows.
    pub fn effective_samples(&self) -> Option<f64> {
        if let Some(components) = self.components() {
            return Some(components.effective_samples);
        }
        let mut blocks = self.blocks();
        let (block, None) = (blocks.next()?, blocks.next()) else { return None };
        (block.len() >= CORRELATED_MIN).then(|| block.len() as f64 / samples_for_one(block))
    }

    /// The median of each block.
    pub fn rounds(&self) -> Rounds {
        let mut rounds = Rounds::new();
        for (&launch, blocks) in &self.launches {
            for (&block, samples) in blocks {
                rounds.extend(median(samples.clone()).map(|median| ((launch, block), median)));
            }
        }
        rounds
    }

    /// The median of each launch, or of each block where these are too few, in a few numbers: those of units which have so
    /// many samples that only units differ. The interval is Student's of the mean of their logarithms, and contains their
    /// median. `None` if there is no sample, or neither has enough units.
    pub fn of_unit_medians(&self) -> Option<Summary> {
        let medians: Vec<f64> = match self.level() {
            Level::Launch => {
                let of_launch = |blocks: &BTreeMap<_, Vec<f64>>| {
                    median(blocks.values().flatten().copied().collect())
                };
                self.launches.values().filter_map(of_launch).collect()
            }
            Level::Block => self.blocks().filter_map(|block| median(block.clone())).collect(),
            Level::Sample => return None,
        };
        let summary = Summary::of(&medians)?;
        let (low, high) = of_mean(&medians);
        Some(Summary {
            p50_interval: Some((low.min(summary.p50), high.max(summary.p50))),
            ..summary
        })
    }

    /// The blocks of all launches.
    fn blocks(&self) -> impl Iterator<Item = &Vec<f64>> {
        self.launches.values().flat_map(BTreeMap::values)
    }
}

/// Shorter blocks do not show their autocorrelation.
pub const CORRELATED_MIN: usize = 20;

/// How many of these samples, in the order of time, tell as much as one independent sample, from their correlation with the
/// next: 1 where they are independent.
pub fn samples_for_one(samples: &[f64]) -> f64 {
    let correlation = autocorrelation(samples).clamp(0.0, 0.99);
    (1.0 + correlation) / (1.0 - correlation)
}

/// The correlation of values with the next ones, without its bias towards negative values; 0 for fewer than two.
fn autocorrelation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let count = values.len() as f64;
    // Ranks: a single late step would hide how the others follow each other.
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![0.0; values.len()];
    order.iter().enumerate().for_each(|(rank, &at)| ranks[at] = rank as f64 - (count - 1.0) / 2.0);
    let squares: f64 = ranks.iter().map(|rank| rank * rank).sum();
    let products: f64 = ranks.windows(2).map(|pair| pair[0] * pair[1]).sum();
    products / squares + 1.0 / count
}

/// The interval of the median of all samples, by a bootstrap over units.
fn over_units(mut units: Vec<Vec<f64>>) -> (f64, f64) {
    let first = units[0][0];
    if units.iter().flatten().all(|&value| value == first) {
        return (first, first);
    }
    let of_all = units.len();
    let known_middle = (of_all > UNITS_MAX).then(|| median(units.concat())).flatten();
    if of_all > UNITS_MAX {
        let kept = |at: usize| std::mem::take(&mut units[at * of_all / UNITS_MAX]);
        units = (0..UNITS_MAX).map(kept).collect();
    }
    let (count, all) = (units.len(), units.iter().map(Vec::len).sum::<usize>());
    if all > SAMPLES_MAX {
        units.iter_mut().for_each(|unit| thin_out(unit, all));
    }
    let sorted = Sorted::new(&units);
    let middle = sorted.median(&vec![1; count]);
    if middle <= 0.0 {
        return (sorted.values[0], sorted.values[sorted.values.len() - 1]);
    }
    // By ratio, so that no time becomes negative.
    let [mean, squares] =
        moments(count, |drawn| (sorted.median(drawn) / middle).max(f64::MIN_POSITIVE).ln());
    let deviation = (squares - mean * mean).max(0.0).sqrt();
    let fewer = (count as f64 / of_all as f64).sqrt();
    let half = (stretch(of_all) * deviation * fewer).exp();
    let middle = known_middle.unwrap_or(middle);
    (middle / half, middle * half)
}

/// Student's interval of the geometric mean of values that are positive; from the least to the largest if one is not.
fn of_mean(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if least <= 0.0 {
        return (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    }
    let count = values.len() as f64;
    let logarithms = || values.iter().map(|value| value.ln());
    let mean = logarithms().sum::<f64>() / count;
    let squares: f64 = logarithms().map(|logarithm| (logarithm - mean).powi(2)).sum();
    let half = student(values.len()) * (squares / (count - 1.0) / count).sqrt();
    ((mean - half).exp(), (mean + half).exp())
}

/// All resamples of so many units are enumerated: at most 6435.
const ENUMERATED: usize = 8;

/// Random resamples are drawn in so many parts, each with random numbers of its own: any number of threads gives the same.
const PARTS: usize = 20;
const _: () = assert!(RESAMPLES.is_multiple_of(PARTS));

/// The means of a value and of its square over resamples of units; `value` is given how often each unit is drawn.
fn moments(count: usize, value: impl Fn(&[usize]) -> f64 + Sync) -> [f64; 2] {
    let add = |[mean, squares]: &mut [f64; 2], drawn: &[usize], chance: f64| {
        let value = value(drawn);
        *mean += chance * value;
        *squares += chance * value * value;
    };
    let mut drawn = vec![0; count];
    if count <= ENUMERATED {
        let all_orders: f64 = (1..=count).map(|factor| factor as f64 / count as f64).product();
        let mut moments = [0.0; 2];
        let take = &mut |drawn: &[usize], chance| add(&mut moments, drawn, chance);
        each_split(&mut drawn, 0, count, all_orders, take);
        return moments;
    }
    let of_part = |part: usize| {
        let mut random = ChaCha8Rng::seed_from_u64(count as u64);
        random.set_stream(part as u64);
        let (mut drawn, mut moments) = (drawn.clone(), [0.0; 2]);
        for _ in 0..RESAMPLES / PARTS {
            drawn.fill(0);
            (0..count).for_each(|_| drawn[random.random_range(0..count)] += 1);
            add(&mut moments, &drawn, 1.0 / RESAMPLES as f64);
        }
        moments
    };
    let parts: Vec<[f64; 2]> = (0..PARTS).into_par_iter().map(of_part).collect();
    parts.into_iter().fold([0.0; 2], |all, part| [all[0] + part[0], all[1] + part[1]])
}

/// Divides `left` draws among the units from `at` on, in all ways; `chance` is count! / count^count, over the factorials of
/// the draws before.
fn each_split(
    drawn: &mut [usize],
    at: usize,
    left: usize,
    chance: f64,
    take: &mut impl FnMut(&[usize], f64),
) {
    let last = at + 1 == drawn.len();
    let mut chance = chance;
    for draws in 0..=left {
        if draws > 0 {
            chance /= draws as f64;
        }
        drawn[at] = draws;
        if !last {
            each_split(drawn, at + 1, left - draws, chance, take);
        } else if draws == left {
            take(drawn, chance);
        }
    }
}

/// How many of the bootstrap's deviations each end is from the median.
fn stretch(units: usize) -> f64 {
    let count = units as f64;
    (count / (count - 1.0)).sqrt() * student(units)
}

/// How many standard errors of a mean of so many values each end of its interval is from it.
fn student(count: usize) -> f64 {
    let student = StudentsT::new(0.0, 1.0, count as f64 - 1.0).expect("two values or more");
    student.inverse_cdf((1.0 + CONFIDENCE) / 2.0)
}

/// The samples of units, sorted, for medians of many resamples. [`SAMPLES_MAX`] samples take 16 kB of memory for each unit.
struct Sorted {
    values: Vec<f64>,
    /// For each value how many samples of each unit are up to it.
    counts: Vec<u32>,
    units: usize,
}

impl Sorted {
    fn new(units: &[Vec<f64>]) -> Sorted {
        let of_unit = |(unit, samples): (usize, &Vec<f64>)| {
            samples.iter().map(|&value| (value, unit)).collect::<Vec<_>>()
        };
        let mut samples: Vec<(f64, usize)> = units.iter().enumerate().flat_map(of_unit).collect();
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut counts, mut count) = (Vec::new(), vec![0; units.len()]);
        for &(_, unit) in &samples {
            count[unit] += 1;
            counts.extend_from_slice(&count);
        }
        let values = samples.into_iter().map(|(value, _)| value).collect();
        Sorted { values, counts, units: units.len() }
    }

    /// The median of all samples, of which each counts as often as its unit was drawn.
    fn median(&self, drawn: &[usize]) -> f64 {
        let up_to = |at: usize| -> usize {
            let counts = &self.counts[at * self.units..][..self.units];
            counts.iter().zip(drawn).map(|(&count, drawn)| count as usize * drawn).sum()
        };
        let last = self.values.len() - 1;
        let all = up_to(last);
        // The first value with half of the samples, and the first with more than half.
        let (mut low, mut end) = (0, last);
        while low < end {
            let middle = (low + end) / 2;
            if 2 * up_to(middle) < all { low = middle + 1 } else { end = middle }
        }
        let high = (low..last).find(|&at| 2 * up_to(at) > all).unwrap_or(last);
        if low == high {
            return self.values[low];
        }
        (self.values[low] + self.values[high]) / 2.0
    }
}

/// Keeps a share of a unit's samples, evenly by size, such that all units together have [`SAMPLES_MAX`].
fn thin_out(unit: &mut Vec<f64>, all: usize) {
    unit.sort_by(f64::total_cmp);
    let keep = (unit.len() * SAMPLES_MAX / all).max(1);
    let kept = |at: usize| unit[(2 * at + 1) * unit.len() / (2 * keep)];
    *unit = (0..keep).map(kept).collect();
}

/// Shares of the variance of a case's median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Components {
    /// From the difference between launches; none for fewer than two.
    pub launch: Option<f64>,
    /// From the difference between blocks of a launch.
    pub block: f64,
    /// From the difference between steps of a block.
    pub step: f64,
    /// How many independent steps tell as much about the median as all of these.
    pub effective_samples: f64,
}

impl Components {
    /// By an analysis of variance of the logarithms, with unequal numbers of samples (S. R. Searle, G. Casella and C. E.
    /// McCulloch, "Variance Components", chapter 5: the sums of squares of each level equal their expected values). Estimates below
    /// zero count as zero.
    fn of(nested: &Nested) -> Option<Components> {
        let logarithms =
            |block: &Vec<f64>| block.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let launches: Vec<Vec<Vec<f64>>> = nested
            .launches
            .values()
            .map(|blocks| blocks.values().map(logarithms).collect())
            .collect();
        let blocks: Vec<&Vec<f64>> = launches.iter().flatten().collect();
        let count = |values: &[Vec<f64>]| values.iter().map(Vec::len).sum::<usize>() as f64;
        let all: f64 = blocks.iter().map(|block| block.len() as f64).sum();
        if blocks.len() < 2
            || blocks.iter().any(|block| block.iter().any(|value| !value.is_finite()))
        {
            return None;
        }
        let mean = |values: &mut dyn Iterator<Item = &f64>| {
            let (sum, count) =
                values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            sum / f64::from(count)
        };
        let total_mean = mean(&mut blocks.iter().copied().flatten());
        let (mut between_launches, mut between_blocks, mut within) = (0.0, 0.0, 0.0);
        let mut squares_of_blocks_in_launch = 0.0;
        for launch in &launches {
            let launch_mean = mean(&mut launch.iter().flatten());
            between_launches += count(launch) * (launch_mean - total_mean).powi(2);
            squares_of_blocks_in_launch +=
                launch.iter().map(|block| (block.len() as f64).powi(2)).sum::<f64>()
                    / count(launch);
            for block in launch {
                let block_mean = mean(&mut block.iter());
                between_blocks += block.len() as f64 * (block_mean - launch_mean).powi(2);
                within += block.iter().map(|value| (value - block_mean).powi(2)).sum::<f64>();
            }
        }
        let squares_of_blocks =
            blocks.iter().map(|block| (block.len() as f64).powi(2)).sum::<f64>() / all;
        let squares_of_launches =
            launches.iter().map(|launch| count(launch).powi(2)).sum::<f64>() / all;
        let (launch_count, block_count) = (launches.len() as f64, blocks.len() as f64);
        let of_step = within / (all - block_count).max(1.0);
        let of_block = if block_count > launch_count {
            let excess = between_blocks - (block_count - launch_count) * of_step;
            (excess / (all - squares_of_blocks_in_launch)).max(0.0)
        } else {
            0.0
        };
        let of_launch = (launch_count > 1.0).then(|| {
            let blocks_share = (squares_of_blocks_in_launch - squares_of_blocks) * of_block;
            let excess = between_launches - blocks_share - (launch_count - 1.0) * of_step;
            (excess / (all - squares_of_launches)).max(0.0)
        });
        let weights = squares_of_launches / all;
        let parts =
            [of_launch.unwrap_or(0.0) * weights, of_block * squares_of_blocks / all, of_step / all];
        let variance: f64 = parts.iter().sum();
        if variance <= 0.0 {
            return None;
        }
        let one = of_launch.unwrap_or(0.0) + of_block + of_step;
        Some(Components {
            launch: of_launch.map(|_| parts[0] / variance),
            block: parts[1] / variance,
            step: parts[2] / variance,
            effective_samples: one / variance,
        })
    }
}

#[cfg(test)]
mod tests;
