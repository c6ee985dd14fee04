//! How far apart ranks start after a barrier, on one clock: threads share theirs, and processes compare theirs.

use super::estimate::Estimate;
use results::statistics::Summary;
use transports::bench::Barrier;
use transports::transport::{Transport, TransportError};

/// Measured barriers, and those of the warm-up.
pub(super) const TIMES: usize = 200;
const WARMUP: usize = 20;

/// How ranks left barriers.
#[derive(Clone, Debug, PartialEq)]
pub struct Starts {
    /// For each barrier: seconds from the first rank that left it to the last.
    pub apart_s: Vec<f64>,
    /// The ranks' clocks may be so far off.
    pub clock_error_s: f64,
    /// The number of ranks.
    pub ranks: usize,
}

impl Starts {
    /// From the times at which each rank left each barrier.
    pub fn of(left_s: &[Vec<f64>], clock_error_s: f64) -> Starts {
        let barriers = left_s.iter().map(Vec::len).min().unwrap_or(0);
        let apart_s = (0..barriers).map(|at| {
            let times = left_s.iter().map(|times| times[at]);
            times.clone().fold(f64::MIN, f64::max) - times.fold(f64::MAX, f64::min)
        });
        Starts { apart_s: apart_s.collect(), clock_error_s, ranks: left_s.len() }
    }

    /// Microseconds, in the median, by which the last rank is later than the barrier's own messages explain,
    /// which take that long at each level of its tree; the interval is as much wider as clocks may be off.
    pub fn beyond(&self, level_us: f64) -> Estimate {
        let levels = f64::from(self.ranks.next_power_of_two().trailing_zeros());
        let beyond = |us: f64| (us - levels * level_us).max(0.0);
        let Summary { p50, p50_interval, min, max, .. } = self.summary_us();
        let (low, high) = p50_interval.unwrap_or((min, max));
        let error_us = self.clock_error_s * 1e6;
        Estimate { value: beyond(p50), low: beyond(low - error_us), high: beyond(high + error_us) }
    }

    /// The measured values, as a line of text.
    pub fn measured(&self) -> String {
        let Summary { samples, p50, .. } = self.summary_us();
        let error_us = self.clock_error_s * 1e6;
        format!(
            "after a barrier the last rank begins {p50:.3} us after the first ({samples} times; clocks may \
             be {error_us:.3} us off)"
        )
    }

    fn summary_us(&self) -> Summary {
        let us: Vec<f64> = self.apart_s.iter().map(|seconds| seconds * 1e6).collect();
        Summary::of(&us).unwrap_or_default()
    }
}

/// The times at which this rank leaves each barrier, by its clock. All ranks must call it.
///
/// # Errors
/// When a rank does not answer.
pub fn leave<T: Transport>(
    endpoint: T,
    clock_s: impl Fn() -> f64,
) -> Result<Vec<f64>, TransportError> {
    let mut barrier = Barrier::new(endpoint);
    let mut left_s = Vec::with_capacity(WARMUP + TIMES);
    for _ in 0..WARMUP + TIMES {
        barrier.wait()?;
        left_s.push(clock_s());
    }
    Ok(left_s.split_off(WARMUP))
}

#[cfg(test)]
mod tests {
    use super::super::runner::{Runner, Threads};
    use super::*;

    #[test]
    fn skew_is_that_of_the_last_rank_without_the_time_of_messages() {
        let left_s = [vec![1.0, 2.0, 3.0], vec![1.5, 2.0, 3.25], vec![1.25, 2.0, 4.0]];
        let starts = Starts::of(&left_s, 1e-7);
        assert_eq!((starts.apart_s.as_slice(), starts.ranks), (&[0.5, 0.0, 1.0][..], 3));
        let uneven: Vec<f64> = (0..20).map(|at| f64::from(at) * 1e-6).collect();
        let starts = Starts { apart_s: uneven, clock_error_s: 2e-6, ranks: 4 };
        // The 6th and the 15th of 20 are the ends of the median's interval.
        let of = |level_us| starts.beyond(level_us);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, expected {b}");
        for (found, expected) in [(of(0.0), [3.0, 9.5, 16.0]), (of(2.0), [0.0, 5.5, 12.0])] {
            let Estimate { value, low, high } = found;
            [low, value, high].into_iter().zip(expected).for_each(|(a, b)| near(a, b));
        }
        assert!(
            starts.measured().contains("9.500 us after the first (20 times; clocks may be 2.000")
        );
    }

    #[test]
    fn threads_leave_on_one_clock() {
        let starts = Threads::new(3).starts().unwrap();
        assert_eq!((starts.apart_s.len(), starts.clock_error_s, starts.ranks), (TIMES, 0.0, 3));
        assert!(starts.apart_s.iter().all(|&apart_s| apart_s >= 0.0));
    }
}
