//! Intervals by ranks: they hold whatever the distribution, and a few disturbed values hardly widen them.
//!
//! After M. Hollander and D. A. Wolfe, "Nonparametric Statistical Methods", sections 3.2, 3.3, 4.2 and 4.3.

use crate::statistics::{CONFIDENCE, median};

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
    let of = |(at, one): (usize, &f64)| -> Vec<f64> {
        values[at..].iter().map(|other| (one + other) / 2.0).collect()
    };
    let means: Vec<f64> = values.iter().enumerate().flat_map(of).collect();
    let count = values.len() as f64;
    let unlikely = if values.len() <= EXACT {
        unlikely(&signed_rank_chances(values.len()))
    } else {
        let variance = count * (count + 1.0) * (2.0 * count + 1.0) / 24.0;
        nearly(count * (count + 1.0) / 4.0, variance)
    };
    estimate(means, unlikely)
}

/// How much larger the values of one sample are than those of another, by the rank-sum test; none if both are so small
/// that no outcome is unlikely enough: 3 and 4 values are too few, 4 and 4 are not.
pub fn rank_sum(values: &[f64], others: &[f64]) -> Option<Estimate> {
    let differences = values.iter().flat_map(|one| others.iter().map(move |other| one - other));
    let (count, other_count) = (values.len(), others.len());
    let unlikely = if count.max(other_count) <= EXACT {
        unlikely(&rank_sum_chances(count, other_count))
    } else {
        let pairs = (count * other_count) as f64;
        nearly(pairs / 2.0, pairs * (count + other_count + 1) as f64 / 12.0)
    };
    estimate(differences.collect(), unlikely)
}

/// From candidates for the estimate, and the number of unlikely values of the test's statistic at either end.
fn estimate(mut candidates: Vec<f64>, unlikely: usize) -> Option<Estimate> {
    let outside = unlikely.checked_sub(1)?;
    candidates.sort_by(f64::total_cmp);
    let (low, high) = (*candidates.get(outside)?, candidates[candidates.len() - 1 - outside]);
    Some(Estimate { value: median(candidates)?, low, high })
}

/// How many values of the statistic, from the least on, are together no more likely than half of what the confidence
/// leaves.
fn unlikely(chances: &[f64]) -> usize {
    let below = chances.iter().scan(0.0, |all, chance| {
        *all += chance;
        Some(*all)
    });
    below.take_while(|&all| all <= (1.0 - CONFIDENCE) / 2.0).count()
}

/// The same by the normal distribution, for large samples.
fn nearly(mean: f64, variance: f64) -> usize {
    // Half of what the confidence leaves is below, and the statistic is a whole number.
    const DEVIATIONS: f64 = 1.959_964;
    (mean - DEVIATIONS * variance.sqrt() + 0.5).floor().max(0.0) as usize
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
    // By the number of values of the first sample so far, for a growing second one: the largest of all is in the first
    // sample, or in the second, where it is larger than all of the first.
    let most = count * others + 1;
    let mut rows = vec![vec![0.0; most]; count + 1];
    rows.iter_mut().for_each(|row| row[0] = 1.0);
    for other in 1..=others {
        let mut next = vec![vec![0.0; most]; count + 1];
        next[0][0] = 1.0;
        for one in 1..=count {
            let in_first = one as f64 / (one + other) as f64;
            for pairs in 0..most {
                let with_second = if pairs >= one { rows[one][pairs - one] } else { 0.0 };
                next[one][pairs] = in_first * next[one - 1][pairs] + (1.0 - in_first) * with_second;
            }
        }
        rows = next;
    }
    rows.swap_remove(count)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(nearly(count * (count + 1.0) / 4.0, variance).abs_diff(exact) <= 2, "{exact}");
        let exact = unlikely(&rank_sum_chances(EXACT, EXACT));
        let variance = count * count * (2.0 * count + 1.0) / 12.0;
        assert!(nearly(count * count / 2.0, variance).abs_diff(exact) <= 2, "{exact}");
        let many: Vec<f64> = (0..500).map(f64::from).collect();
        let Estimate { value, low, high } = signed_rank(&many).unwrap();
        assert!(low < value && value < high && (value - 249.5).abs() < 1.0, "{low} {value} {high}");
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
