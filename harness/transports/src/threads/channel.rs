//! One direction between two ranks: two slots that the sender writes and a counter that the receiver writes, each
//! on cache lines of its own.
//!
//! The sender's n-th message is in slot n mod 2. It holds the address of the data, or carries few bytes inline. It
//! also holds the number of messages that the sender has taken in the other direction: ranks that exchange small
//! messages need no other acknowledgement and transfer one cache line each.
//!
//! A slot has room for a message once its previous one has been taken. A sender that does not want to wait can
//! still post an address beside the slot; all messages of one collective have the same address.

use super::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// Bytes that a message can carry inline.
pub const CARRIED_BYTES: usize = 1024;

/// See the module documentation.
#[derive(Default)]
#[repr(align(128))]
pub struct Channel {
    slots: [Slot; 2],
    receiver: Receiver,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// This many bytes inline.
    Bytes(usize),
    /// The address of the data, and their shape.
    Address(*mut (), u64),
}

/// The code of a message that is an address.
const ADDRESS: u64 = 2047;

#[repr(align(128))]
struct Slot {
    /// The newest message in this slot.
    posted: AtomicU64,
    /// The message that `words` belong to, and its content: count x 2048 + code, or + bytes.
    code: AtomicU64,
    /// Messages that the sender has taken from the receiver.
    acknowledged: AtomicU64,
    words: UnsafeCell<[u64; CARRIED_BYTES / 8]>,
    /// The newest address that was posted beside the slot. The message in `words` is then not the newest, and has
    /// not been taken.
    address: AtomicPtr<()>,
    shape: AtomicU64,
}

// SAFETY: the sender writes `words` while there is room; the receiver reads them after their message is posted and
// before it is taken.
unsafe impl Sync for Slot {}
// SAFETY: as above; addresses are never dereferenced here.
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
    /// Messages taken so far; their memory belongs to the sender again.
    taken: AtomicU64,
}

impl Channel {
    #[inline]
    fn slot(&self, count: u64) -> &Slot {
        &self.slots[(count % 2) as usize]
    }

    /// Sender: whether a slot has room after `last`, its last message that was not posted beside it, given the
    /// number of messages known to have been taken; reads the counter only if that number is too small. (The
    /// sender keeps `last` itself: reading its own slot might fetch the cache line from the receiver.)
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

    /// Sender: posts the `count`-th message, for which there is room. `acknowledged` is the number of messages
    /// taken in the other direction. The data stay unchanged until the message is taken; inline bytes have already
    /// been written.
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

    /// Sender: posts the `count`-th message without content; the receiver knows its meaning.
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

    /// The number of messages known to have been taken in the other direction when the `count`-th message was
    /// sent.
    #[inline]
    pub fn acknowledged(&self, count: u64) -> u64 {
        self.slot(count).acknowledged.load(Ordering::Acquire)
    }

    /// Receiver: marks the `count`-th message and all before it as taken.
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
