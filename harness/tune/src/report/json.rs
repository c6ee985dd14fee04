//! The same for programs.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::answer::{Answer, Ratio, Verdict};
use super::super::found::MARGIN;
use super::super::larger::{Here, Larger, Size, StandIn};
use super::super::tuned::Tuned;
use super::Report;

/// Version of [`Tuning`] as JSON.
const SCHEMA: u32 = 1;

/// What `kolo tune` found for a topology.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tuning {
    /// Version of this structure.
    schema: u32,
    /// The model whose gradients were reduced.
    workload: String,
    /// What moved the bytes.
    transport: String,
    /// Nodes x ranks per node, or the ranks of each node.
    topology: String,
    /// Whether to change Horovod's settings.
    verdict: Verdict,
    /// Rests on the data plane that Horovod would use.
    for_horovod: bool,
    /// The setting to use; null if the verdict is `unknown`.
    recommended: Option<Setting>,
    /// What the verdict compares with, by its name in `compared`; null if that is the recommended setting, or was not
    /// measured.
    reference: Option<String>,
    /// Other settings that were measured in the same rounds, Horovod's defaults among them.
    compared: Vec<Compared>,
    /// Settings that are expected within the margin of the best one.
    expected_within_margin: Vec<Setting>,
    /// Smaller differences do not matter.
    margin: f64,
    /// That a setting outside those measured is better by more than the margin, as the model of the settings has it.
    chance_that_a_better_one_was_missed: f64,
    /// Blocks that were measured.
    blocks: usize,
    /// Steps that were measured.
    steps: usize,
    /// Rounds of the comparison, which chose nothing.
    fresh_rounds: usize,
    /// Rounds that do not count: how long steps took in them, in parts of the others.
    disturbed_rounds: Vec<f64>,
    /// Latency between the first two processors of a virtual machine in the rounds that count, in nanoseconds: what the
    /// comparison holds for. Null on another machine, whose processors do not move.
    core_to_core_ns: Option<f64>,
    /// Rounds that are lost, because the processors had moved: for each the latency in a block that does not count.
    moved_rounds_ns: Vec<f64>,
    /// How long it took.
    seconds: f64,
    /// Settings that could be chosen.
    settings: usize,
    /// Those of them that were measured.
    settings_measured: usize,
    /// Simulated, on more ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    larger: Option<LargerSizes>,
    /// The same for smaller topologies, if there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smaller: Vec<Tuning>,
}

/// Simulated step times on more ranks.
#[derive(Debug, Serialize, JsonSchema)]
struct LargerSizes {
    /// Name of the machine file.
    machine: String,
    /// Ranks on each node.
    local_size: usize,
    /// How messages are timed.
    messages: StandIn,
    /// What was measured at the job's own size.
    here: Here,
    /// World sizes, ascending; the first is that of the job.
    sizes: Vec<LargerSize>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LargerSize {
    #[serde(flatten)]
    size: Size,
    /// The best setting of the grid there.
    best: Setting,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Setting {
    control_plane: String,
    algorithm: String,
    fusion_threshold_bytes: usize,
    cycle_time_ms: f64,
    compression: &'static str,
    num_groups: usize,
    step_ms: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Compared {
    setting: Setting,
    /// As confirm.py calls it.
    name: String,
    /// Its step time in parts of the recommended setting's, with its 95 % interval.
    ratio: Ratio,
    /// The same for Horovod: the interval includes the noise of a measurement that is as long, and how far Horovod's gains are
    /// from promised ones.
    promised: Ratio,
    tied: bool,
}

impl Report<'_> {
    /// For programs.
    pub fn json(&self) -> Tuning {
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
                    promised: self.promised(answer, &ratio),
                    tied: answer.tied.contains(&other),
                })
                .collect()
        };
        let recommended = answer
            .filter(|answer| answer.verdict != Verdict::Unknown)
            .map(|answer| Setting { step_ms: 1e3 * answer.step_s, ..setting(answer.choice) });
        let reference = |answer: &Answer| {
            let default = self.grid.space.defaults.first();
            default.filter(|&at| answer.others.contains_key(at)).map(|&at| self.name(at))
        };
        let near =
            |answer: &Answer| answer.expected_tied.iter().map(|&other| setting(other)).collect();
        let larger = self.larger.map(|larger| {
            let Larger { machine, local_size, messages, here, sizes } = larger.clone();
            let sizes = sizes.into_iter().map(|size| {
                let step_ms = size.recommended_ms.value * size.best_ratio;
                LargerSize { best: Setting { step_ms, ..setting(size.best) }, size }
            });
            LargerSizes { machine, local_size, messages, here, sizes: sizes.collect() }
        });
        Tuning {
            schema: SCHEMA,
            workload: self.grid.plan.workload.name.clone(),
            transport: first.transport.name().into(),
            topology: first.topology.to_string(),
            verdict: answer.map_or(Verdict::Unknown, |answer| answer.verdict),
            for_horovod: self.grid.is_for_horovod(),
            recommended,
            reference: answer.and_then(reference),
            compared: answer.map(compared).unwrap_or_default(),
            expected_within_margin: answer.map(near).unwrap_or_default(),
            margin: MARGIN,
            chance_that_a_better_one_was_missed: self.tuned.found.missed,
            blocks,
            steps: blocks * steps,
            fresh_rounds: answer.map_or(0, |answer| answer.rounds),
            disturbed_rounds: self.tuned.found.disturbed.clone(),
            core_to_core_ns: self.tuned.found.core_to_core_ns,
            moved_rounds_ns: self.tuned.found.moved_ns.clone(),
            seconds,
            settings: self.grid.plan.cases.len(),
            settings_measured: self.tuned.found.blocks.len(),
            larger,
            smaller: Vec::new(),
        }
    }
}
