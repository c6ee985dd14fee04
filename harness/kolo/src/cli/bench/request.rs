//! What is measured, checked.

use algorithms::control::{DataType, ReduceOp};
use algorithms::registry;
use algorithms::topology::Topology;
use anyhow::Result;

use super::arguments::Arguments;
use crate::cli::sizes::{Sizes, Stride};
use crate::cli::usage;
use measure::back_ends;
use measure::plan::Placement;
use results::names::{UnknownName, check_op, parse_dtype, parse_op};
use results::provenance::memory_bytes;
use training::back_end::BackEndRef;
use transports::data_plane::nccl::{ALL_REDUCE, combinations};
use transports::data_plane::{NameError, spelling};
use transports::for_dtype;
use transports::pattern::{Pattern, Uncheckable};

/// What is measured, checked.
pub struct Request {
    /// Names of data planes that exist.
    pub names: Vec<String>,
    pub back_end: BackEndRef,
    pub topology: Topology,
    pub placement: Placement,
    /// The process of each rank.
    pub processes: Vec<Process>,
    pub sizes: Sizes,
    pub types: Vec<DataType>,
    pub ops: Vec<ReduceOp>,
    /// How often all lines are measured.
    pub cycles: usize,
    /// Bytes of all buffers of the ranks on this machine, at most.
    pub buffers_bytes: u64,
}

/// What a line of a table is about.
#[derive(Clone, Copy)]
pub struct Asked {
    pub dtype: DataType,
    pub op: ReduceOp,
    pub elements: usize,
    /// From 0.
    pub cycle: usize,
}

impl Request {
    /// What each line of a table is about, for data planes that are there and those that are not.
    /// As often as there are cycles.
    pub fn lines(&self) -> impl Iterator<Item = Asked> {
        (0..self.cycles).flat_map(move |cycle| {
            let asked = move |(dtype, op, elements)| Asked { dtype, op, elements, cycle };
            self.cycle().map(asked)
        })
    }

    fn cycle(&self) -> impl Iterator<Item = (DataType, ReduceOp, usize)> {
        let kinds =
            self.types.iter().flat_map(|&dtype| self.ops.iter().map(move |&op| (dtype, op)));
        let kinds = kinds.filter(|&(dtype, op)| check_op(dtype, op).is_ok());
        kinds.flat_map(|(dtype, op)| {
            self.sizes.iter().map(move |size_bytes| (dtype, op, size_bytes / dtype.size_bytes()))
        })
    }

    /// Why a line cannot be checked, though it is to be.
    pub fn unchecked(
        &self,
        arguments: &Arguments,
        dtype: DataType,
        op: ReduceOp,
    ) -> Option<Uncheckable> {
        let pattern = Pattern::of(self.topology.ranks(), op, arguments.seed);
        let why = for_dtype!(dtype, T => pattern.unsupported::<T>());
        why.filter(|_| arguments.check > 0)
    }
}

/// A process that runs ranks.
#[derive(Clone)]
pub struct Process {
    pub pid: u32,
    pub host: String,
    /// What its ranks run on, if it is not the host's processor.
    pub device: Option<String>,
}

/// The place of a rank among those on its host, which stands for its device, as in nccl-tests.
pub fn device_of(processes: &[Process], rank: usize) -> usize {
    processes[..rank].iter().filter(|other| other.host == processes[rank].host).count()
}

/// The ranks that were asked for.
pub fn topology(arguments: &Arguments, otherwise: impl FnOnce() -> Topology) -> Result<Topology> {
    let together = arguments.threads_times_gpus();
    match (&arguments.topology, arguments.ranks) {
        // As in nccl-tests, threads and GPUs of a process are on one node.
        (None, None) if !back_ends::has_processes(arguments.back_end()) && together.is_some() => {
            Ok(Topology::uniform(1, together.unwrap_or(1)))
        }
        (Some(text), _) => text.parse().map_err(|error| usage(format!("--topology: {error}"))),
        (None, Some(ranks)) => Ok(Topology::flat(ranks)),
        (None, None) => Ok(otherwise()),
    }
}

/// What is measured, by so many ranks on this machine and these processes.
pub fn request(
    arguments: &Arguments,
    topology: Topology,
    placement: Placement,
    (ranks_here, processes): (usize, Vec<Process>),
) -> Result<Request> {
    let every = |list: &[String]| list == ["all"];
    let names: Vec<String> = if every(&arguments.algorithm) {
        registry::ALL.iter().map(|entry| entry.name.to_string()).collect()
    } else {
        arguments.algorithm.clone()
    };
    let mut names = names
        .iter()
        .map(|name| spelling(name))
        .collect::<Result<Vec<_>, NameError>>()
        .map_err(usage)?;
    if !arguments.nccl_algo.is_empty() || !arguments.nccl_proto.is_empty() {
        // NCCL's allreduce with each of these settings, besides the other data planes.
        names.retain(|name| name != ALL_REDUCE);
        names.extend(combinations(&arguments.nccl_algo, &arguments.nccl_proto).map_err(usage)?);
    }
    let stride = match arguments.increment {
        Some(bytes) => Stride::Bytes(bytes),
        None => Stride::Factor(arguments.factor),
    };
    let sizes =
        arguments.sizes.unwrap_or(Sizes { from: arguments.begin, to: arguments.end, stride });
    let types = if every(&arguments.datatype) {
        DataType::ALL.to_vec()
    } else {
        arguments
            .datatype
            .iter()
            .map(|name| parse_dtype(name))
            .collect::<Result<_, UnknownName>>()
            .map_err(usage)?
    };
    let ops = match every(&arguments.op) {
        true => ReduceOp::ALL.to_vec(),
        false => arguments
            .op
            .iter()
            .map(|name| parse_op(name))
            .collect::<Result<_, UnknownName>>()
            .map_err(usage)?,
    };
    // `all` leaves out what does not exist; whoever names it is told.
    if !every(&arguments.op) && !every(&arguments.datatype) {
        for &dtype in &types {
            ops.iter().try_for_each(|&op| check_op(dtype, op)).map_err(usage)?;
        }
    }
    if arguments.iters == 0 || arguments.groups == 0 {
        return Err(usage("-n and --groups must be at least 1"));
    }
    let need = (3 * ranks_here as u64).saturating_mul(sizes.to as u64);
    if let Some(has) = memory_bytes("MemAvailable").filter(|&has| has < need) {
        return Err(usage(format!(
            "{ranks_here} ranks of {} MB take up to {} MB of memory and {} MB are free; choose a \
             smaller -e",
            sizes.to / 1_000_000,
            need / 1_000_000,
            has / 1_000_000
        )));
    }
    let (sizes, back_end) = (sizes.checked().map_err(usage)?, arguments.back_end());
    types.iter().try_for_each(|&dtype| at_least_one(sizes, dtype))?;
    let (cycles, buffers_bytes) = (arguments.cycles, need);
    Ok(Request {
        names,
        back_end,
        topology,
        placement,
        processes,
        sizes,
        types,
        ops,
        cycles,
        buffers_bytes,
    })
}

/// Refuses sizes that hold no whole element.
fn at_least_one(sizes: Sizes, dtype: DataType) -> Result<()> {
    match sizes.iter().find(|size| (1..dtype.size_bytes()).contains(size)) {
        None => Ok(()),
        Some(size) => Err(usage(format!(
            "size {size} is smaller than one element of {}; choose -b {} or more",
            dtype.name(),
            dtype.size_bytes()
        ))),
    }
}
