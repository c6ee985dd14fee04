//! How a process waits for MPI: by polling, since MPI moves data only while it is called.

use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::comm::Requests;
use crate::transport::TransportError;
use cluster::failure_detector::activity::Waits;

/// Polls before a waiting process yields its core.
const SPINS: usize = 2000;
/// The same with more ranks than cores.
const FEW_SPINS: usize = 10;
/// How long a wait without hurry sleeps between polls.
const NAP: Duration = Duration::from_micros(100);
/// How long any other wait only yields before it sleeps, too.
const AWAKE: Duration = Duration::from_millis(10);

/// How a process waits, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The waiting rank.
    pub rank: Rank,
    /// The timeout.
    pub timeout: Duration,
    /// The node has fewer cores than ranks.
    pub crowded: bool,
    /// The wait is not urgent.
    pub calm: bool,
}

impl Waiting {
    /// Waits for a request.
    ///
    /// # Errors
    /// When an MPI call fails, or at the timeout.
    #[inline]
    pub fn request(&self, requests: &mut Requests) -> Result<(), TransportError> {
        let peer = requests.peer().unwrap_or(self.rank);
        self.until(peer, || Ok(requests.is_over()?.then_some(())))
    }

    /// Waits for a condition that depends on `peer`.
    ///
    /// # Errors
    /// When `is_there` fails, or at the timeout.
    #[inline]
    pub fn until<T>(
        &self,
        peer: Rank,
        mut is_there: impl FnMut() -> Result<Option<T>, TransportError>,
    ) -> Result<T, TransportError> {
        for _ in 0..if self.crowded || self.calm { FEW_SPINS } else { SPINS } {
            if let Some(there) = is_there()? {
                return Ok(there);
            }
        }
        let (_waits, start) = (Waits::for_rank(peer), Instant::now());
        loop {
            if let Some(there) = is_there()? {
                return Ok(there);
            }
            let waited = start.elapsed();
            if waited > self.timeout {
                return Err(TransportError::Silent { rank: self.rank, peer, waited });
            }
            if self.calm || waited > AWAKE {
                std::thread::sleep(NAP)
            } else {
                std::thread::yield_now()
            }
        }
    }
}
