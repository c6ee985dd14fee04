//! Where a rank sleeps during a long wait until it is woken.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether a rank sleeps.
#[derive(Default)]
#[repr(align(64))]
pub struct Parker {
    parked: AtomicBool,
}

impl Parker {
    /// The rank is about to sleep until a condition becomes true. Returns true if it already is, in which case the
    /// rank does not sleep.
    pub fn is_up(&self, condition: impl FnOnce() -> bool) -> bool {
        // A store would suffice: nothing comes between the load and the store of the swap in `wake`. The model
        // checker does not know that.
        self.parked.swap(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either this rank sees the condition, or the other sees that it sleeps.
        fence(Ordering::SeqCst);
        let holds = condition();
        if holds {
            self.parked.store(false, Ordering::Relaxed);
        }
        holds
    }

    /// Called after a condition became true that the rank may be waiting for; `unpark` wakes it.
    #[inline]
    pub fn wake(&self, unpark: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::Relaxed) {
            unpark();
        }
    }
}
