//! What the harness times: an allreduce of a list of tensors, ours or a vendor's.

use std::time::{Duration, Instant};

use algorithms::control::ReduceOp;
use algorithms::grouped::Buffer as Packing;
use algorithms::program::Program;

use crate::element::{Combine, copy_kernel, scale};
use crate::execute::execute;
use crate::for_dtype;
use crate::memory::{Buffer, Memory};
use crate::transport::{Transport, TransportError};

/// An allreduce of one rank's tensors, all of one type, in place.
pub trait AllReduce {
    /// Reduces the tensors over all ranks as one vector.
    ///
    /// # Errors
    /// When a peer does not answer or has given up. The tensors then hold nothing of use.
    fn all_reduce(
        &mut self,
        tensors: &mut Buffer<'_>,
        op: ReduceOp,
    ) -> Result<Spent, TransportError>;
}

/// Where the time of an allreduce went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Copying tensors into the fusion buffer and back.
    pub packing: Duration,
}

/// One of our algorithms on a transport.
pub struct Scheduled<T> {
    transport: T,
    program: Program,
    packing: Packing,
    fusion_buffer: Memory,
}

impl<T: Transport> Scheduled<T> {
    /// Runs `program` on `transport`; several tensors are packed into a fusion buffer, or not.
    /// The buffer is given so that it can be used again, see [`Self::into_fusion_buffer`].
    pub fn new(
        transport: T,
        program: Program,
        packing: Packing,
        fusion_buffer: Memory,
    ) -> Scheduled<T> {
        Scheduled { transport, program, packing, fusion_buffer }
    }

    /// The fusion buffer, grown to the largest message so far.
    pub fn into_fusion_buffer(self) -> Memory {
        self.fusion_buffer
    }
}

impl<T: Transport> AllReduce for Scheduled<T> {
    fn all_reduce(
        &mut self,
        tensors: &mut Buffer<'_>,
        op: ReduceOp,
    ) -> Result<Spent, TransportError> {
        let combine = Combine::of(op);
        let factor = (op == ReduceOp::Average).then(|| 1.0 / self.transport.ranks() as f64);
        if tensors.blocks() <= 1 || self.packing == Packing::Scattered {
            execute(&mut self.transport, &self.program, tensors, combine)?;
            scale_all(tensors, factor);
            return Ok(Spent::default());
        }
        if self.fusion_buffer.size_bytes() < tensors.size_bytes() {
            self.fusion_buffer = Memory::new(tensors.size_bytes());
        }
        let start = Instant::now();
        let mut packed = Buffer::new(tensors.dtype());
        packed.push_first(&mut self.fusion_buffer, tensors.size_bytes());
        copy_all(&packed, tensors, Direction::Pack);
        let mut packing = start.elapsed();
        execute(&mut self.transport, &self.program, &mut packed, combine)?;
        scale_all(&mut packed, factor);
        let start = Instant::now();
        copy_all(&packed, tensors, Direction::Unpack);
        packing += start.elapsed();
        Ok(Spent { packing })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Pack,
    Unpack,
}

/// Copies all tensors into one block, back to back, or out of it again.
fn copy_all(packed: &Buffer<'_>, tensors: &Buffer<'_>, direction: Direction) {
    let copy = copy_kernel(tensors.dtype());
    let mut at = 0;
    for (block, offset, elements) in tensors.pieces(0..tensors.elements()) {
        let (tensor, place) = (tensors.address(block, offset), packed.address(0, at));
        // SAFETY: both are exclusively this rank's, and as long as all tensors together.
        unsafe {
            match direction {
                Direction::Pack => copy(place, tensor, elements),
                Direction::Unpack => copy(tensor, place, elements),
            }
        }
        at += elements * tensors.dtype().size_bytes();
    }
}

fn scale_all(buffer: &mut Buffer<'_>, factor: Option<f64>) {
    let Some(factor) = factor else { return };
    for (block, offset, elements) in buffer.pieces(0..buffer.elements()) {
        for_dtype!(buffer.dtype(), T => {
            // SAFETY: the piece is exclusively this rank's once the collective is over.
            let piece = unsafe {
                std::slice::from_raw_parts_mut(buffer.address(block, offset).cast::<T>(), elements)
            };
            scale(piece, factor);
        });
    }
}
