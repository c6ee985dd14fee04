//! How far predictions are from what was measured, on the numbers of ranks that are known.

use results::statistics::one_more;
use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

/// A band holds the median of one more setting with this probability, as far as settings and sizes differ like those that
/// are known.
pub const PROBABILITY: f64 = 0.9;

/// The standard deviation, of logarithms, by which the errors of a world differ from those of one of half as many ranks; fitted on
/// 24 times of 4 and 8 ranks, beside those of 2, in `results/reference/scaling`. Errors on 2 ranks alone would not tell: there a
/// prediction may be right within 1 %. The caption in `plots/src/predicted.rs` names it.
pub const PER_DOUBLING: f64 = 0.05;

/// Measured over predicted times of several settings: their mean and their spread, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Missed {
    /// The number of settings and sizes.
    pub cases: usize,
    /// The most ranks among them.
    pub ranks: usize,
    mean: f64,
    half_width: f64,
}

impl Missed {
    /// From measured over predicted times, on up to so many ranks; none for fewer than two.
    pub fn of(ratios: &[f64], ranks: usize) -> Option<Missed> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (mean, half_width) = one_more(&logarithms, PROBABILITY)?;
        Some(Missed { cases: ratios.len(), ranks, mean, half_width })
    }

    /// Measured over predicted: the typical ratio, and the band of one more.
    pub fn ratio(&self) -> (f64, f64, f64) {
        let Missed { mean, half_width, .. } = *self;
        (mean.exp(), (mean - half_width).exp(), (mean + half_width).exp())
    }

    /// The band around a predicted time on so many ranks, which parameters move down and up by so much. It is wider beyond the
    /// known numbers of ranks, by [`PER_DOUBLING`].
    pub fn band(&self, time: f64, (below, above): (f64, f64), ranks: usize) -> (f64, f64) {
        let doublings = (ranks as f64 / self.ranks as f64).log2().max(0.0);
        let deviations = Normal::standard().inverse_cdf((1.0 + PROBABILITY) / 2.0);
        let beyond = deviations * PER_DOUBLING * doublings.sqrt();
        let end =
            |deviation: f64| (deviation.powi(2) + self.half_width.powi(2) + beyond.powi(2)).sqrt();
        let [faster, slower] = [below, above].map(|by| (1.0 + by / time).ln());
        (time * (self.mean - end(faster)).exp(), time * (self.mean + end(slower)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_the_bias_and_the_spread_of_what_is_known() {
        assert_eq!(Missed::of(&[1.1], 2), None);
        let exact = Missed::of(&[1.1, 1.1, 1.1], 2).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, expected {b}");
        let (low, high) = exact.band(100.0, (0.0, 0.0), 2);
        near(low, 110.0);
        near(high, 110.0);
        // Parameters alone: as far down as up, in parts.
        let (low, high) = exact.band(100.0, (10.0, 10.0), 2);
        near(low, 100.0);
        near(high, 121.0);
        let spread = Missed::of(&[0.9, 1.0, 1.1, 1.0], 2).unwrap();
        let (typical, least, most) = spread.ratio();
        assert!(least < 0.9 && 1.1 < most && (typical - 1.0).abs() < 0.01, "{spread:?}");
        let (low, high) = spread.band(50.0, (0.0, 0.0), 2);
        near(low, 50.0 * least);
        near(high, 50.0 * most);
    }

    #[test]
    fn a_band_is_wider_beyond_the_known_ranks() {
        let exact = Missed::of(&[1.0, 1.0, 1.0], 4).unwrap();
        let half = |ranks: usize| exact.band(1.0, (0.0, 0.0), ranks).1.ln();
        assert_eq!([2, 4].map(half), [0.0, 0.0]);
        assert!((half(8) / (1.645 * PER_DOUBLING) - 1.0).abs() < 1e-3, "{}", half(8));
        assert!((half(64) / half(8) - 2.0).abs() < 1e-9, "four doublings are twice as wide");
    }
}
