//! NCCL's own model of the time of an allreduce, by which it chooses algorithm and protocol.
//!
//! Constants and formulas of NCCL 2.30.7, `src/graph/tuning.cc` (commit 5067397c), for rings, trees, and reductions in
//! switches ([`Switches`]); not for NVLS and CollNet together. As there, times are in microseconds and bandwidths in
//! GB/s. It is a model by NCCL's authors, not a measurement.

mod switches;

use super::Moment;
pub use switches::{Obstacle, Switches};

/// By how much faster a tree of two nodes is than its network. NCCL expects 2, as a node sends and receives each byte
/// once; 1.7 was measured on p4d (NCCL issue 527), 1.4 on V100 with one card (DLPerf, BERT-base on 16 GPUs).
const TREE_OF_TWO_NODES: f64 = 1.5;

/// The properties of nodes that NCCL detects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nccl {
    /// GPUs per node.
    pub local_size: usize,
    /// Channels inside one node.
    pub inside: Channels,
    /// Channels between nodes.
    pub between: Channels,
    /// The links of GPUs inside a node.
    pub links: Links,
    /// The generation of the GPUs, which sets limits and latencies.
    pub generation: Generation,
    /// The protocols that may be used.
    pub protocols: Protocols,
    /// Microseconds that the network card adds.
    pub card_us: f64,
    /// Which switches reduce.
    pub switches: Switches,
}

/// Channels: rings or trees that run in parallel over different links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channels {
    /// The number of channels.
    pub count: usize,
    /// The bandwidth of each, in GB/s.
    pub gb_s: f64,
}

impl Channels {
    /// Of all together.
    fn gb_s(self) -> f64 {
        self.count as f64 * self.gb_s
    }
}

/// The links of GPUs inside a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of products")]
pub enum Links {
    #[default]
    NvLink,
    Pci,
}

/// Which of the protocols may be used: NCCL_PROTO, a plug-in or the links forbid some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// [`Protocol::LL`]
    pub ll: bool,
    /// [`Protocol::LL128`]
    pub ll128: bool,
    /// [`Protocol::Simple`]
    pub simple: bool,
}

impl Protocols {
    /// All of them.
    pub const ALL: Protocols = Protocols { ll: true, ll128: true, simple: true };

    /// Those that NCCL uses by itself: LL128 over NVLink only.
    pub fn over(links: Links) -> Protocols {
        Protocols { ll128: links == Links::NvLink, ..Protocols::ALL }
    }

    fn has(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::LL => self.ll,
            Protocol::LL128 => self.ll128,
            Protocol::Simple => self.simple,
        }
    }
}

/// A generation of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "names of products")]
pub enum Generation {
    Volta,
    Ampere,
    Hopper,
    Blackwell,
}

/// NCCL's protocols: a flag in every 8 bytes (LL), a flag in every 128 bytes (LL128), or a fence (Simple).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "NCCL's names")]
pub enum Protocol {
    LL,
    LL128,
    Simple,
}

/// NCCL's algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "NCCL's names")]
pub enum Pattern {
    Ring,
    Tree,
    /// NVLink's switches reduce, on one node.
    Nvls,
    /// NVLink's switches reduce in each node, and a tree between nodes.
    NvlsTree,
    /// A chain through each node, and the network's switches reduce.
    CollNetChain,
    /// All GPUs of a node at once, and the network's switches reduce.
    CollNetDirect,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 6] = [
        Pattern::Ring,
        Pattern::Tree,
        Pattern::Nvls,
        Pattern::NvlsTree,
        Pattern::CollNetChain,
        Pattern::CollNetDirect,
    ];

    /// The protocols that NCCL has for it.
    fn protocols(self) -> &'static [Protocol] {
        match self {
            Pattern::Ring | Pattern::Tree => &Protocol::ALL,
            _ => &[Protocol::Simple],
        }
    }
}

/// A choice of NCCL, with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The algorithm.
    pub pattern: Pattern,
    /// The protocol.
    pub protocol: Protocol,
    /// Latency in microseconds.
    pub latency_us: f64,
    /// Size over bandwidth, in microseconds.
    pub bandwidth_us: f64,
}

/// Limits of a generation in GB/s; three values are for 1 node, 2 nodes, and more.
struct Limits {
    ll: [f64; 3],
    ring_ll128: f64,
    tree_ll128: [f64; 3],
    tree_simple: [f64; 3],
}

/// NCCL's correction factors of a tree's bandwidth by protocol and size, in octaves of 64 B.
const TREE_SHORTFALL: [[f64; 24]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.0, 1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
        0.9, 0.9, 0.9, 1.0, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
        0.7, 0.7, 0.8, 0.9, 0.9, 0.9,
    ],
];

/// The correction factor of a tree: that of [`TREE_SHORTFALL`] for its first `octaves`, and 1 for larger sizes.
fn tree_shortfall(protocol: Protocol, size_bytes: f64, octaves: usize) -> f64 {
    let octave = (size_bytes / 64.0).max(1.0).log2() as usize;
    if octave < octaves { TREE_SHORTFALL[protocol as usize][octave] } else { 1.0 }
}

impl Generation {
    fn limits(self) -> Limits {
        match self {
            Generation::Volta => Limits {
                ll: [39.0, 39.0, 20.4],
                ring_ll128: 20.0,
                tree_ll128: [20.0, 20.0, 20.0],
                tree_simple: [26.5, 18.5, 10.0],
            },
            Generation::Ampere => Limits {
                ll: [87.7, 22.5, 19.0],
                ring_ll128: 20.0,
                tree_ll128: [20.0, 20.0, 20.0],
                tree_simple: [24.0, 23.6, 17.8],
            },
            Generation::Hopper => Limits {
                ll: [141.0, 45.0, 35.0],
                ring_ll128: 36.7,
                tree_ll128: [36.7, 36.7, 29.0],
                tree_simple: [38.7, 41.4, 36.0],
            },
            Generation::Blackwell => Limits {
                ll: [282.0, 90.0, 70.0],
                ring_ll128: 40.0,
                tree_ll128: [55.6, 31.7, 20.0],
                tree_simple: [70.0, 42.8, 24.0],
            },
        }
    }
}

impl Protocol {
    const ALL: [Protocol; 3] = [Protocol::LL, Protocol::LL128, Protocol::Simple];
}

/// Microseconds of the start, of a hop over NVLink or PCIe, and of a network hop.
fn latencies_us(links: Links, pattern: Pattern, protocol: Protocol) -> (f64, f64, f64) {
    let (base, [nvlink, pci], between) = match (pattern, protocol) {
        (Pattern::Tree, Protocol::LL) => (6.8, [0.6, 1.0], 5.0),
        (Pattern::Tree, Protocol::LL128) => (14.0, [1.25, 1.9], 8.5),
        (Pattern::Tree, Protocol::Simple) => (8.4, [4.0, 4.0], 14.0),
        (Pattern::Ring, Protocol::LL) => (6.6, [0.6, 1.0], 2.7),
        (Pattern::Ring, Protocol::LL128) => (14.0, [1.9, 2.5], 4.0),
        (Pattern::Ring, Protocol::Simple) => (8.4, [3.4, 5.7], 14.0),
        (Pattern::Nvls, _) => (0.0, [25.0, 0.0], 18.0),
        (Pattern::NvlsTree, _) => (0.0, [25.0, 0.0], 20.9),
        (Pattern::CollNetChain, _) => (0.0, [2.8, 2.8], 30.0),
        (Pattern::CollNetDirect, _) => (0.0, [3.7, 3.7], 31.0),
    };
    let inside = match links {
        Links::NvLink => nvlink,
        Links::Pci => pci,
    };
    (base, inside, between)
}

impl Nccl {
    /// The fastest of these patterns, with its fastest allowed protocol, for an allreduce of `size_bytes` per rank.
    ///
    /// # Panics
    /// When there is an [`Nccl::obstacle`] to all of them, or no protocol is allowed.
    pub fn choice(&self, among: &[Pattern], ranks: usize, size_bytes: f64) -> Choice {
        let can = |pattern: &Pattern| self.obstacle(*pattern, ranks).is_none();
        let choices = among.iter().copied().filter(can).flat_map(|pattern| {
            let protocols = pattern.protocols().iter().filter(|&&it| self.protocols.has(it));
            protocols.map(move |&protocol| self.estimate(pattern, protocol, ranks, size_bytes))
        });
        choices.min_by(|a, b| a.time_us().total_cmp(&b.time_us())).expect("a protocol is allowed")
    }

    /// Nodes, and ranks on each.
    fn nodes(&self, ranks: usize) -> (usize, usize) {
        let nodes = ranks.div_ceil(self.local_size);
        (nodes, ranks.div_ceil(nodes))
    }

    /// The time of one pattern and protocol.
    ///
    /// # Panics
    /// When there is an [`Nccl::obstacle`] to the pattern.
    pub fn estimate(
        &self,
        pattern: Pattern,
        protocol: Protocol,
        ranks: usize,
        size_bytes: f64,
    ) -> Choice {
        let none = Choice { pattern, protocol, latency_us: 0.0, bandwidth_us: 0.0 };
        if ranks < 2 {
            return none;
        }
        let (nodes, local) = self.nodes(ranks);
        let latency_us = self.latency_us(pattern, protocol, ranks, nodes, local, size_bytes);
        let bandwidth = self.algorithm_gb_s(pattern, protocol, ranks, nodes, size_bytes);
        Choice { latency_us, bandwidth_us: size_bytes / (1000.0 * bandwidth), ..none }
    }

    fn latency_us(
        &self,
        pattern: Pattern,
        protocol: Protocol,
        ranks: usize,
        nodes: usize,
        local: usize,
        size_bytes: f64,
    ) -> f64 {
        let (base, inside, mut between) = latencies_us(self.links, pattern, protocol);
        if local == 1 {
            between = latencies_us(self.links, Pattern::Tree, protocol).2;
        }
        let is_simple = protocol == Protocol::Simple;
        between += self.card_us * if is_simple { 2.0 } else { 1.0 };
        match pattern {
            Pattern::Tree => {
                let hops = (local - 1) as f64 * inside + f64::from(nodes.ilog2()) * between;
                base + 2.0 * hops
            }
            Pattern::Ring => {
                let steps = 2.0 * (ranks - 1) as f64;
                let far = if nodes > 1 { 2.0 * (nodes - 1) as f64 } else { 0.0 };
                let overhead = if nodes == 1 { 0.0 } else { 1.0 };
                let overhead = if is_simple { 3.0 * overhead } else { overhead };
                let latency = base + (steps - far) * inside.max(overhead) + far * between;
                let has_long_chunks = size_bytes / (self.between.count * ranks) as f64 >= 64.0;
                let factor = if !(is_simple && nodes > 1 && has_long_chunks) {
                    1.0
                } else if self.generation < Generation::Ampere {
                    1.9
                } else {
                    1.4
                };
                latency * factor
            }
            Pattern::Nvls => inside,
            Pattern::NvlsTree => inside + 2.0 * f64::from(nodes.ilog2()) * between,
            Pattern::CollNetChain => 2.0 * (local - 1) as f64 * inside + between,
            Pattern::CollNetDirect => {
                // 0.4 us for each message to or from the others of the node.
                let others = (local - 1) as f64;
                2.0 * (others.min(1.0) * inside + 0.4 * others) + between
            }
        }
    }

    /// The bandwidth of all channels together. Between nodes, too, every byte passes the links of a node: as slow ones as
    /// PCIe limit it. A tree of two nodes sends half as much over the network as a ring; see [`TREE_OF_TWO_NODES`].
    fn bus_gb_s(&self, pattern: Pattern, nodes: usize, local: usize) -> f64 {
        let [inside, between] = [self.inside, self.between].map(Channels::gb_s);
        match pattern {
            _ if nodes == 1 => inside,
            _ if local == 1 => between,
            Pattern::Tree if nodes == 2 => inside.min(TREE_OF_TWO_NODES * between),
            _ => inside.min(between),
        }
    }

    /// Bytes of the buffer per nanosecond.
    fn algorithm_gb_s(
        &self,
        pattern: Pattern,
        protocol: Protocol,
        ranks: usize,
        nodes: usize,
        size_bytes: f64,
    ) -> f64 {
        let scale = nodes.min(3) - 1;
        let channels = if nodes == 1 { self.inside } else { self.between }.count as f64;
        let bus = self.bus_gb_s(pattern, nodes, ranks.div_ceil(nodes));
        let limits = self.generation.limits();
        match pattern {
            Pattern::Ring => {
                let bus = match protocol {
                    Protocol::LL => limits.ll[scale].min(bus * 0.5),
                    Protocol::LL128 => (bus * 0.92).min(channels * limits.ring_ll128),
                    Protocol::Simple => bus,
                };
                bus * ranks as f64 / (2 * (ranks - 1)) as f64
            }
            Pattern::Tree => {
                let tree = (bus * 0.92).min(channels * limits.tree_simple[scale]);
                let of_line = if nodes == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                let bus = match protocol {
                    Protocol::LL => (tree / 3.8).min(limits.ll[scale]),
                    Protocol::LL128 => (tree * of_line).min(channels * limits.tree_ll128[scale]),
                    Protocol::Simple => tree,
                };
                0.5 * bus * tree_shortfall(protocol, size_bytes, 23)
            }
            _ => self.switched_gb_s(pattern, ranks, size_bytes),
        }
    }

    /// The time of [`Nccl::choice`], with its parts.
    pub fn time(&self, among: &[Pattern], ranks: usize, size_bytes: f64) -> Moment {
        let choice = self.choice(among, ranks, size_bytes);
        let bandwidth_s = 1e-6 * choice.bandwidth_us;
        Moment::start(0.0).latency(1e-6 * choice.latency_us).bytes(bandwidth_s, bandwidth_s)
    }
}

impl Choice {
    /// The whole time in microseconds.
    pub fn time_us(&self) -> f64 {
        self.latency_us + self.bandwidth_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six V100, of which four channels of 6 GB/s leave, as on Summit.
    pub(super) const SUMMIT: Nccl = Nccl {
        local_size: 6,
        inside: Channels { count: 6, gb_s: 20.0 },
        between: Channels { count: 4, gb_s: 6.0 },
        links: Links::NvLink,
        generation: Generation::Volta,
        protocols: Protocols::ALL,
        card_us: 0.0,
        switches: Switches::NONE,
    };

    #[test]
    fn choices_and_times_match_an_independent_reading_of_the_source() {
        use Pattern::{Ring, Tree};
        use Protocol::{LL, LL128, Simple};
        let mib = f64::from(1 << 20);
        for (ranks, size_bytes, pattern, protocol, us) in [
            (6, 4.0, Ring, LL, 13.0),
            (6, 65536.0, Ring, LL, 15.0),
            (6, mib, Ring, LL128, 49.0),
            (6, 16.0 * mib, Ring, Simple, 275.0),
            (6, 64.0 * mib, Ring, Simple, 974.0),
            (24, 4.0, Tree, LL, 33.0),
            (24, 65536.0, Tree, LL, 70.0),
            (24, mib, Ring, LL128, 205.0),
            (24, 16.0 * mib, Ring, LL128, 1570.0),
            (24, 64.0 * mib, Ring, Simple, 5793.0),
            (384, 4.0, Tree, LL, 73.0),
            (384, mib, Tree, LL128, 297.0),
            (384, 16.0 * mib, Tree, LL128, 1930.0),
            (384, 256.0 * mib, Ring, LL128, 25_985.0),
            (384, 932.0 * mib, Ring, Simple, 88_729.0),
            (6000, 4.0, Tree, LL, 103.0),
            (6000, 16.0 * mib, Tree, LL128, 1981.0),
            (27_600, 4.0, Tree, LL, 133.0),
            (27_600, 64.0 * mib, Tree, LL128, 7435.0),
            (27_600, 932.0 * mib, Tree, Simple, 88_905.0),
        ] {
            let found = SUMMIT.choice(&Pattern::ALL, ranks, size_bytes);
            // The table is rounded to whole microseconds.
            let close = (found.time_us() - us).abs() < f64::max(0.51, 0.01 * us);
            assert!(
                close && (found.pattern, found.protocol) == (pattern, protocol),
                "{ranks} ranks, {size_bytes} bytes: {us} us, found {found:?} {}",
                found.time_us()
            );
        }
    }

    #[test]
    fn a_flat_ring_of_all_of_summit_is_slow() {
        let ring =
            SUMMIT.estimate(Pattern::Ring, Protocol::Simple, 27_600, 64.0 * f64::from(1 << 20));
        assert!((ring.time_us() / 547e3 - 1.0).abs() < 0.01, "{ring:?}");
    }

    #[test]
    fn links_inside_nodes_limit_rings_between_them() {
        let slow = Nccl { inside: Channels { count: 1, gb_s: 4.9 }, ..SUMMIT };
        let size_bytes = 1e9;
        for pattern in [Pattern::Ring, Pattern::Tree] {
            let bandwidth_us = |nccl: Nccl, ranks| {
                nccl.estimate(pattern, Protocol::Simple, ranks, size_bytes).bandwidth_us
            };
            let ratio = bandwidth_us(slow, 24) / bandwidth_us(SUMMIT, 24);
            assert!((ratio / (24.0 / 4.9) - 1.0).abs() < 1e-9, "{pattern:?}: {ratio}");
            // One GPU of a node uses none of its links.
            let one = [slow, SUMMIT].map(|nccl| bandwidth_us(Nccl { local_size: 1, ..nccl }, 4));
            assert_eq!(one[0], one[1]);
        }
    }

    #[test]
    fn protocols_that_are_not_allowed_are_not_chosen() {
        let mib = f64::from(1 << 20);
        let chosen =
            |protocols| Nccl { protocols, ..SUMMIT }.choice(&Pattern::ALL, 6, mib).protocol;
        assert_eq!(chosen(Protocols::ALL), Protocol::LL128);
        assert_eq!(chosen(Protocols::over(Links::NvLink)), Protocol::LL128);
        assert_ne!(chosen(Protocols::over(Links::Pci)), Protocol::LL128);
        let only = Protocols { ll: false, ll128: false, simple: true };
        assert_eq!(chosen(only), Protocol::Simple);
        // A hop over PCIe takes 2.3 us more, twice five times.
        let pci = Nccl { links: Links::Pci, ..SUMMIT };
        let latency_us =
            |nccl: Nccl| nccl.estimate(Pattern::Ring, Protocol::Simple, 6, mib).latency_us;
        assert!((latency_us(pci) - latency_us(SUMMIT) - 23.0).abs() < 1e-9);
    }

    /// A tree of two nodes sends and receives each byte once per node, a ring nearly twice.
    #[test]
    fn trees_of_two_nodes_need_less_of_the_network() {
        let bandwidth_us =
            |ranks| SUMMIT.estimate(Pattern::Tree, Protocol::Simple, ranks, 1e9).bandwidth_us;
        assert!((bandwidth_us(24) / bandwidth_us(12) - TREE_OF_TWO_NODES).abs() < 1e-9);
        let one = Nccl { local_size: 1, ..SUMMIT };
        let [two, four] = [2, 4]
            .map(|ranks| one.estimate(Pattern::Tree, Protocol::Simple, ranks, 1e9).bandwidth_us);
        assert_eq!(two, four);
    }

    #[test]
    fn one_rank_takes_no_time_and_every_size_takes_some() {
        assert_eq!(SUMMIT.choice(&Pattern::ALL, 1, 1e9).time_us(), 0.0);
        for ranks in [2, 5, 6, 7, 12, 600] {
            let times = [0.0, 1.0, 64.0, 1e3, 1e6, 1e9]
                .map(|s| SUMMIT.choice(&Pattern::ALL, ranks, s).time_us());
            assert!(times[0] > 0.0 && times[5] > times[0], "{times:?}");
        }
    }
}
