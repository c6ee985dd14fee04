//! A stretch of time in which all cases were at another level, where some cases are measured more often than others.
//!
//! A search measures its best settings again and again and others once, and not in rounds, so the usual time of a setting may
//! be that of the stretch. Only differences within a case count: the stretch is that whose values differ most from those of
//! the same cases outside it (least squares with a level per case, outliers cut off). Where time has no influence, the
//! values of a case could have come in any order; the stretch counts only if it stands out more than in every one of many
//! random orders (a permutation test).

use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::statistics::median;

/// Fewer values inside or outside are disturbances.
const LEAST: usize = 4;

/// Values further from their case's median count as if they were so many deviations away.
const CUT: f64 = 3.0;

/// Random orders. Where time has no influence, a stretch is found in 1 % of series.
const ORDERS: usize = 99;

/// A longer series is not searched whole: its last values are.
const SERIES_MAX: usize = 2_000;

/// A smaller deviation counts as this one.
const DEVIATION_MIN: f64 = 1e-6;

/// Values at another level than those before and behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Positions in the series.
    pub at: Range<usize>,
    /// By how much they are above the values of the same cases elsewhere.
    pub level: f64,
}

/// The stretch that stands out most, if any does; `cases` holds the case of each value.
pub fn stretch(values: &[f64], cases: &[usize]) -> Option<Stretch> {
    let begin = values.len().saturating_sub(SERIES_MAX);
    let (values, cases) = (&values[begin..], &cases[begin..]);
    let series = Series::of(values, cases);
    let most = CUT * series.deviation(values);
    let mut own = series.cut(values, most);
    let (found, gain) = series.best(&own)?;
    let mut random = ChaCha8Rng::seed_from_u64(values.len() as u64);
    for _ in 0..ORDERS {
        series.shuffle(&mut own, &mut random);
        if series.best(&own).is_some_and(|(_, other)| other >= gain) {
            return None;
        }
    }
    // Its ends are sharper where its values are not cut off.
    let most = most + 2.0 * series.level(values, &found).abs();
    let (found, _) = series.best(&series.cut(values, most))?;
    // Of a beginning and the end behind it the shorter one is the stretch.
    let count = values.len();
    let found = match found {
        Range { start: 0, end } if 2 * end > count => end..count,
        Range { start, end } if end == count && 2 * start < count => 0..start,
        found => found,
    };
    let level = series.level(values, &found);
    Some(Stretch { at: begin + found.start..begin + found.end, level })
}

/// Which values are of the same case.
struct Series {
    /// The case of each value, counted from 0.
    cases: Vec<usize>,
    /// Positions of each case's values.
    places: Vec<Vec<usize>>,
}

impl Series {
    fn of(values: &[f64], cases: &[usize]) -> Series {
        let mut known: Vec<usize> = cases.to_vec();
        known.sort_unstable();
        known.dedup();
        let place = |case: &usize| known.binary_search(case).expect("it is one of them");
        let cases: Vec<usize> = cases.iter().map(place).collect();
        let mut places = vec![Vec::new(); known.len()];
        (0..values.len()).for_each(|at| places[cases[at]].push(at));
        Series { cases, places }
    }

    /// The deviation of values that follow each other in a case.
    fn deviation(&self, values: &[f64]) -> f64 {
        let consecutive = self.places.iter().flat_map(|own| own.windows(2));
        let differences =
            consecutive.map(|pair| (values[pair[1]] - values[pair[0]]).abs()).collect();
        // Of a normal distribution, the median of differences is 0.6745 sqrt(2) deviations.
        (median(differences).unwrap_or(0.0) / 0.953_9).max(DEVIATION_MIN)
    }

    /// Values at most so far from the median of their case.
    fn cut(&self, values: &[f64], most: f64) -> Vec<f64> {
        let mut cut = values.to_vec();
        for own in &self.places {
            let middle = median(own.iter().map(|&at| values[at]).collect()).unwrap_or(0.0);
            own.iter().for_each(|&at| cut[at] = values[at].clamp(middle - most, middle + most));
        }
        cut
    }

    /// Values of each case in a random order.
    fn shuffle(&self, values: &mut [f64], random: &mut ChaCha8Rng) {
        for own in &self.places {
            let mut shuffled: Vec<f64> = own.iter().map(|&at| values[at]).collect();
            shuffled.shuffle(random);
            own.iter().zip(shuffled).for_each(|(&at, value)| values[at] = value);
        }
    }

    /// Values without the mean of their case.
    fn centred(&self, values: &[f64]) -> Vec<f64> {
        let mean = |own: &Vec<usize>| {
            own.iter().map(|&at| values[at]).sum::<f64>() / own.len().max(1) as f64
        };
        let means: Vec<f64> = self.places.iter().map(mean).collect();
        values.iter().zip(&self.cases).map(|(value, &case)| value - means[case]).collect()
    }

    /// The stretch that explains most squared deviations, and how many.
    fn best(&self, values: &[f64]) -> Option<(Range<usize>, f64)> {
        let centred = self.centred(values);
        let mut best: Option<(Range<usize>, f64)> = None;
        for begin in 0..values.len() {
            let mut inside = Inside::new(self);
            for (end, &deviation) in centred.iter().enumerate().skip(begin) {
                inside.add(self.cases[end], deviation);
                let count = end + 1 - begin;
                if count < LEAST || values.len() - count < LEAST {
                    continue;
                }
                let gain = inside.gain();
                if best.as_ref().is_none_or(|(_, most)| gain > *most) {
                    best = Some((begin..end + 1, gain));
                }
            }
        }
        best.filter(|(_, gain)| *gain > 0.0)
    }

    /// By how much values of a stretch are above those of the same cases elsewhere.
    fn level(&self, values: &[f64], at: &Range<usize>) -> f64 {
        let centred = self.centred(values);
        let mut inside = Inside::new(self);
        at.clone().for_each(|at| inside.add(self.cases[at], centred[at]));
        inside.sum / inside.weight
    }
}

/// Sums over the values of a stretch.
struct Inside<'s> {
    series: &'s Series,
    /// Values of each case.
    counts: Vec<usize>,
    /// Of deviations from the means of their cases.
    sum: f64,
    /// What a level of 1 adds to that sum.
    weight: f64,
}

impl<'s> Inside<'s> {
    fn new(series: &'s Series) -> Inside<'s> {
        Inside { series, counts: vec![0; series.places.len()], sum: 0.0, weight: 0.0 }
    }

    fn add(&mut self, case: usize, deviation: f64) {
        let all = self.series.places[case].len() as f64;
        let weight = |inside: usize| inside as f64 * (all - inside as f64) / all;
        let count = &mut self.counts[case];
        self.weight += weight(*count + 1) - weight(*count);
        *count += 1;
        self.sum += deviation;
    }

    /// Squared deviations that the stretch explains.
    fn gain(&self) -> f64 {
        // Less than one pair of values does not show a level.
        if self.weight < 0.5 { 0.0 } else { self.sum * self.sum / self.weight }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// A search: settings are left one after the other, and the first is measured in the beginning and in the end.
    fn searched() -> Vec<usize> {
        let mut cases = vec![0, 1, 2, 3, 4, 5];
        cases.extend([6, 7, 4, 5, 8, 9, 5, 10, 11, 5, 12, 5, 4]);
        (0..6).for_each(|_| cases.extend([4, 5, 12, 10]));
        (0..6).for_each(|_| cases.extend([0, 1, 5]));
        cases
    }

    fn series(seed: u64, slower: Range<usize>, by: f64) -> (Vec<f64>, Vec<usize>) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let cases = searched();
        let value = |(at, case): (usize, &usize)| {
            let noise: f64 = StandardNormal.sample(&mut random);
            let level = if slower.contains(&at) { by } else { 0.0 };
            0.3 * *case as f64 + 0.03 * noise + level
        };
        (cases.iter().enumerate().map(value).collect(), cases)
    }

    #[test]
    fn a_load_that_begins_late_is_found_though_most_blocks_of_a_case_are_slow() {
        let count = searched().len();
        for seed in 0..10 {
            let (values, cases) = series(seed, count - 18..count, 0.5);
            let Stretch { at, level } = stretch(&values, &cases).unwrap();
            assert!(at.start.abs_diff(count - 18) <= 1 && at.end == count, "{at:?}");
            assert!((level - 0.5).abs() < 0.06, "{level}");
        }
    }

    #[test]
    fn a_load_that_passes_is_found() {
        let (values, cases) = series(3, 24..36, 0.4);
        let Stretch { at, level } = stretch(&values, &cases).unwrap();
        assert!(at.start.abs_diff(24) <= 1 && at.end.abs_diff(36) <= 1, "{at:?}");
        assert!((level - 0.4).abs() < 0.06, "{level}");
    }

    #[test]
    fn chance_is_found_seldom() {
        let found = (0..200).filter(|&seed| {
            let (values, cases) = series(seed, 0..0, 0.0);
            stretch(&values, &cases).is_some()
        });
        assert!(found.count() <= 6, "1 % are expected");
        let heavy = (0..200).filter(|&seed| {
            let (mut values, cases) = series(seed, 0..0, 0.0);
            let mut random = ChaCha8Rng::seed_from_u64(seed + 1000);
            values.iter_mut().filter(|_| random.random_bool(0.05)).for_each(|value| *value += 1.0);
            stretch(&values, &cases).is_some()
        });
        assert!(heavy.count() <= 6, "outliers");
    }

    #[test]
    fn few_values_show_nothing() {
        assert_eq!(stretch(&[], &[]), None);
        assert_eq!(stretch(&[1.0; 20], &[0; 20]), None, "no difference");
        let once: Vec<usize> = (0..20).collect();
        let values: Vec<f64> = (0..20).map(|at| if at < 10 { 1.0 } else { 2.0 }).collect();
        assert_eq!(stretch(&values, &once), None, "each case once");
    }
}
