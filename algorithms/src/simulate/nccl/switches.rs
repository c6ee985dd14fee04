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
    /// A node has one GPU only, or one channel.
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
    /// No switch reduces.
    pub const NONE: Switches =
        Switches { nvls: None, nvls_tree: None, collnet_chain: None, collnet_direct: None };

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
    /// Why NCCL cannot use the algorithm between so many ranks, if it cannot. One rank needs no switch.
    pub fn obstacle(&self, pattern: Pattern, ranks: usize) -> Option<Obstacle> {
        if matches!(pattern, Pattern::Ring | Pattern::Tree) {
            return None;
        }
        let Some(channels) = self.switches.channels(pattern) else {
            return Some(Obstacle::NoSwitches);
        };
        if ranks < 2 {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::super::tests::SUMMIT;
    use super::super::{Links, Protocols};
    use super::*;

    /// A DGX H100 whose switches reduce; its network's do not.
    const HOPPER: Nccl = Nccl {
        local_size: 8,
        inside: Channels { count: 18, gb_s: 20.6 },
        between: Channels { count: 16, gb_s: 23.0 },
        links: Links::NvLink,
        generation: Generation::Hopper,
        protocols: Protocols::ALL,
        card_us: 0.0,
        switches: Switches {
            nvls: Some(Channels { count: 8, gb_s: 40.0 }),
            nvls_tree: Some(Channels { count: 8, gb_s: 40.0 }),
            ..Switches::NONE
        },
    };

    /// With switches of the network that reduce, too.
    fn with_collnet(generation: Generation) -> Nccl {
        let channels = Some(Channels { count: 8, gb_s: 40.0 });
        let switches =
            Switches { collnet_chain: channels, collnet_direct: channels, ..HOPPER.switches };
        Nccl { generation, switches, ..HOPPER }
    }

    /// By hand, from the source.
    #[test]
    fn times_of_switches_match_the_source() {
        let size_bytes = 1e9;
        // 8 x 40 x 0.85 x 7/8 x 2 = 476 GB/s bus.
        let nvls = 25.0 + 1e6 / (476.0 * 8.0 / 14.0);
        // Two nodes: 8 x min(59.5, 2 x 46, 57.7); four: 8 x min(59.5, 46, 45.5).
        let two = 25.0 + 2.0 * 20.9 + 1e6 / (8.0 * 57.7 * 16.0 / 30.0);
        let four = 25.0 + 4.0 * 20.9 + 1e6 / (8.0 * 45.5 * 32.0 / 62.0);
        let chain = 14.0 * 2.8 + 30.0 + 1e6 / 160.0;
        let direct = 2.0 * 3.7 + 14.0 * 0.4 + 31.0 + 1e6 / (160.0 * 0.85);
        for (pattern, ranks, us) in [
            (Pattern::Nvls, 8, nvls),
            (Pattern::NvlsTree, 16, two),
            (Pattern::NvlsTree, 32, four),
            (Pattern::CollNetChain, 32, chain),
            (Pattern::CollNetDirect, 32, direct),
        ] {
            let nccl = with_collnet(Generation::Hopper);
            let found = nccl.estimate(pattern, Protocol::Simple, ranks, size_bytes);
            assert!((found.time_us() / us - 1.0).abs() < 1e-9, "{found:?} for {us}");
        }
        // A tree of Blackwell's switches has the shortfall of other trees, 0.5 at 512 KiB and 1 from 1 GiB on.
        let blackwell = with_collnet(Generation::Blackwell);
        let rate = |bytes: f64| {
            let choice = blackwell.estimate(Pattern::NvlsTree, Protocol::Simple, 32, bytes);
            bytes / choice.bandwidth_us
        };
        assert!((rate(524_288.0) / rate(1e10) - 0.5).abs() < 1e-9);
    }

    /// Rings and trees below the size where the model's times cross, the switches above it.
    #[test]
    fn switches_are_chosen_where_they_are_faster() {
        for (ranks, switched) in [(8, Pattern::Nvls), (16, Pattern::NvlsTree)] {
            let others = [Pattern::Ring, Pattern::Tree];
            let gain_us = |bytes: f64| {
                let time_us = |among: &[Pattern]| HOPPER.choice(among, ranks, bytes).time_us();
                time_us(&others) - time_us(&[switched])
            };
            let sizes: Vec<f64> = (2..34).map(|log2| f64::from(log2).exp2()).collect();
            let chosen = |bytes: f64| HOPPER.choice(&Pattern::ALL, ranks, bytes).pattern;
            for &bytes in &sizes {
                assert_eq!(chosen(bytes) == switched, gain_us(bytes) > 0.0, "{ranks}, {bytes}");
            }
            assert!(gain_us(sizes[0]) < 0.0 && gain_us(sizes[31]) > 0.0, "{ranks}");
        }
        // As was seen on 8 H200 with NCCL 2.27.7: rings up to 1 MiB, NVLS from 2 MiB on.
        let chosen = |log2: u32| HOPPER.choice(&Pattern::ALL, 8, f64::from(log2).exp2()).pattern;
        assert_eq!((chosen(20), chosen(21)), (Pattern::Ring, Pattern::Nvls));
    }

    #[test]
    fn obstacles_to_switches_are_named_and_never_chosen() {
        let simple = Protocols { simple: false, ..Protocols::ALL };
        let one = Channels { count: 1, gb_s: 40.0 };
        let few = Switches { nvls: Some(one), ..HOPPER.switches };
        for (nccl, pattern, ranks, expected) in [
            (HOPPER, Pattern::Ring, 8, None),
            (HOPPER, Pattern::Nvls, 8, None),
            (HOPPER, Pattern::NvlsTree, 16, None),
            (with_collnet(Generation::Volta), Pattern::CollNetChain, 16, None),
            (SUMMIT, Pattern::Nvls, 6, Some(Obstacle::NoSwitches)),
            (HOPPER, Pattern::CollNetDirect, 16, Some(Obstacle::NoSwitches)),
            (with_collnet(Generation::Ampere), Pattern::Nvls, 8, Some(Obstacle::Generation)),
            (Nccl { protocols: simple, ..HOPPER }, Pattern::Nvls, 8, Some(Obstacle::NoSimple)),
            (HOPPER, Pattern::Nvls, 16, Some(Obstacle::SeveralNodes)),
            (HOPPER, Pattern::NvlsTree, 8, Some(Obstacle::OneNode)),
            (with_collnet(Generation::Hopper), Pattern::CollNetChain, 8, Some(Obstacle::OneNode)),
            (Nccl { switches: few, ..HOPPER }, Pattern::Nvls, 8, Some(Obstacle::OneGpu)),
            (Nccl { local_size: 1, ..HOPPER }, Pattern::NvlsTree, 2, Some(Obstacle::OneGpu)),
            (
                Nccl { local_size: 16, ..with_collnet(Generation::Hopper) },
                Pattern::CollNetDirect,
                32,
                Some(Obstacle::ManyGpus),
            ),
        ] {
            assert_eq!(nccl.obstacle(pattern, ranks), expected, "{pattern:?}, {ranks} ranks");
            if expected.is_some() {
                let chosen = nccl.choice(&Pattern::ALL, ranks, 1e9).pattern;
                assert_ne!(chosen, pattern, "{ranks} ranks");
            }
        }
    }

    /// The switch reduces what every GPU sends once and distributes the sum, at 85 % of the channels' bandwidth; a GPU's
    /// links carry each byte once per direction.
    #[test]
    fn switches_of_nvlink_move_each_byte_once() {
        for gpus in 2..=8 {
            for log2 in 0..34 {
                let size_bytes = f64::from(log2).exp2();
                let found = HOPPER.estimate(Pattern::Nvls, Protocol::Simple, gpus, size_bytes);
                let expected = size_bytes / (1e3 * 0.85 * 40.0 * gpus as f64);
                assert!((found.bandwidth_us / expected - 1.0).abs() < 1e-9, "{gpus}: {found:?}");
                assert!(found.bandwidth_us >= size_bytes / (1e3 * 18.0 * 20.6), "{gpus}");
                assert_eq!(found.latency_us, 25.0);
            }
        }
    }

    /// Every node sends and receives each byte once. More nodes change nothing, and no channels inside make it faster than
    /// the network.
    #[test]
    fn switches_of_the_network_take_as_long_for_any_number_of_nodes() {
        for pattern in [Pattern::CollNetChain, Pattern::CollNetDirect] {
            for local in [1, 4, 8] {
                for size_bytes in [4.0, 1e6, 1e9] {
                    let nccl = Nccl { local_size: local, ..with_collnet(Generation::Ampere) };
                    let of = |nccl: Nccl, nodes| {
                        nccl.estimate(pattern, Protocol::Simple, local * nodes, size_bytes)
                    };
                    let two = of(nccl, 2);
                    assert!([3, 16, 1000].into_iter().all(|nodes| of(nccl, nodes) == two));
                    let fast = Some(Channels { count: 8, gb_s: 1e4 });
                    let switches =
                        Switches { collnet_chain: fast, collnet_direct: fast, ..nccl.switches };
                    let bound_us = size_bytes / (1e3 * 16.0 * 23.0);
                    let found = of(Nccl { switches, ..nccl }, 64).bandwidth_us;
                    assert!((found / bound_us - 1.0).abs() < 1e-9, "{pattern:?} {local}");
                    assert!(two.bandwidth_us >= bound_us);
                }
            }
        }
    }
}
