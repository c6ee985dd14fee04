//! A machine as written in TOML: every parameter with its value, where that comes from, and how far off it
//! may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use algorithms::simulate::machine::{self, Link, Machine, Protocol, Rates, Shared};
use algorithms::simulate::nccl::{Channels, Generation, Nccl};
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, read_toml};

/// One number of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// What simulations go by, in the unit of the key.
    pub value: f64,
    /// It may be as low as this; as the value, if nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// It may be as high as this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// A document, a measurement, or `assumed` with the reason.
    pub source: String,
}

impl Parameter {
    /// True if nobody measured or documented it.
    pub fn is_assumed(&self) -> bool {
        self.source.starts_with("assumed")
    }
}

/// A machine file. Unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Its one spelling, as in rows and figures.
    pub name: String,
    /// One line for readers.
    pub about: String,
    /// What a node holds.
    pub node: Node,
    /// Between GPUs of a socket, by protocol.
    pub socket: BTreeMap<String, ProtocolFile>,
    /// Between sockets of a node, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<BTreeMap<String, ProtocolFile>>,
    /// Between nodes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<BTreeMap<String, ProtocolFile>>,
    /// What the ranks of a node share.
    #[serde(default)]
    pub shared: SharedFile,
    /// What happens to bytes that have arrived.
    pub reduction: Reduction,
    /// What control planes go by, and how unevenly ranks come to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// What NCCL finds there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclFile>,
}

/// What a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Ranks.
    pub ranks: usize,
    /// Ranks of a socket.
    pub ranks_per_socket: usize,
    /// Nodes of the machine.
    pub nodes: usize,
    /// Network cards; 0 where that limits nothing.
    #[serde(default)]
    pub nics: usize,
}

/// One way to send a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolFile {
    /// Until the first byte is there.
    pub alpha_us: Parameter,
    /// Of one message alone, in 10^9 bytes per second.
    pub bandwidth_gb_s: Parameter,
    /// For each message at its receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kappa_us: Option<Parameter>,
}

/// Capacities that ranks share, each direction, in 10^9 bytes per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "see `algorithms::simulate::machine::Shared`")]
pub struct SharedFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_gb_s: Option<Parameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_gb_s: Option<Parameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_gb_s: Option<Parameter>,
}

/// What happens to bytes that have arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduction {
    /// Of buffers whose size makes no difference, or is not known.
    #[serde(flatten)]
    pub rates: RatesFile,
    /// Of a sender's processor, for each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_us: Option<Parameter>,
    /// Of buffers of so many bytes (of one rank, all of it), where caches make a difference; see
    /// [`Machine::reduction_by_buffer`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_buffer: BTreeMap<String, RatesFile>,
}

/// How fast that happens, in 10^9 bytes of one message per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatesFile {
    /// Combined.
    pub combine_gb_s: Parameter,
    /// Put where they belong; nothing, if links do that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_gb_s: Option<Parameter>,
    /// Combined at a rank that sends nothing meanwhile; as at others, if nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_combine_gb_s: Option<Parameter>,
    /// Put where they belong, there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_copy_gb_s: Option<Parameter>,
}

impl RatesFile {
    fn reduction(&self) -> machine::Reduction {
        let per_byte = |gb_s: &Parameter| 1e-9 / gb_s.value;
        let gamma_s = per_byte(&self.combine_gb_s);
        let copy_s = self.copy_gb_s.as_ref().map_or(0.0, per_byte);
        let silent = Rates {
            gamma_s: self.silent_combine_gb_s.as_ref().map_or(gamma_s, per_byte),
            copy_s: self.silent_copy_gb_s.as_ref().map_or(copy_s, per_byte),
        };
        machine::Reduction { sending: Rates { gamma_s, copy_s }, silent }
    }

    fn parameters(&mut self, table: &str) -> Vec<(String, &mut Parameter)> {
        let RatesFile { combine_gb_s, copy_gb_s, silent_combine_gb_s, silent_copy_gb_s } = self;
        let key = |field: &str| format!("{table}.{field}");
        let mut all = vec![(key("combine_gb_s"), combine_gb_s)];
        all.extend(copy_gb_s.as_mut().map(|rate| (key("copy_gb_s"), rate)));
        all.extend(silent_combine_gb_s.as_mut().map(|rate| (key("silent_combine_gb_s"), rate)));
        all.extend(silent_copy_gb_s.as_mut().map(|rate| (key("silent_copy_gb_s"), rate)));
        all
    }
}

/// What control planes go by, and how unevenly ranks come to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// A small message between processes.
    pub alpha_us: Parameter,
    /// What rank 0's node takes in, in 10^9 bytes per second.
    pub bandwidth_gb_s: Parameter,
    /// Of rank 0's processor, for each rank and tensor that it is asked about.
    pub rank0_ns: Parameter,
    /// Of every rank's processor, for each cycle.
    pub cycle_us: Parameter,
    /// Of the processor, for each message that is handed to the data plane.
    pub launch_us: Parameter,
    /// Standard deviation of a rank's computation in parts of its mean, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_cv: Option<Parameter>,
}

/// What NCCL finds; see [`Nccl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "see `algorithms::simulate::nccl::Nccl`")]
pub struct NcclFile {
    pub generation: GenerationName,
    pub channels_inside: Parameter,
    pub channel_inside_gb_s: Parameter,
    pub channels_between: Parameter,
    pub channel_between_gb_s: Parameter,
    pub card_us: Parameter,
}

/// As in [`Generation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "names of products")]
pub enum GenerationName {
    Volta,
    Ampere,
    Hopper,
    Blackwell,
}

/// Faster than any link there is, in 10^9 bytes per second: a slip of unit.
const MOST_GB_S: f64 = 1e5;

/// Slower than any latency there is, in microseconds.
const MOST_US: f64 = 1e6;

impl MachineFile {
    /// Reads and checks a machine file.
    ///
    /// # Errors
    /// File, line or key, what was found, and what was expected.
    pub fn read(path: &Path) -> Result<MachineFile, ConfigError> {
        let file: MachineFile = read_toml(path)?;
        file.check().map_err(|problem| ConfigError { path: path.into(), problem })?;
        Ok(file)
    }

    /// Where the machine of that name lies: in `machines/` beside a configuration, or a path.
    pub fn path(name: &str, config: &Path) -> PathBuf {
        let folder = config.parent().unwrap_or(Path::new(""));
        match name.ends_with(".toml") {
            true => folder.join(name),
            false => folder.join("machines").join(format!("{name}.toml")),
        }
    }

    /// Every parameter by its key, in the order of the file; to list them, or to change one.
    pub fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let mut all = Vec::new();
        let links = [
            ("socket", Some(&mut self.socket)),
            ("bus", self.bus.as_mut()),
            ("network", self.network.as_mut()),
        ];
        for (level, protocols) in links {
            for (name, protocol) in protocols.into_iter().flatten() {
                let key = |field: &str| format!("{level}.{name}.{field}");
                all.push((key("alpha_us"), &mut protocol.alpha_us));
                all.push((key("bandwidth_gb_s"), &mut protocol.bandwidth_gb_s));
                all.extend(protocol.kappa_us.as_mut().map(|kappa| (key("kappa_us"), kappa)));
            }
        }
        let SharedFile { bus_gb_s, nic_gb_s, node_gb_s } = &mut self.shared;
        for (key, shared) in [
            ("shared.bus_gb_s", bus_gb_s),
            ("shared.nic_gb_s", nic_gb_s),
            ("shared.node_gb_s", node_gb_s),
        ] {
            all.extend(shared.as_mut().map(|shared| (key.to_string(), shared)));
        }
        let Reduction { rates, overhead_us, by_buffer } = &mut self.reduction;
        all.extend(rates.parameters("reduction"));
        all.extend(overhead_us.as_mut().map(|each| ("reduction.overhead_us".into(), each)));
        for (bytes, rates) in by_buffer {
            all.extend(rates.parameters(&format!("reduction.by_buffer.{bytes}")));
        }
        if let Some(control) = &mut self.control {
            let Control { alpha_us, bandwidth_gb_s, rank0_ns, cycle_us, launch_us, compute_cv } =
                control;
            for (key, parameter) in [
                ("control.alpha_us", alpha_us),
                ("control.bandwidth_gb_s", bandwidth_gb_s),
                ("control.rank0_ns", rank0_ns),
                ("control.cycle_us", cycle_us),
                ("control.launch_us", launch_us),
            ] {
                all.push((key.into(), parameter));
            }
            all.extend(compute_cv.as_mut().map(|cv| ("control.compute_cv".into(), cv)));
        }
        if let Some(nccl) = &mut self.nccl {
            for (key, parameter) in [
                ("nccl.channels_inside", &mut nccl.channels_inside),
                ("nccl.channel_inside_gb_s", &mut nccl.channel_inside_gb_s),
                ("nccl.channels_between", &mut nccl.channels_between),
                ("nccl.channel_between_gb_s", &mut nccl.channel_between_gb_s),
                ("nccl.card_us", &mut nccl.card_us),
            ] {
                all.push((key.into(), parameter));
            }
        }
        all
    }

    fn check(&self) -> Result<(), String> {
        let Node { ranks, ranks_per_socket, nodes, .. } = self.node;
        for (key, found) in
            [("ranks", ranks), ("ranks_per_socket", ranks_per_socket), ("nodes", nodes)]
        {
            if !(1..=1_000_000).contains(&found) {
                return Err(format!("node.{key} is {found}, expected 1 to 1000000"));
            }
        }
        if ranks_per_socket > ranks {
            return Err(format!(
                "node.ranks_per_socket is {ranks_per_socket}, but a node has {ranks} ranks"
            ));
        }
        if ranks_per_socket < ranks && self.bus.is_none() {
            return Err("bus is missing: a node has several sockets; add [bus.NAME] with \
                        alpha_us and bandwidth_gb_s"
                .into());
        }
        if nodes > 1 && self.network.is_none() {
            return Err("network is missing: there are several nodes; add [network.NAME] with \
                        alpha_us and bandwidth_gb_s"
                .into());
        }
        for (level, protocols) in [
            ("socket", Some(&self.socket)),
            ("bus", self.bus.as_ref()),
            ("network", self.network.as_ref()),
        ] {
            if protocols.is_some_and(BTreeMap::is_empty) {
                return Err(format!("{level} has no protocol; add [{level}.NAME]"));
            }
        }
        if let Some(found) = self.reduction.by_buffer.keys().find(|key| buffer_bytes(key).is_none())
        {
            return Err(format!(
                "reduction.by_buffer.{found}: expected the size of a buffer in bytes, as in \
                 [reduction.by_buffer.1048576]"
            ));
        }
        self.clone()
            .parameters()
            .into_iter()
            .try_for_each(|(key, parameter)| check(&key, parameter))
    }

    /// As the engines see it.
    pub fn machine(&self) -> Machine {
        let socket = link(&self.socket);
        let bus = self.bus.as_ref().map_or(socket.clone(), link);
        let capacity = |shared: &Option<Parameter>| shared.as_ref().map(|gb_s| gb_s.value * 1e9);
        let Reduction { rates, overhead_us, by_buffer } = &self.reduction;
        let of = |(key, of): (&String, &RatesFile)| Some((buffer_bytes(key)?, of.reduction()));
        let mut reduction_by_buffer: Vec<_> = by_buffer.iter().filter_map(of).collect();
        reduction_by_buffer.sort_by(|a, b| a.0.total_cmp(&b.0));
        Machine {
            local_size: self.node.ranks,
            socket_size: self.node.ranks_per_socket,
            network: self.network.as_ref().map_or(bus.clone(), link),
            socket,
            bus,
            shared: Shared {
                bus: capacity(&self.shared.bus_gb_s),
                nics: self.node.nics,
                nic: capacity(&self.shared.nic_gb_s),
                node: capacity(&self.shared.node_gb_s),
            },
            reduction: rates.reduction(),
            reduction_by_buffer,
            overhead_s: overhead_us.as_ref().map_or(0.0, |us| us.value * 1e-6),
        }
    }

    /// As NCCL sees it, if the file says.
    pub fn nccl(&self) -> Option<Nccl> {
        let file = self.nccl.as_ref()?;
        let channels = |count: &Parameter, gb_s: &Parameter| Channels {
            count: count.value as usize,
            gb_s: gb_s.value,
        };
        Some(Nccl {
            local_size: self.node.ranks,
            inside: channels(&file.channels_inside, &file.channel_inside_gb_s),
            between: channels(&file.channels_between, &file.channel_between_gb_s),
            generation: match file.generation {
                GenerationName::Volta => Generation::Volta,
                GenerationName::Ampere => Generation::Ampere,
                GenerationName::Hopper => Generation::Hopper,
                GenerationName::Blackwell => Generation::Blackwell,
            },
            card_us: file.card_us.value,
        })
    }

    /// Why so many ranks do not fit on it, if they do not.
    pub fn misfit(&self, ranks: usize) -> Option<String> {
        let Node { ranks: local_size, nodes, .. } = self.node;
        let all = local_size * nodes;
        match ranks {
            0 => Some("there are no ranks".into()),
            _ if ranks > all => Some(format!(
                "{} has {all} ranks ({nodes} nodes of {local_size}), but there are {ranks}",
                self.name
            )),
            _ if ranks > local_size && !ranks.is_multiple_of(local_size) => Some(format!(
                "{ranks} ranks leave a node of {} half empty; use a multiple of {local_size}",
                self.name
            )),
            _ => None,
        }
    }
}

fn link(protocols: &BTreeMap<String, ProtocolFile>) -> Link {
    let protocol = |file: &ProtocolFile| Protocol {
        alpha_s: file.alpha_us.value * 1e-6,
        beta_s: 1e-9 / file.bandwidth_gb_s.value,
        kappa_s: file.kappa_us.as_ref().map_or(0.0, |kappa| kappa.value * 1e-6),
    };
    Link(protocols.values().map(protocol).collect())
}

/// The size of a buffer, as a key says it.
fn buffer_bytes(key: &str) -> Option<f64> {
    key.parse::<u64>().ok().filter(|&bytes| bytes > 0).map(|bytes| bytes as f64)
}

fn check(key: &str, parameter: &Parameter) -> Result<(), String> {
    let (most, unit) = match key.rsplit_once('_') {
        _ if key.ends_with("gb_s") => (MOST_GB_S, "GB/s (10^9 bytes per second)"),
        Some((_, "us")) => (MOST_US, "microseconds"),
        Some((_, "ns")) => (1e9, "nanoseconds"),
        Some((_, "cv")) => (1.0, "of the mean"),
        _ => (1e3, "channels"),
    };
    let least = if key.ends_with("gb_s") || unit == "channels" { 1e-6 } else { 0.0 };
    let Parameter { value, low, high, source } = parameter;
    for found in [Some(*value), *low, *high].into_iter().flatten() {
        if !(least..=most).contains(&found) {
            let hint = if found > most { "; is that another unit?" } else { "" };
            return Err(format!("{key} is {found}, expected {least} to {most} {unit}{hint}"));
        }
    }
    let (low, high) = (low.unwrap_or(*value), high.unwrap_or(*value));
    if !(low..=high).contains(value) {
        return Err(format!(
            "{key} is {value}, which is not between its low {low} and high {high}"
        ));
    }
    match source.trim().is_empty() {
        true => Err(format!("{key} has no source; name one, or write \"assumed: why\"")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMIT: &str = include_str!("../../../configs/machines/summit.toml");

    fn read(text: &str) -> Result<MachineFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.toml");
        std::fs::write(&path, text).unwrap();
        MachineFile::read(&path).map_err(|error| error.problem)
    }

    #[test]
    fn shipped_machines_are_read_and_name_their_sources() {
        for entry in
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/machines")).unwrap()
        {
            let path = entry.unwrap().path();
            let mut file = MachineFile::read(&path).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str(), Some(file.name.as_str()));
            for (key, parameter) in file.parameters() {
                let has_range = parameter.low.is_some() && parameter.high.is_some();
                assert!(
                    !parameter.is_assumed() || has_range,
                    "{}: {key} has no range",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn summit_is_what_its_guide_says() {
        let summit = read(SUMMIT).unwrap();
        let machine = summit.machine();
        assert_eq!((machine.local_size, machine.socket_size, machine.shared.nics), (6, 3, 2));
        assert_eq!(machine.shared.node, Some(23e9));
        assert_eq!(summit.misfit(27_600), None);
        assert_eq!(
            summit.misfit(27_654).unwrap(),
            "summit has 27648 ranks (4608 nodes of 6), but there are 27654"
        );
        assert_eq!(
            summit.misfit(20).unwrap(),
            "20 ranks leave a node of summit half empty; use a multiple of 6"
        );
    }

    /// At sizes that the file names its rates hold, between two what is between, beyond them the last.
    #[test]
    fn rates_go_by_the_size_of_the_buffer() {
        let rate =
            |gb_s: f64| format!("combine_gb_s = {{ value = {gb_s}, source = \"a test\" }}\n");
        let sizes = [(1 << 20, 10.0), (65536, 40.0), (4 << 20, 5.0)];
        let tables =
            sizes.map(|(bytes, gb_s)| format!("[reduction.by_buffer.{bytes}]\n{}", rate(gb_s)));
        let machine = read(&format!("{SUMMIT}\n{}", tables.concat())).unwrap().machine();
        let gb_s = |bytes: f64| 1e-9 / machine.for_buffer(bytes).reduction.sending.gamma_s;
        for (bytes, expected) in
            [(1.0, 40.0), (65536.0, 40.0), (1048576.0, 10.0), (2097152.0, 1.0 / 0.15), (1e9, 5.0)]
        {
            assert!((gb_s(bytes) / expected - 1.0).abs() < 1e-9, "{} at {bytes}", gb_s(bytes));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let network = SUMMIT.find("[network.").unwrap();
        let after = network + SUMMIT[network..].find("[shared]").unwrap();
        let without_network = format!("{}{}", &SUMMIT[..network], &SUMMIT[after..]);
        let problem = read(&without_network).unwrap_err();
        assert!(problem.starts_with("network is missing: there are several nodes"), "{problem}");
        for (from, to, expected) in [
            (
                "node_gb_s = { value = 23",
                "node_gb_s = { value = 23e9",
                "shared.node_gb_s is 23000000000, expected 0.000001 to 100000 GB/s (10^9 bytes per second); is that another unit?",
            ),
            ("nics = 2", "nics = 2\ncards = 2", "unknown field `cards`"),
            ("[reduction]", "[reduction]\ngamma_us = 1", "unknown field `gamma_us`"),
            (
                "[shared]",
                "[reduction.by_buffer.1MiB]\ncombine_gb_s = { value = 1, source = \"a test\" }\n[shared]",
                "reduction.by_buffer.1MiB: expected the size of a buffer in bytes",
            ),
            (
                "ranks_per_socket = 3",
                "ranks_per_socket = 7",
                "node.ranks_per_socket is 7, but a node has 6 ranks",
            ),
            (
                "node_gb_s = { value = 23",
                "node_gb_s = { low = 24, high = 25, value = 23",
                "shared.node_gb_s is 23, which is not between its low 24 and high 25",
            ),
        ] {
            assert!(SUMMIT.contains(from), "{from}");
            let problem = read(&SUMMIT.replacen(from, to, 1)).unwrap_err();
            assert!(problem.contains(expected), "{problem}\nexpected {expected}");
        }
    }
}
