//! What a measured sweep takes and gives within a budget of time, before it is begun.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use measure::config::Measure;
use measure::plan::{Plan, Planned};
use results::nested::{BLOCKS_MIN, CORRELATED_MIN, LAUNCHES_MIN};

/// A range of guesses.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Range {
    /// With the fewest blocks.
    pub least: f64,
    /// With the most.
    pub most: f64,
}

impl Range {
    /// In another unit.
    pub fn over(self, divisor: f64) -> Range {
        Range { least: self.least / divisor, most: self.most / divisor }
    }
}

/// `1 to 2`, or a single number if both ends are equal as printed.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(0);
        let [least, most] = [self.least, self.most].map(|end| format!("{end:.digits$}"));
        if least == most { f.write_str(&least) } else { write!(f, "{least} to {most}") }
    }
}

/// A guess at the time of the fewest and of the most blocks in seconds, without network time; `weight` is that of a
/// case.
pub fn seconds(plan: &Plan, budget: Option<Duration>, weight: impl Fn(&Planned) -> f64) -> Range {
    let measure = &plan.config.measure;
    let block = block_seconds(plan, |_| 1.0) * measure.launches as f64;
    let (least, most) = (block * measure.blocks_min as f64, block * measure.blocks_max as f64);
    let most = most.min(least.max(measure.budget_seconds));
    let within = |seconds: f64| match budget {
        Some(budget) => seconds.min(budget.as_secs_f64()).max(block),
        None => seconds,
    };
    let all = block_seconds(plan, |_| 1.0);
    let mean = if all > 0.0 { block_seconds(plan, weight) / all } else { 0.0 };
    Range { least: within(least) * mean, most: within(most) * mean }
}

/// A guess at the time of one block of every case in seconds.
fn block_seconds(plan: &Plan, weight: impl Fn(&Planned) -> f64) -> f64 {
    let runs = plan.cases.iter().filter(|planned| planned.data_plane.is_ok());
    runs.map(|planned| plan.estimate(planned).as_secs_f64() * weight(planned)).sum()
}

/// The sentence on a budget that does not suffice for the fewest blocks.
pub fn short_budget(plan: &Plan, budget: Option<Duration>) -> Option<String> {
    let measure = &plan.config.measure;
    let block = block_seconds(plan, |_| 1.0) * measure.launches as f64;
    let least = block * measure.blocks_min as f64;
    let given = budget.map_or(measure.budget_seconds, |budget| budget.as_secs_f64());
    let consequence = match budget {
        None => "they are measured all the same".into(),
        Some(_) if block > given => {
            format!("each case gets one block, which takes about {block:.0} s for all")
        }
        Some(_) => "some cases get fewer".into(),
    };
    (least > given).then(|| {
        format!(
            "a budget of {given} s is too small for measure.blocks_min = {} blocks of each of {} cases, about {least:.0} \
             s: {consequence}",
            measure.blocks_min,
            plan.cases.len(),
        )
    })
}

/// So many blocks each launch can give to a case.
pub fn affordable_blocks(plan: &Plan, budget: Option<Duration>) -> usize {
    let Measure { launches, blocks_min, blocks_max, budget_seconds, .. } = plan.config.measure;
    let round = block_seconds(plan, |_| 1.0) * launches as f64;
    match budget {
        Some(budget) => ((budget.as_secs_f64() / round) as usize).clamp(1, blocks_max),
        None => ((budget_seconds / round) as usize).clamp(blocks_min, blocks_max),
    }
}

/// The sentence on a configuration or budget that gives cases too few blocks or steps for an interval.
pub fn no_interval(plan: &Plan, budget: Option<Duration>) -> Option<String> {
    let Measure { launches, steps_per_block, .. } = plan.config.measure;
    let round = block_seconds(plan, |_| 1.0) * launches as f64;
    let blocks = affordable_blocks(plan, budget);
    let has_interval = |blocks: usize| {
        launches >= LAUNCHES_MIN
            || launches * blocks >= BLOCKS_MIN
            || launches * blocks == 1 && steps_per_block >= CORRELATED_MIN
    };
    if has_interval(blocks) {
        return None;
    }
    let enough = (blocks..).find(|&blocks| has_interval(blocks))?;
    Some(format!(
        "times have no interval: {} block(s) of {steps_per_block} step(s) are too few, and {} blocks take about {:.0} s \
         (measure.blocks_max, and measure.budget_seconds or --budget)",
        launches * blocks,
        launches * enough,
        (round * enough as f64).ceil(),
    ))
}
