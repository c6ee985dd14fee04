//! How long an allreduce takes on a machine file, by size: as NCCL itself expects, or as a schedule does
//! in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use algorithms::algorithm::{Choice, Unsupported};
use algorithms::combinators::Pipelined;
use algorithms::schedule::Schedule;
use algorithms::segments::{in_segments, most_segments, segments_up_to};
use algorithms::server_nodes::{self, InvalidCount, ServerNodes};
use algorithms::simulate::machine::Machine;
use algorithms::simulate::nccl::{Nccl, Obstacle, Pattern};
use algorithms::simulate::{Blocked, Moment, Outcome, events, rounds};
use algorithms::topology::Topology;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::machine_file::{MachineFile, Misfit};
use super::variable_servers::{self, InvalidServers, VariableServers};
use results::names::{AlgorithmError, algorithm};

/// NCCL's own choice, by its tuning model. Names such as `nccl:ring` fix the algorithm, as `NCCL_ALGO` does; rings were
/// all there was before version 2.4. Any other name is an algorithm's, or [`server_nodes::NAME`], or
/// [`variable_servers::NAME`].
pub const NCCL: &str = "nccl";

/// Names in addition to those of algorithms.
const NATIVE: [&str; 8] = [
    NCCL,
    "nccl:ring",
    "nccl:tree",
    "nccl:nvls",
    "nccl:nvls-tree",
    "nccl:collnet",
    server_nodes::NAME,
    variable_servers::NAME,
];

/// The algorithms among which NCCL chooses under that name.
fn patterns(name: &str) -> Option<&'static [Pattern]> {
    Some(match name {
        NCCL => &Pattern::ALL,
        "nccl:ring" => &[Pattern::Ring],
        "nccl:tree" => &[Pattern::Tree],
        "nccl:nvls" => &[Pattern::Nvls],
        "nccl:nvls-tree" => &[Pattern::NvlsTree],
        "nccl:collnet" => &[Pattern::CollNetChain, Pattern::CollNetDirect],
        _ => return None,
    })
}

/// The tables of a machine file that say that switches reduce in these algorithms.
fn tables(among: &[Pattern]) -> &'static str {
    match among {
        [Pattern::Nvls] => "[nccl.nvls]: its NVLink switches do not reduce",
        [Pattern::NvlsTree] => "[nccl.nvls_tree]: its NVLink switches do not reduce",
        _ => "[nccl.collnet_chain] or [nccl.collnet_direct]: its network does not reduce",
    }
}

/// Checks that a name is a data plane on some machine.
///
/// # Errors
/// The error, with a suggestion or the list of names.
pub fn check_name(name: &str) -> Result<(), DataPlaneError> {
    if let Some(servers) = variable_servers::find(name) {
        return Ok(servers.map(drop)?);
    }
    match ServerNodes::find(name) {
        Some(servers) => Ok(servers.map(drop)?),
        None if NATIVE.contains(&name) => Ok(()),
        None => Ok(algorithm(name, &NATIVE).map(drop)?),
    }
}

/// Why a machine has no data plane of a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DataPlaneError {
    /// No algorithm has that name.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// The ranks do not fit on the machine.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The ranks and the server nodes do not fit on the machine.
    #[error("with {}: {cause}", server_nodes::NAME)]
    ServersMisfit {
        /// Why not.
        #[source]
        cause: Misfit,
    },
    /// The number of servers cannot be read.
    #[error(transparent)]
    Servers(#[from] InvalidCount),
    /// The number of servers of variables cannot be read.
    #[error(transparent)]
    VariableServers(#[from] InvalidServers),
    /// The algorithm has no schedule for these ranks.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The machine file has no parameters of NCCL.
    #[error(
        "machine {machine} has no [nccl]; choose an algorithm of this repository, such as ring"
    )]
    NoNccl {
        /// The machine.
        machine: String,
    },
    /// The machine file has no table that says that switches reduce.
    #[error(
        "{name} needs switches that reduce, and machine {machine} has no {}; add the table if they do, or choose nccl",
        tables(among)
    )]
    NoSwitches {
        /// The data plane.
        name: String,
        /// The machine.
        machine: String,
        /// The algorithms of that name.
        among: &'static [Pattern],
    },
    /// NCCL does not use the algorithm between these ranks.
    #[error("{name} does not run on {ranks} ranks of machine {machine}: {cause}; choose nccl")]
    Obstacle {
        /// The data plane.
        name: String,
        /// The machine.
        machine: String,
        /// Ranks requested.
        ranks: usize,
        /// Why not.
        cause: Obstacle,
    },
}

/// What works schedules out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Step by step, ranks that do the same once: [`rounds`].
    #[default]
    Rounds,
    /// Message by message: [`events`]. Slower, and different where ranks share links.
    Events,
}

impl Engine {
    /// As rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Rounds => "rounds",
            Engine::Events => "events",
        }
    }

    fn simulate(
        self,
        schedule: &dyn Schedule,
        machine: &Machine,
        size_bytes: f64,
    ) -> Result<Outcome, Blocked> {
        match self {
            Engine::Rounds => rounds::simulate(schedule, machine, size_bytes, &[]),
            Engine::Events => events::simulate(schedule, machine, size_bytes, &[]),
        }
    }
}

/// The parts of a message that overlap with other messages in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overlap {
    /// None: messages run one after the other.
    Nothing,
    /// Its latency.
    Latency,
    /// Its latency, and the time outside shared links and processors: one message crosses a node while another
    /// crosses the network.
    Stages,
}

/// The time of allreduces on one machine between a number of ranks.
#[derive(Clone)]
pub struct DataPlane {
    ranks: usize,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Nccl(Nccl, &'static [Pattern]),
    Scheduled(Arc<Scheduled>),
    Variables(VariableServers),
    Measured(Arc<[(f64, f64)]>),
}

/// An algorithm in virtual time, worked out at some sizes and interpolated between them. Where only messages from some size on
/// are announced, times jump there, and every size is worked out.
struct Scheduled {
    name: String,
    machine: Machine,
    segment_bytes: f64,
    /// For messages from so many bytes on: the most segments.
    most_segments: Vec<(usize, usize)>,
    engine: Engine,
    /// Times jump at some size.
    jumps: bool,
    /// Times of a message alone or in a row, by its size (the bits of a positive number are in its order) and the number of its
    /// segments.
    known: Mutex<BTreeMap<(bool, u64, usize), Moment>>,
}

/// Simulated sizes per factor of two. Between them time is interpolated linearly, within 1 % of the simulated
/// value (test).
const SIZES_PER_OCTAVE: u32 = 2;

/// Where messages are announced, worlds of up to so many ranks are simulated by events, which know it. In larger ones that
/// would take long.
const MOST_ANNOUNCING: usize = 16;

/// For longer schedules only latencies overlap: a row of messages that fills them would take long to simulate.
const MOST_STAGES: usize = 64;

impl DataPlane {
    /// The data plane of that name. Messages are cut in segments of about `segment_bytes`; 0: they are not.
    /// The engine is for schedules of ours.
    ///
    /// # Errors
    /// The reason: an unknown name, too many ranks, or a machine file without NCCL's parameters.
    pub fn new(
        name: &str,
        file: &MachineFile,
        ranks: usize,
        segment_bytes: f64,
        engine: Engine,
    ) -> Result<DataPlane, DataPlaneError> {
        if let Some(misfit) = file.misfit(ranks) {
            return Err(misfit.into());
        }
        if let Some(among) = patterns(name) {
            return nccl(name, among, file, ranks).map(|kind| DataPlane { ranks, kind });
        }
        if let Some(count) = variable_servers::find(name) {
            let servers = VariableServers::new(file, ranks, count?);
            return Ok(DataPlane { ranks, kind: Kind::Variables(servers) });
        }
        let machine = file.machine();
        let choices = choices(name, &machine.topology(ranks))?;
        let with_servers = choices.iter().map(|choice| choice.schedule.ranks()).max();
        if let Some(misfit) = file.misfit(with_servers.unwrap_or(ranks)) {
            return Err(DataPlaneError::ServersMisfit { cause: misfit });
        }
        let announcing = || machine.network.0.iter().filter(|protocol| protocol.behind_data > 0.0);
        let announces = ranks <= MOST_ANNOUNCING && announcing().next().is_some();
        let jumps = announces && announcing().any(|protocol| protocol.announced_from_bytes > 0.0);
        let engine = if announces { Engine::Events } else { engine };
        let (name, known) = (name.to_string(), Mutex::default());
        let most = |choice: &Choice| (choice.from_bytes, most_segments(&*choice.schedule, false));
        // A walk through whole schedules, which a message in one piece does not need.
        let is_cut = segment_bytes > 0.0;
        let most_segments = choices.iter().filter(|_| is_cut).map(most).collect();
        let scheduled =
            Scheduled { name, machine, segment_bytes, most_segments, engine, jumps, known };
        Ok(DataPlane { ranks, kind: Kind::Scheduled(Arc::new(scheduled)) })
    }

    /// Whatever it is, it takes as long as was measured: sizes in bytes, ascending, and seconds. Between
    /// them time is linear, above the largest proportional to size, and below the smallest constant.
    ///
    /// # Panics
    /// Without any size.
    pub fn measured(points: Vec<(f64, f64)>, ranks: usize) -> DataPlane {
        assert!(!points.is_empty(), "a data plane is measured at some size");
        DataPlane { ranks, kind: Kind::Measured(points.into()) }
    }

    /// The engine, as named in rows.
    pub fn engine(&self) -> &'static str {
        match &self.kind {
            Kind::Nccl(..) => NCCL,
            Kind::Scheduled(scheduled) => scheduled.engine.name(),
            Kind::Variables(_) => variable_servers::NAME,
            Kind::Measured(_) => "measured",
        }
    }

    /// The end of an allreduce of `size_bytes` per rank that begins at 0.
    pub fn time(&self, size_bytes: f64) -> Moment {
        match &self.kind {
            _ if self.ranks == 1 => Moment::default(),
            Kind::Nccl(nccl, among) => nccl.time(among, self.ranks, size_bytes),
            Kind::Scheduled(scheduled) => scheduled.time(self.ranks, size_bytes, false),
            Kind::Variables(servers) => servers.time(size_bytes),
            Kind::Measured(points) => interpolated(points, size_bytes),
        }
    }

    /// By how much more the bytes of these gradients count, since they are not spread evenly.
    pub fn imbalance(&self, gradients_bytes: impl Iterator<Item = usize>) -> f64 {
        match &self.kind {
            Kind::Variables(servers) => servers.imbalance(gradients_bytes),
            Kind::Nccl(..) | Kind::Scheduled(_) | Kind::Measured(_) => 1.0,
        }
    }

    /// The time that one more allreduce of that size adds, directly after others like it.
    pub fn next(&self, size_bytes: f64, overlap: Overlap) -> Moment {
        match (&self.kind, overlap) {
            (_, Overlap::Nothing) => self.time(size_bytes),
            (Kind::Scheduled(scheduled), Overlap::Stages) if self.ranks > 1 => {
                scheduled.time(self.ranks, size_bytes, true)
            }
            _ => self.time(size_bytes).without_latency(),
        }
    }
}

/// NCCL with a choice among these algorithms, of which one can run at least.
fn nccl(
    name: &str,
    among: &'static [Pattern],
    file: &MachineFile,
    ranks: usize,
) -> Result<Kind, DataPlaneError> {
    let machine = || file.name.clone();
    let nccl = file.nccl().ok_or_else(|| DataPlaneError::NoNccl { machine: machine() })?;
    let obstacles = among.iter().map(|&pattern| nccl.obstacle(pattern, ranks));
    let Some(obstacles) = obstacles.collect::<Option<Vec<Obstacle>>>() else {
        return Ok(Kind::Nccl(nccl, among));
    };
    let (name, machine) = (name.to_string(), machine());
    let other = obstacles.into_iter().rfind(|&it| it != Obstacle::NoSwitches);
    Err(match other {
        Some(cause) => DataPlaneError::Obstacle { name, machine, ranks, cause },
        None => DataPlaneError::NoSwitches { name, machine, among },
    })
}

/// The schedules for buffers of these ranks, by size; some are of larger worlds, in which others serve them.
fn choices(name: &str, ranks: &Topology) -> Result<Vec<Choice>, DataPlaneError> {
    if let Some(servers) = ServerNodes::find(name) {
        let schedule = servers?.schedule(ranks)?;
        return Ok(vec![Choice { from_bytes: 0, name: name.into(), schedule }]);
    }
    Ok(algorithm(name, &NATIVE)?.choices(ranks)?)
}

/// On a curve of measured sizes.
fn interpolated(points: &[(f64, f64)], size_bytes: f64) -> Moment {
    let (first, last) = (points[0], points[points.len() - 1]);
    let next = points.partition_point(|&(bytes, _)| bytes < size_bytes);
    let at_s = match next {
        0 => first.1,
        _ if next == points.len() => last.1 * size_bytes / last.0,
        _ => {
            let ((low, low_s), (high, high_s)) = (points[next - 1], points[next]);
            low_s + (size_bytes - low) / (high - low) * (high_s - low_s)
        }
    };
    let latency_s = first.1.min(at_s);
    Moment { at_s, latency_s, bandwidth_s: at_s - latency_s, ..Moment::default() }
}

impl Scheduled {
    fn size_bytes(number: u32) -> f64 {
        (f64::from(number) / f64::from(SIZES_PER_OCTAVE)).exp2()
    }

    /// The time of a message alone, or the time that one more in a row adds.
    fn time(&self, ranks: usize, size_bytes: f64, in_a_row: bool) -> Moment {
        if self.jumps {
            return self.at(ranks, size_bytes, self.segments(size_bytes), in_a_row);
        }
        let number = (size_bytes.max(1.0).log2() * f64::from(SIZES_PER_OCTAVE)).floor() as u32;
        let (low, high) = (Self::size_bytes(number), Self::size_bytes(number + 1));
        let share = ((size_bytes - low) / (high - low)).max(0.0);
        let segments = self.segments(size_bytes);
        let a = self.at(ranks, low, segments, in_a_row);
        if share == 0.0 {
            return a;
        }
        let b = self.at(ranks, high, segments, in_a_row);
        let mix = |a: f64, b: f64| a + share * (b - a);
        Moment {
            at_s: mix(a.at_s, b.at_s),
            latency_s: mix(a.latency_s, b.latency_s),
            bandwidth_s: mix(a.bandwidth_s, b.bandwidth_s),
            contention_s: mix(a.contention_s, b.contention_s),
            reduction_s: mix(a.reduction_s, b.reduction_s),
        }
    }

    /// Into how many segments a message of that size is cut.
    fn segments(&self, size_bytes: f64) -> usize {
        let fits = |&&(from_bytes, _): &&(usize, usize)| from_bytes as f64 <= size_bytes;
        let of = |&(_, most): &(usize, usize)| {
            segments_up_to(most, size_bytes as usize, self.segment_bytes as usize)
        };
        self.most_segments.iter().rfind(fits).map_or(1, of)
    }

    fn at(&self, ranks: usize, size_bytes: f64, segments: usize, in_a_row: bool) -> Moment {
        let key = (in_a_row, size_bytes.to_bits(), segments);
        let known = || self.known.lock().expect("nobody panics while it is held");
        if let Some(known) = known().get(&key) {
            return *known;
        }
        let moment = if in_a_row {
            self.one_more(ranks, size_bytes, segments)
        } else {
            self.simulate(ranks, size_bytes, segments)
        };
        known().insert(key, moment);
        moment
    }

    /// The time of one of many messages that follow each other through a schedule as its segments do, averaged
    /// over as many messages as there are steps.
    fn one_more(&self, ranks: usize, size_bytes: f64, segments: usize) -> Moment {
        let schedule = self.schedule(ranks, size_bytes);
        let stages = schedule.steps();
        if stages > MOST_STAGES || self.segment_bytes > 0.0 {
            return self.simulate(ranks, size_bytes, segments).without_latency();
        }
        let row = |messages: usize| {
            let row = Pipelined::new(&*schedule, messages);
            let outcome = self.engine.simulate(&row, &self.machine, messages as f64 * size_bytes);
            outcome.expect("registered schedules are proved to end").end.without_latency()
        };
        let (few, many) = (row(stages), row(2 * stages));
        Moment::default().plus(1.0 / stages as f64, many.plus(-1.0, few))
    }

    /// The schedule for buffers of that size.
    fn schedule(&self, ranks: usize, size_bytes: f64) -> Box<dyn Schedule> {
        let topology = self.machine.topology(ranks);
        let choices = choices(&self.name, &topology).expect("there was a schedule before");
        let fits = |from_bytes: usize| from_bytes as f64 <= size_bytes;
        let choice = choices.into_iter().rfind(|choice| fits(choice.from_bytes));
        choice.expect("the first is for 0 bytes and more").schedule
    }

    fn simulate(&self, ranks: usize, size_bytes: f64, segments: usize) -> Moment {
        let schedule = self.schedule(ranks, size_bytes);
        let schedule = in_segments(&*schedule, segments, false);
        let outcome = self.engine.simulate(&schedule, &self.machine, size_bytes);
        outcome.expect("registered schedules are proved to end").end
    }
}

#[cfg(test)]
mod tests;
