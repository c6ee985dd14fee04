//! Servers on nodes of their own, beside those of the workers: no algorithm for the ranks that there are, but a
//! schedule of a larger world, for virtual time.
//!
//! With g ranks on each of N worker nodes and K server nodes a buffer is cut into g shards, and each shard
//! into K chunks. A ring inside each worker node leaves shard l on local rank l; the ranks l of all worker
//! nodes push chunk j of it to rank l of server node j, which adds, and pull the sum; a second ring hands
//! the finished shards round. So a server's processor is in as many parts as a worker node has ranks.
//! One worker node needs no server.
//!
//! Behind every N / K worker nodes stands a server node, so that turning the world by these changes nothing.
//!
//! Cost: 2(g - 1) + 2 steps. A worker node sends its buffer to the network once, and a server node sends
//! N / K buffers: with as many servers as workers, half of what servers among the workers ask of a node.
//! No scheme asks less (BytePS); with fewer server nodes BytePS lets workers serve, too, which this does not.
//!
//! After Y. Jiang et al., "A unified architecture for accelerating distributed DNN training in
//! heterogeneous GPU/CPU clusters" (BytePS), OSDI 2020.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::algorithm::{Algorithm, Unsupported};
use crate::combinators::{Across, Sequence, Within};
use crate::hierarchical::Hierarchical;
use crate::ring::{self, Ring};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Its name in simulations; `:K` may follow.
pub const NAME: &str = "server-nodes";

/// A server receives a message from every worker node at once; the limit is that of a parameter server.
const MOST_NODES: usize = 1024;

/// Parameter servers on nodes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerNodes {
    /// The number of servers; if `None`, as many as there are worker nodes.
    pub count: Option<NonZeroUsize>,
}

/// What follows the name is no number of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCount {
    /// What follows it.
    pub found: String,
}

impl fmt::Display for InvalidCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} takes a number of at least 1, but {:?} was found", self.found)
    }
}

impl std::error::Error for InvalidCount {}

impl ServerNodes {
    /// Parses `server-nodes` or `server-nodes:K`; `None` for another name.
    ///
    /// # Errors
    /// When what follows the name is no number of at least 1.
    pub fn find(name: &str) -> Option<Result<ServerNodes, InvalidCount>> {
        let (base, count) = match name.split_once(':') {
            Some((base, count)) => (base, Some(count)),
            None => (name, None),
        };
        let count =
            count.map(|count| count.parse().map_err(|_| InvalidCount { found: count.into() }));
        (base == NAME).then(|| count.transpose().map(|count| ServerNodes { count }))
    }

    /// The schedule of workers and servers together. It has more ranks than there are workers, unless those
    /// are on one node.
    ///
    /// # Errors
    /// When nodes differ in size, are too many, or cannot share the servers evenly.
    pub fn schedule(&self, workers: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let nodes = workers.nodes();
        let local_size = workers.local_size().ok_or_else(|| {
            Unsupported(format!("{NAME} needs nodes of one size, but these have {workers} ranks"))
        })?;
        if nodes == 1 {
            return Hierarchical { inner: Arc::new(Ring) }.schedule(workers);
        }
        let servers = self.count.map_or(nodes, NonZeroUsize::get);
        if nodes > MOST_NODES {
            return Err(Unsupported(format!(
                "{NAME} supports at most {MOST_NODES} nodes of workers, but there are {nodes}: a server \
                 takes a message from every one of them at once"
            )));
        }
        if !nodes.is_multiple_of(servers) {
            return Err(Unsupported(format!(
                "{NAME}:{servers} needs a multiple of {servers} nodes of workers, but there are {nodes}"
            )));
        }
        let layout = Layout { servers, workers: nodes / servers };
        let world = Topology::uniform(layout.nodes(), local_size);
        let inside =
            |ring| Box::new(InWorkers { layout, inner: Within::new(&world, ring, servers) });
        Ok(Box::new(Sequence::new(vec![
            inside(ring::reduce_scatter(local_size)),
            Box::new(Across::new(local_size, PushPull { layout })),
            inside(ring::all_gather(local_size)),
        ])))
    }
}

/// The order of nodes: some workers, then a server, and so on.
#[derive(Clone, Copy)]
struct Layout {
    servers: usize,
    /// For each server.
    workers: usize,
}

impl Layout {
    fn nodes(self) -> usize {
        self.servers * self.turn()
    }

    fn turn(self) -> usize {
        self.workers + 1
    }

    fn serves(self, node: usize) -> bool {
        node % self.turn() == self.workers
    }

    /// The node that serves a chunk.
    fn server(self, chunk: usize) -> usize {
        chunk * self.turn() + self.workers
    }
}

/// One rank of each node: workers push, servers add, workers pull.
struct PushPull {
    layout: Layout,
}

impl Schedule for PushPull {
    fn ranks(&self) -> usize {
        self.layout.nodes()
    }

    fn chunks(&self) -> usize {
        self.layout.servers
    }

    fn steps(&self) -> usize {
        2
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (to_servers, to_workers, action) = match step {
            0 => (&mut part.sends, &mut part.receives, Action::Reduce),
            _ => (&mut part.receives, &mut part.sends, Action::Copy),
        };
        let Layout { servers, .. } = self.layout;
        let near = rank / self.layout.turn();
        let one = |peer: Rank, chunk: usize| Move::new(peer, chunk..chunk + 1, action);
        if self.layout.serves(rank) {
            let others = (1..self.ranks()).map(|distance| (rank + distance) % self.ranks());
            let workers = others.filter(|&other| !self.layout.serves(other));
            to_workers.extend(workers.map(|worker| one(worker, near)));
        } else {
            // Everybody begins with the next one around, so that no server has all workers at once.
            let chunks = (near..near + servers).map(|place| place % servers);
            to_servers.extend(chunks.map(|chunk| one(self.layout.server(chunk), chunk)));
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        !self.layout.serves(rank)
    }

    fn rotation(&self) -> usize {
        self.layout.turn()
    }
}

/// A schedule inside nodes, of which those that serve are idle.
struct InWorkers<S> {
    layout: Layout,
    inner: Within<S>,
}

impl<S: Schedule> InWorkers<S> {
    /// The ranks of a node.
    fn local_size(&self) -> usize {
        self.inner.rotation()
    }
}

impl<S: Schedule> Schedule for InWorkers<S> {
    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn chunks(&self) -> usize {
        self.inner.chunks()
    }

    fn steps(&self) -> usize {
        self.inner.steps()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        if self.contributes(rank) {
            self.inner.part(rank, step, part);
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        !self.layout.serves(rank / self.local_size())
    }

    fn rotation(&self) -> usize {
        self.layout.turn() * self.local_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Volume;
    use crate::combinators::Pipelined;
    use crate::listed::Listed;
    use crate::schedule::Drawing;
    use crate::verify::{Violation, schedule_moves};

    fn schedule(name: &str, workers: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        ServerNodes::find(name).unwrap().unwrap().schedule(workers)
    }

    /// What the head of this file promises of each rank of the whole world.
    fn promised(nodes: usize, servers: usize, local_size: usize) -> Vec<Volume> {
        let layout = Layout { servers, workers: nodes / servers };
        let of = |rank: usize| {
            let moved = if layout.serves(rank / local_size) {
                nodes
            } else {
                2 * (local_size - 1) * servers + servers
            };
            Volume { sent: moved, received: moved }
        };
        (0..layout.nodes() * local_size).map(of).collect()
    }

    #[test]
    fn every_worker_ends_with_the_sum_of_all_workers() {
        let mut proved = 0;
        for nodes in 2..=12 {
            for servers in (1..=nodes).filter(|servers| nodes % servers == 0) {
                for local_size in [1, 2, 3, 6] {
                    let workers = Topology::uniform(nodes, local_size);
                    let whole = schedule(&format!("{NAME}:{servers}"), &workers).unwrap();
                    assert_eq!(whole.ranks(), (nodes + servers) * local_size);
                    let volumes = promised(nodes, servers, local_size);
                    let proof = schedule_moves(&*whole, &volumes)
                        .unwrap_or_else(|why| panic!("{servers} servers for {workers}: {why}"));
                    assert_eq!(proof.steps, 2 * (local_size - 1) + 2);
                    let contributes = (0..whole.ranks()).filter(|&rank| whole.contributes(rank));
                    assert_eq!(contributes.count(), workers.ranks());
                    proved += 1;
                }
            }
        }
        assert!(proved > 100, "{proved} proofs");
    }

    #[test]
    fn in_segments_it_is_the_same() {
        let whole = schedule("server-nodes:2", &Topology::uniform(4, 3)).unwrap();
        let whole = Pipelined::new(whole, 3);
        let volume =
            |volume: Volume| Volume { sent: 3 * volume.sent, received: 3 * volume.received };
        let volumes: Vec<Volume> = promised(4, 2, 3).into_iter().map(volume).collect();
        schedule_moves(&whole, &volumes).unwrap();
    }

    /// One push less, and one worker's part is missing; a server that had a part of its own would be one more.
    #[test]
    fn a_missing_push_of_a_worker_is_detected() {
        let whole = schedule(NAME, &Topology::flat(3)).unwrap();
        let mut listed = Listed::of(&*whole);
        let push = listed.steps[0][2].sends.remove(0);
        listed.steps[0][push.peer()].receives.retain(|receive| receive.peer() != 2);
        struct Same(Listed, Box<dyn Schedule>);
        impl Schedule for Same {
            fn ranks(&self) -> usize {
                self.0.ranks()
            }
            fn chunks(&self) -> usize {
                self.0.chunks()
            }
            fn steps(&self) -> usize {
                self.0.steps()
            }
            fn part(&self, rank: Rank, step: usize, part: &mut Part) {
                self.0.part(rank, step, part);
            }
            fn contributes(&self, rank: Rank) -> bool {
                self.1.contributes(rank)
            }
        }
        let why = schedule_moves(&Same(listed, whole), &promised(3, 3, 1)).unwrap_err();
        assert!(matches!(why, Violation::MissingPart { part: 2, .. }), "{why}");
        let all = Listed::of(&*schedule(NAME, &Topology::flat(3)).unwrap());
        let why = schedule_moves(&all, &promised(3, 3, 1)).unwrap_err();
        assert!(matches!(why, Violation::MissingPart { .. }), "{why}");
    }

    #[test]
    fn turning_the_world_changes_only_chunk_names() {
        for (nodes, servers, local_size) in [(6, 2, 2), (4, 4, 3), (5, 1, 1)] {
            let workers = Topology::uniform(nodes, local_size);
            let whole = schedule(&format!("{NAME}:{servers}"), &workers).unwrap();
            let (ranks, turn) = (whole.ranks(), whole.rotation());
            assert_eq!(turn, (nodes / servers + 1) * local_size);
            let shape = |rank: Rank, step: usize, turned_by: usize| {
                let mut part = Part::default();
                whole.part(rank, step, &mut part);
                let peer = |of: &Move| (of.peer() + ranks - turned_by) % ranks;
                let show = |moves: &[Move]| -> Vec<_> {
                    moves.iter().map(|m| (peer(m), m.chunks().len(), m.action)).collect()
                };
                (show(&part.sends), show(&part.receives))
            };
            for (step, rank) in (0..whole.steps()).flat_map(|s| (0..ranks).map(move |r| (s, r))) {
                let turned = shape((rank + turn) % ranks, step, turn);
                assert_eq!(shape(rank, step, 0), turned, "rank {rank} in step {step}");
            }
        }
    }

    #[test]
    fn two_workers_and_two_servers_step_by_step() {
        let drawn = Drawing(&*schedule(NAME, &Topology::flat(2)).unwrap()).to_string();
        assert_eq!(
            drawn,
            "\
step 0:  0+>1 c0  0+>3 c1  2+>3 c1  2+>1 c0
step 1:  1->2 c0  1->0 c0  3->0 c1  3->2 c1
"
        );
    }

    #[test]
    fn one_node_has_no_servers() {
        let whole = schedule(NAME, &Topology::uniform(1, 6)).unwrap();
        assert_eq!((whole.ranks(), whole.steps()), (6, 10));
    }

    #[test]
    fn what_there_is_not_is_said() {
        let refused = |name: &str, workers: &Topology| match schedule(name, workers) {
            Ok(_) => panic!("{name} was accepted"),
            Err(why) => why.to_string(),
        };
        assert_eq!(
            refused("server-nodes:3", &Topology::flat(4)),
            "server-nodes:3 needs a multiple of 3 nodes of workers, but there are 4"
        );
        assert!(refused(NAME, &Topology::new(&[2, 1])).contains("nodes of one size"));
        assert!(
            refused(NAME, &Topology::flat(1025)).starts_with("server-nodes supports at most 1024")
        );
        assert_eq!(ServerNodes::find("ring"), None);
        for wrong in ["server-nodes:0", "server-nodes:x", "server-nodes:"] {
            let why = ServerNodes::find(wrong).unwrap().unwrap_err().to_string();
            assert!(why.starts_with("server-nodes takes a number of at least 1"), "{why}");
        }
    }
}
