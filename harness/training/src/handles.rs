//! Results on their way from the background loop to the framework's thread.
//!
//! As in Horovod's handle manager, one lock guards a table of all results. The loop marks each gradient of a message as
//! done, one after the other. The framework's thread looks again and again for the gradient that it waits for, in the
//! order in which gradients were handed over.

use std::sync::{Mutex, MutexGuard};

use algorithms::control::TensorId;
use transports::memory::Memory;

/// The data of each gradient that is done and has not been taken back.
pub struct Handles {
    done: Mutex<Vec<Option<Memory>>>,
}

impl Handles {
    /// A table of so many gradients, none of which is done.
    pub fn new(gradients: usize) -> Handles {
        Handles { done: Mutex::new(std::iter::repeat_with(|| None).take(gradients).collect()) }
    }

    /// A gradient is done, and this is its data.
    pub fn mark_done(&self, gradient: TensorId, memory: Memory) {
        self.done()[gradient] = Some(memory);
    }

    /// The data of a gradient, once, if it is done.
    pub fn poll(&self, gradient: TensorId) -> Option<Memory> {
        self.done()[gradient].take()
    }

    fn done(&self) -> MutexGuard<'_, Vec<Option<Memory>>> {
        self.done.lock().expect("no thread panics while it has the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_there_once_and_only_after_it_is_done() {
        let handles = Handles::new(3);
        handles.mark_done(2, Memory::new(8));
        assert!(handles.poll(0).is_none(), "another gradient is done");
        assert_eq!(handles.poll(2).map(|memory| memory.size_bytes()), Some(8));
        assert!(handles.poll(2).is_none(), "it has been taken back");
        handles.mark_done(2, Memory::new(4));
        assert_eq!(handles.poll(2).map(|memory| memory.size_bytes()), Some(4), "of a later step");
    }
}
