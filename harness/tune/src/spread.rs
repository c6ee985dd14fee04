//! Rounds that are spread over a longer time than they take.
//!
//! A virtual machine was seen to change the speed of its messages and copies by 15 to 20 %, for 10 s to three minutes each.
//! Rounds that follow each other within seconds see one such speed, and training sees all of them.
//!
//! Where a hypervisor moves the processors, a gain is that of one placement ([`results::core_to_core`]). Rounds wait for it,
//! since the others would not count.

use std::thread::sleep;
use std::time::{Duration, Instant};

use results::core_to_core::are_alike;

/// Rounds are spread over so long ...
const LONGEST: Duration = Duration::from_secs(120);

/// ... but not over more than this part of the time that is left ...
const PART: f64 = 0.5;

/// ... nor over more than so many times what the search took.
const FACTOR: u32 = 3;

/// How long rounds are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread(Duration);

impl Spread {
    /// After a search that took so long, with so much time left.
    pub fn of(used: Duration, left: Duration) -> Spread {
        Spread(LONGEST.min(left.mul_f64(PART)).min(FACTOR * used))
    }

    /// How long to wait before this one of so many rounds, if the first began so long ago.
    pub fn rest(self, ago: Duration, round: usize, rounds: usize) -> Duration {
        let due = self.0.mul_f64(round as f64 / rounds.max(1) as f64);
        due.saturating_sub(ago)
    }

    /// How long a round may wait until processors are as far apart as they should be, if earlier ones have waited so long, with
    /// so much time left: all rounds together as long as they are spread over.
    pub fn patience(self, awaited: Duration, left: Duration) -> Duration {
        self.0.saturating_sub(awaited).min(left.mul_f64(PART))
    }
}

/// Between two looks at the processors.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until processors are this far apart, in nanoseconds, but not longer than `patience`. `look` tells how far they are;
/// nothing where they do not move. Returns how long it has waited.
pub fn until_alike(
    core_to_core_ns: Option<f64>,
    patience: Duration,
    look: impl Fn() -> Option<f64>,
) -> Duration {
    let Some(expected_ns) = core_to_core_ns else { return Duration::ZERO };
    let begun = Instant::now();
    while begun.elapsed() < patience && look().is_some_and(|ns| !are_alike(ns, expected_ns)) {
        sleep(LOOK);
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rounds_are_spread_over_two_minutes_but_not_over_all_time() {
        let of = |used: u64, left: u64| Spread::of(seconds(used), seconds(left)).0;
        assert_eq!(of(60, 600), seconds(120));
        assert_eq!(of(60, 100), seconds(50), "half of what is left");
        assert_eq!(of(10, 600), seconds(30), "three times the search");
        assert_eq!(of(10, 0), seconds(0));
    }

    #[test]
    fn rounds_begin_at_equal_distances_unless_they_take_longer() {
        let spread = Spread(seconds(100));
        assert_eq!(spread.rest(seconds(0), 0, 20), seconds(0), "the first at once");
        assert_eq!(spread.rest(seconds(2), 1, 20), seconds(3));
        assert_eq!(spread.rest(seconds(50), 19, 20), seconds(45));
        assert_eq!(spread.rest(seconds(9), 1, 20), seconds(0), "it is late");
        assert_eq!(spread.rest(seconds(0), 0, 0), seconds(0));
    }

    #[test]
    fn waiting_leaves_time_for_the_round() {
        let spread = Spread(seconds(100));
        assert_eq!(spread.patience(seconds(0), seconds(600)), seconds(100));
        assert_eq!(spread.patience(seconds(70), seconds(600)), seconds(30));
        assert_eq!(spread.patience(seconds(70), seconds(20)), seconds(10), "half of what is left");
        assert_eq!(spread.patience(seconds(120), seconds(600)), seconds(0));
    }

    #[test]
    fn rounds_wait_until_processors_are_back_but_not_forever() {
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 3 { 40.0 } else { 190.0 })
        };
        assert_eq!(until_alike(None, seconds(9), look), seconds(0));
        assert!(until_alike(Some(185.0), seconds(9), look) >= 2 * LOOK && looks.get() == 3);
        assert!(until_alike(Some(185.0), seconds(9), look) < LOOK, "they are there");
        assert!(until_alike(Some(40.0), LOOK, look) >= LOOK, "they do not come back");
        assert!(until_alike(Some(40.0), seconds(9), || None) < LOOK, "they do not move");
    }
}
