//! Parameter server: every rank pushes each part of the buffer to its server and pulls the sum.
//!
//! One server per node, its first rank: the buffer is cut into k chunks for k nodes. In the first
//! step all ranks send chunk j to server j, which adds; in the second, servers send the sums back.
//! Servers are ranks themselves, as on clusters without spare machines.
//!
//! Cost: 2 steps. A rank sends its buffer once (a server keeps its own chunk) and a server sends one
//! chunk to each of the n - 1 others: the fewer servers, the busier they are.
//!
//! After Y. Jiang et al., "A unified architecture for accelerating distributed DNN training in
//! heterogeneous GPU/CPU clusters" (BytePS), OSDI 2020.

use crate::registry::{Algorithm, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// A server on every node.
pub struct ParameterServer;

impl Algorithm for ParameterServer {
    fn name(&self) -> String {
        "parameter-server".into()
    }

    fn schedule(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(PushPull { topology: topology.clone() }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        if topology.ranks() > 1 { 2 } else { 0 }
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let is_server = usize::from(topology.local_rank(rank) == 0);
        let served = is_server * (topology.ranks() - 1);
        let pushed = topology.nodes() - is_server;
        Volume { sent: pushed + served, received: pushed + served }
    }
}

struct PushPull {
    topology: Topology,
}

impl Schedule for PushPull {
    fn ranks(&self) -> usize {
        self.topology.ranks()
    }

    fn chunks(&self) -> usize {
        self.topology.nodes()
    }

    fn steps(&self) -> usize {
        if self.ranks() > 1 { 2 } else { 0 }
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let (to_servers, to_workers, action) = match step {
            0 => (&mut part.sends, &mut part.receives, Action::Reduce),
            _ => (&mut part.receives, &mut part.sends, Action::Copy),
        };
        let server = |chunk: usize| self.topology.node(chunk).start;
        for chunk in (0..self.chunks()).filter(|&chunk| server(chunk) != rank) {
            to_servers.push(Move::new(server(chunk), chunk..chunk + 1, action));
        }
        let own = self.topology.node_of(rank);
        if server(own) == rank {
            let workers = (0..self.ranks()).filter(|&worker| worker != rank);
            to_workers.extend(workers.map(|worker| Move::new(worker, own..own + 1, action)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn two_nodes_step_by_step() {
        let schedule = ParameterServer.schedule(&Topology::new(&[2, 1])).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>2 c1  1+>0 c0  1+>2 c1  2+>0 c0
step 1:  0->1 c0  0->2 c0  2->0 c1  2->1 c1
"
        );
    }
}
