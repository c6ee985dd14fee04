//! One search beside the truth.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{Answer, Verdict};
use crate::found::Found;
use crate::space::Space;
use measure::plan::Plan;
use results::units::MIB;

/// Steps that Horovod's autotune takes by its own schedule with two switches, as in builds for CPUs: 21
/// evaluations of 50 steps for each of 4 combinations.
pub const HOROVOD_STEPS: usize = 4200;

/// One search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Run {
    /// The model of the surface.
    pub workload: String,
    /// Its machine.
    pub machine: String,
    /// Its ranks.
    pub ranks: usize,
    /// Its data plane.
    pub data_plane: String,
    /// `simulated`, or `measured` where every setting was measured after the search.
    pub source: &'static str,
    /// Settings of the grid.
    pub settings: usize,
    /// Seed of order and noise.
    pub seed: u64,
    /// Blocks that the search took, with the fresh ones for the answer.
    pub blocks: usize,
    /// Steps of these blocks.
    pub steps: usize,
    /// These blocks as a share of an exhaustive grid.
    pub share_of_grid: f64,
    /// These steps as a share of the 4,200 that Horovod's autotune takes with two switches.
    pub share_of_horovod_steps: f64,
    /// `change`, `lean`, `keep` or `unknown`, against Horovod's defaults since v0.21.
    pub verdict: String,
    /// The recommended setting; for `keep` and `unknown`, the defaults.
    pub chosen_mib: f64,
    /// See `chosen_mib`.
    pub chosen_cycle_ms: f64,
    /// See `chosen_mib`.
    pub chosen_plane: String,
    /// The true best setting.
    pub best_mib: f64,
    /// See `best_mib`.
    pub best_cycle_ms: f64,
    /// See `best_mib`.
    pub best_plane: String,
    /// How much longer a step takes with the recommended setting than with the best one. For measured surfaces, the
    /// best setting is chosen from every second round and compared in the other rounds, so that noise does not make the
    /// best look better than it is.
    pub regret: f64,
    /// How much longer a step takes with the defaults than with the best setting.
    pub default_regret: f64,
    /// Step time with the defaults over that with the choice, as stated, with its 95 % interval.
    pub gain: Option<f64>,
    /// See `gain`.
    pub gain_low: Option<f64>,
    /// See `gain`.
    pub gain_high: Option<f64>,
    /// The true ratio.
    pub gain_true: Option<f64>,
    /// Whether the interval of `gain` contains `gain_true`.
    pub covered: Option<bool>,
}

impl Run {
    /// Whether another setting than the default is recommended.
    pub fn is_change(&self) -> bool {
        [Verdict::Change, Verdict::Lean].map(name).contains(&self.verdict)
    }

    /// A search, blocks and steps of each and blocks of every setting of a grid, beside the truth: seconds of
    /// each setting, and which is the fastest. None if the truth of a setting in question is not known.
    pub fn of(
        plan: &Plan,
        space: &Space,
        found: &Found,
        (blocks, steps_per_block, grid_blocks): (usize, usize, usize),
        (times, best): (&BTreeMap<usize, f64>, usize),
    ) -> Option<Run> {
        let default = space.defaults[0];
        let answer = Answer::of_search(found, space, |answer| answer);
        let verdict = answer.as_ref().map_or(Verdict::Unknown, |answer| answer.verdict);
        // Without a word to the contrary the defaults stay.
        let chosen = match &answer {
            Some(answer) if answer.changes() => answer.choice,
            _ => default,
        };
        let case = |setting: usize| &plan.cases[setting].case;
        let mib = |setting: usize| case(setting).fusion_threshold_bytes as f64 / MIB;
        let gain = answer.as_ref().and_then(|answer| answer.others.get(&default));
        let time = |setting: usize| times.get(&setting).copied();
        let gain_true =
            answer.as_ref().and_then(|answer| Some(time(default)? / time(answer.choice)?));
        let steps = blocks * steps_per_block;
        Some(Run {
            workload: plan.workload.name.clone(),
            machine: String::new(),
            ranks: case(default).topology.ranks(),
            data_plane: case(default).algorithm.clone(),
            source: "measured",
            settings: plan.cases.len(),
            seed: plan.config.measure.seed,
            blocks,
            steps,
            share_of_grid: blocks as f64 / (grid_blocks * plan.cases.len()) as f64,
            share_of_horovod_steps: steps as f64 / HOROVOD_STEPS as f64,
            verdict: name(verdict),
            chosen_mib: mib(chosen),
            chosen_cycle_ms: case(chosen).cycle_time_ms(),
            chosen_plane: case(chosen).control_plane.clone(),
            best_mib: mib(best),
            best_cycle_ms: case(best).cycle_time_ms(),
            best_plane: case(best).control_plane.clone(),
            regret: time(chosen)? / time(best)? - 1.0,
            default_regret: time(default)? / time(best)? - 1.0,
            gain: gain.map(|gain| gain.ratio),
            gain_low: gain.map(|gain| gain.low),
            gain_high: gain.map(|gain| gain.high),
            gain_true: gain_true.filter(|_| gain.is_some()),
            covered: gain
                .zip(gain_true)
                .map(|(gain, truth)| (gain.low..=gain.high).contains(&truth)),
        })
    }
}

fn name(verdict: Verdict) -> String {
    format!("{verdict:?}").to_lowercase()
}
