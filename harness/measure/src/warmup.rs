//! Whether the warm-up of blocks was long enough.
//!
//! If a warm-up is over, the steps of a block that count come in any order of length: the first is the slowest of `n`
//! with probability `1 / n`, whatever their distribution. More often, and by more than matters, means that the first
//! still belonged to the warm-up.

use std::fmt;

use results::block::Outline;
use results::statistics::{at_least, median};

/// A first step that is longer by less does not matter.
const MATTERS: f64 = 0.02;

/// A warm-up that is over is found too short with at most this probability.
const ERROR: f64 = 1e-3;

/// Fewer steps have no median beside the first.
const STEPS_MIN: usize = 3;

/// The first steps of blocks are slower than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooShort {
    /// The first step over the median of the others, minus 1: the median over blocks.
    pub excess: f64,
}

/// The first steps of blocks with the same warm-up, beside the others.
#[derive(Debug, Default)]
pub struct FirstSteps {
    /// Each first step over the median of the others of its block, minus 1.
    excesses: Vec<f64>,
    /// Blocks whose first step is the slowest.
    slowest: u64,
    /// Steps of the shortest block.
    steps_min: Option<usize>,
}

impl FirstSteps {
    /// Adds those of a block, if it has enough steps.
    pub fn add(&mut self, block: &Outline) {
        let Some((first, others)) = block.times_us.split_first() else { return };
        let Some(usual) = median(others.to_vec()).filter(|_| others.len() + 1 >= STEPS_MIN) else {
            return;
        };
        let longest = others.iter().copied().fold(0.0, f64::max);
        self.slowest += u64::from(*first > longest);
        self.excesses.push(first / usual - 1.0);
        let steps = block.times_us.len();
        self.steps_min = Some(self.steps_min.map_or(steps, |least| least.min(steps)));
    }

    /// Whether the warm-up is too short; none if the blocks do not show it.
    pub fn too_short(self) -> Option<TooShort> {
        let count = self.excesses.len() as u64;
        let by_chance = at_least(self.slowest, count, 1.0 / self.steps_min? as f64);
        let excess = median(self.excesses)?;
        (by_chance <= ERROR && excess > MATTERS).then_some(TooShort { excess })
    }
}

/// A warm-up that grew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmup {
    /// Its steps in the configuration.
    pub configured: usize,
    /// Its steps in the blocks that count.
    pub needed: usize,
    /// These blocks still begin with a slower step.
    pub too_short: Option<TooShort>,
}

impl fmt::Display for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warmup { configured, needed, too_short } = self;
        if needed > configured {
            write!(
                f,
                "warm-up: {configured} step(s) were too few, and blocks were measured again with {needed} \
                 (measure.warmup_steps = {needed} saves that)"
            )?;
        }
        if let Some(TooShort { excess }) = too_short {
            let start = if needed > configured { "; " } else { "warm-up: " };
            write!(
                f,
                "{start}the first step after {needed} is still {:.0} % longer than the others (measure.warmup_steps_max)",
                100.0 * excess
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Blocks of five steps, of which the first takes so much longer.
    fn blocks(count: usize, excess: f64, random: &mut ChaCha8Rng) -> Vec<Outline> {
        let mut step_us = |first: bool| {
            let noise = 1.0 + 0.05 * random.random::<f64>();
            1e3 * noise * if first { 1.0 + excess } else { 1.0 }
        };
        let mut times_us = || (0..5).map(|at| step_us(at == 0)).collect();
        (0..count).map(|_| Outline { times_us: times_us(), ..Outline::default() }).collect()
    }

    fn too_short(blocks: &[Outline]) -> Option<TooShort> {
        let mut first_steps = FirstSteps::default();
        blocks.iter().for_each(|block| first_steps.add(block));
        first_steps.too_short()
    }

    #[test]
    fn a_first_step_that_is_longer_shows() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let found = too_short(&blocks(12, 0.2, &mut random)).unwrap();
        assert!((0.15..0.25).contains(&found.excess), "{found:?}");
        assert_eq!(too_short(&blocks(2, 0.2, &mut random)), None, "two blocks may be chance");
        assert_eq!(too_short(&[]), None);
    }

    #[test]
    fn a_warm_up_that_is_over_is_hardly_ever_found_too_short() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let found = (0..1000).filter(|_| too_short(&blocks(24, 0.0, &mut random)).is_some());
        assert!(found.count() <= 3);
    }

    #[test]
    fn a_longer_warm_up_is_told() {
        let told = |needed, too_short| Warmup { configured: 1, needed, too_short }.to_string();
        assert_eq!(
            told(4, None),
            "warm-up: 1 step(s) were too few, and blocks were measured again with 4 (measure.warmup_steps = 4 saves that)"
        );
        let still = Some(TooShort { excess: 0.25 });
        assert!(told(16, still).ends_with(
            "saves that); the first step after 16 is still 25 % longer than the others (measure.warmup_steps_max)"
        ));
        assert!(told(1, still).starts_with("warm-up: the first step after 1 is still 25 % longer"));
    }

    #[test]
    fn a_first_step_that_is_faster_is_none_of_its_business() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        assert_eq!(too_short(&blocks(48, -0.1, &mut random)), None);
    }
}
