//! Simulates measured rows: their settings on a machine file of the same cluster, on as many ranks as were
//! measured, and on more.

mod left_out;
mod missed;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::config::{Config, Model, Simulate};
use super::data_plane::{DataPlane, Engine};
use super::jitter::Jitter;
use super::machine_file::{MachineFile, Node};
use super::policy::Policy;
use super::range::{deviations_of_each, machines};
use super::sweep::Plan;
use super::tabulate;
pub use left_out::LeftOut;
pub use missed::{Missed, PER_DOUBLING, PROBABILITY};
use results::provenance::Subject;
use results::row::{CaseOutcome, Row, SimulatedStepRow, StepRow, StepSetting, Training, Tuning};
use results::statistics::median;
use results::units::MIB;
use workloads::workload::{Workload, WorkloadError};

/// One model's settings on the machine, and what was measured of them.
struct Variant {
    plan: Plan,
    transport: String,
    /// Policy and ranks of each measured row, with its median time in microseconds.
    measured: Vec<((String, usize), f64)>,
}

impl Variant {
    fn measured_us(&self, row: &SimulatedStepRow) -> Option<f64> {
        let is_same = |((policy, ranks), _): &&((String, usize), f64)| {
            (policy, ranks) == (&row.policy, &row.key.ranks)
        };
        self.measured.iter().find(is_same).map(|(_, time_us)| *time_us)
    }
}

/// How many measured medians lie within the bands of their predictions, on numbers of ranks that did not set the bands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Coverage {
    /// Measured medians.
    pub cases: usize,
    /// ... within their bands.
    pub within: usize,
    /// The median width of these bands, in parts of the predicted time.
    pub width: f64,
}

/// Predictions with what is known of their errors.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// A row for each setting and world size.
    pub rows: Vec<SimulatedStepRow>,
    /// How far known times are from their predictions; bands have it. None for fewer than two of them.
    pub missed: Option<Missed>,
    /// Whether other measured times lie within their bands, if there are any.
    pub coverage: Option<Coverage>,
}

/// The cases to predict.
pub struct Prediction {
    variants: Vec<Variant>,
    /// Measured times of more ranks do not set the bands.
    known_ranks: usize,
    /// Measured rows without a prediction: how many, and why.
    pub left_out: Vec<(usize, LeftOut)>,
    /// Why worlds end below the size that was asked for, if they do.
    pub ends: Option<String>,
}

impl Prediction {
    /// From measured training steps; `workloads` is the folder of their gradient lists. World sizes double from
    /// the largest measured one up to `up_to` ranks. Times that were measured on up to `known_ranks` ranks set the bands.
    ///
    /// # Errors
    /// When a gradient list cannot be read.
    pub fn new(
        rows: &[Row],
        machine: &MachineFile,
        workloads: &Path,
        (up_to, known_ranks): (usize, usize),
    ) -> Result<Prediction, WorkloadError> {
        // A replayed backward pass takes its time by the clock, whatever happens beside it.
        let machine = &MachineFile { interference: None, input: None, ..machine.clone() };
        let mut left_out: Vec<(usize, LeftOut)> = Vec::new();
        let mut usable: Vec<(&StepSetting, f64)> = Vec::new();
        for row in rows {
            let setting = match row {
                Row::Step(row) => usable_setting(row, machine),
                Row::SimulatedStep(_) => Err(LeftOut::NotMeasured),
                _ => continue,
            };
            match setting {
                Ok(setting) => usable.push(setting),
                Err(why) => match left_out.iter_mut().find(|(_, other)| *other == why) {
                    Some((count, _)) => *count += 1,
                    None => left_out.push((1, why)),
                },
            }
        }
        let mut variants: Vec<Variant> = Vec::new();
        let mut models: Vec<(Model, &str)> = Vec::new();
        for (setting, _) in &usable {
            let of = (model(setting), setting.run.transport.as_str());
            if !models.contains(&of) {
                models.push(of);
            }
        }
        for (model, transport) in models {
            let is_of = |(setting, _): &&(&StepSetting, f64)| {
                self::model(setting) == model && setting.run.transport == transport
            };
            let own = usable.iter().filter(is_of);
            let measured = own
                .clone()
                .map(|(setting, time_us)| ((policy(setting).name, setting.key.ranks), *time_us));
            let measured = measured.collect();
            let own: Vec<&StepSetting> = own.map(|(setting, _)| *setting).collect();
            let workload = Workload::read(&workloads.join(format!("{}.csv", model.workload)))?;
            let config = config(&own, machine, model, up_to);
            let most = *config.simulate.ranks.last().expect("a model has rows");
            let plan = Plan::of(config, machine.with_nodes_for(most), vec![workload]);
            variants.push(Variant { plan, transport: transport.into(), measured });
        }
        let largest = variants.iter().filter_map(|of| of.plan.config.simulate.ranks.last()).max();
        let is_strong = usable.iter().any(|(setting, _)| setting.key.is_strong());
        let ends = largest.and_then(|&largest| end(machine, largest, up_to, is_strong));
        Ok(Prediction { variants, known_ranks, left_out, ends })
    }

    /// Settings x world sizes, on each machine of their ranges.
    pub fn cases(&self) -> usize {
        let of = |Variant { plan, .. }: &Variant| {
            machines(&plan.machine.without_announcements()) * plan.config.cases().len()
        };
        self.variants.iter().map(of).sum()
    }

    /// A row for each setting and world size. The interval of its time is the band of [`PROBABILITY`]: the ranges of the
    /// machine's parameters, how far known times are from their predictions, and how far those of more ranks may be.
    pub fn predicted(&self, progress: impl Fn() + Sync) -> Predicted {
        let of = |variant: &Variant| -> Vec<(SimulatedStepRow, Option<f64>, (f64, f64))> {
            let deviations = variant.deviations_us(&progress);
            let rows = variant.rows(&variant.plan, &|| ());
            let with = |(row, deviations)| {
                let measured_us = variant.measured_us(&row);
                (variant.own(row), measured_us, deviations)
            };
            rows.into_iter().zip(deviations).map(with).collect()
        };
        let mut all: Vec<_> = self.variants.iter().flat_map(of).collect();
        // One rank sends nothing, and its prediction is its computation.
        let is_known = |ranks: usize| (2..=self.known_ranks).contains(&ranks);
        let known = all.iter().filter(|(row, ..)| is_known(row.key.ranks));
        let known: Vec<(usize, f64)> = known
            .filter_map(|(row, measured_us, _)| {
                Some((row.key.ranks, (*measured_us)? / time_us(row)?))
            })
            .collect();
        let ratios: Vec<f64> = known.iter().map(|(_, ratio)| *ratio).collect();
        let most_ranks = known.iter().map(|(ranks, _)| *ranks).max();
        let missed = Missed::of(&ratios, most_ranks.unwrap_or(1));
        let (mut within, mut widths) = (0, Vec::new());
        for (row, measured_us, deviations) in &mut all {
            let ranks = row.key.ranks;
            let CaseOutcome::Ok(result) = &mut row.outcome else { continue };
            let times = &mut result.times;
            let time_us = times.time_us_p50;
            let (low, high) = match &missed {
                Some(missed) if ranks > 1 => missed.band(time_us, *deviations, ranks),
                _ => (time_us - deviations.0, time_us + deviations.1),
            };
            // What is predicted is in its band.
            let (low, high) = (low.min(time_us), high.max(time_us));
            (times.time_us_p50_low, times.time_us_p50_high) = (Some(low), Some(high));
            if let (Some(measured_us), true) = (measured_us, ranks > self.known_ranks) {
                within += usize::from((low..=high).contains(measured_us));
                widths.push((high - low) / time_us);
            }
        }
        let cases = widths.len();
        let coverage = median(widths).map(|width| Coverage { cases, within, width });
        let rows = all.into_iter().map(|(row, ..)| row.rounded()).collect();
        Predicted { rows, missed, coverage }
    }
}

impl Variant {
    fn rows(&self, plan: &Plan, progress: &(impl Fn() + Sync)) -> Vec<SimulatedStepRow> {
        tabulate::rows(plan, &plan.run(progress))
    }

    /// How far each row's time goes down and up with the parameters of the machine, in microseconds.
    fn deviations_us(&self, progress: &(impl Fn() + Sync)) -> Vec<(f64, f64)> {
        let times_us = |machine: &MachineFile| -> Result<Vec<f64>, Infallible> {
            let Plan { config, workloads, .. } = &self.plan;
            let plan = Plan::of(config.clone(), machine.clone(), workloads.clone());
            let rows = self.rows(&plan, progress);
            Ok(rows.iter().map(|row| time_us(row).unwrap_or(0.0)).collect())
        };
        // They are hundreds of simulations, and much faster by rounds.
        let machine = self.plan.machine.without_announcements();
        let Ok(each) = deviations_of_each(&machine, times_us);
        each
    }

    /// A row without what belongs to the figures' policies; the number of samples per step is unknown.
    fn own(&self, mut row: SimulatedStepRow) -> SimulatedStepRow {
        row.transport = self.transport.clone();
        row.policy.clear();
        row.batch = None;
        if let CaseOutcome::Ok(result) = &mut row.outcome {
            result.throughput_samples_s_p50 = None;
        }
        row
    }
}

fn time_us(row: &SimulatedStepRow) -> Option<f64> {
    Some(row.outcome.right()?.times.time_us_p50)
}

impl Subject for Prediction {
    fn config(&self) -> Value {
        self.variants.iter().map(|variant| variant.plan.config()).collect()
    }

    fn seed(&self) -> u64 {
        1
    }

    fn workload_digest(&self) -> String {
        let digests = self.variants.iter().map(|variant| variant.plan.workload_digest());
        digests.collect::<Vec<_>>().join(" ")
    }
}

/// Why no more ranks than these are simulated, although more were requested.
fn end(machine: &MachineFile, largest: usize, up_to: usize, is_strong: bool) -> Option<String> {
    let MachineFile { name, node, network, .. } = machine;
    match network {
        _ if up_to <= largest => None,
        _ if is_strong => Some(format!(
            "no larger worlds than {largest} ranks: with strong scaling more ranks compute for a shorter time, which \
             is not in the rows"
        )),
        None => Some(format!(
            "no larger worlds than {largest} ranks: machine {name} has 1 node of {} ranks and no network; \
             calibrate several nodes over MPI",
            node.ranks
        )),
        Some(_) => Some(format!(
            "no larger worlds than {largest} ranks: sizes double, and {} would be more than {up_to}",
            2 * largest
        )),
    }
}

/// Whether the same number of ranks shared the cores of a node during calibration. Emulated nodes share one
/// machine.
fn shares_alike(StepSetting { key, run, .. }: &StepSetting, machine: &MachineFile) -> bool {
    let Node { ranks: here, nodes, .. } = machine.node;
    if run.emulated { key.ranks == here * nodes } else { key.local_size == Some(here) }
}

/// The setting of a row, or why there is no prediction for it.
fn usable_setting<'r>(
    row: &'r StepRow,
    machine: &MachineFile,
) -> Result<(&'r StepSetting, f64), LeftOut> {
    let here = machine.node.ranks;
    let StepSetting { key, run, training, framework, .. } = &row.setting;
    let algorithm = &training.algorithm;
    let result = row.outcome.right().ok_or(LeftOut::NotMeasured)?;
    if DataPlane::new(algorithm, machine, 1, 0.0, Engine::Rounds).is_err() {
        return Err(LeftOut::NoSchedule { algorithm: algorithm.clone() });
    }
    if !framework.grouping.is_empty() && training.groups > 0 {
        return Err(LeftOut::Groups);
    }
    if key.nodes > 1 && machine.network.is_none() {
        return Err(LeftOut::NoNetwork { nodes: key.nodes, machine: machine.name.clone() });
    }
    if run.oversubscribed && !shares_alike(&row.setting, machine) {
        return Err(LeftOut::SharedCores { ranks: key.ranks });
    }
    let name = machine.name.clone();
    let usable = Ok((&row.setting, result.times.time_us_p50));
    match key.nodes {
        1 if key.ranks <= here => usable,
        1 => Err(LeftOut::TooManyRanks { ranks: key.ranks, machine: name, here }),
        _ if key.local_size == Some(here) => usable,
        _ => Err(LeftOut::OtherNodes { machine: name, here }),
    }
}

fn model(StepSetting { training, .. }: &StepSetting) -> Model {
    Model {
        workload: training.workload.clone(),
        batch: 1,
        forward_ms: training.forward_ms,
        backward_ms: training.backward_ms,
        optimizer_ms: training.optimizer_ms,
        compression: serde_json::from_value(training.compression.as_str().into())
            .unwrap_or_default(),
        source: "as measured".into(),
    }
}

/// As ranks on CPUs do it: a cycle ends with its messages.
fn policy(StepSetting { training, tuning, .. }: &StepSetting) -> Policy {
    let Training { algorithm, cache_capacity, segment_bytes, packing_bytes, .. } = training;
    let Tuning { control_plane, fusion_threshold_bytes, cycle_time_ms, .. } = tuning;
    let threshold_mib = *fusion_threshold_bytes as f64 / MIB;
    let segment_kib = *segment_bytes as f64 / 1024.0;
    let packing_mib = *packing_bytes as f64 / MIB;
    let passes = training.backward_passes_per_step.unwrap_or(1);
    let name = format!(
        "{control_plane}/{algorithm}/{threshold_mib}MiB/{cycle_time_ms}ms/{segment_kib}KiB/{packing_mib}MiB/{passes}"
    );
    Policy {
        cycle_time_ms: *cycle_time_ms,
        fusion_threshold_mib: threshold_mib,
        cache_capacity: *cache_capacity,
        backward_passes_per_step: passes,
        segment_kib,
        packing_mib,
        blocking: true,
        about: "as measured".into(),
        ..Policy::new(&name, control_plane, algorithm)
    }
}

fn config(settings: &[&StepSetting], machine: &MachineFile, model: Model, up_to: usize) -> Config {
    let mut policies: Vec<Policy> = Vec::new();
    for policy in settings.iter().map(|setting| policy(setting)) {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let mut ranks: BTreeSet<usize> = settings.iter().map(|setting| setting.key.ranks).collect();
    // With strong scaling, more ranks compute for a shorter time.
    let is_strong = settings.iter().any(|setting| setting.key.is_strong());
    let can_grow = machine.network.is_some();
    let mut next = 2 * ranks.last().expect("a model has rows");
    while next <= up_to && !is_strong && (can_grow || next <= machine.node.ranks) {
        ranks.insert(next);
        next *= 2;
    }
    let ranks = ranks.into_iter().collect();
    let simulate = Simulate { seeds: 1, ..Simulate::new(&machine.name, ranks) };
    // Without jitter: a replayed backward pass takes its time by the clock, however unevenly ranks compute.
    let jitter = Jitter { cv: Some(0.0), ..Jitter::default() };
    Config { jitter, ..Config::plain(simulate, model, policies) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::row::{Key, Run, StepResult};

    const MACHINE: &str = r#"
name = "here"
about = "two ranks on each node"
[node]
ranks = 2
ranks_per_socket = 2
nodes = 2
[socket.large]
alpha_us = { value = 1, low = 0.5, high = 2, source = "a test" }
bandwidth_gb_s = { value = 10, low = 8, high = 12, source = "a test" }
[network.large]
alpha_us = { value = 20, low = 10, high = 30, source = "a test" }
bandwidth_gb_s = { value = 1, low = 0.9, high = 1.1, source = "a test" }
[reduction]
combine_gb_s = { value = 10, low = 9, high = 11, source = "a test" }
[control]
alpha_us = { value = 20, source = "a test" }
bandwidth_gb_s = { value = 1, source = "a test" }
rank0_ns = { value = 30, source = "a test" }
cycle_us = { value = 1, source = "a test" }
launch_us = { value = 10, source = "a test" }
"#;

    fn row(algorithm: &str, nodes: usize, local_size: usize) -> StepRow {
        let setting = StepSetting {
            key: Key {
                nodes,
                local_size: Some(local_size),
                ranks: nodes * local_size,
                ..Key::default()
            },
            run: Run { transport: "mpi".into(), ..Run::default() },
            training: Training {
                workload: "resnet50".into(),
                algorithm: algorithm.into(),
                compression: "fp16".into(),
                cache_capacity: 1024,
                forward_ms: 5.0,
                backward_ms: 10.0,
                ..Training::default()
            },
            tuning: Tuning {
                control_plane: "bitvector".into(),
                fusion_threshold_bytes: 4 << 20,
                cycle_time_ms: 1.0,
                ..Tuning::default()
            },
            ..StepSetting::default()
        };
        let mut result = StepResult::default();
        result.times.time_us_p50 = 20e3;
        StepRow { setting, outcome: CaseOutcome::Ok(result), bound_us: 15e3 }
    }

    fn predict(rows: &[StepRow], machine: &MachineFile) -> Prediction {
        let rows: Vec<Row> = rows.iter().cloned().map(Row::Step).collect();
        let workloads = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/workloads");
        Prediction::new(&rows, machine, Path::new(workloads), (16, 4)).unwrap()
    }

    #[test]
    fn settings_are_simulated_as_measured_and_on_more_ranks() {
        let machine: MachineFile = toml::from_str(MACHINE).unwrap();
        let rows = [
            row("ring", 1, 2),
            row("ring", 2, 2),
            row("hierarchical", 2, 2),
            row("ring", 4, 1),
            row("mpi-allreduce", 2, 2),
            StepRow::failed(row("ring", 2, 2).setting, "a test".into()),
        ];
        let prediction = predict(&rows, &machine);
        let whys: Vec<String> =
            prediction.left_out.iter().map(|(_, why)| why.to_string()).collect();
        assert_eq!(
            whys,
            [
                "not every node has 2 ranks, as on here",
                "mpi-allreduce: a library's own allreduce, which cannot be simulated",
                "no correct measurement",
            ]
        );
        let predicted = prediction.predicted(|| ()).rows;
        let of =
            |row: &SimulatedStepRow| (row.training.algorithm.clone(), row.key.nodes, row.key.ranks);
        let worlds = [(1, 2), (2, 4), (4, 8), (8, 16)];
        let expected = ["ring", "hierarchical"]
            .map(|name| worlds.map(|(nodes, ranks)| (name.to_string(), nodes, ranks)));
        assert_eq!(predicted.iter().map(of).collect::<Vec<_>>(), expected.concat());
        for row in &predicted {
            assert_eq!((&*row.transport, &*row.training.compression), ("mpi", "fp16"));
            let times = &row.outcome.right().unwrap().times;
            let time = times.time_us_p50;
            let [low, high] = [times.time_us_p50_low, times.time_us_p50_high].map(Option::unwrap);
            assert!(low <= time && time <= high && low < high, "{row:?}");
        }
    }

    /// Rows that are 10 % slower than predicted, at sizes that set the bands and at others.
    #[test]
    fn bands_have_what_known_sizes_were_missed_by_and_are_scored_on_others() {
        let machine: MachineFile = toml::from_str(MACHINE).unwrap();
        let all = [1, 2, 4].map(|nodes| ["ring", "tree"].map(|name| row(name, nodes, 2))).concat();
        let once = predict(&all, &machine).predicted(|| ());
        assert_eq!((once.missed.unwrap().cases, once.coverage.unwrap().cases), (4, 2));
        let slower = |times: f64| -> Vec<StepRow> {
            let with = |row: &StepRow| {
                let is_same = |it: &&SimulatedStepRow| {
                    it.key.ranks == row.setting.key.ranks
                        && it.training.algorithm == row.setting.training.algorithm
                };
                let predicted_us = time_us(once.rows.iter().find(is_same).unwrap()).unwrap();
                let mut row = row.clone();
                let CaseOutcome::Ok(result) = &mut row.outcome else { panic!() };
                result.times.time_us_p50 = times * predicted_us;
                row
            };
            all.iter().map(with).collect()
        };
        let found = predict(&slower(1.1), &machine).predicted(|| ());
        let (typical, low, high) = found.missed.unwrap().ratio();
        assert!((typical - 1.1).abs() < 1e-3 && low < high + 1e-9, "{:?}", found.missed);
        assert_eq!(found.coverage.unwrap().within, 2);
        // A larger world that is three times as slow is outside.
        let mut rows = slower(1.1);
        for row in &mut rows[4..] {
            let CaseOutcome::Ok(result) = &mut row.outcome else { panic!() };
            result.times.time_us_p50 *= 3.0;
        }
        let Coverage { cases, within, width } =
            predict(&rows, &machine).predicted(|| ()).coverage.unwrap();
        assert_eq!((cases, within), (2, 0));
        assert!(0.1 < width && width < 0.4, "{width}");
    }

    /// Threads have no network to more nodes.
    #[test]
    fn one_node_does_not_grow() {
        let start = MACHINE.find("[network").unwrap();
        let end = MACHINE.find("[reduction").unwrap();
        let alone =
            format!("{}{}", &MACHINE[..start], &MACHINE[end..]).replace("nodes = 2", "nodes = 1");
        let machine: MachineFile = toml::from_str(&alone).unwrap();
        let ranks = |rows: &[StepRow]| -> Vec<usize> {
            predict(rows, &machine).predicted(|| ()).rows.iter().map(|row| row.key.ranks).collect()
        };
        assert_eq!(ranks(&[row("ring", 1, 2)]), [2]);
        assert!(ranks(&[row("ring", 1, 4)]).is_empty());
        assert_eq!(
            predict(&[row("ring", 1, 2)], &machine).ends.unwrap(),
            "no larger worlds than 2 ranks: machine here has 1 node of 2 ranks and no network; \
             calibrate several nodes over MPI"
        );
        let several = predict(&[row("ring", 2, 2)], &machine);
        let [(1, why)] = &several.left_out[..] else { panic!("{:?}", several.left_out) };
        assert_eq!(why.to_string(), "2 nodes, but here has 1 and no network");
        assert_eq!((several.cases(), several.ends), (0, None));
    }

    #[test]
    fn world_sizes_that_cannot_be_simulated_are_reported() {
        let machine: MachineFile = toml::from_str(MACHINE).unwrap();
        assert_eq!(predict(&[row("ring", 2, 2)], &machine).ends, None);
        let ends = predict(&[row("ring", 3, 2)], &machine).ends.unwrap();
        assert_eq!(
            ends,
            "no larger worlds than 12 ranks: sizes double, and 24 would be more than 16"
        );
    }

    /// On more ranks passes would be shorter, and the rows do not say how much.
    #[test]
    fn strong_scaling_is_simulated_as_far_as_it_was_measured() {
        let machine: MachineFile = toml::from_str(MACHINE).unwrap();
        let strong = |nodes: usize| {
            let mut row = row("ring", nodes, 2);
            row.setting.key.case = format!("mpi/{nodes}x2/bitvector/ring/4MiB/1ms/strong");
            row.setting.training.backward_ms = 20.0 / nodes as f64;
            row
        };
        let prediction = predict(&[strong(1), strong(4)], &machine);
        let rows = prediction.predicted(|| ()).rows;
        let of = |row: &SimulatedStepRow| (row.key.ranks, row.training.backward_ms);
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [(2, 20.0), (8, 5.0)]);
        assert_eq!(
            prediction.ends.unwrap(),
            "no larger worlds than 8 ranks: with strong scaling more ranks compute for a shorter time, which is not in \
             the rows"
        );
    }

    /// The machine file covers ranks that share cores if they did during calibration.
    #[test]
    fn shared_cores_are_simulated_as_they_were_calibrated() {
        let machine: MachineFile = toml::from_str(MACHINE).unwrap();
        let crowded = |nodes, local_size, emulated| {
            let mut row = row("ring", nodes, local_size);
            (row.setting.run.oversubscribed, row.setting.run.emulated) = (true, emulated);
            row
        };
        let why = |row| predict(&[row], &machine).left_out;
        for alike in [crowded(1, 2, false), crowded(8, 2, false), crowded(2, 2, true)] {
            assert_eq!(why(alike), []);
        }
        for (row, ranks) in [(crowded(1, 1, false), 1), (crowded(4, 2, true), 8)] {
            assert_eq!(why(row), [(1, LeftOut::SharedCores { ranks })]);
        }
    }
}
