//! The response cache: the tensors that all ranks have agreed on before, each with a bit.
//!
//! Every rank holds the same cache, because entries are inserted, refreshed and erased only by operations
//! that all ranks execute in the same order. When it is full the least recently used entry is evicted, and
//! the new one takes its bit. An erased entry leaves a hole until bits are renumbered, the least recently
//! used first (Horovod's `ResponseCache`).

use super::mutation::{Mutation, Mutations};
use super::tensor::TensorId;

/// Up to `capacity` tensors, each with a bit.
pub struct ResponseCache {
    capacity: usize,
    /// For each bit: its tensor, and the number of the tensor's name.
    tensors: Vec<u32>,
    names: Vec<u32>,
    /// For each bit: the use count when it was last used; 0 for a hole.
    used: Vec<u64>,
    /// For each name: its bit plus one; 0 for none.
    bit_of: Vec<u32>,
    /// The use count so far.
    now: u64,
    holes: usize,
    evictions: usize,
    mutations: Mutations,
}

impl ResponseCache {
    /// An empty cache for `names` names.
    pub fn new(capacity: usize, names: usize, mutations: Mutations) -> ResponseCache {
        ResponseCache {
            capacity,
            tensors: Vec::new(),
            names: Vec::new(),
            used: Vec::new(),
            bit_of: vec![0; names],
            now: 0,
            holes: 0,
            evictions: 0,
            mutations,
        }
    }

    /// The capacity in tensors.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bits in use, holes included: 0 up to this number.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True when nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Returns and resets the number of evicted entries.
    pub fn take_evictions(&mut self) -> usize {
        std::mem::take(&mut self.evictions)
    }

    /// The bit of a name, whichever of its tensors is cached; does not count as a use.
    #[inline]
    pub fn bit(&self, name: usize) -> Option<usize> {
        (self.bit_of[name] as usize).checked_sub(1)
    }

    /// The tensor of a bit; does not count as a use.
    #[inline]
    pub fn tensor(&self, bit: usize) -> TensorId {
        self.tensors[bit] as TensorId
    }

    /// The use count so far.
    pub fn uses(&self) -> u64 {
        self.now
    }

    /// Marks the tensor of a bit as used just now.
    #[inline]
    pub fn touch(&mut self, bit: usize) {
        self.now += 1;
        self.used[bit] = self.now;
    }

    /// Inserts a tensor of that name, or refreshes it if it is there. Nothing happens at capacity 0.
    pub fn put(&mut self, name: usize, tensor: TensorId) {
        if self.capacity == 0 {
            return;
        }
        let bit = match self.bit(name) {
            Some(bit) => bit,
            None if self.len() - self.holes < self.capacity => {
                self.tensors.push(0);
                self.names.push(0);
                self.used.push(0);
                self.tensors.len() - 1
            }
            None => {
                let used = self.used.iter().enumerate().filter(|(_, used)| **used > 0);
                let oldest = used.min_by_key(|(_, used)| **used);
                let (bit, _) = oldest.expect("a full cache has entries");
                if !self.mutations.has(Mutation::EvictedKeepsItsBit) {
                    self.bit_of[self.names[bit] as usize] = 0;
                }
                self.evictions += 1;
                bit
            }
        };
        (self.tensors[bit], self.names[bit]) = (tensor as u32, name as u32);
        self.bit_of[name] = bit as u32 + 1;
        self.touch(bit);
    }

    /// Erases the tensor of a bit.
    pub fn erase(&mut self, bit: usize) {
        if std::mem::take(&mut self.used[bit]) > 0 {
            self.bit_of[self.names[bit] as usize] = 0;
            self.holes += 1;
        }
    }

    /// Numbers bits anew if something was erased: the least recently used gets bit 0.
    pub fn renumber(&mut self) {
        if self.holes == 0 || self.mutations.has(Mutation::RenumberingLost) {
            return;
        }
        let in_use = self.bits_by_use();
        self.tensors = in_use.iter().map(|&bit| self.tensors[bit]).collect();
        self.names = in_use.iter().map(|&bit| self.names[bit]).collect();
        self.used = in_use.iter().map(|&bit| self.used[bit]).collect();
        for (bit, &name) in self.names.iter().enumerate() {
            self.bit_of[name as usize] = bit as u32 + 1;
        }
        self.holes = 0;
    }

    /// The tensor of every bit, from the least recently used to the most. It must be equal on all ranks.
    pub fn contents(&self) -> Vec<(usize, TensorId)> {
        self.bits_by_use().into_iter().map(|bit| (bit, self.tensor(bit))).collect()
    }

    fn bits_by_use(&self) -> Vec<usize> {
        let mut bits: Vec<_> = (0..self.used.len()).filter(|&bit| self.used[bit] > 0).collect();
        bits.sort_by_key(|&bit| self.used[bit]);
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list in order of use, the most recent first, and a list of bits: as Horovod keeps it.
    #[derive(Default)]
    struct Listed {
        list: Vec<usize>,
        bits: Vec<Option<usize>>,
    }

    impl Listed {
        fn touch(&mut self, tensor: usize) {
            self.list.retain(|&other| other != tensor);
            self.list.insert(0, tensor);
        }

        fn put(&mut self, tensor: usize, capacity: usize) {
            if !self.list.contains(&tensor) {
                if self.list.len() == capacity {
                    let evicted = self.list.pop().unwrap();
                    let bit = self.bits.iter().position(|&bit| bit == Some(evicted)).unwrap();
                    self.bits[bit] = Some(tensor);
                } else {
                    self.bits.push(Some(tensor));
                }
            }
            self.touch(tensor);
        }

        fn erase(&mut self, tensor: usize) {
            self.list.retain(|&other| other != tensor);
            let of_it = |bit: &&mut Option<usize>| **bit == Some(tensor);
            self.bits.iter_mut().filter(of_it).for_each(|bit| *bit = None);
        }

        fn renumber(&mut self) {
            if self.bits.iter().any(Option::is_none) {
                self.bits = self.list.iter().rev().map(|&tensor| Some(tensor)).collect();
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_order_of_use(
            capacity in 1_usize..6,
            uses in proptest::collection::vec((0_usize..9, 0..5), 0..60),
        ) {
            let mut cache = ResponseCache::new(capacity, 9, Mutations::default());
            let mut listed = Listed::default();
            for (name, what) in uses {
                let bit = cache.bit(name);
                prop_assert_eq!(bit.is_some(), listed.list.contains(&name));
                match (what, bit) {
                    (0, _) => {
                        cache.renumber();
                        listed.renumber();
                    }
                    (1, Some(bit)) => {
                        cache.erase(bit);
                        listed.erase(name);
                    }
                    (2, Some(bit)) => {
                        cache.touch(bit);
                        listed.touch(name);
                    }
                    _ => {
                        cache.put(name, name + 100);
                        listed.put(name, capacity);
                    }
                }
                prop_assert_eq!(cache.len(), listed.bits.len());
                let order: Vec<_> = listed.list.iter().rev().map(|name| name + 100).collect();
                let contents = cache.contents();
                prop_assert_eq!(contents.iter().map(|&(_, tensor)| tensor).collect::<Vec<_>>(), order);
                for (bit, tensor) in contents {
                    prop_assert_eq!(listed.bits[bit], Some(tensor - 100));
                    prop_assert_eq!((cache.bit(tensor - 100), cache.tensor(bit)), (Some(bit), tensor));
                }
            }
        }
    }

    #[test]
    fn capacity_zero_holds_nothing() {
        let mut cache = ResponseCache::new(0, 3, Mutations::default());
        cache.put(1, 1);
        assert!(cache.is_empty() && cache.bit(1).is_none());
    }
}
