//! Random variation of a rank's computation time per step, as a factor.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gumbel, LogNormal, Normal};
use serde::{Deserialize, Serialize};

use super::variability;
use results::toml_file::{Invalid, within};

/// How ranks differ from each other and from step to step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    /// The distribution.
    pub law: Law,
    /// Standard deviation relative to the mean, which is 1. Default: the value in the machine file, or 0.
    pub cv: Option<f64>,
    /// Measured factors to draw from, for [`Law::Empirical`].
    pub factors: Vec<f64>,
    /// One rank is slower than the others by this factor in every step; 1: none.
    pub straggler: f64,
    /// Factors of GPUs that last, see [`Variability`](super::variability::Variability); empty: all GPUs are equal. Set
    /// by the machine file.
    #[serde(skip)]
    pub gpu_factors: Vec<f64>,
}

/// The distribution of factors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the laws' names")]
pub enum Law {
    #[default]
    Normal,
    Lognormal,
    Gumbel,
    Empirical,
}

impl Default for Jitter {
    fn default() -> Jitter {
        Jitter {
            law: Law::Normal,
            cv: None,
            factors: Vec::new(),
            straggler: 1.0,
            gpu_factors: Vec::new(),
        }
    }
}

/// No computation takes less than this part of its time.
pub(super) const LEAST: f64 = 0.5;

impl Jitter {
    /// Standard deviation in parts of the mean.
    pub fn cv(&self) -> f64 {
        self.cv.unwrap_or(0.0)
    }

    /// In a sentence.
    pub fn in_words(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let steps = match self.law {
            Law::Empirical => "computation varies as in the measured factors".into(),
            law => {
                let name = format!("{law:?}").to_lowercase();
                format!(
                    "a rank's computation varies by {} ({name}) from step to step",
                    percent(self.cv())
                )
            }
        };
        match (self.gpu_factors.first(), self.gpu_factors.last()) {
            (Some(fastest), Some(slowest)) if fastest < slowest => {
                let (less, more) = (percent(1.0 - fastest), percent(slowest - 1.0));
                format!("{steps}, and GPUs take from {less} less to {more} more than their mean")
            }
            _ => format!("{steps}; GPUs are equally fast"),
        }
    }

    /// Checks the range of values.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub fn check(&self) -> Result<(), Invalid> {
        within("jitter.cv", self.cv(), 0.0, 1.0)?;
        within("jitter.straggler", self.straggler, 1.0, 100.0)?;
        let is_empirical = self.law == Law::Empirical;
        if is_empirical && self.factors.is_empty() {
            let expected = "measured factors, from which jitter.law = \"empirical\" draws";
            return Err(Invalid::value("jitter.factors", "empty", expected));
        }
        if !is_empirical && !self.factors.is_empty() {
            let expected = "empty unless jitter.law is \"empirical\"";
            return Err(Invalid::value("jitter.factors", "given", expected));
        }
        self.factors
            .iter()
            .try_for_each(|&factor| within("an element of jitter.factors", factor, LEAST, 100.0))
    }

    /// Each rank's factor in a step. The same seed, step and world give the same; the last rank is the
    /// straggler.
    pub fn factors(&self, ranks: usize, seed: u64, step: usize) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(step as u64);
        let cv = self.cv();
        let mut factors: Vec<f64> = match self.law {
            Law::Empirical => {
                let pick = rand_distr::Uniform::new(0, self.factors.len()).expect("there are some");
                (0..ranks).map(|_| self.factors[pick.sample(&mut random)]).collect()
            }
            _ if cv == 0.0 => vec![1.0; ranks],
            Law::Normal => draw(Normal::new(1.0, cv).expect("a deviation"), ranks, &mut random),
            Law::Lognormal => {
                // With mean 1 and deviation cv.
                let variance = (1.0 + cv * cv).ln();
                let law = LogNormal::new(-variance / 2.0, variance.sqrt()).expect("a deviation");
                draw(law, ranks, &mut random)
            }
            Law::Gumbel => {
                let scale = cv * 6f64.sqrt() / std::f64::consts::PI;
                let location = 1.0 - 0.577_215_664_901_532_9 * scale;
                draw(Gumbel::new(location, scale).expect("a scale"), ranks, &mut random)
            }
        };
        if let Some(last) = factors.last_mut() {
            *last *= self.straggler;
        }
        if !self.gpu_factors.is_empty() {
            let gpus = variability::gpus(&self.gpu_factors, ranks, seed);
            factors.iter_mut().zip(gpus).for_each(|(factor, gpu)| *factor *= gpu);
        }
        factors
    }
}

fn draw(law: impl Distribution<f64>, ranks: usize, random: &mut ChaCha8Rng) -> Vec<f64> {
    law.sample_iter(random).take(ranks).map(|factor| factor.max(LEAST)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter(law: Law, cv: f64) -> Jitter {
        Jitter { law, cv: Some(cv), ..Jitter::default() }
    }

    #[test]
    fn laws_have_the_mean_and_deviation_that_was_asked_for() {
        for law in [Law::Normal, Law::Lognormal, Law::Gumbel] {
            let factors = jitter(law, 0.05).factors(200_000, 1, 0);
            let mean = factors.iter().sum::<f64>() / 2e5;
            let variance = factors.iter().map(|factor| (factor - mean).powi(2)).sum::<f64>() / 2e5;
            assert!((mean - 1.0).abs() < 1e-3, "{law:?}: {mean}");
            assert!((variance.sqrt() - 0.05).abs() < 1e-3, "{law:?}: {variance}");
        }
    }

    #[test]
    fn the_slowest_of_many_is_as_slow_as_order_statistics_say() {
        // Expected maxima of this many standard normal draws.
        for (ranks, expected) in
            [(6, 1.27), (192, 2.73), (1536, 3.36), (6000, 3.71), (27_600, 4.10)]
        {
            let slowest = |step| {
                jitter(Law::Normal, 0.01).factors(ranks, 7, step).into_iter().fold(0.0, f64::max)
            };
            let mean = (0..200).map(slowest).sum::<f64>() / 200.0;
            assert!(((mean - 1.0) / 0.01 - expected).abs() < 0.12, "{ranks}: {mean}");
        }
    }

    #[test]
    fn a_seed_repeats_and_a_step_differs() {
        let one = jitter(Law::Gumbel, 0.1);
        assert_eq!(one.factors(9, 3, 5), one.factors(9, 3, 5));
        assert_ne!(one.factors(9, 3, 5), one.factors(9, 3, 6));
        assert_ne!(one.factors(9, 3, 5), one.factors(9, 4, 5));
        let slow = Jitter { straggler: 2.0, ..Jitter::default() };
        assert_eq!(slow.factors(3, 1, 1), [1.0, 1.0, 2.0]);
        let measured = Jitter { law: Law::Empirical, factors: vec![1.0, 1.5], ..Jitter::default() };
        assert!(measured.factors(50, 1, 1).iter().all(|factor| [1.0, 1.5].contains(factor)));
    }

    #[test]
    fn invalid_values_are_refused() {
        for (wrong, expected) in [
            (jitter(Law::Normal, -0.1), "jitter.cv is -0.1, expected 0 to 1"),
            (jitter(Law::Empirical, 0.0), "jitter.factors is empty, expected measured factors"),
            (Jitter { straggler: 0.5, ..Jitter::default() }, "jitter.straggler is 0.5"),
            (
                Jitter { law: Law::Empirical, factors: vec![0.0], ..Jitter::default() },
                "an element of jitter.factors is 0, expected 0.5 to 100",
            ),
        ] {
            let problem = wrong.check().unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
