//! Interruptions of a rank's computation by the operating system: short ones, such as by a daemon, and rare long ones.

use std::fmt;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson};

/// One kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interruption {
    /// How many interrupt a rank per second of its computation, on average.
    pub per_second: f64,
    /// How long the rank stands still each time.
    pub duration_s: f64,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interruption { per_second, duration_s } = self;
        write!(f, "{per_second} times per second for {} us", (duration_s * 1e9).round() / 1e3)
    }
}

/// A stream of random numbers of each step that nothing else uses: noise has the stream of the step's own number.
const INTERRUPTIONS: u64 = 1 << 62;

/// Adds to each rank's factor what interrupts it in a step that computes `computed_s` at factor 1. Each kind comes a
/// Poisson number of times, and independently of those of other ranks. Their time is spread over the step's computation.
pub(super) fn lengthen(
    factors: &mut [f64],
    kinds: &[Interruption],
    computed_s: f64,
    (seed, step): (u64, u64),
) {
    if kinds.is_empty() || computed_s <= 0.0 {
        return;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(INTERRUPTIONS | step);
    for factor in factors {
        let own_s = *factor * computed_s;
        for Interruption { per_second, duration_s } in kinds {
            // None, if the mean is 0.
            let Ok(number) = Poisson::new(per_second * own_s) else { continue };
            *factor += number.sample(&mut random) * duration_s / computed_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays of steps of 0.2 s on so many ranks, in seconds.
    fn delays_s(kinds: &[Interruption], ranks: usize, steps: u64) -> Vec<Vec<f64>> {
        let delay_s = |step| {
            let mut factors = vec![1.0; ranks];
            lengthen(&mut factors, kinds, 0.2, (1, step));
            factors.into_iter().map(|factor| 0.2 * (factor - 1.0)).collect()
        };
        (0..steps).map(delay_s).collect()
    }

    fn slowest(delays_s: &[Vec<f64>]) -> f64 {
        let slowest = delays_s.iter().map(|step| step.iter().copied().fold(0.0, f64::max));
        slowest.sum::<f64>() / delays_s.len() as f64
    }

    #[test]
    fn a_rank_loses_the_rate_times_the_duration() {
        let short = Interruption { per_second: 100.0, duration_s: 1e-4 };
        let long = Interruption { per_second: 0.5, duration_s: 0.02 };
        let mean = |kinds: &[Interruption]| {
            let all = delays_s(kinds, 20_000, 5).concat();
            all.iter().sum::<f64>() / all.len() as f64
        };
        for (kinds, expected_s) in
            [(&[short][..], 2e-3), (&[long][..], 2e-3), (&[short, long][..], 4e-3)]
        {
            assert!((mean(kinds) / expected_s - 1.0).abs() < 0.03, "{kinds:?}");
        }
        // Twice as much on a rank that computes twice as long.
        let mut factors = [vec![1.0; 50_000], vec![2.0; 50_000]].concat();
        lengthen(&mut factors, &[short], 0.2, (1, 0));
        let lost = |from: f64, of: &[f64]| of.iter().map(|factor| factor - from).sum::<f64>();
        let (once, twice) = (lost(1.0, &factors[..50_000]), lost(2.0, &factors[50_000..]));
        assert!((twice / once - 2.0).abs() < 0.02, "{once} {twice}");
    }

    /// Of n ranks the slowest is delayed by d (1 - exp(-n r T)), as long as no rank is interrupted twice.
    #[test]
    fn the_slowest_of_many_is_nearly_always_interrupted() {
        let rare = [Interruption { per_second: 0.01, duration_s: 0.004 }];
        for ranks in [6, 96, 1536] {
            let expected_s = 0.004 * (1.0 - (-0.002 * ranks as f64).exp());
            let found_s = slowest(&delays_s(&rare, ranks, 3000));
            assert!((found_s - expected_s).abs() < 2e-4, "{ranks}: {found_s}, {expected_s}");
        }
    }

    #[test]
    fn without_kinds_or_computation_nothing_is_longer() {
        assert_eq!(delays_s(&[], 5, 1), [[0.0; 5]]);
        let never = Interruption { per_second: 0.0, duration_s: 1.0 };
        assert_eq!(delays_s(&[never], 5, 1), [[0.0; 5]]);
        let mut factors = [1.0; 5];
        let often = Interruption { per_second: 1e6, duration_s: 1.0 };
        lengthen(&mut factors, &[often], 0.0, (1, 0));
        assert_eq!(factors, [1.0; 5]);
    }
}
