//! The allreduces of a log as rows of kind `allreduce`.

use algorithms::topology::Topology;

use super::table::{Operation, Point, Table};
use super::{Format, Log};
use crate::row::{
    Bandwidths, CaseOutcome, CollectiveResult, CollectiveRow, Effort, Key, Run, Times,
};
use crate::statistics::Summary;

/// What `stop_reason` says of a row from a log: what its `time_us_p50` is.
const MEAN: &str = "log: mean over iterations";
const MEDIAN: &str = "log: median over iterations";

impl Log {
    /// The allreduces of a log, one row for each time. A table that does not name its ranks has those of `topology`.
    pub fn rows(&self, topology: Option<&Topology>) -> Vec<CollectiveRow> {
        let all_reduces = self.tables.iter().filter(|it| it.operation == Operation::AllReduce);
        let rows = |table: &'_ Table| {
            let topology = table.topology().or_else(|| topology.cloned());
            let row = |point: &Point| row(self.format, table, topology.as_ref(), point);
            table.points.iter().map(row).collect::<Vec<_>>()
        };
        all_reduces.flat_map(rows).collect()
    }

    /// What is in the log and is no allreduce, a sentence each.
    pub fn others(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for table in &self.tables {
            let what = match &table.operation {
                Operation::AllReduce => continue,
                Operation::Message => "times of messages",
                Operation::Stream => "bandwidths of messages",
                Operation::Other(name) => name,
            };
            let (path, line) = (self.path.display(), table.line);
            sentences.push(format!("{path}:{line}: {what}: no allreduce, left out"));
        }
        sentences
    }
}

fn row(format: Format, table: &Table, topology: Option<&Topology>, point: &Point) -> CollectiveRow {
    let ranks = topology.map_or(0, Topology::ranks);
    let algorithm = table.algorithm.clone().unwrap_or(match format {
        Format::Osu => "mpi-allreduce".into(),
        Format::Timeline { library } => format!("{library}-allreduce"),
        _ => "nccl-allreduce".into(),
    });
    let protocol = table.protocol.as_ref().map_or(String::new(), |name| format!(":{name}"));
    let algorithm = algorithm + &protocol;
    let Point { size_bytes, in_place, time_us, .. } = *point;
    let time = Summary { p50: time_us, ..Summary::default() };
    let world = topology.map_or("unknown".into(), ToString::to_string);
    let place = if in_place { "in-place" } else { "out-of-place" };
    let (dtype, op) = (or_unknown(&point.dtype), or_unknown(&point.op));
    let result = CollectiveResult {
        effort: Effort {
            samples: point.iterations.unwrap_or(0),
            blocks: 1,
            launches: 1,
            stop_reason: if table.is_median { MEDIAN } else { MEAN }.into(),
            checked: usize::from(point.wrong.is_some()),
            wrong: point.wrong.map(|wrong| wrong as usize),
            first_wrong: String::new(),
        },
        times: Some(Times {
            time_us_p50: time_us,
            time_us_mean: time_us,
            time_us_min: point.time_us_min.unwrap_or(time_us),
            time_us_max: point.time_us_max.unwrap_or(time_us),
            ..Times::default()
        }),
        bandwidths: (ranks > 1).then(|| Bandwidths::of(size_bytes, ranks, &time)).flatten(),
        ..CollectiveResult::default()
    };
    let row = CollectiveRow {
        key: Key {
            case: format!(
                "{}/{world}/{algorithm}/{dtype}/{op}/{size_bytes}B/{place}",
                format.name()
            ),
            nodes: topology.map_or(0, Topology::nodes),
            local_size: topology.and_then(Topology::local_size),
            ranks,
            dtype: dtype.into(),
            op: op.into(),
            in_place,
            size_bytes,
        },
        run: Run {
            emulated: table.emulated,
            oversubscribed: table.oversubscribed,
            pinned: false,
            host: table.host.clone(),
            commit: String::new(),
            started: table.started.clone(),
            seed: 0,
            transport: format.name().into(),
        },
        outcome: match point.wrong {
            Some(1..) => {
                CaseOutcome::Wrong { result, reason: "the log counts wrong elements".into() }
            }
            _ => CaseOutcome::Ok(result),
        },
        algorithm,
        groups: 0,
        tensors: 1,
        segment_bytes: 0,
        packing_bytes: 0,
        warmup: table.warmup,
        sync: String::new(),
    };
    row.rounded()
}

fn or_unknown(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}
