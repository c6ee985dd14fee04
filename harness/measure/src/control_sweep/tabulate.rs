//! Converts the steps of a case to its row.

use super::Plan;
use super::config::Case;
use super::measured::{Measured, Step};
use super::transport::Transport;
use results::provenance::{Launch, cores};
use results::row::{
    AssumedNetwork, CaseOutcome, Clock, ControlResult, ControlRow, Effort, Key, Negotiation,
    RankTimes, Run, ThreadTimes, Times, ends,
};
use results::statistics::Summary;
use results::units::micros;
use simulator::network::{self, Network, Pattern};
use transports::threads::is_pinned;

/// The row of a case that ended so.
pub fn row_of(
    plan: &Plan,
    case: &Case,
    launch: &Launch,
    outcome: CaseOutcome<ControlResult>,
) -> ControlRow {
    let (config, list) = (&plan.config, plan.list(case));
    let in_lockstep = case.transport == Transport::Lockstep;
    let key = Key {
        case: case.to_string(),
        nodes: 1,
        local_size: Some(case.ranks),
        ranks: case.ranks,
        dtype: list.first().map_or("", |tensor| tensor.dtype.name()).into(),
        op: list.first().map_or("", |tensor| tensor.op.name()).into(),
        in_place: false,
        size_bytes: list.iter().map(|tensor| tensor.size_bytes()).sum(),
    };
    let run = Run {
        emulated: false,
        oversubscribed: !in_lockstep && case.ranks > cores(),
        pinned: !in_lockstep && is_pinned(),
        host: launch.machine.host.clone(),
        commit: launch.commit.clone(),
        started: launch.started.clone(),
        seed: config.measure.seed,
        transport: case.transport.name().into(),
    };
    let row = ControlRow {
        key,
        run,
        outcome,
        workload: case.source.to_string(),
        control_plane: case.plane.clone(),
        tensors: list.len(),
        fusion_threshold_bytes: config.fusion_threshold_bytes(),
        cache_capacity: case.cache_capacity,
        warmup: config.measure.warmup_steps,
        ready_order: case.ready_order.name().into(),
        miss_share: case.miss_share,
        invalid_share: case.invalid_share,
    };
    row.rounded()
}

/// The result of a measured case, without its first `warmup_steps`.
///
/// # Panics
/// If no step is left.
pub fn outcome(
    case: &Case,
    assumed: &Network,
    warmup_steps: usize,
    measured: &Measured,
) -> CaseOutcome<ControlResult> {
    let steps = Steps(&measured.steps[warmup_steps..]);
    let switches: Option<u64> = steps.0.iter().map(|step| step.context_switches).sum();
    let check = &measured.check;
    let first_wrong = check.first.clone().unwrap_or_default();
    let pattern = Pattern::of(&case.plane);
    let result = ControlResult {
        effort: Effort {
            samples: steps.0.len(),
            blocks: 1,
            launches: 1,
            stop_reason: measured.stop_reason.into(),
            checked: steps.0.len(),
            wrong: Some(check.wrong),
            first_wrong: first_wrong.clone(),
        },
        clock: match case.transport {
            Transport::Lockstep => {
                Clock::Lockstep(steps.rank_times(case.ranks, measured.steps.first()))
            }
            Transport::Threads => Clock::Threads(steps.thread_times(measured.steps.first())),
        },
        negotiation: steps.negotiation(),
        network: AssumedNetwork {
            network_source: "assumed".into(),
            network_alpha_us: assumed.alpha_us,
            network_message_us: Some(assumed.message_us),
            network_bandwidth_gb_s: assumed.bandwidth_gb_s,
            network_us_p50: steps
                .p50(|step| network::time_us(assumed, case.ranks, pattern, &step.reports)),
        },
        context_switches_mean: switches.map(|all| all as f64 / steps.0.len() as f64),
        cycles_p50: steps.p50(|step| step.reports.rank_0.cycles as f64),
        idle_cycles_p50: steps.p50(|step| step.idle_cycles as f64),
        messages_p50: steps.p50(|step| step.messages as f64),
    };
    if check.wrong == 0 {
        CaseOutcome::Ok(result)
    } else {
        CaseOutcome::Wrong { result, reason: first_wrong }
    }
}

/// The measured steps.
struct Steps<'s>(&'s [Step]);

impl Steps<'_> {
    fn summary(&self, value: impl Fn(&Step) -> f64) -> Summary {
        let values: Vec<f64> = self.0.iter().map(value).collect();
        Summary::of(&values).expect("a case has at least one step")
    }

    fn p50(&self, value: impl Fn(&Step) -> f64) -> f64 {
        self.summary(value).p50
    }

    fn rank_times(&self, ranks: usize, first: Option<&Step>) -> RankTimes {
        let rank_0 = self.summary(|step| micros(step.rank_0));
        let (rank0_us_p50_low, rank0_us_p50_high) = ends(&rank_0);
        RankTimes {
            rank0_us_p50: rank_0.p50,
            rank0_us_p50_low,
            rank0_us_p50_high,
            rank_us_mean: self.p50(|step| micros(step.all_ranks) / ranks as f64),
            first_rank0_us: first.map(|step| micros(step.rank_0)),
        }
    }

    fn thread_times(&self, first: Option<&Step>) -> ThreadTimes {
        let cycles: Vec<f64> =
            self.0.iter().flat_map(|step| &step.cycles).copied().map(micros).collect();
        let cycles = Summary::of(&cycles);
        ThreadTimes {
            times: Times::of(&self.summary(|step| micros(step.time))),
            first_time_us: first.map(|step| micros(step.time)),
            negotiation_cycle_us_p50: cycles.as_ref().map(|cycles| cycles.p50),
            negotiation_cycle_us_p99: cycles.and_then(|cycles| cycles.p99),
        }
    }

    fn negotiation(&self) -> Negotiation {
        let p50 = |value: fn(&Step) -> usize| Some(self.p50(|step| value(step) as f64));
        Negotiation {
            slow_cycles_p50: p50(|step| step.reports.rank_0.slow_cycles),
            hits_p50: p50(|step| step.reports.rank_0.hits),
            misses_p50: p50(|step| step.reports.rank_0.misses),
            invalid_p50: p50(|step| step.reports.rank_0.invalid),
            evictions_p50: p50(|step| step.reports.rank_0.evictions),
            rank0_sent_p50: p50(|step| step.reports.rank_0.messages_sent),
            rank0_received_p50: p50(|step| step.reports.rank_0.messages_received),
            control_messages_p50: p50(|step| step.reports.all.messages_sent),
            rank0_bytes_wire_p50: p50(|step| {
                step.reports.rank_0.bytes_wire_sent + step.reports.rank_0.bytes_wire_received
            }),
            bytes_wire_p50: p50(|step| step.reports.all.bytes_wire_sent),
            bytes_horovod_p50: p50(|step| step.reports.all.bytes_horovod_sent),
            bits_bytes_p50: p50(|step| step.reports.all.bitwise_bytes),
        }
    }
}
