//! The memory of collectives: aligned, guarded, and readable as one vector across tensors.

use std::marker::PhantomData;
use std::ops::Range;

use algorithms::control::DataType;
use smallvec::SmallVec;

/// Every tensor begins on a cache line.
const LINE_BYTES: usize = 64;
const GUARD: u8 = 0xA5;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine([u8; LINE_BYTES]);

/// A number for which every bit pattern is valid.
///
/// # Safety
/// Every bit pattern is valid, and the type has no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => { $(
        // SAFETY: a number of fixed width.
        unsafe impl Plain for $type {}
    )* };
}
plain!(u8, u64, i32, i64, f32, f64, half::f16, half::bf16);

/// A block of bytes aligned to a cache line, with a guard line on either side that detects writes out of bounds.
pub struct Memory {
    lines: Vec<CacheLine>,
    size_bytes: usize,
}

impl Memory {
    /// Allocates a block, zeroes it and touches every page.
    pub fn new(size_bytes: usize) -> Memory {
        let mut lines = vec![CacheLine([0; LINE_BYTES]); size_bytes.div_ceil(LINE_BYTES) + 2];
        let last = lines.len() - 1;
        lines[0] = CacheLine([GUARD; LINE_BYTES]);
        lines[last] = CacheLine([GUARD; LINE_BYTES]);
        Memory { lines, size_bytes }
    }

    /// Size without the guards.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Overwrites everything with NaN, or with -1 for integers; no sum of inputs has these values.
    pub fn poison(&mut self) {
        self.bytes_mut().fill(0xFF);
    }

    /// True if nothing was written out of bounds.
    pub fn guards_are_whole(&self) -> bool {
        [self.lines.first(), self.lines.last()]
            .iter()
            .flatten()
            .all(|line| line.0.iter().all(|&byte| byte == GUARD))
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let size = self.size_bytes;
        // SAFETY: the allocation holds `size` bytes behind the first guard line, and `Line` consists of bytes
        // only.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), size) }
    }

    /// The elements as numbers of type `T`.
    pub fn elements<T: Plain>(&self) -> &[T] {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let start = self.lines.as_ptr().wrapping_add(1).cast();
        // SAFETY: aligned to a line, initialised, and `T` is plain.
        unsafe { std::slice::from_raw_parts(start, self.size_bytes / size_of::<T>()) }
    }

    /// The elements as mutable numbers of type `T`.
    pub fn elements_mut<T: Plain>(&mut self) -> &mut [T] {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let count = self.size_bytes / size_of::<T>();
        // SAFETY: as in `elements`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), count) }
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().wrapping_add(1).cast()
    }
}

impl Default for Memory {
    /// No bytes and no guards; does not allocate.
    fn default() -> Memory {
        Memory { lines: Vec::new(), size_bytes: 0 }
    }
}

/// Several blocks of one element type, read as one vector: what a collective reduces.
///
/// It holds raw pointers because other ranks read and write the memory while a collective runs. The schedule
/// defines who may access what and when, see [`crate::execute`]. The lifetime excludes all other access.
pub struct Buffer<'a> {
    dtype: DataType,
    elements: usize,
    blocks: SmallVec<[Block; 1]>,
    borrowed: PhantomData<&'a mut [u8]>,
}

#[derive(Clone, Copy)]
struct Block {
    /// Index of its first element.
    start: usize,
    base: *mut u8,
}

// SAFETY: the pointers are exclusive borrows of `Memory`, which may move between threads.
unsafe impl Send for Buffer<'_> {}

impl<'a> Buffer<'a> {
    /// No elements yet.
    pub fn new(dtype: DataType) -> Buffer<'a> {
        Buffer { dtype, elements: 0, blocks: SmallVec::new(), borrowed: PhantomData }
    }

    /// One block.
    pub fn of(dtype: DataType, memory: &'a mut Memory) -> Buffer<'a> {
        let mut buffer = Buffer::new(dtype);
        buffer.push(memory);
        buffer
    }

    /// Removes the blocks, so that others can be added. Up to the same number does not allocate.
    pub fn emptied<'b>(mut self) -> Buffer<'b> {
        self.blocks.clear();
        Buffer { dtype: self.dtype, elements: 0, blocks: self.blocks, borrowed: PhantomData }
    }

    /// Appends a block.
    pub fn push(&mut self, memory: &'a mut Memory) {
        let size = memory.size_bytes();
        self.push_first(memory, size);
    }

    /// Appends the first `size_bytes` of a block.
    ///
    /// # Panics
    /// When the block is smaller.
    pub fn push_first(&mut self, memory: &'a mut Memory, size_bytes: usize) {
        assert!(size_bytes <= memory.size_bytes(), "a block smaller than its part");
        self.append(memory.as_mut_ptr(), size_bytes);
    }

    /// Appends the blocks whose indices are in `which`, in that order.
    ///
    /// # Panics
    /// When an index occurs twice.
    pub fn push_each(&mut self, memories: &'a mut [Memory], which: &[usize]) {
        let mut is_in = SmallVec::<[bool; 512]>::from_elem(false, memories.len());
        for &index in which {
            assert!(!std::mem::replace(&mut is_in[index], true), "a block twice");
            let memory = &mut memories[index];
            self.append(memory.as_mut_ptr(), memory.size_bytes);
        }
    }

    fn append(&mut self, base: *mut u8, size_bytes: usize) {
        self.blocks.push(Block { start: self.elements, base });
        self.elements += size_bytes / self.dtype.size_bytes();
    }

    /// Element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.elements * self.dtype.size_bytes()
    }

    /// One past the last element of a block.
    fn end(&self, block: usize) -> usize {
        self.blocks.get(block + 1).map_or(self.elements, |next| next.start)
    }

    /// Overwrites the blocks, in order, with sources of the same lengths.
    ///
    /// # Panics
    /// When a length differs.
    pub fn copy_from<'s>(&mut self, sources: impl Iterator<Item = &'s [u8]>) {
        for (block, source) in sources.enumerate() {
            let elements = self.end(block) - self.blocks[block].start;
            assert_eq!(source.len(), elements * self.dtype.size_bytes(), "blocks of other lengths");
            // SAFETY: the block is borrowed exclusively and as long as the source.
            unsafe {
                self.blocks[block].base.copy_from_nonoverlapping(source.as_ptr(), source.len());
            }
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Type, number of elements and whether there is exactly one block, as one number. It is equal on all ranks of
    /// a collective.
    #[inline]
    pub(crate) fn shape(&self) -> u64 {
        (self.elements as u64) << 4 | (self.dtype as u64) << 1 | u64::from(self.blocks.len() == 1)
    }

    /// Where other ranks find the elements: the block if there is only one, otherwise this list of blocks.
    #[inline]
    pub(crate) fn view(&self) -> *mut () {
        match &self.blocks[..] {
            [block] => block.base.cast(),
            _ => std::ptr::from_ref(self).cast_mut().cast(),
        }
    }

    /// Address in another rank's buffer, given by its `view`.
    ///
    /// # Safety
    /// `view` is that of a live buffer of this one's shape.
    #[inline]
    pub(crate) unsafe fn address_in(
        &self,
        view: *const (),
        block: usize,
        offset_bytes: usize,
    ) -> *mut u8 {
        if self.blocks.len() == 1 {
            return view.cast_mut().cast::<u8>().wrapping_add(offset_bytes);
        }
        // SAFETY: the view is then a buffer.
        let other = unsafe { &*view.cast::<Buffer>() };
        let alike = self.blocks.len() == other.blocks.len()
            && self.blocks[block].start == other.blocks[block].start;
        assert!(alike, "ranks with blocks of different lengths");
        other.address(block, offset_bytes)
    }

    /// The contiguous pieces that hold a range of elements: block, offset in bytes, number of elements. They are
    /// in order, and none is empty.
    #[inline]
    pub(crate) fn pieces(
        &self,
        elements: Range<usize>,
    ) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let mut at = elements.start;
        let mut block = match self.blocks.len() {
            0 | 1 => 0,
            _ => self.blocks.partition_point(|block| block.start <= at) - 1,
        };
        std::iter::from_fn(move || {
            while at < elements.end {
                let end = self.end(block).min(elements.end);
                let offset = (at - self.blocks[block].start) * self.dtype.size_bytes();
                let piece = (block, offset, end - at.min(end));
                at = end.max(at);
                block += 1;
                if piece.2 > 0 {
                    return Some(piece);
                }
            }
            None
        })
    }

    /// The address `offset_bytes` into a block.
    #[inline]
    pub(crate) fn address(&self, block: usize, offset_bytes: usize) -> *mut u8 {
        self.blocks[block].base.wrapping_add(offset_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_block_boundaries_and_skips_empty_blocks() {
        let mut blocks: Vec<_> = [8, 0, 4, 12].map(Memory::new).into();
        let mut buffer = Buffer::new(DataType::F32);
        blocks.iter_mut().for_each(|block| buffer.push(block));
        assert_eq!((buffer.elements(), buffer.blocks()), (6, 4));
        let pieces = |range| buffer.pieces(range).collect::<Vec<_>>();
        assert_eq!(pieces(0..6), [(0, 0, 2), (2, 0, 1), (3, 0, 3)]);
        assert_eq!(pieces(1..3), [(0, 4, 1), (2, 0, 1)]);
        assert_eq!(pieces(4..5), [(3, 4, 1)]);
        assert_eq!(pieces(2..2), []);
        assert_eq!(pieces(6..6), []);
    }

    #[test]
    fn blocks_are_taken_in_any_order() {
        let mut blocks: Vec<_> = [8, 0, 4, 12].map(Memory::new).into();
        let bases: Vec<_> = blocks.iter_mut().map(Memory::as_mut_ptr).collect();
        let mut buffer = Buffer::new(DataType::F32);
        buffer.push_each(&mut blocks, &[3, 0]);
        assert_eq!((buffer.elements(), buffer.blocks()), (5, 2));
        assert_eq!([buffer.address(0, 0), buffer.address(1, 0)], [bases[3], bases[0]]);
    }

    #[test]
    #[should_panic(expected = "a block twice")]
    fn a_repeated_block_panics() {
        let mut blocks: Vec<_> = [8, 8].map(Memory::new).into();
        Buffer::new(DataType::F32).push_each(&mut blocks, &[1, 0, 1]);
    }

    #[test]
    fn guards_detect_a_write_beyond_the_end() {
        let mut memory = Memory::new(100);
        memory.poison();
        assert!(memory.guards_are_whole());
        let last = memory.lines.len() - 1;
        memory.lines[last].0[0] = 0;
        assert!(!memory.guards_are_whole());
    }
}
