//! Whether a machine kept its speed during a sweep.
//!
//! Blocks follow each other in time. Each is compared with the usual block of its case, so that cases do not matter, and
//! the series is divided where its level changes.

use std::fmt;

use results::block::Block;
use results::levels::{Segment, segments};
use results::statistics::median;

/// Levels that differ by less do not matter.
const MATTERS: f64 = 0.03;

/// A machine that changed its speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsteady {
    /// Blocks of one speed; the level is the logarithm of the time in parts of the usual one.
    pub segments: Vec<Segment>,
    /// All blocks.
    pub blocks: usize,
}

impl Unsteady {
    /// From all blocks of each case; none if the speed did not change by more than 3 %.
    pub fn of(cases: &[Vec<&Block>]) -> Option<Unsteady> {
        let mut series: Vec<((usize, usize), f64)> = Vec::new();
        for blocks in cases {
            let times: Vec<((usize, usize), f64)> =
                blocks.iter().filter_map(|block| time(block)).collect();
            let usual = median(times.iter().map(|&(_, time)| time).collect());
            series.extend(times.into_iter().map(|(at, time)| (at, time - usual.unwrap_or(time))));
        }
        series.sort_by_key(|&(at, _)| at);
        let values: Vec<f64> = series.into_iter().map(|(_, value)| value).collect();
        let segments = segments(&values);
        let levels = || segments.iter().map(|segment| segment.level);
        let (least, most) = (levels().fold(f64::MAX, f64::min), levels().fold(f64::MIN, f64::max));
        (most - least > MATTERS.ln_1p()).then_some(Unsteady { segments, blocks: values.len() })
    }
}

/// When a block was measured, and the logarithm of its median.
fn time(block: &Block) -> Option<((usize, usize), f64)> {
    let first = block.samples.first()?;
    let times = block.samples.iter().map(|sample| sample.time_us).collect();
    Some(((first.block, first.order), median(times)?.ln()))
}

/// More segments are not listed.
const LISTED: usize = 6;

impl fmt::Display for Unsteady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks;
        write!(f, "the machine changed its speed: of {blocks} blocks in the order of time, ")?;
        for (at, Segment { at: blocks, level }) in self.segments.iter().take(LISTED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let percent = 100.0 * level.exp_m1();
            write!(f, "{comma}{} to {} took {percent:+.0} %", blocks.start + 1, blocks.end)?;
        }
        let left = self.segments.len().saturating_sub(LISTED);
        if left > 0 {
            write!(f, ", and {left} more levels")?;
        }
        write!(f, " of the usual time; ratios of cases are by round, and hardly affected")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::block::Sample;

    /// Four cases in rounds of one block each; the machine takes this much longer in each round.
    fn sweep(levels: &[f64]) -> Vec<Vec<Block>> {
        let block = |case: usize, round: usize| {
            let noise = 0.002 * ((7 * case + 5 * round) % 11) as f64;
            let time_us = 1e3 * (case + 1) as f64 * levels[round] * (1.0 + noise);
            let sample = Sample { time_us, block: round, order: case, ..Sample::default() };
            Block { samples: vec![sample], ..Block::default() }
        };
        (0..4).map(|case| (0..levels.len()).map(|round| block(case, round)).collect()).collect()
    }

    fn unsteady(levels: &[f64]) -> Option<Unsteady> {
        let all = sweep(levels);
        Unsteady::of(&all.iter().map(|blocks| blocks.iter().collect()).collect::<Vec<_>>())
    }

    #[test]
    fn a_machine_that_slows_down_is_reported_with_its_blocks() {
        let said = unsteady(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2]).unwrap().to_string();
        assert!(
            said.starts_with(
                "the machine changed its speed: of 32 blocks in the order of time, 1 to 20 took"
            ),
            "{said}"
        );
        assert!(
            said.contains("21 to 32 took +20 %") || said.contains("21 to 32 took +19 %"),
            "{said}"
        );
    }

    #[test]
    fn a_steady_machine_is_not_reported() {
        assert_eq!(unsteady(&[1.0; 8]), None);
        assert_eq!(unsteady(&[1.0, 1.0, 1.01, 1.01, 1.01, 1.0]), None, "1 % does not matter");
        assert_eq!(Unsteady::of(&[]), None);
    }
}
