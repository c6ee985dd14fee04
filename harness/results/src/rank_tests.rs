//! Intervals by ranks: they hold whatever the distribution, and a few disturbed values hardly widen them.
//!
//! After M. Hollander and D. A. Wolfe, "Nonparametric Statistical Methods", sections 3.2, 3.3, 4.2 and 4.3.

use std::collections::BTreeMap;
use std::rc::Rc;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::statistics::CONFIDENCE;

/// Larger samples use the normal distribution of the test's statistic.
const EXACT: usize = 60;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Hodges and Lehmann's.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The middle of values that are symmetric around it, by the signed-rank test; none for fewer than six.
pub fn signed_rank(values: &[f64]) -> Option<Estimate> {
    Laws::default().signed_rank(values).at(1.0 - CONFIDENCE)
}

/// How much larger the values of one sample are than those of another, by the rank-sum test; none if both are so small
/// that no outcome is unlikely enough: 3 and 4 values are too few, 4 and 4 are not.
pub fn rank_sum(values: &[f64], others: &[f64]) -> Option<Estimate> {
    Laws::default().rank_sum(values, others).at(1.0 - CONFIDENCE)
}

/// The distributions of the tests' statistics, by sample sizes. Tests of many samples of the same size share one.
#[derive(Clone, Debug, Default)]
pub struct Laws {
    signed: BTreeMap<usize, Rc<Law>>,
    sums: BTreeMap<(usize, usize), Rc<Law>>,
}

/// An estimate whose interval is known for every probability of error.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// Candidates for the estimate, ascending.
    candidates: Vec<f64>,
    law: Rc<Law>,
}

/// The distribution of a test's statistic.
#[derive(Clone, Debug)]
enum Law {
    /// The probability of each value or a smaller one.
    Exact(Vec<f64>),
    /// Nearly normal, for large samples.
    Normal { mean: f64, variance: f64 },
}

impl Laws {
    /// See [`signed_rank`].
    pub fn signed_rank(&mut self, values: &[f64]) -> Ranked {
        let of = |(at, one): (usize, &f64)| -> Vec<f64> {
            values[at..].iter().map(|other| (one + other) / 2.0).collect()
        };
        let means: Vec<f64> = values.iter().enumerate().flat_map(of).collect();
        Ranked::of(means, self.of_signed_ranks(values.len()))
    }

    /// See [`rank_sum`].
    pub fn rank_sum(&mut self, values: &[f64], others: &[f64]) -> Ranked {
        let differences = values.iter().flat_map(|one| others.iter().map(move |other| one - other));
        Ranked::of(differences.collect(), self.of_rank_sums(values.len(), others.len()))
    }

    /// How many of the candidates of so many pairs lie outside of the interval, at either end; none if all of them do.
    pub fn outside_of_pairs(&mut self, count: usize, error: f64) -> Option<usize> {
        self.of_signed_ranks(count).outside(error)
    }

    /// As [`Laws::outside_of_pairs`], for two samples of these sizes.
    pub fn outside_of_samples(&mut self, counts: (usize, usize), error: f64) -> Option<usize> {
        self.of_rank_sums(counts.0, counts.1).outside(error)
    }

    fn of_signed_ranks(&mut self, count: usize) -> Rc<Law> {
        let law = self.signed.entry(count).or_insert_with(|| {
            Rc::new(if count <= EXACT {
                Law::exact(signed_rank_chances(count))
            } else {
                let count = count as f64;
                let variance = count * (count + 1.0) * (2.0 * count + 1.0) / 24.0;
                Law::Normal { mean: count * (count + 1.0) / 4.0, variance }
            })
        });
        law.clone()
    }

    fn of_rank_sums(&mut self, count: usize, others: usize) -> Rc<Law> {
        let law = self.sums.entry((count, others)).or_insert_with(|| {
            Rc::new(if count.max(others) <= EXACT {
                Law::exact(rank_sum_chances(count, others))
            } else {
                let pairs = (count * others) as f64;
                Law::Normal {
                    mean: pairs / 2.0,
                    variance: pairs * (count + others + 1) as f64 / 12.0,
                }
            })
        });
        law.clone()
    }
}

impl Ranked {
    fn of(mut candidates: Vec<f64>, law: Rc<Law>) -> Ranked {
        candidates.sort_unstable_by(f64::total_cmp);
        Ranked { candidates, law }
    }

    /// Hodges and Lehmann's estimate; none without values.
    pub fn value(&self) -> Option<f64> {
        let count = self.candidates.len();
        let (low, high) =
            (*self.candidates.get(count.checked_sub(1)? / 2)?, self.candidates[count / 2]);
        Some((low + high) / 2.0)
    }

    /// The estimate with an interval that misses with at most this probability, half of it at either end; none if no
    /// outcome is that unlikely.
    pub fn at(&self, error: f64) -> Option<Estimate> {
        let outside = self.law.outside(error)?;
        let (low, high) =
            (*self.candidates.get(outside)?, self.candidates[self.candidates.len() - 1 - outside]);
        Some(Estimate { value: self.value()?, low, high })
    }
}

impl Law {
    fn exact(chances: Vec<f64>) -> Law {
        let below = chances.iter().scan(0.0, |all, chance| {
            *all += chance;
            Some(*all)
        });
        Law::Exact(below.collect())
    }

    /// How many candidates for the estimate lie outside of the interval, at either end.
    fn outside(&self, error: f64) -> Option<usize> {
        self.unlikely(error).checked_sub(1)
    }

    /// How many values of the statistic, from the least on, are together no more likely than half of the error.
    fn unlikely(&self, error: f64) -> usize {
        match self {
            Law::Exact(below) => below.partition_point(|&all| all <= error / 2.0),
            Law::Normal { mean, variance } => nearly(*mean, *variance, error),
        }
    }
}

/// [`Law::unlikely`] by the normal distribution. The statistic is a whole number.
fn nearly(mean: f64, variance: f64, error: f64) -> usize {
    let deviations = Normal::standard().inverse_cdf(1.0 - error / 2.0);
    (mean - deviations * variance.sqrt() + 0.5).floor().max(0.0) as usize
}

/// The chance of each sum of positive ranks: each rank belongs to it or not.
fn signed_rank_chances(count: usize) -> Vec<f64> {
    let mut chances = vec![0.0; count * (count + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..chances.len()).rev() {
            let with = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = (chances[sum] + with) / 2.0;
        }
    }
    chances
}

/// The chance of each number of pairs in which the second value is larger, for samples of these sizes.
fn rank_sum_chances(count: usize, others: usize) -> Vec<f64> {
    // In how many orders: the coefficients of the Gaussian binomial, which a longer first sample multiplies by
    // (1 - q^(others + length)) / (1 - q^length).
    let mut orders = vec![0.0; count * others + 1];
    orders[0] = 1.0;
    for length in 1..=count {
        for pairs in (others + length..orders.len()).rev() {
            orders[pairs] -= orders[pairs - others - length];
        }
        for pairs in length..orders.len() {
            orders[pairs] += orders[pairs - length];
        }
    }
    let all: f64 = orders.iter().sum();
    orders.iter_mut().for_each(|orders| *orders /= all);
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 95 %.
    fn unlikely(chances: &[f64]) -> usize {
        Law::exact(chances.to_vec()).unlikely(1.0 - CONFIDENCE)
    }

    #[test]
    fn signed_ranks_are_those_of_tables() {
        // The largest sums with a probability of at most 2.5 %.
        for (count, sum) in [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (20, 52)] {
            assert_eq!(unlikely(&signed_rank_chances(count)), sum + 1, "{count}");
        }
        assert_eq!(signed_rank(&[1.0; 5]), None);
        let Estimate { value, low, high } = signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!((low, value, high), (1.0, 3.5, 6.0));
    }

    #[test]
    fn the_normal_distribution_is_near_the_exact_one_where_it_takes_over() {
        let count = EXACT as f64;
        let exact = unlikely(&signed_rank_chances(EXACT));
        let variance = count * (count + 1.0) * (2.0 * count + 1.0) / 24.0;
        let near = nearly(count * (count + 1.0) / 4.0, variance, 0.05);
        assert!(near.abs_diff(exact) <= 2, "{exact}");
        let exact = unlikely(&rank_sum_chances(EXACT, EXACT));
        let variance = count * count * (2.0 * count + 1.0) / 12.0;
        assert!(nearly(count * count / 2.0, variance, 0.05).abs_diff(exact) <= 2, "{exact}");
        let many: Vec<f64> = (0..500).map(f64::from).collect();
        let Estimate { value, low, high } = signed_rank(&many).unwrap();
        assert!(low < value && value < high && (value - 249.5).abs() < 1.0, "{low} {value} {high}");
    }

    #[test]
    fn a_smaller_error_needs_more_values_and_widens_the_interval() {
        let mut laws = Laws::default();
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let ten = laws.signed_rank(&values);
        // All signs alike: 2 of 1024 outcomes.
        assert_eq!(ten.at(2.0 / 1024.0).map(|it| (it.low, it.high)), Some((1.0, 10.0)));
        assert_eq!(ten.at(1.9 / 1024.0), None);
        assert_eq!(ten.value(), Some(5.5));
        let wide = ten.at(0.01).unwrap();
        let narrow = ten.at(0.05).unwrap();
        assert!(wide.low < narrow.low && narrow.high < wide.high, "{wide:?} {narrow:?}");
        assert_eq!(
            (laws.outside_of_pairs(6, 0.05), laws.outside_of_pairs(5, 0.05)),
            (Some(0), None)
        );
        assert_eq!(laws.outside_of_samples((4, 4), 0.05), Some(0));
        assert_eq!(laws.signed_rank(&[]).value(), None);
    }

    #[test]
    fn rank_sums_are_those_of_tables() {
        // The largest numbers of pairs with a probability of at most 2.5 %.
        for (count, others, pairs) in
            [(4, 4, 0), (4, 5, 1), (5, 5, 2), (6, 6, 5), (5, 8, 6), (10, 10, 23), (8, 5, 6)]
        {
            assert_eq!(unlikely(&rank_sum_chances(count, others)), pairs + 1, "{count} {others}");
        }
        let chances = rank_sum_chances(3, 2);
        assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((chances[0] - 0.1).abs() < 1e-12, "one of ten orders");
        assert_eq!(rank_sum(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]), None);
        let found = rank_sum(&[5.0, 6.0, 7.0, 8.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(found, Estimate { value: 4.0, low: 1.0, high: 7.0 });
    }
}
