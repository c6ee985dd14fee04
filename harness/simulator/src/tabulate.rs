//! Converts simulations to rows. They contain no host and no wall time: the same configuration gives the same rows
//! everywhere.

use algorithms::topology::Topology;

use super::config::Case;
use super::sweep::{CaseError, Plan, Simulated};
use super::training::Step;
use results::row::{
    CaseOutcome, Key, SimulatedStepResult, SimulatedStepRow, Times, Training, Transfer, Tuning,
    ends,
};
use results::statistics::Summary;

/// Rows of cases, in their order.
pub fn rows(
    plan: &Plan,
    cases: &[(Case<'_>, Result<Simulated, CaseError>)],
) -> Vec<SimulatedStepRow> {
    let base_ranks = plan.config.simulate.base_ranks;
    let row = |(case, simulated): &(Case, Result<Simulated, CaseError>)| {
        let base = cases.iter().find_map(|(other, result)| {
            let is_base = (other.model, other.policy) == (case.model, case.policy);
            (is_base && other.ranks == base_ranks).then_some((other, result.as_ref().ok()?))
        });
        let outcome = match simulated {
            Ok(simulated) => CaseOutcome::Ok(result(case, simulated, base)),
            Err(reason) => CaseOutcome::Unsupported(reason.to_string()),
        };
        row_of(plan, case, outcome).rounded()
    };
    cases.iter().map(row).collect()
}

/// The row of a case that ended so.
fn row_of(plan: &Plan, case: &Case, outcome: CaseOutcome<SimulatedStepResult>) -> SimulatedStepRow {
    let simulate = &plan.config.simulate;
    let Case { model, policy, ranks } = *case;
    let topology = topology(plan, ranks);
    let workload = plan.workload(model);
    let groups = policy.groups.as_ref().and_then(|groups| groups.of(workload).ok());
    SimulatedStepRow {
        key: Key {
            case: case.to_string(),
            nodes: topology.nodes(),
            local_size: topology.local_size(),
            ranks,
            dtype: "f32".into(),
            op: "average".into(),
            in_place: false,
            size_bytes: 4 * workload.elements(),
        },
        training: Training {
            workload: model.workload.clone(),
            algorithm: policy.data_plane.clone(),
            groups: groups.map_or(0, |groups| groups.len()),
            backward_passes_per_step: Some(policy.backward_passes_per_step),
            compression: model.compression.name().into(),
            cache_capacity: policy.cache_capacity,
            segment_bytes: policy.segment_bytes() as usize,
            packing_bytes: policy.packing_bytes() as usize,
            forward_ms: model.forward_ms,
            backward_ms: model.backward_ms,
            optimizer_ms: model.optimizer_ms,
            warmup: simulate.warmup_steps,
        },
        tuning: Tuning {
            control_plane: policy.control_plane.clone(),
            tensors: workload.gradients.len(),
            fusion_threshold_bytes: policy.fusion_threshold_bytes(),
            cycle_time_ms: policy.cycle_time_ms,
        },
        outcome,
        seed: simulate.seed,
        seeds: Some(simulate.seeds),
        machine: plan.machine.name.clone(),
        policy: policy.name.clone(),
        batch: Some(model.batch * policy.backward_passes_per_step),
        transport: String::new(),
    }
}

/// The topology of the ranks, or one node if they do not fit.
pub fn topology(plan: &Plan, ranks: usize) -> Topology {
    match plan.machine.misfit(ranks) {
        None => plan.machine.machine().topology(ranks),
        Some(_) => Topology::uniform(1, ranks.max(1)),
    }
}

/// The median over seeds of a step's mean.
fn over_seeds(simulated: &Simulated, value: impl Fn(&Step) -> f64) -> Summary {
    let mean = |steps: &Vec<Step>| steps.iter().map(&value).sum::<f64>() / steps.len() as f64;
    let values: Vec<f64> = simulated.steps.iter().map(mean).collect();
    Summary::of(&values).expect("there is a seed")
}

/// Samples per second of all ranks together, for each seed.
pub fn throughputs(case: &Case, simulated: &Simulated) -> Vec<f64> {
    simulated.steps.iter().map(|steps| throughput(case, steps)).collect()
}

fn throughput(case: &Case, steps: &[Step]) -> f64 {
    let samples = (case.model.batch * case.policy.backward_passes_per_step * case.ranks) as f64;
    samples * steps.len() as f64 / steps.iter().map(|step| step.time).sum::<f64>()
}

/// By how much the throughput with the first seed changes at each end of the parameters' ranges.
fn changes(case: &Case, simulated: &Simulated) -> Vec<f64> {
    let nominal = throughput(case, &simulated.steps[0]);
    simulated.at_ends.iter().map(|steps| throughput(case, steps) / nominal).collect()
}

/// The interval of a median over seeds, wider by what the ends of the parameters' ranges change.
fn interval(summary: &Summary, changes: &[f64]) -> (Option<f64>, Option<f64>) {
    let (low, high) = ends(summary);
    let least = changes.iter().fold(1.0_f64, |least, &change| least.min(change));
    let most = changes.iter().fold(1.0_f64, |most, &change| most.max(change));
    (low.map(|low| low * least), high.map(|high| high * most))
}

fn result(
    case: &Case,
    simulated: &Simulated,
    base: Option<(&Case, &Simulated)>,
) -> SimulatedStepResult {
    let us = |value: &dyn Fn(&Step) -> f64| 1e6 * over_seeds(simulated, value).p50;
    let count = |value: &dyn Fn(&Step) -> usize| over_seeds(simulated, |s| value(s) as f64).p50;
    let time = over_seeds(simulated, |step| step.time * 1e6);
    let throughputs = throughputs(case, simulated);
    let throughput = Summary::of(&throughputs).expect("there is a seed");
    let changes = changes(case, simulated);
    let (throughput_samples_s_p50_low, throughput_samples_s_p50_high) =
        interval(&throughput, &changes);
    let longer: Vec<f64> = changes.iter().map(|change| 1.0 / change).collect();
    let (time_us_p50_low, time_us_p50_high) = interval(&time, &longer);
    let efficiency = base.map(|(base_case, base)| {
        let base = self::throughputs(base_case, base);
        // Seed by seed: the same jitter in both.
        let scale = base_case.ranks as f64 / case.ranks as f64;
        let each: Vec<f64> = throughputs.iter().zip(&base).map(|(a, b)| a / b * scale).collect();
        Summary::of(&each).expect("there is a seed")
    });
    let of_base = base.map_or_else(Vec::new, |(case, simulated)| self::changes(case, simulated));
    let relative: Vec<f64> = changes.iter().zip(&of_base).map(|(own, base)| own / base).collect();
    let (efficiency_p50_low, efficiency_p50_high) =
        efficiency.as_ref().map_or((None, None), |efficiency| interval(efficiency, &relative));
    let interval_over = if changes.is_empty() { "" } else { "seeds and parameters" };
    SimulatedStepResult {
        // A quantile over steps is none over seeds.
        times: Times {
            time_us_p50_low,
            time_us_p50_high,
            time_us_p90: None,
            time_us_p99: None,
            ..Times::of(&time)
        },
        interval_over: interval_over.into(),
        transfer: Transfer {
            part_latency_us: us(&|step| step.latency),
            part_bandwidth_us: us(&|step| step.bandwidth),
            // The columns have no place of its own for input.
            part_contention_us: us(&|step| step.contention + step.input),
            part_reduction_us: us(&|step| step.reduction),
        },
        engine: simulated.engine.into(),
        driven: simulated.drive.name().into(),
        samples: simulated.steps.iter().map(Vec::len).sum(),
        exposed_us_p50: us(&|step| step.time - step.compute - step.jitter),
        data_us_p50: us(&|step| step.communicating),
        negotiation_us_p50: us(&|step| step.negotiating),
        cycles_p50: count(&|step| step.cycles),
        idle_cycles_p50: count(&|step| step.idle_cycles),
        messages_p50: count(&|step| step.messages),
        throughput_samples_s_p50: Some(throughput.p50),
        throughput_samples_s_p50_low,
        throughput_samples_s_p50_high,
        efficiency_p50: efficiency.as_ref().map(|efficiency| efficiency.p50),
        efficiency_p50_low,
        efficiency_p50_high,
        efficiency_base_ranks: base.map(|(base_case, _)| base_case.ranks),
        part_compute_us: us(&|step| step.compute),
        part_jitter_us: us(&|step| step.jitter),
        part_cycle_us: us(&|step| step.cycle),
        part_negotiation_us: us(&|step| step.negotiation),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use results::toml_file::Checked;

    #[test]
    fn intervals_contain_what_parameters_change_and_medians_stay() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/summit-scaling.toml");
        let of = |vary_parameters: bool| {
            let mut config = Config::read(Path::new(path)).unwrap();
            config.model.truncate(1);
            config.policy.retain(|policy| policy.name == "horovod-bitvector");
            config.simulate.ranks = vec![6, 96];
            config.simulate.vary_parameters = vary_parameters;
            let Plan { config, mut machine, workloads, .. } =
                Plan::new(config, Path::new(path)).unwrap();
            // Noise that shows beside the differences between GPUs.
            let noise = &mut machine.variability.as_mut().unwrap().step_cv;
            (noise.value, noise.low, noise.high) = (0.016, Some(0.003), Some(0.025));
            let plan = Plan::of(config, machine, workloads);
            let rows = rows(&plan, &plan.run(|| ()));
            rows.into_iter().map(|row| row.outcome.right().unwrap().clone()).collect::<Vec<_>>()
        };
        for (index, (seeds, varied)) in of(false).into_iter().zip(of(true)).enumerate() {
            assert_eq!(
                (&*seeds.interval_over, &*varied.interval_over),
                ("", "seeds and parameters")
            );
            let bounds = |result: &SimulatedStepResult| {
                let Times { time_us_p50, time_us_p50_low, time_us_p50_high, .. } = result.times;
                (time_us_p50, time_us_p50_low.unwrap(), time_us_p50_high.unwrap())
            };
            let ((median, low, high), (same, lower, higher)) = (bounds(&seeds), bounds(&varied));
            assert_eq!(median, same);
            assert!(lower < low && high < higher, "{lower} {low} {high} {higher}");
            let efficiency = |result: &SimulatedStepResult| {
                [result.efficiency_p50_low, result.efficiency_p50_high].map(Option::unwrap)
            };
            let ([low, high], [lower, higher]) = (efficiency(&seeds), efficiency(&varied));
            // The base has efficiency 1, whatever its parameters.
            assert!(lower <= low && high <= higher, "{lower} {low} {high} {higher}");
            assert_eq!(higher - lower > high - low, index > 0, "{lower} {low} {high} {higher}");
        }
    }
}
