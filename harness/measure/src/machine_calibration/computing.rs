//! How unevenly ranks compute: all do the same work at the same time, again and again while everything else is
//! measured. Differences between ranks last; the rest varies from one time to the next.

use simulator::machine_file::Parameter;
use simulator::variability::{SHARES, Variability};

use super::runner::Runner;
use super::work::Work;
use results::statistics::{median, quantile};
use transports::transport::TransportError;

/// Repetitions of the work in a block.
const TIMES: usize = 6;

/// A time above this multiple of its rank's median is an interruption, which is counted by itself.
const INTERRUPTED: f64 = 3.0;

/// Computation times of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Computing {
    /// For each rank, its times in seconds, in order.
    times_s: Vec<Vec<f64>>,
}

impl Computing {
    /// Measures one more block.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn measure(&mut self, runner: &mut dyn Runner) -> Result<(), TransportError> {
        let times_s = runner.work(Work::Compute, TIMES)?;
        self.times_s.resize(times_s.len(), Vec::new());
        self.times_s.iter_mut().zip(times_s).for_each(|(all, block)| all.extend(block));
        Ok(())
    }

    /// The median time in seconds of each rank.
    pub fn medians_s(&self) -> Vec<f64> {
        self.times_s.iter().filter_map(|times| median(times.clone())).collect()
    }

    /// The table `[variability]` of a machine file: quantiles over ranks of their medians, and the deviation of each
    /// rank's times from its own median.
    ///
    /// # Panics
    /// When nothing has been measured.
    pub fn variability(&self, source: &str) -> Variability {
        let medians_s = self.medians_s();
        let mean_s = medians_s.iter().sum::<f64>() / medians_s.len() as f64;
        let factors: Vec<f64> = medians_s.iter().map(|time_s| time_s / mean_s).collect();
        let factor = |share| {
            let found = quantile(factors.clone(), share).expect("there is a rank");
            (found * 1e4).round() / 1e4
        };
        let own: Vec<f64> = self.times_s.iter().map(|times| variation(times)).collect();
        let all = own.iter().sum::<f64>() / own.len() as f64;
        let [low, high] = [f64::min, f64::max].map(|end| own.iter().copied().fold(all, end));
        let [value, low, high] = [all, low, high].map(|cv| (cv * 1e4).round() / 1e4);
        Variability {
            gpu_factors: SHARES.map(factor).to_vec(),
            gpu_source: format!("{source}; {} ranks", medians_s.len()),
            step_cv: Parameter { value, low: Some(low), high: Some(high), source: source.into() },
        }
    }

    /// The measured values, as lines of text.
    pub fn measured(&self) -> Vec<String> {
        let medians_s = self.medians_s();
        let [first, last] = [f64::min, f64::max]
            .map(|end| 1e3 * medians_s.iter().copied().reduce(end).unwrap_or(0.0));
        let times: usize = self.times_s.iter().map(Vec::len).sum();
        let rank = |times: &Vec<f64>| times.len() - usual(times).len();
        let interrupted: usize = self.times_s.iter().map(rank).sum();
        vec![
            format!(
                "the same computation takes {first:.3} ms on the fastest rank and {last:.3} ms on the slowest (medians)"
            ),
            format!(
                "{interrupted} of {times} computations took more than {INTERRUPTED} times their rank's median"
            ),
        ]
    }
}

/// The times without interruptions.
fn usual(times: &[f64]) -> Vec<f64> {
    let middle = median(times.to_vec()).unwrap_or(0.0);
    times.iter().copied().filter(|time| *time <= INTERRUPTED * middle).collect()
}

/// Standard deviation over the mean, without interruptions.
fn variation(times: &[f64]) -> f64 {
    let usual = usual(times);
    let mean = usual.iter().sum::<f64>() / usual.len() as f64;
    let variance = usual.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / usual.len() as f64;
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::super::runner::Threads;
    use super::*;

    #[test]
    fn variation_is_relative_and_leaves_interruptions_out() {
        assert_eq!(variation(&[2.0; 9]), 0.0);
        let uneven = [0.9, 1.1].repeat(50);
        assert!((variation(&uneven) - 0.1).abs() < 1e-12);
        assert!((variation(&[&uneven[..], &[50.0]].concat()) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn what_lasts_and_what_varies_are_told_apart() {
        // The second rank is 50 % slower, always; both vary by 10 %, and one is interrupted once.
        let uneven = [0.9, 1.1].repeat(50);
        let slower: Vec<f64> = uneven.iter().map(|time| 1.5 * time).collect();
        let computing = Computing { times_s: vec![[&uneven[..], &[9.0]].concat(), slower] };
        let found = computing.variability("a test");
        found.check().unwrap();
        let ends = [found.gpu_factors[0], *found.gpu_factors.last().unwrap()];
        // The median of an even number of times is between two of them, and of an odd number one of them.
        assert!(ends[1] / ends[0] > 1.3 && ends[1] / ends[0] < 1.6, "{ends:?}");
        assert!((found.step_cv.value - 0.1).abs() < 1e-3, "{found:?}");
        assert_eq!(found.gpu_source, "a test; 2 ranks");
        assert_eq!(
            computing.measured()[1],
            "1 of 201 computations took more than 3 times their rank's median"
        );
    }

    #[test]
    fn threads_compute_at_once() {
        let mut computing = Computing::default();
        let mut threads = Threads::new(2);
        (0..2).for_each(|_| computing.measure(&mut threads).unwrap());
        assert_eq!(computing.times_s.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12]);
        computing.variability("a test").check().unwrap();
    }
}
