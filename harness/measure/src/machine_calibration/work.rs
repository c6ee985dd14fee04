//! What ranks do besides communicating: a fixed piece of work, and how long it took.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A piece of work that every rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A chain of multiplications, without memory: some milliseconds.
    Compute,
    /// Copying small tensors into a buffer of [`PACKED_BYTES`], as into a fusion buffer.
    Pack,
}

/// Bytes that [`Work::Pack`] copies: more than caches hold.
pub const PACKED_BYTES: usize = 32 << 20;

/// ... in pieces of this size.
const TENSOR_BYTES: usize = 128 << 10;

/// Steps of [`Work::Compute`].
const STEPS: usize = 2 << 20;

thread_local! {
    /// Tensors and fusion buffer. They are kept, since new memory has to be mapped first.
    static BUFFERS: RefCell<[Vec<u8>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Work {
    /// Does it once.
    pub fn time(self) -> Duration {
        match self {
            Work::Compute => compute(),
            Work::Pack => BUFFERS.with_borrow_mut(|[tensors, fused]| {
                if tensors.is_empty() {
                    (*tensors, *fused) = (vec![1; PACKED_BYTES], vec![2; PACKED_BYTES]);
                }
                let start = Instant::now();
                let pieces = fused.chunks_mut(TENSOR_BYTES).zip(tensors.chunks(TENSOR_BYTES));
                pieces.for_each(|(into, tensor)| into.copy_from_slice(black_box(tensor)));
                black_box(fused);
                start.elapsed()
            }),
        }
    }
}

fn compute() -> Duration {
    let start = Instant::now();
    let mut value = black_box(0.5f64);
    for _ in 0..STEPS {
        // Each needs the one before.
        value = value * 0.999 + 0.001;
    }
    black_box(value);
    start.elapsed()
}
