//! The connections that remain after a rendezvous: ranks exchange small data and detect failures.

use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;
use cluster::failure_detector::{Diagnosis, FailureDetector, Limits, Mode};
use cluster::job_channel::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Facts;
use crate::nccl::NcclError;
use crate::nccl::comm::FailureCheck;

/// Between two looks for data.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// This process among those of its job: rank 0 is connected with all others, the others with rank 0.
pub struct Control {
    /// This rank.
    pub rank: Rank,
    /// Facts of all processes, in the order of their ranks.
    pub facts: Vec<Facts>,
    detector: FailureDetector,
    timeout: Duration,
}

impl Control {
    pub(super) fn new(
        rank: Rank,
        facts: Vec<Facts>,
        connections: Vec<(Rank, Connection)>,
        timeout: Duration,
    ) -> Control {
        // Every wait has a timeout, so a standstill ends by itself.
        let limits = Limits { timeout, standstill: None };
        let detector = FailureDetector::start(rank, connections, limits, Mode::Polled);
        let detector = detector.expect("a process can duplicate a socket and start a thread");
        Control { rank, facts, detector, timeout }
    }

    /// World size.
    pub fn ranks(&self) -> usize {
        self.facts.len()
    }

    /// Gathers the bytes of all ranks at rank 0; empty elsewhere.
    ///
    /// # Errors
    /// When a process has failed or does not send its part within the timeout.
    pub fn gather(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, NcclError> {
        if self.rank > 0 {
            self.detector.send(own);
            return Ok(Vec::new());
        }
        let mut all = vec![own];
        for peer in 1..self.ranks() {
            all.push(self.receive(peer)?);
        }
        Ok(all)
    }

    /// Rank 0's bytes, everywhere.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn broadcast(&mut self, own: Vec<u8>) -> Result<Vec<u8>, NcclError> {
        if self.rank > 0 {
            return self.receive(0);
        }
        self.detector.send(own.clone());
        Ok(own)
    }

    /// What each process reports, in the order of ranks, everywhere.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn share<T: Serialize + DeserializeOwned>(&mut self, own: T) -> Result<Vec<T>, NcclError> {
        let all = self.gather(postcard::to_stdvec(&own).expect("plain data"))?;
        let all = self.broadcast(postcard::to_stdvec(&all).expect("plain data"))?;
        let all: Vec<Vec<u8>> = postcard::from_bytes(&all).expect("the same program");
        let read = |own: &Vec<u8>| postcard::from_bytes(own).expect("the same program");
        Ok(all.iter().map(read).collect())
    }

    /// A barrier of all ranks.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn barrier(&mut self) -> Result<(), NcclError> {
        self.gather(Vec::new())?;
        self.broadcast(Vec::new())?;
        Ok(())
    }

    /// Notifies all ranks why this one gives up, and returns the most specific error: if another process is at
    /// fault, the one that names it.
    pub fn give_up(&mut self, error: NcclError) -> NcclError {
        if self.ranks() == 1 {
            return error;
        }
        let is_timeout = matches!(error, NcclError::Silent { .. });
        match self.detector.give_up(&error.to_string(), is_timeout) {
            Some(Diagnosis::GaveUp { rank, .. }) if rank == self.rank => error,
            Some(diagnosis) => self.explain(diagnosis),
            None => error,
        }
    }

    /// Processes may end from now on; rank 0 waits until all others have called this.
    pub fn finish(mut self) {
        self.detector.finish();
    }

    /// The next data of a process.
    fn receive(&mut self, from: Rank) -> Result<Vec<u8>, NcclError> {
        let start = Instant::now();
        loop {
            if let Some(data) = self.detector.receive(from) {
                return Ok(data);
            }
            if let Err(failure) = self.check() {
                // The last data of a process may have arrived together with its end.
                return self.detector.receive(from).ok_or(failure);
            }
            if start.elapsed() > self.timeout {
                let (call, waited) = (format!("data from rank {from}"), start.elapsed());
                return Err(NcclError::Silent {
                    rank: self.rank,
                    ranks: self.ranks(),
                    call,
                    waited,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn explain(&self, diagnosis: Diagnosis) -> NcclError {
        let (rank, peer) = (self.rank, diagnosis.rank());
        let host = self.facts.get(peer).map_or(String::new(), |facts| facts.host.clone());
        match diagnosis {
            Diagnosis::Lost { .. } => NcclError::Lost { rank, peer, host },
            Diagnosis::GaveUp { reason, .. } => {
                NcclError::GaveUp { rank, by: peer, host, why: reason }
            }
            other => NcclError::Unresponsive { peer, host, diagnosis: other.to_string() },
        }
    }
}

impl FailureCheck for Control {
    fn check(&mut self) -> Result<(), NcclError> {
        self.detector.diagnosis().map_or(Ok(()), |diagnosis| Err(self.explain(diagnosis)))
    }
}
