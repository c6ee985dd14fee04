//! Messages of bytes between processes.

use std::rc::Rc;
use std::sync::Arc;

use algorithms::topology::Rank;

use super::comm::{Comm, Requests};
use super::wait::Waiting;
use crate::transport::{MessageChannel, TransportError};

/// One process's messages, over a communicator of their own.
pub struct ControlChannel {
    comm: Rc<Comm>,
    waiting: Waiting,
    /// Sent messages that may not have been taken yet.
    outbox: Vec<(Requests, Arc<[u8]>)>,
}

impl ControlChannel {
    /// Messages over a communicator that nothing else uses.
    pub fn new(comm: Rc<Comm>, waiting: Waiting) -> ControlChannel {
        ControlChannel { comm, waiting, outbox: Vec::new() }
    }

    fn forget_what_was_taken(&mut self) -> Result<(), TransportError> {
        let mut index = 0;
        while index < self.outbox.len() {
            if self.outbox[index].0.is_over()? {
                drop(self.outbox.swap_remove(index))
            } else {
                index += 1
            }
        }
        Ok(())
    }
}

impl MessageChannel for ControlChannel {
    fn send(&mut self, to: Rank, message: Arc<[u8]>) -> Result<(), TransportError> {
        self.forget_what_was_taken()?;
        // The receiver does not know the length of a message: a part that is not full is the last one.
        let most = self.comm.most();
        for at in (0..=message.len()).step_by(most) {
            let part = &message[at..message.len().min(at + most)];
            // SAFETY: the outbox keeps the message until it has been taken, and never modifies it.
            let requests = unsafe { self.comm.send(part.as_ptr(), part.len(), to)? };
            self.outbox.push((requests, message.clone()));
        }
        Ok(())
    }

    fn receive(&mut self, expecting: Rank, message: &mut Vec<u8>) -> Result<Rank, TransportError> {
        let (comm, mut sender) = (&self.comm, None);
        message.clear();
        loop {
            let peer = sender.unwrap_or(expecting);
            let (from, bytes) = self.waiting.until(peer, || comm.arrived(sender))?;
            let before = message.len();
            message.resize(before + bytes, 0);
            // SAFETY: there is room, and the request completes before the memory is read.
            let mut requests =
                unsafe { comm.receive(message[before..].as_mut_ptr(), bytes, from)? };
            self.waiting.request(&mut requests)?;
            if bytes < comm.most() {
                return Ok(from);
            }
            sender = Some(from);
        }
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        for (requests, _) in &mut self.outbox {
            self.waiting.request(requests)?;
        }
        self.outbox.clear();
        Ok(())
    }
}
