//! What a schedule costs in the alpha-beta-gamma model, counted from the schedule itself.
//!
//! A message of m bytes takes alpha + m beta; combining m bytes takes m gamma. Steps follow each
//! other, a rank sends and receives at the same time (full duplex), and messages of one step to
//! several peers share the rank's link but start together. So the time of an allreduce of S bytes is
//! `latencies` x alpha + `sent` x S beta + `reduced` x S gamma, see [`Cost::time`]. Nodes are ignored
//! here; [`levels`] counts what crosses them.
//!
//! The textbook's closed forms (Thakur, Rabenseifner and Gropp 2005; Patarasuk and Yuan 2009) are
//! this file's tests.

use crate::program::Bounds;
use crate::schedule::{Action, Part, Schedule};
use crate::topology::Topology;

/// The three coefficients of an allreduce's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Steps in which anything travels: how often alpha is paid.
    pub latencies: f64,
    /// Buffers that pass the busiest link, step by step: how often S beta is paid.
    pub sent: f64,
    /// Buffers that the busiest rank combines, step by step: how often S gamma is paid.
    pub reduced: f64,
}

/// A homogeneous machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Seconds per message.
    pub alpha_s: f64,
    /// Seconds per byte moved.
    pub beta_s: f64,
    /// Seconds per byte combined.
    pub gamma_s: f64,
}

impl Cost {
    /// Counts a schedule, step by step.
    pub fn of(schedule: &dyn Schedule) -> Cost {
        let chunk = 1.0 / schedule.chunks() as f64;
        let (mut cost, mut part) = (Cost::default(), Part::default());
        for step in 0..schedule.steps() {
            let (mut moved, mut reduced) = (0, 0);
            for rank in 0..schedule.ranks() {
                part.clear();
                schedule.part(rank, step, &mut part);
                let count = |moves: &[crate::schedule::Move], what: fn(Action) -> bool| {
                    let moves = moves.iter().filter(|entry| what(entry.action));
                    moves.map(|entry| entry.chunks().len()).sum::<usize>()
                };
                moved =
                    moved.max(count(&part.sends, |_| true)).max(count(&part.receives, |_| true));
                reduced = reduced.max(count(&part.receives, |action| action == Action::Reduce));
            }
            cost.latencies += f64::from(moved > 0);
            cost.sent += moved as f64 * chunk;
            cost.reduced += reduced as f64 * chunk;
        }
        cost
    }

    /// What no point-to-point allreduce of n ranks can do without, each by itself:
    /// ceil(log2 n) latencies, 2(n - 1)/n buffers sent, (n - 1)/n combined (Chan et al. 2007). No
    /// algorithm reaches all three.
    pub fn bound(ranks: usize) -> Cost {
        let others = (ranks - 1) as f64 / ranks as f64;
        let latencies = f64::from(ranks.next_power_of_two().ilog2());
        Cost { latencies, sent: 2.0 * others, reduced: others }
    }

    /// Seconds for an allreduce of so many bytes per rank.
    pub fn time(&self, size_bytes: usize, machine: &Machine) -> f64 {
        let size = size_bytes as f64;
        self.latencies * machine.alpha_s
            + self.sent * size * machine.beta_s
            + self.reduced * size * machine.gamma_s
    }
}

/// Elements that all ranks together send inside nodes, and between nodes, for a buffer of `elements`.
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
    use crate::combine::Pipelined;
    use crate::registry::{ALL, find};

    fn cost(name: &str, world: &Topology) -> Cost {
        Cost::of(&*find(name).unwrap().schedule(world).unwrap())
    }

    /// The textbook's forms, for n a power of two.
    #[test]
    fn closed_forms() {
        for bits in 0..=6 {
            let n = 1_usize << bits;
            let world = Topology::flat(n);
            let (log, others) = (bits as f64, (n - 1) as f64 / n as f64);
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
            ] {
                let found = cost(name, &world);
                let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
                assert!(
                    close(found.latencies, latencies)
                        && close(found.sent, sent)
                        && close(found.reduced, reduced),
                    "{name} on {n}: {found:?}"
                );
            }
        }
    }

    /// Ranks beyond a power of two cost two latencies and two buffers, one of them combined.
    #[test]
    fn folding_costs_what_the_textbook_says() {
        for n in [3, 5, 6, 7, 12, 33] {
            let active = 1 << usize::ilog2(n);
            let folded = cost("halving-doubling", &Topology::flat(n));
            let inner = cost("halving-doubling", &Topology::flat(active));
            assert_eq!(folded.latencies, inner.latencies + 2.0);
            assert!((folded.sent - inner.sent - 2.0).abs() < 1e-9);
            assert!((folded.reduced - inner.reduced - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_is_below_the_bounds() {
        for n in 1..=32 {
            let (world, bound) = (Topology::flat(n), Cost::bound(n));
            for entry in ALL {
                let found = cost(entry.name, &world);
                // One-shot sends to all at once, which the bound on latencies does not allow.
                let direct = entry.name == "one-shot" || entry.name == "two-shot";
                let server = entry.name == "parameter-server";
                assert!(
                    direct || server || found.latencies >= bound.latencies,
                    "{} {n}",
                    entry.name
                );
                assert!(found.sent >= bound.sent - 1e-9, "{} on {n}: {found:?}", entry.name);
                assert!(found.reduced >= bound.reduced - 1e-9, "{} on {n}: {found:?}", entry.name);
            }
        }
    }

    /// In C segments a schedule of s steps takes s + C - 1, and a double tree tends to 2 buffers.
    #[test]
    fn segments_trade_latencies_for_overlap() {
        let world = Topology::flat(64);
        let tree = find("double-tree").unwrap().schedule(&world).unwrap();
        let whole = Cost::of(&*tree);
        let cut = Cost::of(&Pipelined::new(&*tree, 64));
        assert_eq!(cut.latencies, whole.latencies + 63.0);
        assert!(whole.sent > 8.0 && cut.sent < 3.0, "{whole:?} {cut:?}");
    }

    #[test]
    fn small_buffers_ask_for_few_latencies_and_large_ones_for_few_bytes() {
        let (world, machine) =
            (Topology::flat(64), Machine { alpha_s: 2e-6, beta_s: 1e-10, gamma_s: 1e-11 });
        let time = |name, size| cost(name, &world).time(size, &machine);
        assert!(time("recursive-doubling", 64) < time("ring", 64));
        assert!(time("ring", 1 << 30) < time("recursive-doubling", 1 << 30));
        assert!((time("recursive-doubling", 0) - 6.0 * 2e-6).abs() < 1e-12);
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
