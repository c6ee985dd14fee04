//! Counters of a control plane, which add up over ranks and cycles.

use std::ops::AddAssign;

use super::stop::Stop;

/// Counters of one rank's plane since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of cycles.
    pub cycles: usize,
    /// Cycles in which rank 0 negotiated.
    pub slow_cycles: usize,
    /// Tensors that were cached when the queue was drained. One that goes back to the queue counts again.
    pub hits: usize,
    /// Tensors that were not cached.
    pub misses: usize,
    /// Tensors that were cached in another shape or type, or have been waiting for too long.
    pub invalid: usize,
    /// Cache entries that were evicted.
    pub evictions: usize,
    /// Messages by the reason why no more tensors were fused, in the order of [`Stop::ALL`].
    pub stops: [usize; Stop::ALL.len()],
    /// Control messages that this rank sent; a broadcast counts for every receiver.
    pub messages_sent: usize,
    /// Control messages that this rank received.
    pub messages_received: usize,
    /// Bytes sent, in our format.
    pub bytes_wire_sent: usize,
    /// Bytes received, in our format.
    pub bytes_wire_received: usize,
    /// Bytes that Horovod would have sent instead, by the formulas in [`super::message`].
    pub bytes_horovod_sent: usize,
    /// Number of bitwise reductions.
    pub bitwise: usize,
    /// Bytes of this rank's vectors in them.
    pub bitwise_bytes: usize,
}

impl Report {
    /// Counts `messages` sent messages of `bytes` each, of `bytes_horovod` in Horovod's format.
    pub(super) fn sent(&mut self, messages: usize, bytes: usize, bytes_horovod: usize) {
        self.messages_sent += messages;
        self.bytes_wire_sent += messages * bytes;
        self.bytes_horovod_sent += messages * bytes_horovod;
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.cycles += other.cycles;
        self.slow_cycles += other.slow_cycles;
        self.hits += other.hits;
        self.misses += other.misses;
        self.invalid += other.invalid;
        self.evictions += other.evictions;
        self.stops.iter_mut().zip(other.stops).for_each(|(sum, more)| *sum += more);
        self.messages_sent += other.messages_sent;
        self.messages_received += other.messages_received;
        self.bytes_wire_sent += other.bytes_wire_sent;
        self.bytes_wire_received += other.bytes_wire_received;
        self.bytes_horovod_sent += other.bytes_horovod_sent;
        self.bitwise += other.bitwise;
        self.bitwise_bytes += other.bitwise_bytes;
    }
}
