//! Timelines of a sweep's cases.

use rand::RngCore;
use training::timeline::record::Record;
use training::timeline::write::{Shown, file_name, write};

use super::{Course, Sweep};
use crate::config::Timelines;
use crate::executor::BlockRequest;
use crate::plan::Planned;
use results::error::RecordError;

/// The folder of timelines within that of the results.
const TIMELINES: &str = "timelines";

/// The most ranks of a case that `timelines = "fastest"` records: a step of ResNet-50 on so many takes some megabytes.
const MOST_RANKS: usize = 32;

impl Sweep<'_> {
    /// The timeline of a block, however it ended.
    pub(super) fn write_timeline(
        &self,
        planned: &Planned,
        records: &[Vec<Record>],
    ) -> Result<(), RecordError> {
        let case = planned.case.to_string();
        let shown = Shown {
            case: &case,
            algorithm: &planned.case.algorithm,
            gradients: &self.plan.workload.gradients,
            dtype: self.plan.config.dtype(),
            times: self.plan.config.times_on(&planned.case.topology),
        };
        let name = format!("{TIMELINES}/{}", file_name(&case));
        self.store.write_timeline(&name, &mut |out| write(out, &shown, records))
    }

    /// One more block of the fastest case, recorded, if the sweep asks for that. The block does not count: it is no part of
    /// the results. Without time for it there is no timeline.
    pub(super) fn record_fastest(&mut self, course: &Course) -> Result<(), RecordError> {
        let plan = self.plan;
        let Some(index) = self.fastest().filter(|_| plan.timelines == Timelines::Fastest) else {
            return Ok(());
        };
        // A launch that finds everything done has nothing to add.
        let mut blocks = self.blocks.iter().flatten();
        if blocks.all(|block| block.took().is_none()) || self.is_to_stop(course, index).is_some() {
            return Ok(());
        }
        let planned = &plan.cases[index];
        let name = planned.case.to_string();
        let block = self.next_block(index);
        if let Some(journal) = self.journal {
            // It may have ended the processes before.
            if journal.verdict(&name).is_some() {
                return Ok(());
            }
            journal.begin(&name, block, self.launch)?;
        }
        let seed = plan.random(block, index as u64 + 1).next_u64();
        let request =
            BlockRequest { index, seed, warmup_steps: self.warmup_steps, is_recorded: true };
        let result = self.executor.run(plan, request);
        self.journal.iter().for_each(|journal| journal.end());
        match result.records.filter(|_| result.outcome.is_ok()) {
            Some(records) => self.write_timeline(planned, &records),
            None => Ok(()),
        }
    }

    /// The case with the shortest steps, of the largest world that has at most [`MOST_RANKS`].
    fn fastest(&self) -> Option<usize> {
        let timed = self.plan.cases.iter().enumerate().filter_map(|(index, planned)| {
            if planned.left.is_some() || planned.data_plane.is_err() {
                return None;
            }
            let time_us = self.done[index]?.right_us?;
            let ranks = planned.case.topology.ranks();
            (ranks <= MOST_RANKS).then_some((index, ranks, time_us))
        });
        let best = timed.min_by(|a, b| b.1.cmp(&a.1).then(a.2.total_cmp(&b.2)));
        best.map(|(index, ..)| index)
    }
}
