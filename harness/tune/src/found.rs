//! The state of a search: its blocks, and the expected time of every setting.

use std::collections::BTreeMap;

use results::core_to_core::are_alike;
use statrs::distribution::{ContinuousCDF, Normal};

use super::answer::Ratio;
use super::search::{FINALISTS, Task};
use super::surface::{BlockError, Observed};

/// The least gain of practical relevance.
pub const MARGIN: f64 = 0.02;

/// A setting is promising if its expected time is at most this multiple of the best.
const PROMISING: f64 = 1.3;

/// A setting whose nearest measured neighbour is farther than this (about one factor of two in both threshold and
/// cycle time) is measured, whatever the model predicts.
const COMPANY: f64 = 0.6;

/// The distance, in factors of two, over which residuals of the model are correlated.
const REACH_OCTAVES: f64 = 1.5;

/// The weight of the model's own prediction, in measured neighbours.
const OWN_WEIGHT: f64 = 0.25;

/// The model is never taken to be surer than this, as a standard deviation of logarithms.
const LEAST_DOUBT: f64 = 0.03;

/// Noise of a block, until a setting has been measured twice.
const NOISE: f64 = 0.03;

/// After this many rounds the model's costs are fixed, and residuals correct it.
const LEARNED: usize = 2;

/// Turns in which levels of settings and of rounds are fitted.
const FITS: usize = 20;

/// Blocks by setting.
pub type Blocks = BTreeMap<usize, Vec<Observed>>;

/// The position of a setting in the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Unordered settings: control plane and algorithm.
    pub category: usize,
    /// The fusion threshold in factors of two; no fusion lies two below the smallest.
    pub threshold_octaves: f64,
    /// The cycle time in factors of two.
    pub cycle_octaves: f64,
}

impl Point {
    pub(super) fn nearness(&self, other: &Point) -> f64 {
        let square = (self.threshold_octaves - other.threshold_octaves).powi(2)
            + (self.cycle_octaves - other.cycle_octaves).powi(2)
            + if self.category == other.category { 0.0 } else { (2.0 * REACH_OCTAVES).powi(2) };
        (-square / (2.0 * REACH_OCTAVES.powi(2))).exp()
    }
}

/// The results of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Blocks that led to the choice.
    pub blocks: Blocks,
    /// The round of each block.
    pub(super) rounds: BTreeMap<usize, Vec<usize>>,
    /// Rounds so far.
    pub(super) count: usize,
    /// Step time in seconds of each setting, by the model alone.
    pub(super) predicted_s: Vec<f64>,
    /// Logarithm of each measured setting's step time, drift taken out.
    pub(super) levels: BTreeMap<usize, f64>,
    /// Settings that cannot be measured, and why.
    pub failed: BTreeMap<usize, BlockError>,
    /// Expected step time of each setting in seconds, from the model and all of these blocks.
    pub expected_s: Vec<f64>,
    /// Settings from best to worst, as expected; empty if nothing could be measured.
    pub best: Vec<usize>,
    /// Probability that some setting that was not measured is better by more than the margin: the largest.
    pub missed: f64,
    /// Step times in seconds of the chosen setting and those it is compared with, measured after the choice, a
    /// map for each round in which the machine was calm.
    pub fresh: Vec<BTreeMap<usize, f64>>,
    /// Rounds after the choice that do not count: how long settings took, in parts of the other rounds.
    pub disturbed: Vec<f64>,
    /// How far apart the processors of a virtual machine were in the rounds that count, in nanoseconds.
    pub core_to_core_ns: Option<f64>,
    /// How far apart they were in blocks after the choice that do not count, one for each round that is lost so.
    pub moved_ns: Vec<f64>,
}

impl Found {
    /// Whether the processors of a virtual machine moved between the blocks.
    pub(super) fn have_processors_moved(&self) -> bool {
        let latencies = || self.blocks.values().flatten().flat_map(|it| &it.core_to_core_ns);
        let are_elsewhere = |usual| latencies().any(|&ns| !are_alike(ns, usual));
        !self.moved_ns.is_empty() || self.core_to_core_ns.is_some_and(are_elsewhere)
    }

    /// Blocks that led to the choice, so far.
    pub(super) fn used(&self) -> usize {
        self.blocks.values().map(Vec::len).sum()
    }

    /// Fits levels of settings and rounds to all blocks, in turn.
    pub(super) fn level(&mut self) {
        let blocks: Vec<(usize, usize, f64)> = self
            .blocks
            .iter()
            .flat_map(|(&setting, blocks)| {
                let rounds = self.rounds[&setting].iter();
                blocks
                    .iter()
                    .zip(rounds)
                    .map(move |(block, &round)| (setting, round, block.step_s.ln()))
            })
            .collect();
        let mut drift = vec![0.0; self.count];
        for _ in 0..FITS {
            self.levels =
                means(blocks.iter().map(|&(setting, round, log)| (setting, log - drift[round])));
            let levels = &self.levels;
            let left =
                means(blocks.iter().map(|&(setting, round, log)| (round, log - levels[&setting])));
            left.into_iter().for_each(|(round, level)| drift[round] = level);
        }
    }

    /// Computes the expected time of each setting, and the order of the measured ones.
    pub(super) fn expect(&mut self, task: &Task) {
        self.level();
        if self.count <= LEARNED {
            self.predicted_s = (task.predict)(&self.blocks);
        }
        let residuals = self.residuals();
        let predicted = &self.predicted_s;
        self.expected_s = (0..predicted.len())
            .map(|setting| match self.levels.get(&setting) {
                Some(level) => level.exp(),
                None => predicted[setting] * around(setting, task.points, &residuals).0.exp(),
            })
            .collect();
        self.best = self.blocks.keys().copied().collect();
        self.best.sort_by(|&a, &b| self.expected_s[a].total_cmp(&self.expected_s[b]));
    }

    /// The residual of each measured setting: the logarithm of measured over predicted time.
    fn residuals(&self) -> Vec<(usize, f64)> {
        let residual =
            |(&setting, level): (&usize, &f64)| (setting, level - self.predicted_s[setting].ln());
        self.levels.iter().map(residual).collect()
    }

    /// The probability that each untried setting is better than the best by more than the margin, in descending
    /// order.
    pub(super) fn chances(&self, task: &Task) -> Vec<(f64, usize)> {
        let (predicted, residuals) = (&self.predicted_s, self.residuals());
        let Some(&best) = self.best.first() else { return Vec::new() };
        let to_beat = self.expected_s[best].ln() + (1.0 - MARGIN).ln();
        let noise = self.noise();
        let standard = Normal::standard();
        let chance = |setting: usize| {
            let (mean, doubt) = around(setting, task.points, &residuals);
            let doubt = doubt.hypot(noise);
            (standard.cdf((to_beat - predicted[setting].ln() - mean) / doubt), setting)
        };
        let untried = |setting: &usize| {
            !self.blocks.contains_key(setting) && !self.failed.contains_key(setting)
        };
        let mut chances: Vec<_> = (0..predicted.len()).filter(untried).map(chance).collect();
        chances.sort_by(|a, b| b.0.total_cmp(&a.0));
        chances
    }

    /// The promising setting with the most distant measured neighbours, where the model is least certain. None if
    /// all have near neighbours.
    pub(super) fn loneliest(&self, points: &[Point]) -> Option<usize> {
        let &best = self.best.first()?;
        let enough = self.expected_s[best] * PROMISING;
        let company = |setting: usize| {
            let reported =
                self.levels.keys().map(|&other| points[setting].nearness(&points[other]));
            reported.fold(0.0, f64::max)
        };
        (0..points.len())
            .filter(|setting| !self.failed.contains_key(setting))
            .filter(|&setting| self.expected_s[setting] <= enough && company(setting) < COMPANY)
            .min_by(|&a, &b| company(a).total_cmp(&company(b)))
    }

    /// Standard deviation of the logarithm of a block, from settings with several.
    pub(super) fn noise(&self) -> f64 {
        let (mut squares, mut freedom) = (0.0, 0);
        for blocks in self.blocks.values().filter(|blocks| blocks.len() > 1) {
            let logs = || blocks.iter().map(|block| block.step_s.ln());
            let mean = logs().sum::<f64>() / blocks.len() as f64;
            squares += logs().map(|log| (log - mean).powi(2)).sum::<f64>();
            freedom += blocks.len() - 1;
        }
        if freedom == 0 { NOISE } else { (squares / freedom as f64).sqrt() }
    }

    /// Settings that scale better than one of the best, and were not measured.
    pub(super) fn scaling_twins(&self, task: &Task) -> Vec<usize> {
        let best = self.best.iter().take(FINALISTS);
        let twins = best.flat_map(|&without| task.scaling_twins(without));
        twins.filter(|twin| !self.blocks.contains_key(twin)).collect()
    }

    /// Puts the finalists first: of the settings as good as the best, those with the fewest changes from the
    /// defaults, and the two fastest. Of equally many changes those with the best neighbours come first, because
    /// other models and rank counts shift the surface a little.
    pub(super) fn name_finalists(&mut self, task: &Task) {
        let Some(&best) = self.best.first() else { return };
        let enough = self.expected_s[best] * (1.0 + MARGIN);
        let most_blocks = self.blocks.values().map(Vec::len).max().unwrap_or(0);
        let is_known = |setting: usize| self.blocks[&setting].len() * 2 >= most_blocks;
        let surroundings = |setting: usize| {
            let here = &task.points[setting];
            let weighed =
                |other: usize| (here.nearness(&task.points[other]), self.expected_s[other]);
            let (weights, sum) = (0..task.points.len())
                .map(weighed)
                .fold((0.0, 0.0), |(all, sum), (weight, s)| (all + weight, sum + weight * s));
            sum / weights
        };
        let mut good: Vec<usize> = self.best.clone();
        good.retain(|&setting| self.expected_s[setting] <= enough && is_known(setting));
        good.sort_by(|&a, &b| {
            let changes = task.changes[a].cmp(&task.changes[b]);
            changes.then(surroundings(a).total_cmp(&surroundings(b)))
        });
        good.truncate(FINALISTS);
        for fast in self.best.iter().take(FINALISTS / 2) {
            if !good.contains(fast) {
                good.truncate(FINALISTS - 1);
                good.insert(0, *fast);
            }
        }
        // Nobody gives up the cache or fusion unless it was compared with one that keeps it.
        for without in good.clone() {
            let is_good = |twin: &usize| {
                let twin_s = self.expected_s[*twin];
                let ratio = twin_s / self.expected_s[best];
                let ratio = Ratio { ratio, low: ratio, high: ratio };
                let steps_s = [self.expected_s[best], twin_s];
                self.blocks.contains_key(twin)
                    && (twin_s <= enough * (1.0 + MARGIN)
                        || (task.for_horovod)(&ratio, steps_s).is_tie())
            };
            let twins = task.scaling_twins(without).filter(is_good);
            let twins: Vec<usize> = twins.filter(|twin| !good.contains(twin)).collect();
            let place = good.iter().position(|&at| at == without).map_or(0, |at| at + 1);
            good.splice(place..place, twins);
            good.truncate(FINALISTS);
        }
        good.into_iter().rev().for_each(|finalist| self.put_first(finalist));
    }

    pub(super) fn put_first(&mut self, chosen: usize) {
        self.best.retain(|&setting| setting != chosen);
        self.best.insert(0, chosen);
    }
}

/// The expected residual of a setting from those of measured settings, and its uncertainty.
fn around(setting: usize, points: &[Point], residuals: &[(usize, f64)]) -> (f64, f64) {
    let count = residuals.len().max(1) as f64;
    let mean = residuals.iter().map(|(_, residual)| residual).sum::<f64>() / count;
    let square = residuals.iter().map(|(_, residual)| (residual - mean).powi(2)).sum::<f64>();
    let spread = (square / count).sqrt().max(LEAST_DOUBT);
    let (mut weights, mut sum) = (OWN_WEIGHT, OWN_WEIGHT * mean);
    for &(other, residual) in residuals {
        let weight = points[setting].nearness(&points[other]);
        (weights, sum) = (weights + weight, sum + weight * residual);
    }
    (sum / weights, spread * (OWN_WEIGHT / weights).sqrt())
}

/// The mean of each group.
fn means(values: impl Iterator<Item = (usize, f64)>) -> BTreeMap<usize, f64> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (group, value) in values {
        let (sum, count) = sums.entry(group).or_default();
        (*sum, *count) = (*sum + value, *count + 1.0);
    }
    sums.into_iter().map(|(group, (sum, count))| (group, sum / count)).collect()
}
