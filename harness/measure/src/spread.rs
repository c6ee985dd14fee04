//! Where the spread of a sweep's times comes from: launches, blocks or steps.

use std::fmt;

use results::nested::{Components, Nested};

/// Mean shares of the variance of a case's median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The shares.
    pub shares: Components,
    /// Cases that have them.
    pub cases: usize,
}

/// A level with this share of the variance is the one to have more of.
const MOST: f64 = 2.0 / 3.0;

impl Spread {
    /// From the step times of each case; none if no case has two blocks.
    pub fn of(cases: impl Iterator<Item = Nested>) -> Option<Spread> {
        let known: Vec<Components> = cases.filter_map(|case| case.components()).collect();
        let count = known.len() as f64;
        let mean = |share: fn(&Components) -> f64| known.iter().map(share).sum::<f64>() / count;
        let launch = |one: &Components| one.launch.unwrap_or(0.0);
        let shares = Components {
            launch: known.iter().all(|one| one.launch.is_some()).then(|| mean(launch)),
            block: mean(|one| one.block),
            step: mean(|one| one.step),
            effective_samples: mean(|one| one.effective_samples),
        };
        (!known.is_empty()).then_some(Spread { shares, cases: known.len() })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Components { launch, block, step, effective_samples } = self.shares;
        let percent = |share: f64| (100.0 * share).round();
        let cases = if self.cases == 1 { "case" } else { "cases" };
        write!(f, "spread: of the variance of a median, ")?;
        if let Some(launch) = launch {
            write!(f, "{} % is between launches, ", percent(launch))?;
        }
        write!(
            f,
            "{} % between blocks, {} % between steps (mean of {} {cases})",
            percent(block),
            percent(step),
            self.cases
        )?;
        match launch {
            Some(launch) if launch >= MOST => {
                write!(f, "; more blocks in one launch hardly help, more launches do")
            }
            _ if block >= MOST => write!(f, "; more steps in a block hardly help, more blocks do"),
            None => write!(f, "; another launch may differ by more"),
            Some(_) => Ok(()),
        }?;
        write!(f, "; the steps of a case tell as much as {effective_samples:.1} independent ones")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of each launch, with steps that hardly differ.
    fn nested(levels: &[[f64; 2]]) -> Nested {
        let launch = |(launch, levels): (usize, &[f64; 2])| {
            let block = |(block, level): (usize, &f64)| {
                [0.999, 1.0, 1.001].map(|noise| (launch, block, level * noise))
            };
            levels.iter().enumerate().flat_map(block).collect::<Vec<_>>()
        };
        levels.iter().enumerate().flat_map(launch).collect()
    }

    #[test]
    fn the_level_with_most_of_the_spread_is_named() {
        let said =
            |levels: &[[f64; 2]]| Spread::of([nested(levels)].into_iter()).unwrap().to_string();
        let blocks = said(&[[1.0, 1.2]]);
        assert_eq!(
            blocks,
            "spread: of the variance of a median, 100 % between blocks, 0 % between steps (mean of 1 case); more steps in a \
             block hardly help, more blocks do; the steps of a case tell as much as 2.0 independent ones"
        );
        let launches = said(&[[1.0, 1.01], [1.2, 1.21], [1.4, 1.41]]);
        assert!(launches.contains("% is between launches, 0 % between blocks"), "{launches}");
        assert!(
            launches.contains(
                "; more blocks in one launch hardly help, more launches do; the steps of"
            )
        );
        let steps = said(&[[1.0, 1.0]]);
        assert!(steps.contains("0 % between blocks, 100 % between steps"), "{steps}");
        assert!(
            steps.contains("another launch may differ by more; the steps of a case"),
            "{steps}"
        );
    }

    #[test]
    fn one_block_has_no_spread_between_blocks() {
        let one: Nested = [(1, 0, 2.0), (1, 0, 3.0)].into_iter().collect();
        assert_eq!(Spread::of([one].into_iter()), None);
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
