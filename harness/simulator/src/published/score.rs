//! How far simulations are from published points, beside models that know less.
//!
//! Training is scored by its efficiency: throughput in parts of the number of ranks times that of one. Near 1 every model
//! is right, so that its loss is scored too: what efficiency lacks to 1, simulated over published.

use serde::Serialize;

use super::{Compared, Group};
use results::statistics::{median, quantile, rank_correlation};

/// A published loss below this is too small for a ratio.
const LEAST_LOSS: f64 = 0.01;

/// A range of efficiencies as wide as this, such as that from 40 to 99 %, says nothing.
pub const SAYS_NOTHING: f64 = 0.59;

/// Constant efficiencies to choose from.
const CONSTANTS: usize = 200;

/// What predicts an efficiency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// The simulator.
    Simulated,
    /// Nothing is lost.
    Perfect,
    /// Bandwidth alone, all of it hidden by computation if that takes longer.
    BandwidthBound,
}

/// Scores of some training points. Efficiencies and errors are in parts of 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Points, near-duplicates once.
    pub points: usize,
    /// Median distance of the simulated efficiency from the published one.
    pub error: f64,
    /// The same of perfect scaling.
    pub perfect_error: f64,
    /// The same with nothing but bandwidth.
    pub bandwidth_bound_error: f64,
    /// The same of the constant that is best for all points but the one in question; for three points or more.
    pub constant_error: Option<f64>,
    /// Simulated loss over published loss: quartiles.
    pub lost: Option<[f64; 3]>,
    /// Points of which less loss is simulated than was published.
    pub too_fast: usize,
    /// Spearman's correlation of simulated and published efficiency; for three points or more.
    pub rank_correlation: Option<f64>,
    /// Points whose published value is within the simulated range, where that says something.
    pub covered: usize,
    /// Points whose range is so wide that it says nothing, see [`SAYS_NOTHING`].
    pub says_nothing: usize,
    /// Median width of that range.
    pub range_width: f64,
}

impl Score {
    /// Of the training points among these; none without any.
    pub fn of<'c>(points: impl Iterator<Item = &'c Compared>) -> Option<Score> {
        let points: Vec<(&Compared, f64)> = points
            .filter(|point| point.like.is_none())
            .filter_map(|point| Some((point, point.efficiency(point.published)?)))
            .collect();
        let published: Vec<f64> = points.iter().map(|&(_, published)| published).collect();
        let of = |predictor| -> Vec<f64> {
            points.iter().filter_map(|(point, _)| predicted(point, predictor)).collect()
        };
        let simulated = of(Predictor::Simulated);
        let distance = |predicted: &[f64]| {
            let each = predicted.iter().zip(&published);
            median(each.map(|(predicted, published)| (predicted - published).abs()).collect())
        };
        let each = simulated.iter().zip(&published);
        let lost: Vec<f64> = (each.clone())
            .filter(|(_, published)| 1.0 - **published >= LEAST_LOSS)
            .map(|(simulated, published)| (1.0 - simulated) / (1.0 - published))
            .collect();
        let quartiles = [0.25, 0.5, 0.75].map(|share| quantile(lost.clone(), share));
        let range = |point: &&Compared| {
            Some((point.efficiency(point.simulated_low)?, point.efficiency(point.simulated_high)?))
        };
        let ranges: Vec<(f64, f64)> = points.iter().filter_map(|(point, _)| range(point)).collect();
        // Efficiencies are kept with rounded throughputs.
        let is_wide = |range: &(f64, f64)| range.1 - range.0 >= SAYS_NOTHING - 1e-6;
        let covers = |(range, published): &(&(f64, f64), &f64)| {
            !is_wide(range) && (range.0..=range.1).contains(*published)
        };
        let is_enough = points.len() > 2;
        Some(Score {
            points: points.len(),
            error: distance(&simulated)?,
            perfect_error: distance(&of(Predictor::Perfect))?,
            bandwidth_bound_error: distance(&of(Predictor::BandwidthBound))?,
            constant_error: is_enough.then(|| best_constant(&published)).flatten(),
            lost: quartiles
                .into_iter()
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.try_into().ok()),
            too_fast: each.filter(|(simulated, published)| simulated > published).count(),
            rank_correlation: is_enough.then(|| rank_correlation(&simulated, &published)),
            covered: ranges.iter().zip(&published).filter(covers).count(),
            says_nothing: ranges.iter().filter(|range| is_wide(range)).count(),
            range_width: median(ranges.iter().map(|(low, high)| high - low).collect())?,
        })
    }
}

/// The efficiency that a model predicts of a training point.
pub fn predicted(point: &Compared, predictor: Predictor) -> Option<f64> {
    match predictor {
        Predictor::Simulated => point.efficiency(point.simulated),
        Predictor::Perfect => point.perfect.map(|_| 1.0),
        Predictor::BandwidthBound => point.efficiency(point.bandwidth_bound),
    }
}

/// The median distance of each value from the constant that is best for the others.
fn best_constant(values: &[f64]) -> Option<f64> {
    let distance = |constant: f64, left_out: usize| {
        let others = values.iter().enumerate().filter(|(at, _)| *at != left_out);
        median(others.map(|(_, value)| (value - constant).abs()).collect())
    };
    let best = |left_out: usize| {
        let constants = (0..=CONSTANTS).map(|at| at as f64 / CONSTANTS as f64);
        let of = |constant| Some((distance(constant, left_out)?, constant));
        constants.filter_map(of).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, constant)| constant)
    };
    let each = values.iter().enumerate();
    median(each.filter_map(|(at, value)| Some((value - best(at)?).abs())).collect())
}

/// Scores of allreduces: errors relative to the published value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AllReduceScore {
    /// Points, near-duplicates once.
    pub points: usize,
    /// Median error of the simulation.
    pub error: f64,
    /// The same with nothing but bandwidth.
    pub bandwidth_bound_error: f64,
    /// Points whose published value is within the simulated range.
    pub covered: usize,
}

impl AllReduceScore {
    /// Of the allreduces among these; none without any.
    pub fn of<'c>(points: impl Iterator<Item = &'c Compared>) -> Option<AllReduceScore> {
        let points: Vec<&Compared> =
            points.filter(|point| point.like.is_none() && point.perfect.is_none()).collect();
        let error = |value: fn(&Compared) -> f64| {
            let each = points.iter().map(|point| (value(point) / point.published - 1.0).abs());
            median(each.collect())
        };
        let covers = |point: &&&Compared| {
            (point.simulated_low..=point.simulated_high).contains(&point.published)
        };
        Some(AllReduceScore {
            points: points.len(),
            error: error(|point| point.simulated)?,
            bandwidth_bound_error: error(|point| point.bandwidth_bound)?,
            covered: points.iter().filter(covers).count(),
        })
    }
}

/// All groups that occur, in order.
pub fn groups<'c>(points: impl Iterator<Item = &'c Compared>) -> Vec<Group> {
    let mut groups: Vec<Group> = points.map(|point| point.group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::published::Verdict;

    /// A point with these efficiencies: published, simulated with its range, bandwidth-bound.
    pub fn point(
        published: f64,
        simulated: f64,
        range: (f64, f64),
        bandwidth_bound: f64,
    ) -> Compared {
        Compared {
            point: "a".into(),
            series: String::new(),
            group: Group::Rdma,
            like: None,
            machine: "m".into(),
            ranks: 4,
            unit: "samples/s",
            published: 400.0 * published,
            simulated: 400.0 * simulated,
            simulated_low: 400.0 * range.0,
            simulated_high: 400.0 * range.1,
            bandwidth_bound: 400.0 * bandwidth_bound,
            perfect: Some(400.0),
            error: 0.0,
            fitted: false,
            verdict: Verdict::Met,
            why: String::new(),
            source: String::new(),
        }
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
    }

    #[test]
    fn losses_and_errors_are_of_efficiencies() {
        let points = [
            point(0.9, 0.95, (0.85, 1.0), 1.0),
            point(0.8, 0.7, (0.65, 0.75), 0.9),
            point(0.6, 0.7, (0.5, 0.75), 0.7),
            // Its loss is too small for a ratio.
            point(0.995, 1.0, (0.99, 1.0), 1.0),
        ];
        let score = Score::of(points.iter()).unwrap();
        assert_eq!((score.points, score.too_fast, score.covered), (4, 3, 3));
        close(score.error, 0.075);
        close(score.perfect_error, 0.15);
        close(score.bandwidth_bound_error, 0.1);
        let [low, middle, high] = score.lost.unwrap();
        close(low, 0.5);
        close(middle, 0.75);
        close(high, 1.5);
        close(score.range_width, 0.125);
        close(
            score.rank_correlation.unwrap(),
            rank_correlation(&[3.0, 1.5, 1.5, 4.0], &[3.0, 2.0, 1.0, 4.0]),
        );
        assert_eq!(Score::of([].iter()), None);
    }

    #[test]
    fn a_range_from_40_to_99_percent_says_nothing() {
        let points = [
            point(0.8, 0.7, (0.4, 0.99), 1.0),
            point(0.8, 0.7, (0.41, 0.99), 1.0),
            point(0.2, 0.7, (0.3, 0.99), 1.0),
        ];
        let score = Score::of(points.iter()).unwrap();
        assert_eq!((score.covered, score.says_nothing), (1, 2));
    }

    #[test]
    fn near_duplicates_count_once() {
        let one = point(0.9, 0.95, (0.9, 1.0), 1.0);
        let same = Compared { like: Some("a".into()), ..one.clone() };
        assert_eq!(Score::of([one, same].iter()).unwrap().points, 1);
    }

    /// A model that is a constant cannot be better than the best one.
    #[test]
    fn the_best_constant_does_not_know_the_point_in_question() {
        close(best_constant(&[0.5, 0.5, 0.5, 0.5]).unwrap(), 0.0);
        assert!(best_constant(&[0.5, 0.9, 0.9, 0.9, 0.9]).unwrap() < 1e-9);
        let spread = best_constant(&[0.1, 0.9, 0.5]).unwrap();
        assert!(spread >= 0.2, "{spread}");
    }

    #[test]
    fn allreduces_are_scored_by_their_values() {
        let large = |published, simulated, bandwidth_bound| Compared {
            group: Group::BandwidthBound,
            perfect: None,
            published,
            simulated,
            simulated_low: simulated * 0.9,
            simulated_high: simulated * 1.1,
            bandwidth_bound,
            ..point(1.0, 1.0, (1.0, 1.0), 1.0)
        };
        let points = [large(10.0, 11.0, 20.0), large(10.0, 8.0, 12.0), large(10.0, 10.0, 15.0)];
        let score = AllReduceScore::of(points.iter()).unwrap();
        assert_eq!((score.points, score.covered), (3, 2));
        close(score.error, 0.1);
        close(score.bandwidth_bound_error, 0.5);
        assert!(Score::of(points.iter()).is_none(), "they have no efficiency");
    }
}
