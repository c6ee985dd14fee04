//! How a process waits for MPI: by polling, since MPI moves data only while it is called.

use std::time::{Duration, Instant};

use algorithms::topology::Rank;

use super::comm::Requests;
use crate::transport::TransportError;
use cluster::failure_detector::activity::Waits;

/// Polls between looks at the clock.
const POLLS: usize = 1000;
/// The same where the process does something else between them.
const FEW_POLLS: usize = 10;
/// How long a wait without hurry sleeps between polls.
const NAP: Duration = Duration::from_micros(100);

/// How a process waits, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The waiting rank.
    pub rank: Rank,
    /// The timeout.
    pub timeout: Duration,
    /// What it does meanwhile.
    pub meanwhile: Meanwhile,
}

/// What a waiting process does besides polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing, as in the library's own waits. Some libraries offer the core to others whenever they are polled in vain.
    Poll,
    /// It offers its core to others: there are more ranks than cores, and the library does not.
    Yield,
    /// It sleeps: the wait is not urgent.
    Sleep,
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
        let polls = if self.meanwhile == Meanwhile::Poll { POLLS } else { FEW_POLLS };
        for _ in 0..polls {
            if let Some(there) = is_there()? {
                return Ok(there);
            }
        }
        let (_waits, start) = (Waits::for_rank(peer), Instant::now());
        loop {
            for _ in 0..polls {
                if let Some(there) = is_there()? {
                    return Ok(there);
                }
            }
            let waited = start.elapsed();
            if waited > self.timeout {
                return Err(TransportError::Silent { rank: self.rank, peer, waited });
            }
            match self.meanwhile {
                Meanwhile::Poll => {}
                Meanwhile::Yield => std::thread::yield_now(),
                Meanwhile::Sleep => std::thread::sleep(NAP),
            }
        }
    }
}
