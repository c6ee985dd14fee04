//! How late background threads wake up for their cycles.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::machine_file::Control;

/// A stream of random numbers that neither steps nor GPUs use.
const WAKING: u64 = u64::MAX - 1;

/// The last of all ranks to wake up, cycle after cycle.
pub(super) struct Late {
    /// Of one rank; 0: never late.
    mean_s: f64,
    ranks: f64,
    random: ChaCha8Rng,
    /// Drawn, and not used yet.
    drawn_s: f64,
}

impl Late {
    /// As the machine file says; the same seed and world are late by the same times.
    pub fn new(control: &Control, ranks: usize, seed: u64) -> Late {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(WAKING);
        let mean_s = control.late_us.as_ref().map_or(0.0, |late| late.value * 1e-6);
        let mut late = Late { mean_s, ranks: ranks as f64, random, drawn_s: 0.0 };
        late.draw();
        late
    }

    /// No rank is ever late.
    pub fn is_never(&self) -> bool {
        self.mean_s == 0.0
    }

    /// The longest of exponentially distributed times, one for each rank.
    fn draw(&mut self) {
        if !self.is_never() {
            self.drawn_s = longest(self.mean_s, self.ranks, &mut self.random);
        }
    }

    /// When the cycle begins that is due at a time; at the end of the one before if that is later, since no thread sleeps
    /// then.
    pub fn peek_s(&self, over_s: f64, due_s: f64) -> f64 {
        if over_s < due_s { due_s + self.drawn_s } else { over_s }
    }

    /// The same, and the next cycle is late by another time.
    pub fn next_s(&mut self, over_s: f64, due_s: f64) -> f64 {
        let begin_s = self.peek_s(over_s, due_s);
        self.draw();
        begin_s
    }
}

/// The longest of so many exponentially distributed times of a mean.
pub(super) fn longest(mean: f64, count: f64, random: &mut ChaCha8Rng) -> f64 {
    let share: f64 = random.random();
    // Almost 1 if there are many.
    let root = (share.max(f64::MIN_POSITIVE).ln() / count).exp_m1();
    -mean * (-root).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_file::{MachineFile, Parameter};
    use results::toml_file::Checked;
    use std::path::Path;

    fn control(late_us: Option<f64>) -> Control {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines/summit.toml");
        let control = MachineFile::read(Path::new(path)).unwrap().control.unwrap();
        let parameter = |value| Parameter { value, low: None, high: None, source: "a test".into() };
        Control { late_us: late_us.map(parameter), ..control }
    }

    #[test]
    fn the_last_of_many_is_as_late_as_order_statistics_say() {
        // The sum of 1/k up to n.
        for (ranks, expected) in [(1, 1.0), (6, 2.45), (96, 5.15), (27_600, 10.80)] {
            let mut late = Late::new(&control(Some(50.0)), ranks, 1);
            let mean_s = (0..20_000).map(|_| late.next_s(0.0, 1.0) - 1.0).sum::<f64>() / 2e4;
            assert!((mean_s / 50e-6 / expected - 1.0).abs() < 0.03, "{ranks}: {mean_s}");
        }
    }

    #[test]
    fn only_threads_that_sleep_are_late() {
        let mut late = Late::new(&control(Some(50.0)), 6, 1);
        assert_eq!(late.next_s(2.0, 1.0), 2.0);
        let expected_s = late.peek_s(0.0, 1.0);
        assert!(expected_s > 1.0);
        assert_eq!(late.next_s(0.0, 1.0), expected_s);
        let mut never = Late::new(&control(None), 6, 1);
        assert!(never.is_never());
        assert_eq!(never.next_s(0.0, 1.0), 1.0);
    }
}
