//! Devices that are kept between jobs.

use std::collections::HashMap;

use algorithms::topology::Rank;
use training::job::Job;

use super::device_rank::DeviceRank;
use crate::cuda::CudaError;
use crate::cuda::collective::RankStream;
use crate::cuda::streams::{Stream, Streams};

/// Devices that are kept between jobs, with their streams.
pub struct Devices<S> {
    /// The device streams.
    pub streams: S,
    /// The streams of messages and of passes of each rank on each device.
    slots: HashMap<(usize, Rank), (Stream, Stream)>,
}

impl<S: Streams> Devices<S> {
    /// Without work on them.
    pub fn new(streams: S) -> Devices<S> {
        Devices { streams, slots: HashMap::new() }
    }

    /// The device of a rank: neighbours are on the same one.
    pub fn device_of(&self, rank: Rank, ranks: usize) -> usize {
        let devices = self.streams.devices().len();
        rank * devices / ranks.max(devices)
    }

    /// A rank's streams on its device.
    pub(super) fn slot(
        &mut self,
        rank: Rank,
        ranks: usize,
    ) -> Result<(RankStream, Stream), CudaError> {
        let device = self.device_of(rank, ranks);
        if !self.slots.contains_key(&(device, rank)) {
            let messages = self.streams.urgent_stream(device)?;
            self.slots.insert((device, rank), (messages, self.streams.stream(device)?));
        }
        let (stream, compute) = self.slots[&(device, rank)];
        Ok((RankStream { device, stream }, compute))
    }

    /// Every device has room for its ranks of a job.
    ///
    /// # Errors
    /// The one that has not, with the figures.
    pub fn check_room(&mut self, job: &Job) -> Result<(), CudaError> {
        let ranks = job.topology.ranks();
        for device in 0..self.streams.devices().len() {
            let here = (0..ranks).filter(|&rank| self.device_of(rank, ranks) == device).count();
            self.check_room_of(job, device, here)?;
        }
        Ok(())
    }

    /// Checks that a device has room for this many ranks of a job.
    ///
    /// # Errors
    /// The sizes, if it has not.
    pub fn check_room_of(
        &mut self,
        job: &Job,
        device: usize,
        ranks: usize,
    ) -> Result<(), CudaError> {
        let need_bytes = ranks as u64 * DeviceRank::need_bytes(job) as u64;
        let free_bytes = self.streams.free_bytes(device)?;
        let mb = |bytes: u64| bytes / 1_000_000;
        if need_bytes > free_bytes {
            Err(CudaError::NoRoom {
                device,
                ranks,
                need_mb: mb(need_bytes),
                free_mb: mb(free_bytes),
            })
        } else {
            Ok(())
        }
    }
}
