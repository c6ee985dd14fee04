//! The result of tuning one grid.

use std::collections::BTreeMap;

use super::answer::{Answer, Ratio};
use super::found::{Blocks, Found};
use super::grid::Grid;
use super::model::expected;
use super::regret::{Run, exhaust};
use super::search::search;
use super::surface::{Budget, Measured, Site};
use measure::steadiness::Unsteady;
use results::error::RecordError;
use results::row::StepRow;

/// The search's results and conclusions.
pub struct Tuned {
    /// The result of the search.
    pub found: Found,
    /// None if there is no conclusion.
    pub answer: Option<Answer>,
    /// Rows of the measured settings.
    pub rows: BTreeMap<usize, StepRow>,
    /// Rows of the compared settings, from blocks after the choice only.
    pub fresh: BTreeMap<usize, StepRow>,
    /// Blocks that the search measured.
    pub blocks: usize,
    /// Steps of each, those that warm up included.
    pub steps_per_block: usize,
    /// How long it took.
    pub seconds: f64,
    /// How the machine changed its speed in the meantime, if it did.
    pub unsteady: Option<Unsteady>,
    /// The regret of the recommendation, if every setting was measured afterwards.
    pub lost: Option<Run>,
}

impl Tuned {
    /// The shares of the choice's step and of the other's that computation does not hide.
    pub fn exposed(&self, answer: &Answer, ratio: &Ratio) -> [f64; 2] {
        exposed(self.fresh.get(&answer.choice), answer, ratio)
    }

    /// Searches a grid within the budget; then, if requested, measures every setting for a number of rounds.
    ///
    /// # Errors
    /// When results cannot be written.
    pub fn measure(
        grid: &Grid,
        site: &mut Site,
        budget: Budget,
        exhaustive: Option<usize>,
    ) -> Result<Tuned, RecordError> {
        let Grid { plan, space, .. } = grid;
        let mut surface = Measured::new(grid, site, budget);
        // Over MPI and on threads a cycle ends with its messages.
        let predict = |blocks: &Blocks| expected(plan, blocks, true);
        let for_horovod = |ratio: &Ratio, steps_s| grid.for_horovod(ratio, steps_s);
        let task = grid.task(&predict, &for_horovod);
        let found = search(&task, &mut surface, &mut plan.random(0, 0))?;
        let (blocks, seconds) = (surface.measured(), surface.seconds());
        let measure = &plan.config.measure;
        let steps_per_block = measure.warmup_steps + measure.steps_per_block;
        let compared = found.fresh.first().into_iter().flat_map(BTreeMap::keys).copied();
        let fresh = surface.last(compared, found.fresh.len());
        let unsteady = surface.unsteady();
        // Whether blocks after the choice were at another level than most of the search.
        let settings = found.fresh.first().map_or(0, BTreeMap::len);
        let last = settings * (found.fresh.len() + found.disturbed.len() + found.moved_ns.len());
        // The level changes with the distance of processors. The answer holds for the distance that it names.
        let change = match &unsteady {
            Some(unsteady) if !found.have_processors_moved() => unsteady.of_last(last),
            _ => 0.0,
        };
        let mut lost = None;
        if let Some(rounds) = exhaustive {
            let truth = exhaust(plan.cases.len(), rounds, &mut surface, &mut plan.random(1, 0))?;
            let effort = (blocks, steps_per_block, rounds);
            lost = truth
                .and_then(|(times, best)| Run::of(plan, space, &found, effort, (&times, best)));
        }
        let rows = surface.finish(&found.failed)?;
        let answer = space.defaults.first().and_then(|&default| {
            Answer::of_search(&found, space, |answer| {
                let answer = answer.after_change(default, change);
                let promised = answer.others.get(&default).and_then(|ratio| {
                    let exposed = exposed(fresh.get(&answer.choice), &answer, ratio);
                    Some(grid.fidelity()?.for_horovod(ratio, exposed))
                });
                answer.after_promise(promised)
            })
        });
        Ok(Tuned { found, answer, rows, fresh, blocks, steps_per_block, seconds, unsteady, lost })
    }
}

/// See [`Tuned::exposed`]; `row` is the choice's.
fn exposed(row: Option<&StepRow>, answer: &Answer, ratio: &Ratio) -> [f64; 2] {
    let computation_s = row.map_or(0.0, |row| 1e-6 * row.bound_us);
    [1.0, ratio.ratio].map(|steps| (1.0 - computation_s / (steps * answer.step_s)).max(0.0))
}

#[cfg(test)]
mod tests;
