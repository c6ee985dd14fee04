//! The same for programs.

use serde::Serialize;

use super::super::answer::{Answer, Ratio, Verdict};
use super::super::found::MARGIN;
use super::super::larger::Larger;
use super::super::tuned::Tuned;
use super::Report;

#[derive(Debug, Serialize)]
struct Json {
    workload: String,
    transport: String,
    topology: String,
    verdict: Verdict,
    /// Rests on the data plane that Horovod would use.
    for_horovod: bool,
    recommended: Option<Setting>,
    compared: Vec<Compared>,
    expected_within_margin: Vec<Setting>,
    margin: f64,
    chance_that_a_better_one_was_missed: f64,
    blocks: usize,
    steps: usize,
    fresh_rounds: usize,
    /// Rounds that do not count: how long steps took in them, in parts of the others.
    disturbed_rounds: Vec<f64>,
    seconds: f64,
    settings: usize,
    settings_measured: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    larger: Option<Larger>,
}

#[derive(Debug, Serialize)]
struct Setting {
    control_plane: String,
    algorithm: String,
    fusion_threshold_bytes: usize,
    cycle_time_ms: f64,
    compression: &'static str,
    num_groups: usize,
    step_ms: f64,
}

#[derive(Debug, Serialize)]
struct Compared {
    setting: Setting,
    /// As confirm.py calls it.
    name: String,
    /// Its step time in parts of the recommended setting's, with its 95 % interval.
    ratio: Ratio,
    /// The same for Horovod: the interval includes the engine's distance from it.
    promised: Ratio,
    tied: bool,
}

impl Report<'_> {
    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let setting = |setting: usize| {
            let case = self.case(setting);
            Setting {
                control_plane: case.control_plane.clone(),
                algorithm: case.algorithm.clone(),
                fusion_threshold_bytes: case.fusion_threshold_bytes,
                cycle_time_ms: case.cycle_time_ms(),
                compression: self.grid.plan.cases[setting].framework.compression.name(),
                num_groups: self.grid.plan.cases[setting].groups.len(),
                step_ms: 1e3 * self.tuned.found.expected_s[setting],
            }
        };
        let first = self.case(0);
        let Tuned { blocks, steps_per_block: steps, seconds, .. } = *self.tuned;
        let answer = self.tuned.answer.as_ref();
        let compared = |answer: &Answer| -> Vec<Compared> {
            let others = answer.others.iter();
            others
                .map(|(&other, &ratio)| Compared {
                    setting: setting(other),
                    name: self.name(other),
                    ratio,
                    promised: self.promised(&ratio),
                    tied: answer.tied.contains(&other),
                })
                .collect()
        };
        let recommended = answer
            .filter(|answer| answer.verdict != Verdict::Unknown)
            .map(|answer| Setting { step_ms: 1e3 * answer.step_s, ..setting(answer.choice) });
        let near =
            |answer: &Answer| answer.expected_tied.iter().map(|&other| setting(other)).collect();
        let json = Json {
            workload: self.grid.plan.workload.name.clone(),
            transport: first.transport.name().into(),
            topology: first.topology.to_string(),
            verdict: answer.map_or(Verdict::Unknown, |answer| answer.verdict),
            for_horovod: self.is_for_horovod(),
            recommended,
            compared: answer.map(compared).unwrap_or_default(),
            expected_within_margin: answer.map(near).unwrap_or_default(),
            margin: MARGIN,
            chance_that_a_better_one_was_missed: self.tuned.found.missed,
            blocks,
            steps: blocks * steps,
            fresh_rounds: answer.map_or(0, |answer| answer.rounds),
            disturbed_rounds: self.tuned.found.disturbed.clone(),
            seconds,
            settings: self.grid.plan.cases.len(),
            settings_measured: self.tuned.found.blocks.len(),
            larger: self.larger.cloned(),
        };
        let mut json = serde_json::to_value(json).expect("plain data");
        for (at, size) in self.larger.iter().flat_map(|larger| larger.sizes.iter().enumerate()) {
            let best = Setting {
                step_ms: size.recommended_ms.value * size.best_ratio,
                ..setting(size.best)
            };
            json["larger"]["sizes"][at]["best"] = serde_json::to_value(best).expect("plain data");
        }
        json
    }
}
