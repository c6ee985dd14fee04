//! Parameter server: every rank pushes each part of the buffer to its server and pulls the sum.
//!
//! The buffer is cut into k chunks for k servers. In the first step all ranks send chunk j to server
//! j, which adds; in the second, servers send the sums back. Servers are ranks themselves, as on
//! clusters without spare machines: the first rank of each node, or, as `parameter-server:K`, K ranks
//! evenly over the world, server j being rank floor(j n / K).
//!
//! Cost: 2 steps. A rank sends its buffer once (a server keeps its own chunk) and a server sends one
//! chunk to each of the n - 1 others: the fewer servers, the busier they are. With n servers it is
//! the two-shot algorithm.
//!
//! After Y. Jiang et al., "A unified architecture for accelerating distributed DNN training in
//! heterogeneous GPU/CPU clusters" (BytePS), OSDI 2020.

use std::num::NonZeroUsize;

use crate::algorithm::{Algorithm, Limit, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Servers among the ranks.
pub struct ParameterServer {
    /// The number of servers, evenly over the ranks; if `None`, the first rank of every node serves.
    pub servers: Option<NonZeroUsize>,
}

impl ParameterServer {
    /// The ranks that serve, ascending: one for each chunk.
    fn servers(&self, topology: &Topology) -> Vec<Rank> {
        let ranks = topology.ranks();
        match self.servers {
            None => (0..topology.nodes()).map(|node| topology.node(node).start).collect(),
            Some(servers) => {
                let servers = servers.get().min(ranks);
                (0..servers).map(|server| server * ranks / servers).collect()
            }
        }
    }
}

impl Algorithm for ParameterServer {
    fn name(&self) -> String {
        match self.servers {
            None => "parameter-server".into(),
            Some(servers) => format!("parameter-server:{servers}"),
        }
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let ranks = topology.ranks();
        match self.servers {
            Some(servers) if servers.get() > ranks => Err(Unsupported(format!(
                "{} needs {servers} ranks to serve, but there are {ranks}; use at most \
                 parameter-server:{ranks}",
                self.name()
            ))),
            _ => Ok(Box::new(PushPull { ranks, servers: self.servers(topology) })),
        }
    }

    fn steps(&self, topology: &Topology) -> usize {
        if topology.ranks() > 1 { 2 } else { 0 }
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let servers = self.servers(topology);
        let is_server = usize::from(servers.contains(&rank));
        let served = is_server * (topology.ranks() - 1);
        let pushed = servers.len() - is_server;
        Volume { sent: pushed + served, received: pushed + served }
    }

    /// A server takes n - 1 messages at once, whatever the number of servers.
    fn limit(&self) -> Option<Limit> {
        Some(Limit {
            ranks: 1024,
            because: "a server takes a message from every other rank at once",
            instead: "leader:parameter-server, with one worker on each node",
        })
    }
}

struct PushPull {
    ranks: usize,
    /// Of each chunk; ascending.
    servers: Vec<Rank>,
}

impl Schedule for PushPull {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn chunks(&self) -> usize {
        self.servers.len()
    }

    fn steps(&self) -> usize {
        if self.ranks > 1 { 2 } else { 0 }
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (to_servers, to_workers, action) = match step {
            0 => (&mut part.sends, &mut part.receives, Action::Reduce),
            _ => (&mut part.receives, &mut part.sends, Action::Copy),
        };
        // Everybody begins with the next one around, so that no server has all workers at once.
        let first = self.servers.partition_point(|&server| server <= rank);
        let count = self.servers.len();
        let others = (first..first + count).map(|place| place % count);
        to_servers.extend(
            others
                .filter(|&chunk| self.servers[chunk] != rank)
                .map(|chunk| Move::new(self.servers[chunk], chunk..chunk + 1, action)),
        );
        if let Ok(own) = self.servers.binary_search(&rank) {
            let workers = (1..self.ranks).map(|distance| (rank + distance) % self.ranks);
            to_workers.extend(workers.map(|worker| Move::new(worker, own..own + 1, action)));
        }
    }

    fn rotation(&self) -> usize {
        let turn = self.ranks / self.servers.len();
        let mut evenly = self.servers.windows(2).all(|pair| pair[1] - pair[0] == turn);
        evenly &= self.ranks == turn * self.servers.len();
        if evenly { turn } else { self.ranks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use crate::schedule::Drawing;
    use crate::verify;

    #[test]
    fn any_number_of_servers_gives_every_rank_every_part() {
        for ranks in 1..=16 {
            for servers in 1..=ranks {
                let algorithm = find(&format!("parameter-server:{servers}")).unwrap();
                let world = Topology::flat(ranks);
                let proof = verify::algorithm(&*algorithm, &world)
                    .unwrap_or_else(|why| panic!("{servers} servers, {ranks} ranks: {why}"));
                assert_eq!(proof.steps, if ranks > 1 { 2 } else { 0 });
                assert_eq!(proof.sent_most, ranks - 1 + servers - 1, "a server's");
            }
        }
    }

    #[test]
    fn servers_stand_evenly() {
        let algorithm = ParameterServer { servers: NonZeroUsize::new(3) };
        assert_eq!(algorithm.servers(&Topology::uniform(4, 2)), [0, 2, 5]);
        let per_node = ParameterServer { servers: None };
        assert_eq!(per_node.servers(&Topology::new(&[3, 1, 2])), [0, 3, 4]);
    }

    #[test]
    fn a_worker_moves_one_buffer_each_way() {
        let world = Topology::flat(9);
        let algorithm = find("parameter-server:3").unwrap();
        assert_eq!(algorithm.volume(&world, 1), Volume { sent: 3, received: 3 });
        assert_eq!(algorithm.volume(&world, 6), Volume { sent: 2 + 8, received: 2 + 8 });
    }

    #[test]
    fn more_servers_than_ranks_are_refused() {
        let refused = |name: &str| match find(name).unwrap().schedule(&Topology::flat(4)) {
            Ok(_) => panic!("{name} was accepted"),
            Err(why) => why.to_string(),
        };
        assert_eq!(
            refused("parameter-server:5"),
            "parameter-server:5 needs 5 ranks to serve, but there are 4; use at most \
             parameter-server:4"
        );
        assert!(refused(&format!("parameter-server:{}", usize::MAX)).contains("there are 4"));
    }

    #[test]
    fn two_nodes_step_by_step() {
        let drawn = |name: &str, world: &Topology| {
            Drawing(&*find(name).unwrap().schedule(world).unwrap()).to_string()
        };
        assert_eq!(
            drawn("parameter-server", &Topology::new(&[2, 1])),
            "\
step 0:  0+>2 c1  1+>2 c1  1+>0 c0  2+>0 c0
step 1:  0->1 c0  0->2 c0  2->0 c1  2->1 c1
"
        );
        assert_eq!(
            drawn("parameter-server:1", &Topology::flat(3)),
            "\
step 0:  1+>0 c0  2+>0 c0
step 1:  0->1 c0  0->2 c0
"
        );
    }
}
