//! A machine in TOML: every parameter with its value, source and range.

mod parameter;
mod tables;

use std::path::{Path, PathBuf};

use algorithms::simulate::machine::Machine;
use algorithms::simulate::nccl::Nccl;
pub use parameter::Parameter;
use serde::{Deserialize, Serialize};
pub(crate) use tables::keyed;
pub use tables::{
    ChannelsFile, CongestionFile, Control, GenerationName, Input, Interference, InterruptionFile,
    Interruptions, LinksName, NcclFile, Network, Node, ProtocolFile, ProtocolName, Protocols,
    RatesFile, Reduction, SharedFile,
};
use tables::{buffer_bytes, link, link_parameters};
use thiserror::Error;

use super::interruption::Interruption;
use super::training;
use super::variability::Variability;
use results::inputs::{MissingFile, beside, choose};
use results::toml_file::{Checked, ConfigError, Invalid, within};

/// The folder of the machine files that have names, on disk and embedded.
pub const FOLDER: &str = "configs/machines";

/// A machine file. Unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Its one spelling, as in rows and figures.
    pub name: String,
    /// One line for readers.
    pub about: String,
    /// The resources of a node.
    pub node: Node,
    /// Between GPUs of a socket, by protocol.
    pub socket: Protocols,
    /// Links between sockets of a node, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<Protocols>,
    /// Links between nodes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Protocols>,
    /// Resources that the ranks of a node share.
    #[serde(default)]
    pub shared: SharedFile,
    /// Processing of received bytes.
    pub reduction: Reduction,
    /// Costs of control planes, and the variation between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// NCCL's parameters on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclFile>,
    /// How fast its GPUs are, and how steadily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variability: Option<Variability>,
    /// What the operating system interrupts computation with; without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptions: Option<Interruptions>,
    /// How communication and computation disturb each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// How much other jobs slow messages between nodes down; without it, not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionFile>,
    /// How fast a node gets its input; without it, input is never waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
}

/// Why a world does not fit on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misfit {
    /// It has no ranks.
    #[error("found 0 ranks, expected at least 1")]
    NoRanks,
    /// The machine has fewer ranks.
    #[error(
        "machine {machine} has {} ranks ({nodes} nodes of {local_size}), but {ranks} were asked for",
        nodes * local_size
    )]
    TooMany {
        /// The machine.
        machine: String,
        /// Its nodes.
        nodes: usize,
        /// Ranks on each node.
        local_size: usize,
        /// Ranks requested.
        ranks: usize,
    },
    /// The last node would not be full.
    #[error(
        "{ranks} ranks do not fill nodes of machine {machine} evenly; use a multiple of {local_size}"
    )]
    Uneven {
        /// The machine.
        machine: String,
        /// Ranks on each of its nodes.
        local_size: usize,
        /// Ranks requested.
        ranks: usize,
    },
}

fn missing_link(level: &str, why: &str) -> Invalid {
    let expected = format!("[{level}.NAME] with alpha_us and bandwidth_gb_s");
    Invalid::value(level, "missing", expected).with_advice(why)
}

impl Checked for MachineFile {
    fn check(&self) -> Result<(), Invalid> {
        let Node { ranks, ranks_per_socket, nodes, .. } = self.node;
        for (key, found) in
            [("ranks", ranks), ("ranks_per_socket", ranks_per_socket), ("nodes", nodes)]
        {
            within(&format!("node.{key}"), found as f64, 1.0, 1e6)?;
        }
        if ranks_per_socket > ranks {
            let expected = format!("at most node.ranks ({ranks})");
            return Err(Invalid::value("node.ranks_per_socket", ranks_per_socket, expected));
        }
        if ranks_per_socket < ranks && self.bus.is_none() {
            return Err(missing_link("bus", "there are several sockets in a node"));
        }
        if nodes > 1 && self.network.is_none() {
            return Err(missing_link("network", "there are several nodes"));
        }
        for (level, protocols) in [
            ("socket", Some(&self.socket)),
            ("bus", self.bus.as_ref()),
            ("network", self.network.as_ref()),
        ] {
            if protocols.is_some_and(Protocols::is_empty) {
                let advice = format!("add [{level}.NAME]");
                return Err(Invalid::value(level, "empty", "a protocol").with_advice(advice));
            }
        }
        if self.interruptions.as_ref().is_some_and(Interruptions::is_empty) {
            let advice = "add [interruptions.NAME] with per_second and duration_us";
            return Err(Invalid::value("interruptions", "empty", "a kind").with_advice(advice));
        }
        if let Some(found) = self.reduction.by_buffer.keys().find(|key| buffer_bytes(key).is_none())
        {
            let expected = "the size of a buffer in bytes, as in [reduction.by_buffer.1048576]";
            return Err(Invalid::value("a key of reduction.by_buffer", found, expected));
        }
        self.variability.iter().try_for_each(Variability::check)?;
        self.nccl.iter().try_for_each(NcclFile::check)?;
        self.clone().parameters().into_iter().try_for_each(|(key, parameter)| parameter.check(&key))
    }
}

impl MachineFile {
    /// The path of a machine: in `machines/` beside a configuration or in [`FOLDER`], or a path.
    pub fn path(name: &str, config: &Path) -> PathBuf {
        if name.ends_with(".toml") {
            config.parent().unwrap_or(Path::new("")).join(name)
        } else {
            beside(&format!("machines/{name}.toml"), config)
        }
    }

    /// Reads a file that the command line names: by its path, or by the name of one in [`FOLDER`].
    ///
    /// # Errors
    /// As [`Checked::read`]; if there is none, which there are.
    pub fn choose(asked: &Path) -> Result<MachineFile, ConfigError> {
        let path = choose(asked, FOLDER, "machine file").map_err(|missing| {
            let missing = MissingFile { origin: ", such as `kolo calibrate` writes", ..missing };
            ConfigError::at(asked)(missing)
        })?;
        MachineFile::read(&path)
    }

    /// Every parameter by its key, in the order of the file; to list them, or to change one.
    pub fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let links = [
            ("socket", Some(&mut self.socket)),
            ("bus", self.bus.as_mut()),
            ("network", self.network.as_mut()),
        ];
        let links = links.into_iter().filter_map(|(level, link)| Some((level, link?)));
        let mut all: Vec<_> =
            links.flat_map(|(level, link)| link_parameters(level, link)).collect();
        all.extend(self.shared.parameters());
        all.extend(self.reduction.parameters());
        all.extend(self.control.iter_mut().flat_map(Control::parameters));
        all.extend(self.nccl.iter_mut().flat_map(NcclFile::parameters));
        all.extend(self.variability.iter_mut().flat_map(Variability::parameters));
        let kinds = self.interruptions.iter_mut().flatten();
        all.extend(kinds.flat_map(|(name, kind)| kind.parameters(name)));
        all.extend(self.interference.iter_mut().flat_map(Interference::parameters));
        let congestion = self.congestion.iter_mut();
        all.extend(congestion.map(|it| ("congestion.longer".to_string(), &mut it.longer)));
        let input = self.input.iter_mut();
        all.extend(input.map(|it| ("input.samples_s".to_string(), &mut it.samples_s)));
        all
    }

    /// As the engines see it.
    pub fn machine(&self) -> Machine {
        let socket = link(&self.socket);
        let bus = self.bus.as_ref().map_or(socket.clone(), link);
        let (reduction, reduction_by_buffer) = self.reduction.rates();
        Machine {
            local_size: self.node.ranks,
            socket_size: self.node.ranks_per_socket,
            network: self.network.as_ref().map_or(bus.clone(), link),
            socket,
            bus,
            shared: self.shared.shared(self.node.nics),
            reduction,
            reduction_by_buffer,
            overhead_s: self.reduction.overhead_us.as_ref().map_or(0.0, |us| us.value * 1e-6),
        }
    }

    /// How messages and computation slow each other down; not at all without `[interference]`.
    pub fn interference(&self) -> training::Interference {
        let Some(file) = &self.interference else { return training::Interference::default() };
        let Interference { multiprocessors, memory_per_gb_s, messages, gpu_gb_s } = file;
        training::Interference {
            fixed: multiprocessors.value,
            per_byte_s: memory_per_gb_s.value * 1e-9,
            messages: messages.as_ref().map_or(0.0, |share| share.value),
            gpu_bytes_s: gpu_gb_s.as_ref().map_or(0.0, |gb_s| gb_s.value * 1e9),
        }
    }

    /// What interrupts computation; nothing without `[interruptions]`.
    pub fn interruptions(&self) -> Vec<Interruption> {
        let kinds = self.interruptions.iter().flat_map(|kinds| kinds.values());
        kinds.map(InterruptionFile::interruption).collect()
    }

    /// What slows the messages of so many ranks down between nodes; nothing without `[congestion]`.
    pub fn congestion(&self, ranks: usize) -> training::Congestion {
        let mean = self.congestion.as_ref().map_or(0.0, |congestion| congestion.longer.value);
        training::Congestion { mean, nodes: ranks.div_ceil(self.node.ranks) }
    }

    /// The least time of a step in which each rank takes that many samples.
    pub fn input_s(&self, ranks: usize, samples: usize) -> f64 {
        let on_node = ranks.min(self.node.ranks) as f64;
        self.input.as_ref().map_or(0.0, |input| on_node * samples as f64 / input.samples_s.value)
    }

    /// Tables that older files do not have.
    pub fn missing_tables(&self) -> Vec<&'static str> {
        let tables = [
            (self.variability.is_none(), "[variability]"),
            (self.interruptions.is_none(), "[interruptions]"),
            (self.interference.is_none(), "[interference]"),
        ];
        tables.into_iter().filter_map(|(is_missing, name)| is_missing.then_some(name)).collect()
    }

    /// What a simulation of training leaves out, because the file does not have it.
    pub fn leaves_out(&self) -> Option<String> {
        let correlation = self.variability.as_ref().map(|it| &it.step_correlation);
        let parts = [
            (
                self.variability.is_none(),
                "[variability]: GPUs are equally fast, unless [jitter] says otherwise",
            ),
            (
                correlation == Some(&None),
                "variability.step_correlation: no noise lasts for more than a step",
            ),
            (
                self.interruptions.is_none(),
                "[interruptions]: the operating system interrupts no rank",
            ),
            (self.interference.is_none(), "[interference]: messages do not slow computation down"),
        ];
        let missing = parts.into_iter().filter_map(|(is_missing, what)| is_missing.then_some(what));
        let missing: Vec<&str> = missing.collect();
        let name = &self.name;
        (!missing.is_empty()).then(|| format!("machine {name} has no {}", missing.join("; no ")))
    }

    /// The same machine without announcements of messages, which only one of the engines knows.
    pub fn without_announcements(&self) -> MachineFile {
        let mut machine = self.clone();
        let network = machine.network.iter_mut().flat_map(Protocols::values_mut);
        network.for_each(|protocol| {
            (protocol.behind_data, protocol.announced_from_bytes) = (None, None);
        });
        machine
    }

    /// NCCL's view of the machine, if the file has it.
    pub fn nccl(&self) -> Option<Nccl> {
        self.nccl.as_ref().map(|file| file.nccl(self.node.ranks))
    }

    /// The same machine with additional nodes for `ranks` ranks.
    pub fn with_nodes_for(&self, ranks: usize) -> MachineFile {
        let mut machine = self.clone();
        machine.node.nodes = machine.node.nodes.max(ranks.div_ceil(machine.node.ranks));
        machine
    }

    /// The same with every parameter at the slower end of its interval, or at the faster one.
    pub fn at_ends(&self, slow: bool) -> MachineFile {
        let mut machine = self.clone();
        for (key, parameter) in machine.parameters() {
            let more_is_fast = ["gb_s", "samples_s", "announced_from_bytes"];
            let is_rate = more_is_fast.iter().any(|unit| key.ends_with(unit));
            let more_is_slow = !is_rate || key.ends_with("per_gb_s");
            let end = if slow == more_is_slow { parameter.high } else { parameter.low };
            parameter.value = end.unwrap_or(parameter.value);
        }
        machine
    }

    /// Why this many ranks do not fit on it, if they do not.
    pub fn misfit(&self, ranks: usize) -> Option<Misfit> {
        let Node { ranks: local_size, nodes, .. } = self.node;
        let all = local_size * nodes;
        match ranks {
            0 => Some(Misfit::NoRanks),
            _ if ranks > all => {
                let machine = self.name.clone();
                Some(Misfit::TooMany { machine, nodes, local_size, ranks })
            }
            _ if ranks > local_size && !ranks.is_multiple_of(local_size) => {
                Some(Misfit::Uneven { machine: self.name.clone(), local_size, ranks })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
