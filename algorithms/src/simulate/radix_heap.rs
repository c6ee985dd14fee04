//! A monotone priority queue of events by time (Ahuja et al. 1990).
//!
//! An event lies in the bucket of the highest bit in which its time differs from the time of the event that
//! was taken last, so it moves at most once per bit, and no comparison looks at far-away events. The bits
//! of positive floats are ordered as the floats are. Events at the same time come in the order of their own.

/// Events of type `E`.
pub(super) struct RadixHeap<E> {
    buckets: Vec<Vec<(u64, E)>>,
    /// Bits of the time that was taken last.
    last: u64,
    len: usize,
}

impl<E: Ord + Copy> RadixHeap<E> {
    pub fn new() -> RadixHeap<E> {
        RadixHeap { buckets: (0..=64).map(|_| Vec::new()).collect(), last: 0, len: 0 }
    }

    /// Adds an event at `at_s`, which is not before the one taken last.
    pub fn push(&mut self, at_s: f64, event: E) {
        let key = (at_s + 0.0).to_bits();
        debug_assert!(key >= self.last, "time goes back");
        self.len += 1;
        let bucket = self.bucket(key);
        if bucket == 0 {
            // The first bucket is sorted, its next event at the end.
            let place = self.buckets[0].partition_point(|(_, other)| *other > event);
            self.buckets[0].insert(place, (key, event));
        } else {
            self.buckets[bucket].push((key, event));
        }
    }

    /// Takes the first event.
    pub fn pop(&mut self) -> Option<(f64, E)> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        if self.buckets[0].is_empty() {
            let next = self.buckets.iter().position(|bucket| !bucket.is_empty())?;
            let mut events = std::mem::take(&mut self.buckets[next]);
            self.last = events.iter().map(|(key, _)| *key).min()?;
            for (key, event) in events.drain(..) {
                let bucket = self.bucket(key);
                self.buckets[bucket].push((key, event));
            }
            self.buckets[next] = events;
            if self.buckets[0].len() > 1 {
                self.buckets[0].sort_unstable_by_key(|(_, event)| std::cmp::Reverse(*event));
            }
        }
        self.buckets[0].pop().map(|(key, event)| (f64::from_bits(key), event))
    }

    fn bucket(&self, key: u64) -> usize {
        64 - (key ^ self.last).leading_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_whatever_the_order_they_went_in() {
        let mut heap = RadixHeap::new();
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        let (mut now, mut last) = (0.0, (0.0, 0));
        for index in 0..50 {
            heap.push(f64::from(random() % 8), index);
        }
        for index in 50..20_000 {
            let (at_s, event) = heap.pop().unwrap();
            assert!((at_s, event) > last || at_s > now || last == (0.0, 0), "{at_s} after {now}");
            (now, last) = (at_s, (at_s, event));
            // Many ties, and some steps of very different lengths.
            let ahead = [0.0, 0.0, 1.0, 1e-9, 1e3][random() as usize % 5];
            heap.push(now + ahead, index);
        }
        let rest = std::iter::from_fn(|| heap.pop()).collect::<Vec<_>>();
        assert_eq!(rest.len(), 50);
        assert!(rest.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    }
}
