//! Random variation of a rank's computation time per step, as a factor.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use super::interruption::Interruption;
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
    /// Correlation of a rank's noise in a step with that in the step before, from 0 to below 1. Set by the machine file.
    #[serde(skip)]
    pub step_correlation: f64,
    /// Factors of GPUs that last, see [`Variability`](super::variability::Variability); empty: all GPUs are equal. Set
    /// by the machine file.
    #[serde(skip)]
    pub gpu_factors: Vec<f64>,
    /// Kinds of interruptions by the operating system. Set by the machine file.
    #[serde(skip)]
    pub interruptions: Vec<Interruption>,
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
            step_correlation: 0.0,
            gpu_factors: Vec::new(),
            interruptions: Vec::new(),
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
        let mut text = match self.law {
            Law::Empirical => "computation varies as in the measured factors".to_string(),
            law => {
                let name = format!("{law:?}").to_lowercase();
                format!(
                    "a rank's computation varies by {} ({name}) from step to step",
                    percent(self.cv())
                )
            }
        };
        if self.step_correlation > 0.0 {
            text += &format!(", correlated by {} with the step before", self.step_correlation);
        }
        text += &match (self.gpu_factors.first(), self.gpu_factors.last()) {
            (Some(fastest), Some(slowest)) if fastest < slowest => {
                let (less, more) = (percent(1.0 - fastest), percent(slowest - 1.0));
                format!(", and GPUs take from {less} less to {more} more than their mean")
            }
            _ => "; GPUs are equally fast".into(),
        };
        let kinds: Vec<String> = self.interruptions.iter().map(Interruption::to_string).collect();
        if !kinds.is_empty() {
            text += &format!("; the operating system interrupts a rank {}", kinds.join(" and "));
        }
        text
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

    /// True if all ranks take equally long in all steps, but for their GPUs and interruptions.
    pub(super) fn is_steady(&self) -> bool {
        self.law != Law::Empirical && self.cv() == 0.0
    }

    /// The factor at the place of the law that `deviate` has in the standard normal distribution. Standard normal
    /// deviates become factors of the law, and correlated ones correlated factors (a Gaussian copula).
    pub(super) fn factor(&self, deviate: f64) -> f64 {
        let cv = self.cv();
        let factor = match self.law {
            Law::Normal => 1.0 + cv * deviate,
            Law::Lognormal => {
                // With mean 1 and deviation cv.
                let variance = (1.0 + cv * cv).ln();
                (variance.sqrt() * deviate - variance / 2.0).exp()
            }
            Law::Gumbel => {
                let scale = cv * 6f64.sqrt() / std::f64::consts::PI;
                let location = 1.0 - 0.577_215_664_901_532_9 * scale;
                location - scale * (-share_below(deviate).ln()).ln()
            }
            Law::Empirical => {
                let count = self.factors.len();
                let place = (share_below(deviate) * count as f64) as usize;
                return self.factors[place.min(count - 1)];
            }
        };
        factor.max(LEAST)
    }
}

/// The share of standard normal deviates that are below one, neither 0 nor 1.
fn share_below(deviate: f64) -> f64 {
    Normal::standard().cdf(deviate).clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter(law: Law, cv: f64) -> Jitter {
        Jitter { law, cv: Some(cv), ..Jitter::default() }
    }

    /// As the quantile functions of the laws say.
    #[test]
    fn a_factor_is_the_quantile_of_its_law() {
        let at = |law, deviate| jitter(law, 0.1).factor(deviate);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a}, expected {b}");
        near(at(Law::Normal, -1.5), 0.85);
        let sigma = 1.01f64.ln().sqrt();
        near(at(Law::Lognormal, 0.0), (-sigma * sigma / 2.0).exp());
        near(at(Law::Lognormal, 2.0) / at(Law::Lognormal, 0.0), (2.0 * sigma).exp());
        // The median of a Gumbel distribution is its location minus scale x ln ln 2.
        let scale = 0.1 * 6f64.sqrt() / std::f64::consts::PI;
        near(at(Law::Gumbel, 0.0), 1.0 - scale * (0.577_215_664_9 + 2f64.ln().ln()));
        let measured =
            Jitter { law: Law::Empirical, factors: vec![1.0, 1.1, 1.2, 1.3], ..Jitter::default() };
        // Quartiles of the standard normal distribution are at 0.6745.
        let found = [-9.0, -0.7, -0.6, 0.1, 0.7, 9.0].map(|deviate| measured.factor(deviate));
        assert_eq!(found, [1.0, 1.0, 1.1, 1.2, 1.3, 1.3]);
        assert_eq!(at(Law::Normal, -9.0), LEAST);
    }

    #[test]
    fn all_that_varies_is_said() {
        assert_eq!(
            jitter(Law::Normal, 0.01).in_words(),
            "a rank's computation varies by 1.0 % (normal) from step to step; GPUs are equally fast"
        );
        let all = Jitter {
            step_correlation: 0.5,
            gpu_factors: vec![0.9, 1.1],
            interruptions: vec![
                Interruption { per_second: 10.0, duration_s: 50e-6 },
                Interruption { per_second: 0.2, duration_s: 4e-3 },
            ],
            ..jitter(Law::Normal, 0.01)
        };
        assert_eq!(
            all.in_words(),
            "a rank's computation varies by 1.0 % (normal) from step to step, correlated by 0.5 with the step before, and \
             GPUs take from 10.0 % less to 10.0 % more than their mean; the operating system interrupts a rank 10 times \
             per second for 50 us and 0.2 times per second for 4000 us"
        );
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
