//! How a machine changed during a sweep: the base case at the beginning, in the middle and at the end.

use std::fmt;

use results::block::Block;
use results::compare::Ratio;
use results::statistics::median;

/// The base case's blocks in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The case.
    pub case: String,
    /// The median step time of each block, in microseconds; two blocks or more.
    pub blocks_us: Vec<f64>,
    /// The steps of the last block over those of the first; none below 4 steps.
    pub ratio: Option<Ratio>,
}

impl Drift {
    /// From the blocks of a case; none below two.
    pub fn of(case: &str, blocks: &[&Block]) -> Option<Drift> {
        let [first, .., last] = blocks else { return None };
        let steps = |block: &&Block| -> Vec<f64> {
            block.samples.iter().map(|sample| sample.time_us).collect()
        };
        let blocks_us = blocks.iter().filter_map(|block| median(steps(block))).collect();
        let ratio = Ratio::of(&steps(last), &steps(first));
        Some(Drift { case: case.into(), blocks_us, ratio })
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.blocks_us.len();
        let ms = |block: usize| self.blocks_us[block] / 1e3;
        write!(f, "drift: {} took {:.1} ms in the first of {count} blocks", self.case, ms(0))?;
        if count > 2 {
            write!(f, ", {:.1} ms in the middle one", ms(count / 2))?;
        }
        write!(f, ", {:.1} ms in the last; last over first ", ms(count - 1))?;
        match self.ratio {
            Some(Ratio { ratio, low, high }) => write!(
                f,
                "{ratio:.3} [{low:.3}, {high:.3}] (95 % interval, if the steps of a block are independent)"
            ),
            None => write!(
                f,
                "{:.3} (no interval: fewer than 4 steps in a block)",
                ms(count - 1) / ms(0)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::block::Sample;

    fn block(times_us: &[f64]) -> Block {
        let sample = |&time_us: &f64| Sample { time_us, ..Sample::default() };
        Block { samples: times_us.iter().map(sample).collect(), ..Block::default() }
    }

    #[test]
    fn the_last_block_is_compared_with_the_first() {
        let first = block(&[100e3, 101e3, 102e3, 103e3]);
        let middle = block(&[300e3; 4]);
        let last = block(&[110e3, 111e3, 112e3, 114e3]);
        let drift = Drift::of("base", &[&first, &middle, &last]).unwrap();
        // Of four and four values, the interval covers all ratios: from 110/103 to 114/100.
        assert_eq!(
            drift.to_string(),
            "drift: base took 101.5 ms in the first of 3 blocks, 300.0 ms in the middle one, 111.5 ms in the last; last \
             over first 1.100 [1.068, 1.140] (95 % interval, if the steps of a block are independent)"
        );
    }

    #[test]
    fn few_steps_have_no_interval_and_one_block_no_drift() {
        let (first, last) = (block(&[100e3, 101e3, 102e3]), block(&[202e3, 202e3, 202e3]));
        assert_eq!(
            Drift::of("base", &[&first, &last]).unwrap().to_string(),
            "drift: base took 101.0 ms in the first of 2 blocks, 202.0 ms in the last; last over first 2.000 (no \
             interval: fewer than 4 steps in a block)"
        );
        assert_eq!(Drift::of("base", &[&first]), None);
    }
}
