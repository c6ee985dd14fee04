//! `kolo bench`: nccl-tests' table for our algorithms.

use std::ops::Range;
use std::path::{Path, PathBuf};

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::{DEFAULT_GROUPS, split};
use algorithms::registry::{self, Algorithm};
use algorithms::topology::Topology;
use anyhow::Result;

use super::sizes::{self, Sizes, Stride};
use super::{Exit, usage};
use crate::bench::{Bench, Timed, bus_factor, run as run_bench};
use crate::bound::bound;
use crate::calibrate;
use crate::config::{check_op, parse_dtype, parse_op, parse_topology};
use crate::for_dtype;
use crate::pattern::Pattern;
use crate::provenance::{Launch, cores, memory_bytes};
use crate::record::{Appended, write_whole};
use crate::row::{Kind, Row, SCHEMA, Status};
use crate::statistics::Summary;
use crate::tabulate::{put_bandwidths, put_times, rounded};
use crate::transport::threads::is_pinned;

/// Time an allreduce alone, over a range of sizes: nccl-tests' table on stdout. Ranks are threads
/// of this process; every size is checked.
#[derive(clap::Args)]
pub struct Arguments {
    /// Algorithms, separated by commas; `all` for every registered one
    #[arg(long, value_delimiter = ',', default_value = "ring")]
    algorithm: Vec<String>,
    /// Number of ranks, each on a node of its own
    #[arg(long, conflicts_with = "topology")]
    ranks: Option<usize>,
    /// Nodes x ranks per node (2x4), or the ranks of each node (3+1) [default: 2x2]
    #[arg(long)]
    topology: Option<String>,
    /// Sizes FROM:TO:xFACTOR or FROM:TO:+BYTES, instead of -b, -e, -f and -i
    #[arg(long, value_parser = Sizes::parse, conflicts_with_all = ["begin", "end", "factor", "increment"])]
    sizes: Option<Sizes>,
    /// Smallest size in bytes
    #[arg(short = 'b', long = "minbytes", id = "begin", value_parser = sizes::size, default_value = "1K")]
    begin: usize,
    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", id = "end", value_parser = sizes::size, default_value = "16M")]
    end: usize,
    /// Factor between sizes
    #[arg(
        short = 'f',
        long = "stepfactor",
        id = "factor",
        default_value_t = 4,
        conflicts_with = "increment"
    )]
    factor: usize,
    /// Bytes between sizes, instead of a factor
    #[arg(short = 'i', long = "stepbytes", id = "increment", value_parser = sizes::size)]
    increment: Option<usize>,
    /// Repetitions that count
    #[arg(short = 'n', long = "iters", default_value_t = 20)]
    iters: usize,
    /// Repetitions before them that do not
    #[arg(short = 'w', long = "warmup-iters", default_value_t = 5)]
    warmup_iters: usize,
    /// Element types, separated by commas: f32 (float), f64, f16, bf16, i32, i64, or all
    #[arg(short = 'd', long = "datatype", value_delimiter = ',', default_value = "f32")]
    datatype: Vec<String>,
    /// Reductions, separated by commas: sum, average (avg), min, max, product (prod), or all
    #[arg(short = 'o', long = "op", value_delimiter = ',', default_value = "sum")]
    op: Vec<String>,
    /// Check the data of the last repetition (1) or not (0)
    #[arg(short = 'c', long = "check", default_value_t = 1)]
    check: usize,
    /// Into how many tensors algorithms with groups cut the buffer
    #[arg(long, default_value_t = DEFAULT_GROUPS)]
    groups: usize,
    /// Pipeline large buffers in segments of about this size; 0 switches that off
    #[arg(long, value_parser = sizes::size, default_value = "512K")]
    segment: usize,
    /// Pack several tensors so much at a time; 0 packs whole buffers
    #[arg(long, value_parser = sizes::size, default_value = "4M")]
    packing: usize,
    /// Measure beside each time what no allreduce here could be faster than: a kernel with the same
    /// reads and writes of memory, without synchronisation
    #[arg(long)]
    bound: bool,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the rows as CSV
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Arguments {
    fn cut(&self) -> crate::allreduce::Sizes {
        crate::allreduce::Sizes { segment_bytes: self.segment, packing_bytes: self.packing }
    }
}

/// What is measured, checked.
struct Request {
    /// Names of algorithms that exist.
    names: Vec<String>,
    topology: Topology,
    sizes: Sizes,
    types: Vec<DataType>,
    ops: Vec<ReduceOp>,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let request = request(arguments).map_err(usage)?;
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    let mut launch = Launch::now();
    let mut table = calibrate::Table::new();
    if request.names.iter().any(|name| calibrate::chooses(name)) {
        table = calibrate::table(&request.topology, arguments.cut(), request.sizes.to)?;
        launch.auto.insert(request.topology.to_string(), table.clone());
    }
    let mut out = arguments.out.as_ref().map(|path| Out::create(path, &launch)).transpose()?;
    let mut status = Exit::Right;
    for name in &request.names {
        if lines(arguments, &request, (name, &table), &launch, &mut out)? > 0 {
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
        let out = Out(Appended::open(path.to_path_buf())?);
        let text = serde_json::to_string_pretty(launch)?;
        write_whole(&path.with_extension("provenance.json"), (text + "\n").as_bytes())?;
        Ok(out)
    }
}

fn append(out: &mut Option<Out>, row: &Row) -> Result<()> {
    if let Some(Out(file)) = out {
        file.append(std::slice::from_ref(row))?;
    }
    Ok(())
}

fn request(arguments: &Arguments) -> Result<Request, String> {
    let every = |list: &[String]| list == ["all"];
    let names: Vec<String> = match every(&arguments.algorithm) {
        true => registry::ALL.iter().map(|entry| entry.name.to_string()).collect(),
        false => arguments.algorithm.clone(),
    };
    let spelled = |name: &String| match registry::find(name) {
        Ok(algorithm) => Ok(algorithm.name()),
        Err(error) => Err(error.to_string()),
    };
    let names = names.iter().map(spelled).collect::<Result<_, _>>()?;
    let topology = match (&arguments.topology, arguments.ranks) {
        (Some(text), _) => parse_topology(text)?,
        (None, Some(ranks)) => parse_topology(&ranks.to_string())?,
        (None, None) => Topology::uniform(2, 2),
    };
    let stride = match arguments.increment {
        Some(bytes) => Stride::Bytes(bytes),
        None => Stride::Factor(arguments.factor),
    };
    let sizes =
        arguments.sizes.unwrap_or(Sizes { from: arguments.begin, to: arguments.end, stride });
    let types = match every(&arguments.datatype) {
        true => DataType::ALL.to_vec(),
        false => {
            arguments.datatype.iter().map(|name| parse_dtype(name)).collect::<Result<_, _>>()?
        }
    };
    let ops = match every(&arguments.op) {
        true => ReduceOp::ALL.to_vec(),
        false => arguments.op.iter().map(|name| parse_op(name)).collect::<Result<_, _>>()?,
    };
    // `all` leaves out what does not exist; whoever names it is told.
    if !every(&arguments.op) && !every(&arguments.datatype) {
        for &dtype in &types {
            ops.iter().try_for_each(|&op| check_op(dtype, op))?;
        }
    }
    if arguments.iters == 0 || arguments.groups == 0 {
        return Err("-n and --groups must be at least 1".into());
    }
    let need = (3 * topology.ranks() as u64).saturating_mul(sizes.to as u64);
    if let Some(has) = memory_bytes("MemAvailable").filter(|&has| has < need) {
        return Err(format!(
            "{} ranks of {} MB take up to {} MB of memory and {} MB are free; choose a smaller -e",
            topology.ranks(),
            sizes.to / 1_000_000,
            need / 1_000_000,
            has / 1_000_000
        ));
    }
    Ok(Request { names, topology, sizes: sizes.checked()?, types, ops })
}

/// What one line of a table is about.
#[derive(Clone, Copy)]
struct Line {
    dtype: DataType,
    op: ReduceOp,
    elements: usize,
    in_place: bool,
}

/// One algorithm's lines; returns the number of wrong elements.
fn lines(
    arguments: &Arguments,
    request: &Request,
    (name, table): (&str, &calibrate::Table),
    launch: &Launch,
    out: &mut Option<Out>,
) -> Result<usize> {
    let (algorithm, choices) = calibrate::prepared(name, &request.topology, table);
    let algorithm = &*algorithm;
    preamble(arguments, request, algorithm, launch);
    if calibrate::chooses(name) {
        println!("# {}\n#", calibrate::in_words(table));
    }
    let blank = |line: Line| blank(arguments, request, algorithm, launch, line);
    let unsupported = |line: Line, reason: String, out: &mut Option<Out>| {
        println!("# unsupported: {reason}");
        append(out, &Row { status: Status::Unsupported, reason, ..blank(line) })
    };
    header(arguments.bound);
    let (mut busbw, mut wrong, mut firsts) = (Vec::new(), 0, Vec::new());
    for &dtype in &request.types {
        for &op in request.ops.iter().filter(|&&op| check_op(dtype, op).is_ok()) {
            for size_bytes in request.sizes.iter() {
                let elements = size_bytes / dtype.size_bytes();
                let line = |in_place| Line { dtype, op, elements, in_place };
                let pattern = Pattern::of(request.topology.ranks(), op, arguments.seed);
                let choices = match (&choices, for_dtype!(dtype, T => pattern.unsupported::<T>())) {
                    (Err(why), _) => {
                        unsupported(line(true), why.to_string(), out)?;
                        continue;
                    }
                    (_, Some(why)) if arguments.check > 0 => {
                        unsupported(line(true), why, out)?;
                        continue;
                    }
                    (Ok(choices), _) => choices,
                };
                print!("{}", row_head(elements, dtype, op));
                let mut bounds = String::new();
                let tensors: Vec<usize> = match algorithm.grouping() {
                    Some(_) => split(elements, arguments.groups).iter().map(Range::len).collect(),
                    None => vec![elements],
                };
                for in_place in [false, true] {
                    let bench = Bench {
                        algorithm,
                        choices,
                        topology: &request.topology,
                        dtype,
                        op,
                        sizes: arguments.cut(),
                        tensors: &tensors,
                        in_place,
                        warmup: arguments.warmup_iters,
                        repetitions: arguments.iters,
                        check: arguments.check > 0,
                        seed: arguments.seed,
                    };
                    // Before and after, as the machine may change.
                    let before = arguments.bound.then(|| bound(&bench)).transpose()?;
                    let timed = run_bench(&bench)?;
                    let after = arguments.bound.then(|| bound(&bench)).transpose()?;
                    let mut row = filled(blank(line(in_place)), &timed);
                    if let Some(bound) = before.into_iter().chain(after).min() {
                        row.bound_us = Some(bound.as_nanos() as f64 / 1e3);
                        bounds += &bound_body(&row);
                    }
                    print!("{}", row_body(&row));
                    append(out, &row)?;
                    busbw.push(row.busbw_gb_s.unwrap_or(0.0));
                    wrong += row.wrong.unwrap_or(0);
                    if !row.first_wrong.is_empty() {
                        firsts.push(format!("# wrong: {}: {}", row.case, row.first_wrong));
                    }
                }
                println!("{bounds}");
            }
        }
    }
    firsts.iter().for_each(|line| println!("{line}"));
    let verdict = match (arguments.check, wrong) {
        (0, _) => "unchecked",
        (_, 0) => "OK",
        _ => "FAILED",
    };
    println!("# Out of bounds values : {wrong} {verdict}");
    let average = busbw.iter().sum::<f64>() / busbw.len().max(1) as f64;
    println!("# Avg bus bandwidth    : {average:.3} \n#");
    Ok(wrong)
}

fn preamble(arguments: &Arguments, request: &Request, algorithm: &dyn Algorithm, launch: &Launch) {
    let Sizes { from, to, stride } = request.sizes;
    let (step, unit) = match stride {
        Stride::Factor(factor) => (factor, "factor"),
        Stride::Bytes(bytes) => (bytes, "bytes"),
    };
    let ranks = request.topology.ranks();
    println!("# {} commit {}", launch.version, launch.commit);
    println!("# Collective test starting: all_reduce, algorithm {}", algorithm.name());
    println!(
        "# nThread {ranks} nGpus 0 minBytes {from} maxBytes {to} step: {step}({unit}) warmup \
         iters: {} iters: {} agg iters: 1 validation: {} graph: 0 unalign: 0",
        arguments.warmup_iters, arguments.iters, arguments.check
    );
    println!(
        "# time: median over {} iterations of the maximum over ranks, after a barrier; busbw = \
         algbw x {:.3}",
        arguments.iters,
        bus_factor(ranks)
    );
    println!("#\n# Using devices");
    for rank in 0..ranks {
        println!(
            "#  Rank {rank:2} Group  0 Pid {:6} on {:>10} thread {rank:2} [node {}] {}",
            std::process::id(),
            launch.machine.host,
            request.topology.node_of(rank),
            launch.machine.cpu
        );
    }
    if request.topology.nodes() > 1 {
        println!("# emulated: {} nodes are threads of one process", request.topology.nodes());
    }
    if ranks > cores() {
        println!("# oversubscribed: {ranks} ranks on {} cores", cores());
    }
    println!("#");
}

fn header(with_bound: bool) {
    if with_bound {
        println!(
            "# the last four columns: bound (us) and share of it reached, out of place, in place"
        );
    }
    println!(
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       \
         in-place          ",
        "", "", "", "", ""
    );
    let line = |head: [&str; 5], body: [&str; 4]| {
        let [size, count, kind, op, root] = head;
        let [time, algbw, busbw, wrong] = body;
        let columns = format!("{time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}");
        println!("# {size:>10}  {count:>12}  {kind:>8}  {op:>6}  {root:>6}  {columns}  {columns} ");
    };
    line(["size", "count", "type", "redop", "root"], ["time", "algbw", "busbw", "#wrong"]);
    line(["(B)", "(elements)", "", "", ""], ["(us)", "(GB/s)", "(GB/s)", ""]);
}

fn row_head(elements: usize, dtype: DataType, op: ReduceOp) -> String {
    let dtype_name = match dtype {
        DataType::F32 => "float",
        DataType::F64 => "double",
        DataType::F16 => "half",
        DataType::BF16 => "bfloat16",
        DataType::I32 => "int32",
        DataType::I64 => "int64",
    };
    let op = match op {
        ReduceOp::Average => "avg",
        ReduceOp::Product => "prod",
        other => other.name(),
    };
    let size = elements * dtype.size_bytes();
    format!("{size:>12}  {elements:>12}  {dtype_name:>8}  {op:>6}  {:>6}", -1)
}

fn row_body(row: &Row) -> String {
    let value = |value: Option<f64>, width| number(value.unwrap_or(0.0), width);
    let wrong = row.wrong.map_or("N/A".into(), |wrong| wrong.to_string());
    format!(
        "  {}  {}  {}  {wrong:>6}",
        value(row.time_us_p50, 7),
        value(row.algbw_gb_s, 6),
        value(row.busbw_gb_s, 6)
    )
}

/// The bound, and how much of it was reached.
fn bound_body(row: &Row) -> String {
    let share = row.bound_us.zip(row.time_us_p50).map_or(0.0, |(bound, time)| bound / time);
    format!("  {}  {share:>5.2}", number(row.bound_us.unwrap_or(0.0), 7))
}

/// A number in so many characters: with two decimals, one, none, or as a power of ten.
fn number(value: f64, width: usize) -> String {
    let forms = [2, 1, 0].map(|decimals| format!("{value:>width$.decimals$}"));
    let fits = forms.into_iter().find(|form| form.len() <= width);
    fits.unwrap_or_else(|| format!("{value:>width$.0e}"))
}

/// A row with everything that is known before a line is measured.
fn blank(
    arguments: &Arguments,
    request: &Request,
    algorithm: &dyn Algorithm,
    launch: &Launch,
    Line { dtype, op, elements, in_place }: Line,
) -> Row {
    let topology = &request.topology;
    let size_bytes = elements * dtype.size_bytes();
    let place = if in_place { "in-place" } else { "out-of-place" };
    let (transport, name) = (crate::transport::threads::NAME, algorithm.name());
    let (dtype, op) = (dtype.name(), op.name());
    let groups = if algorithm.grouping().is_some() { arguments.groups } else { 0 };
    Row {
        schema: SCHEMA,
        kind: Kind::Allreduce,
        case: format!("{transport}/{topology}/{name}/{dtype}/{op}/{size_bytes}B/{place}"),
        emulated: topology.nodes() > 1,
        oversubscribed: topology.ranks() > cores(),
        pinned: is_pinned(),
        host: launch.machine.host.clone(),
        commit: launch.commit.clone(),
        started: launch.started.clone(),
        seed: arguments.seed,
        transport: transport.into(),
        algorithm: name,
        groups,
        nodes: topology.nodes(),
        local_size: topology.local_size(),
        ranks: topology.ranks(),
        dtype: dtype.into(),
        op: op.into(),
        in_place,
        size_bytes,
        tensors: groups.max(1),
        segment_bytes: arguments.segment,
        packing_bytes: arguments.packing,
        warmup: arguments.warmup_iters,
        ..Row::default()
    }
}

/// The row of a measured line.
fn filled(mut row: Row, timed: &Timed) -> Row {
    let micros: Vec<f64> = timed.times.iter().map(|time| time.as_nanos() as f64 / 1e3).collect();
    (row.samples, row.blocks, row.launches) = (micros.len(), 1, 1);
    row.stop_reason = "count".into();
    if let Some(wrong) = &timed.wrong {
        row.status = if wrong.count > 0 { Status::Wrong } else { Status::Ok };
        (row.checked, row.wrong) = (1, Some(wrong.count));
        row.first_wrong = wrong.first.clone().unwrap_or_default();
    }
    row.context_switches_mean = timed.context_switches;
    if let Some(time) = Summary::of(&micros) {
        put_times(&mut row, &time);
        put_bandwidths(&mut row);
    }
    rounded(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nccl-tests' sample line, made from the same formats.
    #[test]
    fn numbers_shrink_until_they_fit() {
        for (value, width, expected) in [
            (41.23, 7, "  41.23"),
            (35812.7, 7, "35812.7"),
            (9999.99, 7, "9999.99"),
            (123456.7, 7, " 123457"),
            (1234567.8, 7, "1234568"),
            (12345678.9, 7, "    1e7"),
            (239.86, 6, "239.86"),
            (1239.86, 6, "1239.9"),
            (0.0, 6, "  0.00"),
        ] {
            assert_eq!(number(value, width), expected);
        }
    }

    #[test]
    fn a_row_lines_up_with_the_header() {
        let row = Row {
            time_us_p50: Some(41.23),
            algbw_gb_s: Some(25.43),
            busbw_gb_s: Some(44.5),
            wrong: Some(0),
            ..Row::default()
        };
        let line = row_head(262144, DataType::F32, ReduceOp::Sum) + &row_body(&row);
        assert_eq!(
            line,
            "     1048576        262144     float     sum      -1    41.23   25.43   44.50       0"
        );
    }
}
