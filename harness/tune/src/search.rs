//! Which setting is measured next.
//!
//! The default settings are measured first. The costs of their messages and negotiations let the model predict the
//! step time of any other setting. Then a few settings are measured at a time: those most likely to beat the best
//! one by more than the practical margin, with predictions corrected by the residuals of their neighbours; and one
//! with the fewest measured neighbours, where the model is least certain. When no setting is likely to be better,
//! or a share of the budget is used up, the better half of the settings is measured again, then the better half of
//! those. Blocks of a round are interleaved in random order, so that drift of the machine affects all alike. The
//! best setting so far is part of every round, which separates drift from progress: levels of settings and of
//! rounds are fitted together. In the end the finalists are measured in rounds of their own. Of those that tie with
//! the fastest, the one with the fewest changes from the defaults is chosen, of these the one with the largest
//! threshold, since fewer messages cost less with every rank. New rounds, spread over a longer time, compare it with the
//! default, and with others if there are enough blocks. On a virtual machine they wait until the processors are where they are
//! without load. The answer uses only these rounds; they end when its intervals are narrow. Rounds in which the machine was much
//! faster or slower than in most do not count.

use std::collections::BTreeMap;
use std::iter;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::answer::{Ratio, paired};
use super::calm::{Calm, Round};
use super::found::{Blocks, Found, MARGIN, Point};
use super::space::{DOES_NOT_SCALE, give_up};
use super::surface::Surface;
use results::error::RecordError;

/// A setting that beats the best one with less than this probability is not measured.
const UNLIKELY: f64 = 0.05;

/// Settings measured at a time.
const AT_ONCE: usize = 4;

/// Settings that are measured again first.
const SURVIVORS: usize = 12;

/// Settings that are measured in the same rounds before one is chosen.
pub(super) const FINALISTS: usize = 4;

/// The most rounds of the finalists.
const FINAL_ROUNDS: usize = 8;

/// Settings whose step times differ by at most this share are as good as each other.
pub(super) const TIE: f64 = MARGIN / 4.0;

/// More settings than the choice and the default are compared only if there are so many rounds: the interval of the gain
/// comes first.
const ROUNDS_WITH_OTHERS: usize = 16;

/// The fewest rounds for the answer ...
const ENOUGH_ROUNDS: usize = 8;

/// ... whose intervals must have at most this half-width. The width decides, not the position: stopping as soon as
/// a difference appears would find differences that do not exist.
const SURE: f64 = MARGIN / 8.0;

/// Step time in seconds that a model expects of each setting, from blocks of some.
pub type Predict<'t> = dyn Fn(&Blocks) -> Vec<f64> + 't;

/// The ratio of the step times of two settings, with the interval that holds for Horovod; the times are in seconds.
pub type ForHorovod<'t> = dyn Fn(&Ratio, [f64; 2]) -> Ratio + 't;

/// The task of a search.
pub struct Task<'t> {
    /// Positions of the settings.
    pub points: &'t [Point],
    /// Always measured, first.
    pub always: &'t [usize],
    /// Among those, the settings that the answer is compared with.
    pub defaults: &'t [usize],
    /// Of settings that tie, that with the fewest is chosen; of these, that with the largest threshold.
    pub changes: &'t [u32],
    /// For each setting without the cache or without fusion, one like it that scales better.
    pub scaling: &'t [Option<usize>],
    /// The model.
    pub predict: &'t Predict<'t>,
    /// To give up the cache or fusion, a setting must also be faster in Horovod.
    pub for_horovod: &'t ForHorovod<'t>,
}

impl Task<'_> {
    /// One like this setting that has the cache; one like that one that has fusion, too.
    pub(super) fn scaling_twins(&self, setting: usize) -> impl Iterator<Item = usize> {
        iter::successors(self.scaling[setting], |&twin| self.scaling[twin])
    }
}

/// Searches, chooses, and compares the choice with the defaults, within the budget.
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
    // The surface now knows the time of a block; if blocks become slower, there will be fewer.
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
    let mut twins = found.scaling_twins(task);
    if !twins.is_empty() {
        twins.push(found.best[0]);
        found.round(&twins, surface, random)?;
        found.expect(task);
    }
    found.name_finalists(task);
    found.decide(task, surface, random)?;
    Ok(found)
}

impl Found {
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

    /// Rounds of the finalists, which decide the choice; then rounds of the choice, the next best and the defaults,
    /// from which the answer is computed.
    fn decide(
        &mut self,
        task: &Task,
        surface: &mut dyn Surface,
        random: &mut ChaCha8Rng,
    ) -> Result<(), RecordError> {
        let until = surface.blocks_left() * 3 / 4;
        let finalists = self.best.iter().take(FINALISTS).copied().collect();
        let at_once = |_: &mut dyn Surface, _, _| ();
        let rounds = self.rounds_of(finalists, until, at_once, surface, random, |rounds| {
            Calm::of(rounds.to_vec()).rounds.len() >= FINAL_ROUNDS
        })?;
        self.best.retain(|setting| !self.failed.contains_key(setting));
        self.choose(task, &Calm::of(rounds).rounds);
        let Some(&choice) = self.best.first() else { return Ok(()) };
        let defaults =
            task.defaults.iter().copied().filter(|default| self.blocks.contains_key(default));
        let rival = self.rival(task, choice);
        let settings = compared(choice, defaults.chain(rival), surface.blocks_left());
        let is_sure = |rounds: &[BTreeMap<usize, f64>], other: usize| {
            Ratio::of_rounds(&paired(rounds, other, choice))
                .is_some_and(|ratio| (ratio.high / ratio.low).sqrt() <= 1.0 + SURE)
        };
        let wait = |surface: &mut dyn Surface, round, rounds| {
            surface.wait_for_round(round, rounds);
        };
        let fresh = self.rounds_of(settings, 0, wait, surface, random, |rounds| {
            // Failed settings are not part of the last round.
            let last = rounds.last().map(|it| it.step_s.keys().copied().collect::<Vec<_>>());
            let last = last.unwrap_or_default();
            let mut others = last.iter().filter(|&&setting| setting != choice);
            let calm = Calm::of(rounds.to_vec()).rounds;
            let are_sure =
                calm.len() >= ENOUGH_ROUNDS && others.all(|&other| is_sure(&calm, other));
            are_sure || !(rounds.is_empty() || last.contains(&choice))
        })?;
        let calm = Calm::of(fresh);
        (self.fresh, self.disturbed) = (calm.rounds, calm.disturbed);
        (self.core_to_core_ns, self.moved_ns) = (calm.core_to_core_ns, calm.moved_ns);
        self.best.retain(|setting| !self.failed.contains_key(setting));
        Ok(())
    }

    /// Puts the choice first, and the other finalists behind it, the fastest first.
    fn choose(&mut self, task: &Task, rounds: &[BTreeMap<usize, f64>]) {
        let total = |setting: usize| -> f64 {
            rounds.iter().map(|round| round.get(&setting).map_or(f64::INFINITY, |s| s.ln())).sum()
        };
        let noise = self.noise();
        let count = self.best.len().min(FINALISTS);
        let finalists = &mut self.best[..count];
        // The sort is stable: of finalists that were not measured the first stays the first.
        finalists.sort_by(|&a, &b| total(a).total_cmp(&total(b)));
        let Some(&fastest) = finalists.first() else { return };
        // Of the mean over these rounds of a ratio's logarithm.
        let deviation = noise * (2.0 / rounds.len().max(1) as f64).sqrt();
        let ties = |&&setting: &&usize| {
            let pairs = paired(rounds, setting, fastest);
            // To give up the cache or fusion, a gain must matter, and be more than noise.
            let scales_better = task.changes[setting] + DOES_NOT_SCALE <= task.changes[fastest];
            let noise = (2.0 * deviation).clamp(MARGIN, 2.0 * MARGIN);
            let margin = if scales_better { noise } else { TIE };
            let enough = rounds.len() as f64 * margin.ln_1p();
            let steps_s = [fastest, setting].map(|it| (total(it) / rounds.len() as f64).exp());
            let is_tie = |ratio: Ratio| match scales_better {
                true => (task.for_horovod)(&ratio, steps_s).is_tie(),
                false => ratio.is_tie() && ratio.ratio <= 1.0 + MARGIN,
            };
            setting == fastest
                || total(setting) <= total(fastest) + enough
                || Ratio::of(&pairs).is_some_and(is_tie)
        };
        let tied = finalists.iter().filter(ties);
        let octaves = |setting: usize| task.points[setting].threshold_octaves;
        let choice = tied.copied().min_by(|&a, &b| {
            task.changes[a].cmp(&task.changes[b]).then(octaves(b).total_cmp(&octaves(a)))
        });
        choice.into_iter().for_each(|choice| self.put_first(choice));
    }

    /// The next best setting after the choice. If the choice gives up the cache or fusion, the next best one that keeps both,
    /// which is recommended if the gain of the choice is not sure.
    fn rival(&self, task: &Task, choice: usize) -> Option<usize> {
        let keeps_both = |setting: usize| !give_up(task.changes[setting]);
        let mut others = self.best.iter().copied().filter(|&other| other != choice);
        others.find(|other| {
            keeps_both(choice) || keeps_both(*other) && !task.defaults.contains(other)
        })
    }

    /// Whole rounds, as long as more blocks are left than `until` and they are not `enough`. `wait` is called before each with
    /// its number and how many there are at most.
    fn rounds_of(
        &mut self,
        mut settings: Vec<usize>,
        until: usize,
        wait: impl Fn(&mut dyn Surface, usize, usize),
        surface: &mut dyn Surface,
        random: &mut ChaCha8Rng,
        enough: impl Fn(&[Round]) -> bool,
    ) -> Result<Vec<Round>, RecordError> {
        let mut rounds = Vec::new();
        let more = |left: usize, settings: &[usize]| {
            left >= until + settings.len() && !settings.is_empty()
        };
        let most = surface.blocks_left() / settings.len().max(1);
        while more(surface.blocks_left(), &settings) && !enough(&rounds) {
            wait(surface, rounds.len(), most);
            settings.shuffle(random);
            let mut round = Round::default();
            for &setting in &settings {
                match surface.block(setting)? {
                    Ok(observed) => {
                        round.step_s.insert(setting, observed.step_s);
                        round.core_to_core_ns.insert(setting, observed.core_to_core_ns);
                    }
                    Err(why) => drop(self.failed.insert(setting, why)),
                }
            }
            settings.retain(|setting| !self.failed.contains_key(setting));
            rounds.push(round);
        }
        Ok(rounds)
    }
}

/// The choice and the first of the others; of the rest those that leave enough rounds to each.
fn compared(choice: usize, others: impl Iterator<Item = usize>, blocks_left: usize) -> Vec<usize> {
    let mut settings = vec![choice];
    for other in others {
        let is_affordable = (settings.len() + 1) * ROUNDS_WITH_OTHERS <= blocks_left;
        if !settings.contains(&other) && (settings.len() < 2 || is_affordable) {
            settings.push(other);
        }
    }
    settings
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

#[cfg(test)]
mod tests;
