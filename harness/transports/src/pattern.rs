//! Input data whose reduction has one exact result in any order.
//!
//! Every value depends on rank, index and seed, so that a swapped block, a stale buffer or a duplicated part is
//! detected. Sums use integers so small that no order of addition rounds. Products use powers of two (odd numbers
//! for integers) that no order lets overflow. Minima and maxima are always exact. After the verifiable data of
//! nccl-tests.
//!
//! Gradients that are accumulated over several backward passes are integers small enough for all passes; gradients
//! that are cast hold values that the narrower type represents. One case has no exact result: a factor before the
//! reduction that is not a power of two rounds every summand, and the order of addition then affects the last
//! bits. Such sums are compared within the bound of all intermediate roundings, see [`Pattern::tolerance`].

mod uncheckable;

use std::ops::Range;

use algorithms::control::{DataType, ReduceOp};
use algorithms::topology::Rank;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::element::{Element, Number};
use crate::for_dtype;
use crate::kernel::{ElementOp, add, scale};
use crate::memory::Memory;
use algorithms::control::Reduction;
use serde::{Deserialize, Serialize};
pub use uncheckable::Uncheckable;

/// Elements checked or filled at a time: small enough to stay in the L1 cache.
const BLOCK: usize = 2048;

/// How many ranks may contribute a value other than 1 to a floating-point product.
const FACTORS: usize = 14;

/// Elements by which the gradients of each backward pass are rotated against the previous pass: whole cache lines
/// for any type.
const TURN: usize = 32;

/// The inputs of one reduction.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// World size.
    pub ranks: usize,
    /// The operation, with factors before and afterwards.
    pub reduction: Reduction,
    /// The seed of the values.
    pub seed: u64,
    /// Backward passes whose gradients each rank accumulates before the reduction.
    pub passes: usize,
    /// The result is divided by the number of passes.
    pub average_passes: bool,
    /// The 16-bit type of the reduction, if it differs from the gradients' type.
    pub wire: Option<DataType>,
}

/// The wrong elements of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// How many.
    pub count: usize,
    /// The first one, as text.
    pub first: Option<String>,
}

impl Wrong {
    /// Adds two counts; keeps the first element of `self`.
    pub fn and(self, other: Wrong) -> Wrong {
        Wrong { count: self.count + other.count, first: self.first.or(other.first) }
    }
}

/// Index of the first element of the gradient that a backward pass adds to element 0 of the sum, if the passes
/// after the first share a memory of `elements` elements.
pub fn turn(pass: usize, elements: usize) -> usize {
    pass * TURN % elements.max(1)
}

impl Pattern {
    /// An allreduce alone: one pass, no cast.
    pub fn of(ranks: usize, reduction: impl Into<Reduction>, seed: u64) -> Pattern {
        let reduction = reduction.into();
        Pattern { ranks, reduction, seed, passes: 1, average_passes: false, wire: None }
    }

    /// What all passes after the first have in common.
    fn later(&self) -> Pattern {
        Pattern { seed: self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15), ..*self }
    }

    /// Why there is no pattern that can be checked, if there is none.
    pub fn unsupported<T: Element>(&self) -> Option<Uncheckable> {
        if !matches!(self.reduction.op, ReduceOp::Sum | ReduceOp::Average) {
            return None;
        }
        let (dtype, bits) = (self.wire.unwrap_or(T::DTYPE), self.exact_bits::<T>());
        if self.value_bits::<T>() == 0 {
            let Pattern { ranks, passes, .. } = *self;
            let most = ((1 << (bits - 1)) / passes).max(1);
            return Some(Uncheckable::TooNarrow { dtype, ranks, passes, bits, most });
        }
        let Reduction { prescale, postscale, .. } = self.reduction;
        let most =
            self.ranks as f64 * self.passes as f64 * 2_f64.powi(self.value_bits::<T>() as i32);
        let after = self.reduction.factor_after(self.ranks);
        let range = normal_range(dtype);
        let reached = [prescale, prescale * most, prescale * after, prescale * most * after]
            .into_iter()
            .find(|value| !range.contains(value))?;
        Some(Uncheckable::OutOfRange { dtype, prescale, postscale, reached })
    }

    /// Bits of an integer that the reduction represents exactly.
    fn exact_bits<T: Element>(&self) -> u32 {
        self.wire.map_or(T::EXACT_BITS, |wire| for_dtype!(wire, W => W::EXACT_BITS))
    }

    /// Bits of each summand, so that the sum over all ranks and passes stays exact.
    fn value_bits<T: Element>(&self) -> u32 {
        let summands = self.ranks.saturating_mul(self.passes);
        let carry = usize::BITS - (summands - 1).leading_zeros();
        self.exact_bits::<T>().saturating_sub(carry).min(20)
    }

    /// Bits of each value that a rank contributes, with one pass and no cast.
    pub fn drawn_bits<T: Element>(&self) -> u32 {
        match self.reduction.op {
            ReduceOp::Sum | ReduceOp::Average => self.value_bits::<T>().max(1),
            ReduceOp::Min | ReduceOp::Max => self.exact_bits::<T>().min(20),
            ReduceOp::Product => 4,
        }
    }

    /// The relative tolerance of a result: 0, unless a factor before the reduction is not a power of two. Then each
    /// summand and each partial sum is rounded, none is negative, and every rounding changes the result by at most
    /// half a unit in the last place.
    pub fn tolerance<T: Element>(&self) -> f64 {
        let mantissa = self.reduction.prescale.to_bits() & ((1 << 52) - 1);
        let roundings = self.ranks + 6;
        if mantissa == 0 {
            0.0
        } else {
            roundings as f64 / 2_f64.powi(self.exact_bits::<T>() as i32)
        }
    }

    /// Well-mixed numbers for the indices from `start`; equal on all ranks.
    fn mix(&self, start: usize, mixed: &mut [u32]) {
        let high = ((start >> 32) as u32).wrapping_mul(0x9E37_79B9) ^ self.seed as u32;
        for (offset, mixed) in mixed.iter_mut().enumerate() {
            let index = (start as u32).wrapping_add(offset as u32) ^ high;
            let folded = index.wrapping_mul(0x85EB_CA6B);
            *mixed = (folded ^ (folded >> 15)).wrapping_mul(0x2C1B_3C6D) ^ (self.seed >> 32) as u32;
        }
    }

    /// The input of one rank, computed from mixed numbers.
    fn fill_block<T: Element>(&self, rank: Rank, mixed: &[u32], out: &mut [T]) {
        // Each rank rotates and flips the numbers in its own way.
        let (turn, flip) = ((rank * 5 % 32) as u32, (rank as u32 + 1).wrapping_mul(0x9E37_79B1));
        let own = |mixed: u32| mixed.rotate_left(turn) ^ flip;
        let values = out.iter_mut().zip(mixed.iter().map(|&mixed| (mixed, own(mixed))));
        match self.reduction.op {
            ReduceOp::Sum | ReduceOp::Average => {
                let shift = 32 - self.drawn_bits::<T>();
                values.for_each(|(value, (_, own))| *value = T::from_i32((own >> shift) as i32));
            }
            ReduceOp::Min | ReduceOp::Max => {
                let bits = self.drawn_bits::<T>();
                let middle = 1 << (bits - 1);
                values.for_each(|(value, (_, own))| {
                    *value = T::from_i32((own >> (32 - bits)) as i32 - middle);
                });
            }
            ReduceOp::Product if T::DTYPE.is_integer() => values.for_each(|(value, (_, own))| {
                *value = T::from_i32((own >> 28 | 1) as i32);
            }),
            ReduceOp::Product => values.for_each(|(value, (mixed, own))| {
                let exponent = if (rank + mixed as usize) % self.ranks < FACTORS {
                    (own >> 16) as i32 % 3 - 1
                } else {
                    0
                };
                *value = T::power_of_two(exponent, own >> 31 == 1);
            }),
        }
    }

    /// What one rank has accumulated at the indices `range` of a gradient.
    fn added_up<T: Element>(&self, rank: Rank, whole: &Whole, range: Range<usize>, out: &mut [T]) {
        let (mut mixed, mut part) = ([0; BLOCK], [T::from_i32(0); BLOCK]);
        let (mixed, part) = (&mut mixed[..out.len()], &mut part[..out.len()]);
        self.mix(whole.first + range.start, mixed);
        self.fill_block(rank, mixed, out);
        for pass in 1..self.passes {
            let start = (range.start + turn(pass, whole.elements)) % whole.elements;
            let before_end = (whole.elements - start).min(mixed.len());
            self.later().mix(whole.first + start, &mut mixed[..before_end]);
            self.later().mix(whole.first, &mut mixed[before_end..]);
            self.fill_block(rank, mixed, part);
            add(out, part);
        }
    }

    /// The reduction's result at the indices `range` of a gradient, in the type of the reduction.
    fn reduced<T: Element>(&self, whole: &Whole, range: Range<usize>, out: &mut [T]) {
        let mut part = [T::from_i32(0); BLOCK];
        let part = &mut part[..out.len()];
        let combine = ElementOp::of(self.reduction.op);
        self.added_up(0, whole, range.clone(), out);
        for rank in 1..self.ranks {
            self.added_up(rank, whole, range.clone(), part);
            let pairs = out.iter_mut().zip(&*part);
            pairs.for_each(|(a, &b)| *a = combine.pair(*a, b));
        }
        for factor in [self.reduction.prescale, self.reduction.factor_after(self.ranks)] {
            if factor != 1.0 {
                scale(out, factor);
            }
        }
    }

    /// The expected result on every rank at the indices `range` of a gradient.
    fn expected<T: Element>(&self, whole: &Whole, range: Range<usize>, out: &mut [T]) {
        match self.wire {
            Some(DataType::F16) => self.cast_back::<f16, T>(whole, range, out),
            Some(DataType::BF16) => self.cast_back::<bf16, T>(whole, range, out),
            _ => self.reduced(whole, range, out),
        }
        if self.average_passes {
            scale(out, 1.0 / self.passes as f64);
        }
    }

    fn cast_back<W: Element, T: Element>(&self, whole: &Whole, range: Range<usize>, out: &mut [T]) {
        let mut reduced = [W::from_i32(0); BLOCK];
        let reduced = &mut reduced[..out.len()];
        self.reduced(whole, range, reduced);
        let wide = |narrow: &W| T::narrow(T::Wide::of_f64(narrow.widen().as_f64()));
        out.iter_mut().zip(reduced).for_each(|(out, narrow)| *out = wide(narrow));
    }

    /// Writes the input of one rank, that of its first backward pass; `first` is the index of the block's first
    /// element.
    pub fn fill<T: Element>(&self, rank: Rank, first: usize, memory: &mut Memory) {
        let mut mixed = [0; BLOCK];
        for (block, out) in memory.elements_mut::<T>().chunks_mut(BLOCK).enumerate() {
            let mixed = &mut mixed[..out.len()];
            self.mix(first + block * BLOCK, mixed);
            self.fill_block(rank, mixed, out);
        }
    }

    /// Writes the gradients of one rank's later backward passes: the same elements, each rotated, see [`turn`].
    pub fn fill_later<T: Element>(&self, rank: Rank, first: usize, memory: &mut Memory) {
        self.later().fill::<T>(rank, first, memory);
    }

    /// Compares the results of some ranks with the exact result, on all cores; `first` is the index of their first
    /// element.
    pub fn check<T: Element>(&self, first: usize, memories: &[(Rank, &Memory)]) -> Wrong {
        let elements = memories.first().map_or(0, |(_, memory)| memory.elements::<T>().len());
        let (whole, tolerance) = (Whole { first, elements }, self.tolerance::<T>());
        let blocks = elements.div_ceil(BLOCK);
        let wrong = (0..blocks).into_par_iter().map(|block| {
            let range = block * BLOCK..elements.min((block + 1) * BLOCK);
            let mut expected = [T::from_i32(0); BLOCK];
            let expected = &mut expected[..range.len()];
            self.expected(&whole, range.clone(), expected);
            let wrong = memories.iter().map(|(rank, memory)| {
                let got = &memory.elements::<T>()[range.clone()];
                let wrong = |(got, want): (&T, &T)| got != want && !near(*got, *want, tolerance);
                let count = got.iter().zip(&*expected).filter(|&pair| wrong(pair)).count();
                let bad = (count > 0).then(|| got.iter().zip(&*expected).position(wrong));
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
        let broken = memories.iter().find(|(_, memory)| !memory.guards_are_whole());
        let guards = broken.map_or(Wrong::default(), |(rank, _)| Wrong {
            count: 1,
            first: Some(format!("rank {rank}: memory beyond the end of a tensor was written")),
        });
        wrong.reduce(Wrong::default, Wrong::and).and(guards)
    }
}

/// A gradient: the index of its first element, and how many it has.
struct Whole {
    first: usize,
    elements: usize,
}

/// True if a result is within the relative tolerance.
fn near<T: Element>(got: T, want: T, tolerance: f64) -> bool {
    let (got, want) = (got.widen().as_f64(), want.widen().as_f64());
    tolerance > 0.0 && (got - want).abs() <= tolerance * want.abs()
}

/// The range of numbers that a type represents with full precision.
fn normal_range(dtype: DataType) -> Range<f64> {
    match dtype {
        DataType::F16 => f16::MIN_POSITIVE.to_f64()..f16::MAX.to_f64(),
        DataType::F32 | DataType::BF16 => f32::MIN_POSITIVE.into()..f32::MAX.into(),
        DataType::F64 => f64::MIN_POSITIVE..f64::MAX,
        DataType::U8 | DataType::I32 | DataType::I64 => 0.0..f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs<T: Element>(pattern: &Pattern, elements: usize) -> Vec<Vec<T>> {
        let input = |rank| {
            let mut memory = Memory::new(elements * size_of::<T>());
            pattern.fill::<T>(rank, 0, &mut memory);
            memory.elements::<T>().to_vec()
        };
        (0..pattern.ranks).map(input).collect()
    }

    fn patterns(ranks: usize) -> impl Iterator<Item = Pattern> {
        ReduceOp::ALL.into_iter().map(move |op| Pattern::of(ranks, op, 0x1234_5678_9ABC))
    }

    /// Forwards, backwards, and odd ranks before even ones give the same bits.
    #[test]
    fn every_order_of_reduction_gives_the_same_bits() {
        for dtype in DataType::ALL {
            for ranks in [1, 2, 3, 5, 8, 64] {
                for pattern in patterns(ranks) {
                    for_dtype!(dtype, T => {
                        let inputs = inputs::<T>(&pattern, 500);
                        let fold = |order: Vec<usize>, i: usize| {
                            let values = order[1..].iter().map(|&rank| inputs[rank][i]);
                            values.fold(inputs[order[0]][i], |a, b| ElementOp::of(pattern.reduction.op).pair(a, b))
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

    /// Tests the checker by mutation: every kind of error is counted.
    #[test]
    fn a_missing_doubled_stale_or_swapped_part_is_detected() {
        for dtype in DataType::ALL {
            for ranks in [2, 3, 8] {
                for pattern in patterns(ranks) {
                    if pattern.reduction.op == ReduceOp::Average && dtype.is_integer() {
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
                                *out = rest.fold(at(parts[0]), |a, b| ElementOp::of(pattern.reduction.op).pair(a, b));
                            }
                            if pattern.reduction.op == ReduceOp::Average {
                                scale(memory.elements_mut::<T>(), 1.0 / ranks as f64);
                            }
                            pattern.check::<T>(0, &[(0, &memory)]).count
                        };
                        let all: Vec<usize> = (0..ranks).collect();
                        let what = format!("{dtype:?}, {pattern:?}");
                        assert_eq!(result(&|_| all.clone(), 0), 0, "{what}");
                        assert!(result(&|_| all[1..].to_vec(), 0) > elements / 50, "{what} missing");
                        assert!(result(&|_| vec![0], 0) > elements / 50, "{what} stale");
                        assert!(result(&|_| all.clone(), 1) > elements / 50, "{what} swapped");
                        if matches!(pattern.reduction.op, ReduceOp::Sum | ReduceOp::Average) {
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
        let pattern = Pattern::of(2, ReduceOp::Sum, 1);
        let mut memories = [Memory::new(40), Memory::new(40)];
        for memory in &mut memories {
            pattern.expected(
                &Whole { first: 100, elements: 10 },
                0..10,
                memory.elements_mut::<f32>(),
            );
        }
        memories[1].elements_mut::<f32>()[7] = -1.0;
        let wrong = pattern.check::<f32>(100, &[(0, &memories[0]), (1, &memories[1])]);
        assert_eq!(wrong.count, 1);
        let text = wrong.first.unwrap();
        assert!(text.starts_with("rank 1, element 107: got -1, expected "), "{text}");
    }

    #[test]
    fn too_many_ranks_for_a_narrow_type_are_refused() {
        let pattern = |ranks| Pattern::of(ranks, ReduceOp::Sum, 1);
        assert_eq!(pattern(128).unsupported::<bf16>(), None);
        let why = pattern(129).unsupported::<bf16>().unwrap().to_string();
        assert!(why.contains("at most 128 ranks"), "{why}");
        let pattern = |passes| Pattern { passes, ..pattern(4) };
        assert_eq!(pattern(32).unsupported::<bf16>(), None);
        let why = pattern(33).unsupported::<bf16>().unwrap().to_string();
        assert!(why.contains("4 ranks and 33 backward passes"), "{why}");
        assert!(why.contains("at most 3 ranks, fewer passes or a wider type"), "{why}");
        let cast = Pattern { wire: Some(DataType::BF16), ..pattern(33) };
        let why = cast.unsupported::<f32>().unwrap().to_string();
        assert!(why.starts_with("bf16 sums over 4 ranks and 33"), "{why}");
    }
}
