//! Combining vectors at memory speed. Kernels are compiled for several instruction sets; the best one is chosen at
//! run time.
//!
//! All vectors of a reduction are read in one pass. The result is bit-identical to combining them one after the
//! other: every partial result is rounded to the element type.

use algorithms::control::{DataType, ReduceOp};
use multiversion::multiversion;
use multiversion::target::selected_target;

use crate::element::{Element, LANES, Number};
use crate::for_dtype;

/// How incoming data are combined with the local data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementOp {
    /// Addition; integers wrap.
    Sum,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Multiplication; integers wrap.
    Product,
    /// Bitwise AND of 64-bit integers: the bit-vector control plane's reduction.
    And,
    /// Bitwise OR of 64-bit integers: marks invalid entries in the same plane.
    Or,
}

impl ElementOp {
    /// The data plane's operation for a reduction; the factor of an average is applied afterwards.
    pub fn of(op: ReduceOp) -> ElementOp {
        match op {
            ReduceOp::Sum | ReduceOp::Average => ElementOp::Sum,
            ReduceOp::Min => ElementOp::Min,
            ReduceOp::Max => ElementOp::Max,
            ReduceOp::Product => ElementOp::Product,
        }
    }

    /// Combines two elements.
    ///
    /// # Panics
    /// For AND and OR, which apply to words and not to elements.
    pub fn pair<T: Element>(self, mine: T, other: T) -> T {
        let (mine, other) = (mine.widen(), other.widen());
        T::narrow(match self {
            ElementOp::Sum => mine.plus(other),
            ElementOp::Min => mine.smaller(other),
            ElementOp::Max => mine.larger(other),
            ElementOp::Product => mine.times(other),
            ElementOp::And | ElementOp::Or => unreachable!("words are never combined one by one"),
        })
    }
}

/// Combines all of `others`, in order, into `into`; each has `elements` elements.
///
/// # Safety
/// All pointers are aligned and refer to `elements` elements of the type. `into` does not overlap the others.
/// During the call no other thread writes to any of them or reads `into`.
pub type Kernel = unsafe fn(into: *mut u8, others: &[*const u8], elements: usize);

/// The kernel for a type and an operation.
///
/// # Panics
/// For AND and OR over anything but i64.
pub fn kernel(dtype: DataType, combine: ElementOp) -> Kernel {
    match combine {
        ElementOp::Sum => for_dtype!(dtype, T => combined::<T, Plus>),
        ElementOp::Min => for_dtype!(dtype, T => combined::<T, Smaller>),
        ElementOp::Max => for_dtype!(dtype, T => combined::<T, Larger>),
        ElementOp::Product => for_dtype!(dtype, T => combined::<T, Times>),
        ElementOp::And | ElementOp::Or => {
            assert_eq!(dtype, DataType::I64, "bits travel as 64-bit integers");
            match combine {
                ElementOp::And => combined::<i64, Both>,
                _ => combined::<i64, Either>,
            }
        }
    }
}

/// Adds one vector to another.
///
/// # Panics
/// When their lengths differ.
pub fn add<T: Element>(into: &mut [T], other: &[T]) {
    assert_eq!(into.len(), other.len(), "vectors of different lengths");
    // SAFETY: both have the same number of elements; the borrows do not overlap.
    unsafe { combined::<T, Plus>(into.as_mut_ptr().cast(), &[other.as_ptr().cast()], other.len()) }
}

trait Pair<T> {
    fn pair(mine: T, other: T) -> T;
}

macro_rules! pair {
    ($name:ident, $method:ident) => {
        struct $name;
        impl<T: Number> Pair<T> for $name {
            #[inline(always)]
            fn pair(mine: T, other: T) -> T {
                mine.$method(other)
            }
        }
    };
}
pair!(Plus, plus);
pair!(Times, times);
pair!(Smaller, smaller);
pair!(Larger, larger);

struct Both;
impl Pair<i64> for Both {
    #[inline(always)]
    fn pair(mine: i64, other: i64) -> i64 {
        mine & other
    }
}

struct Either;
impl Pair<i64> for Either {
    #[inline(always)]
    fn pair(mine: i64, other: i64) -> i64 {
        mine | other
    }
}

/// Elements combined at a time if there are more than three vectors, so that they stay in the L1 cache.
const BLOCK: usize = 2048;

/// # Safety
/// As [`Kernel`].
unsafe fn combined<T: Element, P: Pair<T::Wide>>(
    into: *mut u8,
    others: &[*const u8],
    elements: usize,
) {
    if elements < LANES {
        // SAFETY: the caller's promise.
        let part = |vector| unsafe { std::slice::from_raw_parts(vector, elements) };
        // SAFETY: as above; nothing else points into it.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<T>(), elements) };
        return others.iter().for_each(|other| each::<T, P, 1>(into, [part(other.cast::<T>())]));
    }
    let block = if others.len() > 3 { BLOCK } else { elements };
    for first in (0..elements).step_by(block) {
        let elements = block.min(elements - first);
        // SAFETY: the caller's promise, for a part of the vectors.
        let part = |vector: *const u8| unsafe {
            std::slice::from_raw_parts(vector.cast::<T>().add(first), elements)
        };
        // SAFETY: as above; nothing else points into it.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<T>().add(first), elements) };
        for others in others.chunks(3) {
            match *others {
                [a] => fold::<T, P, 1>(into, [part(a)]),
                [a, b] => fold::<T, P, 2>(into, [part(a), part(b)]),
                [a, b, c] => fold::<T, P, 3>(into, [part(a), part(b), part(c)]),
                _ => unreachable!("chunks of three"),
            }
        }
    }
}

/// One pass over 1 + N vectors.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2+fma+f16c",
    "x86_64+avx2+fma+f16c"
))]
fn fold<T: Element, P: Pair<T::Wide>, const N: usize>(into: &mut [T], others: [&[T]; N]) {
    const NATIVE: bool = selected_target!().supports_feature_str("f16c");
    if !(NATIVE && T::CONVERTS) {
        return each::<T, P, N>(into, others);
    }
    let (into, rest) = into.as_chunks_mut::<LANES>();
    let whole = into.len() * LANES;
    let lanes = others.map(|other| &other.as_chunks::<LANES>().0[..into.len()]);
    for at in 0..into.len() {
        for other in lanes {
            // SAFETY: this function's version for processors with f16c says so.
            unsafe {
                let mut wide = T::widen_lanes(into[at]);
                let other = T::widen_lanes(other[at]);
                wide.iter_mut().zip(other).for_each(|(mine, other)| *mine = P::pair(*mine, other));
                into[at] = T::narrow_lanes(wide);
            }
        }
    }
    each::<T, P, N>(rest, others.map(|other| &other[whole..]));
}

/// One element at a time; compilers vectorise this loop.
#[inline(always)]
fn each<T: Element, P: Pair<T::Wide>, const N: usize>(into: &mut [T], others: [&[T]; N]) {
    let others = others.map(|other| &other[..into.len()]);
    for at in 0..into.len() {
        let mut sum = into[at];
        for other in others {
            sum = T::narrow(P::pair(sum.widen(), other[at].widen()));
        }
        into[at] = sum;
    }
}

/// Multiplies every element by a factor, which is first rounded to the type (for f16 and bf16 to f32).
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2+fma+f16c",
    "x86_64+avx2+fma+f16c"
))]
pub fn scale<T: Element>(elements: &mut [T], factor: f64) {
    const NATIVE: bool = selected_target!().supports_feature_str("f16c");
    let whole = if NATIVE && T::CONVERTS { elements.len() / LANES * LANES } else { 0 };
    let (lanes, rest) = elements.split_at_mut(whole);
    for lanes in lanes.as_chunks_mut::<LANES>().0 {
        // SAFETY: this function's version for processors with f16c says so.
        let mut wide = unsafe { T::widen_lanes(*lanes) };
        wide.iter_mut().for_each(|element| *element = element.scaled(factor));
        // SAFETY: as above.
        *lanes = unsafe { T::narrow_lanes(wide) };
    }
    for element in rest {
        *element = T::narrow(element.widen().scaled(factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// Reduces vectors of arbitrary bits and compares with the reduction element by element.
    fn check<T: Element>(combine: ElementOp, vectors: &[Vec<T>]) {
        let (mine, others) = vectors.split_first().unwrap();
        let one = |sum, at: usize| others.iter().fold(sum, |a, other| combine.pair(a, other[at]));
        let expected: Vec<T> = (0..mine.len()).map(|at| one(mine[at], at)).collect();
        let pointers: Vec<_> = others.iter().map(|other| other.as_ptr().cast()).collect();
        let mut result = mine.clone();
        // SAFETY: vectors of `T` of one length.
        unsafe {
            kernel(T::DTYPE, combine)(result.as_mut_ptr().cast(), &pointers, mine.len());
        }
        let is_nan = |a: &T| a.partial_cmp(a).is_none();
        let same = |a: &T, b: &T| a == b || (is_nan(a) && is_nan(b));
        let wrong = expected.iter().zip(&result).position(|(a, b)| !same(a, b));
        assert_eq!(wrong, None, "{:?} {combine:?} of {} vectors", T::DTYPE, vectors.len());
    }

    /// Lengths around whole registers, up to eight vectors, and values that overflow, underflow or are NaN.
    #[test]
    fn every_kernel_combines() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        for dtype in DataType::ALL {
            for combine in [ElementOp::Sum, ElementOp::Min, ElementOp::Max, ElementOp::Product] {
                for (vectors, elements) in
                    [(2, 0), (2, 1), (2, 15), (3, 16), (4, 17), (2, 100), (5, 63), (8, 4099)]
                {
                    for_dtype!(dtype, T => {
                        let mut element = || match random() % 8 {
                            0 => T::from_i32(random() as i32),
                            1 if !dtype.is_integer() => T::power_of_two(random() as i32 % 160, true),
                            2 if !dtype.is_integer() => T::power_of_two(-(random() as i32 % 160), true),
                            _ => T::from_i32((random() % 2000) as i32 - 1000),
                        };
                        let mut vector = || (0..elements).map(|_| element()).collect::<Vec<_>>();
                        check::<T>(combine, &(0..vectors).map(|_| vector()).collect::<Vec<_>>());
                    });
                }
            }
        }
        for (combine, expected) in [(ElementOp::And, [0b1000, 7]), (ElementOp::Or, [0b1110, -1])] {
            let (mut bits, other) = ([0b1100_i64, -1], [0b1010_i64, 7]);
            let into = bits.as_mut_ptr().cast();
            // SAFETY: two vectors of two elements.
            unsafe { kernel(DataType::I64, combine)(into, &[other.as_ptr().cast()], 2) };
            assert_eq!(bits, expected);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn converts_f16() -> bool {
        std::arch::is_x86_feature_detected!("f16c")
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn converts_f16() -> bool {
        false
    }

    /// Conversions match `half`'s for every bit pattern.
    #[test]
    fn halves_are_widened_and_narrowed_as_half_does() {
        let same = |a: f32, b: f32| a == b || (a.is_nan() && b.is_nan());
        for first in (0..=u16::MAX).step_by(LANES) {
            let bits: [u16; LANES] = std::array::from_fn(|lane| first + lane as u16);
            if converts_f16() {
                // SAFETY: support of f16c has been checked.
                let wide = unsafe { f16::widen_lanes(bits.map(f16::from_bits)) };
                assert!(wide.iter().zip(bits).all(|(a, b)| same(*a, f16::from_bits(b).to_f32())));
            }
            let brains = bits.map(bf16::from_bits);
            assert!(brains.iter().all(|brain| same(brain.widen(), brain.to_f32())));
        }
        for first in (0..u32::MAX - 1009 * LANES as u32).step_by(1009 * LANES) {
            let wide: [f32; LANES] =
                std::array::from_fn(|lane| f32::from_bits(first + 1009 * lane as u32));
            if converts_f16() {
                // SAFETY: as above.
                let halves = unsafe { f16::narrow_lanes(wide) };
                let pairs = halves.iter().zip(wide.map(f16::from_f32));
                assert!(pairs.into_iter().all(|(a, b)| *a == b || (a.is_nan() && b.is_nan())));
            }
            for wide in wide {
                let (brain, expected) = (bf16::narrow(wide), bf16::from_f32(wide));
                assert!(brain == expected || (brain.is_nan() && expected.is_nan()));
            }
        }
    }

    #[test]
    fn an_average_rounds_once() {
        let mut third = [1.0_f32, 2.0, 16777213.0];
        scale(&mut third, 1.0 / 3.0);
        assert_eq!(third, [1.0 / 3.0, 2.0 * (1.0_f32 / 3.0), 16777213.0 * (1.0_f32 / 3.0)]);
        let mut fifth = [f16::from_f32(7.0); LANES + 1];
        scale(&mut fifth, 0.2);
        assert_eq!(fifth, [f16::from_f32(7.0 * 0.2_f32); LANES + 1]);
    }
}
