//! A calibration as a machine file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::estimate::{BY_BUFFER, Estimate, Estimates, LAUNCH_US, UNLIMITED_GB_S};
use super::host::Host;
use super::skew::Starts;
use super::{Calibration, control};
use results::provenance::{Build, now};
use simulator::machine_file::{
    Control, Interference, MachineFile, Network, Node, Parameter, ProtocolFile, RatesFile,
    Reduction, SharedFile,
};

/// The receiver does the work of a link.
const NO_LINK: &str =
    "by design: no link of its own; receivers read senders' memory (combine_gb_s, copy_gb_s)";
const NOTHING_BEYOND: &str = "measured: no cost could be detected";

impl Calibration {
    /// The machine, for the simulator, by these estimates.
    pub fn machine_file(&self, name: &str, host: &str, estimates: &Estimates) -> MachineFile {
        let quantile = match self.quantile {
            0.5 => String::new(),
            other => format!(", {:.0} % quantiles", 100.0 * other),
        };
        let (transport, commit, at) = (self.back_end, Build::this().commit, now());
        let source =
            format!("measured: kolo calibrate, {transport}, {host}, {commit}, {at}{quantile}");
        let parameter = |key: &str| estimates.get(key).map(|found| parameter(key, *found, &source));
        let level = |level: &str| link(level, estimates, &source);
        let network = level("network");
        // The simulator needs links inside a node even if they are unused.
        let socket = level("socket").or_else(|| network.clone()).expect("there are two ranks");
        MachineFile {
            name: name.into(),
            about: format!("{} x {} ranks, {}", self.nodes, self.ranks_per_node, self.back_end),
            node: Node {
                ranks: self.ranks_per_node,
                ranks_per_socket: self.ranks_per_node,
                nodes: self.nodes,
                nics: 0,
                network: Network::default(),
            },
            socket,
            bus: None,
            network,
            shared: SharedFile {
                node_gb_s: parameter("shared.node_gb_s"),
                ..SharedFile::default()
            },
            reduction: Reduction {
                rates: rates("reduction.", estimates, &source).expect("always measured"),
                overhead_us: None,
                by_buffer: by_buffer(estimates, &source),
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
}

/// With the cost of control planes, measured on the state machines on this processor, what processors do besides, and
/// the skew of ranks' starts.
///
/// # Panics
/// When the file is not from a calibration, which always has a link.
pub fn with_processors(
    mut file: MachineFile,
    estimates: &Estimates,
    host: &Host,
    starts: &Starts,
    share: f64,
) -> MachineFile {
    let link = file.network.as_ref().unwrap_or(&file.socket);
    let small = link.get("small").unwrap_or(&link["large"]);
    let large = &link["large"];
    let source = large.alpha_us.source.clone();
    let own = |key: &str, estimate: Estimate| parameter(key, estimate, &source);
    file.control = Some(Control {
        alpha_us: small.alpha_us.clone(),
        message_us: None,
        bandwidth_gb_s: large.bandwidth_gb_s.clone(),
        rank0_ns: own("control.rank0_ns", control::rank0_ns(share)),
        cycle_us: own("control.cycle_us", control::cycle_us(share)),
        late_us: None,
        launch_us: own(LAUNCH_US, estimates[LAUNCH_US]),
        copy_us: None,
        pack_gb_s: Some(own("control.pack_gb_s", host.pack_gb_s)),
        compute_cv: None,
        start_skew_us: Some(own("control.start_skew_us", starts.beyond(small.alpha_us.value))),
    });
    file.variability = Some(host.computing.variability(&source, host.interruptions.is_some()));
    file.interruptions = host.interruptions.as_ref().map(|it| it.kinds(&source));
    file.interference = Some(Interference {
        multiprocessors: own("interference.multiprocessors", host.beside),
        memory_per_gb_s: Parameter {
            value: 0.0,
            low: Some(0.0),
            high: Some(0.0),
            source: "by design: the other parameter has all of it".into(),
        },
        messages: None,
        gpu_gb_s: None,
    });
    file
}

fn link(
    level: &str,
    estimates: &Estimates,
    source: &str,
) -> Option<BTreeMap<String, ProtocolFile>> {
    let mut protocols = BTreeMap::new();
    for name in ["small", "large"] {
        let parameter = |field: &str| {
            let key = format!("{level}.{name}.{field}");
            estimates.get(&key).map(|found| parameter(&key, *found, source))
        };
        let both = parameter("alpha_us").zip(parameter("bandwidth_gb_s"));
        let Some((alpha_us, bandwidth_gb_s)) = both else { continue };
        let is_lower = |alone: &Parameter| alone.value < bandwidth_gb_s.value;
        let alone_gb_s = parameter("alone_gb_s").filter(is_lower);
        let (kappa_us, behind_data) = (parameter("kappa_us"), parameter("behind_data"));
        let protocol = ProtocolFile {
            alpha_us,
            bandwidth_gb_s,
            alone_gb_s,
            per_partner: parameter("per_partner"),
            kappa_us,
            behind_data,
            announced_from_bytes: parameter("announced_from_bytes"),
        };
        protocols.insert(name.to_string(), protocol);
    }
    (!protocols.is_empty()).then_some(protocols)
}

fn by_buffer(estimates: &Estimates, source: &str) -> BTreeMap<String, RatesFile> {
    let rates = |key: &String| {
        let bytes = key.strip_prefix(BY_BUFFER)?.strip_suffix(".combine_gb_s")?;
        Some((bytes.to_string(), rates(&format!("{BY_BUFFER}{bytes}."), estimates, source)?))
    };
    estimates.keys().filter_map(rates).collect()
}

fn rates(table: &str, estimates: &Estimates, source: &str) -> Option<RatesFile> {
    let parameter = |field: &str| {
        let key = format!("{table}{field}");
        estimates.get(&key).map(|found| parameter(&key, *found, source))
    };
    Some(RatesFile {
        combine_gb_s: parameter("combine_gb_s")?,
        copy_gb_s: parameter("copy_gb_s"),
        silent_combine_gb_s: parameter("silent_combine_gb_s"),
        silent_copy_gb_s: parameter("silent_copy_gb_s"),
    })
}

pub(super) fn parameter(key: &str, estimate: Estimate, source: &str) -> Parameter {
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(rounded);
    let source = match value == UNLIMITED_GB_S {
        true if key.starts_with("socket.") => NO_LINK,
        true => NOTHING_BEYOND,
        false => source,
    };
    Parameter { value, low: Some(low), high: Some(high), source: source.into() }
}

/// Rounds to four digits, and not below the smallest value that a file can hold.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The file's text: a line for each parameter.
pub fn text(file: MachineFile, measured: &[String]) -> String {
    with_header(HEADER, file, measured)
}

/// The file's text, below a header and lines that it announces.
pub(super) fn with_header(header: &str, mut file: MachineFile, measured: &[String]) -> String {
    let Node { ranks, ranks_per_socket, nodes, .. } = file.node;
    let mut text = header.to_string();
    measured.iter().for_each(|line| text.extend(["# ", line, "\n"]));
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let _ = writeln!(text, "\nname = {}\nabout = {}", quoted(&file.name), quoted(&file.about));
    let _ = writeln!(
        text,
        "\n[node]\nranks = {ranks}\nranks_per_socket = {ranks_per_socket}\nnodes = {nodes}"
    );
    let gpus = file.variability.as_ref().map(|it| (it.gpu_factors.clone(), it.gpu_source.clone()));
    let mut section = String::new();
    for (key, parameter) in file.parameters() {
        let (table, field) = key.rsplit_once('.').expect("keys have a table");
        if table != section {
            let _ = writeln!(text, "\n[{table}]");
            section = table.to_string();
            if table == "variability"
                && let Some((factors, source)) = &gpus
            {
                let _ =
                    writeln!(text, "gpu_factors = {factors:?}\ngpu_source = {}", quoted(source));
            }
        }
        let Parameter { value, low, high, source } = parameter;
        let (low, high, source) = (low.unwrap_or(*value), high.unwrap_or(*value), quoted(source));
        let _ = writeln!(
            text,
            "{field} = {{ value = {value:?}, low = {low:?}, high = {high:?}, source = {source} }}"
        );
    }
    text
}

const HEADER: &str = "\
# A machine for simulations, as `kolo calibrate` measured it. Times in microseconds, bandwidths in GB/s =
# 10^9 bytes per second and direction; low and high are 95 % intervals (resampled).
#
# All pairs of ranks exchanged messages of 4 bytes to some MiB at the same time, step after step. The time of a
# step is the time that many steps take beyond few, divided by their difference in number.
#
# small, large     protocols for messages up to 16 KiB, and above; only `large` where one is faster for all sizes
# alpha_us         time of a step without its bytes, from a line fitted to times by size
# bandwidth_gb_s   bandwidth, from the same line; over MPI that of four messages under way in each direction
# alone_gb_s       bandwidth of a message alone, from the line of exchanges, where it is lower
# kappa_us         additional time of each message in a burst of small ones
# per_partner      by what share a byte takes longer for each further partner of a rank, from exchanges with two at once
# behind_data      share of the data under way between two ranks that a message's announcement waits for: 1 where MPI sends
#                  all through one stream; from four messages that one rank returns as they arrive
# announced_from_bytes  messages from this size on are announced, all where it is missing: those longer than the longest
#                  measured ones that are returned before the others have arrived
# combine_gb_s     rate of combining, from exchanges that reduce (on threads: from their first step)
# copy_gb_s        rate of copying, from exchanges that copy (on threads: from their second step)
# silent_*         the same rates at a rank that sends nothing meanwhile
# by_buffer.BYTES  the same rates for buffers of BYTES
# launch_us        time of a call that does not depend on the number of its steps
# pack_gb_s        rate of copying tensors into a fusion buffer, all ranks at once
# start_skew_us    how much later the last rank leaves a barrier than the first, beyond alpha_us per level of its tree
# gpu_factors      computation times of ranks in parts of their mean: quantiles at 0, 1, 5, 10, 25, 50, 75, 90, 95, 97,
#                  99 and 100 % of the ranks; ranks that take part in a calibration count as GPUs
# step_cv          deviation of a rank's computation from one time to the next, in parts of its mean
# step_correlation correlation of that deviation with the one of the computation before, some milliseconds earlier
# interruptions    what stopped a rank for 20 us or longer while all computed: short ones, and long ones of 1 ms or more;
#                  they are not in step_cv. Where ranks share cores, none are told apart, and all are in step_cv
# per_second       how many there were on a rank per second of its computation; the interval covers single ranks, too
# duration_us      their median
# multiprocessors  how much longer computation takes while messages are exchanged, in parts of its time
#
# Times of a step:
#
";

#[cfg(test)]
mod tests {
    use super::super::runner::{Runner, Threads};
    use super::super::{Effort, calibrate};
    use super::*;
    use results::toml_file::Checked;

    /// A written file reads back equal, except for its header.
    #[test]
    fn a_calibration_of_threads_is_written_and_read_back() {
        let effort = Effort {
            most_bytes: 128 << 10,
            blocks: 3,
            block_s: 1e-4,
            budget_s: 0.0,
            quantile: 0.5,
        };
        let mut threads = Threads::new(2);
        let (calibration, computing) = calibrate(&mut threads, &effort).unwrap();
        let host = Host::measure(&mut threads, computing).unwrap();
        let estimates = calibration.estimates();
        let file = calibration.machine_file("here", "a \"host\"", &estimates);
        let file = with_processors(file, &estimates, &host, &threads.starts().unwrap(), 0.5);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("here.toml");
        std::fs::write(&path, text(file.clone(), &calibration.measured())).unwrap();
        let read = MachineFile::read(&path).unwrap();
        assert_eq!(read, file);
        assert_eq!((read.node.ranks, read.node.nodes), (2, 1));
        assert_eq!(read.socket["large"].bandwidth_gb_s.value, UNLIMITED_GB_S);
        assert!(read.reduction.rates.copy_gb_s.is_some() && read.network.is_none());
        assert_eq!(
            read.leaves_out().is_some(),
            threads.is_oversubscribed(),
            "{:?}",
            read.leaves_out()
        );
    }
}
