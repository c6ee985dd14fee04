//! What processes that MPI connects report to each other, beside the data of ranks.

use std::rc::Rc;
use std::sync::Arc;

use algorithms::topology::Rank;
use serde::Serialize;
use serde::de::DeserializeOwned;

use training::back_end::Exchange;
use transports::mpi::{ControlChannel, TIMEOUT, World};
use transports::transport::{MessageChannel, TransportError};

/// Reports of all processes of a job, in messages that nothing else uses.
pub struct Reports {
    rank: Rank,
    ranks: usize,
    channel: ControlChannel,
}

impl Reports {
    /// Of the processes of a job. Called by all.
    ///
    /// # Errors
    /// When an MPI call fails.
    pub fn new(world: &World) -> Result<Reports, TransportError> {
        let ranks = world.comm().ranks();
        let all: Vec<Rank> = (0..ranks).collect();
        let channel =
            ControlChannel::new(Rc::new(world.comm().within(&all)?), world.waiting(TIMEOUT));
        Ok(Reports { rank: world.rank(), ranks, channel })
    }

    /// Sends a report to rank 0.
    ///
    /// # Errors
    /// When MPI refuses, or rank 0 does not take it.
    pub fn send(&mut self, own: &impl Serialize) -> Result<(), TransportError> {
        self.channel.send(0, encoded(own))?;
        self.channel.flush()
    }

    /// The next report, by default from process `expecting`, and whose it is.
    ///
    /// # Errors
    /// When none arrives.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        expecting: Rank,
    ) -> Result<(Rank, T), TransportError> {
        let mut message = Vec::new();
        let from = self.channel.receive(expecting, &mut message)?;
        let read = postcard::from_bytes(&message);
        Ok((from, read.expect("all processes run the same program")))
    }

    /// Gathers the data of each process, in the order of ranks, on all of them. All must call it.
    ///
    /// # Errors
    /// When a process does not answer.
    pub fn share<T: Serialize + DeserializeOwned>(
        &mut self,
        own: T,
    ) -> Result<Vec<T>, TransportError> {
        if self.rank > 0 {
            self.send(&own)?;
            return Ok(self.receive(0)?.1);
        }
        let mut reported: Vec<Option<T>> = (0..self.ranks).map(|_| None).collect();
        reported[0] = Some(own);
        while let Some(missing) = reported.iter().position(Option::is_none) {
            let (from, report) = self.receive(missing)?;
            reported[from] = Some(report);
        }
        let reported: Vec<T> = reported.into_iter().flatten().collect();
        let message = encoded(&reported);
        for process in 1..self.ranks {
            self.channel.send(process, message.clone())?;
        }
        self.channel.flush()?;
        Ok(reported)
    }
}

fn encoded(report: &impl Serialize) -> Arc<[u8]> {
    postcard::to_stdvec(report).expect("plain data").into()
}

impl Exchange for Reports {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn share(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, TransportError> {
        Reports::share(self, own)
    }
}
