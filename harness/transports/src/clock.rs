//! One time for all ranks: how far a rank's clock is ahead of rank 0's, and how fast it runs away from it.
//!
//! Rank 0 asks every other rank for the time repeatedly, and the shortest round trip is used. The answer was read at some
//! point within it, so that half of the round trip bounds the error of the difference. As in J. Jones and G. Koenig, "Clock
//! synchronization in high-end computing environments", 2013, the drift is that between comparisons that are far apart.
//! Processes of one system read one clock, and need no comparison.

use algorithms::topology::Rank;

use crate::transport::{MessageChannel, TransportError};

/// Number of requests to a rank.
const QUESTIONS: usize = 50;

/// Comparisons that are closer together say nothing about drift.
const APART_S: f64 = 0.5;

/// How far a rank's clock is ahead of rank 0's, and by how much that may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ahead {
    /// Seconds.
    pub by_s: f64,
    /// Seconds.
    pub error_s: f64,
}

/// Rank 0's time by this rank's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// The first comparison and the last one, each with this clock's time.
    compared: Option<[(f64, Ahead); 2]>,
}

impl Clock {
    /// Compares this rank's clock with rank 0's once more. All ranks must call it, and send nothing else meanwhile.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn compare(
        &mut self,
        post: &mut impl MessageChannel,
        (rank, ranks): (Rank, usize),
    ) -> Result<(), TransportError> {
        let found = ahead(post, (rank, ranks), system(), monotonic_s)?;
        self.add(monotonic_s(), found);
        Ok(())
    }

    fn add(&mut self, at_s: f64, ahead: Ahead) {
        let last = (at_s, ahead);
        self.compared = Some([self.compared.map_or(last, |[first, _]| first), last]);
    }

    /// This clock's time at a moment of rank 0's.
    pub fn own_s(&self, rank0_s: f64) -> f64 {
        let Some([_, (at_s, ahead)]) = self.compared else { return rank0_s };
        let without_drift = rank0_s + ahead.by_s;
        without_drift + self.drift() * (without_drift - at_s)
    }

    /// The bound of the error of the last comparison, in seconds; none is known of the drift since.
    pub fn error_s(&self) -> f64 {
        self.compared.map_or(0.0, |[_, (_, last)]| last.error_s)
    }

    /// Seconds by which this clock gains on rank 0's in a second; none where the errors of both comparisons are larger.
    fn drift(&self) -> f64 {
        let Some([(first_s, first), (last_s, last)]) = self.compared else { return 0.0 };
        let gained_s = last.by_s - first.by_s;
        let is_known = last_s - first_s >= APART_S && gained_s.abs() > first.error_s + last.error_s;
        if is_known { gained_s / (last_s - first_s) } else { 0.0 }
    }
}

/// Seconds of the system's monotonic clock, which all its processes share.
pub fn monotonic_s() -> f64 {
    use nix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

/// Identifies the system whose clock this process reads: this boot of the kernel, and the namespace of its time.
fn system() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(results::inputs::fnv1a(format!("{boot} {}", namespace.display()).as_bytes()))
}

/// How far this rank's clock is ahead of rank 0's; not at all on the same `system`. All ranks must call it, and send
/// nothing else meanwhile.
///
/// # Errors
/// When a rank does not answer.
pub fn ahead(
    post: &mut impl MessageChannel,
    (rank, ranks): (Rank, usize),
    system: Option<u64>,
    clock_s: impl Fn() -> f64,
) -> Result<Ahead, TransportError> {
    let system = system.unwrap_or(0).to_ne_bytes();
    let mut reported = Vec::new();
    if rank > 0 {
        for _ in 0..QUESTIONS {
            post.receive(0, &mut reported)?;
            post.send(0, [clock_s().to_ne_bytes(), system].concat().into())?;
        }
        post.receive(0, &mut reported)?;
        post.flush()?;
        let (by_s, error_s) = reported.split_at(size_of::<f64>());
        return Ok(Ahead { by_s: seconds(by_s), error_s: seconds(error_s) });
    }
    for other in 1..ranks {
        let (mut shortest_s, mut by_s) = (f64::INFINITY, 0.0);
        for _ in 0..QUESTIONS {
            let asked_s = clock_s();
            post.send(other, vec![0].into())?;
            post.receive(other, &mut reported)?;
            let answered_s = clock_s();
            if answered_s - asked_s < shortest_s {
                shortest_s = answered_s - asked_s;
                by_s = seconds(&reported[..size_of::<f64>()]) - (asked_s + answered_s) / 2.0;
            }
        }
        let is_same = system != [0; 8] && reported.ends_with(&system);
        let found = if is_same { [0.0; 2] } else { [by_s, shortest_s / 2.0] };
        post.send(other, found.map(f64::to_ne_bytes).concat().into())?;
    }
    post.flush()?;
    Ok(Ahead::default())
}

fn seconds(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::threads::{ControlChannel, Links, run_ranks};

    /// Clock offsets of some milliseconds are found within the stated error.
    #[test]
    fn the_shortest_round_trip_gives_the_clock_offset() {
        let links = Links::new(3, Duration::from_secs(20));
        let start = Instant::now();
        let true_s = |rank: Rank| 0.1 + rank as f64 * 7e-3;
        let found = run_ranks(&[&links], |rank| {
            let clock_s = || start.elapsed().as_secs_f64() + true_s(rank);
            ahead(&mut ControlChannel::new(links.join(rank)), (rank, 3), None, clock_s)
        });
        for (rank, Ahead { by_s, error_s }) in found.unwrap().into_iter().enumerate() {
            let off_s = (by_s - (true_s(rank) - true_s(0))).abs();
            assert!(off_s <= error_s + 1e-9, "rank {rank} is {off_s} s off, promised {error_s}");
            assert!(rank == 0 || error_s > 0.0);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processes_of_one_system_have_one_clock() {
        let links = Links::new(3, Duration::from_secs(20));
        let clocks = run_ranks(&[&links], |rank| {
            let mut clock = Clock::default();
            clock.compare(&mut ControlChannel::new(links.join(rank)), (rank, 3)).map(|()| clock)
        });
        for clock in clocks.unwrap() {
            assert_eq!((clock.own_s(7.0), clock.error_s()), (7.0, 0.0));
        }
    }

    #[test]
    fn the_drift_is_that_between_comparisons_far_apart() {
        let ahead = |by_s: f64| Ahead { by_s, error_s: 1e-6 };
        let mut clock = Clock::default();
        clock.add(100.0, ahead(3.0));
        assert!((clock.own_s(120.0) - 123.0).abs() < 1e-9);
        clock.add(100.1, ahead(3.00001));
        assert!((clock.own_s(120.0) - 123.00001).abs() < 1e-9, "too close together");
        // 10 us in 10 s.
        clock.add(110.0, ahead(3.00001));
        let expected = 123.00001 + 1e-6 * (123.00001 - 110.0);
        assert!((clock.own_s(120.0) - expected).abs() < 1e-9, "{}", clock.own_s(120.0));
        assert_eq!(clock.error_s(), 1e-6);
        clock.add(120.0, ahead(3.000_000_5));
        assert!((clock.own_s(120.0) - 123.000_000_5).abs() < 1e-12, "within the errors");
    }
}
