//! Rounds that are spread over a longer time than they take.
//!
//! A virtual machine was seen to change the speed of its messages and copies by 15 to 20 %, for 10 s to three minutes each.
//! Rounds that follow each other within seconds see one such speed, and training sees all of them.
//!
//! Where a hypervisor moves the processors, a gain is that of one placement ([`results::core_to_core`]). Rounds wait for the one
//! that processors have while nothing is measured, since waiting brings them back to it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use results::core_to_core::{LOOK, are_alike, usual_ns};

/// Rounds are spread over so long ...
const LONGEST: Duration = Duration::from_secs(120);

/// ... but not over more than this part of the time that is left ...
const PART: f64 = 0.5;

/// ... nor over more than so many times what the search took.
const FACTOR: u32 = 3;

/// This part of it passes before the first round where processors may move: they may be elsewhere after a search without rests.
const SETTLING: f64 = 1.0 / 12.0;

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

    /// How long the first round waits where processors may move, which tells where they are without load.
    pub fn settling(self) -> Duration {
        self.0.mul_f64(SETTLING)
    }

    /// How long a round may wait until processors are where they should be, if earlier ones have waited so long, with so much
    /// time left: all rounds together as long as they are spread over.
    pub fn patience(self, awaited: Duration, left: Duration) -> Duration {
        self.0.saturating_sub(awaited).min(left.mul_f64(PART))
    }
}

/// How far apart the processors of a virtual machine are while nothing is measured, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Resting(Vec<f64>);

impl Resting {
    /// Lets `rest` pass, and then at most `patience` until processors are as far apart as they mostly are at rest. `look`
    /// tells how far apart they are; nothing where they do not move. Returns how long it has waited for them.
    pub fn pass(
        &mut self,
        rest: Duration,
        patience: Duration,
        look: impl Fn() -> Option<f64>,
    ) -> Duration {
        let begun = Instant::now();
        while let Some(here_ns) = look() {
            self.0.push(here_ns);
            let passed = begun.elapsed();
            if let Some(left) = rest.checked_sub(passed) {
                sleep(left.min(LOOK));
            } else if passed >= rest + patience || self.is_usual(here_ns) {
                return passed - rest;
            } else {
                sleep(LOOK);
            }
        }
        sleep(rest.saturating_sub(begun.elapsed()));
        begun.elapsed().saturating_sub(rest)
    }

    fn is_usual(&self, here_ns: f64) -> bool {
        usual_ns(&self.0).is_some_and(|usual_ns| are_alike(here_ns, usual_ns))
    }
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
    fn the_first_round_waits_for_a_part_of_the_spread() {
        assert_eq!(Spread(seconds(120)).settling(), seconds(10));
    }

    #[test]
    fn rounds_wait_until_processors_are_back_but_not_forever() {
        let looks = Cell::new(0);
        let at = |far: std::ops::Range<usize>| {
            looks.set(0);
            let looks = &looks;
            move || {
                looks.set(looks.get() + 1);
                Some(if far.contains(&looks.get()) { 190.0 } else { 40.0 })
            }
        };
        let mut resting = Resting::default();
        assert!(resting.pass(5 * LOOK, seconds(9), at(0..2)) < LOOK, "they are back");
        assert!(resting.pass(seconds(0), seconds(9), at(0..3)) >= 2 * LOOK && looks.get() == 3);
        assert!(resting.pass(seconds(0), seconds(9), at(0..0)) < LOOK, "they are there");
        let mut waited = resting.clone();
        assert!(waited.pass(seconds(0), LOOK, at(0..99)) >= LOOK, "they do not come back");
        assert!(resting.pass(seconds(0), seconds(99), at(0..99)) < 9 * LOOK, "they rest there now");
        assert!(Resting::default().pass(LOOK, seconds(9), || None) < LOOK, "they do not move");
    }
}
