//! One direction between two ranks: two slots that the sender writes and a counter that the receiver
//! writes, each on cache lines of its own.
//!
//! The sender's n-th message is in slot n mod 2, and says where its data are or, if they are few, brings
//! them along. Besides it says how many messages the
//! sender has taken the other way: ranks that exchange small messages need no other acknowledgement, and
//! one cache line each is all that moves.
//!
//! A slot has room for a message once its last one has been taken. A sender that does not want to wait
//! for that can still post an address, aside; messages of one collective all have the same.

use super::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// What a message may bring along.
pub const CARRIED_BYTES: usize = 1024;

/// See the head of this file.
#[derive(Default)]
#[repr(align(128))]
pub struct Channel {
    slots: [Slot; 2],
    receiver: Receiver,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes come with it.
    Bytes(usize),
    /// Where the data are, and of what shape.
    Address(*mut (), u64),
}

/// The code of a message that is an address.
const ADDRESS: u64 = 2047;

#[repr(align(128))]
struct Slot {
    /// The newest message in this slot.
    posted: AtomicU64,
    /// Which message `words` belong to, and what it says: count x 2048 + code, or + bytes.
    code: AtomicU64,
    /// Messages that the sender has taken from the receiver.
    acknowledged: AtomicU64,
    words: UnsafeCell<[u64; CARRIED_BYTES / 8]>,
    /// The newest address that was posted aside. The message that `words` belong to is not the newest
    /// then; it has not been taken.
    address: AtomicPtr<()>,
    shape: AtomicU64,
}

// SAFETY: `words` are written by the sender while there is room, and read by the receiver between the
// post of the message that they belong to and its being taken.
unsafe impl Sync for Slot {}
// SAFETY: as above; addresses are never followed here.
unsafe impl Send for Slot {}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            posted: AtomicU64::default(),
            code: AtomicU64::default(),
            acknowledged: AtomicU64::default(),
            words: UnsafeCell::new([0; CARRIED_BYTES / 8]),
            address: AtomicPtr::default(),
            shape: AtomicU64::default(),
        }
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Receiver {
    /// Messages taken so far: their memory is the sender's again.
    taken: AtomicU64,
}

impl Channel {
    #[inline]
    fn slot(&self, count: u64) -> &Slot {
        &self.slots[(count % 2) as usize]
    }

    /// Sender: whether a slot has room after its last message that was not posted aside, if so many are
    /// known to have been taken; looks for more only if these are too few. (The sender remembers that
    /// message: to read its own slot it might have to fetch it from the receiver.)
    #[inline]
    pub fn has_room(&self, last: u64, taken: &mut u64) -> bool {
        if last > *taken {
            *taken = self.receiver.taken.load(Ordering::Acquire);
        }
        last <= *taken
    }

    /// Sender: writes the bytes of the `count`-th message.
    ///
    /// # Safety
    /// There is room, and `write` writes no more than [`CARRIED_BYTES`].
    #[inline]
    pub unsafe fn fill(&self, count: u64, write: impl FnOnce(*mut u8)) {
        self.slot(count).words.with_mut(|words| write(words.cast()));
    }

    /// Sender: posts the `count`-th message, for which there is room, having taken so many messages the
    /// other way. What it points to stays as it is until it is taken; bytes are there already.
    ///
    /// # Safety
    /// There is room.
    #[inline]
    pub unsafe fn post(&self, count: u64, message: Message, acknowledged: u64) {
        let slot = self.slot(count);
        let code = match message {
            Message::Bytes(bytes) => bytes as u64,
            Message::Address(address, shape) => {
                // SAFETY: there is room, so the words are the sender's.
                slot.words.with_mut(|words| unsafe {
                    (*words)[0] = address.expose_provenance() as u64;
                    (*words)[1] = shape;
                });
                ADDRESS
            }
        };
        slot.code.store(count * 2048 + code, Ordering::Relaxed);
        slot.acknowledged.store(acknowledged, Ordering::Release);
        slot.posted.store(count, Ordering::Release);
    }

    /// Sender: posts the `count`-th message, an address, for which there is no room.
    #[inline]
    pub fn post_aside(&self, count: u64, address: *mut (), shape: u64, acknowledged: u64) {
        let slot = self.slot(count);
        slot.address.store(address, Ordering::Relaxed);
        slot.shape.store(shape, Ordering::Relaxed);
        self.post_nothing(count, acknowledged);
    }

    /// Sender: posts the `count`-th message, of which the receiver knows what it means.
    #[inline]
    pub fn post_nothing(&self, count: u64, acknowledged: u64) {
        let slot = self.slot(count);
        slot.acknowledged.store(acknowledged, Ordering::Release);
        slot.posted.store(count, Ordering::Release);
    }

    /// Whether the `count`-th message has been posted.
    #[inline]
    pub fn is_posted(&self, count: u64) -> bool {
        self.slot(count).posted.load(Ordering::Acquire) >= count
    }

    /// Receiver: the `count`-th message, which has been posted and not taken.
    #[inline]
    pub fn message(&self, count: u64) -> Message {
        let slot = self.slot(count);
        let code = slot.code.load(Ordering::Relaxed);
        match code % 2048 {
            _ if code / 2048 != count => {
                let address = slot.address.load(Ordering::Relaxed);
                Message::Address(address, slot.shape.load(Ordering::Relaxed))
            }
            // SAFETY: the message has been posted and not taken, so the words are the receiver's.
            ADDRESS => slot.words.with(|words| unsafe {
                let address = std::ptr::with_exposed_provenance_mut((*words)[0] as usize);
                Message::Address(address, (*words)[1])
            }),
            bytes => Message::Bytes(bytes as usize),
        }
    }

    /// Receiver: reads the bytes of the `count`-th message, which has been posted and not taken.
    #[inline]
    pub fn read<T>(&self, count: u64, read: impl FnOnce(*const u8) -> T) -> T {
        self.slot(count).words.with(|words| read(words.cast()))
    }

    /// So many messages the other way, at least, had been taken when the `count`-th message was sent.
    #[inline]
    pub fn acknowledged(&self, count: u64) -> u64 {
        self.slot(count).acknowledged.load(Ordering::Acquire)
    }

    /// Receiver: is done with the `count`-th message and all before it.
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
