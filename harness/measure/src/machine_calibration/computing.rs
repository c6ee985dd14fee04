//! How unevenly ranks compute: all do the same work at the same time, again and again while everything else is
//! measured. Differences between ranks last; the rest varies from one time to the next, and may last for a few times.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulator::machine_file::Parameter;
use simulator::variability::{SHARES, Variability};

use super::estimate::{Estimate, RESAMPLES};
use super::runner::Runner;
use super::work::{Work, Worked};
use super::write::parameter;
use results::statistics::{median, quantile};
use transports::transport::TransportError;

/// Repetitions of the work in a block.
const TIMES: usize = 6;

/// A time above this multiple of its rank's median does not count for the deviation from one time to the next.
const USUAL: f64 = 3.0;

/// The largest correlation that a machine file can have.
const MOST_CORRELATION: f64 = 0.999;

/// Computation times of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Computing {
    /// For each rank, its times, block by block.
    works: Vec<Vec<Worked>>,
}

impl Computing {
    /// Measures one more block.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn measure(&mut self, runner: &mut dyn Runner) -> Result<(), TransportError> {
        let works = runner.work(Work::Compute, TIMES)?;
        self.works.resize(works.len(), Vec::new());
        self.works.iter_mut().zip(works).for_each(|(all, block)| all.extend(block));
        Ok(())
    }

    /// The median time in seconds of each rank.
    pub fn medians_s(&self) -> Vec<f64> {
        let of = |works: &Vec<Worked>| median(works.iter().map(|work| work.time_s).collect());
        self.works.iter().filter_map(of).collect()
    }

    /// The table `[variability]` of a machine file: quantiles over ranks of their medians, the deviation of each rank's
    /// times from its own mean, and how much of it the next time shares. Times are without their interruptions if
    /// `is_interrupted_apart`, that is if the file has interruptions by themselves.
    ///
    /// # Panics
    /// When nothing has been measured.
    pub fn variability(&self, source: &str, is_interrupted_apart: bool) -> Variability {
        let medians_s = self.medians_s();
        let mean_s = medians_s.iter().sum::<f64>() / medians_s.len() as f64;
        let factors: Vec<f64> = medians_s.iter().map(|time_s| time_s / mean_s).collect();
        let factor = |share| {
            let found = quantile(factors.clone(), share).expect("there is a rank");
            (found * 1e4).round() / 1e4
        };
        let deviations: Vec<Vec<Option<f64>>> =
            self.works.iter().map(|works| deviations(works, is_interrupted_apart)).collect();
        let own: Vec<f64> = deviations.iter().map(|rank| cv(rank)).collect();
        let all = own.iter().sum::<f64>() / own.len() as f64;
        let [low, high] = [f64::min, f64::max].map(|end| own.iter().copied().fold(all, end));
        let [value, low, high] = [all, low, high].map(|cv| (cv * 1e4).round() / 1e4);
        let correlation = correlation_with_interval(&deviations);
        Variability {
            gpu_factors: SHARES.map(factor).to_vec(),
            gpu_source: format!("{source}; {} ranks", medians_s.len()),
            step_cv: Parameter { value, low: Some(low), high: Some(high), source: source.into() },
            step_correlation: Some(parameter("variability.step_correlation", correlation, source)),
        }
    }

    /// The measured values, as lines of text.
    pub fn measured(&self) -> Vec<String> {
        let medians_s = self.medians_s();
        let [first, last] = [f64::min, f64::max]
            .map(|end| 1e3 * medians_s.iter().copied().reduce(end).unwrap_or(0.0));
        let all = || self.works.iter().flatten();
        let unusual = |works: &Vec<Worked>| {
            deviations(works, false).iter().filter(|deviation| deviation.is_none()).count()
        };
        let unusual: usize = self.works.iter().map(unusual).sum();
        let interrupted_s: f64 = all().map(|work| work.interrupted_s).sum();
        let share = 100.0 * interrupted_s / all().map(|work| work.time_s).sum::<f64>();
        vec![
            format!(
                "the same computation takes {first:.3} ms on the fastest rank and {last:.3} ms on the slowest (medians)"
            ),
            format!(
                "{unusual} of {} computations took more than {USUAL} times their rank's median; interruptions took \
                 {share:.3} % of the time",
                all().count()
            ),
        ]
    }
}

/// How far each of a rank's times is from their mean, in parts of it; none of those that are too long to count.
fn deviations(works: &[Worked], is_interrupted_apart: bool) -> Vec<Option<f64>> {
    let own_s = |work: &Worked| match is_interrupted_apart {
        true => work.time_s - work.interrupted_s,
        false => work.time_s,
    };
    let times_s: Vec<f64> = works.iter().map(own_s).collect();
    let middle_s = median(times_s.clone()).unwrap_or(0.0);
    let is_usual = |time_s: &f64| *time_s <= USUAL * middle_s;
    let usual_s: Vec<f64> = times_s.iter().copied().filter(is_usual).collect();
    let mean_s = usual_s.iter().sum::<f64>() / usual_s.len() as f64;
    let deviation = |time_s: f64| is_usual(&time_s).then_some(time_s / mean_s - 1.0);
    times_s.into_iter().map(deviation).collect()
}

/// The standard deviation in parts of the mean.
fn cv(deviations: &[Option<f64>]) -> f64 {
    let counted = deviations.iter().flatten();
    (counted.clone().map(|one| one * one).sum::<f64>() / counted.count() as f64).sqrt()
}

/// The correlation with its 95 % interval: blocks drawn with replacement.
fn correlation_with_interval(ranks: &[Vec<Option<f64>>]) -> Estimate {
    let blocks = ranks.first().map_or(0, |rank| rank.len().div_ceil(TIMES));
    let value = correlation(ranks, &(0..blocks).collect::<Vec<_>>());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut drawn = || (0..blocks).map(|_| random.random_range(0..blocks)).collect::<Vec<_>>();
    let again: Vec<f64> = (0..RESAMPLES).map(|_| correlation(ranks, &drawn())).collect();
    let at = |share| quantile(again.clone(), share).unwrap_or(value);
    Estimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
}

/// The correlation of deviations that follow each other in these blocks (autocorrelation at lag 1), of all ranks together;
/// 0 if it is negative.
fn correlation(ranks: &[Vec<Option<f64>>], blocks: &[usize]) -> f64 {
    let [mut products, mut squares] = [Mean::default(); 2];
    for rank in ranks {
        let all: Vec<&[Option<f64>]> = rank.chunks(TIMES).collect();
        for block in blocks.iter().filter_map(|&block| all.get(block)) {
            let pairs = block.windows(2).filter_map(|pair| Some(pair[0]? * pair[1]?));
            pairs.for_each(|product| products.add(product));
            block.iter().flatten().for_each(|one| squares.add(one * one));
        }
    }
    let correlation = products.value() / squares.value();
    if correlation.is_finite() { correlation.clamp(0.0, MOST_CORRELATION) } else { 0.0 }
}

/// An arithmetic mean.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(self) -> f64 {
        self.sum / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::super::runner::Threads;
    use super::*;

    fn works(times_s: &[f64]) -> Vec<Worked> {
        times_s.iter().map(|&time_s| Worked { time_s, interrupted_s: 0.0 }).collect()
    }

    #[test]
    fn variation_is_relative_and_leaves_interruptions_out() {
        let variation = |works: &[Worked], apart| cv(&deviations(works, apart));
        assert_eq!(variation(&works(&[2.0; 9]), false), 0.0);
        let uneven = [0.9, 1.1].repeat(50);
        assert!((variation(&works(&uneven), false) - 0.1).abs() < 1e-12);
        assert!((variation(&works(&[&uneven[..], &[50.0]].concat()), false) - 0.1).abs() < 1e-12);
        // An interruption that a computation might take, too.
        let mut interrupted = works(&uneven);
        interrupted[7] = Worked { time_s: 2.1, interrupted_s: 1.0 };
        assert!((variation(&interrupted, true) - 0.1).abs() < 1e-12);
        assert!(variation(&interrupted, false) > 0.12);
    }

    #[test]
    fn what_lasts_and_what_varies_are_told_apart() {
        // The second rank is 50 % slower, always; both vary by 10 %, and one is interrupted once.
        let uneven = [0.9, 1.1].repeat(50);
        let slower: Vec<f64> = uneven.iter().map(|time| 1.5 * time).collect();
        let first = [works(&uneven), vec![Worked { time_s: 9.0, interrupted_s: 0.5 }]].concat();
        let computing = Computing { works: vec![first, works(&slower)] };
        let found = computing.variability("a test", false);
        found.check().unwrap();
        let ends = [found.gpu_factors[0], *found.gpu_factors.last().unwrap()];
        // The median of an even number of times is between two of them, and of an odd number one of them.
        assert!(ends[1] / ends[0] > 1.3 && ends[1] / ends[0] < 1.6, "{ends:?}");
        assert!((found.step_cv.value - 0.1).abs() < 1e-3, "{found:?}");
        assert_eq!(found.gpu_source, "a test; 2 ranks");
        assert_eq!(
            computing.measured()[1],
            "1 of 201 computations took more than 3 times their rank's median; interruptions took 0.193 % of the time"
        );
    }

    /// Times of two ranks in so many blocks. Those that follow each other in a block are correlated; blocks are not.
    fn lasting(correlation: f64, blocks: usize) -> Computing {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut rank = || {
            let block = |_| {
                let mut deviate: f64 = StandardNormal.sample(&mut random);
                let next = |_| {
                    let time_s = 0.005 * (1.0 + 0.02 * deviate);
                    let fresh: f64 = StandardNormal.sample(&mut random);
                    deviate =
                        correlation * deviate + (1.0 - correlation * correlation).sqrt() * fresh;
                    time_s
                };
                works(&(0..TIMES).map(next).collect::<Vec<_>>())
            };
            (0..blocks).flat_map(block).collect::<Vec<_>>()
        };
        Computing { works: vec![rank(), rank()] }
    }

    #[test]
    fn the_correlation_of_times_that_follow_each_other_is_found_with_its_interval() {
        for correlation in [0.0, 0.5, 0.8] {
            let variability = lasting(correlation, 400).variability("a test", true);
            let Parameter { value, low, high, .. } = variability.step_correlation.unwrap();
            let (low, high) = (low.unwrap(), high.unwrap());
            assert!((value - correlation).abs() < 0.05, "{correlation}: {value}");
            assert!(low <= correlation && correlation <= high, "{correlation}: {low} to {high}");
            assert!(high - low < 0.15, "{correlation}: {low} to {high}");
            // Few blocks say less.
            let few = lasting(correlation, 10).variability("a test", true);
            let Parameter { low: few_low, high: few_high, .. } = few.step_correlation.unwrap();
            assert!(few_high.unwrap() - few_low.unwrap() > high - low, "{correlation}");
        }
        // Shorter, longer, shorter again: a negative correlation is none.
        let turns = Computing { works: vec![works(&[0.9, 1.1].repeat(30))] };
        let none = turns.variability("a test", true).step_correlation.unwrap();
        assert_eq!((none.value, none.high), (0.0, Some(0.0)));
        turns.variability("a test", true).check().unwrap();
    }

    #[test]
    fn threads_compute_at_once() {
        let mut computing = Computing::default();
        let mut threads = Threads::new(2);
        (0..2).for_each(|_| computing.measure(&mut threads).unwrap());
        assert_eq!(computing.works.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12]);
        let within = |work: &Worked| work.interrupted_s >= 0.0 && work.interrupted_s < work.time_s;
        assert!(computing.works.iter().flatten().all(within), "{computing:?}");
        computing.variability("a test", true).check().unwrap();
    }
}
