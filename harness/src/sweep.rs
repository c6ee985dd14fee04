//! Runs every case of a configuration, in blocks: each case once per block, in random order, so
//! that slow drift of the machine falls on all cases alike.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::fusion::effective_threshold_bytes;
use algorithms::registry::{self, Algorithm};
use algorithms::schedule::Schedule;
use algorithms::topology::Topology;
use indicatif::ProgressBar;
use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::bench::bus_factor;
use crate::config::{Case, Config};
use crate::engine::{self, Job, Outcome, RankMemory, sent_elements};
use crate::provenance::{Launch, cores};
use crate::record::{
    Block, Earlier, Kind, Message, RecordError, Row, SCHEMA, Sample, Source, Status, Store,
    histogram,
};
use crate::statistics::Summary;
use crate::workload::Workload;

/// A case and what is needed to run it.
pub struct Planned {
    /// The setting.
    pub case: Case,
    /// Its data plane.
    pub algorithm: Arc<dyn Algorithm>,
    /// The schedule, or why there is none.
    pub schedule: Result<Box<dyn Schedule>, String>,
}

/// What a configuration comes down to.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Its gradients.
    pub workload: Workload,
    /// Every case, in the order of the configuration.
    pub cases: Vec<Planned>,
}

/// What a sweep brought.
pub struct Report {
    /// A row per case, in the order of the configuration.
    pub rows: Vec<Row>,
    /// Bus bandwidth of the messages, per algorithm and octave of size.
    pub bandwidth: Vec<Row>,
}

impl Plan {
    /// Works out the cases; those that cannot be run stay in, with the reason.
    pub fn new(config: Config, workload: Workload) -> Plan {
        let planned = |case: Case| {
            let algorithm = registry::find(&case.algorithm).expect("the configuration was checked");
            let schedule = algorithm
                .schedule(&case.topology)
                .map_err(|why| why.to_string());
            Planned {
                case,
                algorithm,
                schedule,
            }
        };
        let cases = config.cases().into_iter().map(planned).collect();
        Plan {
            config,
            workload,
            cases,
        }
    }

    /// The order of a block: positions in `cases`, those that cannot be run left out. The same seed
    /// gives the same order.
    pub fn order(&self, block: usize) -> Vec<usize> {
        let runs = |index: &usize| self.cases[*index].schedule.is_ok();
        let mut order: Vec<usize> = (0..self.cases.len()).filter(runs).collect();
        order.shuffle(&mut self.random(block, 0));
        order
    }

    fn random(&self, block: usize, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.config.measure.seed);
        random.set_stream(((block as u64) << 32) | stream);
        random
    }

    /// Memory that the largest case takes, in bytes, at most: gradients, and a fusion buffer of the
    /// size of all of them, on every rank.
    pub fn memory_bytes(&self) -> u64 {
        let ranks = self
            .cases
            .iter()
            .map(|planned| planned.case.topology.ranks())
            .max();
        let size = self.workload.elements() * self.config.dtype().size_bytes();
        2 * (ranks.unwrap_or(0) * size) as u64
    }

    /// A guess at the time of one block of a case: its compute time, and its data moved at 8 GB/s
    /// per core.
    pub fn estimate(&self, planned: &Planned) -> Duration {
        let measure = &self.config.measure;
        let times = self.config.times();
        let size = self.workload.elements() * self.config.dtype().size_bytes();
        let ranks = planned.case.topology.ranks();
        let moved = 4.0 * (ranks * size) as f64 / (8e9 * cores().min(ranks) as f64);
        let step =
            times.forward + times.backward + times.optimizer + Duration::from_secs_f64(moved);
        step * (measure.warmup_steps + measure.steps_per_block + 1) as u32
    }
}

/// Runs a plan until every case is done; rows are in the store as soon as they are known.
///
/// # Errors
/// When results cannot be written. A case that fails is a row, not an error.
pub fn run(
    plan: &Plan,
    store: &mut Store,
    earlier: Earlier,
    launch: &Launch,
    launches: usize,
    progress: &ProgressBar,
) -> Result<Report, RecordError> {
    let start = Instant::now();
    let measure = &plan.config.measure;
    let mut done: HashMap<String, Row> = earlier
        .rows
        .into_iter()
        .map(|row| (row.case.clone(), row))
        .collect();
    let mut blocks = earlier.blocks;
    let mut memories = Memories::default();
    for planned in &plan.cases {
        let name = planned.case.to_string();
        if let (Err(reason), false) = (&planned.schedule, done.contains_key(&name)) {
            let row = Row {
                reason: reason.clone(),
                status: Status::Unsupported,
                ..blank(plan, planned, launch)
            };
            store.append_row(&row)?;
            done.insert(name, row);
        }
    }
    for block in 0..measure.blocks_max {
        for (order, index) in plan.order(block).into_iter().enumerate() {
            let planned = &plan.cases[index];
            let name = planned.case.to_string();
            progress.set_position((block * plan.cases.len() + order) as u64);
            if done.contains_key(&name) {
                continue;
            }
            let key = (name.clone(), block);
            if !blocks.contains_key(&key) {
                progress.set_message(name.clone());
                let seed = plan.random(block, index as u64 + 1).next_u64();
                match run_block(plan, planned, seed, &mut memories) {
                    Ok(outcome) => {
                        let block = block_of(plan, planned, block, order, launches, &outcome);
                        store.append_block(&block)?;
                        blocks.insert(key, block);
                    }
                    Err(reason) => {
                        progress.println(format!("{name}: {reason}"));
                        let row = Row {
                            reason,
                            status: Status::Failed,
                            ..blank(plan, planned, launch)
                        };
                        store.append_row(&row)?;
                        done.insert(name, row);
                        continue;
                    }
                }
            }
            let spent = start.elapsed().as_secs_f64() > measure.budget_seconds;
            let own: Vec<&Block> = (0..=block)
                .filter_map(|b| blocks.get(&(name.clone(), b)))
                .collect();
            if let Some(reason) = stop_reason(plan, &own, block + 1, spent) {
                let row = finished(plan, planned, launch, &own, reason);
                store.append_row(&row)?;
                done.insert(name, row);
            }
        }
        if done.len() == plan.cases.len() {
            break;
        }
    }
    let rows: Vec<Row> = plan
        .cases
        .iter()
        .filter_map(|planned| done.remove(&planned.case.to_string()))
        .collect();
    let bandwidth = bandwidth(plan, launch, &rows, &blocks);
    Ok(Report { rows, bandwidth })
}

/// Memory of the ranks, kept from case to case.
#[derive(Default)]
struct Memories(Vec<RankMemory>);

impl Memories {
    fn for_ranks(&mut self, ranks: usize, plan: &Plan) -> &mut Vec<RankMemory> {
        if self.0.len() != ranks {
            self.0.clear();
            self.0.resize_with(ranks, || {
                RankMemory::new(&plan.workload, plan.config.dtype())
            });
        }
        &mut self.0
    }
}

fn run_block(
    plan: &Plan,
    planned: &Planned,
    seed: u64,
    memories: &mut Memories,
) -> Result<Outcome, String> {
    let (case, measure) = (&planned.case, &plan.config.measure);
    let schedule = planned
        .schedule
        .as_ref()
        .expect("cases without a schedule are not run");
    let job = Job {
        workload: &plan.workload,
        times: plan.config.times(),
        topology: &case.topology,
        dtype: plan.config.dtype(),
        op: plan.config.op(),
        algorithm: &*planned.algorithm,
        schedule: &**schedule,
        groups: plan.config.sweep.groups,
        control_plane: &case.control_plane,
        fusion_threshold_bytes: effective_threshold_bytes(
            case.fusion_threshold_bytes,
            &case.topology,
        ),
        cycle_time: case.cycle_time,
        cache_capacity: plan.config.sweep.cache_capacity,
        steps: measure.warmup_steps + measure.steps_per_block,
        seed,
    };
    let memories = memories.for_ranks(case.topology.ranks(), plan);
    engine::run(&job, memories).map_err(|error| error.to_string())
}

/// What ranks saw, as samples: the steps after the warm-up, the maximum over ranks.
fn block_of(
    plan: &Plan,
    planned: &Planned,
    block: usize,
    order: usize,
    launch: usize,
    outcome: &Outcome,
) -> Block {
    let warmup = plan.config.measure.warmup_steps;
    let element_bytes = plan.config.dtype().size_bytes();
    let case = planned.case.to_string();
    let mut latencies = histogram();
    for negotiation in outcome.ranks.iter().flat_map(|rank| &rank.negotiations) {
        latencies.saturating_record(negotiation.as_nanos().max(1) as u64);
    }
    let mut messages: Vec<Message> = Vec::new();
    for (index, message) in outcome.ranks[0].messages.iter().enumerate() {
        if message.step < warmup {
            continue;
        }
        let step = message.step - warmup;
        let first = messages
            .iter()
            .rposition(|earlier| earlier.step != step)
            .map_or(0, |at| at + 1);
        let time = outcome
            .ranks
            .iter()
            .map(|rank| rank.messages[index].time)
            .max();
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
        let max = |what: fn(&engine::RankStep) -> Duration| {
            micros(
                outcome
                    .ranks
                    .iter()
                    .map(|rank| what(&rank.steps[step]))
                    .max()
                    .unwrap_or_default(),
            )
        };
        let mut bytes = [0; 2];
        if let Ok(schedule) = &planned.schedule {
            for message in outcome.ranks[0]
                .messages
                .iter()
                .filter(|message| message.step == step)
            {
                let elements = message.elements;
                let levels = *sent.entry(elements).or_insert_with(|| {
                    sent_elements(&**schedule, &planned.case.topology, elements)
                });
                (0..2).for_each(|level| bytes[level] += levels[level] * element_bytes);
            }
        }
        let checked = step + 1 == steps;
        let rank0 = &outcome.ranks[0].steps[step];
        Sample {
            case: case.clone(),
            block,
            launch,
            order,
            step: step - warmup,
            time_us: max(|step| step.time),
            negotiation_us: max(|step| step.negotiation),
            data_us: max(|step| step.data),
            packing_us: max(|step| step.packing),
            cycles: rank0.cycles,
            idle_cycles: rank0.idle_cycles,
            messages: rank0.messages,
            control_bytes: outcome
                .ranks
                .iter()
                .map(|rank| rank.steps[step].control_bytes)
                .sum(),
            inside_bytes: bytes[0],
            between_bytes: bytes[1],
            checked,
            wrong: if checked { outcome.wrong.count } else { 0 },
            first_wrong: outcome
                .wrong
                .first
                .clone()
                .filter(|_| checked)
                .unwrap_or_default(),
        }
    });
    Block {
        samples: samples.collect(),
        messages,
        latencies: Some(latencies),
    }
}

/// Why a case is done after `count` blocks, if it is.
fn stop_reason(plan: &Plan, own: &[&Block], count: usize, spent: bool) -> Option<&'static str> {
    let measure = &plan.config.measure;
    if count < measure.blocks_min {
        return None;
    }
    let width = summary(own, |sample| sample.time_us).and_then(|all| all.relative_half_width());
    if width.is_some_and(|width| width <= measure.interval_percent / 100.0) {
        Some("interval")
    } else if count == measure.blocks_max {
        Some("count")
    } else {
        spent.then_some("budget")
    }
}

fn summary(blocks: &[&Block], value: impl Fn(&Sample) -> f64) -> Option<Summary> {
    let values: Vec<f64> = blocks
        .iter()
        .flat_map(|block| &block.samples)
        .map(value)
        .collect();
    Summary::of(&values)
}

/// A row with everything that is known before a case is measured.
fn blank(plan: &Plan, planned: &Planned, launch: &Launch) -> Row {
    let (case, config) = (&planned.case, &plan.config);
    let ranks = case.topology.ranks();
    let StepTimesMs {
        forward,
        backward,
        optimizer,
    } = StepTimesMs::of(config);
    Row {
        schema: SCHEMA,
        kind: Kind::Step,
        case: case.to_string(),
        source: Source::Measured,
        emulated: case.topology.nodes() > 1,
        oversubscribed: ranks > cores(),
        host: launch.machine.host.clone(),
        commit: launch.commit.clone(),
        started: launch.started.clone(),
        workload: plan.workload.name.clone(),
        transport: case.transport.clone(),
        control_plane: case.control_plane.clone(),
        algorithm: case.algorithm.clone(),
        groups: planned
            .algorithm
            .grouping()
            .map_or(0, |_| config.sweep.groups),
        nodes: case.topology.nodes(),
        local_size: case.topology.local_size(),
        ranks,
        dtype: config.dtype().name().into(),
        op: config.op().name().into(),
        in_place: true,
        size_bytes: plan.workload.elements() * config.dtype().size_bytes(),
        tensors: plan.workload.gradients.len(),
        fusion_threshold_bytes: Some(case.fusion_threshold_bytes),
        cycle_time_ms: Some(case.cycle_time_ms()),
        cache_capacity: Some(config.sweep.cache_capacity),
        forward_ms: Some(forward),
        backward_ms: Some(backward),
        optimizer_ms: Some(optimizer),
        warmup: config.measure.warmup_steps,
        bound_us: Some((forward + backward + optimizer) * 1e3),
        ..Row::default()
    }
}

struct StepTimesMs {
    forward: f64,
    backward: f64,
    optimizer: f64,
}

impl StepTimesMs {
    fn of(config: &Config) -> StepTimesMs {
        let step = &config.step;
        StepTimesMs {
            forward: step.forward_ms,
            backward: step.backward_ms,
            optimizer: step.optimizer_ms,
        }
    }
}

/// The row of a case that is done.
fn finished(
    plan: &Plan,
    planned: &Planned,
    launch: &Launch,
    blocks: &[&Block],
    stop_reason: &str,
) -> Row {
    let samples = || blocks.iter().flat_map(|block| &block.samples);
    let row = blank(plan, planned, launch);
    let p50 = |value: fn(&Sample) -> f64| summary(blocks, value).map(|all| all.p50);
    let mut latencies = histogram();
    for block in blocks.iter().filter_map(|block| block.latencies.as_ref()) {
        latencies.add(block).expect("histograms of one shape");
    }
    let wrong: usize = samples().map(|sample| sample.wrong).sum();
    let launches: std::collections::BTreeSet<_> = samples().map(|sample| sample.launch).collect();
    let messages = || blocks.iter().flat_map(|block| &block.messages);
    let tensors: usize = messages().map(|message| message.tensors).sum();
    let mut row = Row {
        status: if wrong == 0 {
            Status::Ok
        } else {
            Status::Wrong
        },
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
        negotiation_cycle_us_p50: Some(latencies.value_at_quantile(0.5) as f64 / 1e3),
        negotiation_cycle_us_p99: (latencies.len() >= 368)
            .then(|| latencies.value_at_quantile(0.99) as f64 / 1e3),
        cycles_p50: p50(|sample| sample.cycles as f64),
        idle_cycles_p50: p50(|sample| sample.idle_cycles as f64),
        tensors_per_message_mean: Some(tensors as f64 / messages().count().max(1) as f64),
        control_bytes_p50: p50(|sample| sample.control_bytes as f64),
        inside_bytes: p50(|sample| sample.inside_bytes as f64),
        between_bytes: p50(|sample| sample.between_bytes as f64),
        ..row
    };
    if wrong > 0 {
        row.reason = format!("{wrong} wrong elements; first: {}", row.first_wrong);
    }
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

/// Fills in a row's times.
pub fn put_times(row: &mut Row, time: &Summary) {
    row.time_us_p50 = Some(time.p50);
    (row.time_us_p50_low, row.time_us_p50_high) = ends(time);
    row.time_us_mean = Some(time.mean);
    row.time_us_min = Some(time.min);
    row.time_us_max = Some(time.max);
    row.time_us_p99 = time.p99;
}

/// Fills in a row's bandwidths from its size, ranks and times: nccl-tests' definitions.
pub fn put_bandwidths(row: &mut Row) {
    let size = row.size_bytes as f64;
    let factor = bus_factor(row.ranks);
    let gb_s = |time_us: Option<f64>| time_us.filter(|&us| us > 0.0).map(|us| size / us / 1e3);
    row.algbw_gb_s = gb_s(row.time_us_p50);
    row.busbw_gb_s = row.algbw_gb_s.map(|gb_s| gb_s * factor);
    row.busbw_gb_s_low = gb_s(row.time_us_p50_high).map(|gb_s| gb_s * factor);
    row.busbw_gb_s_high = gb_s(row.time_us_p50_low).map(|gb_s| gb_s * factor);
}

fn ends(summary: &Summary) -> (Option<f64>, Option<f64>) {
    (
        summary.p50_interval.map(|ends| ends.0),
        summary.p50_interval.map(|ends| ends.1),
    )
}

/// Bus bandwidth of the messages of measured steps, per topology, algorithm and octave of size:
/// what an allreduce of that size really reached within training steps, packing included.
fn bandwidth(
    plan: &Plan,
    launch: &Launch,
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
    let ok = |name: &str| {
        rows.iter()
            .any(|row| row.case == name && row.status == Status::Ok)
    };
    for planned in &plan.cases {
        let name = planned.case.to_string();
        let group = (&planned.case.topology, planned.case.algorithm.as_str());
        let group = groups
            .iter()
            .position(|other| *other == group)
            .expect("collected above");
        let own = blocks.range((name.clone(), 0)..=(name.clone(), usize::MAX));
        for message in own
            .filter(|_| ok(&name))
            .flat_map(|(_, block)| &block.messages)
        {
            let octave = (group, message.size_bytes.max(1).ilog2());
            let (sizes, times) = octaves.entry(octave).or_default();
            sizes.push(message.size_bytes);
            times.push(message.size_bytes as f64 / message.time_us.max(1e-3));
        }
    }
    let rows = octaves
        .into_iter()
        .filter_map(|((group, octave), (mut sizes, speeds))| {
            let (topology, algorithm) = groups[group];
            let planned = plan.cases.iter().find(|planned| {
                planned.case.algorithm == algorithm && planned.case.topology == *topology
            })?;
            let speed = Summary::of(&speeds)?;
            sizes.sort_unstable();
            let factor = bus_factor(topology.ranks()) / 1e3;
            let (low, high) = ends(&speed);
            let case = format!(
                "{}/{topology}/{algorithm}/2^{octave}B",
                planned.case.transport
            );
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
                ..blank(plan, planned, launch)
            }))
        });
    rows.collect()
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Numbers to three decimals: nanoseconds, MB/s.
pub fn rounded(mut row: Row) -> Row {
    for value in [
        &mut row.time_us_p50,
        &mut row.time_us_p50_low,
        &mut row.time_us_p50_high,
        &mut row.time_us_mean,
        &mut row.time_us_min,
        &mut row.time_us_max,
        &mut row.time_us_p99,
        &mut row.bound_us,
        &mut row.exposed_us_p50,
        &mut row.data_us_p50,
        &mut row.packing_us_p50,
        &mut row.negotiation_us_p50,
        &mut row.negotiation_us_p50_low,
        &mut row.negotiation_us_p50_high,
        &mut row.negotiation_cycle_us_p50,
        &mut row.negotiation_cycle_us_p99,
        &mut row.tensors_per_message_mean,
        &mut row.algbw_gb_s,
        &mut row.busbw_gb_s,
        &mut row.busbw_gb_s_low,
        &mut row.busbw_gb_s_high,
    ]
    .into_iter()
    .flatten()
    {
        *value = (*value * 1e3).round() / 1e3;
    }
    row
}
