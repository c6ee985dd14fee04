//! Which setting is measured next.
//!
//! The settings that one would have without tuning are measured first. What their messages and
//! negotiations cost tells the model how long a step takes with any other setting. Then, a few settings
//! at a time: those that are likeliest to beat the best one by more than the practical margin, where a
//! setting is expected to take as much longer than the model says as its neighbours did; and with them one
//! of which no neighbour tells much, since there the model may be wrong as nowhere else. When none is
//! likely to, or a share of the budget is used up, the better half of the settings is measured again,
//! then the better half of those. Blocks of a round are interleaved in random order, so that the drift of
//! the machine falls on all alike; and the best setting so far is part of every round, which tells drift
//! from progress: levels of settings and of rounds are fitted together. In the end the finalists meet in rounds of
//! their own, the fastest is chosen, and rounds after that, in which it meets the defaults, are what the answer
//! rests on; they end when they are sure.

use std::collections::{BTreeMap, BTreeSet};

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal};

use super::answer::{Ratio, paired};
use super::surface::{Observed, Surface};
use crate::record::RecordError;

/// Who gains less than this does not gain, in practice.
pub const MARGIN: f64 = 0.02;

/// A setting that beats the best one with less than this probability is not measured.
const UNLIKELY: f64 = 0.05;

/// A setting may be good if it is expected to take at most so many times as long as the best.
const PROMISING: f64 = 1.3;

/// A setting whose nearest measured neighbour is farther than this (about one factor of two in both threshold and
/// cycle time) is measured, whatever the model says of it.
const COMPANY: f64 = 0.6;

/// Settings measured at a time.
const AT_ONCE: usize = 4;

/// How far, in factors of two, what a setting takes longer than the model says tells something of others.
const REACH_OCTAVES: f64 = 1.5;

/// What the model's own word weighs, in measured neighbours.
const OWN_WEIGHT: f64 = 0.25;

/// The model is never taken to be surer than this, as a standard deviation of logarithms.
const LEAST_DOUBT: f64 = 0.03;

/// Noise of a block, as long as none is measured twice.
const NOISE: f64 = 0.03;

/// After so many rounds the model learns no more costs: residuals say what it gets wrong.
const LEARNED: usize = 2;

/// Turns in which levels of settings and of rounds are fitted.
const FITS: usize = 20;

/// Settings that are measured again first.
const SURVIVORS: usize = 12;

/// Settings that are measured in the same rounds before one of them is chosen.
const FINALISTS: usize = 4;

/// Rounds of them, at most.
const FINAL_ROUNDS: usize = 8;

/// The choice, and those that might have been it, which the answer is drawn from.
const RIVALS: usize = 2;

/// Fresh rounds are enough once there are so many ...
const ENOUGH_ROUNDS: usize = 8;

/// ... and half the interval of every ratio to the choice is no wider than this. How wide it is decides, not where
/// it lies: to stop as soon as a difference shows would find one where there is none.
const SURE: f64 = MARGIN / 8.0;

/// Blocks by setting.
pub type Blocks = BTreeMap<usize, Vec<Observed>>;

/// Step time in seconds that a model expects of each setting, from blocks of some.
pub type Predict<'t> = dyn Fn(&Blocks) -> Vec<f64> + 't;

/// Where a setting lies among the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What has no order: control plane and algorithm.
    pub category: usize,
    /// Of the fusion threshold, in factors of two; no fusion lies two below the smallest.
    pub threshold_octaves: f64,
    /// Of the cycle time, in factors of two.
    pub cycle_octaves: f64,
}

impl Point {
    fn nearness(&self, other: &Point) -> f64 {
        let square = (self.threshold_octaves - other.threshold_octaves).powi(2)
            + (self.cycle_octaves - other.cycle_octaves).powi(2)
            + if self.category == other.category { 0.0 } else { (2.0 * REACH_OCTAVES).powi(2) };
        (-square / (2.0 * REACH_OCTAVES.powi(2))).exp()
    }
}

/// What a search is about.
pub struct Task<'t> {
    /// Of each setting.
    pub points: &'t [Point],
    /// Always measured, first.
    pub always: &'t [usize],
    /// Of those, the ones that the answer is compared with.
    pub defaults: &'t [usize],
    /// The model.
    pub predict: &'t Predict<'t>,
}

/// What a search has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Blocks that led to the choice.
    pub blocks: Blocks,
    /// The round of each of them.
    pub(super) rounds: BTreeMap<usize, Vec<usize>>,
    /// Rounds so far.
    pub(super) count: usize,
    /// Step time in seconds of each setting, by the model alone.
    pub(super) predicted_s: Vec<f64>,
    /// Logarithm of each measured setting's step time, drift taken out.
    pub(super) levels: BTreeMap<usize, f64>,
    /// Settings that cannot be measured, and why.
    pub failed: BTreeMap<usize, String>,
    /// Expected step time of each setting in seconds, from the model and all of these blocks.
    pub expected_s: Vec<f64>,
    /// Settings in the order in which they seem to be best; none if nothing could be measured.
    pub best: Vec<usize>,
    /// Probability that some setting that was not measured is better by more than the margin: the largest.
    pub missed: f64,
    /// Step times in seconds of the chosen setting and those it is compared with, measured after the choice, a
    /// map for each round.
    pub fresh: Vec<BTreeMap<usize, f64>>,
}

/// Searches, chooses, and measures what was chosen against the defaults, as long as the budget lasts.
///
/// # Errors
/// When results cannot be written.
pub fn search(
    task: &Task,
    surface: &mut dyn Surface,
    random: &mut ChaCha8Rng,
) -> Result<Found, RecordError> {
    let mut found = Found::default();
    found.round(task.always, surface, random)?;
    if found.blocks.is_empty() {
        return Ok(found);
    }
    // By now the surface knows how long a block takes; if blocks become slower, there will be fewer.
    let budget = found.used() + surface.blocks_left();
    // For the finalists, and then fresh ones for the answer.
    let finals = budget / 2;
    let explored = (budget - finals) * 2 / 3;
    loop {
        found.expect(task);
        let chances = found.chances(task);
        found.missed = chances.first().map_or(0.0, |&(chance, _)| chance);
        let lonely = found.loneliest(task.points);
        let is_late = surface.blocks_left() <= finals || found.used() + AT_ONCE + 2 > explored;
        if (found.missed < UNLIKELY && lonely.is_none()) || is_late {
            break;
        }
        let mut next = apart(&chances, task.points);
        next.extend(lonely.filter(|lonely| !next.contains(lonely)));
        next.push(found.best[0]);
        found.round(&next, surface, random)?;
    }
    let mut survivors = found.best.len().min(SURVIVORS);
    while surface.blocks_left() > finals + survivors && survivors >= FINALISTS {
        let round = found.best[..survivors].to_vec();
        found.round(&round, surface, random)?;
        found.expect(task);
        survivors = (survivors / 2).min(found.best.len());
    }
    found.prefer_the_middle(task);
    found.decide(task, surface, random)?;
    Ok(found)
}

impl Found {
    /// Blocks that led to the choice, so far.
    fn used(&self) -> usize {
        self.blocks.values().map(Vec::len).sum()
    }

    fn round(
        &mut self,
        settings: &[usize],
        surface: &mut dyn Surface,
        random: &mut ChaCha8Rng,
    ) -> Result<(), RecordError> {
        let mut order = settings.to_vec();
        order.shuffle(random);
        for setting in order {
            if surface.blocks_left() == 0 || self.failed.contains_key(&setting) {
                continue;
            }
            match surface.block(setting)? {
                Ok(observed) => {
                    self.blocks.entry(setting).or_default().push(observed);
                    self.rounds.entry(setting).or_default().push(self.count);
                }
                Err(why) => {
                    self.failed.insert(setting, why);
                    self.blocks.remove(&setting);
                    self.rounds.remove(&setting);
                }
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Fits levels of settings and rounds to all blocks, in turn.
    fn level(&mut self) {
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

    /// What each setting is expected to take, and the order of those that were measured.
    fn expect(&mut self, task: &Task) {
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

    /// By how much each measured setting took longer than predicted, as a logarithm.
    fn residuals(&self) -> Vec<(usize, f64)> {
        let residual =
            |(&setting, level): (&usize, &f64)| (setting, level - self.predicted_s[setting].ln());
        self.levels.iter().map(residual).collect()
    }

    /// With which probability each setting that was not measured is better than the best by more than the
    /// margin, likeliest first.
    fn chances(&self, task: &Task) -> Vec<(f64, usize)> {
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

    /// Of the settings that may be good, the one of which measured neighbours tell least: the model may be
    /// wrong there as nowhere else. None if they tell enough of all.
    fn loneliest(&self, points: &[Point]) -> Option<usize> {
        let &best = self.best.first()?;
        let enough = self.expected_s[best] * PROMISING;
        let company = |setting: usize| {
            let told = self.levels.keys().map(|&other| points[setting].nearness(&points[other]));
            told.fold(0.0, f64::max)
        };
        (0..points.len())
            .filter(|setting| !self.failed.contains_key(setting))
            .filter(|&setting| self.expected_s[setting] <= enough && company(setting) < COMPANY)
            .min_by(|&a, &b| company(a).total_cmp(&company(b)))
    }

    /// Standard deviation of the logarithm of a block, from settings with several.
    fn noise(&self) -> f64 {
        let (mut squares, mut freedom) = (0.0, 0);
        for blocks in self.blocks.values().filter(|blocks| blocks.len() > 1) {
            let logs = || blocks.iter().map(|block| block.step_s.ln());
            let mean = logs().sum::<f64>() / blocks.len() as f64;
            squares += logs().map(|log| (log - mean).powi(2)).sum::<f64>();
            freedom += blocks.len() - 1;
        }
        if freedom == 0 { NOISE } else { (squares / freedom as f64).sqrt() }
    }

    /// Of settings that are as good as the best, the one whose neighbours are best comes first: other models
    /// and rank counts move the surface a little.
    fn prefer_the_middle(&mut self, task: &Task) {
        let Some(&best) = self.best.first() else { return };
        let enough = self.expected_s[best] * (1.0 + MARGIN / 4.0);
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
        let good: Vec<usize> = self
            .best
            .iter()
            .copied()
            .filter(|&setting| self.expected_s[setting] <= enough && is_known(setting))
            .collect();
        let middle = good.into_iter().min_by(|&a, &b| surroundings(a).total_cmp(&surroundings(b)));
        middle.into_iter().for_each(|middle| self.put_first(middle));
    }

    fn put_first(&mut self, chosen: usize) {
        self.best.retain(|&setting| setting != chosen);
        self.best.insert(0, chosen);
    }

    /// Rounds of the finalists, after which the fastest of them is the choice; then rounds of the choice, the
    /// next best and the defaults, from which the answer is drawn.
    fn decide(
        &mut self,
        task: &Task,
        surface: &mut dyn Surface,
        random: &mut ChaCha8Rng,
    ) -> Result<(), RecordError> {
        let until = surface.blocks_left() * 3 / 4;
        let finalists = self.best.iter().take(FINALISTS).copied().collect();
        let rounds = self
            .rounds_of(finalists, until, surface, random, |rounds| rounds.len() >= FINAL_ROUNDS)?;
        let total = |setting: usize| -> f64 {
            rounds.iter().map(|round| round.get(&setting).map_or(f64::INFINITY, |s| s.ln())).sum()
        };
        self.best.retain(|setting| !self.failed.contains_key(setting));
        let enough = rounds.len() as f64 * (MARGIN / 4.0).ln_1p();
        let middle = self.best.first().map(|&middle| (middle, total(middle) - enough));
        let left = self.best.len().min(FINALISTS);
        self.best[..left].sort_by(|&a, &b| total(a).total_cmp(&total(b)));
        if let Some((middle, total_log)) = middle
            && total_log <= total(self.best[0])
        {
            self.put_first(middle);
        }
        let rivals = self.best.iter().take(RIVALS).copied();
        let defaults =
            task.defaults.iter().copied().filter(|default| self.blocks.contains_key(default));
        let all: BTreeSet<usize> = rivals.chain(defaults).collect();
        let Some(&choice) = self.best.first() else { return Ok(()) };
        let is_sure = |rounds: &[BTreeMap<usize, f64>], other: usize| {
            Ratio::of(&paired(rounds, other, choice))
                .is_some_and(|ratio| (ratio.high / ratio.low).sqrt() <= 1.0 + SURE)
        };
        let settings: Vec<usize> = all.into_iter().collect();
        self.fresh = self.rounds_of(settings, 0, surface, random, |rounds| {
            // Who has failed is in the last round no more.
            let last = rounds.last().map(|round| round.keys().copied().collect::<Vec<_>>());
            let last = last.unwrap_or_default();
            let mut others = last.iter().filter(|&&setting| setting != choice);
            let are_sure =
                rounds.len() >= ENOUGH_ROUNDS && others.all(|&other| is_sure(rounds, other));
            are_sure || !(rounds.is_empty() || last.contains(&choice))
        })?;
        self.best.retain(|setting| !self.failed.contains_key(setting));
        Ok(())
    }

    /// Whole rounds, as long as more blocks are left than `until` and they are not `enough`: seconds by setting.
    fn rounds_of(
        &mut self,
        mut settings: Vec<usize>,
        until: usize,
        surface: &mut dyn Surface,
        random: &mut ChaCha8Rng,
        enough: impl Fn(&[BTreeMap<usize, f64>]) -> bool,
    ) -> Result<Vec<BTreeMap<usize, f64>>, RecordError> {
        let mut rounds = Vec::new();
        let more = |left: usize, settings: &[usize]| {
            left >= until + settings.len() && !settings.is_empty()
        };
        while more(surface.blocks_left(), &settings) && !enough(&rounds) {
            settings.shuffle(random);
            let mut round = BTreeMap::new();
            for &setting in &settings {
                match surface.block(setting)? {
                    Ok(observed) => drop(round.insert(setting, observed.step_s)),
                    Err(why) => drop(self.failed.insert(setting, why)),
                }
            }
            settings.retain(|setting| !self.failed.contains_key(setting));
            rounds.push(round);
        }
        Ok(rounds)
    }
}

/// The likeliest few that are not next to each other.
fn apart(chances: &[(f64, usize)], points: &[Point]) -> Vec<usize> {
    let mut next: Vec<usize> = Vec::new();
    for &(chance, setting) in chances.iter().filter(|(chance, _)| *chance >= UNLIKELY) {
        let near = |&other: &usize| points[setting].nearness(&points[other]) > 0.75;
        if next.len() < AT_ONCE && (chance > 0.5 || !next.iter().any(near)) {
            next.push(setting);
        }
    }
    next
}

/// What the residuals of measured settings let one expect of another, and how doubtful that is.
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};

    use super::super::answer::{Answer, Verdict};
    use super::*;

    /// 8 thresholds x 6 cycle times in two categories; number 0 is the default.
    fn points() -> Vec<Point> {
        let category = |category| {
            (0..48).map(move |at| Point {
                category,
                threshold_octaves: f64::from(at / 6),
                cycle_octaves: f64::from(at % 6),
            })
        };
        (0..2).flat_map(category).collect()
    }

    struct Fake {
        times: Vec<f64>,
        noise: f64,
        random: ChaCha8Rng,
        left: usize,
        broken: Option<usize>,
    }

    impl Surface for Fake {
        fn block(&mut self, setting: usize) -> Result<Result<Observed, String>, RecordError> {
            self.left -= 1;
            if self.broken == Some(setting) {
                return Ok(Err("it broke".into()));
            }
            let normal: f64 = StandardNormal.sample(&mut self.random);
            let step_s = self.times[setting] * (self.noise * normal).exp();
            Ok(Ok(Observed { step_s, messages: Vec::new(), negotiation_s: 0.0 }))
        }

        fn blocks_left(&self) -> usize {
            self.left
        }
    }

    /// A model that is wrong by up to half, more so far from the origin.
    fn predicted(times: &[f64]) -> Vec<f64> {
        let wrong = |(at, time): (usize, &f64)| time * (1.0 + 0.5 * (at % 48) as f64 / 48.0);
        times.iter().enumerate().map(wrong).collect()
    }

    fn find(times: &[f64], noise: f64, seed: u64, blocks: usize, broken: Option<usize>) -> Found {
        let points = points();
        let random = || ChaCha8Rng::seed_from_u64(seed);
        let mut fake =
            Fake { times: times.to_vec(), noise, random: random(), left: blocks, broken };
        let predict = |_: &Blocks| predicted(times);
        let task =
            Task { points: &points, always: &[0, 5, 47, 60], defaults: &[0], predict: &predict };
        let mut order = random();
        order.set_stream(9);
        search(&task, &mut fake, &mut order).unwrap()
    }

    fn valley() -> Vec<f64> {
        let time = |point: &Point| {
            let from =
                (point.threshold_octaves - 5.0).powi(2) + (point.cycle_octaves - 2.0).powi(2);
            1.0 + 0.03 * from + 0.1 * point.category as f64
        };
        points().iter().map(time).collect()
    }

    #[test]
    fn a_valley_is_found_though_the_model_is_wrong_and_blocks_are_noisy() {
        let times = valley();
        let mut regrets: Vec<f64> =
            (0..40).map(|seed| times[find(&times, 0.02, seed, 80, None).best[0]] - 1.0).collect();
        regrets.sort_by(f64::total_cmp);
        assert!(regrets[20] <= 0.03 && regrets[39] <= 0.1, "{regrets:?}");
    }

    #[test]
    fn pure_noise_is_tied() {
        let flat = vec![1.0; 96];
        let verdicts: Vec<Verdict> = (0..40)
            .filter_map(|seed| Answer::of(&find(&flat, 0.03, seed, 80, None), 0))
            .map(|answer| answer.verdict)
            .collect();
        let tied = verdicts.iter().filter(|verdict| **verdict == Verdict::Keep).count();
        assert_eq!(verdicts.len(), 40);
        assert!(tied >= 36, "{verdicts:?}");
    }

    /// Where blocks agree, the budget is not used up.
    #[test]
    fn what_is_sure_is_not_measured_again() {
        let times = valley();
        let blocks = |noise| {
            let found = find(&times, noise, 1, 400, None);
            let fresh: usize = found.fresh.iter().map(BTreeMap::len).sum();
            (found.fresh.len(), found.used() + fresh)
        };
        let (rounds, used) = blocks(1e-4);
        assert!(rounds == ENOUGH_ROUNDS && used < 200, "{rounds} {used}");
        assert!(blocks(0.05).0 > 20);
    }

    #[test]
    fn what_breaks_is_left_out_and_told() {
        let times = valley();
        let best = 5 * 6 + 2;
        let found = find(&times, 0.0, 1, 80, Some(best));
        assert_eq!(found.failed.get(&best).map(String::as_str), Some("it broke"));
        assert!(times[found.best[0]] < 1.07 && found.best[0] != best, "{:?}", found.best);
        let none = find(&times, 0.0, 1, 4, None);
        assert!(none.fresh.is_empty() && Answer::of(&none, 0).is_none());
    }

    /// Blocks that take longer and longer eat up the budget before as many were measured as seemed possible.
    #[test]
    fn blocks_that_become_slower_end_the_search() {
        struct Slowing(Fake);
        impl Surface for Slowing {
            fn block(&mut self, setting: usize) -> Result<Result<Observed, String>, RecordError> {
                self.0.left = (self.0.left * 4 / 5).max(1);
                self.0.block(setting)
            }
            fn blocks_left(&self) -> usize {
                self.0.left
            }
        }
        let (times, points) = (valley(), points());
        let random = || ChaCha8Rng::seed_from_u64(1);
        let fake =
            Fake { times: times.clone(), noise: 0.02, random: random(), left: 400, broken: None };
        let predict = |_: &Blocks| predicted(&times);
        let task =
            Task { points: &points, always: &[0, 5, 47, 60], defaults: &[0], predict: &predict };
        let found = search(&task, &mut Slowing(fake), &mut random()).unwrap();
        assert!(found.used() < 40, "{}", found.used());
    }

    /// What breaks after it was chosen is not recommended.
    #[test]
    fn a_choice_that_breaks_is_no_answer() {
        struct Breaking(Fake, usize);
        impl Surface for Breaking {
            fn block(&mut self, setting: usize) -> Result<Result<Observed, String>, RecordError> {
                self.1 += usize::from(setting == BEST);
                match self.1 {
                    20.. if setting == BEST => {
                        self.0.block(setting).map(|_| Err("it broke".into()))
                    }
                    _ => self.0.block(setting),
                }
            }
            fn blocks_left(&self) -> usize {
                self.0.left
            }
        }
        const BEST: usize = 5 * 6 + 2;
        let (times, points) = (valley(), points());
        let random = || ChaCha8Rng::seed_from_u64(1);
        let fake =
            Fake { times: times.clone(), noise: 0.01, random: random(), left: 300, broken: None };
        let predict = |_: &Blocks| predicted(&times);
        let task =
            Task { points: &points, always: &[0, 5, 47, 60], defaults: &[0], predict: &predict };
        let found = search(&task, &mut Breaking(fake, 0), &mut random()).unwrap();
        assert!(found.failed.contains_key(&BEST) && !found.best.contains(&BEST));
        assert!(Answer::of(&found, 0).is_none_or(|answer| answer.choice != BEST));
    }

    #[test]
    fn drift_is_not_taken_for_progress() {
        let mut found = Found {
            blocks: BTreeMap::new(),
            rounds: [(0, vec![0, 1]), (1, vec![0]), (2, vec![1])].into(),
            count: 2,
            ..Found::default()
        };
        let observed = |step_s| Observed { step_s, messages: Vec::new(), negotiation_s: 0.0 };
        // The second round is twice as fast for all.
        found.blocks.insert(0, vec![observed(1.0), observed(0.5)]);
        found.blocks.insert(1, vec![observed(1.1)]);
        found.blocks.insert(2, vec![observed(0.6)]);
        found.level();
        let ratio = |a: usize, b: usize| (found.levels[&a] - found.levels[&b]).exp();
        assert!((ratio(1, 0) - 1.1).abs() < 0.01 && (ratio(2, 0) - 1.2).abs() < 0.01);
    }

    #[test]
    fn seeds_repeat() {
        let times = valley();
        let best = |seed| find(&times, 0.02, seed, 60, None).best;
        assert_eq!(best(3), best(3));
    }
}
