//! From what was simulated to rows. They carry no host and no wall time: the same configuration gives the
//! same rows anywhere.

use algorithms::topology::Topology;

use super::config::Case;
use super::sweep::{CaseError, Plan, Simulated};
use super::training::Step;
use results::row::rounded;
use results::row::{Kind, Row, SCHEMA, Source, Status};
use results::statistics::Summary;

/// Rows of cases, in their order.
pub fn rows(plan: &Plan, cases: &[(Case<'_>, Result<Simulated, CaseError>)]) -> Vec<Row> {
    let base_ranks = plan.config.simulate.base_ranks;
    let row = |(case, result): &(Case, Result<Simulated, CaseError>)| {
        let blank = blank(plan, case);
        let simulated = match result {
            Ok(simulated) => simulated,
            Err(reason) => {
                let reason = reason.to_string();
                return Row { status: Status::Unsupported, reason, ..blank };
            }
        };
        let base = cases.iter().find_map(|(other, result)| {
            let is_base = (other.model, other.policy) == (case.model, case.policy);
            (is_base && other.ranks == base_ranks).then_some(result.as_ref().ok()?)
        });
        rounded(finished(case, blank, simulated, base.map(|base| (base, base_ranks))))
    };
    cases.iter().map(row).collect()
}

fn blank(plan: &Plan, case: &Case) -> Row {
    let simulate = &plan.config.simulate;
    let topology = topology(plan, case.ranks);
    let workload = plan.workload(case.model);
    let passes = case.policy.backward_passes_per_step;
    Row {
        schema: SCHEMA,
        kind: Kind::Step,
        case: case.to_string(),
        source: Source::Simulated,
        machine: plan.machine.name.clone(),
        policy: case.policy.name.clone(),
        seed: simulate.seed,
        seeds: Some(simulate.seeds),
        workload: case.model.workload.clone(),
        batch: Some(case.model.batch * passes),
        control_plane: case.policy.control_plane.clone(),
        algorithm: case.policy.data_plane.clone(),
        groups: match &case.policy.groups {
            Some(groups) => groups.of(workload).map_or(0, |groups| groups.len()),
            None => 0,
        },
        backward_passes_per_step: Some(passes),
        compression: case.model.compression.name().into(),
        nodes: topology.nodes(),
        local_size: topology.local_size(),
        ranks: case.ranks,
        dtype: "f32".into(),
        op: "average".into(),
        size_bytes: 4 * workload.elements(),
        tensors: workload.gradients.len(),
        fusion_threshold_bytes: Some(case.policy.fusion_threshold_bytes()),
        cycle_time_ms: Some(case.policy.cycle_time_ms),
        cache_capacity: Some(case.policy.cache_capacity),
        segment_bytes: case.policy.segment_bytes() as usize,
        forward_ms: Some(case.model.forward_ms),
        backward_ms: Some(case.model.backward_ms),
        optimizer_ms: Some(case.model.optimizer_ms),
        warmup: simulate.warmup_steps,
        ..Row::default()
    }
}

/// Where ranks live, or all on one node where they do not fit.
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
    let samples = (case.model.batch * case.policy.backward_passes_per_step * case.ranks) as f64;
    let mean = |steps: &Vec<Step>| {
        samples * steps.len() as f64 / steps.iter().map(|step| step.time).sum::<f64>()
    };
    simulated.steps.iter().map(mean).collect()
}

fn finished(
    case: &Case,
    blank: Row,
    simulated: &Simulated,
    base: Option<(&Simulated, usize)>,
) -> Row {
    let us = |value: &dyn Fn(&Step) -> f64| Some(1e6 * over_seeds(simulated, value).p50);
    let count =
        |value: &dyn Fn(&Step) -> usize| Some(over_seeds(simulated, |s| value(s) as f64).p50);
    let time = over_seeds(simulated, |step| step.time * 1e6);
    let throughputs = throughputs(case, simulated);
    let throughput = Summary::of(&throughputs).expect("there is a seed");
    let mut row = Row {
        status: Status::Ok,
        engine: simulated.engine.into(),
        driven: simulated.drive.name().into(),
        samples: simulated.steps.iter().map(Vec::len).sum(),
        time_us_p50: Some(time.p50),
        time_us_mean: Some(time.mean),
        time_us_min: Some(time.min),
        time_us_max: Some(time.max),
        throughput_samples_s_p50: Some(throughput.p50),
        exposed_us_p50: us(&|step| step.time - step.compute - step.jitter),
        data_us_p50: us(&|step| step.communicating),
        negotiation_us_p50: us(&|step| step.negotiating),
        cycles_p50: count(&|step| step.cycles),
        idle_cycles_p50: count(&|step| step.idle_cycles),
        messages_p50: count(&|step| step.messages),
        part_compute_us: us(&|step| step.compute),
        part_jitter_us: us(&|step| step.jitter),
        part_cycle_us: us(&|step| step.cycle),
        part_negotiation_us: us(&|step| step.negotiation),
        part_latency_us: us(&|step| step.latency),
        part_bandwidth_us: us(&|step| step.bandwidth),
        part_contention_us: us(&|step| step.contention),
        part_reduction_us: us(&|step| step.reduction),
        ..blank
    };
    if let Some((low, high)) = time.p50_interval {
        (row.time_us_p50_low, row.time_us_p50_high) = (Some(low), Some(high));
    }
    if let Some((low, high)) = throughput.p50_interval {
        (row.throughput_samples_s_p50_low, row.throughput_samples_s_p50_high) =
            (Some(low), Some(high));
    }
    if let Some((base, base_ranks)) = base {
        let base_case = Case { ranks: base_ranks, ..*case };
        let base = self::throughputs(&base_case, base);
        // Seed by seed: the same jitter in both.
        let scale = base_ranks as f64 / case.ranks as f64;
        let each: Vec<f64> = throughputs.iter().zip(&base).map(|(a, b)| a / b * scale).collect();
        let efficiency = Summary::of(&each).expect("there is a seed");
        row.efficiency_base_ranks = Some(base_ranks);
        row.efficiency_p50 = Some(efficiency.p50);
        if let Some((low, high)) = efficiency.p50_interval {
            (row.efficiency_p50_low, row.efficiency_p50_high) = (Some(low), Some(high));
        }
    }
    row
}
