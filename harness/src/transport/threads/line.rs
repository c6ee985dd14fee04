//! One direction between two ranks: two slots that the sender writes and a counter that the receiver
//! writes, each on cache lines of its own.
//!
//! The sender's n-th message is in slot n mod 2. Both ranks derive from the schedule what it is about,
//! so that it says no more than where the sender's data are, and how many messages the sender has taken
//! the other way. A message of at most [`CARRIED_BYTES`] is carried by the slot itself if the last one
//! that this slot carried has been taken; then its sender need not wait for anybody. Ranks that exchange
//! small messages learn that from each other's messages, and two cache lines are all that moves.

use super::sync::{AtomicPtr, AtomicU64, Ordering};

/// What a message may carry itself.
pub const CARRIED_BYTES: usize = 472;

/// Bytes of a message that is carried, in words.
pub type Words = [u64; CARRIED_BYTES / 8];

/// See the head of this file.
#[derive(Default)]
#[repr(align(128))]
pub struct Line {
    slots: [Slot; 2],
    receiver: Receiver,
}

#[repr(align(128))]
struct Slot {
    /// The newest message in this slot.
    posted: AtomicU64,
    /// What it points to. In a collective all messages of a pair point to the same buffer, so looking
    /// ahead does no harm. Only who takes a message that is neither carried nor put, or puts, follows
    /// the address; either keeps the buffer's owner inside its collective, so that the address is never
    /// that of an earlier or later one.
    address: AtomicPtr<()>,
    /// What it looks like there.
    shape: AtomicU64,
    /// Messages that the sender has taken from the receiver.
    acknowledged: AtomicU64,
    /// Which message `words` belong to, and how many bytes of them: count x 512 + bytes.
    carried: AtomicU64,
    words: [AtomicU64; CARRIED_BYTES / 8],
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            posted: AtomicU64::default(),
            address: AtomicPtr::default(),
            shape: AtomicU64::default(),
            acknowledged: AtomicU64::default(),
            carried: AtomicU64::default(),
            words: std::array::from_fn(|_| AtomicU64::default()),
        }
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Receiver {
    /// Messages taken so far: their memory is the sender's again.
    taken: AtomicU64,
}

impl Line {
    #[inline]
    fn slot(&self, count: u64) -> &Slot {
        &self.slots[(count % 2) as usize]
    }

    /// The sender's `count`-th message: something that stays where it is until it is taken. Besides,
    /// that it has taken the `acknowledged`-th message the other way.
    #[inline]
    pub fn post(&self, count: u64, address: *mut (), shape: u64, acknowledged: u64) {
        let slot = self.slot(count);
        slot.address.store(address, Ordering::Relaxed);
        slot.shape.store(shape, Ordering::Relaxed);
        slot.acknowledged.store(acknowledged, Ordering::Release);
        slot.posted.store(count, Ordering::Release);
        own(self.slot(count + 1));
    }

    /// Whether the sender may [`Self::carry`] its `count`-th message, if so many are known to have been
    /// taken; looks for more only if these are too few.
    #[inline]
    pub fn has_room(&self, count: u64, taken: &mut u64) -> bool {
        let last = self.slot(count).carried.load(Ordering::Relaxed) / 512;
        if last > *taken {
            *taken = self.receiver.taken.load(Ordering::Acquire);
        }
        last <= *taken
    }

    /// The bytes of the message that the sender posts next, as its `count`-th.
    #[inline]
    pub fn carry(&self, count: u64, words: &Words, bytes: usize) {
        let slot = self.slot(count);
        for (to, from) in slot.words.iter().zip(&words[..bytes.div_ceil(8)]) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.carried.store(count * 512 + bytes as u64, Ordering::Relaxed);
    }

    /// Whether the `count`-th message has been posted.
    #[inline]
    pub fn is_posted(&self, count: u64) -> bool {
        self.slot(count).posted.load(Ordering::Acquire) >= count
    }

    /// How many bytes the `count`-th message, which has been posted and not taken, carries, if it is
    /// carried.
    #[inline]
    pub fn carried_bytes(&self, count: u64) -> Option<usize> {
        let carried = self.slot(count).carried.load(Ordering::Relaxed);
        (carried / 512 == count).then_some((carried % 512) as usize)
    }

    /// The first `bytes` bytes of the `count`-th message, which is carried and has not been taken.
    #[inline]
    pub fn carried(&self, count: u64, bytes: usize) -> Words {
        let mut words = [0; CARRIED_BYTES / 8];
        for (to, from) in words[..bytes.div_ceil(8)].iter_mut().zip(&self.slot(count).words) {
            *to = from.load(Ordering::Relaxed);
        }
        words
    }

    /// What the `count`-th message, which has been posted, points to, and what it looks like.
    #[inline]
    pub fn address(&self, count: u64) -> (*mut (), u64) {
        let slot = self.slot(count);
        (slot.address.load(Ordering::Relaxed), slot.shape.load(Ordering::Relaxed))
    }

    /// So many messages the other way, at least, had been taken when the `count`-th message was sent.
    #[inline]
    pub fn acknowledged(&self, count: u64) -> u64 {
        self.slot(count).acknowledged.load(Ordering::Acquire)
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

/// Fetches a slot's first cache line to be written soon.
#[inline]
fn own(slot: &Slot) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which changes nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(slot).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}
