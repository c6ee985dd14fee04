//! Medians, quantiles and their confidence intervals from small samples.
//!
//! Intervals are exact order-statistics intervals from the binomial distribution, for the median
//! and for any quantile, without an assumption on how samples are distributed (Hoefler and Belli,
//! "Scientific Benchmarking of Parallel Computing Systems", SC 2015, after Le Boudec).

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// Fewer samples carry no interval of their median.
pub const SAMPLES_MIN: usize = 6;

/// A sample in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// How many samples.
    pub samples: usize,
    /// Median.
    pub p50: f64,
    /// 95 % interval of the median; none below 6 samples.
    pub p50_interval: Option<(f64, f64)>,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// 90th percentile; none where the sample is too small for its 95 % interval (below 36).
    pub p90: Option<f64>,
    /// 99th percentile; none where the sample is too small for its 95 % interval (below 368).
    pub p99: Option<f64>,
}

impl Summary {
    /// Summarises samples in any order; `None` if there is none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Summary {
            samples: sorted.len(),
            p50: quantile_of_sorted(&sorted, 0.5),
            p50_interval: interval(&sorted, 0.5),
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            min,
            max,
            p90: interval(&sorted, 0.9).map(|_| quantile_of_sorted(&sorted, 0.9)),
            p99: interval(&sorted, 0.99).map(|_| quantile_of_sorted(&sorted, 0.99)),
        })
    }

    /// Half the interval's width in parts of the median.
    pub fn relative_half_width(&self) -> Option<f64> {
        self.p50_interval.map(|(low, high)| (high - low) / 2.0 / self.p50)
    }

    /// Whether the two medians may be equal: their intervals overlap. Without intervals they cannot be
    /// distinguished.
    pub fn tied_with(&self, other: &Summary) -> bool {
        match (self.p50_interval, other.p50_interval) {
            (Some((low, high)), Some((other_low, other_high))) => {
                low <= other_high && other_low <= high
            }
            _ => true,
        }
    }
}

/// Median of values in any order; `None` if there is none.
pub fn median(values: Vec<f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// Nearest-rank quantile of values in any order, as [`median`] for a share of 0.5; `None` if there is none.
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| quantile_of_sorted(&values, share))
}

/// Nearest-rank quantile of sorted samples; the median of an even number is the mean of two.
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let n = sorted.len();
    if q == 0.5 && n.is_multiple_of(2) {
        return (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
    }
    sorted[((q * n as f64).ceil() as usize).clamp(1, n) - 1]
}

/// The probability of so many successes or more in independent trials.
pub fn at_least(successes: u64, trials: u64, chance: f64) -> f64 {
    let law = Binomial::new(chance, trials).ok();
    law.filter(|_| successes > 0).map_or(1.0, |law| law.sf(successes - 1))
}

/// Mean, and half the width of the interval that holds one more value of the same normal distribution with this
/// probability; none for fewer than two values.
pub fn one_more(values: &[f64], probability: f64) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let law = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let deviation = (squares / (count - 1.0) * (1.0 + 1.0 / count)).sqrt();
    Some((mean, law.inverse_cdf((1.0 + probability) / 2.0) * deviation))
}

/// Spearman's correlation of two lists of values; 1 where one of them is constant.
pub fn rank_correlation(left: &[f64], right: &[f64]) -> f64 {
    correlation(&ranks(left), &ranks(right))
}

/// The rank of each value, from 1; that of equal ones is their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|&&other| other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|&&other| other == value).count() as f64;
    values.iter().map(|&value| below(value) + (equal(value) + 1.0) / 2.0).collect()
}

/// Pearson's correlation; 1 where one side is constant.
fn correlation(left: &[f64], right: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (left_mean, right_mean) = (mean(left), mean(right));
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        left.iter().zip(right).map(|(l, r)| of(l - left_mean, r - right_mean)).sum::<f64>()
    };
    let scale = (sum(&|l, _| l * l) * sum(&|_, r| r * r)).sqrt();
    if scale > 0.0 { sum(&|l, r| l * r) / scale } else { 1.0 }
}

/// The narrowest symmetric-in-probability interval of order statistics that covers a quantile with
/// at least 95 %.
fn interval(sorted: &[f64], q: f64) -> Option<(f64, f64)> {
    let (low, high) = interval_ranks(sorted.len(), q)?;
    Some((sorted[low - 1], sorted[high - 1]))
}

/// Ranks (l, u), from 1, such that P(X_(l) <= quantile <= X_(u)) >= 95 %: each tail at most 2.5 %.
/// `None` if the sample is too small for either.
pub fn interval_ranks(n: usize, q: f64) -> Option<(usize, usize)> {
    interval_ranks_at(n, q, 1.0 - CONFIDENCE)
}

/// As [`interval_ranks`], where both tails together have at most this probability.
pub fn interval_ranks_at(n: usize, q: f64, error: f64) -> Option<(usize, usize)> {
    let tail = error / 2.0;
    let below = Binomial::new(q, n as u64).ok()?;
    let cdf = |k: usize| below.cdf(k as u64);
    // l = the largest with P(fewer than l below) <= tail.
    let low = (1..=n).take_while(|&l| cdf(l - 1) <= tail).last()?;
    // u = the smallest with P(at least u below) <= tail.
    let high = (low + 1..=n).find(|&u| 1.0 - cdf(u - 1) <= tail)?;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For 1, 2, 3, 4: deviation 1.291, t of 3 degrees of freedom at 95 % 2.353, and sqrt(1 + 1/4).
    #[test]
    fn one_more_value_is_within_its_interval() {
        let (mean, half) = one_more(&[1.0, 2.0, 3.0, 4.0], 0.9).unwrap();
        assert!((mean - 2.5).abs() < 1e-12 && (half - 3.3968).abs() < 1e-3, "{half}");
        assert_eq!(one_more(&[5.0; 3], 0.9), Some((5.0, 0.0)));
        assert_eq!((one_more(&[1.0], 0.9), one_more(&[], 0.9)), (None, None));
    }

    #[test]
    fn ranks_and_their_correlation() {
        assert_eq!(ranks(&[3.0, 1.0, 2.0, 2.0]), [4.0, 1.0, 2.5, 2.5]);
        assert_eq!(rank_correlation(&[1.0, 2.0, 30.0], &[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), 1.0);
    }

    #[test]
    fn median_intervals_have_the_known_ranks() {
        for (n, expected) in [
            (5, None),
            (6, Some((1, 6))),
            (8, Some((1, 8))),
            (10, Some((2, 9))),
            (20, Some((6, 15))),
            (30, Some((10, 21))),
            (40, Some((14, 27))),
            (50, Some((18, 33))),
            (100, Some((40, 61))),
            (200, Some((86, 115))),
            (500, Some((228, 273))),
            (1000, Some((469, 532))),
        ] {
            assert_eq!(interval_ranks(n, 0.5), expected, "n = {n}");
        }
    }

    #[test]
    fn a_smaller_error_takes_ranks_further_out() {
        // 2 x 11 of 1024 outcomes have at most one below, 2 of 1024 none.
        assert_eq!(interval_ranks_at(10, 0.5, 22.0 / 1024.0), Some((2, 9)));
        assert_eq!(interval_ranks_at(10, 0.5, 21.0 / 1024.0), Some((1, 10)));
        assert_eq!(interval_ranks_at(10, 0.5, 1.0 / 1024.0), None);
    }

    #[test]
    fn percentiles_need_enough_samples() {
        for (q, least) in [(0.90, 36), (0.95, 72), (0.99, 368)] {
            assert_eq!(interval_ranks(least - 1, q), None, "q = {q}");
            assert!(interval_ranks(least, q).is_some(), "q = {q}");
        }
        let summary = Summary::of(&[1.0; 200]).unwrap();
        assert_eq!((summary.p90, summary.p99), (Some(1.0), None));
        assert_eq!(Summary::of(&[1.0; 35]).unwrap().p90, None);
        assert!(interval_ranks(SAMPLES_MIN - 1, 0.5).is_none());
        assert!(interval_ranks(SAMPLES_MIN, 0.5).is_some());
    }

    #[test]
    fn a_summary_has_the_values_that_the_sample_supports() {
        let summary = Summary::of(&[3.0, 1.0, 2.0, 4.0]).unwrap();
        assert_eq!((summary.p50, summary.min, summary.max, summary.mean), (2.5, 1.0, 4.0, 2.5));
        assert_eq!((summary.p50_interval, summary.p99), (None, None));
        assert_eq!(Summary::of(&[]), None);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(Summary::of(&ten).unwrap().p50_interval, Some((2.0, 9.0)));
    }

    #[test]
    fn quantiles_are_samples_and_the_median_may_lie_between_two() {
        assert_eq!((median(Vec::new()), quantile(Vec::new(), 0.2)), (None, None));
        assert_eq!((median(vec![3.0, 1.0]), quantile(vec![3.0, 1.0], 0.5)), (Some(2.0), Some(2.0)));
        assert_eq!(quantile(vec![5.0, 4.0, 3.0, 2.0, 1.0], 0.2), Some(1.0));
    }

    #[test]
    fn ties_are_overlapping_intervals() {
        let summary = |low, high| Summary {
            p50: (low + high) / 2.0,
            p50_interval: Some((low, high)),
            ..Summary::default()
        };
        assert!(summary(1.0, 2.0).tied_with(&summary(2.0, 3.0)));
        assert!(!summary(1.0, 2.0).tied_with(&summary(2.1, 3.0)));
        assert!(Summary::default().tied_with(&summary(1.0, 2.0)));
    }

    /// Nominal 95 % means at least 95 %: coverage of the true median, by simulation.
    #[test]
    fn intervals_cover_the_median_often_enough() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [6, 10, 21, 26, 50] {
            let covered = (0..2000).filter(|_| {
                let sample: Vec<f64> = (0..n).map(|_| uniform().powi(3)).collect();
                let (low, high) = Summary::of(&sample).unwrap().p50_interval.unwrap();
                (low..=high).contains(&0.125)
            });
            let covered = covered.count();
            assert!(covered > 1870, "n = {n}: {covered} of 2000");
        }
    }
}
