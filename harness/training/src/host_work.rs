//! Work like that of a framework around a gradient, and of Horovod's loop: names, hash tables and small allocations.
//!
//! How long such work takes depends on who else uses the core's caches. On a host whose neighbours were busy, a call of Horovod
//! took 8.1 us at best and 18 us at worst within a minute. A loop over names became slower and faster with it, while arithmetic
//! in registers always took the same time. So a thread does not wait for a time to pass: it does as much work as takes this
//! time where nothing slows it down.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Works for this time, or longer where something slows the thread down.
pub fn work(time: Duration) {
    if !time.is_zero() {
        NAMES.with_borrow_mut(|names| names.work(time));
    }
}

thread_local! {
    static NAMES: RefCell<Names> = RefCell::new(Names::new());
}

/// The shortest time in which any thread has looked up a name, in picoseconds.
static FASTEST_PS: AtomicU64 = AtomicU64::new(u64::MAX);

/// So many names do not fit into a core's first cache.
const COUNT: usize = 1000;

/// Names that are timed at first, in each of so many trials.
const TRIED: u64 = 100;
const TRIALS: usize = 20;

/// Fewer names tell no time: reading the clock counts.
const LEAST: u64 = 32;

/// Names that were looked up before.
struct Names {
    seen: HashMap<String, u64>,
    next: usize,
}

impl Names {
    fn new() -> Names {
        let mut names = Names { seen: HashMap::new(), next: 0 };
        (0..COUNT).for_each(|_| names.look_up());
        (0..TRIALS).for_each(|_| names.work_on(TRIED, Duration::ZERO));
        names
    }

    fn work(&mut self, time: Duration) {
        let ps = 1000 * time.as_nanos() as u64;
        self.work_on(ps.div_ceil(FASTEST_PS.load(Ordering::Relaxed)), time);
    }

    /// Looks up so many names, and more if that takes less than `least`.
    fn work_on(&mut self, mut count: u64, least: Duration) {
        let start = Instant::now();
        (0..count).for_each(|_| self.look_up());
        let mut elapsed = start.elapsed();
        while elapsed < least {
            self.look_up();
            count += 1;
            elapsed = start.elapsed();
        }
        if count >= LEAST {
            let ps = 1000 * elapsed.as_nanos() as u64 / count;
            FASTEST_PS.fetch_min(ps.max(1), Ordering::Relaxed);
        }
    }

    /// Composes a name, looks it up, and forgets it.
    fn look_up(&mut self) {
        let name = format!("gradient.{}.weight", self.next);
        *self.seen.entry(name).or_default() += 1;
        self.next = (self.next + 1) % COUNT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_the_time_at_least() {
        for us in [0, 1, 50, 3000] {
            let (time, start) = (Duration::from_micros(us), Instant::now());
            work(time);
            assert!(start.elapsed() >= time);
        }
    }

    #[test]
    fn work_is_as_many_names_as_take_the_time_at_the_best() {
        let mut names = Names::new();
        let looked_up = |names: &Names| names.seen.values().sum::<u64>();
        for us in [20, 4000] {
            // Another thread may find out that names take less.
            let fastest_ps = FASTEST_PS.load(Ordering::Relaxed);
            let before = looked_up(&names);
            names.work(Duration::from_micros(us));
            let count = looked_up(&names) - before;
            assert!(count * fastest_ps >= 1_000_000 * us, "{count} names in {us} us");
        }
    }
}
