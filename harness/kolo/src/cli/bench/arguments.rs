//! The options of `kolo bench`.

use std::path::PathBuf;

use algorithms::grouped::DEFAULT_GROUPS;
use clap::builder::TypedValueParser as _;

use crate::cli::sizes::{self, Sizes};
use measure::back_ends;
use measure::plan::Placement;
use results::names::parse_ranks;
use training::back_end::BackEndRef;
use transports::bench::{Start, TIMEOUT};

/// Headings of the options.
const RUN: &str = "What to run";
const SIZES: &str = "Sizes";
const MEASURING: &str = "Measuring";
const GPUS: &str = "GPUs";
const NCCL_TESTS: &str = "Further options of nccl-tests";
const OUTPUT: &str = "Output";

/// The layout of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// As nccl-tests prints them
    NcclTests,
    /// As osu_allreduce prints them with -f
    Osu,
    /// One table of all rows for a page
    Markdown,
    /// One table of all rows for programs; --out writes all columns
    Csv,
}

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
    pub algorithm: Vec<String>,
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
    pub transport: String,
    /// Number of ranks, each on a node of its own
    #[arg(long, value_parser = parse_ranks, conflicts_with = "topology", help_heading = RUN)]
    pub ranks: Option<usize>,
    /// Nodes x ranks per node (2x4), or the ranks of each node (3+1)
    ///
    /// Default: 2x2; over MPI and nccl all processes, on the nodes where they are.
    #[arg(long, help_heading = RUN)]
    pub topology: Option<String>,
    /// nccl-tests: threads per process; with -g the number of ranks, all on one node
    #[arg(
        short = 't',
        long = "nthreads",
        value_parser = parse_ranks,
        conflicts_with_all = ["ranks", "topology"],
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub threads: Option<usize>,
    /// nccl-tests: ranks per thread; over mpi and nccl a process has one rank (1)
    #[arg(
        short = 'g',
        long = "ngpus",
        value_parser = parse_ranks,
        conflicts_with_all = ["ranks", "topology"],
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub gpus: Option<usize>,
    /// nccl-tests: collectives that are launched together (1: each by itself)
    #[arg(
        short = 'm',
        long = "agg-iters",
        alias = "agg_iters",
        default_value_t = 1,
        value_parser = sizes::whole::<usize>,
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub agg_iters: usize,
    /// nccl-tests: measure all sizes so many times, one after the other
    #[arg(
        short = 'N',
        long = "run-cycles",
        alias = "run_cycles",
        value_name = "CYCLES",
        default_value_t = 1,
        value_parser = sizes::whole::<usize>,
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub cycles: usize,
    /// nccl-tests: accepted; ranks start each repetition together, as --sync says
    #[arg(
        short = 'z',
        long = "blocking",
        value_parser = clap::value_parser!(u8).range(0..=3),
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub blocking: Option<u8>,
    /// nccl-tests: launch as a CUDA graph (over cuda), as --graph; 0: do not
    #[arg(
        short = 'G',
        long = "cudagraph",
        value_name = "LAUNCHES",
        value_parser = sizes::whole::<usize>,
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub cuda_graph: Option<usize>,
    /// nccl-tests: accepted; times are of the slowest rank (3)
    #[arg(
        short = 'a',
        long = "average",
        value_parser = clap::value_parser!(u8).range(0..=3),
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub average: Option<u8>,
    /// nccl-tests: report the memory of buffers (1)
    #[arg(
        short = 'M',
        long = "memory",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=1),
        help_heading = NCCL_TESTS,
        hide_short_help = true
    )]
    pub memory: u8,
    /// Number of tensors into which algorithms with groups cut the buffer
    #[arg(
        long,
        default_value_t = DEFAULT_GROUPS,
        value_parser = sizes::whole::<usize>,
        help_heading = RUN,
        hide_short_help = true
    )]
    pub groups: usize,
    /// Element types, separated by commas: f32 (float), f64, f16, bf16, i32, i64, u8 (uint8), or all
    #[arg(
        short = 'd',
        long = "datatype",
        value_delimiter = ',',
        default_value = "f32",
        help_heading = RUN,
        hide_short_help = true
    )]
    pub datatype: Vec<String>,
    /// Reductions, separated by commas: sum, average (avg), min, max, product (prod), or all
    #[arg(
        short = 'o',
        long = "op",
        value_delimiter = ',',
        default_value = "sum",
        help_heading = RUN,
        hide_short_help = true
    )]
    pub op: Vec<String>,
    /// Seed of the data
    #[arg(
        long,
        default_value_t = 1,
        value_parser = sizes::whole::<u64>,
        help_heading = RUN,
        hide_short_help = true
    )]
    pub seed: u64,
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
    pub begin: usize,
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
    pub end: usize,
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
    pub factor: usize,
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
    pub increment: Option<usize>,
    /// Sizes as FROM:TO:xFACTOR or FROM:TO:+BYTES, instead of -b, -e, -f and -i
    #[arg(
        long,
        value_parser = Sizes::parse,
        conflicts_with_all = ["begin", "end", "factor", "increment"],
        help_heading = SIZES,
        hide_short_help = true
    )]
    pub sizes: Option<Sizes>,
    /// Pipeline large buffers in segments of about this size; 0: no pipelining
    ///
    /// Default: 512K; over cuda and nccl 0, because a device moves more in the time of a launch than a segment has.
    #[arg(long, value_parser = sizes::size, help_heading = SIZES, hide_short_help = true)]
    pub segment: Option<usize>,
    /// Pack this many bytes of several tensors at a time; 0: whole buffers
    #[arg(
        long,
        value_parser = sizes::size,
        default_value = "4M",
        help_heading = SIZES,
        hide_short_help = true
    )]
    pub packing: usize,
    /// Repetitions that count
    #[arg(
        short = 'n',
        long = "iters",
        default_value_t = 20,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING
    )]
    pub iters: usize,
    /// Repetitions of the warm-up, which do not count
    #[arg(
        short = 'w',
        long = "warmup-iters",
        alias = "warmup_iters",
        default_value_t = 5,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING
    )]
    pub warmup_iters: usize,
    /// How ranks start a repetition together: barrier, window or round-time
    ///
    /// barrier: after a barrier, and each rank takes its own time; the ranks that leave it last are not waited for.
    /// window, round-time: at a moment that rank 0 names, for ten repetitions at a time or for each; times are from that
    /// moment to the end of the last rank. Repetitions that a rank begins late do not count, and are told. Where clocks
    /// may be off by more than half of a repetition, a barrier is used, and the table says why. Default: round-time over
    /// mpi if every rank has a core of its own, else barrier.
    #[arg(
        long,
        value_parser = clap::builder::PossibleValuesParser::new(Start::ALL.map(Start::name))
            .map(|name| Start::ALL.into_iter().find(|start| start.name() == name).expect("a name of these")),
        value_name = "START",
        help_heading = MEASURING,
        hide_short_help = true
    )]
    pub sync: Option<Start>,
    /// Check the data of the last repetition (1), or do not (0)
    #[arg(
        short = 'c',
        long = "check",
        default_value_t = 1,
        value_parser = sizes::whole::<usize>,
        help_heading = MEASURING,
        hide_short_help = true
    )]
    pub check: usize,
    /// Also measure a reference kernel beside each time
    ///
    /// The kernel has the reads and writes of an allreduce, on the same threads without synchronisation. For small
    /// sizes it is the time in which cores pass each other a cache line. An allreduce can be faster than its reference.
    #[arg(long, help_heading = MEASURING, hide_short_help = true)]
    pub bound: bool,
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
    pub timeout: u64,
    /// Also write the rows as CSV
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Layout of the tables
    #[arg(long, value_name = "LAYOUT", default_value = "nccl-tests", help_heading = OUTPUT)]
    pub format: Layout,
    /// Write each algorithm's table into a file of its own: PREFIX-ALGORITHM.txt
    #[arg(long, value_name = "PREFIX", help_heading = OUTPUT, hide_short_help = true)]
    pub out_prefix: Option<PathBuf>,
    /// Also write nccl-tests' JSON; of several algorithms, or if FILE exists, to FILE.0, FILE.1, ...
    #[arg(
        short = 'J',
        long = "output-file",
        alias = "output_file",
        value_name = "FILE",
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    pub json: Option<PathBuf>,
    /// Print the rows for programs, in place of tables; `kolo schema bench` describes them
    #[arg(
        id = "as-json",
        long = "json",
        conflicts_with_all = ["format", "out_prefix", "json", "kernels"],
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    pub as_json: bool,
    /// Over cuda: capture each collective once, and launch it as one CUDA graph
    #[arg(long, conflicts_with = "kernels", help_heading = GPUS, hide_short_help = true)]
    pub graph: bool,
    /// Over cuda: time the kernels on the gradients of this workload, beside the device's own copy
    #[arg(long, value_name = "NAME|FILE", help_heading = GPUS, hide_short_help = true)]
    pub kernels: Option<PathBuf>,
    /// Over nccl: algorithms that NCCL's own allreduce may use, separated by commas: Ring, Tree, ...
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        help_heading = GPUS,
        hide_short_help = true
    )]
    pub nccl_algo: Vec<String>,
    /// Over nccl: protocols that it may use, separated by commas: Simple, LL, LL128
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        help_heading = GPUS,
        hide_short_help = true
    )]
    pub nccl_proto: Vec<String>,
    /// Over mpi and nccl: measure even if nodes or GPUs differ or do not reach each other; table and provenance
    /// say so
    #[arg(long, help_heading = GPUS, hide_short_help = true)]
    pub force: bool,
}

impl Arguments {
    /// What ranks are, and how data move.
    pub fn back_end(&self) -> BackEndRef {
        back_ends::named(&self.transport)
    }

    /// How these ranks start together.
    pub fn start(&self, placement: &Placement) -> Start {
        // A rank that waits for a moment keeps its core busy, on which another one may have to run.
        let can_wait = self.transport == transports::transport::MPI && !placement.oversubscribed;
        self.sync.unwrap_or(if can_wait { Start::RoundTime } else { Start::Barrier })
    }

    /// Options given that only some back ends have.
    pub fn special_options(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            ("--bound", self.bound),
            ("--force", self.force),
            ("--graph", self.graph),
            ("-G", self.cuda_graph.is_some_and(|launches| launches > 0)),
            ("--kernels", self.kernels.is_some()),
            ("--nccl-algo", !self.nccl_algo.is_empty()),
            ("--nccl-proto", !self.nccl_proto.is_empty()),
            ("--sync", self.sync.is_some()),
        ];
        options.into_iter().filter_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Collectives are launched as graphs.
    pub fn is_graph(&self) -> bool {
        self.graph || self.cuda_graph.is_some_and(|launches| launches > 0)
    }

    /// All rows are printed together at the end, and nothing else on stdout.
    pub fn is_one_table(&self) -> bool {
        self.as_json || matches!(self.format, Layout::Markdown | Layout::Csv)
    }

    /// Says something of the run besides its results: to stdout, where the tables go, but with `--json` to stderr.
    pub fn remark(&self, sentence: &str) {
        if self.is_one_table() {
            eprintln!("# {sentence}");
        } else {
            println!("# {sentence}");
        }
    }

    /// The ranks that `-t` and `-g` ask for, if one of them is given.
    pub fn threads_times_gpus(&self) -> Option<usize> {
        (self.threads.is_some() || self.gpus.is_some())
            .then(|| self.threads.unwrap_or(1) * self.gpus.unwrap_or(1))
    }

    pub fn cut(&self) -> transports::allreduce::Sizes {
        let segment_bytes = self.segment.unwrap_or(self.back_end().segment_bytes());
        transports::allreduce::Sizes { segment_bytes, packing_bytes: self.packing }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// Every rank of a process of its own waits for a moment, unless others need its core.
    #[test]
    fn ranks_over_mpi_with_a_core_each_start_at_a_moment() {
        let start = |transport: &str, oversubscribed, sync: Option<Start>| {
            let sync = sync.map(|start| ["--sync", start.name()]);
            let options = ["bench", "--transport", transport].into_iter();
            let options = options.chain(sync.into_iter().flatten());
            let CommandLine { arguments } = CommandLine::parse_from(options);
            let members = vec![0, 1];
            arguments.start(&Placement { members, emulated: false, oversubscribed })
        };
        assert_eq!(start("mpi", false, None), Start::RoundTime);
        assert_eq!(start("mpi", true, None), Start::Barrier);
        for transport in ["threads", "nccl", "cuda"] {
            assert_eq!(start(transport, false, None), Start::Barrier, "{transport}");
        }
        for asked in Start::ALL {
            assert_eq!(start("mpi", false, Some(asked)), asked);
            assert_eq!(start("mpi", true, Some(asked)), asked);
        }
    }
}
