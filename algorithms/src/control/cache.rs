//! The response cache: which tensors all ranks have agreed on before, each with a bit.
//!
//! Every rank holds the same cache, because entries are made and refreshed only by what all ranks
//! carry out in the same order. When it is full the least recently used entry makes room, and the
//! new one inherits its bit (Horovod's `ResponseCache`).

use super::TensorId;

/// Up to `capacity` tensors, each with a bit.
pub struct ResponseCache {
    capacity: usize,
    /// Tensor of each bit, with the time of its last use; times are counted, not measured.
    bits: Vec<(TensorId, u64)>,
    bit_of: Vec<Option<u32>>,
    now: u64,
}

impl ResponseCache {
    /// An empty cache for tensors numbered below `tensors`.
    pub fn new(capacity: usize, tensors: usize) -> ResponseCache {
        ResponseCache { capacity, bits: Vec::new(), bit_of: vec![None; tensors], now: 0 }
    }

    /// How many tensors it may hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bits in use: 0 up to this number.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// True when nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// The bit of a cached tensor; does not count as a use.
    pub fn bit(&self, tensor: TensorId) -> Option<usize> {
        self.bit_of[tensor].map(|bit| bit as usize)
    }

    /// The tensor of a bit; does not count as a use.
    pub fn tensor(&self, bit: usize) -> TensorId {
        self.bits[bit].0
    }

    /// Marks the tensor of a bit as used just now.
    pub fn touch(&mut self, bit: usize) {
        self.now += 1;
        self.bits[bit].1 = self.now;
    }

    /// Inserts a tensor, or refreshes it if it is there. Nothing happens at capacity 0.
    pub fn put(&mut self, tensor: TensorId) {
        if self.capacity == 0 {
            return;
        }
        let bit = match self.bit(tensor) {
            Some(bit) => bit,
            None if self.bits.len() < self.capacity => {
                self.bits.push((tensor, 0));
                self.bits.len() - 1
            }
            None => {
                let (bit, &(evicted, _)) = (self.bits.iter().enumerate())
                    .min_by_key(|(_, (_, used))| *used)
                    .expect("a full cache of capacity above 0 has entries");
                self.bit_of[evicted] = None;
                self.bits[bit].0 = tensor;
                bit
            }
        };
        self.bit_of[tensor] = Some(bit as u32);
        self.touch(bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in order of use, the most recent first, as Horovod keeps it.
        #[test]
        fn it_is_a_list_in_order_of_use(
            capacity in 1_usize..6,
            uses in proptest::collection::vec((0_usize..9, any::<bool>()), 0..60),
        ) {
            let mut cache = ResponseCache::new(capacity, 9);
            let (mut list, mut bits): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
            for (tensor, put) in uses {
                let known = list.iter().position(|&other| other == tensor);
                match (known, put) {
                    (Some(at), true) => {
                        cache.put(tensor);
                        list.remove(at);
                        list.insert(0, tensor);
                    }
                    (Some(at), false) => {
                        cache.touch(cache.bit(tensor).unwrap());
                        list.remove(at);
                        list.insert(0, tensor);
                    }
                    (None, true) => {
                        cache.put(tensor);
                        if list.len() == capacity {
                            let evicted = list.pop().unwrap();
                            let bit = bits.iter().position(|&other| other == evicted).unwrap();
                            bits[bit] = tensor;
                        } else {
                            bits.push(tensor);
                        }
                        list.insert(0, tensor);
                    }
                    (None, false) => prop_assert_eq!(cache.bit(tensor), None),
                }
                prop_assert_eq!(cache.len(), bits.len());
                for (bit, &tensor) in bits.iter().enumerate() {
                    prop_assert_eq!((cache.bit(tensor), cache.tensor(bit)), (Some(bit), tensor));
                }
            }
        }
    }

    #[test]
    fn bits_are_given_in_order_and_kept() {
        let mut cache = ResponseCache::new(4, 10);
        [7, 3, 7, 5].iter().for_each(|&tensor| cache.put(tensor));
        assert_eq!([7, 3, 5, 0].map(|tensor| cache.bit(tensor)), [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn the_least_recently_used_makes_room_and_leaves_its_bit() {
        let mut cache = ResponseCache::new(2, 10);
        cache.put(0);
        cache.put(1);
        cache.touch(0);
        cache.put(2);
        assert_eq!([0, 1, 2].map(|tensor| cache.bit(tensor)), [Some(0), None, Some(1)]);
        assert_eq!((cache.len(), cache.tensor(1)), (2, 2));
    }

    #[test]
    fn capacity_zero_holds_nothing() {
        let mut cache = ResponseCache::new(0, 1);
        cache.put(0);
        assert!(cache.is_empty() && cache.bit(0).is_none());
    }
}
