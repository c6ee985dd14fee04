//! Ranks are threads of one process; a receiver reads straight from the sender's buffer, or, for a
//! put, the sender writes straight into the receiver's.
//!
//! Between each ordered pair of ranks lies a `Line`, and as long as all goes well that is all the
//! synchronisation there is. Waiting spins a little, then yields. If ranks outnumber cores it then
//! parks, to be woken; if not, nobody needs the core, and posting is cheaper if nobody needs waking.
//! When a rank gives up, it tells the others, and nobody frees memory that somebody may still touch.

mod channel;
mod endpoint;
mod mail;
mod meeting;
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

pub use endpoint::Endpoint;
pub use mail::Mailbox;
pub use meeting::{LastStep, Start};
pub use ranks::{is_pinned, run_ranks};

/// What lines and seats are made of; a model checker puts its own in this place.
mod sync {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

    /// As the model checker's, which watches who holds the pointers.
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

/// What messages bring along where each rank has a core.
const FEW_BYTES: usize = 472;

/// Everything between the ranks of one world.
pub struct Links {
    ranks: usize,
    channels: Vec<Channel>,
    parkers: Vec<Parker>,
    places: Vec<Place>,
    /// Whom each rank has been waiting for, for a while, plus one; 0 for nobody. All links of a world share
    /// this, so that who gives up can tell who is to blame.
    waits: Arc<[AtomicUsize]>,
    /// More ranks than cores.
    crowded: bool,
    /// Waiting ranks sleep and are woken: if they are crowded, or need not hurry.
    parks: bool,
    /// Messages of at most so many bytes bring them along: where ranks have to take turns, larger ones
    /// than where a receiver reads the sender's buffer as fast.
    most_carried: usize,
    timeout: Duration,
    aborted: AtomicBool,
    abortion: Mutex<Option<TransportError>>,
}

/// What is known of a rank's thread.
#[derive(Default)]
struct Place {
    /// Touches no other rank's memory any more.
    left: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Links {
    /// Links for a world; a rank that waits longer than `timeout` for another gives up. It then waits
    /// for those who may be touching its memory, however long that takes.
    pub fn new(ranks: usize, timeout: Duration) -> Arc<Links> {
        Links::sharing((0..ranks).map(|_| AtomicUsize::new(0)).collect(), timeout, false)
    }

    /// More links for the world of these, for messages of another sort, for which a rank may also wait
    /// without hurry: see [`crate::transport::Transport::set_calm`].
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

    /// This thread becomes `rank`. Once per rank.
    pub fn join(self: &Arc<Links>, rank: Rank) -> Endpoint {
        let fresh = self.places[rank].thread.set(std::thread::current()).is_ok();
        assert!(fresh, "rank {rank} has joined before");
        // Pairs with the fence in `leave`: who gives up sees this rank, or this rank the abortion.
        fence(Ordering::SeqCst);
        Endpoint::new(self.clone(), rank)
    }

    fn channel(&self, from: Rank, to: Rank) -> &Channel {
        &self.channels[from * self.ranks + to]
    }

    /// Everybody who waits, now or later, gets this error.
    pub fn abort(&self, error: TransportError) {
        let mut abortion = self.abortion.lock().unwrap_or_else(PoisonError::into_inner);
        abortion.get_or_insert(error);
        self.aborted.store(true, Ordering::SeqCst);
        self.places.iter().filter_map(|place| place.thread.get()).for_each(Thread::unpark);
    }

    /// Who does not answer, if it is not `peer`, who waits itself: the rank at the end of the chain.
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
        // In a circle, the last one before the rank itself.
        wait(0, 3);
        assert_eq!([(3, 2), (1, 0)].map(|(a, b)| links.blame(a, b)), [0, 2]);
    }
}
