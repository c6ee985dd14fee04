//! Parameters of a machine from measurements, with intervals.
//!
//! A step of an exchange takes alpha + kappa + bytes x (beta + gamma), or copy in place of gamma. Between processes beta
//! is how long a byte of one of four messages under way occupies the link. A byte of a message alone takes longer. Where it
//! is measured as faster (after a pause, a traffic shaper lets some bytes pass at once), it counts as beta. The transport
//! determines how a byte's time divides between link and receiver. On threads a receiver reads the sender's memory
//! and nothing else moves bytes, so that the link costs latency alone. Over MPI the library delivers bytes to
//! their destination, and only combining is extra.
//!
//! On threads the time depends on the cache that holds a chunk. The machine file has the rate of combining into a
//! chunk that no rank has read since this rank wrote it, as in a reduce-scatter: a single step. [`COMBINE_READ`]
//! is the rate of combining into a chunk that another core has just read: a second step. A second step that copies
//! puts chunks back to their origin, as in an allgather. The time also depends on whether buffers fit into caches,
//! so that each measured size has its own rates.

use std::collections::BTreeMap;
use training::back_end::RankKind;

use algorithms::segments::pipelined;
use algorithms::simulate::events;
use algorithms::simulate::machine::{Link, Machine, Protocol, Reduction};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::fit::{LinearFit, LinearFits, SMALL_BYTES, line, lines};
use super::patterns::{Reach, Shape, chunks, schedule, segments};
use super::{Calibration, Point};
use results::statistics::{median, quantile};

/// Combining into chunks that another rank has just read, followed by the size of the buffer in bytes. Machine
/// files do not have it: they have one rate of combining.
pub const COMBINE_READ: &str = "combine_read_gb_s.";

/// Rates of a buffer's size, before its bytes.
pub const BY_BUFFER: &str = "reduction.by_buffer.";

/// The cost of a call.
pub const LAUNCH_US: &str = "control.launch_us";

/// Faster than any machine: the rate of a free operation.
pub const UNLIMITED_GB_S: f64 = 1e5;

/// A parameter and its 95 % interval, in the unit of its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// From all samples.
    pub value: f64,
    /// 2.5 % of resamples are lower.
    pub low: f64,
    /// 2.5 % of resamples are higher.
    pub high: f64,
}

/// Parameters by their key in a machine file.
pub type Estimates = BTreeMap<String, Estimate>;

/// Resamples behind an interval.
pub(super) const RESAMPLES: usize = 200;

impl Calibration {
    /// All parameters. If small messages have no protocol of their own (they would be faster with that of large
    /// ones, or large ones with theirs), there is only `large`, of all sizes.
    pub fn estimates(&self) -> Estimates {
        let samples = self.samples();
        let with_small = self.with_small(&samples);
        let values = self.values(&samples, &with_small);
        let mut resampled: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..RESAMPLES {
            let again = samples.iter().map(|pair| pair.each_ref().map(|of| draw(of, &mut random)));
            for (key, value) in self.values(&again.collect::<Vec<_>>(), &with_small) {
                resampled.entry(key).or_default().push(value);
            }
        }
        let estimate = |(key, value): (String, f64)| {
            let mut of = resampled.remove(&key).unwrap_or_default();
            of.push(value);
            of.sort_by(f64::total_cmp);
            let at = |quantile: f64| of[(quantile * (of.len() - 1) as f64).round() as usize];
            let (low, high) = (at(0.025).min(value), at(0.975).max(value));
            (key, Estimate { value, low, high })
        };
        values.into_iter().map(estimate).collect()
    }

    /// All parameters from the samples since `marks`, each as its own interval.
    pub fn values_since(&self, marks: &[[usize; 2]]) -> Estimates {
        let since = |(point, marks): (&Point, &[usize; 2])| {
            [0, 1].map(|form| point.samples[form][marks[form]..].to_vec())
        };
        let samples: Vec<_> = self.points.iter().zip(marks).map(since).collect();
        let values = self.values(&samples, &self.with_small(&self.samples()));
        let alone = |(key, value)| (key, Estimate { value, low: value, high: value });
        values.into_iter().map(alone).collect()
    }

    /// All samples of all points.
    fn samples(&self) -> Vec<[Vec<f64>; 2]> {
        self.points.iter().map(|point| point.samples.clone()).collect()
    }

    /// Where small messages have a protocol of their own. Resamples have the protocols of all samples, so that a parameter
    /// means the same in each.
    fn with_small(&self, samples: &[[Vec<f64>; 2]]) -> Vec<Reach> {
        let curves = self.curves(samples);
        let reaches = [Reach::Inside, Reach::Between].into_iter();
        let has_small = |&reach: &Reach| {
            let lines = lines(&curves.of(reach, COPYING));
            lines.differ() && lines.small.slope_s > line(&curves.of(reach, Shape::Stream)).slope_s
        };
        reaches.filter(has_small).collect()
    }

    fn curves(&self, samples: &[[Vec<f64>; 2]]) -> Curves<'_> {
        let step_s = |(point, of): (&Point, &[Vec<f64>; 2])| point.step_s(of, self.quantile);
        Curves { calibration: self, steps_s: self.points.iter().zip(samples).map(step_s).collect() }
    }

    /// Parameters from some samples of all points; see [`Calibration::with_small`].
    fn values(&self, samples: &[[Vec<f64>; 2]], with_small: &[Reach]) -> BTreeMap<String, f64> {
        let curves = self.curves(samples);
        let mut values = BTreeMap::from([(LAUNCH_US.into(), self.launch_us(samples))]);
        for (reach, level) in [(Reach::Inside, "socket"), (Reach::Between, "network")] {
            if curves.of(reach, COPYING).is_empty() {
                continue;
            }
            let fitted = curves.fitted(reach, with_small.contains(&reach));
            // Between nodes the same happens to bytes that have arrived as on them, but with less noise
            // there.
            if reach == Reach::Inside || self.ranks_per_node == 1 {
                values.insert("reduction.combine_gb_s".into(), gb_s(fitted.gamma_s));
                let copy = fitted.copy_s.map(|copy_s| ("reduction.copy_gb_s".into(), gb_s(copy_s)));
                values.extend(copy);
                values.extend(curves.rates_by_buffer(reach));
            }
            let burst = curves.of(reach, Shape::Burst);
            let kappa_s = burst.first().map_or(0.0, |&(_, seconds)| seconds);
            let beta_s = line(&curves.of(reach, Shape::Stream)).slope_s;
            for (name, line) in fitted.protocols() {
                let kappa_s = kappa_s.min(line.intercept_s);
                let mut put =
                    |field: &str, value| values.insert(format!("{level}.{name}.{field}"), value);
                put("alpha_us", (line.intercept_s - kappa_s) * 1e6);
                // No byte is faster than the link.
                put("bandwidth_gb_s", gb_s(line.slope_s.max(beta_s)));
                put("kappa_us", kappa_s * 1e6);
                if name == "large" {
                    for (field, value) in curves.under_way(reach, line, fitted.gamma_s) {
                        put(field, value);
                    }
                }
            }
        }
        if self.nodes > 1 && self.ranks_per_node > 1 {
            let of = |shape| curves.of(Reach::AllBetween, shape);
            let (copies, stream) = (of(COPYING), of(Shape::Stream));
            let alone = copies.partition_point(|&(bytes, _)| bytes <= SMALL_BYTES as f64);
            let large = if stream.is_empty() { &copies[alone..] } else { &stream };
            let all = self.ranks_per_node as f64 * gb_s(line(large).slope_s);
            values.insert("shared.node_gb_s".into(), all.min(UNLIMITED_GB_S));
        }
        values
    }

    /// The cost of a call: the time of a program of few steps, minus its steps.
    fn launch_us(&self, samples: &[[Vec<f64>; 2]]) -> f64 {
        let points = self.points.iter().zip(samples);
        let calls =
            points.filter(|(point, _)| point.shape == COPYING && point.bytes <= SMALL_BYTES);
        let call_us = |(point, of): (&Point, &[Vec<f64>; 2])| {
            let steps_s = point.step_s(of, self.quantile) * point.lengths[0] as f64;
            (quantile(of[0].clone(), self.quantile).unwrap_or(0.0) - steps_s).max(0.0) * 1e6
        };
        median(calls.map(call_us).collect()).unwrap_or(0.0)
    }
}

const COPYING: Shape = Shape::Exchange { reduces: false };

const REDUCING: Shape = Shape::Exchange { reduces: true };

/// The time of a step of each point.
struct Curves<'c> {
    calibration: &'c Calibration,
    steps_s: Vec<f64>,
}

impl Curves<'_> {
    /// Bytes and seconds of one reach and shape, small ones first.
    fn of(&self, reach: Reach, shape: Shape) -> Vec<(f64, f64)> {
        let all = self.calibration.points.iter().zip(&self.steps_s);
        let own = all.filter(|(point, _)| point.reach == reach && point.shape == shape);
        own.map(|(point, &step_s)| (point.bytes as f64, step_s)).collect()
    }

    fn is_threads(&self) -> bool {
        self.calibration.back_end.rank_kind() == RankKind::Thread
    }

    /// On threads, the time of small messages of any size.
    fn alpha_s(&self, reach: Reach) -> f64 {
        let intercept_s = |shape| lines(&self.of(reach, shape)).small.intercept_s;
        (intercept_s(COPYING) + intercept_s(REDUCING)) / 2.0
    }

    /// The lines of links and receivers; `has_small`: small messages have a protocol of their own.
    fn fitted(&self, reach: Reach, has_small: bool) -> Fitted {
        let [copies, reduces] = [COPYING, REDUCING].map(|shape| lines(&self.of(reach, shape)));
        if !self.is_threads() {
            return Fitted::by_links(copies, reduces, has_small);
        }
        let once = line(&self.of(reach, Shape::ReduceOnce));
        Fitted::by_receivers(self.alpha_s(reach), once.slope_s, copies.large.slope_s)
    }

    /// Between processes: parameters of large messages of which several are under way, where `alone` is the line of a
    /// message alone.
    fn under_way(&self, reach: Reach, alone: LinearFit, gamma_s: f64) -> Vec<(&'static str, f64)> {
        let [stream, neighbours, crossing] =
            [Shape::Stream, Shape::Neighbours, Shape::Crossing].map(|shape| self.of(reach, shape));
        let Some(&(_, one_s)) = stream.last() else { return Vec::new() };
        let beta_s = line(&stream).slope_s;
        let alone_s = alone.slope_s.max(beta_s);
        let mut found = vec![("bandwidth_gb_s", gb_s(beta_s)), ("alone_gb_s", gb_s(alone_s))];
        if let Some(&(_, both_s)) = neighbours.first() {
            found.push(("per_partner", (both_s / (2.0 * one_s) - 1.0).max(0.0)));
        }
        let protocol = Protocol {
            alpha_s: alone.intercept_s,
            alpha_per_byte_s: alone_s - beta_s,
            beta_s,
            ..Protocol::default()
        };
        let share =
            |&(bytes, returned_s): &_| (bytes, behind_data(protocol, gamma_s, bytes, returned_s));
        let shares: Vec<(f64, f64)> = crossing.iter().map(share).collect();
        if let Some(&(_, behind_data)) = shares.last() {
            found.push(("behind_data", behind_data));
            let from = announced_from(&shares);
            found.extend(from.map(|bytes| ("announced_from_bytes", bytes)));
        }
        found
    }

    /// Rates for each large buffer: the time of its bytes beyond latency, or beyond copying.
    fn rates_by_buffer(&self, reach: Reach) -> Vec<(String, f64)> {
        let rates = |before: &str, after: &str, shape: Shape, beyond_s: &dyn Fn(usize) -> f64| {
            let points = self.of(reach, shape).into_iter().enumerate();
            let large = points.filter(|(_, (bytes, _))| *bytes > SMALL_BYTES as f64);
            let rate = |(at, (bytes, step_s)): (usize, (f64, f64))| {
                let buffer_bytes = bytes * chunks(shape, 1) as f64;
                let per_byte_s = (step_s - beyond_s(at)).max(0.0) / bytes;
                (format!("{before}{buffer_bytes}{after}"), gb_s(per_byte_s))
            };
            large.map(rate).collect::<Vec<_>>()
        };
        if !self.is_threads() {
            let copies = self.of(reach, COPYING);
            return rates(BY_BUFFER, ".combine_gb_s", REDUCING, &|at| copies[at].1);
        }
        let alpha_s = self.alpha_s(reach);
        let rates = |before, after, shape| rates(before, after, shape, &|_| alpha_s);
        [
            rates(BY_BUFFER, ".combine_gb_s", Shape::ReduceOnce),
            rates(BY_BUFFER, ".copy_gb_s", COPYING),
            rates(BY_BUFFER, ".silent_combine_gb_s", Shape::Silent),
            rates(BY_BUFFER, ".silent_copy_gb_s", Shape::ThereAndBack),
            rates(COMBINE_READ, "", REDUCING),
        ]
        .concat()
    }
}

/// The share of the data under way that announcements wait for, if a message of `bytes` takes so many seconds more where
/// it is returned while others arrive: on the line between none and all, in the simulator.
fn behind_data(protocol: Protocol, gamma_s: f64, bytes: f64, returned_s: f64) -> f64 {
    let shape = Shape::Crossing;
    let segment_bytes = bytes as usize * chunks(shape, 1);
    let size_bytes = segments(shape) * segment_bytes;
    let seconds = |behind_data: f64| {
        let network = Link(vec![Protocol { behind_data, ..protocol }]);
        let reduction = Reduction::alike(gamma_s, 0.0);
        let machine = Machine { network, reduction, ..Machine::flat(0.0, 0.0, 0.0) };
        let of = |length: usize| {
            let schedule = schedule(2, &[(0, 1)], shape, length);
            let schedule = pipelined(&schedule, size_bytes, segment_bytes, false);
            let ended = events::simulate(&schedule, &machine, size_bytes as f64, &[]);
            ended.expect("both ranks receive what the other sends").end.at_s
        };
        (of(2) - of(1)) / segments(shape) as f64
    };
    let [none, all] = [0.0, 1.0].map(seconds);
    ((returned_s - none) / (all - none)).clamp(0.0, 1.0)
}

/// The size from which messages wait for data under way, from the shares of sizes in ascending order: what is longer than the
/// last that hardly waits, because libraries' limits are at powers of two, as these sizes are, or a little above. None if all of
/// them wait, or the longest does not.
fn announced_from(shares: &[(f64, f64)]) -> Option<f64> {
    let waiting = shares.iter().rev().take_while(|(_, share)| *share >= 0.5).count();
    let at_once = shares.get((shares.len() - waiting).checked_sub(1)?).filter(|_| waiting > 0)?;
    Some(at_once.0 + 1.0)
}

/// As many samples, drawn with replacement.
fn draw(samples: &[f64], random: &mut ChaCha8Rng) -> Vec<f64> {
    samples.iter().map(|_| samples[random.random_range(0..samples.len())]).collect()
}

/// 10^9 bytes per second.
fn gb_s(s_per_byte: f64) -> f64 {
    (1e-9 / s_per_byte).min(UNLIMITED_GB_S)
}

/// The cost of messages of one reach: lines without the processing of received bytes.
struct Fitted {
    /// The line of small messages, if they have their own.
    small: Option<LinearFit>,
    /// The line of large messages, or of all.
    large: LinearFit,
    gamma_s: f64,
    copy_s: Option<f64>,
}

impl Fitted {
    fn by_receivers(alpha_s: f64, gamma_s: f64, copy_s: f64) -> Fitted {
        let large = LinearFit { intercept_s: alpha_s, slope_s: 0.0 };
        Fitted { small: None, large, gamma_s, copy_s: Some(copy_s) }
    }

    fn by_links(copies: LinearFits, reduces: LinearFits, has_small: bool) -> Fitted {
        let large = |lines: &LinearFits| if has_small { lines.large } else { lines.all };
        let gamma_s = (large(&reduces).slope_s - large(&copies).slope_s).max(0.0);
        let small = has_small.then_some(copies.small);
        Fitted { small, large: large(&copies), gamma_s, copy_s: None }
    }

    /// The lines by their names in a machine file.
    fn protocols(&self) -> impl Iterator<Item = (&'static str, LinearFit)> {
        let small = self.small.map(|line| ("small", line));
        small.into_iter().chain([("large", self.large)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Effort;
    use super::super::runner::Threads;
    use super::*;
    use crate::back_ends;

    /// Of a line for all sizes, some resamples would have two protocols, and a latency of large messages.
    #[test]
    fn resamples_have_the_protocols_of_all_samples() {
        let threads = Threads::new(2);
        let mut calibration = Calibration::new(&threads, &Effort::DEFAULT);
        calibration.back_end = back_ends::default_of_processes();
        let mut random = ChaCha8Rng::seed_from_u64(4);
        for point in &mut calibration.points {
            let latency_s = if point.shape == Shape::Burst { 1e-5 } else { 1e-4 };
            let step_s = latency_s + 3.3e-8 * point.bytes as f64;
            for (samples, length) in point.samples.iter_mut().zip(point.lengths) {
                let one = |_| length as f64 * step_s * random.random_range(0.96..1.04);
                *samples = (0..5).map(one).collect();
            }
        }
        let estimates = calibration.estimates();
        assert!(!estimates.contains_key("socket.small.alpha_us"), "{estimates:?}");
        let alpha_us = estimates["socket.large.alpha_us"];
        let is_near = |end: f64| (end / alpha_us.value - 1.0).abs() < 0.2;
        assert!(is_near(alpha_us.low) && is_near(alpha_us.high), "{alpha_us:?}");
    }

    /// A shaped link lets a message pass faster after a pause, but not one of several under way.
    #[test]
    fn the_bandwidth_of_a_link_is_that_of_several_messages_under_way() {
        let threads = Threads::new(2);
        let mut calibration = Calibration::new(&threads, &Effort::DEFAULT);
        calibration.back_end = back_ends::default_of_processes();
        for bytes in [32 << 10, 128 << 10, 512 << 10] {
            calibration.points.push(Point::new(&threads, Reach::Inside, Shape::Stream, bytes));
        }
        for (alone_s, stream_s) in [(3.3e-8, 3.5e-8), (3.7e-8, 3.5e-8)] {
            for point in &mut calibration.points {
                let (latency_s, byte_s) = match point.shape {
                    Shape::Stream => (0.0, stream_s),
                    Shape::Burst => (1e-5, alone_s),
                    _ => (1e-4, alone_s),
                };
                let step_s = latency_s + byte_s * point.bytes as f64;
                for (samples, length) in point.samples.iter_mut().zip(point.lengths) {
                    *samples = vec![(length * segments(point.shape)) as f64 * step_s; 5];
                }
            }
            let estimates = calibration.estimates();
            let found = |key: &str| 1e-9 / estimates[&format!("socket.large.{key}")].value;
            assert!((found("bandwidth_gb_s") / stream_s - 1.0).abs() < 1e-6, "{estimates:?}");
            let alone = found("alone_gb_s") / alone_s.max(stream_s);
            assert!((alone - 1.0).abs() < 1e-6, "{estimates:?}");
        }
    }

    /// On a link of 1 ms per message, with all of the latency of a real one.
    #[test]
    fn announcements_behind_data_are_recognised_by_what_comes_back_late() {
        let protocol = Protocol { alpha_s: 1e-4, beta_s: 1e-8, ..Protocol::default() };
        let found = |returned_s| behind_data(protocol, 0.0, 1e5, returned_s);
        // The last message is returned right after it has come, or all are after the last.
        let (at_once, afterwards) = (1.1e-3 / 4.0, 1e-3 + 1e-4 / 4.0);
        assert!(found(at_once) < 0.01 && found(afterwards) > 0.99, "{}", found(afterwards));
        assert_eq!((found(0.0), found(1.0)), (0.0, 1.0));
        let half = found(0.5 * (at_once + afterwards));
        assert!((half - 0.5).abs() < 0.02, "{half}");
    }

    #[test]
    fn messages_are_announced_from_the_size_on_that_waits() {
        let from = |shares: [f64; 4]| {
            announced_from(&[
                (1e4, shares[0]),
                (4e4, shares[1]),
                (16e4, shares[2]),
                (64e4, shares[3]),
            ])
        };
        assert_eq!(from([0.0, 0.1, 1.0, 0.9]), Some(4e4 + 1.0));
        assert_eq!(from([1.0, 0.0, 0.0, 1.0]), Some(16e4 + 1.0), "one at the lower end is noise");
        assert_eq!(from([1.0, 0.9, 0.8, 1.0]), None, "all wait");
        assert_eq!(from([0.0, 0.0, 1.0, 0.2]), None, "the longest does not");
    }
}
