//! A thread that is busy for a time.

use std::time::{Duration, Instant};

use results::usage::cpu_time;

/// A thread seldom loses its core in so short a time, so the wall clock tells the time on a core. Reading the other clock takes
/// a system call.
const SHORT: Duration = Duration::from_micros(100);

/// Occupies a core for so long by the wall clock.
fn spin(time: Duration) {
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
        let spent = before.zip(cpu_time()).map_or(2 * ms, |(before, now)| now - before);
        assert!(spent >= 2 * ms, "sleeping takes no core: {spent:?}");
    }
}
