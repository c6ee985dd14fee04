//! From what ranks saw to samples, and from samples to rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use algorithms::algorithm::Choice;
use algorithms::control::Report;
use algorithms::cost::levels;
use algorithms::topology::Topology;

use crate::plan::{Plan, Planned};
use results::provenance::Launch;
use results::record::{Block, histogram};
use results::row::{Kind, Message, RankBlock, Row, SCHEMA, Sample, Source, Status};
use results::row::{ends, put_times, rounded};
use results::statistics::Summary;
use results::units::bus_factor;
use training::outcome;
use training::outcome::Outcome;
use transports::programs::{choice_for, pipelined};
use transports::threads::is_pinned;
use workloads::groups::Groups;

/// What ranks saw, as samples: the steps after the warm-up, the maximum over ranks.
pub fn block_of(
    plan: &Plan,
    planned: &Planned,
    (block, order, launch): (usize, usize, usize),
    outcome: &Outcome,
) -> Block {
    let warmup = plan.config.measure.warmup_steps;
    let element_bytes = planned.framework.wire(plan.config.dtype()).size_bytes();
    let case = planned.case.to_string();
    let mut latencies = histogram();
    let cycles = cycles_of(outcome);
    for cycle in cycles.iter().filter(|cycle| cycle.step >= Some(warmup)) {
        latencies.saturating_record(cycle.negotiation.as_nanos().max(1) as u64);
    }
    let mut messages: Vec<Message> = Vec::new();
    for (index, message) in outcome.ranks[0].messages.iter().enumerate() {
        if message.step < warmup {
            continue;
        }
        let step = message.step - warmup;
        let first =
            messages.iter().rposition(|earlier| earlier.step != step).map_or(0, |at| at + 1);
        let time = outcome.ranks.iter().map(|rank| rank.messages[index].time).max();
        messages.push(Message {
            case: case.clone(),
            block,
            step,
            index: messages.len() - first,
            tensors: message.tensors,
            size_bytes: message.elements * element_bytes,
            time_us: micros(time.unwrap_or_default()),
        });
    }
    let mut sent: HashMap<usize, [usize; 2]> = HashMap::new();
    let steps = outcome.ranks[0].steps.len();
    let samples = (warmup..steps).map(|step| {
        let max = |what: fn(&outcome::RankStep) -> Duration| {
            micros(
                outcome.ranks.iter().map(|rank| what(&rank.steps[step])).max().unwrap_or_default(),
            )
        };
        let mut bytes = [0; 2];
        if let Some(choices) = schedules(planned) {
            for message in outcome.ranks[0].messages.iter().filter(|message| message.step == step) {
                let elements = message.elements;
                let levels = *sent.entry(elements).or_insert_with(|| {
                    let (size, segment) =
                        (elements * element_bytes, plan.config.sizes().segment_bytes);
                    let schedule = &*choice_for(choices, size).schedule;
                    let puts = planned.case.transport.puts();
                    let pipelined = pipelined(schedule, size, segment, puts);
                    levels(&pipelined, &planned.case.topology, elements)
                });
                (0..2).for_each(|level| bytes[level] += levels[level] * element_bytes);
            }
        }
        let checked = step + 1 == steps;
        let rank_0 = &outcome.ranks[0].steps[step];
        let mut all = Report::default();
        outcome.ranks.iter().for_each(|rank| all += rank.steps[step].report);
        let [stop_empty, stop_threshold, stop_unlike, stop_group, stop_alone] = rank_0.report.stops;
        let gradients = plan.workload.gradients.len().max(1) as f64;
        let cycles = || cycles.iter().filter(|cycle| cycle.step == Some(step));
        Sample {
            case: case.clone(),
            block,
            launch,
            order,
            step: step - warmup,
            time_us: max(|step| step.time),
            device_us: device_us(outcome, step),
            negotiation_us: micros(cycles().map(|cycle| cycle.negotiation).sum()),
            wait_us: micros(cycles().map(|cycle| cycle.wait).sum()),
            data_us: max(|step| step.data),
            packing_us: max(|step| step.packing),
            compression_us: max(|step| step.work.compression),
            aggregation_us: max(|step| step.work.aggregation),
            cycles: cycles().count(),
            idle_cycles: cycles().filter(|cycle| cycle.messages == 0).count(),
            messages: cycles().map(|cycle| cycle.messages).sum(),
            control_bytes: outcome.ranks.iter().map(|rank| rank.steps[step].control_bytes).sum(),
            cycle_wait_us: micros(rank_0.cycle_wait) / gradients,
            slow_cycles: rank_0.report.slow_cycles,
            hits: rank_0.report.hits,
            misses: rank_0.report.misses,
            invalid: rank_0.report.invalid,
            evictions: rank_0.report.evictions,
            stop_empty,
            stop_threshold,
            stop_unlike,
            stop_group,
            stop_alone,
            control_messages: all.messages_sent,
            rank0_sent: rank_0.report.messages_sent,
            rank0_received: rank_0.report.messages_received,
            rank0_bytes_wire: rank_0.report.bytes_wire_sent + rank_0.report.bytes_wire_received,
            bytes_wire: all.bytes_wire_sent,
            bytes_horovod: all.bytes_horovod_sent,
            bits_bytes: all.bitwise_bytes,
            cpu_share: cpu_share(outcome, step),
            inside_bytes: bytes[0],
            between_bytes: bytes[1],
            checked,
            wrong: if checked { outcome.wrong.count } else { 0 },
            first_wrong: outcome.wrong.first.clone().filter(|_| checked).unwrap_or_default(),
        }
    });
    let ranks = ranks_of(planned, (&case, block, launch), outcome, warmup);
    Block { samples: samples.collect(), messages, ranks, latencies: Some(latencies) }
}

/// Up to so many ranks each one's times are kept in full.
const MOST_RANKS_IN_FULL: usize = 256;

/// Of more ranks, those of so many are: the slowest.
const SLOWEST: usize = 8;

/// What each rank saw of a block.
fn ranks_of(
    planned: &Planned,
    (case, block, launch): (&str, usize, usize),
    outcome: &Outcome,
    warmup: usize,
) -> Vec<RankBlock> {
    let topology = &planned.case.topology;
    let one = |(rank, log): (usize, &outcome::RankLog)| {
        let counted = &log.steps[warmup.min(log.steps.len())..];
        let of = |what: fn(&outcome::RankStep) -> Duration| {
            let values: Vec<f64> = counted.iter().map(|step| micros(what(step))).collect();
            Summary::of(&values).unwrap_or_default()
        };
        let times = counted.iter().map(|step| format!("{:.1}", micros(step.time)));
        let time = of(|step| step.time);
        RankBlock {
            case: case.into(),
            block,
            launch,
            ranks: topology.ranks(),
            rank,
            node: topology.node_of(rank),
            steps: counted.len(),
            time_us_p50: time.p50,
            time_us_max: time.max,
            data_us_p50: of(|step| step.data).p50,
            times_us: times.collect::<Vec<_>>().join(" "),
        }
    };
    let mut ranks: Vec<RankBlock> = outcome.ranks.iter().enumerate().map(one).collect();
    if ranks.len() > MOST_RANKS_IN_FULL {
        keep_slowest(&mut ranks);
    }
    ranks
}

/// Forgets the times of all but the slowest.
fn keep_slowest(ranks: &mut [RankBlock]) {
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by(|&a, &b| ranks[b].time_us_p50.total_cmp(&ranks[a].time_us_p50));
    order.iter().skip(SLOWEST).for_each(|&rank| ranks[rank].times_us.clear());
}

/// The schedules by size, if they are ours.
fn schedules(planned: &Planned) -> Option<&[Choice]> {
    planned.data_plane.as_ref().ok()?.choices()
}

/// A step's time by the devices' clocks: the largest over ranks.
fn device_us(outcome: &Outcome, step: usize) -> Option<f64> {
    let times = outcome.ranks.iter().map(|rank| rank.steps[step].device);
    times.collect::<Option<Vec<_>>>()?.into_iter().max().map(micros)
}

/// Of a step's time, the share on a core: the largest over ranks.
fn cpu_share(outcome: &Outcome, step: usize) -> Option<f64> {
    let share = |rank: &outcome::RankLog| {
        let step = &rank.steps[step];
        Some(step.cpu?.as_secs_f64() / step.time.as_secs_f64())
    };
    outcome.ranks.iter().map(share).try_fold(0.0, |most, share| Some(f64::max(most, share?)))
}

/// One cycle over all ranks.
struct Cycle {
    step: Option<usize>,
    negotiation: Duration,
    wait: Duration,
    messages: usize,
}

/// The rank that comes last into a cycle waits for nobody: what it needs is the negotiation, and
/// what the others need beyond that is waiting. Where ranks do not negotiate, rank 0's cycles count.
fn cycles_of(outcome: &Outcome) -> Vec<Cycle> {
    let cycle = |(index, rank0): (usize, &outcome::RankCycle)| {
        let ranks = if outcome.negotiated { &outcome.ranks[..] } else { &outcome.ranks[..1] };
        let times = || ranks.iter().map(|rank| rank.cycles[index].negotiation);
        let shortest = times().min().unwrap_or_default();
        Cycle {
            step: rank0.step,
            negotiation: shortest,
            wait: times().max().unwrap_or_default() - shortest,
            messages: rank0.messages,
        }
    };
    outcome.ranks[0].cycles.iter().enumerate().map(cycle).collect()
}

/// Summarises one number over all samples of some blocks.
pub fn summary(blocks: &[&Block], value: impl Fn(&Sample) -> f64) -> Option<Summary> {
    let values: Vec<f64> = blocks.iter().flat_map(|block| &block.samples).map(value).collect();
    Summary::of(&values)
}

/// A row with everything that is known before a case is measured.
pub fn blank(plan: &Plan, planned: &Planned, launches: &[Launch]) -> Row {
    let (case, config) = (&planned.case, &plan.config);
    let ranks = case.topology.ranks();
    let launch = launches.last().expect("this run of the program");
    let (step, framework) = (config.step, &planned.framework);
    let passes = framework.backward_passes_per_step;
    let grouped = (!planned.groups.is_empty()).then_some(&framework.groups);
    let grouping =
        grouped.map(|groups| groups.clone().unwrap_or(Groups::Even(config.sweep.groups)));
    Row {
        schema: SCHEMA,
        kind: Kind::Step,
        case: case.to_string(),
        source: Source::Measured,
        emulated: planned.placement.emulated,
        oversubscribed: planned.placement.oversubscribed,
        pinned: case.transport.pins() && is_pinned(),
        host: launch.machine.host.clone(),
        commit: launch.commit.clone(),
        started: launch.started.clone(),
        seed: config.measure.seed,
        workload: plan.workload.name.clone(),
        transport: case.transport.name().into(),
        control_plane: case.control_plane.clone(),
        algorithm: case.algorithm.clone(),
        groups: match grouping {
            Some(Groups::Even(groups)) => groups,
            _ => planned.groups.len(),
        },
        grouping: grouping.map_or("", |groups| groups.name()).into(),
        backward_passes_per_step: Some(passes),
        average_aggregated_gradients: Some(framework.average_aggregated_gradients),
        compression: framework.compression.name().into(),
        gradient_predivide_factor: Some(framework.gradient_predivide_factor),
        prescale_factor: Some(framework.prescale_factor),
        postscale_factor: Some(framework.postscale_factor),
        nodes: case.topology.nodes(),
        local_size: case.topology.local_size(),
        ranks,
        dtype: config.dtype().name().into(),
        op: config.op().name().into(),
        in_place: true,
        size_bytes: plan.workload.elements() * config.wire().size_bytes(),
        tensors: plan.workload.gradients.len(),
        fusion_threshold_bytes: Some(case.fusion_threshold_bytes),
        cycle_time_ms: Some(case.cycle_time_ms()),
        cache_capacity: Some(config.sweep.cache_capacity),
        segment_bytes: config.sweep.segment_kib * 1024,
        forward_ms: Some(step.forward_ms),
        backward_ms: Some(step.backward_ms),
        optimizer_ms: Some(step.optimizer_ms),
        warmup: config.measure.warmup_steps,
        bound_us: Some(
            ((step.forward_ms + step.backward_ms) * passes as f64 + step.optimizer_ms) * 1e3,
        ),
        ..Row::default()
    }
}

/// The row of a case that is done.
pub fn finished(
    plan: &Plan,
    planned: &Planned,
    launches: &[Launch],
    blocks: &[&Block],
    stop_reason: &str,
) -> Row {
    let samples = || blocks.iter().flat_map(|block| &block.samples);
    let row = blank(plan, planned, launches);
    let p50 = |value: fn(&Sample) -> f64| summary(blocks, value).map(|all| all.p50);
    let mut latencies = histogram();
    for block in blocks.iter().filter_map(|block| block.latencies.as_ref()) {
        latencies.add(block).expect("histograms of one shape");
    }
    let wrong: usize = samples().map(|sample| sample.wrong).sum();
    let launches: BTreeSet<_> = samples().map(|sample| sample.launch).collect();
    let messages = || blocks.iter().flat_map(|block| &block.messages);
    let tensors: usize = messages().map(|message| message.tensors).sum();
    let is_ours = schedules(planned).is_some();
    let mut row = Row {
        status: if wrong == 0 { Status::Ok } else { Status::Wrong },
        samples: samples().count(),
        blocks: blocks.len(),
        launches: launches.len(),
        stop_reason: stop_reason.into(),
        checked: samples().filter(|sample| sample.checked).count(),
        wrong: Some(wrong),
        first_wrong: samples()
            .map(|sample| &sample.first_wrong)
            .find(|text| !text.is_empty())
            .cloned()
            .unwrap_or_default(),
        data_us_p50: p50(|sample| sample.data_us),
        packing_us_p50: p50(|sample| sample.packing_us),
        compression_us_p50: p50(|sample| sample.compression_us),
        aggregation_us_p50: p50(|sample| sample.aggregation_us),
        wait_us_p50: p50(|sample| sample.wait_us),
        negotiation_cycle_us_p50: Some(latencies.value_at_quantile(0.5) as f64 / 1e3),
        negotiation_cycle_us_p99: (latencies.len() >= 368)
            .then(|| latencies.value_at_quantile(0.99) as f64 / 1e3),
        cycles_p50: p50(|sample| sample.cycles as f64),
        idle_cycles_p50: p50(|sample| sample.idle_cycles as f64),
        tensors_per_message_mean: Some(tensors as f64 / messages().count().max(1) as f64),
        control_bytes_p50: p50(|sample| sample.control_bytes as f64),
        cycle_wait_us_p50: p50(|sample| sample.cycle_wait_us),
        slow_cycles_p50: p50(|sample| sample.slow_cycles as f64),
        hits_p50: p50(|sample| sample.hits as f64),
        misses_p50: p50(|sample| sample.misses as f64),
        invalid_p50: p50(|sample| sample.invalid as f64),
        evictions_p50: p50(|sample| sample.evictions as f64),
        stop_empty_p50: p50(|sample| sample.stop_empty as f64),
        stop_threshold_p50: p50(|sample| sample.stop_threshold as f64),
        stop_unlike_p50: p50(|sample| sample.stop_unlike as f64),
        stop_group_p50: p50(|sample| sample.stop_group as f64),
        stop_alone_p50: p50(|sample| sample.stop_alone as f64),
        control_messages_p50: p50(|sample| sample.control_messages as f64),
        rank0_sent_p50: p50(|sample| sample.rank0_sent as f64),
        rank0_received_p50: p50(|sample| sample.rank0_received as f64),
        rank0_bytes_wire_p50: p50(|sample| sample.rank0_bytes_wire as f64),
        bytes_wire_p50: p50(|sample| sample.bytes_wire as f64),
        bytes_horovod_p50: p50(|sample| sample.bytes_horovod as f64),
        bits_bytes_p50: p50(|sample| sample.bits_bytes as f64),
        device_us_p50: p50(|sample| sample.device_us.unwrap_or_default())
            .filter(|_| samples().all(|sample| sample.device_us.is_some())),
        cpu_share_p50: p50(|sample| sample.cpu_share.unwrap_or_default())
            .filter(|_| samples().all(|sample| sample.cpu_share.is_some())),
        // Nobody knows what a vendor's library sends.
        inside_bytes: p50(|sample| sample.inside_bytes as f64).filter(|_| is_ours),
        between_bytes: p50(|sample| sample.between_bytes as f64).filter(|_| is_ours),
        ..row
    };
    if wrong > 0 {
        row.reason = format!("{wrong} wrong elements; first: {}", row.first_wrong);
    }
    row.bound_us = row.bound_us.map(|bound| bound + row.aggregation_us_p50.unwrap_or(0.0));
    if let Some(time) = summary(blocks, |sample| sample.time_us) {
        row.exposed_us_p50 = row.bound_us.map(|bound| time.p50 - bound);
        put_times(&mut row, &time);
    }
    if let Some(negotiation) = summary(blocks, |sample| sample.negotiation_us) {
        row.negotiation_us_p50 = Some(negotiation.p50);
        (row.negotiation_us_p50_low, row.negotiation_us_p50_high) = ends(&negotiation);
    }
    if let Some(messages) = summary(blocks, |sample| sample.messages as f64) {
        row.messages_p50 = Some(messages.p50);
        (row.messages_p50_low, row.messages_p50_high) = ends(&messages);
    }
    rounded(row)
}

/// Bus bandwidth of the messages of measured steps, per topology, algorithm and octave of size:
/// what an allreduce of that size really reached within training steps, packing included. Octaves
/// with fewer than 6 messages are left out, since they have no interval.
pub fn bandwidth(
    plan: &Plan,
    launches: &[Launch],
    rows: &[Row],
    blocks: &BTreeMap<(String, usize), Block>,
) -> Vec<Row> {
    let mut octaves: BTreeMap<(usize, u32), (Vec<usize>, Vec<f64>)> = BTreeMap::new();
    let groups: Vec<(&Topology, &str)> =
        plan.cases.iter().fold(Vec::new(), |mut groups, planned| {
            let group = (&planned.case.topology, planned.case.algorithm.as_str());
            if !groups.contains(&group) {
                groups.push(group);
            }
            groups
        });
    let ok = |name: &str| rows.iter().any(|row| row.case == name && row.status == Status::Ok);
    for planned in &plan.cases {
        let name = planned.case.to_string();
        let group = (&planned.case.topology, planned.case.algorithm.as_str());
        let group = groups.iter().position(|other| *other == group).expect("collected above");
        let own = blocks.range((name.clone(), 0)..=(name.clone(), usize::MAX));
        for message in own.filter(|_| ok(&name)).flat_map(|(_, block)| &block.messages) {
            let octave = (message.size_bytes.max(1) as f64).log2().round() as u32;
            let octave = (group, octave);
            let (sizes, times) = octaves.entry(octave).or_default();
            sizes.push(message.size_bytes);
            times.push(message.size_bytes as f64 / message.time_us.max(1e-3));
        }
    }
    let rows = octaves.into_iter().filter_map(|((group, octave), (mut sizes, speeds))| {
        let (topology, algorithm) = groups[group];
        let planned = plan.cases.iter().find(|planned| {
            planned.case.algorithm == algorithm && planned.case.topology == *topology
        })?;
        let speed = Summary::of(&speeds).filter(|speed| speed.p50_interval.is_some())?;
        sizes.sort_unstable();
        let factor = bus_factor(topology.ranks()) / 1e3;
        let (low, high) = ends(&speed);
        let case = format!("{}/{topology}/{algorithm}/2^{octave}B", planned.case.transport);
        Some(rounded(Row {
            kind: Kind::Message,
            case,
            control_plane: String::new(),
            fusion_threshold_bytes: None,
            cycle_time_ms: None,
            bound_us: None,
            size_bytes: sizes[sizes.len() / 2],
            tensors: 0,
            samples: speed.samples,
            wrong: Some(0),
            algbw_gb_s: Some(speed.p50 / 1e3),
            busbw_gb_s: Some(speed.p50 * factor),
            busbw_gb_s_low: low.map(|speed| speed * factor),
            busbw_gb_s_high: high.map(|speed| speed * factor),
            ..blank(plan, planned, launches)
        }))
    });
    rows.collect()
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_the_slowest_are_kept_in_full() {
        let rank = |rank: usize| RankBlock {
            rank,
            time_us_p50: ((rank * 37) % 300) as f64,
            times_us: "1.0 2.0".into(),
            ..RankBlock::default()
        };
        let mut ranks: Vec<RankBlock> = (0..300).map(rank).collect();
        keep_slowest(&mut ranks);
        let (full, rest): (Vec<_>, Vec<_>) =
            ranks.iter().partition(|rank| !rank.times_us.is_empty());
        assert_eq!(full.len(), 8);
        assert!(full.iter().all(|rank| rank.time_us_p50 >= 292.0));
        assert!(rest.iter().all(|rank| rank.time_us_p50 < 292.0), "their medians stay");
    }
}
