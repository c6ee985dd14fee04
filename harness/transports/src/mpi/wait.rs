//! How a process waits for MPI: it asks again and again, since MPI moves data only while it is asked.

use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::comm::Requests;
use crate::transport::TransportError;
use cluster::failure_detector::activity::Waits;

/// Who asks so often in vain gives the core to others in between.
const SPINS: usize = 2000;
/// The same where ranks outnumber cores.
const FEW_SPINS: usize = 10;
/// Who need not hurry sleeps so long in between ...
const NAP: Duration = Duration::from_micros(100);
/// ... and who waits longer than this sleeps, too.
const PATIENT: Duration = Duration::from_millis(10);

/// How long, and how, a process waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Who waits.
    pub rank: Rank,
    /// Then it gives up.
    pub timeout: Duration,
    /// The node has fewer cores than ranks.
    pub crowded: bool,
    /// There is no hurry.
    pub calm: bool,
}

impl Waiting {
    /// Waits for a request.
    ///
    /// # Errors
    /// When MPI refuses, or the timeout is over.
    #[inline]
    pub fn request(&self, requests: &mut Requests) -> Result<(), TransportError> {
        let peer = requests.peer().unwrap_or(self.rank);
        self.until(peer, || Ok(requests.is_over()?.then_some(())))
    }

    /// Waits for something that `peer` will bring about.
    ///
    /// # Errors
    /// When `is_there` fails, or the timeout is over.
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
            if self.calm || waited > PATIENT {
                std::thread::sleep(NAP)
            } else {
                std::thread::yield_now()
            }
        }
    }
}
