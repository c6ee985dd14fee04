//! A fast hash for trusted names: the multiply-and-rotate hash that compilers use for symbols. It does not
//! resist collision attacks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a fast hash.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// See the head of this file.
#[derive(Clone, Default)]
pub struct FastHasher(u64);

impl FastHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    /// The table takes buckets from the low bits and tags from the high ones; both shall be mixed.
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
