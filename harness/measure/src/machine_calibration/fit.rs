//! From times by size to latency and seconds per byte.

use results::statistics::median;

/// The largest small message in bytes.
pub const SMALL_BYTES: usize = 16 << 10;

/// `intercept_s` + bytes x `slope_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinearFit {
    /// Seconds at no bytes.
    pub intercept_s: f64,
    /// Seconds per byte.
    pub slope_s: f64,
}

/// Lines of small messages, of large ones, and of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinearFits {
    /// For messages up to [`SMALL_BYTES`].
    pub small: LinearFit,
    /// For larger ones.
    pub large: LinearFit,
    /// For messages of any size: with the intercept of small ones, and the slope of large ones beyond it.
    pub all: LinearFit,
}

impl LinearFits {
    /// The same line for all sizes.
    pub fn alike(line: LinearFit) -> LinearFits {
        LinearFits { small: line, large: line, all: line }
    }

    /// Whether small messages are faster by a line of their own, and large ones by theirs.
    pub fn differ(&self) -> bool {
        let LinearFits { small, large, .. } = self;
        small.intercept_s < large.intercept_s && small.slope_s > large.slope_s
    }
}

/// Fits lines to points of (bytes, seconds), ascending. Each passes through the smallest sizes of its range, with
/// the slope of most sizes of the range. One or two sizes that do not fit into a cache, or that noise affected,
/// therefore have no influence.
pub fn lines(points: &[(f64, f64)]) -> LinearFits {
    let middle = points.partition_point(|&(bytes, _)| bytes <= SMALL_BYTES as f64);
    let (small, large) = points.split_at(middle);
    let short = line(small);
    if large.is_empty() {
        return LinearFits::alike(short);
    }
    let all = LinearFit { slope_s: slope_s(large, short.intercept_s), ..short };
    LinearFits { small: short, large: line(large), all }
}

/// Number of the smallest sizes that determine the intercept.
const SMALLEST: usize = 2;

/// Iterations: slope and intercept depend on each other, and converge within this number.
const TURNS: usize = 20;

/// The line through points of one range.
pub fn line(points: &[(f64, f64)]) -> LinearFit {
    let mut line = LinearFit::default();
    for _ in 0..TURNS {
        line.slope_s = slope_s(points, line.intercept_s);
        let rests = points.iter().take(SMALLEST);
        let rests = rests.map(|&(bytes, seconds)| seconds - bytes * line.slope_s);
        line.intercept_s = median(rests.collect()).unwrap_or(0.0).max(0.0);
    }
    line
}

/// The median slope of lines from an intercept through the points of one range, in seconds per byte.
fn slope_s(points: &[(f64, f64)], intercept_s: f64) -> f64 {
    let longest = points.last().map_or(0.0, |&(bytes, _)| bytes);
    let long = points.iter().filter(|&&(bytes, _)| bytes >= longest / LONG);
    let slopes = long.map(|&(bytes, seconds)| (seconds - intercept_s) / bytes);
    median(slopes.collect()).unwrap_or(0.0).max(0.0)
}

/// Sizes of a range that are shorter than the longest by more than this factor do not affect the slope.
const LONG: f64 = 300.0;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const SIZES: [f64; 10] =
        [4.0, 64.0, 512.0, 4096.0, 16384.0, 32768.0, 131072.0, 524288.0, 2e6, 8e6];

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found / expected - 1.0).abs() < within, "{found} for {expected}");
    }

    /// Two protocols, 2 % of noise, and one size that is twice as slow: the line is found.
    #[test]
    fn known_lines_are_recovered() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for wild in [usize::MAX, 9] {
            let points = SIZES.iter().enumerate().map(|(at, &bytes)| {
                let true_s = if bytes <= SMALL_BYTES as f64 {
                    3e-6 + bytes * 1e-9
                } else {
                    20e-6 + bytes * 2e-10
                };
                let noise = 1.0 + 0.02 * (random.random::<f64>() - 0.5);
                (bytes, true_s * noise * if at == wild { 2.0 } else { 1.0 })
            });
            let LinearFits { small, large, all } = lines(&points.collect::<Vec<_>>());
            near(small.intercept_s, 3e-6, 0.02);
            near(small.slope_s, 1e-9, 0.05);
            near(large.slope_s, 2e-10, 0.1);
            near(large.intercept_s, 20e-6, 0.1);
            assert_eq!(all.intercept_s, small.intercept_s);
            assert!(all.slope_s > large.slope_s, "{all:?}");
        }
    }

    #[test]
    fn protocols_differ_if_each_is_faster_for_its_sizes() {
        let with = |small: [f64; 2], large: [f64; 2]| {
            let line = |[intercept_s, slope_s]: [f64; 2]| LinearFit { intercept_s, slope_s };
            LinearFits { small: line(small), large: line(large), ..LinearFits::default() }.differ()
        };
        assert!(with([1.0, 2.0], [2.0, 1.0]));
        assert!(!with([2.0, 1.0], [1.0, 2.0]) && !with([1.0, 1.0], [2.0, 1.0]));
        assert!(!LinearFits::alike(LinearFit { intercept_s: 1.0, slope_s: 1.0 }).differ());
    }

    #[test]
    fn noise_makes_nothing_negative() {
        let falling = [(4.0, 3e-6), (64.0, 2e-6), (65536.0, 2e-6), (1e6, 1e-6)];
        let LinearFits { small, large, all } = lines(&falling);
        for line in [small, large, all] {
            assert!(line.slope_s >= 0.0 && line.intercept_s >= 0.0, "{line:?}");
            assert!(line.slope_s.is_finite() && line.intercept_s <= 3e-6, "{line:?}");
        }
    }
}
