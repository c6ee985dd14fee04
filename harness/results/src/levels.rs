//! Where the level of a series changes: by exact search over all divisions into segments of one level.
//!
//! R. Killick, P. Fearnhead and I. A. Eckley, "Optimal Detection of Changepoints With a Linear Computational Cost",
//! Journal of the American Statistical Association 107, 2012 (PELT).

use std::ops::Range;

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

/// The segments of a series, one after the other; one where nothing changes.
pub fn segments(values: &[f64]) -> Vec<Segment> {
    let variance = variance(values);
    let values = cut(values, variance.sqrt());
    let penalty = PENALTY * variance * (values.len().max(2) as f64).ln();
    let sums = Sums::of(&values);
    // The least cost of the values before each position, and where the last segment of that division begins.
    let mut costs = vec![-penalty];
    let mut begins = vec![0];
    let mut open = vec![0];
    for end in 1..=values.len() {
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
    let mut end = values.len();
    while end > 0 {
        let begin = if costs[end].is_finite() { begins[end] } else { 0 };
        found.push(Segment { at: begin..end, level: sums.mean(begin..end) });
        end = begin;
    }
    found.reverse();
    found
}

/// The variance between neighbours, which a change of level here and there does not widen.
fn variance(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // Of a normal distribution, the median of differences is 0.6745 sqrt(2) deviations.
    (median(differences).unwrap_or(0.0) / 0.953_9).powi(2)
}

/// Outliers are moved to the edge of what their neighbours allow.
fn cut(values: &[f64], deviation: f64) -> Vec<f64> {
    let near = |at: usize| {
        let neighbours = &values[at.saturating_sub(LEAST)..(at + LEAST + 1).min(values.len())];
        let middle = median(neighbours.to_vec()).unwrap_or(0.0);
        values[at].clamp(middle - CUT * deviation, middle + CUT * deviation)
    };
    (0..values.len()).map(near).collect()
}

/// Sums of the first values and of their squares.
struct Sums {
    of_values: Vec<f64>,
    of_squares: Vec<f64>,
}

impl Sums {
    fn of(values: &[f64]) -> Sums {
        let sums = |of: fn(f64) -> f64| {
            let mut sums = vec![0.0];
            values.iter().for_each(|&value| sums.push(sums[sums.len() - 1] + of(value)));
            sums
        };
        Sums { of_values: sums(|value| value), of_squares: sums(|value| value * value) }
    }

    fn mean(&self, at: Range<usize>) -> f64 {
        (self.of_values[at.end] - self.of_values[at.start]) / at.len() as f64
    }

    /// Squared deviations from the mean.
    fn squares(&self, at: Range<usize>) -> f64 {
        let sum = self.of_values[at.end] - self.of_values[at.start];
        self.of_squares[at.end] - self.of_squares[at.start] - sum * sum / at.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| StandardNormal.sample(&mut random)).collect()
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let mut values = noise(1, 90);
        values[30..60].iter_mut().for_each(|value| *value += 4.0);
        let found = segments(&values);
        let ends: Vec<usize> = found.iter().map(|segment| segment.at.end).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            ends[0].abs_diff(30) <= 1 && ends[1].abs_diff(60) <= 1 && ends[2] == 90,
            "{ends:?}"
        );
        assert!((found[1].level - found[0].level - 4.0).abs() < 1.0, "{found:?}");
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
                segments(&values).len() > 1
            });
            let divided = divided.count();
            assert!(divided <= 9, "{count}: {divided} of 300");
        }
    }

    #[test]
    fn short_and_constant_series_are_one_segment() {
        assert_eq!(segments(&[]), []);
        assert_eq!(segments(&[1.0, 9.0]).len(), 1);
        assert_eq!(segments(&[2.0; 20]), [Segment { at: 0..20, level: 2.0 }]);
    }
}
