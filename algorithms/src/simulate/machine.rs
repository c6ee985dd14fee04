//! The machine model of the simulators: nodes of equal size, the costs of links, and shared capacities.
//!
//! Times are in seconds, sizes in bytes, capacities in bytes per second.

use std::borrow::Cow;

use crate::cost;
use crate::schedule::Move;
use crate::topology::{Rank, Topology};

/// Ranks fill sockets in order, and nodes in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Ranks per node.
    pub local_size: usize,
    /// Ranks per socket.
    pub socket_size: usize,
    /// The link between ranks of a socket.
    pub socket: Link,
    /// The link between sockets of a node.
    pub bus: Link,
    /// Between nodes.
    pub network: Link,
    /// Capacities that the ranks of a node share.
    pub shared: Shared,
    /// The cost of processing received bytes.
    pub reduction: Reduction,
    /// The same for buffers of given sizes, ascending. Between two sizes it is interpolated over the logarithm
    /// of the size; beyond the outermost it is constant. Empty where the size does not matter.
    pub reduction_by_buffer: Vec<(f64, Reduction)>,
    /// Seconds of its sender's processor that each message takes before its first byte is sent.
    pub overhead_s: f64,
}

/// A kind of link, with its protocols. A message uses the fastest one for its size.
#[derive(Clone, Debug, PartialEq)]
pub struct Link(pub Vec<Protocol>);

/// A protocol for sending a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Protocol {
    /// Seconds until the first byte arrives.
    pub alpha_s: f64,
    /// Further seconds until then, per byte of the message: what a message alone takes longer than one of many that
    /// are under way together, since it does not fill the link's window, or is announced first.
    pub alpha_per_byte_s: f64,
    /// Seconds per byte for which it occupies the link.
    pub beta_s: f64,
    /// By what share of that it takes longer for each further rank to which its sender sends, or from which its receiver
    /// receives, in the same step: streams of TCP that share a link slow each other down.
    pub per_partner: f64,
    /// Seconds per message at its receiver, independent of its size (a kernel's primitive).
    pub kappa_s: f64,
    /// A message is announced to its receiver, and begins when the receiver has answered. Announcement and answer wait
    /// for this share of the data that are under way between the two ranks in the same direction: 0 where they have a
    /// channel of their own (RDMA), 1 where all bytes follow each other in one stream (TCP). Only
    /// [`crate::simulate::events`] know it.
    pub behind_data: f64,
    /// Only messages of so many bytes or more are announced; others follow those before them at once.
    pub announced_from_bytes: f64,
}

/// The cost of processing received bytes. It may be higher on a rank whose memory others read meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reduction {
    /// On a rank that sends in the same step.
    pub sending: Rates,
    /// On a rank that only receives.
    pub silent: Rates,
}

impl Reduction {
    /// The same rates whether or not a rank sends.
    pub fn alike(gamma_s: f64, copy_s: f64) -> Reduction {
        let rates = Rates { gamma_s, copy_s };
        Reduction { sending: rates, silent: rates }
    }

    /// Interpolates to another one: 0 is this one, 1 the other.
    fn towards(&self, other: &Reduction, share: f64) -> Reduction {
        let between = |a: f64, b: f64| a + share * (b - a);
        let rates = |a: Rates, b: Rates| Rates {
            gamma_s: between(a.gamma_s, b.gamma_s),
            copy_s: between(a.copy_s, b.copy_s),
        };
        Reduction {
            sending: rates(self.sending, other.sending),
            silent: rates(self.silent, other.silent),
        }
    }
}

/// Rates of a rank's processor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Seconds per byte reduced.
    pub gamma_s: f64,
    /// Seconds per byte copied.
    pub copy_s: f64,
}

/// Capacities that the ranks of a node share, per direction, in bytes per second; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shared {
    /// Of each socket's link to the other sockets.
    pub bus: Option<f64>,
    /// Network cards of a node; local rank r uses card r x cards / ranks, rounded down.
    pub nics: usize,
    /// Of each card.
    pub nic: Option<f64>,
    /// Of all cards of a node together.
    pub node: Option<f64>,
}

/// The kind of link between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Inside a socket.
    Socket,
    /// The link between sockets of a node.
    Bus,
    /// Between nodes.
    Network,
}

impl Link {
    /// A link with one protocol that costs nothing at the receiver.
    pub fn plain(alpha_s: f64, beta_s: f64) -> Link {
        let protocol = Protocol { alpha_s, beta_s, ..Protocol::default() };
        Link(vec![protocol])
    }

    /// The fastest protocol for a message of `bytes`.
    pub fn protocol(&self, bytes: f64) -> &Protocol {
        let time = |protocol: &Protocol| {
            protocol.latency_s(bytes) + protocol.kappa_s + bytes * protocol.beta_s
        };
        let mut best = &self.0[0];
        for other in &self.0[1..] {
            if time(other) < time(best) {
                best = other;
            }
        }
        best
    }

    /// Whether the number of partners makes a difference.
    pub fn counts_partners(&self) -> bool {
        self.0.iter().any(|protocol| protocol.per_partner > 0.0)
    }
}

impl Protocol {
    /// A message of so many bytes is announced before it is sent.
    pub fn announces(&self, bytes: f64) -> bool {
        self.behind_data > 0.0 && bytes >= self.announced_from_bytes
    }

    /// Seconds until the first byte of a message of `bytes` arrives.
    pub fn latency_s(&self, bytes: f64) -> f64 {
        self.alpha_s + bytes * self.alpha_per_byte_s
    }

    /// Seconds for which a message of `bytes` occupies the link, where its sender or its receiver has so many partners.
    pub fn bytes_s(&self, bytes: f64, partners: usize) -> f64 {
        bytes * self.beta_s * (1.0 + self.per_partner * partners.saturating_sub(1) as f64)
    }
}

/// The number of ranks at the other ends of moves.
pub(super) fn partners(moves: &[Move]) -> usize {
    let is_first =
        |&(at, entry): &(usize, &Move)| moves[..at].iter().all(|it| it.peer != entry.peer);
    moves.iter().enumerate().filter(is_first).count()
}

impl Machine {
    /// A machine with one rank per node on one network. Reducing a byte takes `gamma_s`.
    pub fn flat(alpha_s: f64, beta_s: f64, gamma_s: f64) -> Machine {
        let link = Link::plain(alpha_s, beta_s);
        Machine {
            local_size: 1,
            socket_size: 1,
            socket: link.clone(),
            bus: link.clone(),
            network: link,
            shared: Shared::default(),
            reduction: Reduction::alike(gamma_s, 0.0),
            reduction_by_buffer: Vec::new(),
            overhead_s: 0.0,
        }
    }

    /// The machine for buffers of this size: `reduction` holds the rates for it.
    pub fn for_buffer(&self, bytes: f64) -> Cow<'_, Machine> {
        let all = &self.reduction_by_buffer;
        let reduction = match all.partition_point(|&(size, _)| size < bytes) {
            _ if all.is_empty() => return Cow::Borrowed(self),
            0 => all[0].1,
            above if above == all.len() => all[above - 1].1,
            above => {
                let [(less, a), (more, b)] = [all[above - 1], all[above]];
                a.towards(&b, (bytes / less).ln() / (more / less).ln())
            }
        };
        Cow::Owned(Machine { reduction, reduction_by_buffer: Vec::new(), ..self.clone() })
    }

    /// The topology of `ranks` ranks on it.
    ///
    /// # Panics
    /// When they fill neither a part of one node nor whole nodes.
    pub fn topology(&self, ranks: usize) -> Topology {
        if ranks <= self.local_size {
            return Topology::uniform(1, ranks);
        }
        assert!(ranks.is_multiple_of(self.local_size), "{ranks} ranks leave a node half empty");
        Topology::uniform(ranks / self.local_size, self.local_size)
    }

    /// The kind of link between two ranks.
    pub fn level(&self, a: Rank, b: Rank) -> Level {
        if a / self.local_size != b / self.local_size {
            Level::Network
        } else if self.socket_of(a) != self.socket_of(b) {
            Level::Bus
        } else {
            Level::Socket
        }
    }

    /// Whether the number of a rank's partners makes a difference.
    pub fn counts_partners(&self) -> bool {
        [&self.socket, &self.bus, &self.network].into_iter().any(Link::counts_partners)
    }

    /// The link of this kind.
    pub fn link(&self, level: Level) -> &Link {
        match level {
            Level::Socket => &self.socket,
            Level::Bus => &self.bus,
            Level::Network => &self.network,
        }
    }

    fn socket_of(&self, rank: Rank) -> usize {
        rank % self.local_size / self.socket_size
    }

    fn sockets(&self) -> usize {
        self.local_size.div_ceil(self.socket_size)
    }

    /// The shared capacities of a node.
    pub(super) fn capacities(&self) -> Vec<f64> {
        let Shared { bus, nics, nic, node } = self.shared;
        let unlimited = |capacity: Option<f64>| capacity.unwrap_or(f64::INFINITY);
        let mut all = vec![unlimited(node); 2];
        all.extend(vec![unlimited(bus); self.sockets()]);
        all.extend(vec![unlimited(nic); 2 * nics]);
        all
    }

    /// The capacities that a message passes out of its sender's node, and into its receiver's: indices into
    /// [`Machine::capacities`] of that node.
    pub(super) fn passes(&self, from: Rank, to: Rank, level: Level) -> [Passes; 2] {
        let nics = self.shared.nics;
        let card =
            |rank: Rank| 2 + self.sockets() + rank % self.local_size * nics / self.local_size;
        match level {
            Level::Socket => [Passes::NONE; 2],
            Level::Bus => [Passes([2 + self.socket_of(from), usize::MAX]), Passes::NONE],
            Level::Network if nics == 0 => [Passes([0, usize::MAX]), Passes([1, usize::MAX])],
            Level::Network => [Passes([0, card(from)]), Passes([1, card(to) + nics])],
        }
    }

    /// The same machine for [`cost::Cost::time`], with the protocols for messages of `message_bytes`.
    pub fn closed_form(&self, message_bytes: f64) -> cost::Machine {
        let link = |link: &Link| {
            let Protocol { alpha_s, alpha_per_byte_s, beta_s, kappa_s, .. } =
                *link.protocol(message_bytes);
            cost::Link { alpha_s: alpha_s + kappa_s, beta_s: beta_s + alpha_per_byte_s }
        };
        cost::Machine {
            inside: link(if self.sockets() > 1 { &self.bus } else { &self.socket }),
            between: link(&self.network),
            gamma_s: self.reduction.sending.gamma_s,
            overhead_s: self.overhead_s,
        }
    }
}

/// Up to two of a node's capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passes([usize; 2]);

impl Passes {
    const NONE: Passes = Passes([usize::MAX; 2]);

    /// Their indices.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().filter(|&number| number != usize::MAX)
    }
}
