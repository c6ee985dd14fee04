//! How fast the GPUs of a machine are, each of them always, and from step to step.
//!
//! Equal GPUs are not equally fast: power, temperature and the chip itself set their clocks. Such differences last for
//! the whole job, so that a large job waits for its slowest GPU in every step. In addition, each step of each rank takes
//! a little more or less time, because of the operating system, the framework's threads and the input.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::jitter::LEAST;
use super::machine_file::{Parameter, keyed};
use results::toml_file::{Invalid, within};

/// The quantiles of [`Variability::gpu_factors`].
pub const SHARES: [f64; 12] = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99, 1.0];

/// A stream of random numbers that no step uses.
const GPUS: u64 = u64::MAX;

/// The table `[variability]` of a machine file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Unchecked")]
pub struct Variability {
    /// Computation time of GPUs in parts of the mean: quantiles at [`SHARES`] of all GPUs, ascending. Each rank keeps its
    /// factor.
    pub gpu_factors: Vec<f64>,
    /// Where they were measured, or `assumed` with the reason.
    pub gpu_source: String,
    /// Standard deviation of a rank's computation from step to step, in parts of its mean.
    pub step_cv: Parameter,
    /// Correlation of a rank's deviation in a step with that in the step before, from 0 to below 1. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_correlation: Option<Parameter>,
}

/// The same before it is checked, so that a refusal names the line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    gpu_factors: Vec<f64>,
    gpu_source: String,
    step_cv: Parameter,
    #[serde(default)]
    step_correlation: Option<Parameter>,
}

impl TryFrom<Unchecked> for Variability {
    type Error = Invalid;

    fn try_from(unchecked: Unchecked) -> Result<Variability, Invalid> {
        let Unchecked { gpu_factors, gpu_source, step_cv, step_correlation } = unchecked;
        let variability = Variability { gpu_factors, gpu_source, step_cv, step_correlation };
        variability.check()?;
        Ok(variability)
    }
}

impl Variability {
    /// The factor that this share of all GPUs does not exceed.
    pub fn factor(&self, share: f64) -> f64 {
        quantile(&self.gpu_factors, share)
    }

    /// The deviation from step to step, and how long it lasts.
    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let all = [
            ("step_cv", Some(&mut self.step_cv)),
            ("step_correlation", self.step_correlation.as_mut()),
        ];
        keyed("variability", all)
    }

    /// Checks factors and noise.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub fn check(&self) -> Result<(), Invalid> {
        let factors = &self.gpu_factors;
        let key = "variability.gpu_factors";
        if factors.len() != SHARES.len() {
            let expected = format!("{} factors, the quantiles at {SHARES:?}", SHARES.len());
            return Err(Invalid::value(key, format!("a list of {}", factors.len()), expected));
        }
        factors.iter().try_for_each(|&factor| {
            within("an element of variability.gpu_factors", factor, LEAST, 100.0)
        })?;
        if !factors.is_sorted() {
            return Err(Invalid::value(key, format!("{factors:?}"), "ascending factors"));
        }
        self.clone().parameters().into_iter().try_for_each(|(key, one)| one.check(&key))?;
        if self.gpu_source.is_empty() {
            let expected = "where the factors were measured, or assumed with the reason";
            return Err(Invalid::value("variability.gpu_source", "empty", expected));
        }
        Ok(())
    }
}

/// The factor of each rank's GPU, the same in every step of a seed.
pub fn gpus(factors: &[f64], ranks: usize, seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(GPUS);
    (0..ranks).map(|_| quantile(factors, random.random())).collect()
}

/// The factor below which a share of all GPUs is. It is linear between quantiles, but for the slowest of all: there are
/// few of them, and most are near the last quantile.
fn quantile(factors: &[f64], share: f64) -> f64 {
    let at = SHARES.partition_point(|&other| other <= share).clamp(1, SHARES.len() - 1);
    let part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1]);
    let part = if at == SHARES.len() - 1 { part * part } else { part };
    factors[at - 1] + part * (factors[at] - factors[at - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    const V100: [f64; 12] =
        [0.952, 0.963, 0.974, 0.979, 0.988, 1.0, 1.011, 1.02, 1.027, 1.033, 1.05, 1.202];

    #[test]
    fn quantiles_are_met_and_the_mean_is_1() {
        for (share, factor) in SHARES.into_iter().zip(V100) {
            assert!((quantile(&V100, share) - factor).abs() < 1e-12, "{share}");
        }
        let all = gpus(&V100, 200_000, 1);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 1.0).abs() < 2e-3, "{mean}");
        assert_eq!(gpus(&V100, 9, 3), gpus(&V100, 9, 3));
        assert_ne!(gpus(&V100, 9, 3), gpus(&V100, 9, 4));
    }

    /// 392 V100 of Longhorn: the expected slowest of some, from the same data as the quantiles (arXiv 2408.11919).
    #[test]
    fn the_slowest_of_some_is_as_slow_as_in_the_measured_gpus() {
        for (ranks, expected) in [(8, 1.027), (16, 1.038), (64, 1.072), (256, 1.132)] {
            let slowest = |seed| gpus(&V100, ranks, seed).into_iter().fold(0.0, f64::max);
            let mean = (0..2000).map(slowest).sum::<f64>() / 2000.0;
            assert!((mean - expected).abs() < 0.008, "{ranks}: {mean}");
        }
    }

    #[test]
    fn factors_that_make_no_sense_are_refused() {
        let parameter = |value| Parameter { value, low: None, high: None, source: "s".into() };
        let good = Variability {
            gpu_factors: V100.to_vec(),
            gpu_source: "s".into(),
            step_cv: parameter(0.01),
            step_correlation: Some(parameter(0.9)),
        };
        good.check().unwrap();
        let wrong = |change: &dyn Fn(&mut Variability)| {
            let mut wrong = good.clone();
            change(&mut wrong);
            wrong.check().unwrap_err().to_string()
        };
        for (said, expected) in [
            (
                wrong(&|it| it.gpu_factors.truncate(11)),
                "variability.gpu_factors is a list of 11, expected 12 factors",
            ),
            (
                wrong(&|it| it.gpu_factors[0] = -1.0),
                "an element of variability.gpu_factors is -1, expected 0.5 to 100",
            ),
            (wrong(&|it| it.gpu_factors.swap(0, 5)), "variability.gpu_factors is [1.0, "),
            (
                wrong(&|it| it.step_correlation = Some(parameter(1.0))),
                "variability.step_correlation is 1, expected 0 to 0.999 of the deviation in the step before",
            ),
            (
                wrong(&|it| it.step_correlation = Some(parameter(-0.1))),
                "variability.step_correlation is -0.1, expected 0 to 0.999",
            ),
            (wrong(&|it| it.gpu_source.clear()), "variability.gpu_source is empty, expected where"),
        ] {
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
