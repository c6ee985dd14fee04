//! One rank's place on a device: its gradients, and the messages that are made of them.

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

/// Messages for which there are tables from the beginning.
const TABLES: usize = 8;

/// Words that a kernel reads of a piece.
const PIECE_WORDS: usize = 3;

/// Every gradient begins on so many bytes, as if it had been allocated by itself.
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
    /// When it was asked for.
    pub asked: Instant,
    /// Which gradients.
    pub tensors: Vec<TensorId>,
    /// Their elements.
    pub elements: usize,
    /// Before it, once it is packed, once it is reduced, and once it is unpacked.
    pub marks: [Event; 4],
    /// Where its tables of pieces lie: into the vector, out of it, and from place to the same place.
    tables: [Address; 3],
    /// Their lengths.
    counts: [usize; 3],
}

/// Where a collective works: a fusion buffer, or tensors where they lie.
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
    /// Messages in their order.
    pub underway: VecDeque<InFlight>,
    /// One that is packed, and not yet unpacked.
    packed: Option<InFlight>,
    dtype: DataType,
    /// The type in which gradients travel.
    pub wire: DataType,
    ranks: usize,
    /// Several gradients are reduced where they lie.
    scattered: bool,
    /// What results are multiplied by in the end: the share of a pass, if passes are averaged.
    share: f64,
    /// Where passes are added up, and results are left.
    sums: Vec<Tensor>,
    /// What passes after the first bring; none if there is only one.
    later: Vec<Tensor>,
    fusion_buffer: Address,
    fusion_bytes: usize,
    /// Room for three tables of pieces each, that no message has.
    tables: Vec<Address>,
    table_pieces: usize,
    /// What was allocated for good.
    slabs: Vec<Address>,
}

impl DeviceRank {
    /// Bytes that a rank of a job takes on its device, what a collective puts aside left out.
    pub fn need_bytes(job: &Job) -> usize {
        let passes = job.framework.backward_passes_per_step.min(2);
        passes * slab_bytes(job) + fusion_bytes(job)
    }

    /// Elements of the largest message that is to be expected, those between tensors included.
    pub fn fusion_elements(job: &Job) -> usize {
        fusion_bytes(job) / job.wire().size_bytes()
    }

    /// Allocates what a rank of a job needs.
    ///
    /// # Errors
    /// When there is not as much.
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
            underway: VecDeque::new(),
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
                // What was wrong first is what counts.
                let _ = device_rank.release(streams);
                Err(error)
            }
        }
    }

    /// Allocates what messages will need, so that it does not happen while somebody looks at the clock.
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

    /// A fusion buffer of so many bytes at least.
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

    /// Copies what passes bring to the device.
    ///
    /// # Errors
    /// When the driver refuses.
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
    /// When the driver refuses.
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

    /// Puts on the stream of passes what adds up a gradient of a pass after the first.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn add(
        &self,
        streams: &mut impl Streams,
        gradient: TensorId,
        pass: usize,
    ) -> Result<(), CudaError> {
        let (sum, later) = (self.sums[gradient], self.later[gradient]);
        let (size_bytes, elements) = (self.dtype.size_bytes() as Address, sum.elements);
        let first = turn(pass, elements);
        // What comes from `first` on is added to the beginning, and the rest behind it.
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
    /// When the driver refuses.
    pub fn pack(
        &mut self,
        streams: &mut impl Streams,
        message: &Message,
        asked: Instant,
    ) -> Result<Vector, CudaError> {
        let (vector, place) = self.place(streams, &message.tensors)?;
        let (dtype, wire) = (self.dtype, self.wire);
        let own: Vec<Tensor> = message.tensors.iter().map(|&id| self.sums[id]).collect();
        let pairs = own.iter().copied().zip(place.iter().copied());
        let into = pieces(pairs.clone(), dtype, wire)?;
        let packed = |(tensor, address): (Tensor, _)| {
            (Tensor { address, elements: tensor.elements }, tensor.address)
        };
        let back = pieces(pairs.map(packed), wire, dtype)?;
        let same = pieces(own.iter().map(|&tensor| (tensor, tensor.address)), dtype, dtype)?;
        let (tables, counts) = self.write_tables(streams, [&into, &back, &same])?;
        let mut marks = [Event(0); 4];
        for mark in &mut marks {
            *mark = streams.event(self.rank_stream.device, true)?;
        }
        let elements = own.iter().map(|tensor| tensor.elements).sum();
        streams.record(self.rank_stream.stream, marks[0])?;
        if !vector.is_in_place || message.reduction.prescale != 1.0 {
            let (pieces, count, factor) = (tables[0], counts[0], message.reduction.prescale);
            let work = Work::Pack { from: dtype, into: wire, pieces, count, factor };
            streams.launch(self.rank_stream.stream, &work)?;
        }
        streams.record(self.rank_stream.stream, marks[1])?;
        let tensors = message.tensors.clone();
        self.packed = Some(InFlight { asked, tensors, elements, marks, tables, counts });
        Ok(vector)
    }

    /// Puts on the stream what comes once the message that was packed last is reduced.
    ///
    /// # Errors
    /// When the driver refuses.
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
        self.underway.extend(self.packed.take());
        Ok(())
    }

    /// A message that is over: what it had may be had by others.
    pub fn finish(&mut self, streams: &mut impl Streams, underway: &InFlight) {
        underway.marks.into_iter().for_each(|mark| streams.give_back(mark));
        self.tables.push(underway.tables[0]);
    }

    /// The elements of each piece of memory that a message is reduced in.
    pub fn lengths(&self, tensors: &[TensorId]) -> Vec<usize> {
        let own = tensors.iter().map(|&id| self.sums[id].elements);
        if self.is_in_place(tensors) { own.collect() } else { vec![layout(own, self.wire).1] }
    }

    fn is_in_place(&self, tensors: &[TensorId]) -> bool {
        self.dtype == self.wire && (tensors.len() == 1 || self.scattered)
    }

    /// Where the elements of a message are reduced, and where each tensor is among them. A tensor alone is
    /// reduced where it lies, as with Horovod, and so are several that are not to be packed; but not if they
    /// travel as another type.
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

    /// Writes three tables where kernels read them, one behind the other.
    fn write_tables(
        &mut self,
        streams: &mut impl Streams,
        pieces: [&[Piece]; 3],
    ) -> Result<([Address; 3], [usize; 3]), CudaError> {
        let table = match self.tables.pop() {
            Some(table) => table,
            None => self.table(streams)?,
        };
        let all = pieces.iter().flat_map(|pieces| pieces.iter());
        let words: Vec<u64> = all.flat_map(Piece::words).collect();
        streams.write_mapped(table, &words)?;
        let counts = pieces.map(<[Piece]>::len);
        let ends = [0, counts[0], counts[0] + counts[1]];
        Ok((ends.map(|end| table + (end * PIECE_WORDS * size_of::<u64>()) as Address), counts))
    }

    /// Room for three tables.
    fn table(&self, streams: &mut impl Streams) -> Result<Address, CudaError> {
        let words = 3 * PIECE_WORDS * self.table_pieces;
        streams.mapped(self.rank_stream.device, words * size_of::<u64>())
    }

    /// Gives everything back; waits for what is on the device.
    ///
    /// # Errors
    /// When some of it failed.
    pub fn release(mut self, streams: &mut impl Streams) -> Result<(), CudaError> {
        let mut ended = streams.synchronize(self.compute);
        ended = ended.and(streams.synchronize(self.rank_stream.stream));
        for underway in self.underway.drain(..).chain(self.packed.take()).collect::<Vec<_>>() {
            self.finish(streams, &underway);
        }
        let buffer = Some(self.fusion_buffer).filter(|&address| address > 0);
        let all = self.slabs.into_iter().chain(self.tables).chain(buffer);
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

/// Of the largest message that is to be expected, with every tensor on a line of its own.
fn fusion_bytes(job: &Job) -> usize {
    let size_bytes = job.wire().size_bytes();
    let largest = lengths(job).max().unwrap_or(0) * size_bytes;
    let all = job.workload.elements() * size_bytes;
    let padding = job.workload.gradients.len() * PADDING_BYTES;
    job.fusion_threshold_bytes.max(largest).min(all) + padding
}

/// Of a tensor, whatever it is cast to.
fn most_pieces(elements: usize, dtype: DataType) -> usize {
    elements.div_ceil(PIECE_BYTES / dtype.size_bytes().max(1)) + 1
}
