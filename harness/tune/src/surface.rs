//! Measures blocks of settings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand::RngCore;
use thiserror::Error;

use super::grid::Grid;
use super::spread::{Resting, Spread};
use measure::block::{Context, Position, block_of};
use measure::case_result::row_of;
use measure::executor::{BlockExecutor, BlockRequest, BlockResult};
use measure::plan::Plan;
use measure::steadiness::{SpeedChange, Unsteady};
use results::block::{Block, Outline, summary};
use results::conditions::Conditions;
use results::core_to_core;
use results::error::RecordError;
use results::provenance::Launch;
use results::record::Store;
use results::row::{StepRow, StepSetting};
use results::statistics::median;
use training::outcome::{EngineError, Outcome};

/// The result of one block of one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Median step time of the slowest rank, in seconds.
    pub step_s: f64,
    /// Size in bytes and seconds of each message, packing included, waiting for late ranks not.
    pub messages: Vec<(f64, f64)>,
    /// Seconds of the control plane in a cycle with messages, waiting for late ranks not.
    pub negotiation_s: f64,
    /// How far apart the processors of a virtual machine were before and after, in nanoseconds; empty on another machine.
    pub core_to_core_ns: Vec<f64>,
}

/// Why a block has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// It could not be run.
    #[error(transparent)]
    Failed(#[from] EngineError),
    /// Reduced data differ from the exact result.
    #[error("{elements} elements of the result are wrong")]
    Wrong {
        /// How many elements.
        elements: usize,
    },
    /// All its steps were warm-up.
    #[error("no step was measured")]
    NoStep,
}

/// Measures settings by number.
pub trait Surface {
    /// Measures a block. `Err` within: why the setting cannot be measured, which is then left out.
    ///
    /// # Errors
    /// When results cannot be written.
    fn block(&mut self, setting: usize) -> Result<Result<Observed, BlockError>, RecordError>;

    /// How many more blocks fit into the budget.
    fn blocks_left(&self) -> usize;

    /// Lets time pass before this one of so many rounds, which compare settings: speeds that change within seconds shall change
    /// between rounds, and the processors of a virtual machine shall be where they are at rest.
    fn wait_for_round(&mut self, _round: usize, _rounds: usize) {}
}

/// How much a search may measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The time.
    pub time: Duration,
    /// The number of blocks.
    pub blocks: usize,
}

impl Budget {
    /// What is left for each of so many searches.
    pub fn share(self, used: Duration, blocks: usize, searches: usize) -> Budget {
        Budget {
            time: self.time.saturating_sub(used) / searches as u32,
            blocks: self.blocks.saturating_sub(blocks) / searches,
        }
    }
}

/// The executor, and the output.
pub struct Site<'s> {
    /// The plan that the executor has agreed on.
    pub all: &'s Plan,
    /// The executor of blocks.
    pub executor: &'s mut dyn BlockExecutor,
    /// The store of blocks and rows.
    pub store: &'s mut Store,
    /// The launches so far.
    pub launches: &'s [Launch],
    /// The progress bar.
    pub progress: &'s ProgressBar,
    /// Blocks so far, in the order in which they were measured.
    pub blocks: usize,
}

/// A grid's settings, measured by an executor; every block is in the store before the next begins.
pub struct Measured<'m, 's> {
    grid: &'m Grid,
    site: &'m mut Site<'s>,
    begun: Instant,
    budget: Budget,
    blocks: BTreeMap<usize, Vec<Block>>,
    measured: usize,
    /// When the rounds that compare settings began, and how they are spread.
    spread: Option<(Instant, Spread)>,
    /// How long nothing was measured before rounds.
    rested: Duration,
    /// The part of it in which the processors had moved.
    awaited: Duration,
    /// How far apart the processors were meanwhile.
    resting: Resting,
}

impl<'m, 's> Measured<'m, 's> {
    /// Nothing is measured yet.
    pub fn new(grid: &'m Grid, site: &'m mut Site<'s>, budget: Budget) -> Measured<'m, 's> {
        let (begun, blocks) = (Instant::now(), BTreeMap::new());
        let (rested, awaited) = (Duration::ZERO, Duration::ZERO);
        let (measured, spread, resting) = (0, None, Resting::default());
        Measured { grid, site, begun, budget, blocks, measured, spread, rested, awaited, resting }
    }

    /// A row for every setting that was measured, by setting.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(
        self,
        failed: &BTreeMap<usize, BlockError>,
    ) -> Result<BTreeMap<usize, StepRow>, RecordError> {
        let mut rows = self.withheld(self.last(self.blocks.keys().copied(), usize::MAX));
        for (&setting, why) in failed {
            rows.insert(setting, StepRow::failed(self.setting(setting), why.to_string()));
        }
        for row in rows.values() {
            self.site.store.append_row(row.clone())?;
        }
        Ok(rows)
    }

    /// Rows without the intervals that a change of the machine's speed takes away.
    fn withheld(&self, rows: BTreeMap<usize, StepRow>) -> BTreeMap<usize, StepRow> {
        let outlines: Vec<Vec<Outline>> = rows
            .keys()
            .map(|setting| self.blocks[setting].iter().map(Outline::from).collect())
            .collect();
        let blocks: Vec<Vec<&Outline>> =
            outlines.iter().map(|blocks| blocks.iter().collect()).collect();
        let change = SpeedChange::of_search(self.unsteady().as_ref(), &blocks);
        let (settings, rows): (Vec<usize>, Vec<StepRow>) = rows.into_iter().unzip();
        let rows = change.applied(rows, |_| Vec::new());
        settings.into_iter().zip(rows).collect()
    }

    /// Whether the machine changed its speed.
    pub fn unsteady(&self) -> Option<Unsteady> {
        let outlines: Vec<Vec<Outline>> =
            self.blocks.values().map(|blocks| blocks.iter().map(Outline::from).collect()).collect();
        let blocks: Vec<Vec<&Outline>> =
            outlines.iter().map(|blocks| blocks.iter().collect()).collect();
        Unsteady::of_search(&blocks)
    }

    /// Rows of these settings from their last blocks alone.
    pub fn last(
        &self,
        settings: impl Iterator<Item = usize>,
        blocks: usize,
    ) -> BTreeMap<usize, StepRow> {
        let row = |setting: usize| {
            let all = self.blocks.get(&setting)?;
            let last: Vec<&Block> = all[all.len().saturating_sub(blocks)..].iter().collect();
            let counts_bytes = self.grid.plan.cases[setting].choices().is_some();
            Some((setting, row_of(self.setting(setting), &last, "tuned", counts_bytes)))
        };
        settings.filter_map(row).collect()
    }

    /// The settings of a row, independent of the measurement.
    fn setting(&self, setting: usize) -> StepSetting {
        let launch = self.site.launches.last().expect("this run of the program");
        self.grid.plan.setting(&self.grid.plan.cases[setting], launch)
    }

    /// Blocks measured so far.
    pub fn measured(&self) -> usize {
        self.measured
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

impl Surface for Measured<'_, '_> {
    fn block(&mut self, setting: usize) -> Result<Result<Observed, BlockError>, RecordError> {
        let Site { all, executor, store, launches, progress, blocks } = &mut *self.site;
        let plan = &self.grid.plan;
        let planned = &plan.cases[setting];
        progress.set_message(planned.case.to_string());
        let number = self.blocks.get(&setting).map_or(0, Vec::len);
        let seed = plan.random(number, setting as u64 + 1).next_u64();
        let counters = executor.counters();
        let BlockResult { outcome, .. } =
            executor.run(all, BlockRequest { seed, ..all.first_block(self.grid.index(setting)) });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error.into())),
        };
        let context = plan.context(planned);
        let position = Position { block: number, order: *blocks, launch: launches.len() };
        let conditions = counters.map(|before| Conditions {
            case: planned.case.to_string(),
            block: number,
            launch: launches.len(),
            ..before.until_now()
        });
        let block = Block { conditions, ..block_of(&context, position, &outcome) };
        store.append_block(&block)?;
        *blocks += 1;
        self.measured += 1;
        progress.set_position(*blocks as u64);
        let observed = observed(&context, &block, &outcome);
        self.blocks.entry(setting).or_default().push(block);
        let all_blocks = self.site.blocks + self.blocks_left();
        self.site.progress.set_length(all_blocks as u64);
        Ok(observed)
    }

    fn blocks_left(&self) -> usize {
        let used = self.begun.elapsed();
        let each = match self.measured {
            0 => self.grid.longest_block(),
            blocks => (used - self.rested) / blocks as u32,
        };
        let left = self.budget.time.saturating_sub(used).as_secs_f64();
        let in_time = (left / each.max(Duration::from_millis(1)).as_secs_f64()) as usize;
        in_time.min(self.budget.blocks.saturating_sub(self.measured))
    }

    fn wait_for_round(&mut self, round: usize, rounds: usize) {
        let now = Instant::now();
        let (used, time) = (now - self.begun, self.budget.time);
        let spread = || (now, Spread::of(used, time.saturating_sub(used)));
        let (first, spread) = *self.spread.get_or_insert_with(spread);
        self.site.progress.set_message("waiting for the next round");
        let look = core_to_core::core_to_core_ns;
        let settles = round == 0 && look().is_some();
        let settling = if settles { spread.settling() } else { Duration::ZERO };
        let rest = settling.max(spread.rest(now - first, round, rounds));
        let patience = spread.patience(self.awaited, time.saturating_sub(used + rest));
        self.awaited += self.resting.pass(rest, patience, look);
        self.rested += now.elapsed();
    }
}

/// Costs in a block: messages and negotiations of the rank that came last, for which the others waited.
fn observed(
    &Context { warmup_steps, element_bytes, .. }: &Context,
    block: &Block,
    outcome: &Outcome,
) -> Result<Observed, BlockError> {
    let wrong: usize = block.samples.iter().map(|sample| sample.wrong).sum();
    if wrong > 0 {
        return Err(BlockError::Wrong { elements: wrong });
    }
    let shortest = |index: usize| {
        outcome.ranks.iter().map(|rank| rank.messages[index].time).min().unwrap_or_default()
    };
    let counts = outcome.ranks[0].messages.iter().enumerate();
    let messages = counts
        .filter(|(_, message)| message.step >= warmup_steps)
        .map(|(index, message)| {
            ((message.elements * element_bytes) as f64, shortest(index).as_secs_f64())
        })
        .collect();
    let ranks = if outcome.negotiated { &outcome.ranks[..] } else { &outcome.ranks[..1] };
    let cycles = outcome.ranks[0].cycles.iter().enumerate();
    let negotiations: Vec<f64> = cycles
        .filter(|(_, cycle)| cycle.messages > 0 && cycle.step >= Some(warmup_steps))
        .map(|(index, _)| {
            let times = ranks.iter().map(|rank| rank.cycles[index].negotiation);
            times.min().unwrap_or_default().as_secs_f64()
        })
        .collect();
    let negotiation_s = median(negotiations).unwrap_or_default();
    let step = summary(&[block], |sample| sample.time_us).ok_or(BlockError::NoStep)?;
    let core_to_core_ns =
        block.conditions.as_ref().map(Conditions::core_to_core).unwrap_or_default();
    Ok(Observed { step_s: step.p50 * 1e-6, messages, negotiation_s, core_to_core_ns })
}
