//! A published point and its simulation.

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{AllReduce, Part, PointCause, PointError, Residuals, Training, UsedFor};
use crate::config::{Config, Model, Simulate};
use crate::data_plane::{DataPlane, Engine};
use crate::machine_file::{MachineFile, Network};
use crate::policy::Policy;
use crate::range::{deviations, together};
use crate::sweep::{CaseError, Plan};
use crate::{tabulate, variable_servers};
use algorithms::server_nodes::ServerNodes;
use results::statistics::{Summary, median};
use results::toml_file::Checked;
use results::units::bus_factor;
use workloads::framework::Compression;

/// Tolerance of large messages and training steps, relative to the published value.
pub const LARGE: f64 = 0.15;

/// ... and messages below 1 MiB within this.
pub const SMALL: f64 = 0.30;

/// Segments of this project's schedules, in KiB.
pub(super) const SEGMENT_KIB: f64 = 512.0;

/// Seeds of the simulated value, and of the ends of its range.
const SEEDS: usize = 5;
const FEW_SEEDS: usize = 1;

/// Points whose errors can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Training within a node.
    OneNode,
    /// Training on several nodes, without the kernel between them.
    Rdma,
    /// Training on several nodes over TCP.
    Tcp,
    /// Training with parameter servers.
    Servers,
    /// Allreduces below 1 MiB.
    LatencyBound,
    /// Larger ones.
    BandwidthBound,
}

impl Group {
    /// Those of training points.
    pub const TRAINING: [Group; 4] = [Group::OneNode, Group::Rdma, Group::Tcp, Group::Servers];

    /// That of training on several nodes.
    pub fn across(network: Network) -> Group {
        match network {
            Network::Rdma => Group::Rdma,
            Network::Tcp => Group::Tcp,
        }
    }

    /// As in text and CSV.
    pub fn name(self) -> &'static str {
        match self {
            Group::OneNode => "one node",
            Group::Rdma => "across nodes, RDMA",
            Group::Tcp => "across nodes, TCP",
            Group::Servers => "parameter servers",
            Group::LatencyBound => "allreduce below 1 MiB",
            Group::BandwidthBound => "allreduce from 1 MiB on",
        }
    }

    /// Training steps between nodes, without parameter servers.
    pub fn is_across_nodes(self) -> bool {
        matches!(self, Group::Rdma | Group::Tcp)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Whether the simulated value is within the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    Missed,
}

/// A point with its simulated value; a line of `published.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// The point.
    pub point: String,
    /// Its series.
    pub series: String,
    /// The group by which it is scored.
    #[schemars(with = "String")]
    pub group: Group,
    /// The point of which it is the same measurement; empty if there is none.
    pub like: Option<String>,
    /// The machine file.
    pub machine: String,
    /// Ranks.
    pub ranks: usize,
    /// What the numbers are.
    pub unit: &'static str,
    /// What was published.
    pub published: f64,
    /// What was simulated, with its range.
    pub simulated: f64,
    /// See `simulated`.
    pub simulated_low: f64,
    /// See `simulated`.
    pub simulated_high: f64,
    /// The value if nothing but bandwidth mattered.
    pub bandwidth_bound: f64,
    /// The value if nothing was lost; empty for an allreduce.
    pub perfect: Option<f64>,
    /// Simulated over published, less 1.
    pub error: f64,
    /// Whether its series is for calibration.
    pub fitted: bool,
    /// Whether it is met.
    pub verdict: Verdict,
    /// Why it is missed.
    pub why: String,
    /// Where it was published.
    pub source: String,
}

impl Compared {
    /// Widens its range, for training only.
    pub(super) fn widen(&mut self, residuals: &Residuals) {
        let of = |value| self.efficiency(value);
        let (Some(perfect), Some(efficiency)) = (self.perfect, of(self.simulated)) else { return };
        let ends = [self.simulated_low, self.simulated_high].map(|end| end / perfect);
        let (low, high) = residuals.widened(self.group, efficiency, (ends[0], ends[1]));
        (self.simulated_low, self.simulated_high) =
            (rounded(low * perfect), rounded(high * perfect));
    }

    /// A value in parts of perfect scaling; for training only.
    pub fn efficiency(&self, value: f64) -> Option<f64> {
        self.perfect.map(|perfect| value / perfect)
    }
}

/// A simulated value with its range, and the same if nothing but bandwidth mattered.
struct Simulated {
    value: f64,
    range: (f64, f64),
    bandwidth_bound: f64,
}

pub(super) fn allreduce(
    point: &AllReduce,
    used_for: UsedFor,
    path: &Path,
) -> Result<Compared, PointError> {
    let refuse = PointError::at("allreduce", &point.name);
    let machine = MachineFile::read(&MachineFile::path(&point.machine, path));
    let machine = machine.map_err(|error| refuse(error.into()))?;
    let of_time = |time_us: f64| match point.time_us {
        Some(_) => time_us,
        None => point.size_bytes / time_us / 1e3 * bus_factor(point.ranks),
    };
    let value = |machine: &MachineFile| -> Result<f64, CaseError> {
        let segment_bytes = SEGMENT_KIB * 1024.0;
        let engine = Engine::Rounds;
        let data = DataPlane::new(&point.data_plane, machine, point.ranks, segment_bytes, engine)?;
        Ok(of_time(1e6 * data.time(point.size_bytes).at_s))
    };
    let simulate = || -> Result<Simulated, CaseError> {
        let nominal = value(&machine)?;
        let bound_us = 1e6 * wire_s(&machine, point.ranks, point.size_bytes);
        let (below, above) = deviations(&machine, value)?;
        let range = ((nominal - below).max(0.0), nominal + above);
        Ok(Simulated { value: nominal, range, bandwidth_bound: of_time(bound_us) })
    };
    let simulated = simulate().map_err(|error| refuse(error.into()))?;
    let is_small = point.size_bytes < f64::from(1 << 20);
    let (unit, published) = match (point.time_us, point.busbw_gb_s) {
        (Some(time_us), _) => ("us", time_us),
        (None, busbw_gb_s) => ("GB/s bus", busbw_gb_s.expect("it was checked")),
    };
    let within = if is_small { SMALL } else { LARGE };
    Ok(Compared {
        point: point.name.clone(),
        series: point.series.clone(),
        group: if is_small { Group::LatencyBound } else { Group::BandwidthBound },
        like: point.like.clone(),
        machine: machine.name.clone(),
        ranks: point.ranks,
        unit,
        fitted: used_for == UsedFor::Calibration,
        why: point.why.clone(),
        source: point.source.clone(),
        ..compared(published, &simulated, within)
    })
}

pub(super) fn training(
    point: &Training,
    used_for: UsedFor,
    path: &Path,
) -> Result<Compared, PointError> {
    let plan = point.plan(path).map_err(PointError::at("training", &point.name))?;
    of_plan(point, &plan, used_for, true)
}

/// The same without some parts of the model, and without a range.
pub(super) fn training_without(
    point: &Training,
    parts: &[Part],
    path: &Path,
) -> Result<Compared, PointError> {
    let refuse = PointError::at("training", &point.name);
    let mut point = point.clone();
    let mut machine = point.plan(path).map_err(&refuse)?.machine;
    parts.iter().for_each(|part| part.remove(&mut point, &mut machine));
    let Plan { config, workloads, .. } = point.plan(path).map_err(&refuse)?;
    of_plan(&point, &Plan::of(config, machine, workloads), UsedFor::Test, false)
}

fn of_plan(
    point: &Training,
    plan: &Plan,
    used_for: UsedFor,
    with_range: bool,
) -> Result<Compared, PointError> {
    let refuse = PointError::at("training", &point.name);
    let perfect = point.base_samples_s() * point.ranks as f64;
    let simulate = || -> Result<Simulated, CaseError> {
        let per_seed = point.throughputs(plan)?;
        let nominal = median(per_seed.clone()).expect("there is a seed");
        let few = |machine: &MachineFile| -> Result<f64, CaseError> {
            let mut config = plan.config.clone();
            config.simulate.seeds = FEW_SEEDS;
            let workloads = plan.workloads.clone();
            let found = point.throughputs(&Plan::of(config, machine.clone(), workloads))?;
            Ok(median(found).expect("there is a seed"))
        };
        let (below, above) = if with_range { deviations(&plan.machine, few)? } else { (0.0, 0.0) };
        let seeds = Summary::of(&per_seed).expect("there is a seed");
        let (slower, faster) = point.base_range(&plan.machine);
        let range = (
            nominal - together([below, nominal - seeds.min, slower * nominal]),
            nominal + together([above, seeds.max - nominal, faster * nominal]),
        );
        let bandwidth_bound = perfect * point.bandwidth_bound(plan);
        Ok(Simulated { value: nominal, range, bandwidth_bound })
    };
    let simulated = simulate().map_err(|error| refuse(error.into()))?;
    let group = match point.network {
        _ if is_served(&point.data_plane) => Group::Servers,
        _ if point.ranks <= plan.machine.node.ranks => Group::OneNode,
        network => Group::across(network),
    };
    Ok(Compared {
        point: point.name.clone(),
        series: point.series.clone(),
        group,
        like: point.like.clone(),
        machine: plan.machine.name.clone(),
        ranks: point.ranks,
        unit: "samples/s",
        perfect: Some(rounded(perfect)),
        fitted: used_for == UsedFor::Calibration,
        why: point.why.clone(),
        source: point.source.clone(),
        ..compared(point.samples_s, &simulated, LARGE)
    })
}

/// Parameter servers reduce.
fn is_served(data_plane: &str) -> bool {
    ServerNodes::find(data_plane).is_some() || variable_servers::find(data_plane).is_some()
}

impl Training {
    /// Samples per second on each rank of the base.
    fn base_samples_s(&self) -> f64 {
        self.single_samples_s.expect("points without a base are left out")
    }

    /// The job and the one that its efficiency is relative to.
    fn plan(&self, path: &Path) -> Result<Plan, PointCause> {
        let pass_ms = 1e3 * self.batch as f64 / self.base_samples_s();
        let model = Model {
            workload: self.workload.clone(),
            batch: self.batch,
            forward_ms: pass_ms / 3.0,
            backward_ms: pass_ms * 2.0 / 3.0,
            optimizer_ms: 0.0,
            compression: self.compression,
            source: self.source.clone(),
        };
        let policy = Policy {
            cycle_time_ms: self.cycle_time_ms,
            fusion_threshold_mib: self.fusion_threshold_mib,
            segment_kib: self.segment_kib,
            backward_passes_per_step: self.backward_passes_per_step,
            blocking: self.blocking,
            priority: self.priority,
            launch_gradient_us: self.launch_gradient_us,
            ..Policy::new(&self.control_plane, &self.control_plane, &self.data_plane)
        };
        let mut ranks = vec![self.base_ranks, self.ranks];
        // One rank alone reduces nothing: its throughput is the published one.
        ranks.retain(|&ranks| ranks > 1);
        ranks.dedup();
        let simulate = Simulate { seeds: SEEDS, ..Simulate::new(&self.machine, ranks) };
        Ok(Plan::new(Config::plain(simulate, model, vec![policy]), path)?)
    }

    /// Samples per second for each seed, as its efficiency relative to the base times the published base.
    fn throughputs(&self, plan: &Plan) -> Result<Vec<f64>, CaseError> {
        let mut of_ranks = Vec::new();
        for (case, simulated) in plan.run(|| ()) {
            of_ranks.push(tabulate::throughputs(&case, &simulated?));
        }
        let all = of_ranks.pop().expect("there is a world");
        let Some(base) = of_ranks.pop() else { return Ok(all) };
        let published_base = self.base_samples_s() * self.base_ranks as f64;
        Ok(all.iter().zip(&base).map(|(all, base)| all / base * published_base).collect())
    }

    /// How much lower and higher, in parts of it, a throughput relative to the published base may be, since the one GPU
    /// of that base is one of many: the range of 90 % of the machine's GPUs.
    fn base_range(&self, machine: &MachineFile) -> (f64, f64) {
        match &machine.variability {
            Some(variability) if self.base_ranks == 1 => {
                let [fast, slow] = [0.05, 0.95].map(|share| variability.factor(share));
                (1.0 - fast, slow - 1.0)
            }
            _ => (0.0, 0.0),
        }
    }

    /// Efficiency relative to the base if all of computation hid communication, and that went at full bandwidth.
    fn bandwidth_bound(&self, plan: &Plan) -> f64 {
        let passes = self.backward_passes_per_step * self.batch;
        let computed_s = passes as f64 / self.base_samples_s();
        let element_bytes = if self.compression == Compression::None { 4.0 } else { 2.0 };
        let size_bytes = element_bytes * plan.workloads[0].elements() as f64;
        let of = |ranks| computed_s / computed_s.max(wire_s(&plan.machine, ranks, size_bytes));
        of(self.ranks) / of(self.base_ranks)
    }
}

/// Seconds of an allreduce at the full bandwidth of a node's network cards, or of the links in a node.
fn wire_s(machine: &MachineFile, ranks: usize, size_bytes: f64) -> f64 {
    let fastest = |link: &crate::machine_file::Protocols| {
        link.values().map(|protocol| protocol.bandwidth_gb_s.value).fold(0.0, f64::max)
    };
    let node = &machine.node;
    let gb_s = if ranks > node.ranks {
        match &machine.shared.nic_gb_s {
            Some(nic_gb_s) if node.nics > 0 => nic_gb_s.value * node.nics as f64,
            _ => machine.network.as_ref().map_or(f64::INFINITY, fastest),
        }
    } else {
        let channels = machine.nccl.as_ref();
        channels.map_or(fastest(&machine.socket), |nccl| {
            nccl.channels_inside.value * nccl.channel_inside_gb_s.value
        })
    };
    size_bytes * bus_factor(ranks) / gb_s / 1e9
}

fn compared(published: f64, simulated: &Simulated, within: f64) -> Compared {
    let error = simulated.value / published - 1.0;
    Compared {
        point: String::new(),
        series: String::new(),
        group: Group::OneNode,
        like: None,
        machine: String::new(),
        ranks: 0,
        unit: "",
        published,
        simulated: rounded(simulated.value),
        simulated_low: rounded(simulated.range.0),
        simulated_high: rounded(simulated.range.1),
        bandwidth_bound: rounded(simulated.bandwidth_bound),
        perfect: None,
        error: (error * 1e4).round() / 1e4,
        fitted: false,
        verdict: if error.abs() <= within { Verdict::Met } else { Verdict::Missed },
        why: String::new(),
        source: String::new(),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
