//! What the harness measures: an allreduce of a list of tensors, by this project or by a vendor's library.

use std::ops::Range;
use std::time::{Duration, Instant};

use algorithms::algorithm::Choice;
use algorithms::control::{DataType, Reduction};
use algorithms::grouping::Packing;

use crate::execute::execute;
use crate::for_dtype;
use crate::kernel::{ElementOp, scale};
use crate::memory::{Buffer, Memory};
use crate::programs::Programs;
use crate::transport::{Transport, TransportError};

/// An in-place allreduce of one rank's tensors, which all have the same type.
pub trait AllReduce {
    /// Compiles programs and allocates memory before the measurement, for messages of one tensor of at most
    /// `tensor_bytes` and for fused messages of at most `fused_bytes`.
    fn prepare(&mut self, tensor_bytes: usize, fused_bytes: usize);

    /// Reduces the tensors over all ranks as one vector.
    ///
    /// # Errors
    /// When a peer does not answer or has given up. The contents of the tensors are then undefined.
    fn all_reduce(
        &mut self,
        tensors: &mut Buffer<'_>,
        reduction: Reduction,
    ) -> Result<Spent, TransportError>;

    /// Returns the fusion buffer, which has grown to the largest message so far, for reuse.
    fn into_fusion_buffer(self: Box<Self>) -> Memory;
}

/// An allreduce of one vector in place, without scaling factors: by a schedule, or by a library.
pub trait VectorAllReduce {
    /// World size.
    fn ranks(&self) -> usize;

    /// Allocates memory for vectors of at most `most_bytes`.
    fn prepare(&mut self, most_bytes: usize);

    /// Reduces a vector. A schedule also accepts a vector in several blocks. Returns the time spent combining elements,
    /// as [`execute`] does; none if a library reduces.
    ///
    /// # Errors
    /// When a peer does not answer, or the library returns an error.
    fn reduce(
        &mut self,
        vector: &mut Buffer<'_>,
        op: ElementOp,
    ) -> Result<Option<Duration>, TransportError>;
}

/// What an allreduce spent its time on, besides moving data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Copying tensors into the fusion buffer and back.
    pub packing: Duration,
    /// The part of `packing` spent copying back.
    pub unpacking: Duration,
    /// Combining elements, see [`VectorAllReduce::reduce`].
    pub reduction: Option<Duration>,
}

/// Bytes per rank of a segment on threads: small enough that it stays in the cache during a step, large enough
/// that the number of operations stays small.
pub const SEGMENT_BYTES: usize = 512 << 10;

/// Bytes that are packed, reduced and unpacked at a time, so that they stay in the cache. Horovod packs whole
/// messages.
pub const PACKING_BYTES: usize = 4 << 20;

/// How large messages are split; 0 means whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a pipeline segment of a large buffer, approximately.
    pub segment_bytes: usize,
    /// Bytes of several tensors that are packed, reduced and unpacked at a time.
    pub packing_bytes: usize,
}

/// One of this project's algorithms on a transport.
pub struct Scheduled<'s, T> {
    transport: T,
    programs: Programs<'s>,
}

impl<'s, T: Transport> Scheduled<'s, T> {
    /// Runs an algorithm's schedules by size, see [`Algorithm::choices`], on `transport`; large vectors are
    /// pipelined in segments of about `segment_bytes`.
    ///
    /// [`Algorithm::choices`]: algorithms::algorithm::Algorithm::choices
    pub fn new(transport: T, choices: &'s [Choice], segment_bytes: usize) -> Scheduled<'s, T> {
        let (rank, puts) = (transport.rank(), transport.puts());
        Scheduled { transport, programs: Programs::new(rank, choices, segment_bytes, puts) }
    }
}

impl<T: Transport> VectorAllReduce for Scheduled<'_, T> {
    fn ranks(&self) -> usize {
        self.transport.ranks()
    }

    fn prepare(&mut self, most_bytes: usize) {
        let Scheduled { transport, programs } = self;
        programs.prepare(most_bytes, |program, most_bytes| transport.prepare(program, most_bytes));
    }

    fn reduce(
        &mut self,
        vector: &mut Buffer<'_>,
        op: ElementOp,
    ) -> Result<Option<Duration>, TransportError> {
        execute(&mut self.transport, self.programs.of(vector.size_bytes()), vector, op).map(Some)
    }
}

/// Reduces several tensors as one vector: packs them into a fusion buffer and unpacks them afterwards, or reduces
/// a single tensor in place. Applies the factors of a [`Reduction`]. Whole messages are treated as in Horovod: one
/// copy per tensor, and a factor is a pass of its own over the fusion buffer (`MPIAllreduce::Execute` of Horovod
/// 0.28.1). Messages that are packed in blocks are scaled while they are copied.
pub struct Fused<R> {
    reduces: R,
    /// Bytes packed at a time; 0 packs whole messages.
    packing_bytes: usize,
    packing: Packing,
    fusion_buffer: Memory,
}

impl<R: VectorAllReduce> Fused<R> {
    /// `fusion_buffer` is reused, see [`AllReduce::into_fusion_buffer`].
    pub fn new(
        reduces: R,
        packing: Packing,
        packing_bytes: usize,
        fusion_buffer: Memory,
    ) -> Fused<R> {
        Fused { reduces, packing_bytes, packing, fusion_buffer }
    }
}

impl<R: VectorAllReduce> AllReduce for Fused<R> {
    fn prepare(&mut self, tensor_bytes: usize, fused_bytes: usize) {
        let at_a_time = match (self.packing, self.packing_bytes) {
            (Packing::Scattered, _) | (_, 0) => fused_bytes,
            (Packing::Packed, bytes) => bytes.min(fused_bytes),
        };
        if self.packing == Packing::Packed && self.fusion_buffer.size_bytes() < at_a_time {
            self.fusion_buffer = Memory::new(at_a_time);
        }
        self.reduces.prepare(tensor_bytes.max(at_a_time));
    }

    fn all_reduce(
        &mut self,
        tensors: &mut Buffer<'_>,
        reduction: Reduction,
    ) -> Result<Spent, TransportError> {
        let combine = ElementOp::of(reduction.op);
        let unless_one = |factor: f64| (factor != 1.0).then_some(factor);
        let before = unless_one(reduction.prescale);
        let after = unless_one(reduction.factor_after(self.reduces.ranks()));
        if tensors.blocks() <= 1 || self.packing == Packing::Scattered {
            scale_all(tensors, before);
            let reduction = self.reduces.reduce(tensors, combine)?;
            scale_all(tensors, after);
            return Ok(Spent { reduction, ..Spent::default() });
        }
        let size = tensors.dtype().size_bytes();
        let at_a_time = match self.packing_bytes {
            0 => tensors.elements().max(1),
            bytes => (bytes / size).max(1),
        };
        let mut fusion_buffer = std::mem::take(&mut self.fusion_buffer);
        let needed = tensors.elements().min(at_a_time) * size;
        if fusion_buffer.size_bytes() < needed {
            fusion_buffer = Memory::new(needed);
        }
        // A factor is applied in a pass of its own to whole messages, and while copying to blocks.
        let is_whole = self.packing_bytes == 0;
        let passing = |factor: Option<f64>| factor.filter(|_| is_whole);
        let copying = |factor: Option<f64>| factor.filter(|_| !is_whole);
        let mut spent = Spent::default();
        for first in (0..tensors.elements()).step_by(at_a_time) {
            let range = first..tensors.elements().min(first + at_a_time);
            let start = Instant::now();
            let mut packed = Buffer::new(tensors.dtype());
            packed.push_first(&mut fusion_buffer, range.len() * size);
            pack(&packed, tensors, range.clone(), copying(before));
            scale_all(&mut packed, passing(before));
            spent.packing += start.elapsed();
            if let Some(time) = self.reduces.reduce(&mut packed, combine)? {
                *spent.reduction.get_or_insert_default() += time;
            }
            let start = Instant::now();
            scale_all(&mut packed, passing(after));
            unpack(&packed, tensors, range, copying(after));
            spent.unpacking += start.elapsed();
        }
        self.fusion_buffer = fusion_buffer;
        spent.packing += spent.unpacking;
        Ok(spent)
    }

    fn into_fusion_buffer(self: Box<Self>) -> Memory {
        self.fusion_buffer
    }
}

/// Elements that are copied at a time, and scaled while they are still in the cache.
const BLOCK: usize = 8192;

/// Copies all tensors back to back into one block and multiplies them by the factor, if any.
fn pack(packed: &Buffer<'_>, tensors: &Buffer<'_>, range: Range<usize>, factor: Option<f64>) {
    let size = tensors.dtype().size_bytes();
    let most = factor.map_or(usize::MAX, |_| BLOCK);
    for (at, place, elements) in places(packed, tensors, range, most) {
        // SAFETY: both are exclusively this rank's, and as long as all tensors together.
        unsafe { place.copy_from_nonoverlapping(at, elements * size) };
        scale_piece(tensors.dtype(), place, elements, factor);
    }
}

/// Copies all tensors back out of one block and multiplies them by the factor, if any.
fn unpack(packed: &Buffer<'_>, tensors: &Buffer<'_>, range: Range<usize>, factor: Option<f64>) {
    let size = tensors.dtype().size_bytes();
    let most = factor.map_or(usize::MAX, |_| BLOCK);
    for (at, place, elements) in places(packed, tensors, range, most) {
        // SAFETY: as in `pack`.
        unsafe { at.copy_from_nonoverlapping(place, elements * size) };
        scale_piece(tensors.dtype(), at, elements, factor);
    }
}

/// The position of each piece of at most `most` elements, in its tensor and in the block.
fn places<'b>(
    packed: &'b Buffer<'_>,
    tensors: &'b Buffer<'_>,
    range: Range<usize>,
    most: usize,
) -> impl Iterator<Item = (*mut u8, *mut u8, usize)> + 'b {
    let size = tensors.dtype().size_bytes();
    let mut packed_at = 0;
    tensors.pieces(range).flat_map(move |(block, offset, elements)| {
        let before = packed_at;
        packed_at += elements * size;
        (0..elements).step_by(most).map(move |done| {
            let at = tensors.address(block, offset + done * size);
            let place = packed.address(0, before + done * size);
            (at, place, most.min(elements - done))
        })
    })
}

fn scale_all(buffer: &mut Buffer<'_>, factor: Option<f64>) {
    for (block, offset, elements) in buffer.pieces(0..buffer.elements()) {
        scale_piece(buffer.dtype(), buffer.address(block, offset), elements, factor);
    }
}

/// Multiplies elements by a factor, before the collective begins or after it has finished. The elements belong to
/// this rank alone.
fn scale_piece(dtype: DataType, at: *mut u8, elements: usize, factor: Option<f64>) {
    let Some(factor) = factor else { return };
    for_dtype!(dtype, T => {
        // SAFETY: the callers pass pieces of their own buffers.
        scale(unsafe { std::slice::from_raw_parts_mut(at.cast::<T>(), elements) }, factor);
    });
}
