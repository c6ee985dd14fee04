//! A machine file from logs of other programs: latency and bandwidth of links, from times of whole allreduces
//! (nccl-tests) or of messages (`osu_latency`).
//!
//! A line `a + b S` is fitted to each series: one algorithm and protocol on one number of nodes and ranks. NCCL's own
//! model (`src/graph/tuning.cc`) says what `a` is made of: a ring of n ranks on N nodes takes 2 (n - 1) hops, 2 (N - 1) of
//! them between nodes; a tree takes 2 (n / N - 1) hops on a node and 2 log2 N between nodes. The latencies of both kinds of
//! hops solve these equations in the sense of least squares, where the logs have enough numbers of nodes. The bandwidth is
//! the bus bandwidth that `b` stands for. What does not depend on the size is part of the latency of a hop, such as the
//! launch of kernels. What the logs cannot determine is left out, and listed.

mod hops;
mod series;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use algorithms::topology::Topology;

use super::estimate::UNLIMITED_GB_S;
use super::fit::SMALL_BYTES;
use super::write::with_header;
use hops::hops;
use results::logs::fit::{FEWEST_POINTS, Fit};
use results::logs::{Log, Operation};
use series::{Level, Series, series};
use simulator::machine_file::{
    MachineFile, Network, Node, Parameter, ProtocolFile, Protocols, RatesFile, Reduction,
    SharedFile,
};

/// What the logs do not say, and the user does.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// NCCL's algorithm, for tables that name none.
    pub algorithm: Option<String>,
    /// NCCL's protocol, likewise.
    pub protocol: Option<String>,
    /// Nodes and ranks, for tables that do not say.
    pub topology: Option<Topology>,
}

/// What came of the logs.
#[derive(Clone, Debug)]
pub struct FromLogs {
    /// The machine, if the logs determine at least one kind of links.
    pub file: Option<MachineFile>,
    /// Every fit with its points and its residual, a line each.
    pub fits: Vec<String>,
    /// What is not determined, and why; a sentence each.
    pub left_out: Vec<String>,
}

/// The tables of a machine file that no log determines, and that simulations of training use.
const OTHER_TABLES: [&str; 4] = ["control", "variability", "interruptions", "interference"];

impl FromLogs {
    /// Takes `[control]`, `[variability]`, `[interruptions]` and `[interference]` from another machine; their sources become
    /// `assumed`.
    pub fn complete(&mut self, other: &MachineFile) {
        let Some(file) = &mut self.file else { return };
        file.control.clone_from(&other.control);
        file.variability.clone_from(&other.variability);
        file.interruptions.clone_from(&other.interruptions);
        file.interference.clone_from(&other.interference);
        let assumed = |source: &str| {
            let source = source.strip_prefix("assumed: ").unwrap_or(source);
            format!("assumed: as on {}: {source}", other.name)
        };
        if let Some(variability) = &mut file.variability {
            variability.gpu_source = assumed(&variability.gpu_source);
        }
        let mut taken: Vec<&str> = Vec::new();
        for (key, parameter) in file.parameters() {
            let table = OTHER_TABLES.into_iter().find(|table| key.split('.').next() == Some(table));
            if let Some(table) = table {
                parameter.source = assumed(&parameter.source);
                parameter.low.get_or_insert(parameter.value);
                parameter.high.get_or_insert(parameter.value);
                taken.push(table);
            }
        }
        let is_taken =
            |what: &String| taken.iter().any(|table| what.starts_with(&format!("[{table}]")));
        self.left_out.retain(|what| !is_taken(what));
    }

    /// The text of the machine file, with all fits in its header.
    pub fn text(&self) -> Option<String> {
        let file = self.file.clone()?;
        let left_out = self.left_out.iter().map(|what| format!("left out: {what}"));
        let lines: Vec<String> = self.fits.iter().cloned().chain(left_out).collect();
        Some(with_header(HEADER, file, &lines))
    }
}

const HEADER: &str = "\
# A machine for simulations, from logs (`kolo calibrate --logs`). Times in microseconds, bandwidths in GB/s = 10^9 bytes
# per second and direction; low and high are the range of all fits that leave one point out.
#
# alpha_us         time of a hop without its bytes: what does not depend on the size, such as the launch of kernels, is
#                  part of it
# bandwidth_gb_s   bus bandwidth at the fitted line's slope; reductions are part of it
#
# Fits, each with its points as bytes:microseconds:
#
";

/// A value with its range.
type Ranged = [f64; 3];

/// Fits everything that logs hold.
pub fn from_logs(name: &str, logs: &[Log], said: &Said) -> FromLogs {
    let mut made = FromLogs { file: None, fits: Vec::new(), left_out: Vec::new() };
    let (mut links, mut largest) = (
        BTreeMap::new(),
        Node { ranks: 1, ranks_per_socket: 1, nodes: 1, nics: 0, network: Network::default() },
    );
    let all_reduces = series(logs, said, Operation::AllReduce, &mut made.left_out);
    let has_all_reduces = !all_reduces.is_empty();
    let messages = series(logs, said, Operation::Message, &mut made.left_out);
    for Series { topology, .. } in all_reduces.iter().chain(&messages) {
        let most = (0..topology.nodes()).map(|node| topology.node(node).len()).max().unwrap_or(1);
        largest.ranks = largest.ranks.max(most);
        largest.nodes = largest.nodes.max(topology.nodes());
    }
    largest.ranks_per_socket = largest.ranks;
    hops(&all_reduces, &mut links, &mut made);
    for series in &messages {
        message(series, &mut links, &mut made);
    }
    for log in logs {
        for table in &log.tables {
            if let Operation::Stream | Operation::Other(_) = table.operation {
                let what = match &table.operation {
                    Operation::Other(name) => name.as_str(),
                    _ => "osu_bw, whose messages overlap",
                };
                let at = format!("{}:{}", log.path.display(), table.line);
                made.left_out
                    .push(format!("{at}: {what}: no allreduce and no latency of a message"));
            }
        }
        if !log.trials.is_empty() {
            made.left_out.push(format!(
                "{}: scores of Horovod's autotuner are no times",
                log.path.display()
            ));
        }
    }
    let levels: [Option<Protocols>; 2] =
        [Level::Socket, Level::Network].map(|level| links.remove(&level));
    let [socket, network] = levels;
    if network.is_none() && largest.nodes > 1 {
        made.left_out.push("links between nodes: the file describes one node".into());
        largest.nodes = 1;
    }
    // The simulator needs links inside a node, even if a node has one rank.
    let is_used = largest.ranks > 1;
    let socket = socket.or_else(|| network.clone().filter(|_| !is_used));
    match socket {
        None if network.is_some() => made.left_out.push(
            "links inside a node, and with them the file: add a log of one node, or of ranks on nodes of their own".into(),
        ),
        None => {}
        Some(socket) => made.file = Some(machine(name, largest, (socket, network), has_all_reduces)),
    }
    made.left_out.push("[nccl]: no log has its channels".into());
    for table in OTHER_TABLES {
        made.left_out.push(format!(
            "[{table}]: no log has it; --complete takes it from another machine file"
        ));
    }
    made
}

fn machine(
    name: &str,
    node: Node,
    (socket, network): (Protocols, Option<Protocols>),
    has_all_reduces: bool,
) -> MachineFile {
    let combine_gb_s = Parameter {
        value: UNLIMITED_GB_S,
        low: Some(if has_all_reduces { UNLIMITED_GB_S } else { 1.0 }),
        high: Some(UNLIMITED_GB_S),
        source: match has_all_reduces {
            true => "by design: part of bandwidth_gb_s, which is fitted to whole allreduces".into(),
            false => "assumed: the logs have no reductions, and none are counted".into(),
        },
    };
    MachineFile {
        name: name.into(),
        about: format!("{} x {} ranks, from logs", node.nodes, node.ranks),
        node,
        socket,
        bus: None,
        network,
        shared: SharedFile::default(),
        reduction: Reduction {
            rates: RatesFile {
                combine_gb_s,
                copy_gb_s: None,
                silent_combine_gb_s: None,
                silent_copy_gb_s: None,
            },
            overhead_us: None,
            by_buffer: BTreeMap::new(),
        },
        control: None,
        nccl: None,
        variability: None,
        interruptions: None,
        interference: None,
        congestion: None,
        input: None,
    }
}

/// A line about a fit.
fn line(what: &str, fit: &Fit, source: &str) -> String {
    let Fit { intercept_us, intercept_us_range, slope_us, slope_us_range, residual, points } = fit;
    let mut line = format!(
        "{what}: {intercept_us:.3} us [{:.3}, {:.3}] + {slope_us:.4e} us/B [{:.4e}, {:.4e}], residual {:.1} %, {} points",
        intercept_us_range.0,
        intercept_us_range.1,
        slope_us_range.0,
        slope_us_range.1,
        100.0 * residual,
        points.len()
    );
    for (bytes, us) in points {
        let _ = write!(line, " {bytes}:{us}");
    }
    let _ = write!(line, " ({source})");
    line
}

/// Latency and bandwidth of messages, of small ones and of large ones.
fn message(series: &Series, links: &mut BTreeMap<Level, Protocols>, made: &mut FromLogs) {
    let level = Level::of(&series.topology);
    let is_small = |point: &&(f64, f64)| point.0 <= SMALL_BYTES as f64;
    let (small, large): (Vec<_>, Vec<_>) = series.points.iter().partition(is_small);
    for (protocol, points) in [("small", small), ("large", large)] {
        let what = format!("{}.{protocol}, messages", level.name());
        let Some(fit) = Fit::of(&points) else {
            made.left_out
                .push(format!("{what} ({}): fewer than {FEWEST_POINTS} sizes", series.source));
            continue;
        };
        made.fits.push(line(&what, &fit, &series.source));
        if fit.slope_us <= 0.0 {
            made.left_out
                .push(format!("{what}: bandwidth_gb_s: the time does not grow with the size"));
            continue;
        }
        let source = format!(
            "measured: kolo calibrate --logs {}, residual {:.1} %",
            series.source,
            100.0 * fit.residual
        );
        let (low, high) = fit.intercept_us_range;
        let gb_s = |slope_us: f64| 1.0 / slope_us / 1e3;
        let most = if fit.slope_us_range.0 > 0.0 { fit.slope_us_range.0 } else { fit.slope_us };
        let file = ProtocolFile {
            alpha_us: parameter([fit.intercept_us, low, high], &source),
            bandwidth_gb_s: parameter(
                [gb_s(fit.slope_us), gb_s(fit.slope_us_range.1), gb_s(most)],
                &source,
            ),
            alone_gb_s: None,
            per_partner: None,
            kappa_us: None,
            behind_data: None,
            announced_from_bytes: None,
        };
        links.entry(level).or_default().entry(protocol.into()).or_insert(file);
    }
}

/// Rounded to four digits.
fn parameter([value, low, high]: Ranged, source: &str) -> Parameter {
    let rounded = |value: f64| format!("{value:.3e}").parse::<f64>().unwrap_or(value);
    let [value, low, high] = [value, low, high].map(rounded);
    Parameter { value, low: Some(low), high: Some(high), source: source.into() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use results::units::bus_factor;

    use super::hops::Hops;
    use super::*;
    use results::toml_file::Checked;

    /// A table of nccl-tests for a machine with known hops: 2 us and 20 GB/s on a node, 7 us and 5 GB/s between nodes.
    fn table(nodes: usize, local: usize, variables: &str) -> String {
        let ranks = nodes * local;
        let mut text = format!(
            "{variables}\n# nThread 1 nGpus 1 minBytes 8 maxBytes 1 iters: 20\n# Using devices\n"
        );
        for rank in 0..ranks {
            let host = rank / local;
            let _ = writeln!(
                text,
                "#  Rank {rank:2} Group  0 Pid 1 on node{host} device  0 [0x00] V100"
            );
        }
        text += "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
        let hops = Hops::Ring.count(&Topology::uniform(nodes, local));
        let (alpha_us, gb_s) = (2.0 * hops[0] + 7.0 * hops[1], if nodes > 1 { 5.0 } else { 20.0 });
        for power in 3..28 {
            let size = 1_u64 << power;
            let us = alpha_us + size as f64 * bus_factor(ranks) / gb_s / 1e3;
            let _ = writeln!(text, "{size} {} float sum -1 {us:.2} 1 1 0 {us:.2} 1 1 0", size / 4);
        }
        text + "# Out of bounds values : 0 OK\n"
    }

    fn logs(texts: &[String]) -> Vec<Log> {
        texts.iter().map(|text| Log::parse(text, Path::new("a.log")).unwrap()).collect()
    }

    fn near(found: &Parameter, expected: f64) {
        assert!((found.value / expected - 1.0).abs() < 2e-3, "{found:?} for {expected}");
    }

    #[test]
    fn hops_and_bandwidths_of_a_known_machine_are_recovered() {
        let ring = "NCCL_ALGO=Ring NCCL_PROTO=Simple";
        let texts = [table(1, 4, ring), table(2, 4, ring), table(4, 4, ring)];
        let made = from_logs("known", &logs(&texts), &Said::default());
        let file = made.file.clone().unwrap();
        near(&file.socket["simple"].alpha_us, 2.0);
        near(&file.socket["simple"].bandwidth_gb_s, 20.0);
        let network = &file.network.as_ref().unwrap()["simple"];
        near(&network.alpha_us, 7.0);
        near(&network.bandwidth_gb_s, 5.0);
        assert!(!network.alpha_us.is_assumed());
        assert_eq!((file.node.ranks, file.node.nodes), (4, 4));
        // The text is a machine file.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.toml");
        std::fs::write(&path, made.text().unwrap()).unwrap();
        assert_eq!(MachineFile::read(&path).unwrap(), file);
        let fit = made.fits.iter().find(|fit| fit.starts_with("Ring, Simple, 2x4:")).unwrap();
        assert!(fit.contains("25 points 8:") && fit.contains("residual 0.0 %"), "{fit}");
    }

    #[test]
    fn what_the_logs_do_not_determine_is_left_out_and_said() {
        let says = |made: &FromLogs, words: &str| {
            assert!(
                made.left_out.iter().any(|it| it.contains(words)),
                "{words}: {:?}",
                made.left_out
            );
        };
        // One world of several nodes does not tell the two kinds of hops apart.
        let made = from_logs("a", &logs(&[table(2, 4, "NCCL_ALGO=Ring")]), &Said::default());
        assert!(made.file.is_none());
        says(&made, "network.auto.alpha_us by Ring: these numbers of nodes do not tell");
        // Without an algorithm the file says that a ring is assumed.
        let made = from_logs("a", &logs(&[table(1, 4, "")]), &Said::default());
        let file = made.file.clone().unwrap();
        assert!(file.socket["auto"].alpha_us.is_assumed() && file.network.is_none());
        says(&made, "[control]: no log has it; --complete takes");
        let other = "../../configs/machines/dgx-a100.toml";
        let other = MachineFile::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(other)).unwrap();
        let mut complete = made.clone();
        complete.complete(&other);
        let control = complete.file.clone().unwrap().control.unwrap();
        assert_eq!(control.alpha_us.value, other.control.unwrap().alpha_us.value);
        assert!(control.alpha_us.source.starts_with("assumed: as on dgx-a100: "), "{control:?}");
        assert!(
            !complete.left_out.iter().any(|it| it.contains("[control]")),
            "{:?}",
            complete.left_out
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("complete.toml");
        std::fs::write(&path, complete.text().unwrap()).unwrap();
        assert_eq!(Some(MachineFile::read(&path).unwrap()), complete.file);
        // An algorithm whose hops are not known, and a log that does not say its ranks.
        let made = from_logs("a", &logs(&[table(1, 4, "NCCL_ALGO=NVLS")]), &Said::default());
        assert!(made.file.is_none());
        says(&made, "of NVLS not");
        let osu = "# OSU MPI Latency Test v5.8\n# Size          Latency (us)\n1  1.0\n1024 1.1\n16384 3.0\n";
        let made = from_logs("a", &logs(&[osu.into()]), &Said::default());
        says(&made, "give --topology");
    }

    #[test]
    fn messages_of_osu_latency_give_links_between_nodes() {
        let mut text =
            String::from("# OSU MPI Latency Test v5.8\n# Size          Latency (us)\n0  1.50\n");
        for power in 0..23 {
            let size = 1_u64 << power;
            let us = if size <= SMALL_BYTES as u64 {
                1.5 + size as f64 / 4e3
            } else {
                4.0 + size as f64 / 12e3
            };
            let _ = writeln!(text, "{size:<10} {us:.4}");
        }
        let said = Said { topology: Some(Topology::uniform(2, 1)), ..Said::default() };
        let file = from_logs("osu", &logs(&[text]), &said).file.unwrap();
        let network = file.network.as_ref().unwrap();
        near(&network["small"].alpha_us, 1.5);
        near(&network["small"].bandwidth_gb_s, 4.0);
        near(&network["large"].bandwidth_gb_s, 12.0);
        assert!(file.reduction.rates.combine_gb_s.is_assumed());
        file.check().unwrap();
    }
}
