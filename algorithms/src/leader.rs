//! Leader-based allreduce: every node's ranks send to its first rank, leaders allreduce among
//! themselves, and hand the result out.
//!
//! First each rank sends its whole buffer to the leader of its node, then the leaders run any inner
//! algorithm over k nodes, then they copy the result to their nodes. Nodes may differ in size.
//!
//! Cost: 2 steps and those of the inner algorithm over k ranks. A leader receives g - 1 buffers and
//! sends as many; one rank per node uses the network, so it pays where one rank can fill it.
//!
//! After the two-level schemes of MPI libraries, e.g. Open MPI's HAN.

use std::sync::Arc;

use crate::algorithm::{Algorithm, Unsupported, Volume, across_nodes, compose};
use crate::combinators::Sequence;
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// `inner` among the first ranks of the nodes.
pub struct Leader {
    /// Runs among leaders.
    pub inner: Arc<dyn Algorithm>,
}

impl Algorithm for Leader {
    fn name(&self) -> String {
        compose("leader", &*self.inner)
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let chunks = across_nodes(&*self.inner, topology)?.chunks();
        let phase = |action| Box::new(WithLeader { topology: topology.clone(), chunks, action });
        let (topology, inner) = (topology.clone(), across_nodes(&*self.inner, topology)?);
        let phases: Vec<Box<dyn Schedule>> = vec![
            phase(Action::Reduce),
            Box::new(AmongLeaders { topology, inner }),
            phase(Action::Copy),
        ];
        Ok(Box::new(Sequence::new(phases)))
    }

    fn steps(&self, topology: &Topology) -> usize {
        let inside = if topology.ranks() > topology.nodes() { 2 } else { 0 };
        inside + self.inner.steps(&Topology::flat(topology.nodes()))
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let chunks = across_nodes(&*self.inner, topology).map_or(0, |schedule| schedule.chunks());
        let node = topology.node_of(rank);
        if topology.local_rank(rank) > 0 {
            return Volume { sent: chunks, received: chunks };
        }
        let inner = self.inner.volume(&Topology::flat(topology.nodes()), node);
        let inside = (topology.node(node).len() - 1) * chunks;
        Volume { sent: inner.sent + inside, received: inner.received + inside }
    }
}

/// One step between every rank and its leader: towards it, adding, or back, copying.
struct WithLeader {
    topology: Topology,
    chunks: usize,
    action: Action,
}

impl Schedule for WithLeader {
    fn ranks(&self) -> usize {
        self.topology.ranks()
    }

    fn chunks(&self) -> usize {
        self.chunks
    }

    fn steps(&self) -> usize {
        usize::from(self.topology.ranks() > self.topology.nodes())
    }

    fn part(&self, rank: Rank, _step: usize, part: &mut Part) {
        let mut node = self.topology.node(self.topology.node_of(rank));
        let leader = node.start;
        let (to_leader, to_others) = match self.action {
            Action::Reduce => (&mut part.sends, &mut part.receives),
            Action::Copy => (&mut part.receives, &mut part.sends),
        };
        let all = |peer| Move::new(peer, 0..self.chunks, self.action);
        if rank == leader {
            node.next();
            to_others.extend(node.map(all));
        } else {
            to_leader.push(all(leader));
        }
    }

    fn rotation(&self) -> usize {
        self.topology.local_size().unwrap_or(self.ranks())
    }
}

/// The inner schedule on the first ranks of the nodes; the others are idle.
struct AmongLeaders {
    topology: Topology,
    inner: Box<dyn Schedule>,
}

impl Schedule for AmongLeaders {
    fn ranks(&self) -> usize {
        self.topology.ranks()
    }

    fn chunks(&self) -> usize {
        self.inner.chunks()
    }

    fn steps(&self) -> usize {
        self.inner.steps()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        if self.topology.local_rank(rank) == 0 {
            let leader = |node: Rank| self.topology.node(node).start;
            crate::combinators::renamed(
                &*self.inner,
                self.topology.node_of(rank),
                step,
                part,
                leader,
            );
        }
    }

    fn rotation(&self) -> usize {
        match self.topology.local_size() {
            Some(local_size) => self.inner.rotation() * local_size,
            None => self.ranks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use crate::schedule::Drawing;
    use crate::verify;

    #[test]
    fn nodes_of_different_sizes_are_fine() {
        for sizes in [&[3, 1][..], &[1, 5], &[2, 2, 7], &[6, 6, 6, 3], &[1, 1, 1]] {
            for name in ["leader", "leader:tree", "leader:halving-doubling"] {
                let world = Topology::new(sizes);
                verify::algorithm(&*find(name).unwrap(), &world)
                    .unwrap_or_else(|why| panic!("{name} on {world}: {why}"));
            }
        }
    }

    #[test]
    fn two_ragged_nodes_step_by_step() {
        let schedule = find("leader:tree").unwrap().schedule(&Topology::new(&[3, 2])).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  1+>0 c0  2+>0 c0  4+>3 c0
step 1:  3+>0 c0
step 2:  0->3 c0
step 3:  0->1 c0  0->2 c0  3->4 c0
"
        );
    }
}
