//! Latencies of hops and bandwidths of links, from times of whole allreduces.

use std::collections::BTreeMap;
use std::fmt;

use algorithms::topology::Topology;
use results::logs::fit::{FEWEST_POINTS, Fit};
use results::statistics::median;
use results::units::bus_factor;
use simulator::machine_file::{ProtocolFile, Protocols};

use super::series::{Level, Series};
use super::{FromLogs, Ranged, line, parameter};

/// How an algorithm passes a small allreduce on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hops {
    Ring,
    /// No algorithm is named, and the hops of a ring are taken.
    AssumedRing,
    Tree,
}

impl Hops {
    fn of(algorithm: Option<&str>) -> Option<Hops> {
        match algorithm.map(str::to_ascii_lowercase).as_deref() {
            None => Some(Hops::AssumedRing),
            Some("ring") => Some(Hops::Ring),
            Some("tree") => Some(Hops::Tree),
            Some(_) => None,
        }
    }

    /// One after the other: on nodes, and between them.
    pub(super) fn count(self, topology: &Topology) -> [f64; 2] {
        let (ranks, nodes) = (topology.ranks() as f64, topology.nodes() as f64);
        match self {
            Hops::Ring | Hops::AssumedRing => [2.0 * (ranks - nodes), 2.0 * (nodes - 1.0)],
            Hops::Tree => [2.0 * (ranks / nodes - 1.0), 2.0 * nodes.log2().ceil()],
        }
    }
}

impl fmt::Display for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hops::Ring => "Ring",
            Hops::AssumedRing => "an assumed ring",
            Hops::Tree => "Tree",
        })
    }
}

/// Latencies of hops and bandwidths of links, from allreduces.
pub(super) fn hops(all: &[Series], links: &mut BTreeMap<Level, Protocols>, made: &mut FromLogs) {
    let mut groups: BTreeMap<(String, Hops), Vec<(&Series, Fit)>> = BTreeMap::new();
    for series in all {
        let algorithm = series.algorithm.as_deref().unwrap_or("no algorithm named");
        let protocol = series.protocol.as_deref();
        let what = format!(
            "{algorithm}, {}, {}",
            protocol.unwrap_or("no protocol named"),
            series.topology
        );
        let Some(fit) = Fit::of(&series.points) else {
            made.left_out
                .push(format!("{what} ({}): fewer than {FEWEST_POINTS} sizes", series.source));
            continue;
        };
        made.fits.push(line(&what, &fit, &series.source));
        if series.topology.local_size().is_none() {
            made.left_out.push(format!("{what}: nodes with different numbers of ranks"));
            continue;
        }
        match Hops::of(series.algorithm.as_deref()) {
            Some(hops) => {
                let protocol = protocol.unwrap_or("auto").to_ascii_lowercase();
                groups.entry((protocol, hops)).or_default().push((series, fit));
            }
            None => made.left_out.push(format!(
                "{what}: latency and bandwidth of links: the hops of Ring and Tree are known, of {algorithm} not"
            )),
        }
    }
    // Of several algorithms with one protocol the file has the ring.
    for ((protocol, hops), group) in groups {
        let source = source(hops, &group);
        let alphas = latencies(hops, &group);
        for (level, alpha) in [Level::Socket, Level::Network].into_iter().zip(alphas) {
            let bandwidth = bandwidth(level, &group);
            let what = format!("{}.{protocol}", level.name());
            match (alpha, bandwidth) {
                (Some(alpha), Some(bandwidth)) => {
                    made.fits.push(format!(
                        "{what} by {hops}: alpha {:.3} us [{:.3}, {:.3}], bandwidth {:.3} GB/s [{:.3}, {:.3}]",
                        alpha[0], alpha[1], alpha[2], bandwidth[0], bandwidth[1], bandwidth[2]
                    ));
                    let protocols = links.entry(level).or_default();
                    protocols.entry(protocol.clone()).or_insert_with(|| ProtocolFile {
                        alpha_us: parameter(alpha, &source),
                        bandwidth_gb_s: parameter(bandwidth, &source),
                        alone_gb_s: None,
                        per_partner: None,
                        kappa_us: None,
                        behind_data: None,
                        announced_from_bytes: None,
                    });
                }
                (None, Some(_)) => made.left_out.push(format!(
                    "{what}.alpha_us by {hops}: these numbers of nodes do not tell hops on nodes from hops between them \
                     (add a log of one node), or the smallest sizes are too large"
                )),
                (Some(_), None) if group.iter().any(|(it, _)| Level::of(&it.topology) == level) => made
                    .left_out
                    .push(format!("{what}.bandwidth_gb_s by {hops}: the time does not grow with the size")),
                _ => {}
            }
        }
    }
}

fn source(hops: Hops, group: &[(&Series, Fit)]) -> String {
    let files: Vec<&str> = group.iter().map(|(series, _)| series.source.as_str()).collect();
    let worst = group.iter().map(|(_, fit)| fit.residual).fold(0.0, f64::max);
    let fitted = format!(
        "kolo calibrate --logs {}, residual up to {:.1} %",
        files.join(", "),
        100.0 * worst
    );
    match hops {
        Hops::AssumedRing => format!("assumed: a ring, as the log names no algorithm; {fitted}"),
        Hops::Ring | Hops::Tree => format!("measured: {fitted}"),
    }
}

/// Latency of a hop on a node and of one between nodes, in microseconds, with ranges; none of one that is not determined.
fn latencies(hops: Hops, group: &[(&Series, Fit)]) -> [Option<Ranged>; 2] {
    let solve = |intercept: &dyn Fn(&Fit) -> f64| {
        // Each equation is divided by its intercept.
        let (mut squares, mut right) = ([0.0; 3], [0.0; 2]);
        for (series, fit) in group {
            let us = intercept(fit);
            if us <= 0.0 {
                continue;
            }
            let [on, between] = hops.count(&series.topology).map(|count| count / us);
            squares =
                [squares[0] + on * on, squares[1] + on * between, squares[2] + between * between];
            right = [right[0] + on, right[1] + between];
        }
        let [on, both, between] = squares;
        let determinant = on * between - both * both;
        let positive = |us: f64| (us > 0.0).then_some(us);
        if on > 0.0 && between == 0.0 {
            [positive(right[0] / on), None]
        } else if between > 0.0 && on == 0.0 {
            [None, positive(right[1] / between)]
        } else if determinant > 1e-9 * on * between {
            let us = [
                (right[0] * between - right[1] * both) / determinant,
                (right[1] * on - right[0] * both) / determinant,
            ];
            us.map(positive)
        } else {
            [None, None]
        }
    };
    let value = solve(&|fit| fit.intercept_us);
    let ends = [solve(&|fit| fit.intercept_us_range.0), solve(&|fit| fit.intercept_us_range.1)];
    [0, 1].map(|level| {
        let us = value[level]?;
        let [low, high] = ends.map(|end| end[level].unwrap_or(us));
        Some([us, us.min(low).min(high), us.max(low).max(high)])
    })
}

/// Bandwidth of a level in 10^9 bytes per second: the median over the worlds whose slowest links are of that level.
fn bandwidth(level: Level, group: &[(&Series, Fit)]) -> Option<Ranged> {
    let of_level = group.iter().filter(|(series, _)| Level::of(&series.topology) == level);
    let gb_s = |slope: fn(&Fit) -> f64| {
        let own = of_level.clone().filter(|(_, fit)| slope(fit) > 0.0);
        own.map(|(series, fit)| bus_factor(series.topology.ranks()) / slope(fit) / 1e3)
            .collect::<Vec<f64>>()
    };
    let value = median(gb_s(|fit| fit.slope_us))?;
    let low = median(gb_s(|fit| fit.slope_us_range.1)).unwrap_or(value);
    let high = median(gb_s(|fit| fit.slope_us_range.0)).unwrap_or(value);
    Some([value, value.min(low), value.max(high)])
}
