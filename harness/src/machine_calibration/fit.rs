//! From times by size to latency and seconds per byte.

/// Messages of at most so many bytes are small.
pub const SMALL_BYTES: usize = 16 << 10;

/// `intercept_s` + bytes x `slope_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds at no bytes.
    pub intercept_s: f64,
    /// Seconds per byte.
    pub slope_s: f64,
}

/// What small messages follow, and large ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lines {
    /// Of messages up to [`SMALL_BYTES`].
    pub small: Line,
    /// Of those above.
    pub large: Line,
}

/// The middle one, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The median slope between all pairs of points (Theil 1950, Sen 1968): a third of them may be wild.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let pairs = points.iter().enumerate().flat_map(|(at, &(x, y))| {
        points[at + 1..].iter().map(move |&(other, z)| (z - y) / (other - x))
    });
    median(&mut pairs.collect::<Vec<_>>()).max(0.0)
}

/// Lines for points of (bytes, seconds), ascending. A line's slope is that of its range, and it passes
/// through the smallest sizes of its range: its intercept is what is left there.
///
/// # Panics
/// When there is no small point, or no large one but for a range of small ones alone.
pub fn lines(points: &[(f64, f64)]) -> Lines {
    let middle = points.partition_point(|&(bytes, _)| bytes <= SMALL_BYTES as f64);
    let (small, large) = points.split_at(middle);
    let small = line(small);
    let large = if large.is_empty() { small } else { line(large) };
    Lines { small, large }
}

/// So many of the smallest sizes say what the intercept is.
const SMALLEST: usize = 2;

fn line(points: &[(f64, f64)]) -> Line {
    let slope_s = slope(points);
    let rests = points.iter().take(SMALLEST).map(|&(bytes, seconds)| seconds - bytes * slope_s);
    Line { intercept_s: median(&mut rests.collect::<Vec<_>>()).max(0.0), slope_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const SIZES: [f64; 9] = [4.0, 64.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4e6];

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found / expected - 1.0).abs() < within, "{found} for {expected}");
    }

    /// Two protocols, 2 % of noise, and one size that is twice as slow: the line is found.
    #[test]
    fn known_lines_are_recovered() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for wild in [usize::MAX, 8] {
            let points = SIZES.iter().enumerate().map(|(at, &bytes)| {
                let true_s = match bytes <= SMALL_BYTES as f64 {
                    true => 3e-6 + bytes * 1e-9,
                    false => 20e-6 + bytes * 2e-10,
                };
                let noise = 1.0 + 0.02 * (random.random::<f64>() - 0.5);
                (bytes, true_s * noise * if at == wild { 2.0 } else { 1.0 })
            });
            let Lines { small, large } = lines(&points.collect::<Vec<_>>());
            near(small.intercept_s, 3e-6, 0.02);
            near(small.slope_s, 1e-9, 0.05);
            near(large.slope_s, 2e-10, if wild == 8 { 0.25 } else { 0.05 });
            near(large.intercept_s, 20e-6, if wild == 8 { 0.3 } else { 0.1 });
        }
    }

    #[test]
    fn noise_makes_nothing_negative() {
        let falling = [(4.0, 3e-6), (64.0, 2e-6), (65536.0, 2e-6), (1e6, 1e-6)];
        let Lines { small, large } = lines(&falling);
        assert_eq!((small.slope_s, large.slope_s), (0.0, 0.0));
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0]), 2.0);
    }
}
