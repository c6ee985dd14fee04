//! Ranks are threads of one process. A receiver reads directly from the sender's buffer; for a put, the sender
//! writes directly into the receiver's.
//!
//! Each ordered pair of ranks has a `Channel`, which is the only synchronisation unless a rank fails. A wait
//! spins briefly, then yields. If there are more ranks than cores, it then parks and is woken; otherwise it never
//! parks, and sending is cheaper without wake-ups. A rank that gives up notifies the others, and no rank frees
//! memory that another may still access.

mod barrier;
mod channel;
mod control_channel;
mod endpoint;
mod parker;
mod ranks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use algorithms::control::DataType;
use algorithms::topology::Rank;

use crate::kernel::ElementOp;
use crate::transport::TransportError;
use channel::{CARRIED_BYTES, Channel};
use parker::Parker;

pub use barrier::{Arrivals, LastStep};
pub use control_channel::ControlChannel;
pub use endpoint::Endpoint;
pub use ranks::{is_pinned, run_ranks};

/// The primitives of channels and parkers; a model checker substitutes its own.
mod sync {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

    /// The interface of the model checker's cell, which tracks the pointers.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Its name in configurations and CSV files.
pub const NAME: &str = "threads";

/// Bytes that a message carries inline where each rank has a core.
const FEW_BYTES: usize = 472;

/// The shared state of all ranks of one world.
pub struct Links {
    ranks: usize,
    channels: Vec<Channel>,
    parkers: Vec<Parker>,
    places: Vec<Place>,
    /// The rank that each rank has been waiting for, plus one; 0 for none. All links of a world share it, so that
    /// a timeout can name the rank at fault.
    waits: Arc<[AtomicUsize]>,
    /// More ranks than cores.
    crowded: bool,
    /// Waiting ranks sleep and are woken: if there are more ranks than cores, or the wait is not urgent.
    parks: bool,
    /// The largest message that is carried inline. It is larger where ranks share cores than where a receiver
    /// reads the sender's buffer at the same speed.
    most_carried: usize,
    timeout: Duration,
    aborted: AtomicBool,
    abortion: Mutex<Option<TransportError>>,
}

/// The state of a rank's thread.
#[derive(Default)]
struct Place {
    /// The thread accesses no other rank's memory any more.
    left: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Links {
    /// Links of a world with a timeout for waits on another rank. After the timeout a rank still waits for ranks
    /// that may be accessing its memory, however long that takes.
    pub fn new(ranks: usize, timeout: Duration) -> Arc<Links> {
        Links::sharing((0..ranks).map(|_| AtomicUsize::new(0)).collect(), timeout, false)
    }

    /// More links for the same world, for another kind of message. Waits on them may be not urgent: see
    /// [`crate::transport::Transport::set_calm`].
    pub fn beside(self: &Arc<Links>) -> Arc<Links> {
        Links::sharing(self.waits.clone(), self.timeout, true)
    }

    fn sharing(waits: Arc<[AtomicUsize]>, timeout: Duration, parks: bool) -> Arc<Links> {
        let ranks = waits.len();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Links {
            ranks,
            channels: (0..ranks * ranks).map(|_| Channel::default()).collect(),
            parkers: (0..ranks).map(|_| Parker::default()).collect(),
            places: (0..ranks).map(|_| Place::default()).collect(),
            waits,
            crowded: ranks > cores,
            parks: parks || ranks > cores,
            most_carried: if ranks > cores { CARRIED_BYTES } else { FEW_BYTES },
            timeout,
            aborted: AtomicBool::new(false),
            abortion: Mutex::new(None),
        })
    }

    /// Makes the calling thread `rank`. Once per rank.
    pub fn join(self: &Arc<Links>, rank: Rank) -> Endpoint {
        let fresh = self.places[rank].thread.set(std::thread::current()).is_ok();
        assert!(fresh, "rank {rank} has joined before");
        // Pairs with the fence in `leave`: a rank that gives up sees this rank, or this rank sees the abort.
        fence(Ordering::SeqCst);
        Endpoint::new(self.clone(), rank)
    }

    fn channel(&self, from: Rank, to: Rank) -> &Channel {
        &self.channels[from * self.ranks + to]
    }

    /// All current and later waits return this error.
    pub fn abort(&self, error: TransportError) {
        let mut abortion = self.abortion.lock().unwrap_or_else(PoisonError::into_inner);
        abortion.get_or_insert(error);
        self.aborted.store(true, Ordering::SeqCst);
        self.places.iter().filter_map(|place| place.thread.get()).for_each(Thread::unpark);
    }

    /// The rank at fault: the end of the chain of waiting ranks that begins at `peer`.
    fn blame(&self, rank: Rank, peer: Rank) -> Rank {
        let next = |at: &Rank| self.waits[*at].load(Ordering::Relaxed).checked_sub(1);
        let chain = std::iter::successors(Some(peer), next).take(self.ranks);
        chain.take_while(|&at| at != rank).last().unwrap_or(peer)
    }

    fn abortion(&self) -> TransportError {
        let abortion = self.abortion.lock().unwrap_or_else(PoisonError::into_inner);
        abortion.clone().expect("the error is stored before the flag")
    }
}

/// The element type in which bit vectors travel.
pub const BITS: (DataType, ElementOp) = (DataType::I64, ElementOp::And);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_chain_of_waiting_ranks_is_blamed() {
        let links = Links::new(5, Duration::from_secs(1));
        let wait = |rank: Rank, peer: Rank| links.waits[rank].store(peer + 1, Ordering::Relaxed);
        wait(3, 2);
        wait(2, 1);
        wait(1, 0);
        assert_eq!([(3, 2), (2, 1), (1, 0), (3, 4)].map(|(a, b)| links.blame(a, b)), [0, 0, 0, 4]);
        // In a cycle: the last rank before this one.
        wait(0, 3);
        assert_eq!([(3, 2), (1, 0)].map(|(a, b)| links.blame(a, b)), [0, 2]);
    }
}
