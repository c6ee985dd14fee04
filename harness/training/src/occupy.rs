//! A thread that is busy for a time.

use std::time::{Duration, Instant};

use results::usage::cpu_time;

/// Occupies a core until this thread has had one for that long.
pub fn occupy(time: Duration) {
    if time > SHORT {
        Occupied::begin().until(time);
    } else {
        spin(time);
    }
}

/// A thread seldom loses its core in so short a time. So the wall clock tells the time on a core, and is read in a tenth of
/// the time: the other takes a system call, which made a time of 0.4 us one of 1.1 us.
const SHORT: Duration = Duration::from_micros(100);

/// Occupies a core for so long by the wall clock.
fn spin(time: Duration) {
    if time.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A time on a core that has begun. Falling asleep and waking up count.
pub struct Occupied {
    /// Time on a core before, where the system tells it.
    cpu: Option<Duration>,
    start: Instant,
}

impl Occupied {
    /// Begins now.
    pub fn begin() -> Occupied {
        Occupied { cpu: cpu_time(), start: Instant::now() }
    }

    /// Occupies a core until this thread has had one for that long since the beginning.
    pub fn until(&self, time: Duration) {
        while let Some(left) = time.checked_sub(self.spent()).filter(|left| !left.is_zero()) {
            spin(left.min(SHORT));
        }
    }

    fn spent(&self) -> Duration {
        match (self.cpu, cpu_time()) {
            (Some(before), Some(now)) => now - before,
            _ => self.start.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_on_a_core_for_as_long_as_it_is_asked() {
        let ms = Duration::from_millis(1);
        let before = cpu_time();
        let occupied = Occupied::begin();
        std::thread::sleep(ms);
        occupied.until(2 * ms);
        occupy(ms);
        occupy(Duration::ZERO);
        let spent = before.zip(cpu_time()).map_or(3 * ms, |(before, now)| now - before);
        assert!(spent >= 3 * ms, "sleeping takes no core: {spent:?}");
    }
}
