//! One rank's allreduces of memory of its GPU: by our schedules, or by NCCL itself.
//!
//! All work is enqueued on a stream without waiting: the caller records an event after it, polls the event, and
//! regularly checks for errors of NCCL, see [`DeviceAllReduce::wait`] and [`DeviceAllReduce::check`].

use std::collections::HashMap;
use std::rc::Rc;

use algorithms::control::DataType;
use algorithms::topology::Topology;

use super::comm::{Communicator, FailureCheck, On, Part};
use super::stepped::{At, Stepped, Task, Transfer};
use super::{NAME, NcclError};
use crate::cuda::CudaError;
use crate::cuda::collective::RankStream;
use crate::cuda::streamed::Place;
use crate::cuda::streams::{Event, Streams};
use crate::cuda::work::{Address, Work};
use transports::data_plane::nccl::{Native, Tuning};
use transports::data_plane::{DataPlane, DataPlaneError, Schedules};
use transports::kernel::ElementOp;
use transports::programs::Programs;

/// The vector to reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Its address in this rank's GPU memory.
    pub data: Address,
    /// How long it is.
    pub elements: usize,
    /// Its element type.
    pub dtype: DataType,
    /// How parts are combined.
    pub combine: ElementOp,
}

/// What reduces gradients over NCCL.
#[derive(Clone, Copy)]
pub enum NcclPlane<'p> {
    /// One of this project's algorithms.
    Ours(&'p Schedules),
    /// NCCL itself.
    Native(Native),
}

impl<'p> NcclPlane<'p> {
    /// The same as a data plane.
    ///
    /// # Errors
    /// When the MPI library reduces.
    pub fn of(data_plane: &'p DataPlane) -> Result<NcclPlane<'p>, DataPlaneError> {
        match data_plane {
            DataPlane::Ours(schedules) => Ok(NcclPlane::Ours(schedules)),
            DataPlane::Nccl(native) => Ok(NcclPlane::Native(*native)),
            DataPlane::MpiAllreduce => Err(data_plane.not_on(NAME)),
        }
    }

    /// The communicator that it needs.
    pub fn tuning(self) -> Tuning {
        match self {
            NcclPlane::Native(Native::AllReduce(tuning)) => tuning,
            NcclPlane::Ours(_) | NcclPlane::Native(Native::Hierarchical) => Tuning::default(),
        }
    }
}

/// One rank's end of a data plane. All ranks enqueue the same, in the same order.
pub struct DeviceAllReduce<'p> {
    communicator: Rc<Communicator>,
    how: How<'p>,
    /// Staging memory: address and length.
    aside: (Address, usize),
}

enum How<'p> {
    /// A schedule, and its plan for buffers of a number of elements of a size.
    Ours {
        programs: Programs<'p>,
        plans: HashMap<(usize, usize), Rc<Stepped>>,
    },
    Whole,
    Hierarchical(Hierarchy),
}

struct Hierarchy {
    /// The ranks of this node.
    local: Communicator,
    /// The ranks with this local rank on all nodes; none if nodes differ and this is not the first rank of its
    /// node.
    cross: Option<Communicator>,
    /// All nodes have the same number of ranks.
    is_even: bool,
}

impl<'p> DeviceAllReduce<'p> {
    /// The allreduce of a data plane, over a communicator of all ranks, which may be shared. Large buffers are cut
    /// into segments of about `segment_bytes`; 0 leaves them whole.
    ///
    /// # Errors
    /// NCCL's error when it creates the communicators of nodes.
    pub fn new(
        communicator: Rc<Communicator>,
        plane: NcclPlane<'p>,
        topology: &Topology,
        segment_bytes: usize,
        failures: &mut dyn FailureCheck,
    ) -> Result<DeviceAllReduce<'p>, NcclError> {
        let how = match plane {
            NcclPlane::Ours(Schedules { choices, .. }) => {
                let programs = Programs::new(communicator.rank, choices, segment_bytes, false);
                How::Ours { programs, plans: HashMap::new() }
            }
            NcclPlane::Native(Native::Hierarchical) => {
                How::Hierarchical(Hierarchy::new(&communicator, topology, failures)?)
            }
            NcclPlane::Native(Native::AllReduce(_)) => How::Whole,
        };
        Ok(DeviceAllReduce { communicator, how, aside: (0, 0) })
    }

    /// Bytes of staging memory for buffers of that length.
    pub fn aside_bytes(&mut self, elements: usize, dtype: DataType) -> usize {
        self.plan(elements, dtype).map_or(0, |plan| plan.aside_bytes)
    }

    /// Plans and allocates for buffers of that length, so that this is not measured.
    ///
    /// # Errors
    /// When the GPU has too little memory.
    pub fn prepare(
        &mut self,
        streams: &mut impl Streams,
        device: usize,
        elements: usize,
        dtype: DataType,
    ) -> Result<(), CudaError> {
        let needed = self.aside_bytes(elements, dtype);
        if needed > self.aside.1 {
            self.release(streams)?;
            self.aside = (streams.allocate(device, needed)?, needed);
        }
        Ok(())
    }

    /// Releases its memory.
    ///
    /// # Errors
    /// When earlier work failed.
    pub fn release(&mut self, streams: &mut impl Streams) -> Result<(), CudaError> {
        match std::mem::take(&mut self.aside) {
            (0, _) => Ok(()),
            (address, _) => streams.release(address),
        }
    }

    /// Ends it in order: all ranks call this, once everything on their streams is done.
    ///
    /// # Errors
    /// An error of the driver or NCCL.
    pub fn finish(
        mut self,
        streams: &mut impl Streams,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        self.release(streams)?;
        if let How::Hierarchical(Hierarchy { local, cross, .. }) = self.how {
            local.finish(failures)?;
            cross.map_or(Ok(()), |cross| cross.finish(failures))?;
        }
        Ok(())
    }

    /// Enqueues an allreduce in place on a stream. The host waits for another rank only where NCCL connects to it
    /// for the first time.
    ///
    /// # Errors
    /// An error of the driver or NCCL, or a failed process. The communicators are then unusable.
    pub fn enqueue(
        &mut self,
        streams: &mut impl Streams,
        rank_stream: &RankStream,
        vector: &Vector,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let &Vector { data, elements, dtype, combine } = vector;
        self.prepare(streams, rank_stream.device, elements, dtype)?;
        let on = On { stream: streams.raw(rank_stream.stream)?, dtype };
        match &self.how {
            How::Whole => self.communicator.all_reduce(on, (data, elements), combine, failures),
            How::Hierarchical(nodes) => nodes.all_reduce(on, (data, elements), combine, failures),
            How::Ours { .. } => {
                let plan = self.plan(elements, dtype).expect("a schedule of ours");
                self.steps(streams, rank_stream, (on, vector), &plan.tasks, failures)
            }
        }
    }

    /// Groups, kernels and copies, in their order.
    fn steps(
        &self,
        streams: &mut impl Streams,
        rank_stream: &RankStream,
        (on, vector): (On, &Vector),
        tasks: &[Task],
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let &Vector { dtype, combine, .. } = vector;
        let place = |at: &At| {
            let base = if at.place != Place::Aside { vector.data } else { self.aside.0 };
            base + at.offset_bytes as Address
        };
        let parts = |transfers: &[Transfer]| -> Vec<Part> {
            let part = |&Transfer { peer, at, elements }: &Transfer| Part {
                peer,
                address: place(&at),
                elements,
            };
            transfers.iter().map(part).collect()
        };
        for task in tasks {
            match task {
                Task::Group { sends, receives } => {
                    self.communicator.exchange(on, &parts(sends), &parts(receives), failures)?;
                }
                Task::Copy { from, into, elements } => {
                    let size_bytes = elements * dtype.size_bytes();
                    streams.copy(rank_stream.stream, place(from), place(into), size_bytes)?;
                }
                Task::Reduce { vectors, elements } => {
                    let (into, from) = (place(&vectors[0]), vectors.iter().map(place).collect());
                    let work = Work::Reduce { dtype, combine, into, from, elements: *elements };
                    streams.launch(rank_stream.stream, &work)?;
                }
            }
        }
        Ok(())
    }

    /// The plan of this project's schedule for such a buffer.
    fn plan(&mut self, elements: usize, dtype: DataType) -> Option<Rc<Stepped>> {
        let How::Ours { programs, plans } = &mut self.how else { return None };
        let element_bytes = dtype.size_bytes();
        let plan = || {
            let program = programs.of(elements * element_bytes);
            Rc::new(Stepped::new(program, elements, element_bytes))
        };
        Some(plans.entry((elements, element_bytes)).or_insert_with(plan).clone())
    }

    /// Checks whether NCCL reports an error of work in flight.
    ///
    /// # Errors
    /// NCCL's error. The communicators are then unusable.
    pub fn check(&self) -> Result<(), NcclError> {
        self.communicator.check()?;
        let How::Hierarchical(nodes) = &self.how else { return Ok(()) };
        nodes.local.check()?;
        nodes.cross.as_ref().map_or(Ok(()), Communicator::check)
    }

    /// The host waits until an event has happened; see [`Communicator::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(
        &self,
        streams: &mut impl Streams,
        event: Event,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let checked = self.communicator.wait(streams, event, "an allreduce", failures);
        if checked.is_err()
            && let How::Hierarchical(nodes) = &self.how
        {
            nodes.local.abort();
            nodes.cross.iter().for_each(Communicator::abort);
        }
        checked.and_then(|()| self.check())
    }
}

impl Hierarchy {
    fn new(
        all: &Communicator,
        topology: &Topology,
        failures: &mut dyn FailureCheck,
    ) -> Result<Hierarchy, NcclError> {
        let (node, place) = (topology.node_of(all.rank), topology.local_rank(all.rank));
        let here = topology.node(node).len();
        let local = all.split(node, (place, here), failures)?;
        let reaches = |node: usize| topology.node(node).len() > place;
        let nodes = (0..topology.nodes()).filter(|&node| reaches(node));
        let (across, before) = (nodes.clone().count(), nodes.filter(|&other| other < node).count());
        // All ranks must split, including those without a part in between.
        let cross = all.split(place, (before, across), failures)?;
        let is_even = topology.local_size().is_some();
        Ok(Hierarchy { local, cross: (is_even || place == 0).then_some(cross), is_even })
    }

    fn all_reduce(
        &self,
        on: On,
        (data, elements): (Address, usize),
        combine: ElementOp,
        failures: &mut dyn FailureCheck,
    ) -> Result<(), NcclError> {
        let size = self.local.ranks;
        let each = if self.is_even { elements / size } else { 0 };
        let rest = elements - each * size;
        // The last rank's part and the rest are contiguous.
        let root = if self.is_even { size - 1 } else { 0 };
        let at = |element: usize| data + (element * on.dtype.size_bytes()) as Address;
        let rest_at = (at(each * size), rest);
        if each > 0 {
            self.local.reduce_scatter(on, (data, each), combine, failures)?;
        }
        if rest > 0 {
            self.local.reduce(on, rest_at, combine, root, failures)?;
        }
        let own = each + if self.local.rank == root { rest } else { 0 };
        if let Some(cross) = self.cross.as_ref().filter(|_| own > 0) {
            cross.all_reduce(on, (at(self.local.rank * each), own), combine, failures)?;
        }
        if each > 0 {
            self.local.all_gather(on, (data, each), failures)?;
        }
        if rest > 0 {
            self.local.broadcast(on, rest_at, root, failures)?;
        }
        Ok(())
    }
}
