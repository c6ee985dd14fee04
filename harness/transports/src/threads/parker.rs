//! Where a rank that waits long can be found and woken.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether a rank sleeps.
#[derive(Default)]
#[repr(align(64))]
pub struct Parker {
    parked: AtomicBool,
}

impl Parker {
    /// The rank is about to sleep until a condition holds that others make true. If it holds already,
    /// the rank does not sleep, and this is true.
    pub fn is_up(&self, condition: impl FnOnce() -> bool) -> bool {
        // A store would do: nothing comes between the load and the store of the swap in `wake`. The
        // model checker does not know that.
        self.parked.swap(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either the rank sees the condition, or the other sees it
        // sleeping.
        fence(Ordering::SeqCst);
        let holds = condition();
        if holds {
            self.parked.store(false, Ordering::Relaxed);
        }
        holds
    }

    /// Another rank has made true what this one may be waiting for; `unpark` wakes it.
    #[inline]
    pub fn wake(&self, unpark: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::Relaxed) {
            unpark();
        }
    }
}
