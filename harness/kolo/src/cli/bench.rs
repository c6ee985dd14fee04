//! `kolo bench`: nccl-tests' table for our algorithms, and for the MPI library's own.

mod gpus;
mod nccl;
#[cfg(feature = "mpi")]
mod processes;
mod table;
mod turns;

use measure::back_ends;
use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use training::back_end::{BackEndRef, MemoryKind, RankKind};

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::{DEFAULT_GROUPS, split};
use algorithms::registry;
use algorithms::topology::Topology;
use anyhow::Result;

use super::sizes::{self, Sizes, Stride};
use super::{Exit, usage};
use cluster::launch::Launched;
use gpu::cuda;
use gpu::nccl::NAME as NCCL;
use measure::bound::bound;
use measure::calibrate;
use measure::plan::Placement;
use results::error::RecordError;
use results::files::write_whole;
use results::names::UnknownName;
use results::names::check_op;
use results::names::parse_dtype;
use results::names::parse_op;
use results::names::parse_ranks;
use results::provenance::{Launch, memory_bytes};
use results::record::Appended;
use results::row::{
    Bandwidths, CaseOutcome, CollectiveResult, CollectiveRow, Effort, Enqueued, Key, Run, Times,
};
use results::statistics::Summary;
use results::units::micros;
use transports::bench::{Bench, TIMEOUT, Timed, run as run_bench};
use transports::data_plane::nccl::{ALL_REDUCE, combinations};
use transports::data_plane::{DataPlane, DataPlaneError, NameError, spelling};
use transports::for_dtype;
use transports::pattern::{Pattern, Uncheckable};
use transports::threads::is_pinned;

/// Time an allreduce alone over a range of sizes, as nccl-tests does
///
/// Ranks are threads of this process. With --transport mpi they are the processes that mpirun or srun started.
/// The data of every size is checked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo bench --algorithm ring,auto --ranks 2 -b 1K -e 1M -f 32
  mpirun -np 4 kolo bench --transport mpi --algorithm ring,mpi-allreduce --out bench.csv")]
pub struct Arguments {
    /// Algorithms, separated by commas
    ///
    /// `all` stands for every registered algorithm. Over MPI, mpi-allreduce is the library's own; over nccl,
    /// nccl-allreduce and nccl-hierarchical are NCCL's. Over MPI and nccl the algorithms take turns at each size,
    /// so that disturbances affect all of them.
    #[arg(long, value_delimiter = ',', default_value = "ring", help_heading = RUN)]
    algorithm: Vec<String>,
    /// What moves the bytes
    ///
    /// threads: ranks are threads of this process. mpi: ranks are the processes that mpirun or srun started. cuda:
    /// ranks are streams of this process on this machine's GPUs. nccl: ranks are processes, each with a GPU.
    #[arg(
        long,
        value_parser = clap::builder::PossibleValuesParser::new(back_ends::names()),
        default_value = back_ends::default().name(),
        help_heading = RUN
    )]
    transport: String,
    /// Number of ranks, each on a node of its own
    #[arg(long, value_parser = parse_ranks, conflicts_with = "topology", help_heading = RUN)]
    ranks: Option<usize>,
    /// Nodes x ranks per node (2x4), or the ranks of each node (3+1)
    ///
    /// Default: 2x2; over MPI and nccl all processes, on the nodes where they are.
    #[arg(long, help_heading = RUN)]
    topology: Option<String>,
    /// Number of tensors into which algorithms with groups cut the buffer
    #[arg(
        long,
        default_value_t = DEFAULT_GROUPS,
        value_parser = sizes::whole::<usize>,
        help_heading = RUN,
        hide_short_help = true
    )]
    groups: usize,
    /// Element types, separated by commas: f32 (float), f64, f16, bf16, i32, i64, or all
    #[arg(
        short = 'd',
        long = "datatype",
        value_delimiter = ',',
        default_value = "f32",
        help_heading = RUN,
        hide_short_help = true
    )]
    datatype: Vec<String>,
    /// Reductions, separated by commas: sum, average (avg), min, max, product (prod), or all
    #[arg(
        short = 'o',
        long = "op",
        value_delimiter = ',',
        default_value = "sum",
        help_heading = RUN,
        hide_short_help = true
    )]
    op: Vec<String>,
    /// Seed of the data
    #[arg(
        long,
        default_value_t = 1,
        value_parser = sizes::whole::<u64>,
        help_heading = RUN,
        hide_short_help = true
    )]
    seed: u64,
    /// Smallest size in bytes
    #[arg(
        short = 'b',
        long = "minbytes",
        id = "begin",
        value_name = "BYTES",
        value_parser = sizes::size,
        default_value = "1K",
        help_heading = SIZES
    )]
    begin: usize,
    /// Largest size in bytes
    #[arg(
        short = 'e',
        long = "maxbytes",
        id = "end",
        value_name = "BYTES",
        value_parser = sizes::size,
        default_value = "16M",
        help_heading = SIZES
    )]
    end: usize,
    /// Factor between sizes
    #[arg(
        short = 'f',
        long = "stepfactor",
        id = "factor",
        value_name = "FACTOR",
        default_value_t = 4,
        value_parser = sizes::whole::<usize>,
        conflicts_with = "increment",
        help_heading = SIZES
    )]
    factor: usize,
    /// Bytes between sizes, instead of a factor
    #[arg(
        short = 'i',
        long = "stepbytes",
        id = "increment",
        value_name = "BYTES",
        value_parser = sizes::size,
        help_heading = SIZES,
        hide_short_help = true
    )]
    increment: Option<usize>,
    /// Sizes as FROM:TO:xFACTOR or FROM:TO:+BYTES, instead of -b, -e, -f and -i
    #[arg(
        long,
        value_parser = Sizes::parse,
        conflicts_with_all = ["begin", "end", "factor", "increment"],
        help_heading = SIZES,
        hide_short_help = true
    )]
    sizes: Option<Sizes>,
    /// Pipeline large buffers in segments of about this size; 0: no pipelining
    ///
    /// Default: 512K; over nccl 0, because nothing of a rank overlaps there.
    #[arg(long, value_parser = sizes::size, help_heading = SIZES, hide_short_help = true)]
    segment: Option<usize>,
    /// Pack this many bytes of several tensors at a time; 0: whole buffers
    #[arg(
        long,
        value_parser = sizes::size,
        default_value = "4M",
        help_heading = SIZES,
        hide_short_help = true
    )]
    packing: usize,
    /// Repetitions that count
    #[arg(
        short = 'n',
        long = "iters",
        default_value_t = 20,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING
    )]
    iters: usize,
    /// Repetitions of the warm-up, which do not count
    #[arg(
        short = 'w',
        long = "warmup-iters",
        default_value_t = 5,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING
    )]
    warmup_iters: usize,
    /// Check the data of the last repetition (1), or do not (0)
    #[arg(
        short = 'c',
        long = "check",
        default_value_t = 1,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING,
        hide_short_help = true
    )]
    check: usize,
    /// Also measure a lower bound beside each time
    ///
    /// The bound is a kernel with the same reads and writes of memory, without synchronisation.
    #[arg(long, help_heading = MEASURING, hide_short_help = true)]
    bound: bool,
    /// Over nccl: give up after this many seconds without an answer
    #[arg(
        long,
        alias = "patience",
        value_name = "SECONDS",
        default_value_t = TIMEOUT.as_secs(),
        value_parser = sizes::whole::<u64>,
        help_heading = MEASURING,
        hide_short_help = true
    )]
    timeout: u64,
    /// Also write the rows as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Over cuda: capture each collective once, and launch it as one CUDA graph
    #[arg(long, conflicts_with = "kernels", help_heading = GPUS, hide_short_help = true)]
    graph: bool,
    /// Over cuda: time the kernels on the gradients of this workload, beside the device's own copy
    #[arg(long, value_name = "NAME|FILE", help_heading = GPUS, hide_short_help = true)]
    kernels: Option<PathBuf>,
    /// Over nccl: algorithms that NCCL's own allreduce may use, separated by commas: Ring, Tree, ...
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        help_heading = GPUS,
        hide_short_help = true
    )]
    nccl_algo: Vec<String>,
    /// Over nccl: protocols that it may use, separated by commas: Simple, LL, LL128
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        help_heading = GPUS,
        hide_short_help = true
    )]
    nccl_proto: Vec<String>,
    /// Over nccl: measure even if GPUs differ or do not reach each other; table and provenance say so
    #[arg(long, help_heading = GPUS, hide_short_help = true)]
    force: bool,
}

/// Headings of the options.
const RUN: &str = "What to run";
const SIZES: &str = "Sizes";
const MEASURING: &str = "Measuring";
const GPUS: &str = "GPUs";

impl Arguments {
    /// What ranks are, and how data move.
    fn back_end(&self) -> BackEndRef {
        back_ends::named(&self.transport)
    }

    fn cut(&self) -> transports::allreduce::Sizes {
        let segment_bytes = self.segment.unwrap_or(self.back_end().segment_bytes());
        transports::allreduce::Sizes { segment_bytes, packing_bytes: self.packing }
    }
}

/// What is measured, checked.
struct Request {
    /// Names of data planes that exist.
    names: Vec<String>,
    back_end: BackEndRef,
    topology: Topology,
    placement: Placement,
    /// Who plays each rank.
    processes: Vec<Process>,
    sizes: Sizes,
    types: Vec<DataType>,
    ops: Vec<ReduceOp>,
}

impl Request {
    /// What each line of a table is about, for data planes that are there and those that are not.
    fn lines(&self) -> impl Iterator<Item = (DataType, ReduceOp, usize)> {
        let kinds =
            self.types.iter().flat_map(|&dtype| self.ops.iter().map(move |&op| (dtype, op)));
        let kinds = kinds.filter(|&(dtype, op)| check_op(dtype, op).is_ok());
        kinds.flat_map(|(dtype, op)| {
            self.sizes.iter().map(move |size_bytes| (dtype, op, size_bytes / dtype.size_bytes()))
        })
    }

    /// Why a line cannot be checked, though it is to be.
    fn unchecked(
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

/// A process that plays ranks.
#[derive(Clone)]
struct Process {
    pid: u32,
    host: String,
    /// What its ranks run on, if it is not the host's processor.
    device: Option<String>,
}

/// Measures one line of a plane, the index of which is given.
type Measure<'m> = &'m mut dyn FnMut(usize, &Bench, Line) -> Result<Timed>;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    let back_end = arguments.back_end();
    let (kind, memory) = (back_end.rank_kind(), back_end.memory());
    if arguments.kernels.is_some() && kind != RankKind::Stream {
        return Err(usage(format!("--kernels requires --transport {}", cuda::NAME)));
    }
    if arguments.graph && kind != RankKind::Stream {
        return Err(usage(format!("--graph requires --transport {}", cuda::NAME)));
    }
    let has_nccl = (kind, memory) == (RankKind::Process, MemoryKind::Device);
    let tunes_nccl = !arguments.nccl_algo.is_empty() || !arguments.nccl_proto.is_empty();
    if tunes_nccl && !has_nccl {
        return Err(usage(format!("--nccl-algo and --nccl-proto require --transport {NCCL}")));
    }
    if arguments.force && !has_nccl {
        return Err(usage(format!("--force requires --transport {NCCL}")));
    }
    if arguments.bound && kind != RankKind::Thread {
        return Err(usage("--bound requires --transport threads"));
    }
    let started = Launched::here().filter(|launched| launched.tasks > 1);
    match (kind, memory, started) {
        (RankKind::Process, MemoryKind::Host, _) => over_mpi(arguments),
        (RankKind::Process, MemoryKind::Device, _) => nccl::run(arguments),
        (_, _, Some(Launched { tasks, .. })) => Err(usage(format!(
            "started as {tasks} processes, but ranks are threads of one process; start one process, or add \
             --transport {} or {NCCL}",
            back_ends::default_of_processes()
        ))),
        (RankKind::Stream, _, None) => gpus::run(arguments),
        (RankKind::Thread, _, None) => on_threads(arguments),
    }
}

fn on_threads(arguments: &Arguments) -> Result<Exit> {
    let mut launch = Launch::now();
    let topology = topology(arguments, || Topology::uniform(2, 2))?;
    let placement = Placement::on_threads(&topology);
    let this = Process { pid: std::process::id(), host: launch.machine.host.clone(), device: None };
    let playing = (topology.ranks(), vec![this; topology.ranks()]);
    let request = request(arguments, topology, placement, playing)?;
    let mut table = calibrate::Table::new();
    if request.names.iter().any(|name| calibrate::chooses(name)) {
        table = calibrate::table(&request.topology, arguments.cut(), request.sizes.to)?;
        launch.auto.insert(request.topology.to_string(), table.clone());
    }
    let plane = |name: &String| {
        if calibrate::chooses(name) {
            calibrate::data_plane(name, &request.topology, &table)
        } else {
            request.back_end.data_plane(name, &request.topology)
        }
    };
    let planes: Vec<_> = request.names.iter().map(plane).collect();
    tables(arguments, &request, &planes, launch, 1, &mut |_, bench, _| Ok(run_bench(bench)?))
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &Arguments) -> Result<Exit> {
    Err(usage("this program was built without MPI; build it with --features mpi"))
}

#[cfg(feature = "mpi")]
fn over_mpi(arguments: &Arguments) -> Result<Exit> {
    processes::run(arguments)
}

/// Prints a table for each data plane.
fn tables(
    arguments: &Arguments,
    request: &Request,
    planes: &[Result<DataPlane, DataPlaneError>],
    launch: Launch,
    blocks: usize,
    measure: Measure,
) -> Result<Exit> {
    let mut out = arguments.out.as_ref().map(|path| Out::create(path, &launch)).transpose()?;
    let mut status = Exit::Right;
    for (index, name) in request.names.iter().enumerate() {
        table::preamble(arguments, request, name, &launch);
        if let Some(table) = launch.auto.get(&request.topology.to_string())
            && calibrate::chooses(name)
        {
            println!("# {}\n#", calibrate::in_words(table));
        }
        let mut lines = Lines { arguments, request, launch: &launch, blocks, name, out: &mut out };
        if lines.print(index, &planes[index], measure)? > 0 {
            status = Exit::Wrong;
        }
    }
    println!("# Collective test concluded: all_reduce");
    Ok(status)
}

/// A file of rows that grows line by line, with its provenance beside it.
struct Out(Appended);

impl Out {
    fn create(path: &Path, launch: &Launch) -> Result<Out> {
        let out = Out(Appended::open(path.to_path_buf()).map_err(RecordError::at_first)?);
        write_provenance(path, launch)?;
        Ok(out)
    }
}

/// Writes where rows come from beside them, in place of what was said before.
fn write_provenance(rows: &Path, launch: &Launch) -> Result<()> {
    let text = serde_json::to_string_pretty(&launch.clone().with_inputs())?;
    write_whole(&rows.with_extension("provenance.json"), (text + "\n").as_bytes())?;
    Ok(())
}

fn append(out: &mut Option<Out>, row: &CollectiveRow) -> Result<()> {
    if let Some(Out(file)) = out {
        file.append(std::slice::from_ref(row))?;
    }
    Ok(())
}

/// The ranks that were asked for.
fn topology(arguments: &Arguments, otherwise: impl FnOnce() -> Topology) -> Result<Topology> {
    match (&arguments.topology, arguments.ranks) {
        (Some(text), _) => text.parse().map_err(|error| usage(format!("--topology: {error}"))),
        (None, Some(ranks)) => Ok(Topology::flat(ranks)),
        (None, None) => Ok(otherwise()),
    }
}

/// What is measured, by so many ranks on this machine and these processes.
fn request(
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
        // It is what is held to them that is asked for, beside the others.
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
    Ok(Request { names, back_end, topology, placement, processes, sizes, types, ops })
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

/// One half of a line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Line {
    dtype: DataType,
    op: ReduceOp,
    elements: usize,
    in_place: bool,
}

impl Line {
    /// Elements of each tensor.
    fn tensors(&self, arguments: &Arguments, data_plane: &DataPlane) -> Vec<usize> {
        match data_plane.grouping() {
            Some(_) => split(self.elements, arguments.groups).iter().map(Range::len).collect(),
            None => vec![self.elements],
        }
    }

    /// What is measured for it.
    fn bench<'b>(
        &self,
        arguments: &Arguments,
        topology: &'b Topology,
        data_plane: &'b DataPlane,
        tensors: &'b [usize],
    ) -> Bench<'b> {
        Bench {
            data_plane,
            topology,
            dtype: self.dtype,
            op: self.op,
            sizes: arguments.cut(),
            tensors,
            in_place: self.in_place,
            warmup: arguments.warmup_iters,
            repetitions: arguments.iters,
            check: arguments.check > 0,
            seed: arguments.seed,
        }
    }
}

/// One data plane's lines.
struct Lines<'a> {
    arguments: &'a Arguments,
    request: &'a Request,
    launch: &'a Launch,
    /// In which the repetitions come.
    blocks: usize,
    name: &'a str,
    out: &'a mut Option<Out>,
}

impl Lines<'_> {
    /// Prints them; returns the number of wrong elements.
    fn print(
        &mut self,
        index: usize,
        data_plane: &Result<DataPlane, DataPlaneError>,
        measure: Measure,
    ) -> Result<usize> {
        let (arguments, request) = (self.arguments, self.request);
        table::header(arguments.bound);
        let (mut busbw, mut wrong, mut firsts) = (Vec::new(), 0, Vec::new());
        let mut host = table::Host::default();
        for (dtype, op, elements) in request.lines() {
            let line = |in_place| Line { dtype, op, elements, in_place };
            let unchecked = request.unchecked(arguments, dtype, op);
            let data_plane = match (data_plane, unchecked) {
                (Err(why), _) => {
                    self.unsupported(line(true), why)?;
                    continue;
                }
                (_, Some(why)) => {
                    self.unsupported(line(true), &why)?;
                    continue;
                }
                (Ok(data_plane), None) => data_plane,
            };
            print!("{}", table::row_head(elements, dtype, op));
            let mut bounds = String::new();
            for in_place in [false, true] {
                let tensors = line(in_place).tensors(arguments, data_plane);
                let bench =
                    line(in_place).bench(arguments, &request.topology, data_plane, &tensors);
                // Before and after, as the machine may change.
                let before = arguments.bound.then(|| bound(&bench)).transpose()?;
                let timed = measure(index, &bench, line(in_place))?;
                let after = arguments.bound.then(|| bound(&bench)).transpose()?;
                let bound_us = before.into_iter().chain(after).min().map(micros);
                let outcome =
                    outcome(line(in_place), &request.topology, &timed, self.blocks, bound_us);
                let row = self.row(line(in_place), data_plane.grouping().is_some(), outcome);
                append(self.out, &row)?;
                let Some(result) = row.outcome.measured() else { continue };
                if bound_us.is_some() {
                    bounds += &table::bound_body(result);
                }
                print!("{}", table::row_body(result));
                host.add(result);
                busbw.push(result.bandwidths.as_ref().map_or(0.0, |of| of.busbw_gb_s));
                wrong += result.effort.wrong.unwrap_or(0);
                if !result.effort.first_wrong.is_empty() {
                    firsts
                        .push(format!("# wrong: {}: {}", row.key.case, result.effort.first_wrong));
                }
            }
            println!("{bounds}");
        }
        firsts.iter().for_each(|line| println!("{line}"));
        let verdict = match (arguments.check, wrong) {
            (0, _) => "unchecked",
            (_, 0) => "OK",
            _ => "FAILED",
        };
        println!("# Out of bounds values : {wrong} {verdict}");
        let average = busbw.iter().sum::<f64>() / busbw.len().max(1) as f64;
        println!("# Avg bus bandwidth    : {average:.3} ");
        host.sentence().iter().for_each(|sentence| println!("# {sentence}"));
        println!("#");
        Ok(wrong)
    }

    fn unsupported(&mut self, line: Line, reason: &dyn Error) -> Result<()> {
        println!("# unsupported: {reason}");
        let row = self.row(line, false, CaseOutcome::Unsupported(reason.to_string()));
        append(self.out, &row)
    }

    /// The row of a line that ended so.
    fn row(
        &self,
        line: Line,
        is_grouped: bool,
        outcome: CaseOutcome<CollectiveResult>,
    ) -> CollectiveRow {
        let Lines { arguments, request, launch, name, .. } = self;
        let Line { dtype, op, elements, in_place } = line;
        let (topology, back_end) = (&request.topology, request.back_end);
        let size_bytes = elements * dtype.size_bytes();
        let place = if in_place { "in-place" } else { "out-of-place" };
        let graph = if arguments.graph { "/graph" } else { "" };
        let (dtype, op) = (dtype.name(), op.name());
        let groups = if is_grouped { arguments.groups } else { 0 };
        let row = CollectiveRow {
            key: Key {
                case: format!(
                    "{back_end}/{topology}/{name}/{dtype}/{op}/{size_bytes}B/{place}{graph}"
                ),
                nodes: topology.nodes(),
                local_size: topology.local_size(),
                ranks: topology.ranks(),
                dtype: dtype.into(),
                op: op.into(),
                in_place,
                size_bytes,
            },
            run: Run {
                emulated: request.placement.emulated,
                oversubscribed: request.placement.oversubscribed,
                pinned: back_end.pins() && is_pinned(),
                host: launch.machine.host.clone(),
                commit: launch.commit.clone(),
                started: launch.started.clone(),
                seed: arguments.seed,
                transport: back_end.name().into(),
            },
            outcome,
            algorithm: name.to_string(),
            groups,
            tensors: groups.max(1),
            segment_bytes: arguments.cut().segment_bytes,
            packing_bytes: arguments.packing,
            warmup: arguments.warmup_iters,
        };
        row.rounded()
    }
}

/// What a measured line came to.
fn outcome(
    line: Line,
    topology: &Topology,
    timed: &Timed,
    blocks: usize,
    bound_us: Option<f64>,
) -> CaseOutcome<CollectiveResult> {
    let times: Vec<f64> = timed.times.iter().copied().map(micros).collect();
    let time = Summary::of(&times);
    let size_bytes = line.elements * line.dtype.size_bytes();
    let wrong = timed.wrong.as_ref();
    let result = CollectiveResult {
        effort: Effort {
            samples: times.len(),
            blocks,
            launches: 1,
            stop_reason: "count".into(),
            checked: wrong.map_or(0, |_| blocks),
            wrong: wrong.map(|wrong| wrong.count),
            first_wrong: wrong.and_then(|wrong| wrong.first.clone()).unwrap_or_default(),
        },
        times: time.as_ref().map(Times::of),
        bandwidths: time
            .as_ref()
            .and_then(|time| Bandwidths::of(size_bytes, topology.ranks(), time)),
        enqueued: timed.enqueued.as_ref().map(|enqueued| Enqueued {
            enqueued: enqueued.launches,
            graph_nodes: enqueued.nodes,
            enqueue_us_p50: Summary::of(&enqueued.times_us).map(|time| time.p50),
        }),
        context_switches_mean: timed.context_switches,
        device_us_p50: Summary::of(&timed.device_us).map(|device| device.p50),
        bound_us,
    };
    if wrong.is_some_and(|wrong| wrong.count > 0) {
        CaseOutcome::Wrong { result, reason: String::new() }
    } else {
        CaseOutcome::Ok(result)
    }
}
