//! nccl-tests' table.

use std::collections::BTreeSet;
use std::io::{self, Write};

use training::back_end::{MemoryKind, RankKind};

use algorithms::control::{DataType, ReduceOp};

use super::arguments::Arguments;
use super::request::{Process, Request, device_of};
use crate::cli::sizes::{Sizes, Stride};
use results::provenance::Launch;
use results::row::CollectiveResult;
use results::units::bus_factor;
use transports::bench::{Start, Unsynchronised};

/// nccl-tests' `-a` for the time of the slowest rank.
const OF_SLOWEST: u8 = 3;

/// What ranks are.
pub fn rank_kind(request: &Request) -> &'static str {
    match request.back_end.rank_kind() {
        RankKind::Process => "process",
        RankKind::Stream => "stream",
        RankKind::Thread => "thread",
    }
}

/// What is measured, by whom.
pub fn preamble(
    to: &mut dyn Write,
    arguments: &Arguments,
    request: &Request,
    name: &str,
    launch: &Launch,
) -> io::Result<()> {
    let Sizes { from, to: most, stride } = request.sizes;
    let (step, unit) = match stride {
        Stride::Factor(factor) => (factor, "factor"),
        Stride::Bytes(bytes) => (bytes, "bytes"),
    };
    let ranks = request.topology.ranks();
    let device = |process: &'_ Process| Some((process.host.clone(), process.device.clone()?));
    let devices: BTreeSet<_> = request.processes.iter().filter_map(device).collect();
    let (gpus, threads) = (devices.len(), if devices.is_empty() { ranks } else { 1 });
    writeln!(to, "# {} commit {}", launch.version, launch.commit)?;
    writeln!(to, "# Collective test starting: all_reduce, algorithm {name}")?;
    writeln!(
        to,
        "# nThread {threads} nGpus {gpus} minBytes {from} maxBytes {most} step: {step}({unit}) warmup \
         iters: {} iters: {} agg iters: 1 validation: {} graph: {} unalign: 0",
        arguments.warmup_iters,
        arguments.iters,
        arguments.check,
        u8::from(arguments.is_graph())
    )?;
    let of_what = match (gpus, request.back_end.rank_kind()) {
        (0, _) => match arguments.start(&request.placement) {
            Start::Barrier => "of the maximum over ranks, after a barrier",
            Start::Window => {
                "from a moment that is named for ten at a time to the end of the last rank"
            }
            Start::RoundTime => "from a moment that is named for each to the end of the last rank",
        },
        (_, RankKind::Process) => {
            "of the maximum over ranks, after a barrier on the GPUs, by the hosts' clocks"
        }
        _ => "from the first launch until all streams have finished, by the host's clock",
    };
    writeln!(
        to,
        "# time: median over {} iterations {of_what}; busbw = algbw x {:.3}",
        arguments.iters,
        bus_factor(ranks)
    )?;
    if arguments.is_graph() {
        writeln!(to, "# graph: each collective is captured once, and launched as one CUDA graph")?;
    }
    if let Some(mode) = arguments.blocking {
        writeln!(to, "# -z {mode}: ranks start each repetition together, as --sync says")?;
    }
    if let Some(rank) = arguments.average.filter(|&rank| rank != OF_SLOWEST) {
        writeln!(to, "# -a {rank}: times are of the slowest rank ({OF_SLOWEST})")?;
    }
    if arguments.memory > 0 {
        let mb = request.buffers_bytes as f64 / 1e6;
        writeln!(to, "# memory: buffers of the ranks here take up to {mb:.1} MB")?;
    }
    writeln!(to, "#\n# Using devices")?;
    let kind = rank_kind(request);
    for (rank, Process { pid, host, device }) in request.processes.iter().enumerate() {
        writeln!(
            to,
            "#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {:2} [node {}] {} ({kind})",
            device_of(&request.processes, rank),
            request.topology.node_of(rank),
            device.as_ref().unwrap_or(&launch.machine.cpu)
        )?;
    }
    if request.placement.emulated && request.topology.nodes() > 1 {
        writeln!(to, "# emulated: {} nodes on one machine", request.topology.nodes())?;
    }
    if request.placement.oversubscribed {
        let on_gpus = request.back_end.memory() == MemoryKind::Device;
        let fewer = if on_gpus { "GPUs" } else { "cores" };
        writeln!(to, "# oversubscribed: {ranks} ranks, on nodes with fewer {fewer}")?;
    }
    writeln!(to, "#")
}

pub fn header(to: &mut dyn Write) -> io::Result<()> {
    writeln!(
        to,
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       \
         in-place          ",
        "", "", "", "", ""
    )?;
    let mut line = |head: [&str; 5], body: [&str; 4]| {
        let [size, count, kind, op, root] = head;
        let [time, algbw, busbw, wrong] = body;
        let columns = format!("{time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}");
        writeln!(
            to,
            "# {size:>10}  {count:>12}  {kind:>8}  {op:>6}  {root:>6}  {columns}  {columns} "
        )
    };
    line(["size", "count", "type", "redop", "root"], ["time", "algbw", "busbw", "#wrong"])?;
    line(["(B)", "(elements)", "", "", ""], ["(us)", "(GB/s)", "(GB/s)", ""])
}

/// The name of an element type in nccl-tests.
pub fn dtype_name(dtype: DataType) -> &'static str {
    match dtype {
        DataType::F32 => "float",
        DataType::F64 => "double",
        DataType::F16 => "half",
        DataType::BF16 => "bfloat16",
        DataType::U8 => "uint8",
        DataType::I32 => "int32",
        DataType::I64 => "int64",
    }
}

/// The name of a reduction in nccl-tests.
pub fn op_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Average => "avg",
        ReduceOp::Product => "prod",
        other => other.name(),
    }
}

pub fn row_head(elements: usize, dtype: DataType, op: ReduceOp) -> String {
    let (dtype_name, op) = (dtype_name(dtype), op_name(op));
    let size = elements * dtype.size_bytes();
    format!("{size:>12}  {elements:>12}  {dtype_name:>8}  {op:>6}  {:>6}", -1)
}

pub fn row_body(result: &CollectiveResult) -> String {
    let value = |value: Option<f64>, width| {
        value.map_or_else(|| format!("{:>width$}", "N/A"), |value| number(value, width))
    };
    let wrong = result.effort.wrong.map_or("N/A".into(), |wrong| wrong.to_string());
    let bandwidths = result.bandwidths.as_ref();
    format!(
        "  {}  {}  {}  {wrong:>6}",
        value(time_us(result), 7),
        value(bandwidths.map(|of| of.algbw_gb_s), 6),
        value(bandwidths.map(|of| of.busbw_gb_s), 6)
    )
}

fn time_us(result: &CollectiveResult) -> Option<f64> {
    result.times.as_ref().map(|times| times.time_us_p50)
}

/// A comment line about the reference of a row, of the halves that have one: `--bound`.
pub fn bound_line(size_bytes: usize, bodies: &str) -> String {
    format!("# bound {size_bytes:>12}{bodies}")
}

/// The reference, and its share of the time.
pub fn bound_body(result: &CollectiveResult) -> String {
    let bound_us = result.bound_us;
    let share = bound_us.zip(time_us(result)).map_or(0.0, |(bound, time)| bound / time);
    format!("  {}  {share:>5.2}", number(bound_us.unwrap_or(0.0), 7))
}

/// How ranks started the repetitions of a table, where that was not after a barrier.
#[derive(Default)]
pub struct Starts {
    late: usize,
    repetitions: usize,
    /// Sizes whose times are short for these clocks, and the largest error in microseconds.
    unsure: BTreeSet<usize>,
    error_us: f64,
    /// Sizes that are measured after a barrier instead, and the first reason.
    after_barrier: BTreeSet<usize>,
    why: Option<Unsynchronised>,
}

/// Clocks may be off by this share of a time.
const CLOCK_SHARE: f64 = 0.05;

impl Starts {
    pub fn add(&mut self, size_bytes: usize, result: &CollectiveResult) {
        let Some((late, error_us)) = result.late.zip(result.clock_error_us) else { return };
        self.late += late;
        self.repetitions += late + result.effort.samples;
        if time_us(result).is_some_and(|time_us| error_us > CLOCK_SHARE * time_us) {
            self.unsure.insert(size_bytes);
            self.error_us = self.error_us.max(error_us);
        }
    }

    /// A size is measured after a barrier, though ranks were to start at named moments.
    pub fn after_barrier(&mut self, size_bytes: usize, why: Unsynchronised) {
        self.after_barrier.insert(size_bytes);
        self.why.get_or_insert(why);
    }

    /// Comment lines, if there is something to say.
    pub fn lines(&self) -> Vec<String> {
        let late = (self.late > 0).then(|| {
            format!(
                "# late: a rank began {} of {} repetitions too late; they do not count, unless they are more than half of a \
                 line's",
                self.late, self.repetitions
            )
        });
        let unsure = self.unsure.last().map(|largest| {
            format!(
                "# clocks may be {:.1} us off, more than {:.0} % of times up to {largest} B; --sync barrier needs no clocks",
                self.error_us,
                100.0 * CLOCK_SHARE
            )
        });
        let barrier = self.why.as_ref().map(|why| {
            let sizes: Vec<String> = self.after_barrier.iter().map(usize::to_string).collect();
            format!("# barrier: {} B: {why}", sizes.join(", "))
        });
        late.into_iter().chain(unsure).chain(barrier).collect()
    }
}

/// What the host does for the rows of a table, where it puts work on GPUs' streams.
#[derive(Default)]
pub struct Host {
    launches: BTreeSet<usize>,
    nodes: BTreeSet<usize>,
    times_us: Vec<f64>,
}

impl Host {
    pub fn add(&mut self, result: &CollectiveResult) {
        let Some(enqueued) = &result.enqueued else { return };
        self.launches.insert(enqueued.enqueued);
        self.nodes.extend(enqueued.graph_nodes);
        self.times_us.extend(enqueued.enqueue_us_p50);
    }

    /// Over all rows; none where there are no streams.
    pub fn sentence(&self) -> Option<String> {
        let span = |counts: &BTreeSet<usize>| match (counts.first(), counts.last()) {
            (Some(least), Some(most)) if least < most => Some(format!("{least} to {most}")),
            (Some(only), _) => Some(only.to_string()),
            _ => None,
        };
        let launches = span(&self.launches)?;
        let graph = span(&self.nodes)
            .map_or(String::new(), |nodes| format!(", launched as one graph of {nodes} nodes"));
        let least = self.times_us.iter().copied().reduce(f64::min);
        let most = self.times_us.iter().copied().reduce(f64::max);
        let time = least.zip(most).map_or("not timed".into(), |(least, most)| {
            format!("{least:.1} to {most:.1} us of the host's time")
        });
        Some(format!("Host: {launches} copies and kernels per collective{graph}; {time}"))
    }
}

/// A number in so many characters: with two decimals, one, none, or as a power of ten.
fn number(value: f64, width: usize) -> String {
    let forms = [2, 1, 0].map(|decimals| format!("{value:>width$.decimals$}"));
    let fits = forms.into_iter().find(|form| form.len() <= width);
    fits.unwrap_or_else(|| format!("{value:>width$.0e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::row::{Bandwidths, Effort, Times};

    #[test]
    fn late_starts_and_clocks_that_are_off_are_told() {
        let result = |late, clock_error_us| CollectiveResult {
            effort: Effort { samples: 20 - late, ..Effort::default() },
            times: Some(Times { time_us_p50: 100.0, ..Times::default() }),
            late: Some(late),
            clock_error_us: Some(clock_error_us),
            ..CollectiveResult::default()
        };
        let mut starts = Starts::default();
        starts.add(8, &CollectiveResult::default());
        starts.add(8, &result(0, 4.0));
        assert!(starts.lines().is_empty());
        starts.add(64, &result(5, 6.0));
        let [late, clocks] = &starts.lines()[..] else { panic!("two lines") };
        assert!(late.starts_with("# late: a rank began 5 of 40 repetitions too late"), "{late}");
        assert!(
            clocks.starts_with("# clocks may be 6.0 us off, more than 5 % of times up to 64 B"),
            "{clocks}"
        );
        let why = |error_s| Unsynchronised { ranks: vec![1, 3], error_s, most_s: 5e-6, of: "half" };
        starts.after_barrier(128, why(8e-6));
        starts.after_barrier(8, why(9e-6));
        starts.after_barrier(8, why(9e-6));
        assert_eq!(
            starts.lines()[2],
            "# barrier: 8, 128 B: the clocks of ranks 1 and 3 may be 8.0 us off rank 0's, expected at most 5.0 us \
             (half); ranks start after a barrier instead"
        );
    }

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
        let result = CollectiveResult {
            effort: Effort { wrong: Some(0), ..Effort::default() },
            times: Some(Times { time_us_p50: 41.23, ..Times::default() }),
            bandwidths: Some(Bandwidths {
                algbw_gb_s: 25.43,
                busbw_gb_s: 44.5,
                ..Bandwidths::default()
            }),
            ..CollectiveResult::default()
        };
        let line = row_head(262144, DataType::F32, ReduceOp::Sum) + &row_body(&result);
        assert_eq!(
            line,
            "     1048576        262144     float     sum      -1    41.23   25.43   44.50       0"
        );
    }
}
