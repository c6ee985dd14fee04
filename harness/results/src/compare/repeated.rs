//! Whether a second run of a sweep falls into the intervals of the first.

use std::fmt;

use statrs::distribution::{Binomial, DiscreteCDF};

use super::Run;

/// Share of medians of a second run that are within the 95 % interval of the first, if both are as precise and differ by
/// noise alone: a normal variable with twice the variance is within 1.96 deviations. Intervals over few blocks are wider
/// and contain more.
const EXPECTED: f64 = 0.834;

/// So few within is chance in fewer repetitions than this.
const CHANCE: f64 = 0.05;

/// How many medians of a second run are within the intervals of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Those that are.
    pub within: usize,
    /// Cases of both runs whose first median has an interval.
    pub cases: usize,
}

impl Repeated {
    /// Over the cases that are right in both runs.
    pub fn of(first: &Run, second: &Run) -> Repeated {
        let both = first.cases.iter().filter_map(|(case, times)| {
            let (low, high) = times.interval_us?;
            Some((low..=high).contains(&second.cases.get(case)?.median_us))
        });
        let within: Vec<bool> = both.collect();
        Repeated { within: within.iter().filter(|&&is| is).count(), cases: within.len() }
    }

    /// Whether the runs differ by no more than their noise, as far as independent cases tell; none without a case.
    pub fn agrees(self) -> Option<bool> {
        let count = Binomial::new(EXPECTED, self.cases as u64).ok().filter(|_| self.cases > 0)?;
        Some(count.cdf(self.within as u64) >= CHANCE)
    }
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repeated { within, cases } = *self;
        let Some(agrees) = self.agrees() else {
            return write!(f, "no case has an interval in the first run, so nothing can be said");
        };
        let percent = 100.0 * within as f64 / cases as f64;
        writeln!(
            f,
            "{within} of {cases} medians ({percent:.0} %) are within the first run's 95 % intervals; {:.0} % are if runs \
             differ by noise alone",
            100.0 * EXPECTED
        )?;
        f.write_str(if agrees {
            "reproduced"
        } else {
            "not reproduced: by noise alone, so few are within in less than 5 % of repetitions (a machine that is slower \
             or faster now moves all cases)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Times;
    use super::*;

    fn run(medians_us: &[f64]) -> Run {
        let times = |&median_us: &f64| Times {
            median_us,
            interval_us: Some((99.0, 101.0)),
            ..Times::default()
        };
        let cases = medians_us.iter().enumerate();
        Run {
            cases: cases.map(|(case, median)| (case.to_string(), times(median))).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn medians_within_the_first_intervals_are_counted() {
        let first = run(&[100.0; 20]);
        let mut second = [100.5; 20];
        assert_eq!(Repeated::of(&first, &run(&second)), Repeated { within: 20, cases: 20 });
        second[..4].fill(103.0);
        let repeated = Repeated::of(&first, &run(&second));
        assert_eq!((repeated.within, repeated.agrees()), (16, Some(true)), "83 % are expected");
        assert!(repeated.to_string().ends_with("\nreproduced"), "{repeated}");
        second[..8].fill(103.0);
        let repeated = Repeated::of(&first, &run(&second));
        assert_eq!((repeated.within, repeated.agrees()), (12, Some(false)));
        assert!(repeated.to_string().starts_with("12 of 20 medians (60 %) are within"));
    }

    #[test]
    fn without_intervals_nothing_is_said() {
        let mut first = run(&[100.0]);
        first.cases.values_mut().for_each(|times| times.interval_us = None);
        let repeated = Repeated::of(&first, &run(&[100.0]));
        assert_eq!(repeated.agrees(), None);
        assert!(repeated.to_string().starts_with("no case has an interval"));
    }
}
