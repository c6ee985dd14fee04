//! What ranks do besides communicating: a fixed piece of work, and how long it took and was interrupted.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::interruptions::Watched;

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

/// Pieces of [`Work::Compute`].
const PIECES: usize = 2048;

/// Multiplications of a piece: some microseconds.
const PIECE_STEPS: usize = 1 << 10;

/// How long a piece of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worked {
    /// Seconds from its beginning to its end.
    pub time_s: f64,
    /// Those of them in which it was interrupted; only known of [`Work::Compute`].
    pub interrupted_s: f64,
}

thread_local! {
    /// Tensors and fusion buffer. They are kept, since new memory has to be mapped first.
    static BUFFERS: RefCell<[Vec<u8>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Work {
    /// Does it once.
    pub fn time(self) -> Worked {
        match self {
            Work::Compute => {
                let mut pieces = 0;
                let watched = watch(|_| {
                    pieces += 1;
                    pieces < PIECES
                });
                let interrupted_s = watched.interruptions_s.iter().sum();
                Worked { time_s: watched.time_s, interrupted_s }
            }
            Work::Pack => BUFFERS.with_borrow_mut(|[tensors, fused]| {
                if tensors.is_empty() {
                    (*tensors, *fused) = (vec![1; PACKED_BYTES], vec![2; PACKED_BYTES]);
                }
                let start = Instant::now();
                let pieces = fused.chunks_mut(TENSOR_BYTES).zip(tensors.chunks(TENSOR_BYTES));
                pieces.for_each(|(into, tensor)| into.copy_from_slice(black_box(tensor)));
                black_box(fused);
                Worked { time_s: start.elapsed().as_secs_f64(), interrupted_s: 0.0 }
            }),
        }
    }
}

/// A piece that took longer than the fastest one by this was interrupted: more than the tick of a timer takes.
pub const INTERRUPTION: Duration = Duration::from_micros(20);

/// Computes piece by piece, until `goes_on` is false of what was watched so far.
pub fn watch(mut goes_on: impl FnMut(&Watched) -> bool) -> Watched {
    let mut watched = Watched { time_s: 0.0, interruptions_s: Vec::with_capacity(64) };
    let (mut value, mut fastest) = (black_box(0.5f64), Duration::MAX);
    let start = Instant::now();
    let mut before = start;
    loop {
        for _ in 0..PIECE_STEPS {
            // Each needs the one before.
            value = value * 0.999 + 0.001;
        }
        value = black_box(value);
        let now = Instant::now();
        let took = now - before;
        fastest = fastest.min(took);
        if took - fastest >= INTERRUPTION {
            watched.interruptions_s.push((took - fastest).as_secs_f64());
        }
        watched.time_s = (now - start).as_secs_f64();
        before = now;
        if !goes_on(&watched) {
            return watched;
        }
    }
}
