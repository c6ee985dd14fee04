//! One rank of a job whose other ranks are processes, each with a GPU, over NCCL.

use std::time::Instant;

use algorithms::topology::Rank;

use super::device_rank::{DeviceRank, Message};
use super::{Devices, Hub};
use crate::cuda::CudaError;
use crate::cuda::streams::Streams;
use crate::nccl::allreduce::{DeviceAllReduce, Vector};
use training::job::Job;
use training::outcome::EngineError;
use transports::kernel::ElementOp;

/// This rank's GPU, and its end of the data plane.
pub struct Process<'d, 'p, S> {
    streams: &'d mut S,
    device_rank: DeviceRank,
    all_reduce: DeviceAllReduce<'p>,
    /// Ranks on this GPU.
    share: usize,
}

impl<'d, 'p, S: Streams> Process<'d, 'p, S> {
    /// Allocates the memory of a rank on the first device, which `share` ranks use.
    ///
    /// # Errors
    /// When there is too little memory.
    pub fn new(
        devices: &'d mut Devices<S>,
        job: &Job,
        mut all_reduce: DeviceAllReduce<'p>,
        share: usize,
    ) -> Result<Self, CudaError> {
        let (rank_stream, compute) = devices.slot(0, 1)?;
        let streams = &mut devices.streams;
        let device_rank = DeviceRank::new(streams, job, rank_stream, compute)?;
        all_reduce.prepare(
            streams,
            rank_stream.device,
            DeviceRank::fusion_elements(job),
            device_rank.wire,
        )?;
        Ok(Process { streams, device_rank, all_reduce, share })
    }

    /// Gives everything back. All ranks call this.
    ///
    /// # Errors
    /// An error of the driver or NCCL.
    pub fn release(self) -> Result<(), EngineError> {
        self.device_rank.release(self.streams)?;
        Ok(self.all_reduce.finish(self.streams, &mut ())?)
    }
}

impl<S: Streams> Hub for Process<'_, '_, S> {
    type Streams = S;

    fn device_rank(&mut self, _: Rank) -> (&mut S, &mut DeviceRank) {
        (self.streams, &mut self.device_rank)
    }

    fn share(&self, _: Rank) -> usize {
        self.share
    }

    fn reduce(&mut self, _: Rank, message: &Message, now: Instant) -> Result<(), EngineError> {
        let Process { streams, device_rank, all_reduce, .. } = self;
        let vector = device_rank.pack(*streams, message, now)?;
        let combine = ElementOp::of(message.reduction.op);
        // One: data planes that do not pack are refused over NCCL.
        for piece in &vector.pieces {
            let (data, elements, dtype) = (piece.address, piece.elements, device_rank.wire);
            let part = Vector { data, elements, dtype, combine };
            all_reduce.enqueue(*streams, &device_rank.rank_stream, &part, &mut ())?;
        }
        Ok(device_rank.unpack(*streams, message, &vector)?)
    }

    /// Unknown in this process.
    fn awaited(&self, _: Rank) -> Option<Rank> {
        None
    }

    fn check(&mut self) -> Result<(), EngineError> {
        Ok(self.all_reduce.check()?)
    }
}
