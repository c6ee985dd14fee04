//! Messages of bytes between ranks, over the same channels as data.

use std::sync::Arc;

use algorithms::topology::Rank;

use super::channel::Message;
use super::{Endpoint, Links};
use crate::transport::{MessageChannel, Transport, TransportError};

/// Messages of bytes between ranks, for control planes. They use links of their own, separate from the data.
pub struct ControlChannel {
    endpoint: Endpoint,
    /// Sent messages that may not have been taken yet.
    outbox: Vec<(Rank, u64, Arc<[u8]>)>,
}

impl ControlChannel {
    /// Messages over an endpoint that nothing else uses.
    pub fn new(endpoint: Endpoint) -> ControlChannel {
        ControlChannel { endpoint, outbox: Vec::new() }
    }
}

impl MessageChannel for ControlChannel {
    fn set_calm(&mut self, calm: bool) {
        self.endpoint.set_calm(calm);
    }

    fn send(&mut self, to: Rank, message: Arc<[u8]>) -> Result<(), TransportError> {
        // One message per pair at a time: the channel has room for one address. Messages that have not been taken
        // stay in the outbox in every case.
        for &(_, count, _) in self.outbox.iter().filter(|(peer, ..)| *peer == to) {
            self.endpoint.wait_taken(to, count)?;
        }
        self.outbox.retain(|(peer, ..)| *peer != to);
        self.endpoint.post(to, message.as_ptr().cast_mut().cast(), message.len() as u64);
        self.outbox.push((to, self.endpoint.posted[to], message));
        Ok(())
    }

    fn receive(&mut self, expecting: Rank, message: &mut Vec<u8>) -> Result<Rank, TransportError> {
        let endpoint = &self.endpoint;
        let next = |links: &Links| {
            (0..links.ranks).find(|&from| {
                links.channel(from, endpoint.rank).is_posted(endpoint.taken[from] + 1)
            })
        };
        endpoint.wait(|| expecting, |links| next(links).is_some())?;
        let from = next(&endpoint.links).expect("messages do not go away");
        self.endpoint.arrived(from)?;
        let (channel, next) = self.endpoint.next(from);
        let Message::Address(address, length) = channel.message(next) else {
            unreachable!("messages are sent by address");
        };
        message.clear();
        // SAFETY: the sender keeps the message until it is taken.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length as usize) };
        message.extend_from_slice(bytes);
        self.endpoint.take(from);
        Ok(from)
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        for (to, count, _) in &self.outbox {
            self.endpoint.wait_taken(*to, *count)?;
        }
        self.outbox.clear();
        Ok(())
    }
}

impl Drop for ControlChannel {
    /// Waits until all readers have finished or left.
    fn drop(&mut self) {
        let flushed = if std::thread::panicking() {
            Err(TransportError::Aborted {
                by: self.endpoint.rank,
                reason: "its thread panicked".into(),
            })
        } else {
            self.flush()
        };
        if let Err(error) = flushed {
            let unread = self.outbox.iter().map(|&(to, count, _)| (to, count));
            self.endpoint.sends = unread.collect();
            self.endpoint.settled = 0;
            self.endpoint.leave(error, &[]);
        }
    }
}
