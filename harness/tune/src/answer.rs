//! The conclusion from blocks that were measured after the choice.
//!
//! Rounds pair the settings: in each, every one was measured once, in random order. The logarithms of the ratios of
//! a pair's step times are symmetric around that of the true ratio. The interval is that of Wilcoxon's signed-rank test,
//! which a few disturbed blocks hardly widen; of fewer rounds than it needs, Student's t. Both take rounds for independent.
//! Where the machine changes its speed slowly, a round is like the one before, and the interval is wider by the root of the
//! number of rounds that tell as much as one. None of these blocks had a part in the choice.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::found::{Found, MARGIN};
use super::space::Space;
use results::levels::segments;
use results::nested::samples_for_one;
use results::rank_tests::{Estimate, signed_rank};
use results::statistics::{CONFIDENCE, median};

/// Fewer rounds give no interval worth the name.
pub const LEAST_ROUNDS: usize = 4;

/// Fewer rounds than this have no 95 % interval by ranks.
const LEAST_RANKED: usize = 6;

/// A gain is unknown if half its interval is wider than this.
const TOO_WIDE: f64 = 0.15;

/// How long one setting takes, in parts of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Ratio {
    /// Over rounds: the geometric mean, or, with an interval by ranks, the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// 95 % interval.
    pub low: f64,
    /// Its other end.
    pub high: f64,
}

impl Ratio {
    /// From the ratios of pairs; none for fewer than [`LEAST_ROUNDS`].
    pub fn of(pairs: &[f64]) -> Option<Ratio> {
        let logs: Vec<f64> = pairs.iter().map(|ratio| ratio.ln()).collect();
        let Estimate { value, low, high } = match logs.len() {
            ..LEAST_ROUNDS => return None,
            LEAST_ROUNDS..LEAST_RANKED => student(&logs),
            _ => signed_rank(&logs)?,
        };
        Some(Ratio { ratio: value.exp(), low: low.exp(), high: high.exp() })
    }

    /// From the ratios of rounds in the order of time, which may be like those before; none for fewer than [`LEAST_ROUNDS`].
    pub fn of_rounds(rounds: &[f64]) -> Option<Ratio> {
        let Ratio { ratio, low, high } = Ratio::of(rounds)?;
        let wider = samples_for_one(rounds).sqrt();
        let end = |end: f64| ratio * (end / ratio).powf(wider);
        Some(Ratio { ratio, low: end(low), high: end(high) })
    }

    /// How much less time the divisor takes, in parts of the dividend: nearest, least, most.
    pub fn saved(&self) -> (f64, f64, f64) {
        (1.0 - 1.0 / self.ratio, 1.0 - 1.0 / self.low, 1.0 - 1.0 / self.high)
    }

    /// Whether the two cannot be distinguished.
    pub fn is_tie(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    fn is_unknown(&self) -> bool {
        self.is_tie() && (self.high / self.low).sqrt() - 1.0 > TOO_WIDE
    }
}

/// Student's interval around the mean.
fn student(values: &[f64]) -> Estimate {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("there are several values");
    let half = student.inverse_cdf(0.5 + CONFIDENCE / 2.0) * (square / count).sqrt();
    Estimate { value: mean, low: mean - half, high: mean + half }
}

/// How long one setting took in parts of another, in every round that has both.
pub fn paired(rounds: &[BTreeMap<usize, f64>], of: usize, to: usize) -> Vec<f64> {
    rounds.iter().filter_map(|round| Some(round.get(&of)? / round.get(&to)?)).collect()
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The choice is faster than the defaults, by more than the practical margin.
    Change,
    /// It seems faster by more than the margin, but its interval, or the one promised for Horovod, includes a ratio of 1.
    Lean,
    /// It cannot be distinguished from the defaults, is slower, or gains too little, or it gives up the cache or fusion for
    /// a gain that is not sure: keep them.
    Keep,
    /// No conclusion.
    Unknown,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The setting that was chosen.
    pub choice: usize,
    /// Its median step time over fresh rounds, in seconds.
    pub step_s: f64,
    /// Rounds of fresh blocks.
    pub rounds: usize,
    /// How long the others take, in parts of the choice.
    pub others: BTreeMap<usize, Ratio>,
    /// Settings that are as good, according to blocks after the choice: not slower by more than the margin, or not
    /// known to be.
    pub tied: Vec<usize>,
    /// Settings that were not measured afresh and are expected within the margin of the choice.
    pub expected_tied: Vec<usize>,
    /// Against the first of the defaults.
    pub verdict: Verdict,
    /// The machine changed its speed too much for a verdict.
    pub shift: Option<Shift>,
}

/// A machine that changed its speed while the choice was compared with the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shift {
    /// Too many fresh rounds do not count.
    Rounds,
    /// Over the rounds that count, its slowest level is above its fastest by this share: by more than the choice saves at
    /// least.
    Level(f64),
    /// In these rounds, its level differed from that of most of the search by this share: by more than the choice saves at
    /// least.
    Since(f64),
}

/// Levels that differ by less do not matter.
const LEVEL_MATTERS: f64 = 0.03;

/// How much slower the slowest level of these rounds is than the fastest, as a share; 0 where the level does not change.
fn level_change(rounds: &[BTreeMap<usize, f64>]) -> f64 {
    let mut of_setting: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    rounds
        .iter()
        .flatten()
        .for_each(|(&at, &step_s)| of_setting.entry(at).or_default().push(step_s));
    let usual_s: BTreeMap<usize, f64> =
        of_setting.into_iter().filter_map(|(at, times)| Some((at, median(times)?))).collect();
    let log = |(&at, &step_s): (&usize, &f64)| ((step_s / usual_s[&at]).ln(), at);
    let (logs, settings): (Vec<f64>, Vec<usize>) = rounds.iter().flatten().map(log).unzip();
    let levels: Vec<f64> = segments(&logs, &settings).iter().map(|segment| segment.level).collect();
    let (least, most) = levels
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), &level| (least.min(level), most.max(level)));
    let change = (most - least).exp_m1();
    if levels.len() > 1 && change > LEVEL_MATTERS { change } else { 0.0 }
}

/// What the choice saves at least, as a share of its own time.
fn least(ratio: &Ratio) -> f64 {
    (ratio.low - 1.0).max(0.0)
}

impl Answer {
    /// Another setting than the defaults is recommended.
    pub fn changes(&self) -> bool {
        matches!(self.verdict, Verdict::Change | Verdict::Lean)
    }

    /// The answer, given that the machine's speed in these rounds differs by this share from that during most of the search.
    /// A setting that saves less is not recommended.
    pub fn after_change(self, default: usize, change: f64) -> Answer {
        let saves_less = self.others.get(&default).is_some_and(|ratio| change > least(ratio));
        if !(self.changes() && change > LEVEL_MATTERS && saves_less) {
            return self;
        }
        Answer { shift: Some(Shift::Since(change)), verdict: Verdict::Unknown, ..self }
    }

    /// The answer, given the default's step over the choice's as promised for Horovod. It is only a probable
    /// change if that interval includes a ratio of 1.
    pub fn after_promise(self, promised: Option<Ratio>) -> Answer {
        let is_unsure = promised.is_some_and(|promised| promised.low <= 1.0);
        match self.verdict {
            Verdict::Change if is_unsure => Answer { verdict: Verdict::Lean, ..self },
            _ => self,
        }
    }

    /// The answer of a search; `after` takes into account what else is known of one. A setting that gives up the cache
    /// or fusion is recommended only if its gain is sure. Otherwise the fastest compared setting that keeps both is, if it
    /// gains anything; or the default is kept.
    pub fn of_search(
        found: &Found,
        space: &Space,
        after: impl Fn(Answer) -> Answer,
    ) -> Option<Answer> {
        let &default = space.defaults.first()?;
        let &choice = found.best.first()?;
        let answer = after(Answer::of_choice(found, choice, default)?);
        if answer.verdict != Verdict::Lean || !space.gives_up(choice) {
            return Some(answer);
        }
        let keeps_both = |(other, _): &(&usize, &Ratio)| {
            **other != default && !space.gives_up(**other) && !found.failed.contains_key(other)
        };
        let others = answer.others.iter().filter(keeps_both);
        let fastest =
            others.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio)).map(|(&other, _)| other);
        let instead = fastest.and_then(|it| Answer::of_choice(found, it, default)).map(after);
        instead.filter(Answer::changes).or(Some(Answer { verdict: Verdict::Keep, ..answer }))
    }

    /// None if nothing was chosen, or too few rounds were measured.
    pub fn of(found: &Found, default: usize) -> Option<Answer> {
        Answer::of_choice(found, *found.best.first()?, default)
    }

    fn of_choice(found: &Found, choice: usize, default: usize) -> Option<Answer> {
        let times = |setting: usize| -> Vec<f64> {
            found.fresh.iter().filter_map(|round| round.get(&setting).copied()).collect()
        };
        let pairs = |other: usize| paired(&found.fresh, other, choice);
        let others: BTreeMap<usize, Ratio> = found
            .fresh
            .iter()
            .flat_map(|round| round.keys().copied())
            .filter(|&other| other != choice)
            .filter_map(|other| Some((other, Ratio::of_rounds(&pairs(other))?)))
            .collect();
        let step_s = times(choice);
        if step_s.len() < LEAST_ROUNDS {
            return None;
        }
        let change = level_change(&found.fresh);
        let gains = |ratio: &Ratio| ratio.ratio > 1.0 + MARGIN && change > least(ratio);
        let shift = if found.disturbed.len() * 2 > found.fresh.len() {
            Some(Shift::Rounds)
        } else {
            others.get(&default).filter(|ratio| gains(ratio)).map(|_| Shift::Level(change))
        };
        let verdict = match others.get(&default) {
            _ if shift.is_some() => Verdict::Unknown,
            _ if default == choice => Verdict::Keep,
            Some(ratio) if ratio.is_unknown() => Verdict::Unknown,
            Some(ratio) if ratio.ratio <= 1.0 + MARGIN => Verdict::Keep,
            Some(ratio) if ratio.low > 1.0 => Verdict::Change,
            Some(_) => Verdict::Lean,
            None => Verdict::Unknown,
        };
        let tied = |(_, ratio): &(&usize, &Ratio)| ratio.is_tie() || ratio.ratio < 1.0 + MARGIN;
        let limit = found.expected_s[choice] * (1.0 + MARGIN);
        let expected_tied = |&setting: &usize| {
            setting != choice
                && !others.contains_key(&setting)
                && !found.failed.contains_key(&setting)
                && found.expected_s[setting] <= limit
        };
        Some(Answer {
            choice,
            step_s: median(step_s)?,
            rounds: found.fresh.len(),
            tied: others.iter().filter(tied).map(|(&setting, _)| setting).collect(),
            expected_tied: (0..found.expected_s.len()).filter(expected_tied).collect(),
            others,
            verdict,
            shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(fresh: &[[f64; 3]]) -> Found {
        let round = |times: &[f64; 3]| times.iter().copied().enumerate().collect();
        Found {
            best: vec![1, 0, 2],
            expected_s: vec![1.2, 1.0, 1.01, 1.015, 1.3],
            fresh: fresh.iter().map(round).collect(),
            ..Found::default()
        }
    }

    #[test]
    fn intervals_are_students() {
        let ratio = Ratio::of(&[1.1, 1.2, 1.1, 1.2]).unwrap();
        // Logarithms 0.0953 and 0.1823: mean 0.1388, standard deviation 0.0502, t(3) = 3.182.
        assert!((ratio.ratio - 1.1489).abs() < 1e-4, "{ratio:?}");
        assert!((ratio.low - 1.0607).abs() < 1e-3 && (ratio.high - 1.2445).abs() < 1e-3);
        assert_eq!(Ratio::of(&[1.0, 1.0, 1.0]), None);
    }

    #[test]
    fn intervals_of_more_rounds_are_by_ranks() {
        let calm = [1.1, 1.11, 1.12, 1.13, 1.14, 1.15];
        let ratio = Ratio::of(&calm).unwrap();
        assert!((ratio.low - 1.1).abs() < 1e-12 && (ratio.high - 1.15).abs() < 1e-12, "{ratio:?}");
        assert!((ratio.ratio - 1.125).abs() < 1e-3, "{ratio:?}");
        let calm = [calm, calm].concat();
        let disturbed = [&calm[..], &[2.0]].concat();
        let (calm, disturbed) = (Ratio::of(&calm).unwrap(), Ratio::of(&disturbed).unwrap());
        assert!(disturbed.high < calm.high + 0.02, "{disturbed:?}, {calm:?}");
    }

    /// Two levels, one after the other or in turns.
    #[test]
    fn rounds_that_are_like_those_before_tell_less() {
        let noise = |at: usize| 0.002 * ((7 * at) % 5) as f64;
        let level = |at: usize, is_high: bool| 1.2 + noise(at) + if is_high { 0.1 } else { 0.0 };
        let slow: Vec<f64> = (0..16).map(|at| level(at, at / 8 == 1)).collect();
        let quick: Vec<f64> = (0..16).map(|at| level(at, at % 2 == 1)).collect();
        let width = |ratio: Ratio| (ratio.high / ratio.low).ln();
        let wider = |rounds: &[f64]| {
            let (alone, in_time) = (Ratio::of(rounds).unwrap(), Ratio::of_rounds(rounds).unwrap());
            assert_eq!(alone.ratio, in_time.ratio);
            width(in_time) / width(alone)
        };
        assert!((1.4..3.0).contains(&wider(&slow)), "{}", wider(&slow));
        assert_eq!(wider(&quick), 1.0);
    }

    #[test]
    fn a_clear_gain_is_a_change_and_close_rivals_are_tied() {
        let rounds = [[1.2, 1.0, 1.01], [1.25, 1.02, 1.0], [1.19, 1.0, 1.0], [1.22, 1.01, 1.02]];
        let answer = Answer::of(&found(&rounds), 0).unwrap();
        assert_eq!((answer.choice, answer.verdict, answer.rounds), (1, Verdict::Change, 4));
        assert_eq!((answer.tied, answer.expected_tied), (vec![2], vec![3]));
        let (saved, least, most) = answer.others[&0].saved();
        assert!(least > 0.1 && least < saved && saved < most && most < 0.25);
    }

    #[test]
    fn a_gain_that_is_not_sure_in_horovod_is_a_probable_one() {
        let rounds = [[1.2, 1.0, 1.01], [1.25, 1.02, 1.0], [1.19, 1.0, 1.0], [1.22, 1.01, 1.02]];
        let after = |low: f64| {
            let promised = Ratio { ratio: 1.2, low, high: 1.44 / low };
            Answer::of(&found(&rounds), 0).unwrap().after_promise(Some(promised)).verdict
        };
        assert_eq!((after(1.01), after(0.99)), (Verdict::Change, Verdict::Lean));
        let kept = [[1.0, 1.02, 1.01], [1.03, 1.0, 1.0], [0.99, 1.0, 1.02], [1.0, 1.01, 0.98]];
        let unsure = Ratio { ratio: 1.0, low: 0.9, high: 1.1 };
        let kept = Answer::of(&found(&kept), 0).unwrap().after_promise(Some(unsure));
        assert_eq!(kept.verdict, Verdict::Keep);
    }

    /// Setting 1 gives up the cache, setting 2 differs from the default in one value.
    fn space() -> Space {
        Space {
            points: Vec::new(),
            defaults: vec![0],
            always: vec![0],
            changes: vec![0, 101, 1],
            scaling: vec![None, Some(0), None],
        }
    }

    #[test]
    fn the_cache_is_given_up_only_for_a_sure_gain() {
        let concluded = |rounds: &[[f64; 3]], promised_low: f64| {
            let promised = Ratio { ratio: 1.2, low: promised_low, high: 1.4 };
            let after = |answer: Answer| match answer.choice {
                1 => answer.after_promise(Some(promised)),
                _ => answer,
            };
            let answer = Answer::of_search(&found(rounds), &space(), after).unwrap();
            (answer.choice, answer.verdict)
        };
        let slower = [[1.2, 1.0, 1.1], [1.25, 1.02, 1.12], [1.19, 1.0, 1.1], [1.22, 1.01, 1.11]];
        assert_eq!(concluded(&slower, 1.01), (1, Verdict::Change));
        assert_eq!(concluded(&slower, 0.99), (2, Verdict::Change), "the one that keeps it");
        let useless = slower.map(|[default, choice, _]| [default, choice, default]);
        assert_eq!(concluded(&useless, 0.99), (1, Verdict::Keep));
        let unsure = [[1.1, 1.0, 1.3], [1.0, 1.0, 1.1], [1.12, 1.0, 1.1], [1.0, 1.0, 1.2]];
        assert_eq!(concluded(&unsure, 1.01), (1, Verdict::Keep), "not sure in the engine itself");
    }

    #[test]
    fn pure_noise_is_a_tie_and_wild_noise_is_nothing() {
        let noise = [[1.0, 1.02, 1.01], [1.03, 1.0, 1.0], [0.99, 1.0, 1.02], [1.0, 1.01, 0.98]];
        let answer = Answer::of(&found(&noise), 0).unwrap();
        assert_eq!((answer.verdict, answer.tied), (Verdict::Keep, vec![0, 2]));
        let wild = [[1.0, 3.0, 2.0], [4.0, 1.0, 1.0], [1.0, 2.0, 3.0], [2.0, 1.0, 1.0]];
        assert_eq!(Answer::of(&found(&wild), 0).unwrap().verdict, Verdict::Unknown);
        assert_eq!(Answer::of(&found(&noise[..3]), 0), None, "three rounds");
        assert_eq!(Answer::of(&Found::default(), 0), None, "nothing was measured");
    }

    #[test]
    fn a_machine_that_shifts_in_many_rounds_decides_nothing() {
        let rounds = [[1.2, 1.0, 1.01], [1.25, 1.02, 1.0], [1.19, 1.0, 1.0], [1.22, 1.01, 1.02]];
        let with = |disturbed: &[f64]| {
            let found = Found { disturbed: disturbed.to_vec(), ..found(&rounds) };
            Answer::of(&found, 0).unwrap()
        };
        assert_eq!(with(&[2.0, 1.9]).verdict, Verdict::Change);
        let shifted = with(&[2.0, 1.9, 1.8]);
        assert_eq!((shifted.shift, shifted.verdict), (Some(Shift::Rounds), Verdict::Unknown));
    }

    /// A recommendation rests on no run whose level changed by more than what it saves.
    #[test]
    fn a_level_that_changes_by_more_than_the_gain_decides_nothing() {
        let noise = |at: usize| 1.0 + 0.002 * ((7 * at) % 5) as f64;
        let answer = |gain: f64, slower: f64| {
            let round = |round: usize| {
                let level = if round < 6 { 1.0 } else { 1.0 + slower };
                [gain, 1.0, 1.01].map(|setting| setting * level * noise(3 * round + 1))
            };
            let rounds: Vec<[f64; 3]> = (0..12).map(round).collect();
            Answer::of(&found(&rounds), 0).unwrap()
        };
        assert_eq!(answer(1.05, 0.0).verdict, Verdict::Change);
        assert_eq!(answer(1.3, 0.12).verdict, Verdict::Change, "less than the gain");
        let shifted = answer(1.05, 0.12);
        assert_eq!(shifted.verdict, Verdict::Unknown);
        let Some(Shift::Level(change)) = shifted.shift else { panic!("{:?}", shifted.shift) };
        assert!((0.10..0.14).contains(&change), "{change}");
        assert_eq!(answer(1.0, 0.12).verdict, Verdict::Keep, "nothing is changed");
    }

    /// A load that began after the search is a change, too.
    #[test]
    fn a_level_since_the_search_that_changed_by_more_than_the_gain_decides_nothing() {
        let rounds = [[1.2, 1.0, 1.01], [1.25, 1.02, 1.0], [1.19, 1.0, 1.0], [1.22, 1.01, 1.02]];
        let after = |change: f64| {
            let answer = Answer::of(&found(&rounds), 0).unwrap().after_change(0, change);
            (answer.verdict, answer.shift)
        };
        assert_eq!(after(0.0), (Verdict::Change, None));
        assert_eq!(after(0.1), (Verdict::Change, None), "at least 18 % are saved");
        assert_eq!(after(0.5), (Verdict::Unknown, Some(Shift::Since(0.5))));
        let kept = [[1.0, 1.1, 1.2], [1.0, 1.12, 1.2], [1.0, 1.11, 1.2], [1.01, 1.1, 1.2]];
        let kept = Answer::of(&found(&kept), 0).unwrap().after_change(0, 0.5);
        assert_eq!(kept.verdict, Verdict::Keep, "nothing is changed");
    }

    #[test]
    fn a_gain_whose_interval_includes_none_is_uncertain() {
        let rounds = [[1.08, 1.0, 1.0], [0.98, 1.0, 1.0], [1.07, 1.0, 1.0], [1.0, 1.0, 1.0]];
        assert_eq!(Answer::of(&found(&rounds), 0).unwrap().verdict, Verdict::Lean);
    }

    #[test]
    fn a_certain_but_small_gain_keeps_the_default() {
        let rounds = [[1.01, 1.0, 1.0], [1.011, 1.0, 1.0], [1.009, 1.0, 1.0], [1.01, 1.0, 1.0]];
        let answer = Answer::of(&found(&rounds), 0).unwrap();
        assert_eq!((answer.verdict, answer.others[&0].is_tie()), (Verdict::Keep, false));
    }

    #[test]
    fn a_choice_that_turns_out_worse_keeps_the_default() {
        let worse = [[1.0, 1.1, 1.2], [1.0, 1.12, 1.2], [1.0, 1.11, 1.2], [1.01, 1.1, 1.2]];
        assert_eq!(Answer::of(&found(&worse), 0).unwrap().verdict, Verdict::Keep);
    }
}
