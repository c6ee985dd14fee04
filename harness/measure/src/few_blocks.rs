//! Cases whose times have no interval, because too few blocks do not show how much blocks differ.

use std::fmt;

use results::nested::{BLOCKS_MIN, CORRELATED_MIN, LAUNCHES_MIN};
use results::row::StepRow;

/// Cases with too few blocks for an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FewBlocks {
    /// How many.
    pub cases: usize,
}

impl FewBlocks {
    /// From the rows of a sweep; none if no case has too few.
    pub fn of(rows: &[StepRow]) -> Option<FewBlocks> {
        let is_few = |row: &&StepRow| {
            row.outcome.right().is_some_and(|result| {
                let effort = &result.effort;
                effort.launches < LAUNCHES_MIN
                    && effort.blocks < BLOCKS_MIN
                    && (effort.blocks > 1 || effort.samples < CORRELATED_MIN)
            })
        };
        let cases = rows.iter().filter(is_few).count();
        (cases > 0).then_some(FewBlocks { cases })
    }
}

impl fmt::Display for FewBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cases, have) = if self.cases == 1 { ("case", "has") } else { ("cases", "have") };
        write!(
            f,
            "blocks: {} {cases} {have} fewer than {BLOCKS_MIN}, which do not show how much blocks differ, so the times have no \
             interval (measure.blocks_min and blocks_max = {BLOCKS_MIN})",
            self.cases
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::row::{CaseOutcome, Effort, StepResult, StepSetting};

    fn row(launches: usize, blocks: usize, samples: usize) -> StepRow {
        let effort = Effort { launches, blocks, samples, ..Effort::default() };
        let result = StepResult { effort, ..StepResult::default() };
        StepRow { setting: StepSetting::default(), outcome: CaseOutcome::Ok(result), bound_us: 0.0 }
    }

    #[test]
    fn cases_with_too_few_blocks_are_counted() {
        let enough = [row(3, 3, 3), row(1, 5, 5), row(1, 1, 20)];
        assert_eq!(FewBlocks::of(&enough), None);
        let few = [row(1, 2, 6), row(2, 4, 400), row(1, 1, 19), row(1, 5, 5)];
        let said = FewBlocks::of(&few).unwrap().to_string();
        assert!(
            said.starts_with("blocks: 3 cases have fewer than 5, which do not show "),
            "{said}"
        );
        let one = FewBlocks { cases: 1 }.to_string();
        assert!(one.starts_with("blocks: 1 case has fewer than 5, "), "{one}");
    }
}
