//! One rank's memory on a device: its gradients, and its messages.

use std::collections::VecDeque;
use std::time::Instant;

use algorithms::control::{DataType, TensorId};
use algorithms::grouping::Packing;
use smallvec::smallvec;

use crate::cuda::CudaError;
use crate::cuda::collective::RankStream;
use crate::cuda::packing::{PADDING_BYTES, PIECE_BYTES, Piece, Tensor, layout, pieces};
use crate::cuda::streams::{Event, Stream, Streams};
use crate::cuda::work::{Address, Work};
use algorithms::control::Reduction;
use training::gradients::Gradients;
use training::job::Job;
use transports::kernel::ElementOp;
use transports::memory::Memory;
use transports::pattern::turn;

/// Bytes of the two words in which passes keep the time.
const CLOCK_BYTES: usize = 16;

/// Messages for which tables are allocated in advance.
const TABLES: usize = 8;

/// Words that a kernel reads of a piece.
const PIECE_WORDS: usize = 3;

/// Alignment of every gradient, as if it had been allocated separately.
const ALIGNED_BYTES: usize = 256;

/// Gradients that are reduced as one vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Which, in their order.
    pub tensors: Vec<TensorId>,
    /// How.
    pub reduction: Reduction,
}

/// A message on the device.
pub struct InFlight {
    /// When it was requested.
    pub asked: Instant,
    /// Which gradients.
    pub tensors: Vec<TensorId>,
    /// Their elements.
    pub elements: usize,
    /// Before it, once it is packed, once it is reduced, and once it is unpacked.
    pub marks: [Event; 4],
    /// The memory of its tables of pieces.
    memory: TableMemory,
    /// Their addresses: into the vector, out of it, and in place.
    tables: [Address; 3],
    /// Their lengths.
    counts: [usize; 3],
}

/// Room for three tables of pieces. The host writes them to memory of its own, and a copy on the stream of messages
/// brings them to the device, where every block of a kernel reads them.
#[derive(Clone, Copy, Debug)]
struct TableMemory {
    host: Address,
    device: Address,
}

/// The operand of a collective: a fusion buffer, or tensors in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// Its pieces, in their order.
    pub pieces: Vec<Tensor>,
    /// They are gradients.
    is_in_place: bool,
}

/// One rank's streams and memory on a device.
pub struct DeviceRank {
    /// The device, and the stream of messages.
    pub rank_stream: RankStream,
    /// The stream of passes over the model.
    pub compute: Stream,
    /// Two words of 64 bits, in which passes keep the time.
    pub clock: Address,
    /// Of a host that runs ahead: the event of each gradient that is launched and in no message yet.
    pub computed: Vec<Option<Event>>,
    /// Messages in their order.
    pub in_flight: VecDeque<InFlight>,
    /// One that is packed, and not yet unpacked.
    packed: Option<InFlight>,
    dtype: DataType,
    /// The type in which gradients travel.
    pub wire: DataType,
    ranks: usize,
    /// Several gradients are reduced in place.
    scattered: bool,
    /// The final factor of results: 1 / passes, if passes are averaged.
    share: f64,
    /// The sums of passes, and the results.
    sums: Vec<Tensor>,
    /// Gradients of passes after the first; empty if there is only one.
    later: Vec<Tensor>,
    fusion_buffer: Address,
    fusion_bytes: usize,
    /// Memory of tables that no message has.
    tables: Vec<TableMemory>,
    table_pieces: usize,
    /// Memory that is allocated once.
    slabs: Vec<Address>,
}

impl DeviceRank {
    /// Bytes that a rank of a job needs on its device, without the staging memory of collectives.
    pub fn need_bytes(job: &Job) -> usize {
        let passes = job.framework.backward_passes_per_step.min(2);
        passes * slab_bytes(job) + fusion_bytes(job)
    }

    /// Elements of the largest expected message, including padding between tensors.
    pub fn fusion_elements(job: &Job) -> usize {
        fusion_bytes(job) / job.wire().size_bytes()
    }

    /// Allocates the memory of a rank of a job.
    ///
    /// # Errors
    /// When there is too little memory.
    pub fn new(
        streams: &mut impl Streams,
        job: &Job,
        rank_stream: RankStream,
        compute: Stream,
    ) -> Result<DeviceRank, CudaError> {
        let passes = job.framework.backward_passes_per_step;
        let (dtype, wire) = (job.dtype, job.wire());
        let mut device_rank = DeviceRank {
            rank_stream,
            compute,
            clock: 0,
            computed: vec![None; job.workload.gradients.len()],
            in_flight: VecDeque::new(),
            packed: None,
            dtype,
            wire,
            ranks: job.topology.ranks(),
            scattered: is_scattered(job),
            share: if job.framework.average_aggregated_gradients {
                1.0 / passes as f64
            } else {
                1.0
            },
            sums: Vec::new(),
            later: Vec::new(),
            fusion_buffer: 0,
            fusion_bytes: 0,
            tables: Vec::new(),
            table_pieces: lengths(job).map(|elements| most_pieces(elements, dtype)).sum(),
            slabs: Vec::new(),
        };
        match device_rank.fill(streams, job) {
            Ok(()) => Ok(device_rank),
            Err(error) => {
                // The first error is returned.
                let _ = device_rank.release(streams);
                Err(error)
            }
        }
    }

    /// Allocates the memory of messages in advance, so that this is not measured.
    fn fill(&mut self, streams: &mut impl Streams, job: &Job) -> Result<(), CudaError> {
        self.clock = streams.allocate(self.rank_stream.device, CLOCK_BYTES)?;
        self.slabs.push(self.clock);
        self.sums = self.slab(streams, job)?;
        if job.framework.backward_passes_per_step > 1 {
            self.later = self.slab(streams, job)?;
        }
        self.room(streams, fusion_bytes(job))?;
        for _ in 0..TABLES {
            let table = self.table(streams)?;
            self.tables.push(table);
        }
        Ok(())
    }

    /// Memory for all gradients.
    fn slab(&mut self, streams: &mut impl Streams, job: &Job) -> Result<Vec<Tensor>, CudaError> {
        let mut address = streams.allocate(self.rank_stream.device, slab_bytes(job))?;
        self.slabs.push(address);
        let tensor = |elements: usize| {
            let tensor = Tensor { address, elements };
            address += aligned_bytes(elements, job.dtype) as Address;
            tensor
        };
        Ok(lengths(job).map(tensor).collect())
    }

    /// A fusion buffer of at least `bytes` bytes.
    fn room(&mut self, streams: &mut impl Streams, bytes: usize) -> Result<(), CudaError> {
        if self.fusion_bytes < bytes || self.fusion_buffer == 0 {
            if self.fusion_buffer > 0 {
                streams.release(std::mem::take(&mut self.fusion_buffer))?;
            }
            self.fusion_buffer = streams.allocate(self.rank_stream.device, bytes)?;
            self.fusion_bytes = bytes;
        }
        Ok(())
    }

    /// Copies the gradients of all passes to the device.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn upload(
        &self,
        streams: &mut impl Streams,
        gradients: &Gradients,
    ) -> Result<(), CudaError> {
        let sums = self.sums.iter().zip(gradients.sums());
        for (tensor, memory) in sums.chain(self.later.iter().zip(gradients.later())) {
            if tensor.elements > 0 {
                streams.write(tensor.address, memory.elements())?;
            }
        }
        Ok(())
    }

    /// Copies results from the device.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn download(
        &self,
        streams: &mut impl Streams,
        gradients: &mut Gradients,
    ) -> Result<(), CudaError> {
        let sums = self.sums.iter().zip(gradients.sums_mut());
        for (tensor, memory) in sums.filter(|(tensor, _)| tensor.elements > 0) {
            streams.read(tensor.address, Memory::elements_mut(memory))?;
        }
        Ok(())
    }

    /// Enqueues the accumulation of a gradient of a pass after the first.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn add(
        &self,
        streams: &mut impl Streams,
        gradient: TensorId,
        pass: usize,
    ) -> Result<(), CudaError> {
        let (sum, later) = (self.sums[gradient], self.later[gradient]);
        let (size_bytes, elements) = (self.dtype.size_bytes() as Address, sum.elements);
        let first = turn(pass, elements);
        // The elements from `first` on are added to the beginning, and the rest after them.
        for (into, from, elements) in [(0, first, elements - first), (elements - first, 0, first)] {
            let into = sum.address + into as Address * size_bytes;
            let from = smallvec![into, later.address + from as Address * size_bytes];
            let (dtype, combine) = (self.dtype, ElementOp::Sum);
            streams.launch(self.compute, &Work::Reduce { dtype, combine, into, from, elements })?;
        }
        Ok(())
    }

    /// Puts a message on its stream: all that comes before it is reduced.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn pack(
        &mut self,
        streams: &mut impl Streams,
        message: &Message,
        asked: Instant,
    ) -> Result<Vector, CudaError> {
        let (vector, place) = self.place(streams, &message.tensors)?;
        let (dtype, wire) = (self.dtype, self.wire);
        let own: Vec<Tensor> = message.tensors.iter().map(|&id| self.sums[id]).collect();
        let mut marks = [Event(0); 4];
        for mark in &mut marks {
            *mark = streams.event(self.rank_stream.device, true)?;
        }
        // Before the first mark: waiting for the gradients is not part of the message.
        for &id in &message.tensors {
            if let Some(computed) = self.computed[id].take() {
                streams.wait(self.rank_stream.stream, computed)?;
            }
        }
        streams.record(self.rank_stream.stream, marks[0])?;
        let pairs = own.iter().copied().zip(place.iter().copied());
        let packed = |(tensor, address): (Tensor, _)| {
            (Tensor { address, elements: tensor.elements }, tensor.address)
        };
        // Tables of kernels that are not launched stay empty.
        let (prescale, factor) =
            (message.reduction.prescale, message.reduction.factor_after(self.ranks));
        let (mut into, mut back, mut same) = (Vec::new(), Vec::new(), Vec::new());
        if !vector.is_in_place || prescale != 1.0 {
            into = pieces(pairs.clone(), dtype, wire)?;
        }
        if !vector.is_in_place || factor != 1.0 {
            back = pieces(pairs.map(packed), wire, dtype)?;
        }
        if self.share != 1.0 {
            same = pieces(own.iter().map(|&tensor| (tensor, tensor.address)), dtype, dtype)?;
        }
        let (memory, tables, counts) = self.write_tables(streams, [&into, &back, &same])?;
        let elements = own.iter().map(|tensor| tensor.elements).sum();
        if !vector.is_in_place || message.reduction.prescale != 1.0 {
            let (pieces, count, factor) = (tables[0], counts[0], message.reduction.prescale);
            let work = Work::Pack { from: dtype, into: wire, pieces, count, factor };
            streams.launch(self.rank_stream.stream, &work)?;
        }
        streams.record(self.rank_stream.stream, marks[1])?;
        let tensors = message.tensors.clone();
        self.packed = Some(InFlight { asked, tensors, elements, marks, memory, tables, counts });
        Ok(vector)
    }

    /// Enqueues the work after the reduction of the last packed message.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn unpack(
        &mut self,
        streams: &mut impl Streams,
        message: &Message,
        vector: &Vector,
    ) -> Result<(), CudaError> {
        let (dtype, wire, on) = (self.dtype, self.wire, self.rank_stream.stream);
        let Some(&InFlight { marks, tables, counts, .. }) = self.packed.as_ref() else {
            return Ok(());
        };
        streams.record(on, marks[2])?;
        let factor = message.reduction.factor_after(self.ranks);
        if !vector.is_in_place || factor != 1.0 {
            let (pieces, count) = (tables[1], counts[1]);
            streams.launch(on, &Work::Pack { from: wire, into: dtype, pieces, count, factor })?;
        }
        if self.share != 1.0 {
            let (pieces, count, factor) = (tables[2], counts[2], self.share);
            streams.launch(on, &Work::Pack { from: dtype, into: dtype, pieces, count, factor })?;
        }
        streams.record(on, marks[3])?;
        self.in_flight.extend(self.packed.take());
        Ok(())
    }

    /// Ends a message and frees its resources for others.
    pub fn finish(&mut self, streams: &mut impl Streams, in_flight: &InFlight) {
        in_flight.marks.into_iter().for_each(|mark| streams.give_back(mark));
        self.tables.push(in_flight.memory);
    }

    /// The elements of each piece of memory that a message is reduced in.
    pub fn lengths(&self, tensors: &[TensorId]) -> Vec<usize> {
        let own = tensors.iter().map(|&id| self.sums[id].elements);
        if self.is_in_place(tensors) { own.collect() } else { vec![layout(own, self.wire).1] }
    }

    fn is_in_place(&self, tensors: &[TensorId]) -> bool {
        self.dtype == self.wire && (tensors.len() == 1 || self.scattered)
    }

    /// The vector of a message, and the position of each tensor in it. A single tensor is reduced in place, as in
    /// Horovod, and so are several that are not packed; but not if they have another type on the wire.
    fn place(
        &mut self,
        streams: &mut impl Streams,
        tensors: &[TensorId],
    ) -> Result<(Vector, Vec<Address>), CudaError> {
        if self.is_in_place(tensors) {
            let own: Vec<Tensor> = tensors.iter().map(|&id| self.sums[id]).collect();
            let place = own.iter().map(|tensor| tensor.address).collect();
            return Ok((Vector { pieces: own, is_in_place: true }, place));
        }
        let size_bytes = self.wire.size_bytes();
        let lengths = tensors.iter().map(|&id| self.sums[id].elements);
        let (starts, elements) = layout(lengths, self.wire);
        self.room(streams, elements * size_bytes)?;
        let address = self.fusion_buffer;
        let place = |start: usize| address + (start * size_bytes) as Address;
        let pieces = vec![Tensor { address, elements }];
        let vector = Vector { pieces, is_in_place: false };
        Ok((vector, starts.into_iter().map(place).collect()))
    }

    /// Writes three tables for kernels, one after the other.
    fn write_tables(
        &mut self,
        streams: &mut impl Streams,
        pieces: [&[Piece]; 3],
    ) -> Result<(TableMemory, [Address; 3], [usize; 3]), CudaError> {
        let memory = match self.tables.pop() {
            Some(memory) => memory,
            None => self.table(streams)?,
        };
        let all = pieces.iter().flat_map(|pieces| pieces.iter());
        let words: Vec<u64> = all.flat_map(Piece::words).collect();
        streams.write_mapped(memory.host, &words)?;
        if !words.is_empty() {
            let size_bytes = words.len() * size_of::<u64>();
            streams.copy(self.rank_stream.stream, memory.host, memory.device, size_bytes)?;
        }
        let counts = pieces.map(<[Piece]>::len);
        let ends = [0, counts[0], counts[0] + counts[1]];
        let table = |end: usize| memory.device + (end * PIECE_WORDS * size_of::<u64>()) as Address;
        Ok((memory, ends.map(table), counts))
    }

    /// Room for three tables.
    fn table(&self, streams: &mut impl Streams) -> Result<TableMemory, CudaError> {
        let size_bytes = 3 * PIECE_WORDS * self.table_pieces * size_of::<u64>();
        let host = streams.mapped(self.rank_stream.device, size_bytes)?;
        match streams.allocate(self.rank_stream.device, size_bytes) {
            Ok(device) => Ok(TableMemory { host, device }),
            Err(error) => {
                // The first error is returned.
                let _ = streams.release(host);
                Err(error)
            }
        }
    }

    /// Releases everything after all work on the device.
    ///
    /// # Errors
    /// When some of it failed.
    pub fn release(mut self, streams: &mut impl Streams) -> Result<(), CudaError> {
        let mut ended = streams.synchronize(self.compute);
        ended = ended.and(streams.synchronize(self.rank_stream.stream));
        for in_flight in self.in_flight.drain(..).chain(self.packed.take()).collect::<Vec<_>>() {
            self.finish(streams, &in_flight);
        }
        let buffer = Some(self.fusion_buffer).filter(|&address| address > 0);
        let tables = self.tables.into_iter().flat_map(|memory| [memory.host, memory.device]);
        let all = self.slabs.into_iter().chain(tables).chain(buffer);
        all.fold(ended, |ended, address| ended.and(streams.release(address)))
    }
}

fn is_scattered(job: &Job) -> bool {
    job.data_plane.grouping().is_some_and(|grouping| grouping.packing == Packing::Scattered)
}

fn lengths<'j>(job: &Job<'j>) -> impl Iterator<Item = usize> + use<'j> {
    job.workload.gradients.iter().map(|gradient| gradient.elements())
}

fn aligned_bytes(elements: usize, dtype: DataType) -> usize {
    (elements * dtype.size_bytes()).next_multiple_of(ALIGNED_BYTES)
}

fn slab_bytes(job: &Job) -> usize {
    lengths(job).map(|elements| aligned_bytes(elements, job.dtype)).sum()
}

/// The size of the largest expected message, with every tensor aligned.
fn fusion_bytes(job: &Job) -> usize {
    let size_bytes = job.wire().size_bytes();
    let largest = lengths(job).max().unwrap_or(0) * size_bytes;
    let all = job.workload.elements() * size_bytes;
    let padding = job.workload.gradients.len() * PADDING_BYTES;
    job.fusion_threshold_bytes.max(largest).min(all) + padding
}

/// The number of pieces of a tensor with any cast.
fn most_pieces(elements: usize, dtype: DataType) -> usize {
    elements.div_ceil(PIECE_BYTES / dtype.size_bytes().max(1)) + 1
}
