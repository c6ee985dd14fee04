//! One collective on streams: its work, bound to memory, streams and events.

use algorithms::control::DataType;
use algorithms::program::Program;

use super::CudaError;
use super::streamed::{At, Place, Streamed, Task};
use super::streams::{Event, Stream, Streams};
use super::work::{Address, Work};
use transports::kernel::ElementOp;

/// The device and stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankStream {
    /// The device.
    pub device: usize,
    /// Its stream.
    pub stream: Stream,
}

/// A collective that can be enqueued again and again, on whatever data of its size.
pub struct Collective {
    streamed: Streamed,
    rank_streams: Vec<RankStream>,
    /// Staging memory of each rank.
    aside: Vec<Address>,
    events: Vec<Event>,
    dtype: DataType,
    combine: ElementOp,
}

impl Collective {
    /// The plan of programs for ranks on these devices: see [`Streamed`].
    pub fn plan(
        streams: &impl Streams,
        programs: &[Program],
        rank_streams: &[RankStream],
        elements: usize,
        dtype: DataType,
    ) -> Streamed {
        let reaches =
            |a: usize, b: usize| streams.reaches(rank_streams[a].device, rank_streams[b].device);
        Streamed::new(programs, elements, dtype.size_bytes(), reaches)
    }

    /// Allocates the staging memory of a plan.
    ///
    /// # Errors
    /// When there is too little memory.
    pub fn new(
        streams: &mut impl Streams,
        streamed: Streamed,
        rank_streams: &[RankStream],
        dtype: DataType,
        combine: ElementOp,
    ) -> Result<Collective, CudaError> {
        let mut aside = Vec::new();
        for (rank_stream, &bytes) in rank_streams.iter().zip(&streamed.aside_bytes) {
            aside.push(if bytes > 0 { streams.allocate(rank_stream.device, bytes)? } else { 0 });
        }
        let mut events = Vec::new();
        for &rank in &streamed.events {
            events.push(streams.event(rank_streams[rank].device, false)?);
        }
        let rank_streams = rank_streams.to_vec();
        Ok(Collective { streamed, rank_streams, aside, events, dtype, combine })
    }

    /// The same, with staging memory that is passed to each call, see [`Self::enqueue_with`].
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn without_aside(
        streams: &mut impl Streams,
        streamed: Streamed,
        rank_streams: &[RankStream],
        dtype: DataType,
        combine: ElementOp,
    ) -> Result<Collective, CudaError> {
        let streamed = Streamed { aside_bytes: Vec::new(), ..streamed };
        Collective::new(streams, streamed, rank_streams, dtype, combine)
    }

    /// Enqueues everything without waiting. `data` has the addresses of each rank's tensors, one rank's after
    /// another's: one of each, unless the plan is for several.
    ///
    /// # Errors
    /// When a driver call fails.
    ///
    /// # Panics
    /// When the number of tensors differs from the plan's.
    pub fn enqueue(&self, streams: &mut impl Streams, data: &[Address]) -> Result<(), CudaError> {
        self.enqueue_with(streams, data, &self.aside)
    }

    /// The same with the address of each rank's staging memory, of the size [`Streamed::aside_bytes`].
    ///
    /// # Errors
    /// When a driver call fails.
    ///
    /// # Panics
    /// When the number of tensors differs from the plan's.
    pub fn enqueue_with(
        &self,
        streams: &mut impl Streams,
        data: &[Address],
        aside: &[Address],
    ) -> Result<(), CudaError> {
        let tensors = self.streamed.tensors;
        assert_eq!(data.len(), self.rank_streams.len() * tensors, "{tensors} tensors of each rank");
        let place = |at: &At| {
            let base = match at.place {
                Place::Tensor(tensor) => data[at.rank * tensors + tensor as usize],
                Place::Aside => aside[at.rank],
            };
            base + at.offset_bytes as u64
        };
        for (rank, task) in &self.streamed.tasks {
            let on = self.rank_streams[*rank].stream;
            match task {
                Task::Copy { from, into, elements } => {
                    let size_bytes = elements * self.dtype.size_bytes();
                    streams.copy(on, place(from), place(into), size_bytes)?;
                }
                Task::Reduce { vectors, elements } => {
                    let (dtype, combine) = (self.dtype, self.combine);
                    let (into, from) = (place(&vectors[0]), vectors.iter().map(place).collect());
                    let elements = *elements;
                    streams.launch(on, &Work::Reduce { dtype, combine, into, from, elements })?;
                }
                Task::Record(event) => streams.record(on, self.events[*event])?,
                Task::Wait(event) => streams.wait(on, self.events[*event])?,
            }
        }
        Ok(())
    }

    /// Copies and kernels, and events that are recorded or waited for.
    pub fn counts(&self) -> (usize, usize) {
        let is_work = |task: &Task| matches!(task, Task::Copy { .. } | Task::Reduce { .. });
        let work = self.streamed.tasks.iter().filter(|(_, task)| is_work(task)).count();
        (work, self.streamed.tasks.len() - work)
    }

    /// Releases its memory.
    ///
    /// # Errors
    /// When earlier work failed.
    pub fn release(self, streams: &mut impl Streams) -> Result<(), CudaError> {
        self.events.into_iter().for_each(|event| streams.give_back(event));
        let allocated = self.aside.into_iter().filter(|&address| address > 0);
        allocated.into_iter().try_for_each(|address| streams.release(address))
    }
}
