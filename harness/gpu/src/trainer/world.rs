//! All ranks of a job on the devices of this process.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use algorithms::topology::Rank;

use super::device_rank::{DeviceRank, Message};
use super::{Devices, Hub};
use crate::cuda::CudaError;
use crate::cuda::collective::{Collective, RankStream};
use crate::cuda::streams::{Stream, Streams};
use crate::cuda::work::Address;
use training::job::Job;
use training::outcome::EngineError;
use transports::data_plane::Schedules;
use transports::kernel::ElementOp;
use transports::programs::of_all_ranks;

/// Ranks and their requests. The last rank to request a message enqueues it for all.
pub struct World<'d, 'a, S> {
    job: &'a Job<'a>,
    schedules: &'a Schedules,
    streams: &'d mut S,
    device_ranks: Vec<DeviceRank>,
    /// By the lengths of their pieces.
    collectives: HashMap<Vec<usize>, Collective>,
    /// For each rank: staging memory of collectives, and its bytes.
    aside: Vec<(Address, usize)>,
    /// For each rank: times of its requests that others have not made yet.
    asked: Vec<VecDeque<Instant>>,
}

impl<'d, 'a, S: Streams> World<'d, 'a, S> {
    /// Allocates the memory of all ranks.
    ///
    /// # Errors
    /// When a device has too little memory, with the sizes.
    pub fn new(
        devices: &'d mut Devices<S>,
        job: &'a Job<'a>,
        schedules: &'a Schedules,
    ) -> Result<Self, CudaError> {
        let ranks = job.topology.ranks();
        devices.check_room(job)?;
        let mut slots = Vec::new();
        for rank in 0..ranks {
            slots.push(devices.slot(rank, ranks)?);
        }
        let streams = &mut devices.streams;
        let (collectives, aside) = (HashMap::new(), vec![(0, 0); ranks]);
        let asked = vec![VecDeque::new(); ranks];
        let mut world =
            World { job, schedules, streams, device_ranks: Vec::new(), collectives, aside, asked };
        match world.fill(slots) {
            Ok(()) => Ok(world),
            Err(error) => {
                // The first error is returned.
                let _ = world.release();
                Err(error)
            }
        }
    }

    /// Allocates everything, including the memory of the largest expected message.
    fn fill(&mut self, slots: Vec<(RankStream, Stream)>) -> Result<(), CudaError> {
        for (rank_stream, compute) in slots {
            self.device_ranks.push(DeviceRank::new(self.streams, self.job, rank_stream, compute)?);
        }
        let elements = DeviceRank::fusion_elements(self.job);
        self.plan(&[elements])
    }

    /// Puts a message on the streams of all ranks.
    fn enqueue(&mut self, message: &Message, asked: &[Instant]) -> Result<(), CudaError> {
        let lengths = self.device_ranks[0].lengths(&message.tensors);
        self.plan(&lengths)?;
        let World { streams, device_ranks, .. } = self;
        let mut vectors = Vec::new();
        for (device_rank, &asked) in device_ranks.iter_mut().zip(asked) {
            vectors.push(device_rank.pack(*streams, message, asked)?);
        }
        let World { streams, device_ranks, collectives, aside, .. } = self;
        let data: Vec<Address> =
            vectors.iter().flat_map(|vector| &vector.pieces).map(|piece| piece.address).collect();
        let aside: Vec<Address> = aside.iter().map(|&(address, _)| address).collect();
        collectives[&lengths].enqueue_with(*streams, &data, &aside)?;
        let mut pairs = device_ranks.iter_mut().zip(&vectors);
        pairs.try_for_each(|(device_rank, vector)| device_rank.unpack(*streams, message, vector))
    }

    /// Plans a collective on pieces of these lengths, unless it has been planned before.
    fn plan(&mut self, lengths: &[usize]) -> Result<(), CudaError> {
        if self.collectives.contains_key(lengths) {
            return Ok(());
        }
        let elements: usize = lengths.iter().sum();
        let (job, wire) = (self.job, self.job.wire());
        let size_bytes = elements * wire.size_bytes();
        let programs = of_all_ranks(&self.schedules.choices, size_bytes, job.sizes.segment_bytes);
        let rank_streams: Vec<RankStream> =
            self.device_ranks.iter().map(|device_rank| device_rank.rank_stream).collect();
        let planned = Collective::plan(self.streams, &programs, &rank_streams, elements, wire);
        let planned = match lengths {
            [_] => planned,
            several => planned.scattered(several, wire.size_bytes()),
        };
        for ((place, bytes), (&needed, rank_stream)) in
            self.aside.iter_mut().zip(planned.aside_bytes.iter().zip(&rank_streams))
        {
            if needed > *bytes {
                if std::mem::take(bytes) > 0 {
                    self.streams.release(*place)?;
                }
                *place = self.streams.allocate(rank_stream.device, needed)?;
                *bytes = needed;
            }
        }
        let combine = ElementOp::of(job.op);
        let collective =
            Collective::without_aside(self.streams, planned, &rank_streams, wire, combine)?;
        self.collectives.insert(lengths.to_vec(), collective);
        Ok(())
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// When some of the work failed.
    pub fn release(self) -> Result<(), CudaError> {
        let streams = self.streams;
        let aside = self.aside.into_iter().filter(|&(_, bytes)| bytes > 0);
        let mut ended = Ok(());
        for device_rank in self.device_ranks {
            ended = ended.and(device_rank.release(streams));
        }
        for collective in self.collectives.into_values() {
            ended = ended.and(collective.release(streams));
        }
        aside.fold(ended, |ended, (address, _)| ended.and(streams.release(address)))
    }
}

impl<S: Streams> Hub for World<'_, '_, S> {
    type Streams = S;

    fn device_rank(&mut self, rank: Rank) -> (&mut S, &mut DeviceRank) {
        (self.streams, &mut self.device_ranks[rank])
    }

    fn share(&self, rank: Rank) -> usize {
        let device = self.device_ranks[rank].rank_stream.device;
        self.device_ranks
            .iter()
            .filter(|device_rank| device_rank.rank_stream.device == device)
            .count()
    }

    fn reduce(&mut self, rank: Rank, message: &Message, now: Instant) -> Result<(), EngineError> {
        self.asked[rank].push_back(now);
        // All ranks request the same messages in the same order, so this is the last rank's next one.
        if self.asked.iter().any(VecDeque::is_empty) {
            return Ok(());
        }
        let asked: Vec<Instant> = self.asked.iter_mut().filter_map(VecDeque::pop_front).collect();
        Ok(self.enqueue(message, &asked)?)
    }

    fn awaited(&self, rank: Rank) -> Option<Rank> {
        let waits = !self.asked[rank].is_empty();
        self.asked.iter().position(VecDeque::is_empty).filter(|_| waits)
    }
}
