//! The end of a sweep: its rows, with what only all of them tell.

use std::collections::HashMap;

use super::{Again, Report, Sweep};
use crate::bandwidth::Bandwidth;
use crate::case_result::row_of;
use crate::drift::Drift;
use crate::fastest;
use crate::few_blocks::FewBlocks;
use crate::round_effect::Round;
use crate::spread::Spread;
use crate::steadiness::{SpeedChange, Unsteady};
use results::block::Outline;
use results::error::RecordError;
use results::row::{MessageRow, Row, StepRow, StepSetting};

impl Sweep<'_> {
    /// Rows with what only all of them tell, and what they tell together.
    pub(super) fn conclude(
        self,
        left: Option<String>,
        again: Option<Again>,
        wants_launch: bool,
    ) -> Result<Report, RecordError> {
        let stored: Vec<StepRow> = self.store.rows()?.into_iter().filter_map(StepRow::of).collect();
        let names: Vec<String> = stored.iter().map(|row| row.case().to_string()).collect();
        let rows = self.in_order_of_plan(stored)?;
        let mut outlines: HashMap<&str, Vec<Outline>> = HashMap::new();
        for (index, setting) in self.settings.iter().enumerate() {
            if self.done[index].is_some() || self.base == Some(index) {
                outlines.insert(&setting.key.case, self.outlines(index, 0..usize::MAX)?);
            }
        }
        let own = |case: &str| outlines[case].iter().collect::<Vec<_>>();
        let drift = self.base.and_then(|base| Drift::of(self.name(base), &own(self.name(base))));
        let times_us = |case: &str| Outline::nested(&own(case));
        let blocks: Vec<Vec<&Outline>> = rows.iter().map(|row| own(row.case())).collect();
        let unsteady = Unsteady::of(&blocks);
        let change = SpeedChange::of(unsteady.as_ref(), &blocks);
        let bandwidth = self.bandwidth(&change)?;
        let rows = fastest::compared(rows, |case| times_us(case).rounds());
        let rounds = |case: &str| -> Vec<Round> {
            own(case).iter().map(|block| (block.launch, block.block)).collect()
        };
        let rows = change.applied(rows, rounds);
        let spread = Spread::of(rows.iter().map(|row| times_us(row.case())));
        let by_case: HashMap<&str, &StepRow> = rows.iter().map(|row| (row.case(), row)).collect();
        let of = |case: &String| by_case.get(&**case).map(|&row| Row::Step(row.clone()));
        // In the order of the file.
        let lines: Vec<Row> = names.iter().filter_map(of).collect();
        let few_blocks = FewBlocks::of(&rows);
        let right = rows.iter().filter_map(|row| row.outcome.right());
        let mut levels = right
            .map(|result| &result.confidence.interval_over)
            .chain(bandwidth.iter().map(|row| &row.interval_over));
        let is_wider = levels.any(|level| change.widens(level));
        let round_effect = change.rounds().filter(|_| is_wider).cloned();
        let warmup = self.warmup()?;
        self.store.replace_rows(&lines)?;
        let wants_launch = wants_launch && left.is_some();
        Ok(Report {
            left,
            rows,
            bandwidth,
            drift,
            spread,
            round_effect,
            few_blocks,
            again,
            unsteady,
            warmup,
            wants_launch,
        })
    }

    fn in_order_of_plan(&self, rows: Vec<StepRow>) -> Result<Vec<StepRow>, RecordError> {
        let mut by_case: HashMap<String, StepRow> =
            rows.into_iter().map(|row| (row.case().to_string(), row)).collect();
        let settings = self.settings.iter().enumerate();
        let row = |(index, setting): (usize, &StepSetting)| {
            Some(self.derived(index, by_case.remove(&setting.key.case)?))
        };
        settings.filter_map(row).collect()
    }

    /// The row as its blocks alone give it, if an earlier launch has concluded it: what became of its interval then would
    /// count twice.
    fn derived(&self, index: usize, row: StepRow) -> Result<StepRow, RecordError> {
        let is_concluded = self.done[index].is_some_and(|done| done.is_concluded);
        let Some(result) = row.outcome.right().filter(|_| is_concluded) else { return Ok(row) };
        let reason = result.effort.stop_reason.clone();
        let blocks = self.whole_blocks(index, 0..usize::MAX)?;
        if blocks.is_empty() {
            return Ok(row);
        }
        let counts_bytes = self.plan.cases[index].choices().is_some();
        Ok(row_of(row.setting, &blocks.iter().collect::<Vec<_>>(), &reason, counts_bytes))
    }

    /// Of the messages of every case that is right, in the order of the plan.
    fn bandwidth(&self, change: &SpeedChange) -> Result<Vec<MessageRow>, RecordError> {
        let mut bandwidth = Bandwidth::default();
        for (index, (planned, setting)) in self.plan.cases.iter().zip(&self.settings).enumerate() {
            if self.done[index].is_some_and(|done| done.right_us.is_some()) {
                for measured in &self.blocks[index] {
                    let messages = self.store.messages(&self.key(index, measured.block()))?;
                    let place = (measured.launch(), measured.block());
                    bandwidth.add(&planned.case, setting, place, &messages);
                }
            }
        }
        Ok(bandwidth.rows(change))
    }
}
