//! Where the level of a series changes: by exact search over all divisions into segments of one level.
//!
//! R. Killick, P. Fearnhead and I. A. Eckley, "Optimal Detection of Changepoints With a Linear Computational Cost",
//! Journal of the American Statistical Association 107, 2012 (PELT).
//!
//! A series with many outliers has some next to each other by chance. Therefore the same values are also divided in random
//! orders (a permutation test). The level changed only if every division of these gains less.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::statistics::median;

/// Neighbours of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Positions in the series.
    pub at: Range<usize>,
    /// Their mean, with outliers cut off.
    pub level: f64,
}

/// A segment has at least so many values: fewer are disturbances.
const LEAST: usize = 4;

/// Values further from their neighbours' median count as if they were so many deviations away.
const CUT: f64 = 3.0;

/// A further segment must reduce the squared deviations by this many variances, times the logarithm of the number of values.
const PENALTY: f64 = 4.0;

/// A longer series is divided between groups of neighbours, of which the median counts: the search compares each position
/// with those before it.
const SERIES_MAX: usize = 1_000;

/// A kind with fewer values does not show its variance.
const SHOWS_VARIANCE: usize = 8;

/// Random orders that the order of the series is compared with. Where order means nothing, its division gains most of all
/// twenty in 5 % of series.
const ORDERS: usize = 19;

/// Smaller variances count as this one.
const VARIANCE_MIN: f64 = 1e-12;

/// The segments of a series, one after the other; one where nothing changes. Values of one kind have the same variance, and
/// a common level.
pub fn segments(values: &[f64], kinds: &[usize]) -> Vec<Segment> {
    let size = values.len().div_ceil(SERIES_MAX);
    if size <= 1 {
        return of_series(values, &by_kind(kinds));
    }
    let groups: Vec<f64> = values.chunks(size).filter_map(|group| median(group.to_vec())).collect();
    let of_groups = of_series(&groups, &by_kind(&vec![0; groups.len()])).into_iter().map(
        |Segment { at, level }| {
            let at = size * at.start..(size * at.end).min(values.len());
            Segment { at, level }
        },
    );
    of_groups.collect()
}

/// The segments, unless a random order of the values can be divided equally well.
fn of_series(values: &[f64], kinds: &[Vec<usize>]) -> Vec<Segment> {
    let variances = variances(values, kinds);
    let divided = Division::of(values, &variances, kinds);
    if divided.segments.len() <= 1 {
        return divided.segments;
    }
    let mut random = ChaCha8Rng::seed_from_u64(values.len() as u64);
    let mut shuffled = values.to_vec();
    for _ in 0..ORDERS {
        for kind in kinds {
            let mut own: Vec<f64> = kind.iter().map(|&at| values[at]).collect();
            own.shuffle(&mut random);
            kind.iter().zip(own).for_each(|(&at, value)| shuffled[at] = value);
        }
        if Division::of(&shuffled, &variances, kinds).gain >= divided.gain {
            return vec![Segment { at: 0..values.len(), level: divided.level }];
        }
    }
    divided.segments
}

/// A series divided.
struct Division {
    segments: Vec<Segment>,
    /// The mean of all values, with outliers cut off.
    level: f64,
    /// By how much it reduces the squared deviations, in variances, after the penalty.
    gain: f64,
}

impl Division {
    /// The best one of all.
    fn of(values: &[f64], variances: &[f64], kinds: &[Vec<usize>]) -> Division {
        let values = cut(values, variances, kinds);
        let sums = Sums::of(&values, variances);
        let (segments, cost) = each_segment(values.len(), &sums);
        let all = 0..values.len();
        Division { segments, level: sums.mean(all.clone()), gain: sums.squares(all) - cost }
    }
}

/// Segments that may end at each value, and their cost.
fn each_segment(count: usize, sums: &Sums) -> (Vec<Segment>, f64) {
    let penalty = PENALTY * (count.max(2) as f64).ln();
    // The least cost of the values before each position, and where the last segment of that division begins.
    let mut costs = vec![-penalty];
    let mut begins = vec![0];
    let mut open = vec![0];
    for end in 1..=count {
        let cost = |begin: usize| costs[begin] + sums.squares(begin..end) + penalty;
        let fits = |&begin: &usize| begin + LEAST <= end;
        let best = open.iter().copied().filter(fits).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let least = best.map_or(f64::INFINITY, cost);
        // What costs more without a further segment will never cost less.
        let kept =
            open.iter().copied().filter(|&begin| !fits(&begin) || cost(begin) - penalty <= least);
        open = kept.chain([end]).collect();
        costs.push(least);
        begins.push(best.unwrap_or(0));
    }
    let mut found = Vec::new();
    let mut end = count;
    while end > 0 {
        let begin = if costs[end].is_finite() { begins[end] } else { 0 };
        found.push(Segment { at: begin..end, level: sums.mean(begin..end) });
        end = begin;
    }
    found.reverse();
    (found, costs[count])
}

/// Values of each kind, by position.
fn by_kind(kinds: &[usize]) -> Vec<Vec<usize>> {
    let mut by_kind: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    kinds.iter().enumerate().for_each(|(at, &kind)| by_kind.entry(kind).or_default().push(at));
    by_kind.into_values().collect()
}

/// The variance of each value: that of its kind, or of all where that shows none.
fn variances(values: &[f64], kinds: &[Vec<usize>]) -> Vec<f64> {
    let mut variances = vec![variance(values); values.len()];
    for kind in kinds.iter().filter(|kind| kind.len() >= SHOWS_VARIANCE) {
        let own = variance(&kind.iter().map(|&at| values[at]).collect::<Vec<_>>());
        kind.iter().for_each(|&at| variances[at] = own);
    }
    variances.into_iter().map(|variance| variance.max(VARIANCE_MIN)).collect()
}

/// The variance between neighbours, which a change of level here and there does not widen.
fn variance(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // Of a normal distribution, the median of differences is 0.6745 sqrt(2) deviations.
    (median(differences).unwrap_or(0.0) / 0.953_9).powi(2)
}

/// Outliers are moved to the edge of what their neighbours of the same kind allow.
fn cut(values: &[f64], variances: &[f64], kinds: &[Vec<usize>]) -> Vec<f64> {
    let mut all = values.to_vec();
    for kind in kinds {
        for (place, &at) in kind.iter().enumerate() {
            let neighbours =
                &kind[place.saturating_sub(LEAST)..(place + LEAST + 1).min(kind.len())];
            let middle = median(neighbours.iter().map(|&at| values[at]).collect()).unwrap_or(0.0);
            let most = CUT * variances[at].sqrt();
            all[at] = values[at].clamp(middle - most, middle + most);
        }
    }
    all
}

/// Sums of the first values and of their squares, each in parts of its variance.
struct Sums {
    of_weights: Vec<f64>,
    of_values: Vec<f64>,
    of_squares: Vec<f64>,
}

impl Sums {
    fn of(values: &[f64], variances: &[f64]) -> Sums {
        let sums = |of: fn(f64) -> f64| {
            let mut sums = vec![0.0];
            for (&value, variance) in values.iter().zip(variances) {
                sums.push(sums[sums.len() - 1] + of(value) / variance);
            }
            sums
        };
        Sums {
            of_weights: sums(|_| 1.0),
            of_values: sums(|value| value),
            of_squares: sums(|value| value * value),
        }
    }

    fn over(sums: &[f64], at: &Range<usize>) -> f64 {
        sums[at.end] - sums[at.start]
    }

    fn mean(&self, at: Range<usize>) -> f64 {
        Sums::over(&self.of_values, &at) / Sums::over(&self.of_weights, &at)
    }

    /// Squared deviations from the mean, in variances.
    fn squares(&self, at: Range<usize>) -> f64 {
        let sum = Sums::over(&self.of_values, &at);
        Sums::over(&self.of_squares, &at) - sum * sum / Sums::over(&self.of_weights, &at)
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| StandardNormal.sample(&mut random)).collect()
    }

    fn of_one_kind(values: &[f64]) -> Vec<Segment> {
        segments(values, &vec![0; values.len()])
    }

    /// Cases on many nodes vary by more than those on one. What they do by chance is no change, and a change of those that
    /// vary little shows.
    #[test]
    fn values_that_vary_more_count_less() {
        let kinds: Vec<usize> = (0..200).map(|at| (7 * at) % 4).collect();
        let series = |seed: u64| -> Vec<f64> {
            let deviation = |kind: usize| [0.005, 0.05, 0.1, 0.2][kind];
            noise(seed, 200)
                .iter()
                .zip(&kinds)
                .map(|(noise, &kind)| noise * deviation(kind))
                .collect()
        };
        let divided = (0..300).filter(|&seed| segments(&series(seed), &kinds).len() > 1).count();
        assert!(divided <= 9, "{divided} of 300");
        let mut slower = series(1);
        slower[80..140].iter_mut().for_each(|value| *value += 0.05);
        let found = segments(&slower, &kinds);
        let ends: Vec<usize> = found.iter().map(|segment| segment.at.end).collect();
        assert_eq!(ends.len(), 3, "{found:?}");
        assert!(ends[0].abs_diff(80) <= 4 && ends[1].abs_diff(140) <= 4, "{ends:?}");
        assert!((found[1].level - found[0].level - 0.05).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let mut values = noise(1, 90);
        values[30..60].iter_mut().for_each(|value| *value += 4.0);
        let found = of_one_kind(&values);
        let ends: Vec<usize> = found.iter().map(|segment| segment.at.end).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            ends[0].abs_diff(30) <= 1 && ends[1].abs_diff(60) <= 1 && ends[2] == 90,
            "{ends:?}"
        );
        assert!((found[1].level - found[0].level - 4.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn a_long_series_is_divided_between_groups() {
        let mut values = noise(2, 50_000);
        values[20_000..30_000].iter_mut().for_each(|value| *value += 1.0);
        let found = of_one_kind(&values);
        let ends: Vec<usize> = found.iter().map(|segment| segment.at.end).collect();
        assert_eq!((found.len(), ends[2]), (3, 50_000), "{found:?}");
        assert!(ends[0].abs_diff(20_000) < 100 && ends[1].abs_diff(30_000) < 100, "{ends:?}");
    }

    /// Steady series, a few of them with disturbed blocks: hardly one in a hundred is divided.
    #[test]
    fn a_steady_series_is_one_segment() {
        for count in [8, 32, 200] {
            let divided = (0..300).filter(|&seed| {
                let mut values = noise(seed, count);
                if seed % 3 == 0 {
                    values[count / 2] += 30.0;
                }
                of_one_kind(&values).len() > 1
            });
            let divided = divided.count();
            assert!(divided <= 9, "{count}: {divided} of 300");
        }
    }

    /// A quarter of all values are outliers: some are next to each other in any order.
    #[test]
    fn outliers_next_to_each_other_by_chance_are_no_segment() {
        let series = |seed: u64| -> Vec<f64> {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let outlier =
                |random: &mut ChaCha8Rng| if random.random_bool(0.25) { 15.0 } else { 0.0 };
            noise(seed, 120).iter().map(|noise| noise + outlier(&mut random)).collect()
        };
        let divided = (0..200).filter(|&seed| of_one_kind(&series(seed)).len() > 1).count();
        assert!(divided <= 16, "{divided} of 200");
        // Slower by less than the outliers, and for long.
        let mut slower = series(1);
        slower[40..80].iter_mut().for_each(|value| *value += 8.0);
        assert!(of_one_kind(&slower).len() > 1);
    }

    #[test]
    fn short_and_constant_series_are_one_segment() {
        assert_eq!(of_one_kind(&[]), []);
        assert_eq!(of_one_kind(&[1.0, 9.0]).len(), 1);
        assert_eq!(of_one_kind(&[2.0; 20]), [Segment { at: 0..20, level: 2.0 }]);
    }
}
