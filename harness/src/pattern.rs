//! Inputs with one exact answer, in whatever order they are combined.
//!
//! Every value depends on rank, index and seed, so that a swapped block, a stale buffer or a part
//! that came twice shows. Sums are of integers small enough that no order of adding them rounds;
//! products are of powers of two (odd numbers for integers) that no order lets overflow; minima and
//! maxima are exact anyway. After nccl-tests' idea of verifiable data.

use algorithms::control::ReduceOp;
use algorithms::topology::Rank;
use rayon::prelude::*;

use crate::element::Element;
use crate::kernel::{Combine, scale};
use crate::memory::Memory;

/// Elements checked or filled at a time: small enough to stay in the first-level cache.
const BLOCK: usize = 2048;

/// How many ranks may contribute something else than 1 to a floating-point product.
const FACTORS: usize = 14;

/// The inputs of one reduction.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// World size.
    pub ranks: usize,
    /// How they are combined.
    pub op: ReduceOp,
    /// Another seed, other values.
    pub seed: u64,
}

/// The elements that came out wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// How many.
    pub count: usize,
    /// The first one, in words.
    pub first: Option<String>,
}

impl Wrong {
    /// Both together; the first of the left one stays first.
    pub fn and(self, other: Wrong) -> Wrong {
        Wrong { count: self.count + other.count, first: self.first.or(other.first) }
    }
}

impl Pattern {
    /// Why there is no exact pattern, if there is none.
    pub fn unsupported<T: Element>(&self) -> Option<String> {
        let sums = matches!(self.op, ReduceOp::Sum | ReduceOp::Average);
        if sums && self.value_bits::<T>() == 0 {
            return Some(format!(
                "{} sums over {} ranks cannot be checked exactly: {} bits hold no two values per \
                 rank; use at most {} ranks or a wider type",
                T::DTYPE.name(),
                self.ranks,
                T::EXACT_BITS,
                1_usize << (T::EXACT_BITS - 1),
            ));
        }
        None
    }

    /// Bits of each summand, so that the sum over all ranks stays exact.
    fn value_bits<T: Element>(&self) -> u32 {
        let carry = usize::BITS - (self.ranks - 1).leading_zeros();
        T::EXACT_BITS.saturating_sub(carry).min(20)
    }

    /// Well-mixed numbers for the indices from `start` on; the same for all ranks.
    fn mix(&self, start: usize, mixed: &mut [u32]) {
        let high = ((start >> 32) as u32).wrapping_mul(0x9E37_79B9) ^ self.seed as u32;
        for (offset, mixed) in mixed.iter_mut().enumerate() {
            let index = (start as u32).wrapping_add(offset as u32) ^ high;
            let folded = index.wrapping_mul(0x85EB_CA6B);
            *mixed = (folded ^ (folded >> 15)).wrapping_mul(0x2C1B_3C6D) ^ (self.seed >> 32) as u32;
        }
    }

    /// The input of one rank, from mixed numbers.
    fn fill_block<T: Element>(&self, rank: Rank, mixed: &[u32], out: &mut [T]) {
        // Each rank sees the numbers turned and flipped in its own way.
        let (turn, flip) = ((rank * 5 % 32) as u32, (rank as u32 + 1).wrapping_mul(0x9E37_79B1));
        let own = |mixed: u32| mixed.rotate_left(turn) ^ flip;
        let values = out.iter_mut().zip(mixed.iter().map(|&mixed| (mixed, own(mixed))));
        match self.op {
            ReduceOp::Sum | ReduceOp::Average => {
                let shift = 32 - self.value_bits::<T>().max(1);
                values.for_each(|(value, (_, own))| *value = T::from_i32((own >> shift) as i32));
            }
            ReduceOp::Min | ReduceOp::Max => {
                let bits = T::EXACT_BITS.min(20);
                let middle = 1 << (bits - 1);
                values.for_each(|(value, (_, own))| {
                    *value = T::from_i32((own >> (32 - bits)) as i32 - middle);
                });
            }
            ReduceOp::Product if T::DTYPE.is_integer() => values.for_each(|(value, (_, own))| {
                *value = T::from_i32((own >> 28 | 1) as i32);
            }),
            ReduceOp::Product => values.for_each(|(value, (mixed, own))| {
                let exponent = match (rank + mixed as usize) % self.ranks < FACTORS {
                    true => (own >> 16) as i32 % 3 - 1,
                    false => 0,
                };
                *value = T::power_of_two(exponent, own >> 31 == 1);
            }),
        }
    }

    /// What every rank must hold in the end at the indices `start..start + out.len()`.
    fn expected_block<T: Element>(&self, start: usize, out: &mut [T]) {
        let (mut mixed, mut part) = ([0; BLOCK], [T::from_i32(0); BLOCK]);
        let (mixed, part) = (&mut mixed[..out.len()], &mut part[..out.len()]);
        let combine = Combine::of(self.op);
        self.mix(start, mixed);
        self.fill_block(0, mixed, out);
        for rank in 1..self.ranks {
            self.fill_block(rank, mixed, part);
            let pairs = out.iter_mut().zip(&*part);
            pairs.for_each(|(a, &b)| *a = combine.pair(*a, b));
        }
        if self.op == ReduceOp::Average {
            scale(out, 1.0 / self.ranks as f64);
        }
    }

    /// Writes the input of one rank; `first` is the index of the block's first element.
    pub fn fill<T: Element>(&self, rank: Rank, first: usize, memory: &mut Memory) {
        let mut mixed = [0; BLOCK];
        for (block, out) in memory.elements_mut::<T>().chunks_mut(BLOCK).enumerate() {
            let mixed = &mut mixed[..out.len()];
            self.mix(first + block * BLOCK, mixed);
            self.fill_block(rank, mixed, out);
        }
    }

    /// Compares the results of all ranks with the one right answer, on all cores. `memories[r]`
    /// belongs to rank r; `first` is the index of their first element.
    pub fn check<T: Element>(&self, first: usize, memories: &[&Memory]) -> Wrong {
        let elements = memories[0].elements::<T>().len();
        let blocks = elements.div_ceil(BLOCK);
        let wrong = (0..blocks).into_par_iter().map(|block| {
            let range = block * BLOCK..elements.min((block + 1) * BLOCK);
            let mut expected = [T::from_i32(0); BLOCK];
            let expected = &mut expected[..range.len()];
            self.expected_block(first + range.start, expected);
            let wrong = memories.iter().enumerate().map(|(rank, memory)| {
                let got = &memory.elements::<T>()[range.clone()];
                let count = got.iter().zip(&*expected).filter(|(got, want)| got != want).count();
                let bad = (count > 0).then(|| got.iter().zip(&*expected).position(|(g, e)| g != e));
                let text = bad.flatten().map(|at| {
                    format!(
                        "rank {rank}, element {}: got {}, expected {}",
                        first + range.start + at,
                        got[at],
                        expected[at]
                    )
                });
                Wrong { count, first: text }
            });
            wrong.fold(Wrong::default(), Wrong::and)
        });
        let broken = memories.iter().position(|memory| !memory.guards_are_whole());
        let guards = broken.map_or(Wrong::default(), |rank| Wrong {
            count: 1,
            first: Some(format!("rank {rank}: memory beyond the end of a tensor was written")),
        });
        wrong.reduce(Wrong::default, Wrong::and).and(guards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_dtype;
    use algorithms::control::DataType;

    fn inputs<T: Element>(pattern: &Pattern, elements: usize) -> Vec<Vec<T>> {
        let input = |rank| {
            let mut memory = Memory::new(elements * size_of::<T>());
            pattern.fill::<T>(rank, 0, &mut memory);
            memory.elements::<T>().to_vec()
        };
        (0..pattern.ranks).map(input).collect()
    }

    fn patterns(ranks: usize) -> impl Iterator<Item = Pattern> {
        ReduceOp::ALL.into_iter().map(move |op| Pattern { ranks, op, seed: 0x1234_5678_9ABC })
    }

    /// Forwards, backwards, and odd ranks before even ones: always the same bits.
    #[test]
    fn any_order_of_reduction_gives_the_same() {
        for dtype in DataType::ALL {
            for ranks in [1, 2, 3, 5, 8, 64] {
                for pattern in patterns(ranks) {
                    for_dtype!(dtype, T => {
                        let inputs = inputs::<T>(&pattern, 500);
                        let fold = |order: Vec<usize>, i: usize| {
                            let values = order[1..].iter().map(|&rank| inputs[rank][i]);
                            values.fold(inputs[order[0]][i], |a, b| Combine::of(pattern.op).pair(a, b))
                        };
                        let forwards: Vec<usize> = (0..ranks).collect();
                        let backwards: Vec<usize> = (0..ranks).rev().collect();
                        let mut shuffled = forwards.clone();
                        shuffled.sort_by_key(|rank| (1 - rank % 2, rank * 7 % ranks));
                        for i in 0..500 {
                            let value = fold(forwards.clone(), i);
                            let others = [fold(backwards.clone(), i), fold(shuffled.clone(), i)];
                            assert!(others.iter().all(|&other| other == value),
                                "{dtype:?} {pattern:?} at {i}: {value}, {others:?}", others = others[0]);
                            assert!(value.to_string() != "inf" && value.to_string() != "NaN");
                        }
                    });
                }
            }
        }
    }

    /// The checker itself, by mutation: every way to go wrong is counted.
    #[test]
    fn a_missing_doubled_stale_or_swapped_part_is_seen() {
        for dtype in DataType::ALL {
            for ranks in [2, 3, 8] {
                for pattern in patterns(ranks) {
                    if pattern.op == ReduceOp::Average && dtype.is_integer() {
                        continue;
                    }
                    for_dtype!(dtype, T => {
                        let elements = 4000;
                        let inputs = inputs::<T>(&pattern, elements);
                        let result = |parts: &dyn Fn(usize) -> Vec<usize>, shift: usize| {
                            let mut memory = Memory::new(elements * size_of::<T>());
                            for (i, out) in memory.elements_mut::<T>().iter_mut().enumerate() {
                                let parts = parts(i);
                                let at = |rank: usize| inputs[rank][(i + shift) % elements];
                                let rest = parts[1..].iter().map(|&rank| at(rank));
                                *out = rest.fold(at(parts[0]), |a, b| Combine::of(pattern.op).pair(a, b));
                            }
                            if pattern.op == ReduceOp::Average {
                                scale(memory.elements_mut::<T>(), 1.0 / ranks as f64);
                            }
                            pattern.check::<T>(0, &[&memory]).count
                        };
                        let all: Vec<usize> = (0..ranks).collect();
                        let what = format!("{dtype:?}, {pattern:?}");
                        assert_eq!(result(&|_| all.clone(), 0), 0, "{what}");
                        assert!(result(&|_| all[1..].to_vec(), 0) > elements / 50, "{what} missing");
                        assert!(result(&|_| vec![0], 0) > elements / 50, "{what} stale");
                        assert!(result(&|_| all.clone(), 1) > elements / 50, "{what} swapped");
                        if matches!(pattern.op, ReduceOp::Sum | ReduceOp::Average) {
                            let doubled = |_| [&all[1..], &[1]].concat();
                            assert!(result(&doubled, 0) > elements / 2, "{what} doubled");
                        }
                        let one = |i: usize| if i == 77 { all[1..].to_vec() } else { all.clone() };
                        assert!(result(&one, 0) <= 1, "{what}");
                    });
                }
            }
        }
    }

    #[test]
    fn the_first_wrong_element_is_named() {
        let pattern = Pattern { ranks: 2, op: ReduceOp::Sum, seed: 1 };
        let mut memories = [Memory::new(40), Memory::new(40)];
        for memory in &mut memories {
            pattern.expected_block(100, memory.elements_mut::<f32>());
        }
        memories[1].elements_mut::<f32>()[7] = -1.0;
        let wrong = pattern.check::<f32>(100, &[&memories[0], &memories[1]]);
        assert_eq!(wrong.count, 1);
        let text = wrong.first.unwrap();
        assert!(text.starts_with("rank 1, element 107: got -1, expected "), "{text}");
    }

    #[test]
    fn too_many_ranks_for_a_narrow_type_are_refused() {
        let pattern = |ranks| Pattern { ranks, op: ReduceOp::Sum, seed: 1 };
        assert_eq!(pattern(128).unsupported::<half::bf16>(), None);
        let why = pattern(129).unsupported::<half::bf16>().unwrap();
        assert!(why.contains("at most 128 ranks"), "{why}");
    }
}
