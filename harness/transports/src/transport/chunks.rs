//! Operations on the chunks of one transfer: copying, or combining into this rank's.

use std::time::Instant;

use algorithms::program::Op;
use algorithms::schedule::Action;

use crate::transport::Collective;

/// Sources combined in one pass.
pub const MOST_MERGED: usize = 8;

/// Shorter transfers are copied word by word, which costs less than calling `memcpy`.
const FEW_BYTES: usize = 64;

/// Combining fewer bytes is not timed: reading the clock would be a part of a short message that counts.
const TIMED_BYTES_MIN: usize = 4096;

/// Where chunks lie.
#[derive(Clone, Copy)]
pub enum Place {
    /// In this rank's buffer.
    Own,
    /// In another rank's buffer, given by its view.
    View(*const ()),
    /// At this address, back to back.
    Bytes(*mut u8),
}

impl Place {
    /// The address of a piece that is `offset_bytes` into a block and `done_bytes` into the chunks.
    ///
    /// # Safety
    /// As [`copy`].
    #[inline(always)]
    unsafe fn address(
        self,
        collective: &Collective,
        (block, offset_bytes): (usize, usize),
        done_bytes: usize,
    ) -> *mut u8 {
        match self {
            Place::Own => collective.buffer.address(block, offset_bytes),
            // SAFETY: the caller's promise.
            Place::View(view) => unsafe { collective.buffer.address_in(view, block, offset_bytes) },
            Place::Bytes(bytes) => bytes.wrapping_add(done_bytes),
        }
    }
}

/// Bytes of a transfer's chunks.
#[inline]
pub fn size_bytes(collective: &Collective, op: &Op) -> usize {
    collective.bounds.elements(&op.entry).len() * collective.buffer.dtype().size_bytes()
}

/// Copies the chunks of a transfer from one place to another.
///
/// # Safety
/// Views are of live buffers with the shape of this rank's; bytes have room for all chunks; the places do not
/// overlap; no other thread writes the chunks, or reads them at `into`, meanwhile.
#[inline(always)]
pub unsafe fn copy(collective: &Collective, op: &Op, from: Place, into: Place) {
    let (buffer, mut done) = (collective.buffer, 0);
    for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
        let size = elements * buffer.dtype().size_bytes();
        // SAFETY: the caller's promise.
        unsafe {
            let from = from.address(collective, (block, offset), done);
            copy_bytes(from, into.address(collective, (block, offset), done), size);
        }
        done += size;
    }
}

/// Combines the chunks of a transfer at several places, at most [`MOST_MERGED`], into this rank's, in order. If
/// the transfer copies, overwrites this rank's with those at the only place. Adds the time of combining to the
/// collective's.
///
/// # Safety
/// As [`copy`], with this rank's buffer writable.
#[inline(always)]
pub unsafe fn combine(collective: &Collective, op: &Op, from: &[Place]) {
    if op.entry.action == Action::Copy {
        // SAFETY: the caller's promise.
        return unsafe { copy(collective, op, from[0], Place::Own) };
    }
    let start = (size_bytes(collective, op) >= TIMED_BYTES_MIN).then(Instant::now);
    let (buffer, mut done) = (collective.buffer, 0);
    for (block, offset, elements) in buffer.pieces(collective.bounds.elements(&op.entry)) {
        let mut sources = [std::ptr::null(); MOST_MERGED];
        // SAFETY: the caller's promise.
        unsafe {
            for (source, from) in sources.iter_mut().zip(from) {
                *source = from.address(collective, (block, offset), done).cast_const();
            }
            (collective.kernel)(buffer.address(block, offset), &sources[..from.len()], elements);
        }
        done += elements * buffer.dtype().size_bytes();
    }
    if let Some(start) = start {
        collective.combining.set(collective.combining.get() + start.elapsed());
    }
}

/// # Safety
/// As `copy_to_nonoverlapping`.
#[inline]
unsafe fn copy_bytes(mut from: *const u8, mut into: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes > FEW_BYTES {
            return into.copy_from_nonoverlapping(from, bytes);
        }
        for _ in 0..bytes / 8 {
            into.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            (from, into) = (from.add(8), into.add(8));
        }
        for at in 0..bytes % 8 {
            *into.add(at) = *from.add(at);
        }
    }
}
