//! The cost of a schedule in the alpha-beta-gamma model, counted from the schedule itself.
//!
//! A message of m bytes takes alpha + m beta, on a link inside a node or between nodes; reducing m
//! bytes takes m gamma. Steps follow each other, a rank sends and receives at the same time (full
//! duplex), messages of one step share a link but start together, and the ranks of a node share its
//! link to other nodes. The time of an allreduce of S bytes ([`Cost::time`]) is the sum over links inside
//! and between nodes of `latencies` x alpha + `sent` x S beta, plus (`reduced` + `exchanged`) x S gamma,
//! plus an overhead of the sender's processor per message (o in LogP).
//!
//! The unit tests check the closed forms of Thakur, Rabenseifner and Gropp (2005) and of Patarasuk and
//! Yuan (2009).

use crate::combinators::least_common_multiple;
use crate::program::Bounds;
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::Topology;

/// The coefficients of an allreduce's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Links inside nodes, for the busiest rank.
    pub inside: Level,
    /// Links between nodes, for the busiest node.
    pub between: Level,
    /// Buffers that the busiest rank reduces, summed over steps: the factor of S gamma.
    pub reduced: f64,
    /// Buffers that the busiest rank receives in the step in which it sends the same chunks, summed over
    /// steps. In place, such an exchange needs a copy, which is assumed to cost as much as reducing.
    pub exchanged: f64,
    /// Messages that the busiest rank sends, summed over steps: the factor of the overhead.
    pub messages: f64,
    /// Messages that a rank sends on average; relevant where ranks share processors.
    pub messages_mean: f64,
}

/// The coefficients of one kind of link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Steps in which this is the slowest kind of link in use: the factor of alpha.
    pub latencies: f64,
    /// Buffers over the busiest link, summed over steps: the factor of S beta.
    pub sent: f64,
}

/// A homogeneous machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Inside a node.
    pub inside: Link,
    /// Between nodes.
    pub between: Link,
    /// Seconds per byte reduced.
    pub gamma_s: f64,
    /// Seconds of processor time per message sent.
    pub overhead_s: f64,
}

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds per message.
    pub alpha_s: f64,
    /// Seconds per byte moved.
    pub beta_s: f64,
}

impl Cost {
    /// Counts a schedule over the ranks of a topology, step by step. Of ranks that do the same, see
    /// [`Schedule::rotation`], it looks at one.
    ///
    /// # Panics
    /// When the schedule is for another number of ranks.
    pub fn of(schedule: &dyn Schedule, topology: &Topology) -> Cost {
        assert_eq!(schedule.ranks(), topology.ranks(), "a schedule for another world");
        let ranks = topology.ranks();
        let period = match topology.local_size() {
            Some(local_size) => least_common_multiple(schedule.rotation(), local_size).min(ranks),
            None => ranks,
        };
        let chunk = 1.0 / schedule.chunks() as f64;
        let (mut cost, mut part, mut all) = (Cost::default(), Part::default(), 0);
        for step in 0..schedule.steps() {
            let (mut inside, mut between, mut reduced) = (0, 0, 0);
            let (mut exchanged, mut messages) = (0, 0);
            // Chunks that leave and enter the node that is being looked at.
            let (mut node, mut out, mut into) = (0..0, 0, 0);
            for rank in 0..period {
                if !node.contains(&rank) {
                    node = topology.node(topology.node_of(rank));
                    (out, into) = (0, 0);
                }
                part.clear();
                schedule.part(rank, step, &mut part);
                all += part.sends.len();
                messages = messages.max(part.sends.len());
                let (mut sent, mut received, mut combined, mut aside) = (0, 0, 0, 0);
                for entry in &part.sends {
                    let count = if node.contains(&entry.peer()) { &mut sent } else { &mut out };
                    *count += entry.chunks().len();
                }
                for entry in &part.receives {
                    let count =
                        if node.contains(&entry.peer()) { &mut received } else { &mut into };
                    *count += entry.chunks().len();
                    combined += match entry.action {
                        Action::Reduce => entry.chunks().len(),
                        Action::Copy => 0,
                    };
                    let meets = |send: &Move| send.first < entry.end && entry.first < send.end;
                    if part.sends.iter().any(meets) {
                        aside += entry.chunks().len();
                    }
                }
                exchanged = exchanged.max(aside);
                inside = inside.max(sent).max(received);
                between = between.max(out).max(into);
                reduced = reduced.max(combined);
            }
            cost.between.latencies += f64::from(between > 0);
            cost.inside.latencies += f64::from(between == 0 && inside > 0);
            cost.between.sent += between as f64 * chunk;
            cost.inside.sent += inside as f64 * chunk;
            cost.reduced += reduced as f64 * chunk;
            cost.exchanged += exchanged as f64 * chunk;
            cost.messages += messages as f64;
        }
        cost.messages_mean = all as f64 / period as f64;
        cost
    }

    /// Lower bounds of each coefficient for a point-to-point allreduce of n ranks, each on a node of its own:
    /// ceil(log2 n) latencies, 2(n - 1)/n buffers sent, (n - 1)/n reduced (Chan et al. 2007), 2(n - 1)
    /// messages in all, one per latency. No algorithm reaches all of them.
    pub fn bound(ranks: usize) -> Cost {
        let others = (ranks - 1) as f64 / ranks as f64;
        let latencies = f64::from(ranks.next_power_of_two().ilog2());
        Cost {
            inside: Level::default(),
            between: Level { latencies, sent: 2.0 * others },
            reduced: others,
            exchanged: 0.0,
            messages: latencies,
            messages_mean: 2.0 * others,
        }
    }

    /// Seconds for an allreduce of `size_bytes` per rank: [`Self::latency`], and a part that grows linearly.
    pub fn time(&self, size_bytes: usize, machine: &Machine) -> f64 {
        self.latency(machine) + size_bytes as f64 * self.seconds_per_byte(machine)
    }

    /// Seconds for an allreduce of an empty buffer.
    pub fn latency(&self, machine: &Machine) -> f64 {
        self.inside.latencies * machine.inside.alpha_s
            + self.between.latencies * machine.between.alpha_s
            + self.messages * machine.overhead_s
    }

    /// Seconds per byte of the buffer.
    pub fn seconds_per_byte(&self, machine: &Machine) -> f64 {
        self.inside.sent * machine.inside.beta_s
            + self.between.sent * machine.between.beta_s
            + (self.reduced + self.exchanged) * machine.gamma_s
    }

    /// True if no coefficient is larger than the other's, so that it is slower on no machine.
    pub fn is_at_most(&self, other: &Cost) -> bool {
        let coefficients = |cost: &Cost| {
            let Cost { inside, between, reduced, exchanged, messages, messages_mean } = *cost;
            let links = [inside.latencies, inside.sent, between.latencies, between.sent];
            links.into_iter().chain([reduced, exchanged, messages, messages_mean])
        };
        coefficients(self).zip(coefficients(other)).all(|(own, other)| own <= other + 1e-9)
    }
}

/// The elements that all ranks together send inside nodes, and between nodes, for a buffer of `elements`.
pub fn levels(schedule: &dyn Schedule, topology: &Topology, elements: usize) -> [usize; 2] {
    let bounds = Bounds::new(elements, schedule.chunks());
    let (mut sent, mut part) = ([0; 2], Part::default());
    for rank in 0..topology.ranks() {
        let node = topology.node(topology.node_of(rank));
        for step in 0..schedule.steps() {
            part.clear();
            schedule.part(rank, step, &mut part);
            for entry in &part.sends {
                let between = !node.contains(&entry.peer());
                sent[usize::from(between)] += bounds.elements(entry).len();
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::combinators::Pipelined;
    use crate::registry::{ALL, find};

    fn cost(name: &str, world: &Topology) -> Cost {
        Cost::of(&*find(name).unwrap().schedule(world).unwrap(), world)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// The textbook's forms, for n a power of two.
    #[test]
    fn closed_forms() {
        for bits in 0..=6_u32 {
            let n = 1_usize << bits;
            let world = Topology::flat(n);
            let (log, others) = (f64::from(bits), (n - 1) as f64 / n as f64);
            // One server gets and sends n - 1 buffers; a torus of 2^a x 2^b is as square as can be.
            let others_whole = 2.0 * (n - 1) as f64;
            let torus = 2.0 * ((1 << (bits / 2)) + (1 << bits.div_ceil(2)) - 2) as f64;
            for (name, latencies, sent, reduced) in [
                ("ring", 2.0 * (n - 1) as f64, 2.0 * others, others),
                ("tree", 2.0 * log, 2.0 * log, log),
                ("recursive-doubling", log, log, log),
                ("swing-latency", log, log, log),
                ("halving-doubling", 2.0 * log, 2.0 * others, others),
                ("swing", 2.0 * log, 2.0 * others, others),
                ("bine", 2.0 * log, 2.0 * others, others),
                ("pat", 2.0 * log, 2.0 * others, others),
                ("one-shot", if n > 1 { 1.0 } else { 0.0 }, (n - 1) as f64, (n - 1) as f64),
                ("two-shot", if n > 1 { 2.0 } else { 0.0 }, 2.0 * others, others),
                ("parameter-server", if n > 1 { 2.0 } else { 0.0 }, 2.0 * others, others),
                (
                    "parameter-server:1",
                    if n > 1 { 2.0 } else { 0.0 },
                    others_whole,
                    others_whole / 2.0,
                ),
                ("torus", torus, 2.0 * others, others),
            ] {
                let found = cost(name, &world);
                assert!(
                    close(found.between.latencies, latencies)
                        && close(found.between.sent, sent)
                        && close(found.reduced, reduced),
                    "{name} on {n}: {found:?}"
                );
            }
        }
    }

    /// Ranks beyond a power of two cost two latencies and two buffers, one of them combined.
    #[test]
    fn folding_costs_match_the_textbook() {
        for n in [3, 5, 6, 7, 12, 33] {
            let active = 1 << usize::ilog2(n);
            let folded = cost("halving-doubling", &Topology::flat(n));
            let inner = cost("halving-doubling", &Topology::flat(active));
            assert_eq!(folded.between.latencies, inner.between.latencies + 2.0);
            assert!(close(folded.between.sent, inner.between.sent + 2.0));
            assert!(close(folded.reduced, inner.reduced + 1.0));
        }
    }

    #[test]
    fn nothing_is_below_the_bounds() {
        for n in 1..=32 {
            let (world, bound) = (Topology::flat(n), Cost::bound(n));
            for entry in ALL {
                let found = cost(entry.name, &world);
                // They send to all at once, which the bound on latencies does not allow.
                let direct = ["one-shot", "two-shot", "auto"].contains(&entry.name);
                let server = entry.name == "parameter-server";
                assert!(
                    direct || server || found.between.latencies >= bound.between.latencies,
                    "{} {n}",
                    entry.name
                );
                assert!(
                    found.between.sent >= bound.between.sent - 1e-9
                        && found.reduced >= bound.reduced - 1e-9
                        && found.messages >= bound.messages.min(found.between.latencies)
                        && found.messages_mean >= bound.messages_mean - 1e-9,
                    "{} on {n}: {found:?}",
                    entry.name
                );
            }
        }
    }

    /// In C segments a schedule of s steps takes s + C - 1, and a double tree tends to 2 buffers.
    #[test]
    fn segments_trade_latencies_for_overlap() {
        let world = Topology::flat(64);
        let tree = find("double-tree").unwrap().schedule(&world).unwrap();
        let whole = Cost::of(&*tree, &world);
        let cut = Cost::of(&Pipelined::new(&*tree, 64), &world);
        assert_eq!(cut.between.latencies, whole.between.latencies + 63.0);
        assert!(whole.between.sent > 8.0 && cut.between.sent < 3.0, "{whole:?} {cut:?}");
    }

    #[test]
    fn small_buffers_ask_for_few_latencies_and_large_ones_for_few_bytes() {
        let link = Link { alpha_s: 2e-6, beta_s: 1e-10 };
        let machine = Machine { inside: link, between: link, gamma_s: 1e-11, overhead_s: 0.0 };
        let world = Topology::flat(64);
        let time = |name, size| cost(name, &world).time(size, &machine);
        assert!(time("recursive-doubling", 64) < time("ring", 64));
        assert!(time("ring", 1 << 30) < time("recursive-doubling", 1 << 30));
        assert!((time("recursive-doubling", 0) - 6.0 * 2e-6).abs() < 1e-12);
    }

    /// With g ranks on each of k nodes: rings of g inside, and between the nodes, all of a node's
    /// shards together, what an allreduce of the whole buffer over k ranks sends.
    #[test]
    fn hierarchical_pays_few_latencies_between_nodes() {
        for (k, g) in [(2, 2), (4, 6), (8, 4)] {
            let world = Topology::uniform(k, g);
            let (hierarchical, ring) = (cost("hierarchical:tree", &world), cost("ring", &world));
            let (across, log) = (2.0 * f64::from(k as u32).log2(), f64::from(k as u32).log2());
            assert_eq!(hierarchical.inside.latencies, 2.0 * (g - 1) as f64);
            assert!(close(hierarchical.inside.sent, 2.0 * (g - 1) as f64 / g as f64));
            assert!(close(hierarchical.between.latencies, across));
            assert!(close(hierarchical.between.sent, across));
            assert!(close(hierarchical.reduced, (g - 1) as f64 / g as f64 + log / g as f64));
            assert_eq!(ring.between.latencies, 2.0 * (k * g - 1) as f64);
            // The leader of a node gets g - 1 buffers, and sends as many.
            let leader = cost("leader:tree", &world);
            assert_eq!((leader.inside.latencies, leader.inside.sent), (2.0, 2.0 * (g - 1) as f64));
            assert!(close(leader.between.latencies, across) && close(leader.between.sent, across));
        }
    }

    /// One rank represents all that behave alike.
    #[test]
    fn rotationally_symmetric_ranks_are_counted_once() {
        struct Unturned(Box<dyn Schedule>);
        impl Schedule for Unturned {
            fn ranks(&self) -> usize {
                self.0.ranks()
            }
            fn chunks(&self) -> usize {
                self.0.chunks()
            }
            fn steps(&self) -> usize {
                self.0.steps()
            }
            fn part(&self, rank: usize, step: usize, part: &mut Part) {
                self.0.part(rank, step, part);
            }
        }
        for entry in ALL {
            for world in [Topology::flat(12), Topology::uniform(4, 3), Topology::uniform(3, 4)] {
                let schedule = || find(entry.name).unwrap().schedule(&world).unwrap();
                let whole = Cost::of(&Unturned(schedule()), &world);
                assert_eq!(Cost::of(&*schedule(), &world), whole, "{} on {world}", entry.name);
            }
        }
    }

    /// Each byte crosses the network once per node instead of once per rank.
    #[test]
    fn hierarchical_keeps_bytes_inside_nodes() {
        let world = Topology::uniform(4, 6);
        let share = |name: &str| {
            let schedule = find(name).unwrap().schedule(&world).unwrap();
            let [inside, between] = levels(&*schedule, &world, 2400);
            (inside as f64 / 2400.0, between as f64 / 2400.0)
        };
        assert_eq!(share("hierarchical"), (4.0 * 2.0 * 5.0, 2.0 * 3.0));
        // A flat ring enters every node once and leaves it once, with almost every chunk twice.
        let (inside, between) = share("ring");
        assert!((inside - 20.0 * 2.0 * 23.0 / 24.0).abs() < 1e-9);
        assert!((between - 4.0 * 2.0 * 23.0 / 24.0).abs() < 1e-9);
    }
}
