//! How much longer each setting takes than the fastest, from blocks that ran side by side.
//!
//! A round has a block of every setting, so a machine that is slow in one round is slow for all of them, and the ratio of two
//! settings in one round does not show it. The ratio of a setting to the fastest is the mean over rounds, of
//! logarithms. With two or three rounds the variance of one ratio is hardly known; all settings together tell how large
//! such variances are and how much they differ, and each is moved towards the usual one (G. K. Smyth, "Linear Models and Empirical
//! Bayes Methods for Assessing Differential Expression in Microarray Experiments", Statistical Applications in Genetics
//! and Molecular Biology 3, 2004). Which setting is the fastest is itself uncertain; the lower ends share one error
//! probability (Bonferroni), so that the truly fastest one is among those that tie in 95 % of runs.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::gamma::digamma;

use crate::nested::LAUNCHES_MIN;
use crate::statistics::CONFIDENCE;

/// The median time of each block of a setting, by launch and round.
pub type Rounds = BTreeMap<(usize, usize), f64>;

/// Time of a setting over that of the fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverBest {
    /// The mean ratio, of logarithms.
    pub ratio: f64,
    /// Its lower end; those of all settings hold together with 95 %. None where rounds are too few.
    pub low: Option<f64>,
}

impl OverBest {
    /// The fastest itself.
    pub const BEST: OverBest = OverBest { ratio: 1.0, low: Some(1.0) };

    /// The setting may be as fast as the fastest.
    pub fn is_tied(&self) -> bool {
        self.low.is_none_or(|low| low <= 1.0)
    }
}

/// Each setting over the one at index `best`; `None` for one that shares no round with it.
pub fn over_best(settings: &[Rounds], best: usize) -> Vec<Option<OverBest>> {
    let launches: BTreeSet<usize> =
        settings.iter().flat_map(BTreeMap::keys).map(|&(launch, _)| launch).collect();
    let by_launch = launches.len() >= LAUNCHES_MIN;
    let differences: Vec<Difference> = settings
        .iter()
        .map(|setting| Difference::of(setting, &settings[best], by_launch))
        .collect();
    let others =
        || differences.iter().enumerate().filter(|&(at, _)| at != best).map(|(_, other)| other);
    let usual = Usual::of(others());
    let error = (1.0 - CONFIDENCE) / others().count().max(1) as f64;
    let of = |(at, difference): (usize, &Difference)| match difference.units {
        _ if at == best => Some(OverBest::BEST),
        0 => None,
        _ => {
            let deviation = usual.deviation(difference, error);
            let low = deviation.map(|deviation| (difference.mean - deviation).exp());
            Some(OverBest { ratio: difference.mean.exp(), low })
        }
    };
    differences.iter().enumerate().map(of).collect()
}

/// The logarithm of one setting's time over another's.
struct Difference {
    mean: f64,
    /// Between units.
    variance: f64,
    /// Rounds, or launches, that both have.
    units: usize,
}

impl Difference {
    fn of(setting: &Rounds, best: &Rounds, by_launch: bool) -> Difference {
        let mut units: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        for (&(launch, round), time) in setting {
            if let Some(other) = best.get(&(launch, round)) {
                let unit = if by_launch { (launch, 0) } else { (launch, round) };
                units.entry(unit).or_default().push((time / other).ln());
            }
        }
        let mean_of = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let values: Vec<f64> = units.values().map(|values| mean_of(values)).collect();
        let mean = mean_of(&values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let units = values.len();
        Difference { mean, variance: squares / (units as f64 - 1.0), units }
    }

    /// Degrees of freedom of its variance.
    fn freedom(&self) -> f64 {
        self.units.saturating_sub(1) as f64
    }
}

/// The usual variance, and how many degrees of freedom it is worth for a setting of which nothing else is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usual {
    variance: f64,
    freedom: f64,
}

/// With fewer settings nothing is known of the usual one.
const SETTINGS_MIN: usize = 4;

/// Variances that differ by no more than chance are worth this many degrees of freedom.
const FREEDOM_MAX: f64 = 1e6;

impl Usual {
    /// From the differences of which more than one unit is known.
    fn of<'d>(differences: impl Iterator<Item = &'d Difference>) -> Usual {
        let known: Vec<&Difference> = differences
            .filter(|difference| difference.units > 1 && difference.variance > 0.0)
            .collect();
        if known.len() < SETTINGS_MIN {
            return Usual { variance: 0.0, freedom: 0.0 };
        }
        let count = known.len() as f64;
        let mean =
            |of: &dyn Fn(&Difference) -> f64| known.iter().map(|one| of(one)).sum::<f64>() / count;
        // Logarithms of variances, without the bias of few degrees of freedom.
        let logarithm = |one: &Difference| {
            let half = one.freedom() / 2.0;
            one.variance.ln() - digamma(half) + half.ln()
        };
        let middle = mean(&logarithm);
        let spread = mean(&|one| (logarithm(one) - middle).powi(2)) * count / (count - 1.0);
        let beyond_chance = spread - mean(&|one| trigamma(one.freedom() / 2.0));
        if beyond_chance <= 0.0 {
            return Usual { variance: middle.exp(), freedom: FREEDOM_MAX };
        }
        let half = inverse_trigamma(beyond_chance).min(FREEDOM_MAX / 2.0);
        Usual { variance: (middle + digamma(half) - half.ln()).exp(), freedom: 2.0 * half }
    }

    /// How far the lower end is below the mean; none if nothing is known of the variance.
    fn deviation(&self, difference: &Difference, error: f64) -> Option<f64> {
        let freedom = self.freedom + difference.freedom();
        if freedom <= 0.0 {
            return None;
        }
        let own =
            if difference.units > 1 { difference.variance * difference.freedom() } else { 0.0 };
        let variance = (self.variance * self.freedom + own) / freedom;
        let student = StudentsT::new(0.0, 1.0, freedom.min(FREEDOM_MAX)).ok()?;
        Some(student.inverse_cdf(1.0 - error) * (variance / difference.units as f64).sqrt())
    }
}

/// The derivative of digamma, for positive arguments.
fn trigamma(mut argument: f64) -> f64 {
    let mut sum = 0.0;
    while argument < 20.0 {
        sum += argument.powi(-2);
        argument += 1.0;
    }
    let inverse = argument.recip();
    let square = inverse * inverse;
    sum + inverse
        + square / 2.0
        + inverse * square * (1.0 / 6.0 - square * (1.0 / 30.0 - square / 42.0))
}

/// The argument with this trigamma.
fn inverse_trigamma(value: f64) -> f64 {
    // Trigamma falls, and is near 1 / x for large x and near 1 / x^2 for small ones.
    let (mut low, mut high) = (value.recip().min(value.sqrt().recip()) / 2.0, 2.0 + 2.0 / value);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigamma_has_its_known_values_and_an_inverse() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-10);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-10);
        assert!((trigamma(30.0) - 0.033_895_060_357).abs() < 1e-10);
        for argument in [0.01, 0.5, 1.0, 3.7, 40.0, 1e4] {
            let found = inverse_trigamma(trigamma(argument));
            assert!((found / argument - 1.0).abs() < 1e-6, "{argument}: {found}");
        }
    }

    fn rounds(times: &[f64]) -> Rounds {
        times.iter().enumerate().map(|(round, &time)| ((1, round), time)).collect()
    }

    /// The machine is twice as slow in one round: ratios do not show it.
    #[test]
    fn a_slow_round_cancels() {
        let best = rounds(&[10.0, 20.0, 10.0, 10.1]);
        let slower = rounds(&[11.0, 22.1, 11.1, 11.0]);
        let equal = rounds(&[10.1, 19.9, 10.0, 10.0]);
        let found = over_best(&[slower, best, equal], 1);
        let [slower, best, equal] = found[..] else { panic!() };
        assert_eq!(best, Some(OverBest::BEST));
        let slower = slower.unwrap();
        assert!((slower.ratio - 1.1).abs() < 0.01 && !slower.is_tied(), "{slower:?}");
        assert!(equal.unwrap().is_tied(), "{equal:?}");
    }

    #[test]
    fn what_is_not_known_is_a_tie() {
        let found = over_best(&[rounds(&[10.0]), rounds(&[30.0]), Rounds::new()], 0);
        let one_round = found[1].unwrap();
        assert!((one_round.ratio - 3.0).abs() < 1e-9 && one_round.low.is_none());
        assert!(one_round.is_tied());
        assert_eq!(found[2], None);
        assert_eq!(over_best(&[rounds(&[1.0, 2.0])], 0), [Some(OverBest::BEST)]);
        // Without any difference between rounds, too.
        let found = over_best(&[rounds(&[1.0, 2.0]), rounds(&[2.0, 4.0])], 0);
        assert_eq!(found[1], Some(OverBest { ratio: 2.0, low: Some(2.0) }));
    }

    /// Two rounds of many settings: one alone would not be enough for any of them.
    #[test]
    fn settings_lend_each_other_their_spread() {
        let noise = [0.01, -0.02, 0.015, -0.005, 0.012, -0.018, 0.007, 0.02];
        let of = |level: f64| {
            noise.map(|noise: f64| rounds(&[level * (1.0 + noise), level * (1.0 - noise / 2.0)]))
        };
        let settings = [of(1.0), of(1.08)].concat();
        let found = over_best(&settings, 3);
        let tied = |at: usize| found[at].unwrap().is_tied();
        assert!((0..8).all(tied) && !(8..16).any(tied), "{found:?}");
        let alone = over_best(&[settings[1].clone(), settings[15].clone()], 0);
        assert!(alone[1].unwrap().is_tied());
    }

    /// Three launches: rounds of one launch are no longer independent.
    #[test]
    fn launches_are_the_units_where_there_are_enough() {
        let of = |level: f64, launches: [f64; 3]| -> Rounds {
            let round = |launch: usize, round: usize| {
                ((launch, round), level * launches[launch] * (1.0 + 0.001 * round as f64))
            };
            (0..3).flat_map(|launch| (0..5).map(move |at| round(launch, at))).collect()
        };
        let best = of(1.0, [1.0; 3]);
        // Faster in one launch, slower in two: by rounds it would be slower for sure.
        let settings = [best, of(1.04, [1.1, 0.93, 1.09])];
        assert!(over_best(&settings, 0)[1].unwrap().is_tied());
    }
}
