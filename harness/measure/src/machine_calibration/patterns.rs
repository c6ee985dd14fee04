//! The programs that a calibration runs: small schedules, none of them an allreduce.

use std::fmt;

use algorithms::algorithm::Choice;
use algorithms::listed::Listed;
use algorithms::registry;
use algorithms::schedule::{Action, Move, Part};
use algorithms::topology::{Rank, Topology};

use transports::data_plane::{DataPlane, Schedules};

/// Between which ranks messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Ranks of a node, all at once.
    Inside,
    /// One rank of each node.
    Between,
    /// All ranks of each node at once with those of another.
    AllBetween,
}

/// The shape of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// The two ranks of a pair send each other a message in every step, as collectives do. Each can begin the next
    /// step only when it has the message, which it then sends.
    Exchange {
        /// Messages are combined with the chunk, not copied.
        reduces: bool,
    },
    /// The same, copied, with several segments of a longer message under way: see [`segments`].
    Stream,
    /// The same, of every rank with two others at once: see [`neighbours`].
    Neighbours,
    /// One rank of a pair sends several segments of a longer message; the other combines each, and sends it back.
    Crossing,
    /// They combine messages in a single step, with chunks that no other rank has read before, as in a
    /// reduce-scatter.
    ReduceOnce,
    /// One rank of a pair sends everything; the other combines it and sends nothing.
    Silent,
    /// The same, and then the other sends the result back.
    ThereAndBack,
    /// One of a pair sends the other many messages in one step, and gets one back.
    Burst,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Inside => "on a node",
            Reach::Between => "between nodes, one rank of each",
            Reach::AllBetween => "between nodes, all ranks",
        })
    }
}

/// The pairs of a reach: neighbours on a node, or ranks with the same local rank on neighbouring nodes. An
/// unmatched rank is idle.
pub fn pairs(topology: &Topology, reach: Reach) -> Vec<(Rank, Rank)> {
    let nodes = topology.nodes();
    let local_size = topology.local_size().unwrap_or(1);
    let at = |node: usize, local: usize| topology.node(node).start + local;
    let (nodes, locals) = match reach {
        Reach::Inside => (nodes, local_size / 2),
        Reach::Between => (nodes / 2, 1),
        Reach::AllBetween => (nodes / 2, local_size),
    };
    let pair = |node: usize, local: usize| match reach {
        Reach::Inside => (at(node, 2 * local), at(node, 2 * local + 1)),
        _ => (at(2 * node, local), at(2 * node + 1, local)),
    };
    (0..nodes).flat_map(|node| (0..locals).map(move |local| pair(node, local))).collect()
}

/// One rank of each node with that of the next node, and with that of the node before: each has two partners, except on
/// the first and the last one of an odd number of nodes.
pub fn neighbours(topology: &Topology) -> Vec<(Rank, Rank)> {
    let nodes = topology.nodes();
    let pairs = if nodes.is_multiple_of(2) { nodes } else { nodes - 1 };
    let first = |node: usize| topology.node(node % nodes).start;
    (0..pairs).map(|node| (first(node), first(node + 1))).collect()
}

/// A shape between some pairs of a world: with `length` steps, or with `length` messages in one step.
pub fn schedule(ranks: usize, pairs: &[(Rank, Rank)], shape: Shape, length: usize) -> Listed {
    let chunks = chunks(shape, length);
    let steps = match shape {
        Shape::Exchange { .. } | Shape::Stream | Shape::Neighbours => length,
        Shape::ReduceOnce | Shape::Silent => 1,
        // The longer form has a second step.
        Shape::ThereAndBack | Shape::Crossing => length,
        Shape::Burst => 2,
    };
    let mut listed = Listed { ranks, chunks, steps: vec![vec![Part::default(); ranks]; steps] };
    for (step, parts) in listed.steps.iter_mut().enumerate() {
        let mut carry = |from: Rank, to: Rank, chunk: usize, action| {
            parts[from].sends.push(Move::new(to, chunk..chunk + 1, action));
            parts[to].receives.push(Move::new(from, chunk..chunk + 1, action));
        };
        for (index, &(a, b)) in pairs.iter().enumerate() {
            match shape {
                // Chunks of a rank's two pairs differ.
                Shape::Neighbours => {
                    let offset = 2 * (index % 2);
                    carry(a, b, offset + step % 2, Action::Copy);
                    carry(b, a, offset + (step + 1) % 2, Action::Copy);
                }
                Shape::Exchange { .. } | Shape::Stream | Shape::ReduceOnce => {
                    let reduces =
                        matches!(shape, Shape::Exchange { reduces: true } | Shape::ReduceOnce);
                    let action = if reduces { Action::Reduce } else { Action::Copy };
                    carry(a, b, step % 2, action);
                    carry(b, a, (step + 1) % 2, action);
                }
                Shape::Silent | Shape::ThereAndBack | Shape::Crossing if step == 0 => {
                    carry(a, b, 0, Action::Reduce);
                }
                Shape::Silent | Shape::ThereAndBack | Shape::Crossing => {
                    carry(b, a, 0, Action::Copy)
                }
                Shape::Burst if step == 0 => {
                    (0..length).for_each(|chunk| carry(a, b, chunk, Action::Copy));
                }
                Shape::Burst => carry(b, a, 0, Action::Copy),
            }
        }
    }
    listed
}

/// Into how many messages of the pattern a buffer is cut.
pub fn chunks(shape: Shape, length: usize) -> usize {
    match shape {
        Shape::Exchange { .. } | Shape::Stream | Shape::ReduceOnce => 2,
        Shape::Silent | Shape::ThereAndBack | Shape::Crossing => 1,
        Shape::Neighbours => 4,
        Shape::Burst => length,
    }
}

/// Into how many segments a buffer is cut, each with a message of its own in every step. The executor sends four
/// segments ahead, so that a link never idles.
pub fn segments(shape: Shape) -> usize {
    match shape {
        Shape::Stream | Shape::Neighbours | Shape::Crossing => 4,
        _ => 1,
    }
}

/// Runs a schedule as any algorithm's: through the same executor.
///
/// # Panics
/// Never: ring is registered, and lends only that it does not group tensors.
pub fn plane(schedule: Listed) -> DataPlane {
    let algorithm = registry::find("ring").expect("ring is registered");
    let choice = Choice { from_bytes: 0, name: "pattern".into(), schedule: Box::new(schedule) };
    DataPlane::Ours(Schedules { algorithm, choices: vec![choice] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use algorithms::segments::pipelined;
    use algorithms::simulate::machine::{Machine, Reduction};
    use algorithms::simulate::rounds::simulate;

    #[test]
    fn pairs_are_where_they_should_be() {
        let world = Topology::uniform(3, 4);
        assert_eq!(pairs(&world, Reach::Between), [(0, 4)]);
        assert_eq!(pairs(&world, Reach::AllBetween), [(0, 4), (1, 5), (2, 6), (3, 7)]);
        assert_eq!(
            pairs(&world, Reach::Inside),
            [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
        );
        assert_eq!(pairs(&Topology::uniform(1, 3), Reach::Inside), [(0, 1)]);
        assert_eq!(pairs(&Topology::flat(4), Reach::Between), [(0, 1), (2, 3)]);
    }

    /// In the simulator an exchange takes exactly the fitted line of steps and bytes.
    #[test]
    fn a_step_of_an_exchange_is_a_message_alone() {
        let machine = Machine {
            reduction: Reduction::alike(7e-10, 3e-10),
            ..Machine::flat(5e-6, 2e-10, 0.0)
        };
        for (reduces, per_byte) in [(false, 5e-10), (true, 9e-10)] {
            let exchange =
                |steps| schedule(5, &[(0, 1), (2, 3)], Shape::Exchange { reduces }, steps);
            let time = |steps| simulate(&exchange(steps), &machine, 2e6, &[]).unwrap().end.at_s;
            assert!(((time(6) - time(2)) / 4.0 / (5e-6 + 1e6 * per_byte) - 1.0).abs() < 1e-9);
        }
    }

    /// With four messages under way, in the simulator, too, a message takes what its bytes occupy the link for, however
    /// late its first byte is.
    #[test]
    fn a_step_of_a_stream_is_the_links_bandwidth() {
        let mut machine = Machine::flat(1e-4, 2e-10, 1e-11);
        machine.network.0[0].alpha_per_byte_s = 3e-10;
        let bytes = 1e6;
        let segment_bytes = bytes as usize * chunks(Shape::Stream, 1);
        let time = |shape, steps| {
            let schedule = schedule(2, &[(0, 1)], shape, steps);
            let size_bytes = segments(shape) * segment_bytes;
            let schedule = pipelined(&schedule, size_bytes, segment_bytes, false);
            simulate(&schedule, &machine, size_bytes as f64, &[]).unwrap().end.at_s
        };
        let step_s = |shape| (time(shape, 6) - time(shape, 2)) / 4.0 / segments(shape) as f64;
        let alone = step_s(Shape::Exchange { reduces: false });
        assert!((alone / (1e-4 + bytes * 5e-10) - 1.0).abs() < 1e-9, "{alone}");
        let stream = step_s(Shape::Stream);
        assert!((stream / (bytes * 2e-10) - 1.0).abs() < 1e-9, "{stream}");
    }

    /// With two partners a rank sends and receives twice as much, and each byte takes longer where partners count.
    #[test]
    fn a_step_between_neighbours_is_two_messages_at_the_rate_of_two_partners() {
        let four = Topology::flat(4);
        assert_eq!(neighbours(&four), [(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(neighbours(&Topology::uniform(5, 2)), [(0, 2), (2, 4), (4, 6), (6, 8)]);
        let mut machine = Machine::flat(1e-4, 2e-10, 0.0);
        machine.network.0[0].per_partner = 0.25;
        let (bytes, shape) = (1e6, Shape::Neighbours);
        let segment_bytes = bytes as usize * chunks(shape, 1);
        let size_bytes = segments(shape) * segment_bytes;
        let time = |steps| {
            let schedule = schedule(4, &neighbours(&four), shape, steps);
            let schedule = pipelined(&schedule, size_bytes, segment_bytes, false);
            simulate(&schedule, &machine, size_bytes as f64, &[]).unwrap().end.at_s
        };
        let step_s = (time(6) - time(2)) / 4.0 / segments(shape) as f64;
        assert!((step_s / (2.0 * bytes * 2e-10 * 1.25) - 1.0).abs() < 1e-9, "{step_s}");
    }
}
