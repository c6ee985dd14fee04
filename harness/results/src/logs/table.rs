//! A table of times in a log.

use algorithms::topology::Topology;

use crate::units::bus_factor;

/// What was timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An allreduce.
    AllReduce,
    /// A message from one rank to another: half of a round trip.
    Message,
    /// Many messages in a row from one rank to another.
    Stream,
    /// Another one, as the log calls it.
    Other(String),
}

impl Operation {
    /// By the name of nccl-tests, such as `all_reduce_perf`.
    pub(super) fn of_program(name: &str) -> Operation {
        let name = name.trim().rsplit('/').next().unwrap_or_default();
        match name.strip_suffix("_perf").unwrap_or(name).trim_end_matches("_perf_mpi") {
            "all_reduce" => Operation::AllReduce,
            other => Operation::Other(other.into()),
        }
    }
}

/// One line of a table, or one half of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The line of the log, from 1.
    pub line: usize,
    /// Bytes of the buffer, or of the message.
    pub size_bytes: usize,
    /// Element type, as kolo calls it if it has it; empty if the log does not say.
    pub dtype: String,
    /// Reduction, as kolo calls it; empty if the log does not say.
    pub op: String,
    /// Whether input and output are one buffer.
    pub in_place: bool,
    /// The log's time in microseconds: the mean over iterations, or the median (see [`Table::is_median`]).
    pub time_us: f64,
    /// The shortest, if the log has it.
    pub time_us_min: Option<f64>,
    /// The longest, if the log has it.
    pub time_us_max: Option<f64>,
    /// Iterations, if the log says.
    pub iterations: Option<usize>,
    /// Wrong elements; none without a check.
    pub wrong: Option<u64>,
}

/// Times by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The line of its header, from 1.
    pub line: usize,
    /// What was timed.
    pub operation: Operation,
    /// Ranks on each host, in the order of the hosts' first ranks; empty if the log does not say.
    pub ranks_on_hosts: Vec<usize>,
    /// The first rank's host; empty if the log does not say.
    pub host: String,
    /// What the first rank ran on; empty if the log does not say.
    pub device: String,
    /// When it began, as the log writes it.
    pub started: String,
    /// The algorithm, if one is named: `NCCL_ALGO`, or kolo's.
    pub algorithm: Option<String>,
    /// NCCL's protocol, if one is named: `NCCL_PROTO`.
    pub protocol: Option<String>,
    /// Times are medians over iterations, as kolo's; others are means.
    pub is_median: bool,
    /// Repetitions of the warm-up.
    pub warmup: usize,
    /// Ranks are threads or processes that stand for nodes, as a table of kolo says.
    pub emulated: bool,
    /// There are more ranks than cores or GPUs, as a table of kolo says.
    pub oversubscribed: bool,
    /// In the order of the log.
    pub points: Vec<Point>,
}

impl Table {
    /// An empty table.
    pub fn at(line: usize, operation: Operation) -> Table {
        Table {
            line,
            operation,
            ranks_on_hosts: Vec::new(),
            host: String::new(),
            device: String::new(),
            started: String::new(),
            algorithm: None,
            protocol: None,
            is_median: false,
            warmup: 0,
            emulated: false,
            oversubscribed: false,
            points: Vec::new(),
        }
    }

    /// Nodes and their ranks; none if the log does not say.
    pub fn topology(&self) -> Option<Topology> {
        (!self.ranks_on_hosts.is_empty()).then(|| Topology::new(&self.ranks_on_hosts))
    }

    /// Bus bandwidth of a point in 10^9 bytes per second, for an allreduce of this many ranks.
    pub fn busbw_gb_s(point: &Point, ranks: usize) -> f64 {
        point.size_bytes as f64 / point.time_us / 1e3 * bus_factor(ranks)
    }
}

/// The element type of a log, as kolo calls it; others as they are.
pub(super) fn dtype(name: &str) -> String {
    let known = match name.trim_start_matches("MPI_").to_ascii_lowercase().as_str() {
        "float" | "float32" | "fp32" => "f32",
        "double" | "float64" | "fp64" => "f64",
        "half" | "float16" | "fp16" => "f16",
        "bfloat16" => "bf16",
        "int" | "int32" | "int32_t" => "i32",
        "int64" | "int64_t" => "i64",
        "uint8" | "uint8_t" => "u8",
        _ => return name.trim_start_matches("MPI_").to_ascii_lowercase(),
    };
    known.into()
}

/// The reduction of a log, as kolo calls it; others as they are.
pub(super) fn op(name: &str) -> String {
    match name {
        "avg" => "average".into(),
        "prod" => "product".into(),
        "none" => String::new(),
        other => other.into(),
    }
}
