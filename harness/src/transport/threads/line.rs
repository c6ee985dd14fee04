//! One direction between two ranks: two counters and a few bytes on two cache lines, of which each
//! is written by one rank only.
//!
//! The sender counts up `posted`, the receiver counts up `taken`. Both derive from the schedule what
//! the n-th message is about, so that a message says no more than where the sender's data are. A
//! message of at most [`CARRIED_BYTES`] is carried by the line itself if the last one that was so
//! carried has been taken; then its sender need not wait for anybody.

use super::sync::{AtomicPtr, AtomicU64, Ordering};

/// What a message may carry itself.
pub const CARRIED_BYTES: usize = 32;

/// See the head of this file.
#[derive(Default)]
#[repr(align(128))]
pub struct Line {
    sender: Sender,
    receiver: Receiver,
}

#[derive(Default)]
#[repr(align(64))]
struct Sender {
    /// Messages sent so far.
    posted: AtomicU64,
    /// What the newest message points to. In a collective all messages of a pair point to the same
    /// buffer, so looking ahead does no harm. Only who takes a message that is neither carried nor
    /// put, or puts, follows the address; either keeps the buffer's owner inside its collective, so
    /// that the address is never that of an earlier or later one.
    address: AtomicPtr<()>,
    /// What it looks like there.
    shape: AtomicU64,
    /// Which message `bytes` belong to, and how many there are: count x 64 + bytes.
    carried: AtomicU64,
    bytes: [AtomicU64; CARRIED_BYTES / 8],
}

#[derive(Default)]
#[repr(align(64))]
struct Receiver {
    /// Messages taken so far: their memory is the sender's again.
    taken: AtomicU64,
}

impl Line {
    /// The sender's `count`-th message: something that stays where it is until it is taken.
    #[inline]
    pub fn post(&self, count: u64, address: *mut (), shape: u64) {
        self.sender.address.store(address, Ordering::Relaxed);
        self.sender.shape.store(shape, Ordering::Relaxed);
        self.sender.posted.store(count, Ordering::Release);
    }

    /// Whether the sender may [`Self::carry`] a message.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.is_taken(self.sender.carried.load(Ordering::Relaxed) / 64)
    }

    /// The bytes of the message that the sender posts next, as its `count`-th.
    #[inline]
    pub fn carry(&self, count: u64, bytes: &[u8]) {
        let mut padded = [0; CARRIED_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in self.sender.bytes.iter().zip(padded.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.sender.carried.store(count * 64 + bytes.len() as u64, Ordering::Relaxed);
    }

    /// Whether the `count`-th message has been posted.
    #[inline]
    pub fn is_posted(&self, count: u64) -> bool {
        self.sender.posted.load(Ordering::Acquire) >= count
    }

    /// Whether the `count`-th message, which has been posted, is carried.
    #[inline]
    pub fn is_carried(&self, count: u64) -> bool {
        self.sender.carried.load(Ordering::Relaxed) / 64 == count
    }

    /// The bytes of a message that is carried and has not been taken, and how many there are.
    #[inline]
    pub fn carried(&self) -> ([u8; CARRIED_BYTES], usize) {
        let mut bytes = [0; CARRIED_BYTES];
        for (word, bytes) in self.sender.bytes.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        (bytes, (self.sender.carried.load(Ordering::Relaxed) % 64) as usize)
    }

    /// What the newest message points to, and what it looks like.
    #[inline]
    pub fn address(&self) -> (*mut (), u64) {
        let address = self.sender.address.load(Ordering::Relaxed);
        (address, self.sender.shape.load(Ordering::Relaxed))
    }

    /// The receiver is done with the `count`-th message and all before it.
    #[inline]
    pub fn take(&self, count: u64) {
        self.receiver.taken.store(count, Ordering::Release);
    }

    /// Whether the `count`-th message has been taken.
    #[inline]
    pub fn is_taken(&self, count: u64) -> bool {
        self.receiver.taken.load(Ordering::Acquire) >= count
    }
}
