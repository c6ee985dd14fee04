//! What measures a block of a setting.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand::RngCore;

use crate::crew::{Crew, Ended, Order};
use crate::engine::Outcome;
use crate::plan::{Plan, Planned};
use crate::provenance::Launch;
use crate::record::{Block, RecordError, Store};
use crate::row::{Row, Status};
use crate::tabulate::{blank, block_of, finished, summary};

/// What one block of one setting brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Median step time of the slowest rank, in seconds.
    pub step_s: f64,
    /// Size in bytes and seconds of each message, packing included, waiting for late ranks not.
    pub messages: Vec<(f64, f64)>,
    /// Seconds of the control plane in a cycle with messages, waiting for late ranks not.
    pub negotiation_s: f64,
}

/// Measures settings, which it knows by number.
pub trait Surface {
    /// Measures a block. `Err` within: why the setting cannot be measured, which is then left out.
    ///
    /// # Errors
    /// When results cannot be written.
    fn block(&mut self, setting: usize) -> Result<Result<Observed, String>, RecordError>;

    /// How many more blocks fit into the budget.
    fn blocks_left(&self) -> usize;
}

/// A plan's cases, measured by a crew; every block is in the store before the next begins.
pub struct Measured<'a> {
    plan: &'a Plan,
    store: &'a mut Store,
    launches: &'a [Launch],
    crew: &'a mut dyn Crew,
    progress: &'a ProgressBar,
    begun: Instant,
    budget: Duration,
    /// Blocks in the order in which they were measured.
    order: usize,
    blocks: BTreeMap<usize, Vec<Block>>,
}

impl<'a> Measured<'a> {
    /// Nothing measured yet.
    pub fn new(
        plan: &'a Plan,
        (store, launches): (&'a mut Store, &'a [Launch]),
        crew: &'a mut dyn Crew,
        budget: Duration,
        progress: &'a ProgressBar,
    ) -> Measured<'a> {
        let (begun, blocks) = (Instant::now(), BTreeMap::new());
        Measured { plan, store, launches, crew, progress, begun, budget, order: 0, blocks }
    }

    /// A row for every setting that was measured, by setting.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(
        self,
        failed: &BTreeMap<usize, String>,
    ) -> Result<BTreeMap<usize, Row>, RecordError> {
        let mut rows = BTreeMap::new();
        for (&setting, blocks) in &self.blocks {
            let blocks: Vec<&Block> = blocks.iter().collect();
            let planned = &self.plan.cases[setting];
            rows.insert(setting, finished(self.plan, planned, self.launches, &blocks, "tuned"));
        }
        for (&setting, why) in failed {
            let row = blank(self.plan, &self.plan.cases[setting], self.launches);
            rows.insert(setting, Row { status: Status::Failed, reason: why.clone(), ..row });
        }
        for row in rows.values() {
            self.store.append_row(row)?;
        }
        Ok(rows)
    }

    /// Blocks measured so far.
    pub fn measured(&self) -> usize {
        self.order
    }
}

impl Surface for Measured<'_> {
    fn block(&mut self, setting: usize) -> Result<Result<Observed, String>, RecordError> {
        let planned = &self.plan.cases[setting];
        self.progress.set_message(planned.case.to_string());
        let number = self.blocks.get(&setting).map_or(0, Vec::len);
        let seed = self.plan.random(number, setting as u64 + 1).next_u64();
        let Ended { outcome, .. } = self.crew.run(self.plan, Order { index: setting, seed });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => return Ok(Err(why)),
        };
        let at = (number, self.order, self.launches.len());
        let block = block_of(self.plan, planned, at, &outcome);
        self.store.append_block(&block)?;
        self.order += 1;
        self.progress.set_position(self.order as u64);
        self.progress.set_length((self.order + self.blocks_left()) as u64);
        let observed = observed(self.plan, planned, &block, &outcome);
        self.blocks.entry(setting).or_default().push(block);
        Ok(observed)
    }

    fn blocks_left(&self) -> usize {
        let used = self.begun.elapsed();
        let each = match self.order {
            0 => self.plan.cases.iter().map(|planned| self.plan.estimate(planned)).max(),
            blocks => Some(used / blocks as u32),
        };
        let each = each.unwrap_or_default().max(Duration::from_millis(1));
        (self.budget.saturating_sub(used).as_secs_f64() / each.as_secs_f64()) as usize
    }
}

/// What a block tells of costs: messages and negotiations as the rank saw them that came last, since the
/// others waited for it.
fn observed(
    plan: &Plan,
    planned: &Planned,
    block: &Block,
    outcome: &Outcome,
) -> Result<Observed, String> {
    let wrong: usize = block.samples.iter().map(|sample| sample.wrong).sum();
    if wrong > 0 {
        return Err(format!("{wrong} elements are wrong"));
    }
    let element_bytes = planned.framework.wire(plan.config.dtype()).size_bytes();
    let warmup = plan.config.measure.warmup_steps;
    let shortest = |index: usize| {
        outcome.ranks.iter().map(|rank| rank.messages[index].time).min().unwrap_or_default()
    };
    let counts = outcome.ranks[0].messages.iter().enumerate();
    let messages = counts
        .filter(|(_, message)| message.step >= warmup)
        .map(|(index, message)| {
            ((message.elements * element_bytes) as f64, shortest(index).as_secs_f64())
        })
        .collect();
    let ranks = if outcome.negotiated { &outcome.ranks[..] } else { &outcome.ranks[..1] };
    let cycles = outcome.ranks[0].cycles.iter().enumerate();
    let mut negotiations: Vec<f64> = cycles
        .filter(|(_, cycle)| cycle.messages > 0 && cycle.step >= Some(warmup))
        .map(|(index, _)| {
            let times = ranks.iter().map(|rank| rank.cycles[index].negotiation);
            times.min().unwrap_or_default().as_secs_f64()
        })
        .collect();
    negotiations.sort_by(f64::total_cmp);
    let negotiation_s = negotiations.get(negotiations.len() / 2).copied().unwrap_or_default();
    let step = summary(&[block], |sample| sample.time_us).ok_or("no step was measured")?;
    Ok(Observed { step_s: step.p50 * 1e-6, messages, negotiation_s })
}
