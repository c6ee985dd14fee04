//! From the steps of a case to its row.

use std::time::Duration;

use super::Plan;
use super::config::{Case, LOCKSTEP};
use super::measured::{Measured, Step};
use crate::tabulate::micros;
use results::provenance::{Launch, cores};
use results::row::ends;
use results::row::put_times;
use results::row::rounded;
use results::row::{Kind, Row, SCHEMA, Source, Status};
use results::statistics::Summary;
use simulator::network::{self, Pattern};
use transports::threads::is_pinned;

/// A row with everything that is known before a case is measured.
pub fn blank(plan: &Plan, case: &Case, launches: &[Launch]) -> Row {
    let launch = launches.last().expect("this run of the program");
    let (config, list) = (&plan.config, plan.list(case));
    let in_lockstep = case.transport == LOCKSTEP;
    Row {
        schema: SCHEMA,
        kind: Kind::Control,
        case: case.to_string(),
        source: Source::Measured,
        oversubscribed: !in_lockstep && case.ranks > cores(),
        pinned: !in_lockstep && is_pinned(),
        host: launch.machine.host.clone(),
        commit: launch.commit.clone(),
        started: launch.started.clone(),
        seed: config.measure.seed,
        workload: case.source.to_string(),
        transport: case.transport.into(),
        control_plane: case.plane.clone(),
        nodes: 1,
        local_size: Some(case.ranks),
        ranks: case.ranks,
        dtype: list.first().map_or("", |tensor| tensor.dtype.name()).into(),
        op: list.first().map_or("", |tensor| tensor.op.name()).into(),
        size_bytes: list.iter().map(|tensor| tensor.size_bytes()).sum(),
        tensors: list.len(),
        fusion_threshold_bytes: Some(config.fusion_threshold_bytes()),
        cache_capacity: Some(case.cache_capacity),
        warmup: config.measure.warmup_steps,
        ready_order: case.ready_order.name().into(),
        miss_share: Some(case.miss_share),
        invalid_share: Some(case.invalid_share),
        ..Row::default()
    }
}

/// The row of a case that was measured.
pub fn finished(plan: &Plan, case: &Case, blank: Row, measured: &Measured) -> Row {
    let counted = &measured.steps[plan.config.measure.warmup_steps..];
    let of = |value: &dyn Fn(&Step) -> f64| {
        let values: Vec<f64> = counted.iter().map(value).collect();
        Summary::of(&values).expect("a case has at least one step")
    };
    let p50 = |value: &dyn Fn(&Step) -> f64| Some(of(value).p50);
    let switches: Option<u64> = counted.iter().map(|step| step.context_switches).sum();
    let check = &measured.check;
    let pattern = Pattern::of(&case.plane);
    let assumed = &plan.config.network;
    let network_us = |step: &Step| network::time_us(assumed, case.ranks, pattern, &step.reports);
    let mut row = Row {
        status: if check.wrong == 0 { Status::Ok } else { Status::Wrong },
        reason: check.first.clone().unwrap_or_default(),
        samples: counted.len(),
        blocks: 1,
        launches: 1,
        stop_reason: measured.stop_reason.into(),
        checked: counted.len(),
        wrong: Some(check.wrong),
        first_wrong: check.first.clone().unwrap_or_default(),
        context_switches_mean: switches.map(|all| all as f64 / counted.len() as f64),
        cycles_p50: p50(&|step| step.reports.rank_0.cycles as f64),
        idle_cycles_p50: p50(&|step| step.idle_cycles as f64),
        slow_cycles_p50: p50(&|step| step.reports.rank_0.slow_cycles as f64),
        messages_p50: p50(&|step| step.messages as f64),
        hits_p50: p50(&|step| step.reports.rank_0.hits as f64),
        misses_p50: p50(&|step| step.reports.rank_0.misses as f64),
        invalid_p50: p50(&|step| step.reports.rank_0.invalid as f64),
        evictions_p50: p50(&|step| step.reports.rank_0.evictions as f64),
        rank0_sent_p50: p50(&|step| step.reports.rank_0.messages_sent as f64),
        rank0_received_p50: p50(&|step| step.reports.rank_0.messages_received as f64),
        control_messages_p50: p50(&|step| step.reports.all.messages_sent as f64),
        rank0_bytes_wire_p50: p50(&|step| {
            let report = step.reports.rank_0;
            (report.bytes_wire_sent + report.bytes_wire_received) as f64
        }),
        bytes_wire_p50: p50(&|step| step.reports.all.bytes_wire_sent as f64),
        bytes_horovod_p50: p50(&|step| step.reports.all.bytes_horovod_sent as f64),
        bits_bytes_p50: p50(&|step| step.reports.all.bitwise_bytes as f64),
        network_source: "assumed".into(),
        network_alpha_us: Some(assumed.alpha_us),
        network_message_us: Some(assumed.message_us),
        network_bandwidth_gb_s: Some(assumed.bandwidth_gb_s),
        network_us_p50: p50(&network_us),
        ..blank
    };
    if case.transport == LOCKSTEP {
        let rank_0 = of(&|step| micros(step.rank_0));
        row.rank0_us_p50 = Some(rank_0.p50);
        (row.rank0_us_p50_low, row.rank0_us_p50_high) = ends(&rank_0);
        row.rank_us_mean = p50(&|step| micros(step.all_ranks) / case.ranks as f64);
        row.first_rank0_us = measured.steps.first().map(|step| micros(step.rank_0));
    } else {
        put_times(&mut row, &of(&|step| micros(step.time)));
        row.first_time_us = measured.steps.first().map(|step| micros(step.time));
        put_cycles(&mut row, counted.iter().flat_map(|step| &step.cycles));
    }
    rounded(row)
}

fn put_cycles<'a>(row: &mut Row, cycles: impl Iterator<Item = &'a Duration>) {
    let cycles: Vec<f64> = cycles.copied().map(micros).collect();
    let Some(cycles) = Summary::of(&cycles) else { return };
    row.negotiation_cycle_us_p50 = Some(cycles.p50);
    row.negotiation_cycle_us_p99 = cycles.p99;
}
