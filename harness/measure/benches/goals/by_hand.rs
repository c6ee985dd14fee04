//! A ring allreduce written by hand, without schedule, program, transport, checks or error handling: the baseline
//! for the cost of executing a schedule.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use algorithms::control::DataType;
use transports::kernel::{ElementOp, kernel};

/// The state that ranks share.
#[derive(Default)]
#[repr(align(128))]
pub struct Place {
    /// Receives that the rank has finished.
    finished: AtomicU64,
    buffer: AtomicPtr<u8>,
}

/// One rank.
pub struct Ring<'p> {
    places: &'p [Place],
    rank: usize,
    /// Receives in all rings before this one.
    before: u64,
}

impl<'p> Ring<'p> {
    /// A rank with its buffer.
    pub fn new(places: &'p [Place], rank: usize, buffer: *mut u8) -> Ring<'p> {
        places[rank].buffer.store(buffer, Ordering::Release);
        Ring { places, rank, before: 0 }
    }

    /// Maximum of f32, in place, of `elements` elements from `first` on; chunks are of one length.
    ///
    /// # Safety
    /// All ranks' buffers exist and hold that many elements; all ranks make the same call.
    pub unsafe fn all_reduce(&mut self, first: usize, elements: usize) {
        let (n, rank) = (self.places.len(), self.rank);
        let (left, right) = (&self.places[(rank + n - 1) % n], &self.places[(rank + 1) % n]);
        let own = self.places[rank].buffer.load(Ordering::Relaxed);
        let theirs = left.buffer.load(Ordering::Acquire);
        let (size, combine) = (elements / n, kernel(DataType::F32, ElementOp::Max));
        let wait = |place: &Place, count: usize| {
            while place.finished.load(Ordering::Acquire) < self.before + count as u64 {
                std::hint::spin_loop();
            }
        };
        for step in 0..2 * (n - 1) {
            wait(left, step);
            let gathers = step >= n - 1;
            let chunk = (rank + 2 * n - step - 1) % n;
            if gathers {
                // The right neighbour has read the chunk that is overwritten now.
                wait(right, step - (n - 1) + 1);
            }
            let at = (first + chunk * size) * size_of::<f32>();
            // SAFETY: the left neighbour's chunk is finished, and no rank reads this one.
            unsafe {
                let (into, from) = (own.add(at), theirs.add(at).cast_const());
                if gathers {
                    into.copy_from_nonoverlapping(from, size * size_of::<f32>())
                } else {
                    combine(into, &[from], size)
                }
            }
            let count = self.before + step as u64 + 1;
            self.places[rank].finished.store(count, Ordering::Release);
        }
        wait(right, 2 * (n - 1));
        self.before += 2 * (n as u64 - 1);
    }
}
