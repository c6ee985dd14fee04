//! How long each rank computes, step after step, in parts of the time without jitter.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::interruption;
use super::jitter::Jitter;
use super::variability;

/// The factors of all ranks, one step after another: noise, times the GPU's lasting factor, plus interruptions.
///
/// A step's noise is a standard normal deviate for each rank, which the jitter turns into its law.
/// From step to step the deviates are autoregressive of order 1: `z' = r z + sqrt(1 - r^2) e`, with fresh deviates `e` of
/// each step. Each `z` is standard normal, so that the spread of a step does not depend on the correlation `r`.
pub struct Paces<'j> {
    jitter: &'j Jitter,
    seed: u64,
    /// Seconds of computation of a step without jitter.
    computed_s: f64,
    /// The number of the next step.
    step: u64,
    /// Noise of the last step.
    deviates: Vec<f64>,
    gpus: Vec<f64>,
}

impl Jitter {
    /// The factors of so many ranks in each step that computes that many seconds without jitter. The same seed, step and
    /// rank give the same; the last rank is the straggler.
    pub fn paces(&self, ranks: usize, seed: u64, computed_s: f64) -> Paces<'_> {
        let gpus = match self.gpu_factors.as_slice() {
            [] => vec![1.0; ranks],
            factors => variability::gpus(factors, ranks, seed),
        };
        Paces { jitter: self, seed, computed_s, step: 0, deviates: vec![0.0; ranks], gpus }
    }
}

impl Paces<'_> {
    /// Noise of the next step.
    fn vary(&mut self) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.step);
        let correlation = if self.step == 0 { 0.0 } else { self.jitter.step_correlation };
        let fresh = (1.0 - correlation * correlation).sqrt();
        for (deviate, new) in self.deviates.iter_mut().zip(StandardNormal.sample_iter(&mut random))
        {
            let new: f64 = new;
            *deviate = correlation * *deviate + fresh * new;
        }
    }
}

impl Iterator for Paces<'_> {
    type Item = Vec<f64>;

    fn next(&mut self) -> Option<Vec<f64>> {
        let mut factors = if self.jitter.is_steady() {
            vec![1.0; self.gpus.len()]
        } else {
            self.vary();
            self.deviates.iter().map(|&deviate| self.jitter.factor(deviate)).collect()
        };
        if let Some(last) = factors.last_mut() {
            *last *= self.jitter.straggler;
        }
        factors.iter_mut().zip(&self.gpus).for_each(|(factor, gpu)| *factor *= gpu);
        let kinds = &self.jitter.interruptions;
        interruption::lengthen(&mut factors, kinds, self.computed_s, (self.seed, self.step));
        self.step += 1;
        Some(factors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Law;

    fn jitter(law: Law, cv: f64, step_correlation: f64) -> Jitter {
        Jitter { law, cv: Some(cv), step_correlation, ..Jitter::default() }
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, (squares / values.len() as f64).sqrt())
    }

    fn correlation(left: &[f64], right: &[f64]) -> f64 {
        let ((left_mean, left_sd), (right_mean, right_sd)) =
            (mean_and_deviation(left), mean_and_deviation(right));
        let products = left.iter().zip(right).map(|(l, r)| (l - left_mean) * (r - right_mean));
        products.sum::<f64>() / left.len() as f64 / left_sd / right_sd
    }

    const LAWS: [Law; 3] = [Law::Normal, Law::Lognormal, Law::Gumbel];

    #[test]
    fn laws_have_the_mean_and_deviation_that_was_asked_for_in_every_step() {
        for law in LAWS {
            for step_correlation in [0.0, 0.8] {
                let jitter = jitter(law, 0.05, step_correlation);
                for factors in jitter.paces(200_000, 1, 1.0).take(4) {
                    let (mean, deviation) = mean_and_deviation(&factors);
                    assert!((mean - 1.0).abs() < 1e-3, "{law:?}: {mean}");
                    assert!((deviation - 0.05).abs() < 1e-3, "{law:?}: {deviation}");
                }
            }
        }
    }

    /// Steps apart by k are correlated by r^k; laws that are not normal by a little less.
    #[test]
    fn noise_lasts_from_step_to_step_as_long_as_was_asked_for() {
        for law in LAWS {
            let jitter = jitter(law, 0.05, 0.7);
            let steps: Vec<Vec<f64>> = jitter.paces(100_000, 1, 1.0).take(4).collect();
            for (apart, expected) in [(1, 0.7), (2, 0.49), (3, 0.343)] {
                let found = correlation(&steps[0], &steps[apart]);
                let within = if law == Law::Gumbel { 0.03 } else { 0.01 };
                assert!((found - expected).abs() < within, "{law:?}: {found}, {expected}");
            }
        }
        let independent = jitter(Law::Normal, 0.05, 0.0);
        let steps: Vec<Vec<f64>> = independent.paces(100_000, 1, 1.0).take(2).collect();
        assert!(correlation(&steps[0], &steps[1]).abs() < 0.01);
    }

    #[test]
    fn the_slowest_of_many_is_as_slow_as_order_statistics_say() {
        // Expected maxima of this many standard normal draws.
        for (ranks, expected) in
            [(6, 1.27), (192, 2.73), (1536, 3.36), (6000, 3.71), (27_600, 4.10)]
        {
            let jitter = jitter(Law::Normal, 0.01, 0.0);
            let slowest = |factors: Vec<f64>| factors.into_iter().fold(0.0, f64::max);
            let mean = jitter.paces(ranks, 7, 1.0).take(200).map(slowest).sum::<f64>() / 200.0;
            assert!(((mean - 1.0) / 0.01 - expected).abs() < 0.12, "{ranks}: {mean}");
        }
    }

    #[test]
    fn a_seed_repeats_and_a_step_differs() {
        let one = Jitter {
            interruptions: vec![interruption::Interruption { per_second: 5.0, duration_s: 0.01 }],
            gpu_factors: vec![0.9; 12],
            ..jitter(Law::Gumbel, 0.1, 0.5)
        };
        let steps = |ranks, seed| one.paces(ranks, seed, 1.0).take(7).collect::<Vec<_>>();
        assert_eq!(steps(9, 3), steps(9, 3));
        assert_ne!(steps(9, 3)[5], steps(9, 3)[6]);
        assert_ne!(steps(9, 3), steps(9, 4));
        // A rank's own do not depend on how many others there are.
        assert_eq!(steps(90, 3)[6][..8], steps(9, 3)[6][..8]);
        let slow = Jitter { straggler: 2.0, ..Jitter::default() };
        assert_eq!(slow.paces(3, 1, 1.0).next().unwrap(), [1.0, 1.0, 2.0]);
        let measured = Jitter { law: Law::Empirical, factors: vec![1.0, 1.5], ..Jitter::default() };
        let factors = measured.paces(500, 1, 1.0).next().unwrap();
        assert!(factors.iter().all(|factor| [1.0, 1.5].contains(factor)));
        assert!((mean_and_deviation(&factors).0 - 1.25).abs() < 0.05);
    }
}
