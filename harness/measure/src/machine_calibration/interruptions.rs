//! How often the operating system interrupts ranks, and for how long.
//!
//! All ranks repeat the same piece of computation for some seconds. A piece that takes longer than the fastest one by
//! [`INTERRUPTION`] or more was interrupted. The benchmark "selfish detour" does the same (P. Beckman et al.,
//! "Benchmarking the effects of operating system interference on extreme-scale parallel machines", Cluster Computing 11,
//! 2008), which Netgauge has, too.

use std::collections::BTreeMap;

use simulator::machine_file::{InterruptionFile, Interruptions as Kinds};

use super::estimate::Estimate;
use super::runner::Runner;
use super::work::{INTERRUPTION, watch};
use super::write::parameter;
use results::statistics::Summary;
use transports::transport::TransportError;

/// Each rank computes for so many seconds ...
const WATCH_S: f64 = 3.0;

/// ... or until it was interrupted so often.
pub(super) const MOST: usize = 2000;

/// Shorter ones are short, such as by a daemon; others are long, such as by another program that gets a time slice.
const LONG_S: f64 = 1e-3;

/// What one rank saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Seconds from beginning to end.
    pub time_s: f64,
    /// The duration of each interruption in seconds, in order.
    pub interruptions_s: Vec<f64>,
}

impl Watched {
    /// Computes for some seconds.
    pub fn here() -> Watched {
        watch(|so_far| so_far.time_s < WATCH_S && so_far.interruptions_s.len() < MOST)
    }

    /// Seconds of computing.
    fn computed_s(&self) -> f64 {
        self.time_s - self.interruptions_s.iter().sum::<f64>()
    }
}

/// What all ranks saw at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Interruptions(Vec<Watched>);

impl Interruptions {
    /// Lets all ranks compute.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn measure(runner: &mut dyn Runner) -> Result<Interruptions, TransportError> {
        runner.watch().map(Interruptions)
    }

    /// The table `[interruptions]` of a machine file: `short` and `long` ones, as far as there were any, or else that there
    /// are hardly any short ones.
    pub fn kinds(&self, source: &str) -> Kinds {
        let kinds = [("short", 0.0..LONG_S), ("long", LONG_S..f64::INFINITY)];
        let seen = kinds.map(|(name, range)| {
            let of = |watched: &Watched| {
                let durations_s = watched.interruptions_s.iter().copied();
                durations_s.filter(|duration_s| range.contains(duration_s)).collect()
            };
            (name, self.0.iter().map(of).collect::<Vec<Vec<f64>>>())
        });
        let all = seen.iter().filter(|(_, ranks)| ranks.iter().any(|rank| !rank.is_empty()));
        let mut all: BTreeMap<_, _> = all.cloned().collect();
        if all.is_empty() {
            all.insert("short", vec![Vec::new(); self.0.len()]);
        }
        let kind = |(name, ranks): (&str, Vec<Vec<f64>>)| {
            let key = |field: &str| format!("interruptions.{name}.{field}");
            let per_second = parameter(&key("per_second"), self.per_second(&ranks), source);
            let duration_us = parameter(&key("duration_us"), duration_us(&ranks.concat()), source);
            (name.to_string(), InterruptionFile { per_second, duration_us })
        };
        all.into_iter().map(kind).collect()
    }

    /// Interruptions of a rank per second of its computation, from those of each rank. The interval is that of a Poisson
    /// distribution, or reaches from the least to the most interrupted rank where that is wider.
    fn per_second(&self, ranks: &[Vec<f64>]) -> Estimate {
        let computed_s: f64 = self.0.iter().map(Watched::computed_s).sum();
        let number = ranks.iter().map(Vec::len).sum::<usize>() as f64;
        let of_rank =
            |(rank, watched): (&Vec<f64>, &Watched)| rank.len() as f64 / watched.computed_s();
        let of_ranks = ranks.iter().zip(&self.0).map(of_rank);
        // The square root of a Poisson number has a standard deviation of about 1/2: 95 % are within 0.98.
        let low = (number.sqrt() - 0.98).max(0.0).powi(2) / computed_s;
        let high = ((number + 1.0).sqrt() + 0.98).powi(2) / computed_s;
        Estimate {
            value: number / computed_s,
            low: of_ranks.clone().fold(low, f64::min),
            high: of_ranks.fold(high, f64::max),
        }
    }

    /// The measured values, as a line of text.
    pub fn measured(&self) -> String {
        let time_s: f64 = self.0.iter().map(|watched| watched.time_s).sum();
        let all = self.0.iter().flat_map(|watched| &watched.interruptions_s).copied();
        let share = 100.0 * all.clone().sum::<f64>() / time_s;
        format!(
            "in {time_s:.1} s of {} rank(s) {} interruptions took {share:.3} % of the time, the longest {:.3} ms",
            self.0.len(),
            all.clone().count(),
            1e3 * all.fold(0.0, f64::max)
        )
    }
}

/// The median duration with its interval, or all durations where there are few; without any, the shortest that counts.
fn duration_us(durations_s: &[f64]) -> Estimate {
    let all: Vec<f64> = durations_s.iter().map(|duration_s| duration_s * 1e6).collect();
    let Some(Summary { p50, p50_interval, min, max, .. }) = Summary::of(&all) else {
        let shortest_us = INTERRUPTION.as_secs_f64() * 1e6;
        return Estimate { value: shortest_us, low: shortest_us, high: shortest_us };
    };
    let (low, high) = p50_interval.unwrap_or((min, max));
    Estimate { value: p50, low, high }
}

#[cfg(test)]
mod tests {
    use super::super::runner::Threads;
    use super::*;

    fn watched(time_s: f64, interruptions_us: &[f64]) -> Watched {
        let interruptions_s = interruptions_us.iter().map(|us| us * 1e-6).collect();
        Watched { time_s, interruptions_s }
    }

    #[test]
    fn short_and_long_interruptions_have_rates_and_durations() {
        let often: Vec<f64> = (30..60).map(f64::from).collect();
        let ranks = vec![watched(2.0, &[&often[..], &[4000.0]].concat()), watched(3.0, &often)];
        let found = Interruptions(ranks);
        let kinds = found.kinds("measured: a test");
        let ends =
            |kind: &str, field: fn(&InterruptionFile) -> &simulator::machine_file::Parameter| {
                let parameter = field(&kinds[kind]);
                assert_eq!(parameter.source, "measured: a test");
                [parameter.low.unwrap(), parameter.value, parameter.high.unwrap()]
            };
        let near = |found: [f64; 3], expected: [f64; 3]| {
            let is_near = |(a, b): (f64, f64)| (a - b).abs() <= 0.01 * b;
            assert!(found.into_iter().zip(expected).all(is_near), "{found:?}, {expected:?}");
        };
        // 60 in 5 s; a Poisson number is 45 to 77, and the ranks' are 10 and 15 per second.
        near(ends("short", |kind| &kind.per_second), [9.155, 12.0, 15.46]);
        // The 22nd and the 39th of 60 are the ends of the median's interval.
        near(ends("short", |kind| &kind.duration_us), [40.0, 44.5, 49.0]);
        // One in 5 s; a Poisson number is at most 5.7, and the second rank has none.
        near(ends("long", |kind| &kind.per_second), [0.0, 0.2, 1.147]);
        near(ends("long", |kind| &kind.duration_us), [4000.0; 3]);
        assert_eq!(
            found.measured(),
            "in 5.0 s of 2 rank(s) 61 interruptions took 0.133 % of the time, the longest 4.000 ms"
        );
    }

    /// None in 6 s: at most 3.7 would still show none in one of forty runs.
    #[test]
    fn no_interruption_is_a_rate_of_0_with_an_upper_end() {
        let kinds = Interruptions(vec![watched(3.0, &[]); 2]).kinds("measured: a test");
        assert_eq!(kinds.keys().collect::<Vec<_>>(), ["short"]);
        let InterruptionFile { per_second, duration_us } = &kinds["short"];
        assert_eq!((per_second.value, per_second.low, duration_us.value), (0.0, Some(0.0), 20.0));
        let high = per_second.high.unwrap() * 6.0;
        assert!(high > 3.6 && high < 4.0, "{high}");
    }

    /// A rank that computes half of the time is interrupted twice as often per second of computing.
    #[test]
    fn rates_are_per_second_of_computing() {
        let kinds = Interruptions(vec![watched(2.0, &[10_000.0; 100])]).kinds("measured: a test");
        assert_eq!(kinds["long"].per_second.value, 100.0);
    }

    #[test]
    fn threads_are_watched_at_once() {
        let Interruptions(ranks) = Interruptions::measure(&mut Threads::new(2)).unwrap();
        assert_eq!(ranks.len(), 2);
        for Watched { time_s, interruptions_s } in ranks {
            assert!(time_s >= WATCH_S || interruptions_s.len() == MOST, "{time_s}");
            assert!(interruptions_s.iter().all(|&it| it >= 20e-6 && it < time_s));
        }
    }
}
