//! The expected step time of settings that have not been measured.
//!
//! The first measured blocks give the cost of a message of each size on this data plane, and of a cycle of each
//! control plane. With these two curves the training step is simulated on the real state machines of the control
//! planes. The search corrects errors of the model by its residuals.

use std::collections::BTreeMap;
use std::sync::Arc;

use algorithms::control::{ControlError, Settings, Tensors};
use rayon::prelude::*;

use super::found::Blocks;
use super::surface::Observed;
use measure::config::Case;
use measure::plan::{Plan, Planned};
use results::statistics::median;
use simulator::data_plane::{DataPlane, Overlap};
use simulator::jitter::Jitter;
use simulator::machine_file::{Control, Parameter};
use simulator::sweep::ready;
use simulator::training::{self, Compute, Congestion, Drive, Interference, Job};

/// Simulated steps of each setting; the first ones, in which caches fill, are left out.
const STEPS: usize = 3;
const WARMUP: usize = 2;

/// Messages whose sizes differ by less than a factor of 2^(1/4) are combined.
const SIZES_PER_OCTAVE: f64 = 4.0;

/// The costs of messages and negotiations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// By algorithm: sizes in bytes, ascending, and seconds.
    pub messages: BTreeMap<String, Vec<(f64, f64)>>,
    /// By control plane: seconds in a cycle with messages.
    pub negotiation: BTreeMap<String, f64>,
}

impl Costs {
    /// From blocks of a plan's cases.
    pub fn of(plan: &Plan, blocks: &Blocks) -> Costs {
        let observed = blocks.iter().flat_map(|(&setting, blocks)| {
            blocks.iter().map(move |block| (&plan.cases[setting].case, block))
        });
        Costs::learn(observed)
    }

    fn learn<'o>(blocks: impl Iterator<Item = (&'o Case, &'o Observed)>) -> Costs {
        let mut messages: BTreeMap<String, BTreeMap<i64, Vec<(f64, f64)>>> = BTreeMap::new();
        let mut negotiation: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (case, observed) in blocks {
            let sizes = messages.entry(case.algorithm.clone()).or_default();
            for &(bytes, seconds) in &observed.messages {
                let size = (bytes.max(1.0).log2() * SIZES_PER_OCTAVE).round() as i64;
                sizes.entry(size).or_default().push((bytes, seconds));
            }
            let of_plane = negotiation.entry(case.control_plane.clone()).or_default();
            of_plane.push(observed.negotiation_s);
        }
        let curve = |sizes: BTreeMap<i64, Vec<(f64, f64)>>| {
            let point = |of_size: Vec<(f64, f64)>| {
                let (bytes, seconds): (Vec<f64>, Vec<f64>) = of_size.into_iter().unzip();
                (middle(bytes), middle(seconds))
            };
            let mut points: Vec<(f64, f64)> = sizes.into_values().map(point).collect();
            // More bytes never take less time.
            let mut most_s: f64 = 0.0;
            for (_, seconds) in &mut points {
                most_s = most_s.max(*seconds);
                *seconds = most_s;
            }
            points
        };
        Costs {
            messages: messages.into_iter().map(|(name, sizes)| (name, curve(sizes))).collect(),
            negotiation: negotiation.into_iter().map(|(name, all)| (name, middle(all))).collect(),
        }
    }
}

fn middle(values: Vec<f64>) -> f64 {
    median(values).unwrap_or(0.0)
}

/// Expected step time in seconds of every case of a plan, from blocks of some of them; infinite where it is
/// unknown. `blocking` as in [`training_job`].
pub fn expected(plan: &Plan, blocks: &Blocks, blocking: bool) -> Vec<f64> {
    predict(plan, &Costs::of(plan, blocks), blocking)
}

/// Step time in seconds of every case of a plan; infinite where it is unknown.
fn predict(plan: &Plan, costs: &Costs, blocking: bool) -> Vec<f64> {
    let jitter = Jitter { cv: Some(0.0), ..Jitter::default() };
    let seconds = |planned: &Planned| {
        let case = &planned.case;
        let points = costs.messages.get(&case.algorithm)?;
        let data = DataPlane::measured(points.clone(), case.topology.ranks());
        let control = free_but(1e6 * costs.negotiation.get(&case.control_plane)?);
        let parts = (&control, &data, &jitter);
        let job = training_job(plan, planned, parts, blocking).ok()?;
        let steps = training::simulate(&job, WARMUP + STEPS).ok()?;
        let all: f64 = steps[WARMUP..].iter().map(|step| step.time).sum();
        Some(all / STEPS as f64)
    };
    plan.cases.par_iter().map(|planned| seconds(planned).unwrap_or(f64::INFINITY)).collect()
}

/// The training steps of a case in virtual time; if `blocking`, a cycle ends with its messages, as on CPUs.
///
/// # Errors
/// When two gradients have the same name.
pub fn training_job<'j>(
    plan: &'j Plan,
    Planned { case, framework, groups, .. }: &'j Planned,
    (control, data, jitter): (&'j Control, &'j DataPlane, &'j Jitter),
    blocking: bool,
) -> Result<Job<'j>, ControlError> {
    let times = plan.config.times();
    let tensors = framework.tensors(&plan.workload, plan.config.dtype(), plan.config.op());
    Ok(Job {
        tensors: Arc::new(Tensors::new(tensors)?),
        ready: ready(&plan.workload, groups),
        compute: Compute {
            forward_s: times.forward.as_secs_f64(),
            backward_s: times.backward.as_secs_f64(),
            optimizer_s: times.optimizer.as_secs_f64(),
            passes: framework.backward_passes_per_step,
        },
        plane: &case.control_plane,
        settings: Settings {
            fusion_threshold_bytes: case.fusion_threshold_bytes,
            cache_capacity: plan.config.sweep.cache_capacity,
            stall_check: None,
            ..Settings::new(0, 1)
        },
        cycle_s: case.cycle_time.as_secs_f64(),
        ranks: case.topology.ranks(),
        control,
        data,
        partition_bytes: f64::INFINITY,
        packing_bytes: f64::INFINITY,
        overlap: Overlap::Nothing,
        needed: None,
        blocking,
        launch_gradient_s: None,
        interference: Interference::default(),
        congestion: Congestion::default(),
        imbalance: 1.0,
        input_s: 0.0,
        jitter,
        seed: 1,
        drive: Drive::Classes,
    })
}

/// All costs of a negotiation are in the cost of a cycle.
fn free_but(cycle_us: f64) -> Control {
    let parameter =
        |value| Parameter { value, low: None, high: None, source: "measured in blocks".into() };
    Control {
        alpha_us: parameter(0.0),
        message_us: None,
        bandwidth_gb_s: parameter(f64::INFINITY),
        rank0_ns: parameter(0.0),
        cycle_us: parameter(cycle_us),
        late_us: None,
        launch_us: parameter(0.0),
        copy_us: None,
        pack_gb_s: None,
        compute_cv: None,
        start_skew_us: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(algorithm: &str, plane: &str) -> Case {
        Case {
            scaling: Default::default(),
            transport: measure::back_ends::default(),
            topology: "1x2".parse().unwrap(),
            control_plane: plane.into(),
            algorithm: algorithm.into(),
            fusion_threshold_bytes: 0,
            cycle_time: std::time::Duration::from_millis(1),
            varied: Default::default(),
        }
    }

    #[test]
    fn costs_are_medians_by_size_and_never_fall() {
        let cases = [case("ring", "bitvector"), case("ring", "coordinator")];
        let observed = |messages: &[(f64, f64)], negotiation_s| Observed {
            step_s: 1.0,
            messages: messages.to_vec(),
            negotiation_s,
            ..Observed::default()
        };
        let blocks = [
            observed(&[(1000.0, 2e-3), (1001.0, 4e-3), (1002.0, 9e-3), (8000.0, 3e-3)], 1e-5),
            observed(&[(64e3, 5e-3)], 1e-4),
        ];
        let costs = Costs::learn(cases.iter().zip(&blocks));
        let curve = [(1001.0, 4e-3), (8000.0, 4e-3), (64e3, 5e-3)];
        assert_eq!(costs.messages["ring"], curve);
        assert_eq!(costs.negotiation["bitvector"], 1e-5);
        assert_eq!(costs.negotiation["coordinator"], 1e-4);
    }
}
