//! Converts the logs of ranks to a block: its samples, messages and lines per rank.

use std::collections::HashMap;
use std::time::Duration;

use algorithms::algorithm::Choice;
use algorithms::control::Report;
use algorithms::cost::levels;
use algorithms::segments::pipelined;
use algorithms::topology::Topology;

use results::block::{Block, Histogram, Message, RankBlock, Sample, histogram};
use results::statistics::Summary;
use results::units::micros;
use training::outcome::{Outcome, RankCycle, RankLog, RankStep};
use transports::programs::choice_for;

/// Information about a case that the logs of its ranks do not contain.
pub struct Context<'p> {
    /// The case's name.
    pub case: String,
    /// Its ranks on nodes.
    pub topology: &'p Topology,
    /// Steps of the warm-up at the beginning of a block.
    pub warmup_steps: usize,
    /// Bytes of an element as it travels.
    pub element_bytes: usize,
    /// How many gradients a step has.
    pub gradients: usize,
    /// The schedules of the data plane, if they are known.
    pub schedules: Option<Schedules<'p>>,
}

/// Schedules whose bytes can be counted.
pub struct Schedules<'p> {
    /// By size of the message.
    pub choices: &'p [Choice],
    /// Into segments of how many bytes a message is cut.
    pub segment_bytes: usize,
    /// Whether a rank writes into another's memory.
    pub puts: bool,
}

/// Which block of a case it is.
#[derive(Clone, Copy)]
pub struct Position {
    /// Each case once per block.
    pub block: usize,
    /// Position of the case within the block.
    pub order: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
}

/// The block of a case from its ranks' logs: the steps after the warm-up, the maximum over ranks.
pub fn block_of(context: &Context, position: Position, outcome: &Outcome) -> Block {
    let cycles = cycles_of(outcome);
    Block {
        samples: samples(context, position, outcome, &cycles),
        messages: messages(context, position.block, outcome),
        ranks: ranks(context, position, outcome),
        latencies: Some(latencies(context.warmup_steps, &cycles)),
        conditions: None,
    }
}

/// The negotiation of each cycle, in nanoseconds.
fn latencies(warmup_steps: usize, cycles: &[Cycle]) -> Histogram {
    let mut latencies = histogram();
    for cycle in cycles.iter().filter(|cycle| cycle.step >= Some(warmup_steps)) {
        latencies.saturating_record(cycle.negotiation.as_nanos().max(1) as u64);
    }
    latencies
}

fn messages(context: &Context, block: usize, outcome: &Outcome) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for (index, message) in outcome.ranks[0].messages.iter().enumerate() {
        let Some(step) = message.step.checked_sub(context.warmup_steps) else { continue };
        let first =
            messages.iter().rposition(|earlier| earlier.step != step).map_or(0, |at| at + 1);
        let time = outcome.ranks.iter().map(|rank| rank.messages[index].time).max();
        messages.push(Message {
            case: context.case.clone(),
            block,
            step,
            index: messages.len() - first,
            tensors: message.tensors,
            size_bytes: message.elements * context.element_bytes,
            time_us: micros(time.unwrap_or_default()),
        });
    }
    messages
}

fn samples(
    context: &Context,
    Position { block, order, launch }: Position,
    outcome: &Outcome,
    cycles: &[Cycle],
) -> Vec<Sample> {
    let Context { case, warmup_steps, gradients, .. } = context;
    let mut sent = Sent { context, by_elements: HashMap::new() };
    let steps = outcome.ranks[0].steps.len();
    let sample = |step: usize| {
        let max = |what: fn(&RankStep) -> Duration| {
            let times = outcome.ranks.iter().map(|rank| what(&rank.steps[step]));
            micros(times.max().unwrap_or_default())
        };
        let [inside_bytes, between_bytes] = sent.in_step(outcome, step);
        let checked = step + 1 == steps;
        let rank_0 = &outcome.ranks[0].steps[step];
        let mut all = Report::default();
        outcome.ranks.iter().for_each(|rank| all += rank.steps[step].report);
        let [stop_empty, stop_threshold, stop_unlike, stop_group, stop_alone] = rank_0.report.stops;
        let cycles = || cycles.iter().filter(|cycle| cycle.step == Some(step));
        Sample {
            case: case.clone(),
            block,
            launch,
            order,
            step: step - warmup_steps,
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
            cycle_wait_us: micros(rank_0.cycle_wait) / (*gradients).max(1) as f64,
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
            inside_bytes,
            between_bytes,
            checked,
            wrong: if checked { outcome.wrong.count } else { 0 },
            first_wrong: outcome.wrong.first.clone().filter(|_| checked).unwrap_or_default(),
            warmup: *warmup_steps,
            reduction_us: reduction_us(outcome, step),
            until_cycle_us: Some(max(|step| step.until_cycle)),
            ended_s: ended_s(outcome, step),
        }
    };
    (*warmup_steps..steps).map(sample).collect()
}

/// When a step ended on rank 0, to a tenth of a millisecond; none if it is not known.
fn ended_s(outcome: &Outcome, step: usize) -> Option<f64> {
    let ended_s = outcome.ranks[0].steps[step].ended.as_secs_f64();
    (ended_s > 0.0).then(|| (1e4 * ended_s).round() / 1e4)
}

/// Bytes that all ranks send, worked out once for each size of message.
struct Sent<'c> {
    context: &'c Context<'c>,
    by_elements: HashMap<usize, [usize; 2]>,
}

impl Sent<'_> {
    /// Bytes inside nodes and between them; none if the schedules are not known.
    fn in_step(&mut self, outcome: &Outcome, step: usize) -> [usize; 2] {
        let Context { topology, element_bytes, ref schedules, .. } = *self.context;
        let mut bytes = [0; 2];
        let Some(Schedules { choices, segment_bytes, puts }) = *schedules else { return bytes };
        for message in outcome.ranks[0].messages.iter().filter(|message| message.step == step) {
            let elements = message.elements;
            let levels = *self.by_elements.entry(elements).or_insert_with(|| {
                let size_bytes = elements * element_bytes;
                let schedule = &*choice_for(choices, size_bytes).schedule;
                levels(&pipelined(schedule, size_bytes, segment_bytes, puts), topology, elements)
            });
            (0..2).for_each(|level| bytes[level] += levels[level] * element_bytes);
        }
        bytes
    }
}

/// Up to this many ranks, each rank's times are stored in full.
const MOST_RANKS_IN_FULL: usize = 256;

/// With more ranks, the times of this many are: the slowest.
const SLOWEST: usize = 8;

/// Each rank's log of a block.
fn ranks(
    Context { case, topology, warmup_steps, .. }: &Context,
    Position { block, launch, .. }: Position,
    outcome: &Outcome,
) -> Vec<RankBlock> {
    let one = |(rank, log): (usize, &RankLog)| {
        let counted = &log.steps[(*warmup_steps).min(log.steps.len())..];
        let of = |what: fn(&RankStep) -> Duration| {
            let values: Vec<f64> = counted.iter().map(|step| micros(what(step))).collect();
            Summary::of(&values).unwrap_or_default()
        };
        let times = counted.iter().map(|step| format!("{:.1}", micros(step.time)));
        let time = of(|step| step.time);
        RankBlock {
            case: case.clone(),
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

/// A step's time by the devices' clocks: the largest over ranks.
fn device_us(outcome: &Outcome, step: usize) -> Option<f64> {
    let times = outcome.ranks.iter().map(|rank| rank.steps[step].device);
    times.collect::<Option<Vec<_>>>()?.into_iter().max().map(micros)
}

/// The time of combining elements in a step: the largest over ranks.
fn reduction_us(outcome: &Outcome, step: usize) -> Option<f64> {
    outcome.ranks.iter().filter_map(|rank| rank.steps[step].reduction).max().map(micros)
}

/// The share of a step's time on a core: the largest over ranks.
fn cpu_share(outcome: &Outcome, step: usize) -> Option<f64> {
    let share = |rank: &RankLog| {
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

/// The rank that enters a cycle last does not wait: its time is the negotiation, and the excess of the others is
/// waiting. Where ranks do not negotiate, rank 0's cycles are used.
fn cycles_of(outcome: &Outcome) -> Vec<Cycle> {
    let cycle = |(index, rank0): (usize, &RankCycle)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_ranks_only_the_slowest_are_stored_in_full() {
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
