//! How far published efficiencies are from simulated ones: what the ranges of parameters do not cover.

use super::{Compared, Group};
use results::statistics::quantile;

/// These shares of the points for calibration are below the ends.
const SHARES: [f64; 2] = [0.05, 0.95];

/// Published minus simulated efficiency of the points for calibration: the ends of its spread in each group of training
/// points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Residuals(Vec<(Group, Ends)>);

/// The ends of a spread, and the number of points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ends {
    /// Points, near-duplicates once.
    pub points: usize,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Residuals {
    /// From the training points for calibration among these.
    pub fn of<'c>(points: impl Iterator<Item = &'c Compared> + Clone) -> Residuals {
        let of = |group: Group| {
            let own = points
                .clone()
                .filter(|point| point.fitted && point.like.is_none() && point.group == group);
            let residuals: Vec<f64> = own
                .filter_map(|point| {
                    Some(point.efficiency(point.published)? - point.efficiency(point.simulated)?)
                })
                .collect();
            let [low, high] = SHARES.map(|share| quantile(residuals.clone(), share));
            Some((group, Ends { points: residuals.len(), low: low?, high: high? }))
        };
        Residuals(Group::TRAINING.into_iter().filter_map(of).collect())
    }

    /// The range of an efficiency, widened to what was published where as much was simulated, but not beyond perfect
    /// scaling.
    pub fn widened(&self, group: Group, efficiency: f64, (low, high): (f64, f64)) -> (f64, f64) {
        match self.ends(group) {
            Some(ends) => (
                low.min((efficiency + ends.low).max(0.0)),
                high.max((efficiency + ends.high).min(1.0)),
            ),
            None => (low, high),
        }
    }

    /// The ends of a group, as a sentence.
    pub fn in_words(&self, group: Group) -> Option<String> {
        let Ends { points, low, high } = self.ends(group)?;
        let [low, high] = [low, high].map(|end| 100.0 * end);
        Some(format!(
            "{group}: published efficiencies are {low:+.1} to {high:+.1} points from simulated ones ({points} points \
             for calibration)"
        ))
    }

    fn ends(&self, group: Group) -> Option<Ends> {
        self.0.iter().find(|(of, _)| *of == group).map(|(_, ends)| *ends)
    }
}

#[cfg(test)]
mod tests {
    use super::super::score::tests::point;
    use super::*;

    #[test]
    fn ranges_reach_as_far_as_points_for_calibration_were_missed() {
        let for_calibration = |published, simulated| Compared {
            fitted: true,
            ..point(published, simulated, (simulated, simulated), 1.0)
        };
        // The last one is not for calibration.
        let points = [
            for_calibration(0.9, 0.8),
            for_calibration(0.7, 0.9),
            point(0.1, 0.9, (0.9, 0.9), 1.0),
        ];
        let residuals = Residuals::of(points.iter());
        assert_eq!(
            residuals.in_words(Group::Rdma).unwrap(),
            "across nodes, RDMA: published efficiencies are -20.0 to +10.0 points from simulated ones (2 points for \
             calibration)"
        );
        let close = |(low, high): (f64, f64), expected: (f64, f64)| {
            assert!(
                (low - expected.0).abs() < 1e-9 && (high - expected.1).abs() < 1e-9,
                "{low} {high}"
            );
        };
        close(residuals.widened(Group::Rdma, 0.8, (0.79, 0.81)), (0.6, 0.9));
        close(residuals.widened(Group::Rdma, 0.8, (0.3, 0.95)), (0.3, 0.95));
        close(residuals.widened(Group::Rdma, 0.1, (0.1, 0.1)), (0.0, 0.2));
        close(residuals.widened(Group::Rdma, 0.98, (0.97, 0.99)), (0.78, 1.0));
        close(residuals.widened(Group::OneNode, 0.8, (0.79, 0.81)), (0.79, 0.81));
    }
}
