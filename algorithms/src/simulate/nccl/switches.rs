//! Reductions in switches: those of NVLink (NVLS) and those of the network (CollNet, SHARP). Constants and formulas as in
//! [`super`].

use std::fmt;

use super::{Channels, Generation, Nccl, Pattern, Protocol, tree_shortfall};

/// The most GPUs of a node with which NCCL uses CollNet (`NCCL_MAX_DIRECT_ARITY` + 1).
const MOST_COLLNET_GPUS: usize = 8;

/// The channels inside a node of the algorithms in which switches reduce. Without them the machine cannot use the
/// algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Switches {
    /// [`Pattern::Nvls`]
    pub nvls: Option<Channels>,
    /// [`Pattern::NvlsTree`]
    pub nvls_tree: Option<Channels>,
    /// [`Pattern::CollNetChain`]
    pub collnet_chain: Option<Channels>,
    /// [`Pattern::CollNetDirect`]
    pub collnet_direct: Option<Channels>,
}

/// Why NCCL cannot use an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The machine has no switches that reduce, or no channels for them.
    NoSwitches,
    /// NVLink's switches reduce for newer GPUs.
    Generation,
    /// The algorithm has the protocol Simple only, which may not be used.
    NoSimple,
    /// The algorithm is for one node.
    SeveralNodes,
    /// The algorithm is for several nodes.
    OneNode,
    /// A node has a single GPU in it, or a single channel.
    OneGpu,
    /// A node has more GPUs than the algorithm supports.
    ManyGpus,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Obstacle::NoSwitches => "no switch reduces",
            Obstacle::Generation => "NVLink's switches reduce for hopper and newer GPUs only",
            Obstacle::NoSimple => "it needs the protocol simple",
            Obstacle::SeveralNodes => "it is for one node",
            Obstacle::OneNode => "it is for several nodes",
            Obstacle::OneGpu => "it needs two GPUs of a node, and two channels",
            Obstacle::ManyGpus => "it supports at most 8 GPUs of a node",
        })
    }
}

impl Switches {
    fn channels(&self, pattern: Pattern) -> Option<Channels> {
        match pattern {
            Pattern::Ring | Pattern::Tree => None,
            Pattern::Nvls => self.nvls,
            Pattern::NvlsTree => self.nvls_tree,
            Pattern::CollNetChain => self.collnet_chain,
            Pattern::CollNetDirect => self.collnet_direct,
        }
    }
}

impl Generation {
    /// The share of NVLink's bandwidth that NVLS reaches.
    fn nvls_efficiency(self) -> Option<f64> {
        match self {
            Generation::Volta | Generation::Ampere => None,
            Generation::Hopper => Some(0.85),
            Generation::Blackwell => Some(0.74),
        }
    }

    /// The most GB/s of a channel of an NVLS tree: on two nodes, and on more.
    fn nvls_tree_gb_s(self) -> [f64; 2] {
        match self {
            Generation::Volta => [18.5, 10.0],
            Generation::Ampere => [23.6, 17.8],
            Generation::Hopper => [57.7, 45.5],
            Generation::Blackwell => [96.0, 80.0],
        }
    }
}

impl Nccl {
    /// Why NCCL cannot use the algorithm between so many ranks, if it cannot.
    pub fn obstacle(&self, pattern: Pattern, ranks: usize) -> Option<Obstacle> {
        if matches!(pattern, Pattern::Ring | Pattern::Tree) {
            return None;
        }
        let Some(channels) = self.switches.channels(pattern) else {
            return Some(Obstacle::NoSwitches);
        };
        let (nodes, local) = self.nodes(ranks);
        let is_nvls = matches!(pattern, Pattern::Nvls | Pattern::NvlsTree);
        let obstacles = [
            (is_nvls && self.generation.nvls_efficiency().is_none(), Obstacle::Generation),
            (!self.protocols.has(Protocol::Simple), Obstacle::NoSimple),
            (pattern == Pattern::Nvls && nodes > 1, Obstacle::SeveralNodes),
            (pattern != Pattern::Nvls && nodes == 1, Obstacle::OneNode),
            (is_nvls && channels.count.min(local) < 2, Obstacle::OneGpu),
            (!is_nvls && local > MOST_COLLNET_GPUS, Obstacle::ManyGpus),
        ];
        obstacles.into_iter().find_map(|(is_there, obstacle)| is_there.then_some(obstacle))
    }

    /// Bytes of the buffer per nanosecond with an algorithm in which switches reduce.
    ///
    /// # Panics
    /// When there is an [`Nccl::obstacle`].
    pub(super) fn switched_gb_s(&self, pattern: Pattern, ranks: usize, size_bytes: f64) -> f64 {
        let channels = self.switches.channels(pattern).expect("switches reduce");
        match pattern {
            Pattern::Nvls | Pattern::NvlsTree => {
                self.nvls_gb_s(pattern, channels, ranks, size_bytes)
            }
            _ => self.collnet_gb_s(pattern, channels, ranks),
        }
    }

    /// On one node each GPU has a channel, whose part of the buffer its switches reduce and distribute. Between nodes,
    /// trees join the channels of GPUs with a network card.
    fn nvls_gb_s(
        &self,
        pattern: Pattern,
        channels: Channels,
        ranks: usize,
        size_bytes: f64,
    ) -> f64 {
        let (nodes, local) = self.nodes(ranks);
        let count = channels.count.min(local) as f64;
        let efficiency = self.generation.nvls_efficiency().expect("NVLink's switches reduce");
        // Bus bandwidth, which counts what comes from other channels. Reduction and distribution overlap.
        let inside = 2.0 * channels.gb_s * efficiency * (count - 1.0) / count;
        let of_channel = if pattern == Pattern::Nvls {
            inside
        } else {
            // Both nodes of two send and receive each byte once.
            let share = if nodes == 2 { 2.0 } else { 1.0 };
            let between = share * self.between.gb_s() / count;
            let [two, more] = self.generation.nvls_tree_gb_s();
            let most = if nodes == 2 { two } else { more };
            let is_x86_tree = self.generation == Generation::Blackwell;
            let shortfall =
                if is_x86_tree { tree_shortfall(Protocol::Simple, size_bytes, 24) } else { 1.0 };
            inside.min(between).min(most) * shortfall
        };
        count * of_channel * ranks as f64 / (2 * (ranks - 1)) as f64
    }

    /// Every node sends each byte to the network's switches and receives its sum, however many nodes there are. NCCL
    /// leaves it to the search of channels that these are not faster than the network.
    fn collnet_gb_s(&self, pattern: Pattern, channels: Channels, ranks: usize) -> f64 {
        let (_, local) = self.nodes(ranks);
        let share = if pattern == Pattern::CollNetDirect {
            // At full speed with a card for each GPU only.
            let gpus_per_card = local as f64 / channels.count as f64;
            let hopper = if self.generation >= Generation::Hopper { 0.85 } else { 1.0 };
            hopper / (gpus_per_card - (gpus_per_card - 1.0) / 2.0)
        } else {
            1.0
        };
        (0.5 * share * channels.gb_s()).min(self.between.gb_s())
    }
}
