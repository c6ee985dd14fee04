//! Times of one algorithm and protocol on one topology, from tables of logs.

use std::fmt::Write as _;

use algorithms::topology::Topology;
use results::logs::{Format, Log, Operation, Point, Table};

use super::Said;

/// Times of one algorithm and protocol on one topology.
pub(super) struct Series {
    pub(super) algorithm: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) topology: Topology,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) source: String,
}

/// The kinds of links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Socket,
    Network,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Socket => "socket",
            Level::Network => "network",
        }
    }

    /// Between the ranks of a world: the slowest link that messages cross.
    pub(super) fn of(topology: &Topology) -> Level {
        if topology.nodes() > 1 { Level::Network } else { Level::Socket }
    }
}

/// The series of an operation in all logs.
pub(super) fn series(
    logs: &[Log],
    said: &Said,
    operation: Operation,
    left_out: &mut Vec<String>,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for log in logs {
        for table in log.tables.iter().filter(|table| table.operation == operation) {
            let at = format!("{}:{}", log.path.display(), table.line);
            let Some(topology) = table.topology().or_else(|| said.topology.clone()) else {
                let what =
                    "the log does not say which ranks there were; give --topology NODESxRANKS";
                left_out.push(format!("{at}: {what}"));
                continue;
            };
            if topology.ranks() < 2 {
                left_out.push(format!("{at}: one rank sends nothing"));
                continue;
            }
            let mut algorithm = table.algorithm.clone().or_else(|| said.algorithm.clone());
            algorithm = algorithm.or_else(|| match log.format {
                // Libraries but NCCL choose among many algorithms, by size.
                Format::Osu => Some("mpi-allreduce".into()),
                Format::Timeline { library } if library != "nccl" => {
                    Some(format!("{library}-allreduce"))
                }
                _ => None,
            });
            let protocol = table.protocol.clone().or_else(|| said.protocol.clone());
            let points = points(table);
            let same = |known: &&mut Series| {
                (&known.algorithm, &known.protocol, &known.topology)
                    == (&algorithm, &protocol, &topology)
            };
            match all.iter_mut().find(same) {
                Some(known) => {
                    known.points.extend(points);
                    let _ = write!(known.source, ", {at}");
                }
                None => all.push(Series { algorithm, protocol, topology, points, source: at }),
            }
        }
    }
    all
}

/// Right times of a table, out of place where it has both.
fn points(table: &Table) -> Vec<(f64, f64)> {
    let is_right = |point: &&Point| point.wrong.unwrap_or(0) == 0 && point.size_bytes > 0;
    let has_outside = table.points.iter().filter(is_right).any(|point| !point.in_place);
    let of = table.points.iter().filter(is_right).filter(|point| !(has_outside && point.in_place));
    of.map(|point| (point.size_bytes as f64, point.time_us)).collect()
}
