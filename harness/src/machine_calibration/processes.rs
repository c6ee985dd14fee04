//! The processes of an MPI job as a runner: all run the same programs, and all learn all times.

use std::time::Duration;

use algorithms::topology::{Rank, Topology};

use super::runner::{Program, Runner};
use crate::bench::{Ended, PATIENCE, run_rank};
use crate::launch::Launched;
use crate::nodes::cast;
use crate::transport::mpi::{World, give_up};
use crate::transport::{Connections, MPI, TransportError};

/// Times that are told at once.
const AT_ONCE: usize = 8;

/// All processes of a job.
pub struct Processes {
    world: World,
    topology: Topology,
    members: Vec<Rank>,
}

impl Processes {
    /// Joins the job; `ranks` of its processes take part, as many on each node.
    ///
    /// # Errors
    /// When MPI refuses, or nodes cannot have equally many ranks.
    pub fn join(ranks: Option<usize>) -> Result<Processes, String> {
        let world = World::join().map_err(|error| error.to_string())?;
        let all = world.comm().ranks();
        if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(all)) {
            return Err(problem);
        }
        let sizes: Vec<usize> = world.nodes().iter().map(|node| node.ranks.len()).collect();
        let (nodes, fewest) = (sizes.len(), sizes.iter().copied().min().unwrap_or(1));
        let ranks = ranks.unwrap_or(nodes * fewest);
        if ranks < 2 || !ranks.is_multiple_of(nodes) || ranks > nodes * fewest {
            return Err(format!(
                "{ranks} ranks on {nodes} node(s) with {sizes:?} processes: a machine has equally \
                 many on each node, and at least 2; start others, or take --ranks {}",
                nodes * fewest
            ));
        }
        let topology = Topology::uniform(nodes, ranks / nodes);
        let (members, _) = cast(world.nodes(), &topology)?;
        Ok(Processes { world, topology, members })
    }

    /// This process's own times; none if it has no part.
    fn own(&mut self, program: &Program) -> Result<Vec<Duration>, TransportError> {
        let Some((_, connections)) = self.world.connect(&self.members, PATIENCE)? else {
            return Ok(Vec::new());
        };
        let Connections { data, bits, .. } = connections;
        let Ended { times, .. } =
            program.bench(&self.topology, |bench| run_rank(bench, data, bits))?;
        Ok(times)
    }

    /// The longest that any process took.
    fn longest(&self, own: &[Duration], count: usize) -> Result<Vec<f64>, TransportError> {
        let mut longest = Vec::new();
        while longest.len() < count {
            let mut told = [0; 8 * AT_ONCE];
            for (place, time) in told.chunks_mut(8).zip(own.iter().skip(longest.len())) {
                place.copy_from_slice(&(time.as_nanos() as u64).to_ne_bytes());
            }
            let all = self.world.comm().all_gather(told)?;
            let at = |of: &[u8; 8 * AT_ONCE], place: usize| {
                u64::from_ne_bytes(of[8 * place..8 * place + 8].try_into().expect("8 bytes"))
            };
            for place in 0..AT_ONCE.min(count - longest.len()) {
                let most = all.iter().map(|of| at(of, place)).max().unwrap_or(0);
                longest.push(most as f64 * 1e-9);
            }
        }
        Ok(longest)
    }
}

impl Runner for Processes {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn transport(&self) -> &'static str {
        MPI
    }

    fn is_oversubscribed(&self) -> bool {
        self.world.nodes().iter().any(|node| node.is_crowded(&self.members))
    }

    fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    fn time(&mut self, program: &Program) -> Result<Vec<f64>, TransportError> {
        let times = self.own(program);
        let times = times.and_then(|own| self.longest(&own, program.repetitions));
        Ok(times.unwrap_or_else(|error| give_up(&error)))
    }
}
