//! All processes of a job: the node of each, and which of them form a case's world.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CStr;
use std::rc::Rc;
use std::time::Duration;

use algorithms::topology::Rank;
use mpi::Threading;
use mpi::environment::Universe;

use super::barrier::Barrier;
use super::comm::Comm;
use super::control_channel::ControlChannel;
use super::control_variable::control_variable;
use super::endpoint::Endpoint;
use super::wait::{Meanwhile, Waiting};
use crate::transport::{Connections, TransportError};
use cluster::nodes::Node;

/// The timeout for rank 0, which may be drawing figures or waiting for a disk.
pub const TIMEOUT: Duration = Duration::from_secs(3600);

/// Whether Open MPI offers the core to others while it waits.
const YIELD_WHEN_IDLE: &CStr = c"mpi_yield_when_idle";

/// Bytes for the CPU mask of a node.
const MASK_BYTES: usize = 256;

/// The processes of this job.
pub struct World {
    comm: Rc<Comm>,
    /// In the order of their first rank.
    nodes: Vec<Node>,
    /// Existing communicators, by members.
    groups: BTreeMap<Vec<Rank>, Group>,
    /// Calls `MPI_Finalize` when it is dropped, after everything else.
    _universe: Universe,
}

/// One process's connections within the world of a case.
pub type Connected = Connections<Endpoint, Endpoint, ControlChannel, Barrier>;

/// Communicators of the same ranks, one per kind of message.
#[derive(Clone)]
pub struct Group {
    data: Rc<Comm>,
    bits: Rc<Comm>,
    control: Rc<Comm>,
}

/// The CPUs that this process may use, one bit each.
fn own_cores() -> [u8; MASK_BYTES] {
    let mut mask = [0; MASK_BYTES];
    for core in core_affinity::get_core_ids().unwrap_or_default() {
        if let Some(byte) = mask.get_mut(core.id / 8) {
            *byte |= 1 << (core.id % 8);
        }
    }
    mask
}

impl World {
    /// Initializes MPI. A process that was not started by a launcher is a job of one.
    ///
    /// # Errors
    /// When an MPI call fails.
    ///
    /// # Panics
    /// When called twice.
    pub fn join() -> Result<World, TransportError> {
        let (universe, _) =
            mpi::initialize_with_threading(Threading::Funneled).expect("MPI is joined once");
        let comm = Comm::world()?;
        let node = comm.of_node()?;
        // Local rank 0 gives each node its number.
        let leader = node.all_gather((comm.rank() as u32).to_ne_bytes())?[0];
        let masks = node.all_gather(own_cores())?;
        let union = |byte| masks.iter().fold(0, |all: u8, mask| all | mask[byte]).count_ones();
        let cores: u32 = (0..MASK_BYTES).map(union).sum();
        let mut nodes: BTreeMap<u32, Node> = BTreeMap::new();
        let leaders = comm.all_gather(leader)?;
        let cores = comm.all_gather(cores.to_ne_bytes())?;
        for (rank, (leader, cores)) in leaders.into_iter().zip(cores).enumerate() {
            let node = nodes.entry(u32::from_ne_bytes(leader)).or_default();
            node.ranks.push(rank);
            node.cores = u32::from_ne_bytes(cores) as usize;
        }
        let nodes = nodes.into_values().collect();
        Ok(World { comm: Rc::new(comm), nodes, groups: BTreeMap::new(), _universe: universe })
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.comm.rank()
    }

    /// All processes.
    pub fn comm(&self) -> &Rc<Comm> {
        &self.comm
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// This process's connections within `ranks`; none if it is not among them. Every one of them must call it.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn connect(
        &mut self,
        members: &[Rank],
        timeout: Duration,
    ) -> Result<Option<(Rank, Connected)>, TransportError> {
        let Some(rank) = members.iter().position(|&member| member == self.rank()) else {
            return Ok(None);
        };
        let group = match self.groups.entry(members.to_vec()) {
            Entry::Occupied(group) => group.get().clone(),
            Entry::Vacant(place) => {
                let one = || Ok::<_, TransportError>(Rc::new(self.comm.within(members)?));
                place.insert(Group { data: one()?, bits: one()?, control: one()? }).clone()
            }
        };
        let here = self.nodes.iter().find(|node| node.ranks.contains(&self.comm.rank()));
        let crowded = here.is_some_and(|node| node.is_crowded(members));
        let yields = crowded && control_variable(YIELD_WHEN_IDLE).is_none_or(|on| on == 0);
        let meanwhile = if yields { Meanwhile::Yield } else { Meanwhile::Poll };
        let waiting = Waiting { rank, timeout, meanwhile };
        let connections = Connections {
            data: Endpoint::new(group.data, waiting),
            bits: Endpoint::new(group.bits, waiting),
            last_step: Barrier::new(group.control.clone()),
            control: ControlChannel::new(group.control, waiting),
        };
        Ok(Some((rank, connections)))
    }

    /// Broadcasts rank 0's bytes to all ranks, whose wait is not urgent.
    ///
    /// # Errors
    /// When an MPI call fails. The timeout ends the process.
    pub fn broadcast(&self, bytes: &mut [u8]) -> Result<(), TransportError> {
        // SAFETY: the bytes stay here until the request completes or the process ends.
        let mut requests = unsafe { self.comm.broadcast(bytes.as_mut_ptr(), bytes.len())? };
        let waited = self.waiting(TIMEOUT).request(&mut requests);
        waited.unwrap_or_else(|error| super::give_up(&error));
        Ok(())
    }

    /// How a process waits for all others.
    pub fn waiting(&self, timeout: Duration) -> Waiting {
        Waiting { rank: self.rank(), timeout, meanwhile: Meanwhile::Sleep }
    }
}
