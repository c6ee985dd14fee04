//! How a machine changed during a sweep: the base case at the beginning, in the middle and at the end.

use std::fmt;

use results::block::Outline;
use results::statistics::median;

/// The base case's blocks in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The case.
    pub case: String,
    /// The median step time of each block, in microseconds; two blocks or more.
    pub blocks_us: Vec<f64>,
}

impl Drift {
    /// From the blocks of a case; none below two.
    pub fn of(case: &str, blocks: &[&Outline]) -> Option<Drift> {
        let blocks_us: Vec<f64> =
            blocks.iter().filter_map(|block| median(block.times_us.clone())).collect();
        (blocks_us.len() > 1).then(|| Drift { case: case.into(), blocks_us })
    }

    /// By how much blocks differ from the next, in percent: the median. None below three blocks.
    fn neighbours_percent(&self) -> Option<f64> {
        let differences = self.blocks_us.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs());
        let middle = median(differences.collect()).filter(|_| self.blocks_us.len() > 2)?;
        Some(100.0 * middle.exp_m1())
    }
}

/// Without an interval: two blocks do not tell how much others would differ.
impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.blocks_us.len();
        let ms = |block: usize| self.blocks_us[block] / 1e3;
        write!(f, "drift: {} took {:.1} ms in the first of {count} blocks", self.case, ms(0))?;
        if count > 2 {
            write!(f, ", {:.1} ms in the middle one", ms(count / 2))?;
        }
        let ratio = ms(count - 1) / ms(0);
        write!(f, ", {:.1} ms in the last; last over first {ratio:.3}", ms(count - 1))?;
        if let Some(percent) = self.neighbours_percent() {
            write!(f, ", while blocks differ from the next by {percent:.1} %")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(times_us: &[f64]) -> Outline {
        Outline { times_us: times_us.to_vec(), ..Outline::default() }
    }

    #[test]
    fn the_last_block_is_compared_with_the_first() {
        let first = block(&[100e3, 101e3, 102e3, 103e3]);
        let middle = block(&[300e3; 4]);
        let last = block(&[110e3, 111e3, 112e3, 114e3]);
        let drift = Drift::of("base", &[&first, &middle, &last]).unwrap();
        assert_eq!(
            drift.to_string(),
            "drift: base took 101.5 ms in the first of 3 blocks, 300.0 ms in the middle one, 111.5 ms in the last; last \
             over first 1.099, while blocks differ from the next by 182.0 %"
        );
    }

    #[test]
    fn two_blocks_do_not_tell_how_they_vary_and_one_has_no_drift() {
        let (first, last) = (block(&[100e3, 101e3, 102e3]), block(&[202e3, 202e3, 202e3]));
        assert_eq!(
            Drift::of("base", &[&first, &last]).unwrap().to_string(),
            "drift: base took 101.0 ms in the first of 2 blocks, 202.0 ms in the last; last over first 2.000"
        );
        assert_eq!(Drift::of("base", &[&first]), None);
    }
}
