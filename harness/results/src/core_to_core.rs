//! How far apart the first two processors of a virtual machine are.
//!
//! A hypervisor may move virtual processors: to cores that share a cache, or to cores that do not. Messages between ranks
//! of one node then take several times as long, and copies another time, too. The latency between two processors tells
//! where they are. It is half of the time in which two threads, one on each processor, write to one cache line in turn.
//!
//! The host of `results/reference/promises-4` moved them 43 times in 36 minutes of blocks.

use std::fs;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::statistics::median;

/// Series of round trips, of which the fastest counts: another thread may hold a processor for some milliseconds.
const SERIES: usize = 20;

/// Round trips of a series.
const ROUND_TRIPS: usize = 200;

/// After this time the series so far count.
const LONGEST: Duration = Duration::from_millis(30);

/// A longer latency is not that of two processors: another thread held one of them. With a time slice of 2 ms the mean of a
/// series is 5 µs.
const MOST_NS: f64 = 2000.0;

/// How often it is tried, if another thread holds a processor.
const TRIES: usize = 3;

/// Latencies of one placement differ by less than this factor. Measured on two hosts: 21 to 37 and 164 to 211 ns on one, 33
/// and 60 ns on the other.
const ALIKE: f64 = 1.7;

/// The latency in nanoseconds. None on a machine that is not virtual, since its processors do not move; where the system does
/// not tell; where this process may not run on the first two processors; and where another thread held one of them all the time.
pub fn core_to_core_ns() -> Option<f64> {
    static IS_KNOWN: OnceLock<bool> = OnceLock::new();
    let is_known = *IS_KNOWN.get_or_init(|| is_virtual() && may_use_both());
    (0..if is_known { TRIES } else { 0 }).find_map(|_| measured_ns())
}

/// Whether latencies are those of one placement.
pub fn are_alike(one_ns: f64, other_ns: f64) -> bool {
    (one_ns / other_ns).ln().abs() < ALIKE.ln()
}

/// The latency of the placement that most of these are of: the median of those. None without one.
pub fn usual_ns(latencies_ns: &[f64]) -> Option<f64> {
    let alike = |one: f64| {
        let others = latencies_ns.iter().copied();
        others.filter(|&other| are_alike(one, other)).collect::<Vec<f64>>()
    };
    let placements = latencies_ns.iter().map(|&one| alike(one));
    median(placements.max_by_key(Vec::len)?)
}

/// Between two looks of a wait at the processors.
pub const LOOK: Duration = Duration::from_millis(200);

/// Waits until processors are this far apart, in nanoseconds, but not longer than `patience`. `look` tells how far they are;
/// nothing where they do not move.
pub fn until_alike(expected_ns: f64, patience: Duration, look: impl Fn() -> Option<f64>) {
    let begun = Instant::now();
    while begun.elapsed() < patience && look().is_some_and(|ns| !are_alike(ns, expected_ns)) {
        thread::sleep(LOOK);
    }
}

/// How often a watch looks.
const PERIOD: Duration = Duration::from_millis(400);

/// Looks at the latency all the time. Each look takes 0.2 to 1.5 ms on idle processors, and at most 30 ms.
pub struct Watch {
    end: Sender<()>,
    thread: JoinHandle<Vec<(f64, f64)>>,
}

impl Watch {
    /// None where there is no latency.
    pub fn begin() -> Option<Watch> {
        let mut seen = vec![(now_s(), core_to_core_ns()?)];
        let (end, until) = channel();
        let look = move || {
            while until.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                // Once only: what is measured meanwhile needs the processors.
                seen.extend(measured_ns().map(|ns| (now_s(), ns)));
            }
            seen.extend(core_to_core_ns().map(|ns| (now_s(), ns)));
            seen
        };
        Some(Watch { end, thread: thread::spawn(look) })
    }

    /// What it has seen.
    pub fn end(self) -> Option<Latencies> {
        let _ = self.end.send(());
        self.thread.join().ok().map(Latencies)
    }
}

/// Latencies at moments in seconds since 1970 UTC, in the order of time; one at least.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(pub Vec<(f64, f64)>);

impl Latencies {
    /// The least and the largest latency between two moments, in seconds since 1970 UTC, and just before and after.
    pub fn between(&self, [began_s, ended_s]: [f64; 2]) -> Option<[f64; 2]> {
        let Latencies(seen) = self;
        let before = seen.iter().rposition(|&(at_s, _)| at_s <= began_s).unwrap_or(0);
        let after = seen.iter().position(|&(at_s, _)| at_s >= ended_s);
        let after = after.unwrap_or(seen.len().saturating_sub(1));
        let between = seen.get(before..=after)?.iter().map(|&(_, ns)| ns);
        Some([between.clone().fold(f64::MAX, f64::min), between.fold(0.0, f64::max)])
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The processor says that a hypervisor runs below this system.
fn is_virtual() -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// This process may run on both processors.
fn may_use_both() -> bool {
    thread::spawn(|| pin(0) && pin(1)).join().unwrap_or(false)
}

/// The cache line that both threads write to: who writes next, or that nobody does.
#[repr(align(128))]
struct Line(AtomicU8);

const FIRST: u8 = 0;
const SECOND: u8 = 1;
const END: u8 = 2;

impl Line {
    fn write(&self, value: u8) {
        self.0.store(value, Ordering::Release);
    }

    /// Waits for a value. False at the end, or when it is too late.
    fn wait_for(&self, value: u8, end: Instant) -> bool {
        loop {
            for _ in 0..1000 {
                match self.0.load(Ordering::Acquire) {
                    found if found == value => return true,
                    END => return false,
                    _ => spin_loop(),
                }
            }
            if Instant::now() > end {
                return false;
            }
        }
    }
}

/// Half of the shortest mean round trip of a series.
fn measured_ns() -> Option<f64> {
    let line = Line(AtomicU8::new(FIRST));
    let end = Instant::now() + LONGEST;
    let second = || {
        if pin(1) {
            while line.wait_for(SECOND, end) {
                line.write(FIRST);
            }
        }
        line.write(END);
    };
    let first = || {
        let series = (0..SERIES).map_while(|_| {
            let start = Instant::now();
            let are_done = (0..ROUND_TRIPS).all(|_| {
                line.write(SECOND);
                line.wait_for(FIRST, end)
            });
            are_done.then(|| start.elapsed().as_secs_f64())
        });
        let shortest_s = if pin(0) { series.min_by(f64::total_cmp) } else { None };
        line.write(END);
        shortest_s
    };
    let shortest_s = thread::scope(|scope| {
        scope.spawn(second);
        scope.spawn(first).join().ok()
    })?;
    let ns = 1e9 * shortest_s? / (2 * ROUND_TRIPS) as f64;
    (ns < MOST_NS).then_some((10.0 * ns).round() / 10.0)
}

/// Binds this thread to a processor, if that is allowed.
fn pin(processor: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sched::{CpuSet, sched_setaffinity};
        use nix::unistd::Pid;
        let mut only = CpuSet::new();
        only.set(processor).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = processor;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_placement_of_most_latencies_is_the_usual_one() {
        assert_eq!(usual_ns(&[36.0, 190.0, 40.0, 185.0, 35.0]), Some(36.0));
        assert_eq!(usual_ns(&[190.0, 36.0, 185.0]), Some(187.5));
        assert_eq!(usual_ns(&[]), None);
        assert!(are_alike(21.0, 33.0) && are_alike(209.0, 164.0));
        assert!(!are_alike(33.0, 60.0) && !are_alike(60.0, 33.0));
    }

    #[test]
    fn a_wait_ends_when_processors_are_back_and_is_not_for_ever() {
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 3 { 40.0 } else { 190.0 })
        };
        let waited = |expected_ns: f64, patience: Duration, look: &dyn Fn() -> Option<f64>| {
            let begun = Instant::now();
            until_alike(expected_ns, patience, look);
            begun.elapsed()
        };
        let long = Duration::from_secs(9);
        assert!(waited(185.0, long, &look) >= 2 * LOOK && looks.get() == 3);
        assert!(waited(185.0, long, &look) < LOOK, "they are there");
        assert!(waited(40.0, LOOK, &look) >= LOOK, "they do not come back");
        assert!(waited(40.0, long, &|| None) < LOOK, "they do not move");
    }

    #[test]
    fn a_watch_tells_the_latencies_of_a_time() {
        let seen = vec![(1.0, 200.0), (2.0, 40.0), (3.0, 38.0), (4.0, 41.0), (5.0, 180.0)];
        let of = |moments_s| Latencies(seen.clone()).between(moments_s);
        assert_eq!(of([2.1, 3.9]), Some([38.0, 41.0]));
        assert_eq!(of([1.5, 2.5]), Some([38.0, 200.0]), "they moved at the beginning");
        assert_eq!(of([4.0, 9.0]), Some([41.0, 180.0]));
        assert_eq!(of([0.0, 9.0]), Some([38.0, 200.0]));
        if let Some(watch) = Watch::begin() {
            let [least, most] = watch.end().unwrap().between([now_s(); 2]).unwrap();
            assert!(0.0 < least && least <= most);
        }
    }

    /// A processor that is not there leaves no latency, and nobody waits for it.
    #[test]
    fn two_processors_have_a_latency() {
        let start = Instant::now();
        let found = measured_ns();
        assert!(start.elapsed() < Duration::from_secs(10));
        let are_two = may_use_both();
        assert!(!are_two || found.is_none_or(|ns| (1.0..MOST_NS).contains(&ns)), "{found:?}");
        assert!(are_two || found.is_none());
        assert!(!thread::spawn(|| pin(1_000_000)).join().unwrap(), "no such processor");
    }
}
