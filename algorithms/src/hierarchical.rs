//! Hierarchical allreduce: reduce-scatter inside each node, allreduce across nodes, all-gather
//! inside each node.
//!
//! With g ranks on each of k nodes the buffer is cut into g shards. A ring inside the node leaves
//! shard l on local rank l; then, for each l, the ranks l of all nodes allreduce shard l
//! with any inner algorithm; a second ring inside the node hands the finished shards round. Each
//! byte crosses the network once per node instead of once per rank.
//!
//! Cost per rank: 2(g - 1) steps inside and those of the inner algorithm over k ranks;
//! 2(g - 1) shards sent inside, and one shard's worth of the inner algorithm across.
//!
//! Horovod's `HOROVOD_HIERARCHICAL_ALLREDUCE` (v0.14.1), there with NCCL inside and MPI across.

use std::sync::Arc;

use crate::algorithm::{Algorithm, Unsupported, Volume, across_nodes, compose};
use crate::combinators::{Across, Sequence, Within};
use crate::ring;
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// Rings inside nodes, `inner` across them.
pub struct Hierarchical {
    /// Runs across nodes, once for each local rank.
    pub inner: Arc<dyn Algorithm>,
}

impl Algorithm for Hierarchical {
    fn name(&self) -> String {
        compose("hierarchical", &*self.inner)
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        let local_size = topology.local_size().ok_or_else(|| {
            Unsupported(format!(
                "hierarchical needs nodes of one size, but these have {topology} ranks; \
                 leave ranks idle or choose a flat algorithm such as ring"
            ))
        })?;
        let across = || across_nodes(&*self.inner, topology);
        let scale = across()?.chunks();
        Ok(Box::new(Sequence::new(vec![
            Box::new(Within::new(topology, ring::reduce_scatter(local_size), scale)),
            Box::new(Across::new(local_size, across()?)),
            Box::new(Within::new(topology, ring::all_gather(local_size), scale)),
        ])))
    }

    fn steps(&self, topology: &Topology) -> usize {
        let inside = 2 * (topology.node(0).len() - 1);
        inside + self.inner.steps(&Topology::flat(topology.nodes()))
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let across = Topology::flat(topology.nodes());
        let inner = self.inner.volume(&across, topology.node_of(rank));
        let shard = across_nodes(&*self.inner, topology).map_or(0, |schedule| schedule.chunks());
        let inside = 2 * (topology.node(topology.node_of(rank)).len() - 1) * shard;
        Volume { sent: inside + inner.sent, received: inside + inner.received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;
    use crate::schedule::Drawing;
    use crate::verify;

    #[test]
    fn every_rank_ends_with_every_part() {
        for name in ["hierarchical", "hierarchical:tree", "hierarchical:hierarchical:tree"] {
            let algorithm = find(name).unwrap();
            for nodes in 1..=8 {
                for local_size in 1..=8 {
                    let world = Topology::uniform(nodes, local_size);
                    verify::algorithm(&*algorithm, &world)
                        .unwrap_or_else(|why| panic!("{name} on {world}: {why}"));
                }
            }
        }
    }

    #[test]
    fn costs_match_the_header() {
        let world = Topology::uniform(4, 6);
        let schedule = find("hierarchical").unwrap().schedule(&world).unwrap();
        assert_eq!((schedule.steps(), schedule.chunks()), (2 * 5 + 2 * 3, 6 * 4));
        let volume = find("hierarchical").unwrap().volume(&world, 7);
        assert_eq!(volume.sent, 2 * 5 * 4 + 2 * 3, "10 shards of 4 chunks, then a ring of 4");
    }

    #[test]
    fn ragged_nodes_are_refused() {
        let Err(why) = find("hierarchical").unwrap().schedule(&Topology::new(&[3, 2])) else {
            panic!("ragged nodes were accepted");
        };
        assert!(
            why.to_string().starts_with("hierarchical needs nodes of one size, but these have 3+2")
        );
    }

    #[test]
    fn two_nodes_of_two_step_by_step() {
        let schedule =
            find("hierarchical:tree").unwrap().schedule(&Topology::uniform(2, 2)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c1  1+>0 c0  2+>3 c1  3+>2 c0
step 1:  2+>0 c0  3+>1 c1
step 2:  0->2 c0  1->3 c1
step 3:  0->1 c0  1->0 c1  2->3 c0  3->2 c1
"
        );
    }
}
