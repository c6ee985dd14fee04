//! A line through times by size: `a + b S`, by least squares of relative deviations.
//!
//! Times of a log span five orders of magnitude, so deviations count in parts of the time: otherwise the largest sizes
//! alone would determine both numbers. Neither number is negative. The range of a number is that of all fits that leave
//! one point out.

/// One fitted line.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Microseconds at no bytes.
    pub intercept_us: f64,
    /// Of all fits that leave one point out.
    pub intercept_us_range: (f64, f64),
    /// Microseconds per byte.
    pub slope_us: f64,
    /// Of all fits that leave one point out.
    pub slope_us_range: (f64, f64),
    /// Root mean square of the deviations, in parts of the time.
    pub residual: f64,
    /// The points: bytes and microseconds.
    pub points: Vec<(f64, f64)>,
}

/// The fewest points of a fit: with two, nothing would be left for a residual.
pub const FEWEST_POINTS: usize = 3;

impl Fit {
    /// Through points of (bytes, microseconds); none with fewer than [`FEWEST_POINTS`] sizes.
    pub fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let mut sizes: Vec<f64> = points.iter().map(|(bytes, _)| *bytes).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        if sizes.len() < FEWEST_POINTS {
            return None;
        }
        let (intercept_us, slope_us) = line(points)?;
        let mut fit = Fit {
            intercept_us,
            intercept_us_range: (intercept_us, intercept_us),
            slope_us,
            slope_us_range: (slope_us, slope_us),
            residual: residual(points, intercept_us, slope_us),
            points: points.to_vec(),
        };
        for left_out in 0..points.len() {
            let others: Vec<_> = points
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != left_out)
                .map(|(_, it)| *it)
                .collect();
            let Some((intercept_us, slope_us)) = line(&others) else { continue };
            let wider = |range: (f64, f64), value: f64| (range.0.min(value), range.1.max(value));
            fit.intercept_us_range = wider(fit.intercept_us_range, intercept_us);
            fit.slope_us_range = wider(fit.slope_us_range, slope_us);
        }
        Some(fit)
    }

    /// The fitted time in microseconds.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.intercept_us + self.slope_us * bytes
    }
}

/// Intercept and slope, both at least 0.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    // Each equation a + b S = t is divided by t.
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(s, t)| of(s, t)).sum::<f64>();
    let (ones, sizes, squares) =
        (sum(&|_, t| 1.0 / (t * t)), sum(&|s, t| s / (t * t)), sum(&|s, t| s * s / (t * t)));
    let (right, right_sizes) = (sum(&|_, t| 1.0 / t), sum(&|s, t| s / t));
    let determinant = ones * squares - sizes * sizes;
    if !determinant.is_finite() || determinant <= 0.0 {
        return None;
    }
    let intercept = (right * squares - right_sizes * sizes) / determinant;
    let slope = (right_sizes * ones - right * sizes) / determinant;
    match (intercept >= 0.0, slope >= 0.0) {
        (true, true) => Some((intercept, slope)),
        (false, _) => Some((0.0, right_sizes / squares)),
        (true, false) => Some((right / ones, 0.0)),
    }
}

fn residual(points: &[(f64, f64)], intercept_us: f64, slope_us: f64) -> f64 {
    let square = |&(bytes, us): &(f64, f64)| ((intercept_us + slope_us * bytes) / us - 1.0).powi(2);
    (points.iter().map(square).sum::<f64>() / points.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found / expected - 1.0).abs() < within, "{found} for {expected}");
    }

    #[test]
    fn a_line_is_recovered_with_its_residual_and_range() {
        let sizes = [8.0, 1e3, 1e5, 1e6, 1e8, 1e9];
        let exact: Vec<_> = sizes.iter().map(|&bytes| (bytes, 20.0 + bytes * 1e-5)).collect();
        let fit = Fit::of(&exact).unwrap();
        near(fit.intercept_us, 20.0, 1e-9);
        near(fit.slope_us, 1e-5, 1e-9);
        assert!(fit.residual < 1e-9, "{}", fit.residual);
        // One time is twice as long: the ranges contain the truth, and the residual says so.
        let mut wild = exact.clone();
        wild[2].1 *= 2.0;
        let fit = Fit::of(&wild).unwrap();
        assert!(fit.residual > 0.1, "{}", fit.residual);
        assert!(fit.intercept_us_range.0 <= 20.0 + 1e-6 && fit.intercept_us_range.1 > 20.0);
        near(fit.time_us(1e9), fit.intercept_us + fit.slope_us * 1e9, 1e-12);
    }

    #[test]
    fn nothing_is_fitted_to_two_sizes_and_nothing_is_negative() {
        assert_eq!(Fit::of(&[(8.0, 1.0), (8.0, 1.1), (16.0, 2.0)]), None);
        let falling = Fit::of(&[(8.0, 30.0), (1e3, 20.0), (1e6, 10.0)]).unwrap();
        assert_eq!(falling.slope_us, 0.0);
        let steep = Fit::of(&[(1e6, 1.0), (2e6, 3.0), (4e6, 9.0)]).unwrap();
        assert_eq!(steep.intercept_us, 0.0);
    }
}
