//! What the search of one grid has brought.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::Answer;
use super::found::{Blocks, Found};
use super::grid::Grid;
use super::model::expected;
use super::regret::{Run, exhaust};
use super::search::search;
use super::surface::{Measured, Site};
use results::error::RecordError;
use results::row::StepRow;

/// What was found, and what follows from it.
pub struct Tuned {
    /// What the search brought.
    pub found: Found,
    /// None where nothing can be concluded.
    pub answer: Option<Answer>,
    /// Of the settings that were measured.
    pub rows: BTreeMap<usize, StepRow>,
    /// Of those that were compared, from fresh blocks alone.
    pub fresh: BTreeMap<usize, StepRow>,
    /// Blocks that the search measured.
    pub blocks: usize,
    /// Steps of each, those that warm up included.
    pub steps_per_block: usize,
    /// How long it took.
    pub seconds: f64,
    /// What the recommendation loses, where every setting was measured afterwards.
    pub lost: Option<Run>,
}

impl Tuned {
    /// Searches a grid for as long as the budget allows; then measures every setting so many rounds, if asked to.
    ///
    /// # Errors
    /// When results cannot be written.
    pub fn measure(
        grid: &Grid,
        site: &mut Site,
        budget: Duration,
        exhaustive: Option<usize>,
    ) -> Result<Tuned, RecordError> {
        let Grid { plan, space, .. } = grid;
        let mut surface = Measured::new(grid, site, budget);
        // Over MPI and on threads a cycle ends with its messages.
        let predict = |blocks: &Blocks| expected(plan, blocks, true);
        let found = search(&grid.task(&predict), &mut surface, &mut plan.random(0, 0))?;
        let (blocks, seconds) = (surface.measured(), surface.seconds());
        let measure = &plan.config.measure;
        let steps_per_block = measure.warmup_steps + measure.steps_per_block;
        let compared = found.fresh.first().into_iter().flat_map(BTreeMap::keys).copied();
        let fresh = surface.last(compared, found.fresh.len());
        let mut lost = None;
        if let Some(rounds) = exhaustive {
            let truth = exhaust(plan.cases.len(), rounds, &mut surface, &mut plan.random(1, 0))?;
            let effort = (blocks, steps_per_block, rounds);
            lost = truth
                .and_then(|(times, best)| Run::of(plan, space, &found, effort, (&times, best)));
        }
        let rows = surface.finish(&found.failed)?;
        let answer = space.defaults.first().and_then(|&default| Answer::of(&found, default));
        Ok(Tuned { found, answer, rows, fresh, blocks, steps_per_block, seconds, lost })
    }
}
