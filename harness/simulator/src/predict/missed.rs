//! How far predictions are from what was measured, on the numbers of ranks that are known.

use results::statistics::one_more;
use schemars::JsonSchema;
use serde::Serialize;

/// A band holds the median of one more setting with this probability, as far as settings and sizes differ like those that
/// are known.
pub const PROBABILITY: f64 = 0.9;

/// Measured over predicted times of several settings: their mean and their spread, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Missed {
    /// The number of settings and sizes.
    pub cases: usize,
    mean: f64,
    half_width: f64,
}

impl Missed {
    /// From measured over predicted times; none for fewer than two.
    pub fn of(ratios: &[f64]) -> Option<Missed> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (mean, half_width) = one_more(&logarithms, PROBABILITY)?;
        Some(Missed { cases: ratios.len(), mean, half_width })
    }

    /// Measured over predicted: the typical ratio, and the band of one more.
    pub fn ratio(&self) -> (f64, f64, f64) {
        let Missed { mean, half_width, .. } = *self;
        (mean.exp(), (mean - half_width).exp(), (mean + half_width).exp())
    }

    /// The band around a predicted time that parameters move down and up by so much.
    pub fn band(&self, time: f64, (below, above): (f64, f64)) -> (f64, f64) {
        let end = |deviation: f64| (deviation.powi(2) + self.half_width.powi(2)).sqrt();
        let [faster, slower] = [below, above].map(|by| (1.0 + by / time).ln());
        (time * (self.mean - end(faster)).exp(), time * (self.mean + end(slower)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_the_bias_and_the_spread_of_what_is_known() {
        assert_eq!(Missed::of(&[1.1]), None);
        let exact = Missed::of(&[1.1, 1.1, 1.1]).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, expected {b}");
        let (low, high) = exact.band(100.0, (0.0, 0.0));
        near(low, 110.0);
        near(high, 110.0);
        // Parameters alone: as far down as up, in parts.
        let (low, high) = exact.band(100.0, (10.0, 10.0));
        near(low, 100.0);
        near(high, 121.0);
        let spread = Missed::of(&[0.9, 1.0, 1.1, 1.0]).unwrap();
        let (typical, least, most) = spread.ratio();
        assert!(least < 0.9 && 1.1 < most && (typical - 1.0).abs() < 0.01, "{spread:?}");
        let (low, high) = spread.band(50.0, (0.0, 0.0));
        near(low, 50.0 * least);
        near(high, 50.0 * most);
    }
}
