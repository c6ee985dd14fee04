//! Messages of gradients in host memory, one after the other: an allreduce on processors blocks the loop.

use std::time::Instant;

use algorithms::control::{DataType, Reduction, TensorId};
use transports::allreduce::AllReduce;
use transports::memory::{Buffer, Memory};
use transports::transport::TransportError;

use crate::gradients::Gradients;
use crate::job::Job;
use crate::trainer::Reduced;

/// Executes messages.
pub struct Messages<'a> {
    all_reduce: Box<dyn AllReduce + 'a>,
    wire: DataType,
    /// Empty between messages.
    buffer: Buffer<'static>,
    /// The last message, until it is collected.
    reduced: Option<Reduced>,
}

impl<'a> Messages<'a> {
    /// Makes an allreduce ready for every message of a job.
    pub fn new(
        job: &Job,
        gradients: &mut Gradients,
        mut all_reduce: Box<dyn AllReduce + 'a>,
    ) -> Messages<'a> {
        let wire = job.wire();
        let all = job.workload.elements() * wire.size_bytes();
        let largest = gradients.travelling().iter().map(Memory::size_bytes).max().unwrap_or(0);
        all_reduce.prepare(largest, all.min(job.fusion_threshold_bytes));
        Messages { all_reduce, wire, buffer: Buffer::new(wire), reduced: None }
    }

    /// Reduces these of all gradients as one vector. `start` is the beginning of the message.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn reduce(
        &mut self,
        start: Instant,
        gradients: &mut [Memory],
        tensors: &[TensorId],
        reduction: Reduction,
    ) -> Result<(), TransportError> {
        let blank = Buffer::new(self.wire);
        let mut buffer = std::mem::replace(&mut self.buffer, blank).emptied();
        buffer.push_each(gradients, tensors);
        let spent = self.all_reduce.all_reduce(&mut buffer, reduction)?;
        let time = start.elapsed();
        self.reduced = Some(Reduced {
            end: start + time,
            time,
            packing: spent.packing - spent.unpacking,
            unpacking: spent.unpacking,
            reduction: spent.reduction,
            tensors: tensors.len(),
            elements: buffer.elements(),
        });
        self.buffer = buffer.emptied();
        Ok(())
    }

    /// The last message, once.
    pub fn reduced(&mut self) -> Option<Reduced> {
        self.reduced.take()
    }

    /// The fusion buffer, to be used again.
    pub fn into_fusion_buffer(self) -> Memory {
        self.all_reduce.into_fusion_buffer()
    }
}
