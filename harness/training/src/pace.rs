//! The start of the next cycle: Horovod's deadline semantics.

use std::time::{Duration, Instant};

/// When cycles of a background loop begin. The cycle time runs from the beginning of one cycle to that of
/// the next; a longer cycle is followed at once, and missed cycles are not made up for.
pub struct Pace {
    cycle_time: Duration,
    last: Instant,
}

impl Pace {
    /// A loop whose last cycle starts now.
    pub fn new(cycle_time: Duration, now: Instant) -> Pace {
        Pace { cycle_time, last: now }
    }

    /// How long to sleep before the next cycle; not at all if it is due.
    pub fn until_next(&self, now: Instant) -> Option<Duration> {
        self.cycle_time.checked_sub(now - self.last).filter(|wait| !wait.is_zero())
    }

    /// A cycle begins.
    pub fn begin(&mut self, now: Instant) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Cycles of the given lengths, one after the other: when each begins.
    fn begins(cycle_time: Duration, lengths: &[u32]) -> Vec<u128> {
        let t0 = Instant::now();
        let mut pace = Pace::new(cycle_time, t0);
        let mut now = t0;
        let begin = |length: &u32| {
            now += pace.until_next(now).unwrap_or_default();
            pace.begin(now);
            let begun = now - t0;
            now += *length * MS;
            begun.as_millis()
        };
        lengths.iter().map(begin).collect()
    }

    #[test]
    fn short_cycles_begin_at_their_deadline() {
        assert_eq!(begins(5 * MS, &[1, 0, 4, 5, 2]), [5, 10, 15, 20, 25]);
    }

    #[test]
    fn a_long_cycle_is_followed_at_once_and_missed_ones_are_not_made_up_for() {
        assert_eq!(begins(5 * MS, &[1, 17, 1, 1]), [5, 10, 27, 32]);
    }

    #[test]
    fn without_a_cycle_time_there_is_no_sleep() {
        assert_eq!(begins(Duration::ZERO, &[2, 0, 3, 1]), [0, 2, 2, 5]);
    }
}
