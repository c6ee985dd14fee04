//! How the speed of the machine drifts within runs, as the repeated base case shows it.

use super::evidence::student;
use super::{Run, Times};
use crate::rank_tests::Estimate;

/// Fewer blocks of the base case show no drift.
const BLOCKS_MIN: usize = 4;

/// The drift of two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drift {
    /// Deviation of the machine's level within a run, of logarithms: a share of the time.
    pub(super) deviation: f64,
    /// Its degrees of freedom.
    freedom: f64,
}

impl Drift {
    /// From the base cases of both runs; none if one has no base case of several blocks.
    pub(super) fn of(first: &Run, second: &Run) -> Option<Drift> {
        let of = |run: &Run| slow_variance(run.cases.get(run.base.as_ref()?)?);
        let ((first, first_freedom), (second, second_freedom)) = (of(first)?, of(second)?);
        let freedom = first_freedom + second_freedom;
        let slow = (first * first_freedom + second * second_freedom) / freedom;
        Some(Drift { deviation: slow.max(0.0).sqrt(), freedom })
    }

    /// With the difference of two levels of the machine, one for each run.
    pub(super) fn widened(&self, Estimate { value, low, high }: Estimate, error: f64) -> Estimate {
        let more = student(self.freedom, error) * std::f64::consts::SQRT_2 * self.deviation;
        Estimate {
            value,
            low: value - (value - low).hypot(more),
            high: value + (high - value).hypot(more),
        }
    }
}

/// The variance of logarithms of a case's blocks beyond that from one block to the next, which is half of the mean square
/// of their differences (J. von Neumann, "Distribution of the Ratio of the Mean Square Successive Difference to the
/// Variance", Annals of Mathematical Statistics 12, 1941), and its degrees of freedom. Noise alone makes it negative as
/// often as positive.
fn slow_variance(times: &Times) -> Option<(f64, f64)> {
    let values: Vec<f64> = times.blocks.iter().map(|block| block.time_us.ln()).collect();
    if values.len() < BLOCKS_MIN {
        return None;
    }
    let freedom = (values.len() - 1) as f64;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let all = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    let steps = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    Some((all - steps.sum::<f64>() / freedom / 2.0, freedom))
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::*;

    fn run(blocks_us: &[f64]) -> Run {
        let block = |(block, &time_us): (usize, &f64)| Block { block, launch: 1, time_us };
        let blocks = blocks_us.iter().enumerate().map(block).collect();
        let times = Times { blocks, ..Times::default() };
        Run {
            cases: [("step base".to_string(), times)].into(),
            base: Some("step base".into()),
            ..Run::default()
        }
    }

    #[test]
    fn noise_is_no_drift_and_a_ramp_is() {
        let noise = run(&[1.0, 1.02, 0.99, 1.01, 0.98, 1.02, 1.0, 0.99]);
        assert_eq!(Drift::of(&noise, &noise).unwrap().deviation, 0.0);
        let ramp: Vec<f64> = (0..20).map(|block| (0.005 * f64::from(block)).exp()).collect();
        let drift = Drift::of(&run(&ramp), &run(&ramp)).unwrap();
        // Of 20 equal steps of 0.5 %: the deviation is 0.5 % sqrt(20 x 21 / 12) = 2.96 %, and half a step's square is noise.
        assert!((drift.deviation - 0.02937).abs() < 1e-4, "{drift:?}");
        let wide = drift.widened(Estimate { value: 0.0, low: -0.01, high: 0.01 }, 0.05);
        // t of 38 degrees of freedom is 2.024.
        let more = 2.024 * std::f64::consts::SQRT_2 * drift.deviation;
        assert!((wide.high - 0.01_f64.hypot(more)).abs() < 1e-3 && wide.low == -wide.high);
    }

    #[test]
    fn without_a_base_case_of_several_blocks_nothing_is_known() {
        let known = run(&[1.0, 1.1, 1.0, 1.1]);
        assert!(Drift::of(&known, &known).is_some());
        assert_eq!(Drift::of(&known, &run(&[1.0, 1.1, 1.0])), None);
        assert_eq!(Drift::of(&Run { base: None, ..known.clone() }, &known), None);
    }
}
