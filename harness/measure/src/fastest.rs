//! How much longer each case of a sweep takes than the fastest with the same work and ranks.

use results::over_best::{OverBest, Rounds, over_best};
use results::row::{StepRow, StepSetting};

/// Rows with `over_best` and its lower end, from the medians of their blocks.
pub fn compared(mut rows: Vec<StepRow>, rounds: impl Fn(&str) -> Rounds) -> Vec<StepRow> {
    for group in groups(&rows) {
        let time_us = |&at: &usize| Some((rows[at].outcome.right()?.times.time_us_p50, at));
        let right: Vec<(f64, usize)> = group.iter().filter_map(time_us).collect();
        let Some(best) = right.iter().min_by(|one, other| one.0.total_cmp(&other.0)) else {
            continue;
        };
        let place = right.iter().position(|one| one == best).expect("it is one of them");
        let settings: Vec<Rounds> = right.iter().map(|&(_, at)| rounds(rows[at].case())).collect();
        for (&(_, at), found) in right.iter().zip(over_best(&settings, place)) {
            if let (Some(OverBest { ratio, low }), Some(result)) =
                (found, rows[at].outcome.right_mut())
            {
                result.confidence.over_best = Some(ratio);
                result.confidence.over_best_low = low;
            }
            rows[at] = rows[at].clone().rounded();
        }
    }
    rows
}

/// Positions of rows with the same workload on the same ranks.
pub fn groups(rows: &[StepRow]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        match groups.iter_mut().find(|group| key(&rows[group[0]]) == key(row)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

fn key(row: &StepRow) -> (&str, &str, usize, Option<usize>, usize) {
    let StepSetting { key, run, training, .. } = &row.setting;
    (&training.workload, &run.transport, key.nodes, key.local_size, key.ranks)
}
