//! A nonblocking barrier between processes.

use std::rc::Rc;
use std::time::Instant;

use super::comm::{Comm, Requests};
use crate::transport::NonblockingBarrier;

/// A nonblocking barrier of all processes.
pub struct Barrier {
    comm: Rc<Comm>,
    requests: Option<Requests>,
    begun: Option<Instant>,
}

impl Barrier {
    /// A barrier that no process has reached.
    pub fn new(comm: Rc<Comm>) -> Barrier {
        Barrier { comm, requests: None, begun: None }
    }
}

impl NonblockingBarrier for Barrier {
    fn arrive(&mut self) {
        match self.comm.barrier() {
            Ok(requests) => self.requests = Some(requests),
            Err(error) => super::give_up(&error),
        }
    }

    /// The time, by this process's clock, at which it saw the barrier complete.
    fn begun(&mut self) -> Option<Instant> {
        if let Some(requests) = &mut self.requests {
            match requests.is_over() {
                Ok(false) => {}
                Ok(true) => (self.requests, self.begun) = (None, Some(Instant::now())),
                Err(error) => super::give_up(&error),
            }
        }
        self.begun
    }
}
