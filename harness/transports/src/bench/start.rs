//! How ranks start a repetition together.

use std::time::Duration;

use algorithms::topology::Rank;

use super::Barrier;
use crate::clock::Clock;
use crate::transport::{Transport, TransportError};

/// How ranks start a repetition together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// After a barrier. Each rank takes its own time, and how much later the last one leaves the barrier is not seen.
    #[default]
    Barrier,
    /// At moments that rank 0 names for several repetitions at a time, by clocks that ranks have compared. Times are from
    /// these moments. S. Hunold and A. Carpen-Amarie, "Reproducible MPI Benchmarking is Still Not as Easy as You Think",
    /// 2016.
    Window,
    /// At a moment that rank 0 names before each repetition.
    RoundTime,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 3] = [Start::Barrier, Start::Window, Start::RoundTime];

    /// As options and rows name it.
    pub fn name(self) -> &'static str {
        match self {
            Start::Barrier => "barrier",
            Start::Window => "window",
            Start::RoundTime => "round-time",
        }
    }

    /// Repetitions whose moments rank 0 names at once; none after a barrier.
    fn batch(self) -> Option<usize> {
        match self {
            Start::Barrier => None,
            Start::Window => Some(10),
            Start::RoundTime => Some(1),
        }
    }
}

/// The first time from naming a moment to the moment, which doubles whenever a rank is late for it; and the longest.
const AHEAD_S: f64 = 10e-6;
pub(super) const MOST_AHEAD_S: f64 = 10e-3;

/// The moments at which repetitions start, by a rank's clock.
pub struct Moments<'c> {
    clock: &'c Clock,
    /// Repetitions whose moments are named at once; the first one always alone, since no window is known.
    batch: usize,
    /// Of these, how many have not begun.
    left: usize,
    /// From when rank 0 names a moment to that moment.
    ahead_s: f64,
    /// From one moment to the next: longer than any rank took in the batch before.
    window_s: f64,
    /// The moment of this repetition, by rank 0's clock and by this rank's.
    named_s: f64,
    own_s: f64,
    /// The longest that this rank took in this batch, in nanoseconds.
    longest_ns: u64,
    /// This rank was late for the first moment of this batch.
    was_late: bool,
    /// Of each repetition, whether this rank came late.
    late: Vec<bool>,
}

impl<'c> Moments<'c> {
    /// Before the first repetition; none if ranks start after a barrier.
    pub fn new(start: Start, clock: &'c Clock) -> Option<Moments<'c>> {
        Some(Moments {
            clock,
            batch: start.batch()?,
            left: 0,
            ahead_s: AHEAD_S,
            window_s: 0.0,
            named_s: 0.0,
            own_s: 0.0,
            longest_ns: 0,
            was_late: false,
            late: Vec::new(),
        })
    }

    /// Waits for the next moment.
    ///
    /// # Errors
    /// When a rank does not arrive.
    pub fn wait<B: Transport>(
        &mut self,
        rank: Rank,
        barrier: &mut Barrier<B>,
    ) -> Result<(), TransportError> {
        let is_first = self.left == 0;
        if is_first {
            self.name(rank, barrier)?;
        } else {
            self.named_s += self.window_s;
        }
        self.left -= 1;
        self.own_s = self.clock.own_s(self.named_s);
        let is_late = self.clock.now_s() > self.own_s;
        if is_first {
            self.was_late = is_late;
        }
        self.late.push(is_late);
        while self.clock.now_s() < self.own_s {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Rank 0 names the first moment of a batch.
    fn name<B: Transport>(
        &mut self,
        rank: Rank,
        barrier: &mut Barrier<B>,
    ) -> Result<(), TransportError> {
        // A barrier knows which bits are set in every rank's word. The highest one is set by ranks that were in time; the
        // lowest one that is left tells the longest time of any rank, as a power of two.
        const IN_TIME: u64 = 1 << 63;
        const KNOWN: u64 = u64::MAX >> 1;
        let exponent = u64::BITS - self.longest_ns.leading_zeros();
        let in_time = if self.was_late { 0 } else { IN_TIME };
        let agreed = barrier.agree(KNOWN & u64::MAX << exponent.min(62) | in_time)?;
        if agreed & IN_TIME == 0 {
            self.ahead_s = (2.0 * self.ahead_s).min(MOST_AHEAD_S);
        }
        self.window_s = (1_u64 << (agreed & KNOWN).trailing_zeros().min(62)) as f64 * 1e-9;
        let is_first = self.late.is_empty();
        (self.longest_ns, self.left) = (0, if is_first { 1 } else { self.batch });
        let named_ns = ((self.clock.now_s() + self.ahead_s) * 1e9) as u64;
        let named_ns = barrier.agree(if rank == 0 { named_ns } else { u64::MAX })?;
        self.named_s = named_ns as f64 * 1e-9;
        Ok(())
    }

    /// The time since the moment, at the end of a repetition.
    pub fn elapsed(&mut self) -> Duration {
        let elapsed = Duration::from_secs_f64((self.clock.now_s() - self.own_s).max(0.0));
        self.longest_ns = self.longest_ns.max(elapsed.as_nanos() as u64);
        elapsed
    }

    /// Of each repetition after the warm-up, whether this rank came late.
    pub fn late(mut self, warmup: usize) -> Vec<bool> {
        self.late.split_off(warmup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{Links, run_ranks};

    /// Each rank's elapsed times and lateness over repetitions that take so long.
    fn repeated(
        start: Start,
        repetitions: usize,
        took: Duration,
    ) -> Vec<(Vec<Duration>, Vec<bool>)> {
        let links = Links::new(3, Duration::from_secs(20));
        let ended = run_ranks(&[&links], |rank| {
            let clock = Clock::default();
            let mut barrier = Barrier::new(links.join(rank));
            let mut moments = Moments::new(start, &clock).unwrap();
            let mut times = Vec::new();
            for _ in 0..repetitions {
                moments.wait(rank, &mut barrier)?;
                std::thread::sleep(took);
                times.push(moments.elapsed());
            }
            Ok::<_, TransportError>((times, moments.late(1)))
        });
        ended.unwrap()
    }

    #[test]
    fn times_are_from_the_moment_that_rank_0_names() {
        for start in [Start::Window, Start::RoundTime] {
            for (times, late) in repeated(start, 12, Duration::from_millis(2)) {
                assert_eq!(late.len(), 11, "{start:?}");
                assert!(times.iter().all(|&time| time >= Duration::from_millis(2)), "{times:?}");
            }
        }
    }

    #[test]
    fn windows_are_longer_than_the_repetitions_before() {
        let clock = Clock::default();
        let links = Links::new(2, Duration::from_secs(20));
        let windows_s = run_ranks(&[&links], |rank| {
            let mut barrier = Barrier::new(links.join(rank));
            let mut moments = Moments::new(Start::Window, &clock).unwrap();
            moments.longest_ns = [700, 1_500][rank];
            moments.name(rank, &mut barrier)?;
            let first = (moments.window_s, moments.left);
            moments.late.push(false);
            moments.longest_ns = [4_096, 20][rank];
            moments.name(rank, &mut barrier)?;
            Ok::<_, TransportError>([first, (moments.window_s, moments.left)])
        });
        for found in windows_s.unwrap() {
            assert_eq!(found, [(2_048e-9, 1), (8_192e-9, 10)]);
        }
    }

    #[test]
    fn a_barrier_has_no_moments() {
        assert!(Moments::new(Start::Barrier, &Clock::default()).is_none());
    }
}
