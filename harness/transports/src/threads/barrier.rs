//! A nonblocking barrier between threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::transport::NonblockingBarrier;

/// When each rank of a world arrived.
pub struct Arrivals {
    ranks: usize,
    arrivals: Mutex<Vec<Instant>>,
}

impl Arrivals {
    /// No rank has arrived.
    pub fn new(ranks: usize) -> Arc<Arrivals> {
        Arc::new(Arrivals { ranks, arrivals: Mutex::new(Vec::with_capacity(ranks)) })
    }
}

/// One rank's handle to it.
pub struct LastStep(pub Arc<Arrivals>);

impl NonblockingBarrier for LastStep {
    fn arrive(&mut self) {
        let mut arrivals = self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(Instant::now());
    }

    fn begun(&mut self) -> Option<Instant> {
        let arrivals = self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.iter().max().copied().filter(|_| arrivals.len() == self.0.ranks)
    }
}
