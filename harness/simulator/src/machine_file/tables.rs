//! The tables of a machine file, and their conversion for the engines.

use std::collections::BTreeMap;

use algorithms::simulate::machine::{self, Link, Protocol, Rates, Shared};
use algorithms::simulate::nccl::{self, Channels, Generation, Nccl, Switches};
use serde::{Deserialize, Serialize};

use super::parameter::Parameter;
use crate::interruption::Interruption;
use results::toml_file::Invalid;

/// The ways to send a message over one kind of link, by name.
pub type Protocols = BTreeMap<String, ProtocolFile>;

/// The resources of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Ranks.
    pub ranks: usize,
    /// Ranks of a socket.
    pub ranks_per_socket: usize,
    /// Nodes of the machine.
    pub nodes: usize,
    /// Network cards; 0 means no limit.
    #[serde(default)]
    pub nics: usize,
    /// What joins it to other nodes.
    #[serde(default, skip_serializing_if = "Network::is_default")]
    pub network: Network,
}

/// What joins nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// InfiniBand, RoCE, EFA or the like: the processor does not move the bytes.
    #[default]
    Rdma,
    /// TCP through the kernel.
    Tcp,
}

impl Network {
    fn is_default(&self) -> bool {
        *self == Network::default()
    }
}

/// One way to send a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolFile {
    /// Until the first byte is there.
    pub alpha_us: Parameter,
    /// Of messages that follow each other, in 10^9 bytes per second.
    pub bandwidth_gb_s: Parameter,
    /// Of a message alone, in 10^9 bytes per second, where it is less than that of many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_gb_s: Option<Parameter>,
    /// By what share bytes take longer for each further partner of a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_partner: Option<Parameter>,
    /// For each message at its receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kappa_us: Option<Parameter>,
    /// The share of the data under way that a message's announcement waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_data: Option<Parameter>,
    /// The size from which messages are announced; all are by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_from_bytes: Option<Parameter>,
}

impl ProtocolFile {
    fn protocol(&self) -> Protocol {
        let ProtocolFile { per_partner, kappa_us, behind_data, announced_from_bytes, .. } = self;
        let or_0 = |parameter: &Option<Parameter>| parameter.as_ref().map_or(0.0, |it| it.value);
        let byte_s = |gb_s: &Parameter| 1e-9 / gb_s.value;
        let beta_s = byte_s(&self.bandwidth_gb_s);
        let alone_s = self.alone_gb_s.as_ref().map_or(beta_s, byte_s);
        Protocol {
            alpha_s: self.alpha_us.value * 1e-6,
            alpha_per_byte_s: (alone_s - beta_s).max(0.0),
            beta_s,
            per_partner: or_0(per_partner),
            kappa_s: or_0(kappa_us) * 1e-6,
            behind_data: or_0(behind_data),
            announced_from_bytes: or_0(announced_from_bytes),
        }
    }

    fn parameters(&mut self, table: &str) -> Vec<(String, &mut Parameter)> {
        let ProtocolFile {
            alpha_us,
            bandwidth_gb_s,
            alone_gb_s,
            per_partner,
            kappa_us,
            behind_data,
            announced_from_bytes,
        } = self;
        let all = [
            ("alpha_us", Some(alpha_us)),
            ("bandwidth_gb_s", Some(bandwidth_gb_s)),
            ("alone_gb_s", alone_gb_s.as_mut()),
            ("per_partner", per_partner.as_mut()),
            ("kappa_us", kappa_us.as_mut()),
            ("behind_data", behind_data.as_mut()),
            ("announced_from_bytes", announced_from_bytes.as_mut()),
        ];
        keyed(table, all)
    }
}

/// All protocols of a link, as the engines see them.
pub(super) fn link(protocols: &Protocols) -> Link {
    Link(protocols.values().map(ProtocolFile::protocol).collect())
}

/// Every parameter of a link's protocols.
pub(super) fn link_parameters<'p>(
    level: &str,
    protocols: &'p mut Protocols,
) -> Vec<(String, &'p mut Parameter)> {
    let of = |(name, protocol): (&String, &'p mut ProtocolFile)| {
        protocol.parameters(&format!("{level}.{name}"))
    };
    protocols.iter_mut().flat_map(of).collect()
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

impl SharedFile {
    pub(super) fn shared(&self, nics: usize) -> Shared {
        let capacity = |shared: &Option<Parameter>| shared.as_ref().map(|gb_s| gb_s.value * 1e9);
        Shared {
            bus: capacity(&self.bus_gb_s),
            nics,
            nic: capacity(&self.nic_gb_s),
            node: capacity(&self.node_gb_s),
        }
    }

    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let SharedFile { bus_gb_s, nic_gb_s, node_gb_s } = self;
        let all = [
            ("bus_gb_s", bus_gb_s.as_mut()),
            ("nic_gb_s", nic_gb_s.as_mut()),
            ("node_gb_s", node_gb_s.as_mut()),
        ];
        keyed("shared", all)
    }
}

/// Processing of received bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduction {
    /// For buffers without rates of their own.
    #[serde(flatten)]
    pub rates: RatesFile,
    /// Time of a sender's processor per message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_us: Option<Parameter>,
    /// For buffers of these bytes (one rank's whole buffer), where caches matter; see
    /// [`algorithms::simulate::machine::Machine::reduction_by_buffer`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_buffer: BTreeMap<String, RatesFile>,
}

impl Reduction {
    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let Reduction { rates, overhead_us, by_buffer } = self;
        let mut all = rates.parameters("reduction");
        all.extend(keyed("reduction", [("overhead_us", overhead_us.as_mut())]));
        for (bytes, rates) in by_buffer {
            all.extend(rates.parameters(&format!("reduction.by_buffer.{bytes}")));
        }
        all
    }

    /// Rates for any size, and for some sizes, ascending.
    pub(super) fn rates(&self) -> (machine::Reduction, Vec<(f64, machine::Reduction)>) {
        let of = |(key, of): (&String, &RatesFile)| Some((buffer_bytes(key)?, of.reduction()));
        let mut by_buffer: Vec<_> = self.by_buffer.iter().filter_map(of).collect();
        by_buffer.sort_by(|a, b| a.0.total_cmp(&b.0));
        (self.rates.reduction(), by_buffer)
    }
}

/// How fast that happens, in 10^9 bytes of one message per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatesFile {
    /// Combined.
    pub combine_gb_s: Parameter,
    /// Copying to the destination; none if links do that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_gb_s: Option<Parameter>,
    /// Combining at a rank that sends nothing meanwhile; default: as at others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_combine_gb_s: Option<Parameter>,
    /// Copying to the destination at such a rank.
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
        let all = [
            ("combine_gb_s", Some(combine_gb_s)),
            ("copy_gb_s", copy_gb_s.as_mut()),
            ("silent_combine_gb_s", silent_combine_gb_s.as_mut()),
            ("silent_copy_gb_s", silent_copy_gb_s.as_mut()),
        ];
        keyed(table, all)
    }
}

/// Costs of control planes, and the variation between ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// A small message between processes.
    pub alpha_us: Parameter,
    /// The time of one message of many that rank 0 sends or receives one after the other. Default: `alpha_us`, an
    /// upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_us: Option<Parameter>,
    /// Incoming bandwidth of rank 0's node, in 10^9 bytes per second.
    pub bandwidth_gb_s: Parameter,
    /// Time of rank 0's processor for each rank and tensor that it negotiates.
    pub rank0_ns: Parameter,
    /// Time of every rank's processor for each cycle.
    pub cycle_us: Parameter,
    /// How much later than planned the background thread of a rank wakes up for a cycle, on average; exponentially
    /// distributed, and a cycle waits for the last rank. Default: never late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_us: Option<Parameter>,
    /// Processor time for each message that is handed to the data plane.
    pub launch_us: Parameter,
    /// Processor time to copy one tensor into the fusion buffer, and the same again out of it. Default: none, as with
    /// one kernel for all tensors of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_us: Option<Parameter>,
    /// Rate at which the background thread copies tensors into a fusion buffer in host memory, and the same again out
    /// of it, in 10^9 bytes per second. Default: without cost, as where a GPU copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack_gb_s: Option<Parameter>,
    /// Standard deviation of a rank's computation relative to its mean, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_cv: Option<Parameter>,
    /// How much later the last rank starts an agreed message than `alpha_us` at each level of an agreement
    /// explains, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_skew_us: Option<Parameter>,
}

impl Control {
    /// Seconds of processor time to copy the tensors of a message into the fusion buffer, or out of it.
    pub fn copying_s(&self, tensors: usize) -> f64 {
        match &self.copy_us {
            // A single tensor is reduced where it is.
            Some(copy_us) if tensors > 1 => tensors as f64 * copy_us.value * 1e-6,
            _ => 0.0,
        }
    }

    /// Seconds in which the background thread copies the tensors of a message into the fusion buffer in host memory, and
    /// out of it.
    pub fn packing_s(&self, tensors: usize, size_bytes: f64) -> f64 {
        match &self.pack_gb_s {
            Some(pack_gb_s) if tensors > 1 => 2.0 * size_bytes * 1e-9 / pack_gb_s.value,
            _ => 0.0,
        }
    }

    /// Seconds from the end of an agreement until the last rank starts its messages.
    pub fn begin_s(&self) -> f64 {
        self.start_skew_us.as_ref().map_or(0.0, |skew| skew.value * 1e-6)
    }

    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let all = [
            ("alpha_us", Some(&mut self.alpha_us)),
            ("message_us", self.message_us.as_mut()),
            ("bandwidth_gb_s", Some(&mut self.bandwidth_gb_s)),
            ("rank0_ns", Some(&mut self.rank0_ns)),
            ("cycle_us", Some(&mut self.cycle_us)),
            ("late_us", self.late_us.as_mut()),
            ("launch_us", Some(&mut self.launch_us)),
            ("copy_us", self.copy_us.as_mut()),
            ("pack_gb_s", self.pack_gb_s.as_mut()),
            ("compute_cv", self.compute_cv.as_mut()),
            ("start_skew_us", self.start_skew_us.as_mut()),
        ];
        keyed("control", all)
    }
}

/// How messages and the computation of a GPU slow each other down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// What computation takes longer beside any message, in parts of its time: messages occupy multiprocessors.
    pub multiprocessors: Parameter,
    /// ... and for each 10^9 bytes per second of a message's bus bandwidth: messages use the GPU's memory.
    pub memory_per_gb_s: Parameter,
    /// What a message's bytes take longer while computation goes on beside it, in parts of their time, where the GPU limits
    /// the message. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Parameter>,
    /// The rate at which a GPU moves messages while it does nothing else, in 10^9 bytes per second: a slower network leaves
    /// it time. Default: the GPU limits every message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_gb_s: Option<Parameter>,
}

impl Interference {
    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let all = [
            ("multiprocessors", Some(&mut self.multiprocessors)),
            ("memory_per_gb_s", Some(&mut self.memory_per_gb_s)),
            ("messages", self.messages.as_mut()),
            ("gpu_gb_s", self.gpu_gb_s.as_mut()),
        ];
        keyed("interference", all)
    }
}

/// Interruptions of a rank's computation by the operating system, by name, such as `short` and `long`.
pub type Interruptions = BTreeMap<String, InterruptionFile>;

/// One kind of interruptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptionFile {
    /// How many interrupt a rank per second of its computation, on average; their numbers are Poisson distributed.
    pub per_second: Parameter,
    /// How long each one is.
    pub duration_us: Parameter,
}

impl InterruptionFile {
    /// For simulations.
    pub(super) fn interruption(&self) -> Interruption {
        let InterruptionFile { per_second, duration_us } = self;
        Interruption { per_second: per_second.value, duration_s: duration_us.value / 1e6 }
    }

    pub(super) fn parameters(&mut self, name: &str) -> Vec<(String, &mut Parameter)> {
        let InterruptionFile { per_second, duration_us } = self;
        let all = [("per_second", Some(per_second)), ("duration_us", Some(duration_us))];
        keyed(&format!("interruptions.{name}"), all)
    }
}

/// Traffic of other jobs on the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CongestionFile {
    /// What the bytes of a message take longer over the links of one node, on average, in parts of their time. It is
    /// exponentially distributed, and a message waits for the slowest of its nodes.
    pub longer: Parameter,
}

/// The input of a node: what storage delivers, and processors decode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// At most so many samples per second, for all ranks of a node together.
    pub samples_s: Parameter,
}

/// NCCL's parameters; see [`Nccl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "see `algorithms::simulate::nccl::Nccl`")]
pub struct NcclFile {
    pub generation: GenerationName,
    #[serde(default, skip_serializing_if = "LinksName::is_default")]
    pub links: LinksName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<ProtocolName>>,
    pub channels_inside: Parameter,
    pub channel_inside_gb_s: Parameter,
    pub channels_between: Parameter,
    pub channel_between_gb_s: Parameter,
    pub card_us: Parameter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvls: Option<ChannelsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvls_tree: Option<ChannelsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collnet_chain: Option<ChannelsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collnet_direct: Option<ChannelsFile>,
}

/// The channels of an algorithm of NCCL inside a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelsFile {
    /// How many.
    pub channels: Parameter,
    /// The bandwidth of each, in 10^9 bytes per second.
    pub channel_gb_s: Parameter,
}

impl ChannelsFile {
    fn channels(&self) -> Channels {
        Channels { count: self.channels.value as usize, gb_s: self.channel_gb_s.value }
    }

    fn parameters(&mut self, table: &str) -> Vec<(String, &mut Parameter)> {
        let ChannelsFile { channels, channel_gb_s } = self;
        keyed(table, [("channels", Some(channels)), ("channel_gb_s", Some(channel_gb_s))])
    }
}

impl NcclFile {
    pub(super) fn nccl(&self, local_size: usize) -> Nccl {
        let channels = |count: &Parameter, gb_s: &Parameter| Channels {
            count: count.value as usize,
            gb_s: gb_s.value,
        };
        Nccl {
            local_size,
            inside: channels(&self.channels_inside, &self.channel_inside_gb_s),
            between: channels(&self.channels_between, &self.channel_between_gb_s),
            generation: match self.generation {
                GenerationName::Volta => Generation::Volta,
                GenerationName::Ampere => Generation::Ampere,
                GenerationName::Hopper => Generation::Hopper,
                GenerationName::Blackwell => Generation::Blackwell,
            },
            card_us: self.card_us.value,
            switches: Switches {
                nvls: self.nvls.as_ref().map(ChannelsFile::channels),
                nvls_tree: self.nvls_tree.as_ref().map(ChannelsFile::channels),
                collnet_chain: self.collnet_chain.as_ref().map(ChannelsFile::channels),
                collnet_direct: self.collnet_direct.as_ref().map(ChannelsFile::channels),
            },
            links: self.links(),
            protocols: match &self.protocols {
                Some(names) => nccl::Protocols {
                    ll: names.contains(&ProtocolName::Ll),
                    ll128: names.contains(&ProtocolName::Ll128),
                    simple: names.contains(&ProtocolName::Simple),
                },
                None => nccl::Protocols::over(self.links()),
            },
        }
    }

    fn links(&self) -> nccl::Links {
        match self.links {
            LinksName::Nvlink => nccl::Links::NvLink,
            LinksName::Pci => nccl::Links::Pci,
        }
    }

    /// Checks the list of protocols, and that NCCL can use the switches.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let names = self.protocols.as_deref();
        if names.is_some_and(<[_]>::is_empty) {
            let expected = "at least one of ll, ll128, simple";
            return Err(Invalid::value("nccl.protocols", "empty", expected));
        }
        let nvls = [("nccl.nvls", &self.nvls), ("nccl.nvls_tree", &self.nvls_tree)];
        let collnet = [
            ("nccl.collnet_chain", &self.collnet_chain),
            ("nccl.collnet_direct", &self.collnet_direct),
        ];
        let there = |(key, table): (&'static str, &Option<_>)| table.is_some().then_some(key);
        let nvls: Vec<&str> = nvls.into_iter().filter_map(there).collect();
        let is_older = matches!(self.generation, GenerationName::Volta | GenerationName::Ampere);
        let over_pci = self.links == LinksName::Pci;
        if let Some(key) = nvls.first().filter(|_| is_older || over_pci) {
            let expected = "no such table where generation is older than hopper, or links are pci";
            return Err(Invalid::value(*key, "a table", expected));
        }
        let no_simple = names.is_some_and(|names| !names.contains(&ProtocolName::Simple));
        let mut all = nvls.into_iter().chain(collnet.into_iter().filter_map(there));
        if let Some(key) = all.find(|_| no_simple) {
            let expected = "simple in nccl.protocols, the only protocol of this algorithm";
            return Err(Invalid::value(key, "a table", expected));
        }
        Ok(())
    }

    pub(super) fn parameters(&mut self) -> Vec<(String, &mut Parameter)> {
        let all = [
            ("channels_inside", Some(&mut self.channels_inside)),
            ("channel_inside_gb_s", Some(&mut self.channel_inside_gb_s)),
            ("channels_between", Some(&mut self.channels_between)),
            ("channel_between_gb_s", Some(&mut self.channel_between_gb_s)),
            ("card_us", Some(&mut self.card_us)),
        ];
        let mut all = keyed("nccl", all);
        for (table, channels) in [
            ("nccl.nvls", &mut self.nvls),
            ("nccl.nvls_tree", &mut self.nvls_tree),
            ("nccl.collnet_chain", &mut self.collnet_chain),
            ("nccl.collnet_direct", &mut self.collnet_direct),
        ] {
            all.extend(channels.iter_mut().flat_map(|it| it.parameters(table)));
        }
        all
    }
}

/// As in [`nccl::Links`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "names of products")]
pub enum LinksName {
    #[default]
    Nvlink,
    Pci,
}

impl LinksName {
    fn is_default(&self) -> bool {
        *self == LinksName::default()
    }
}

/// As in [`nccl::Protocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "NCCL's names")]
pub enum ProtocolName {
    Ll,
    Ll128,
    Simple,
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

/// The buffer size of a key.
pub(super) fn buffer_bytes(key: &str) -> Option<f64> {
    key.parse::<u64>().ok().filter(|&bytes| bytes > 0).map(|bytes| bytes as f64)
}

/// The parameters of a table that are present, by full key.
pub(crate) fn keyed<'p, const COUNT: usize>(
    table: &str,
    all: [(&str, Option<&'p mut Parameter>); COUNT],
) -> Vec<(String, &'p mut Parameter)> {
    let there = all.into_iter().filter_map(|(field, one)| Some((field, one?)));
    there.map(|(field, one)| (format!("{table}.{field}"), one)).collect()
}
