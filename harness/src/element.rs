//! What is done to elements: combine two vectors, and scale one.
//!
//! `average` is a sum followed by one multiplication by 1 / world size, as in Horovod: the factor
//! is rounded to the element type first (for f16 and bf16 the multiplication is done in f32), then
//! the product is rounded once. It is refused for integers.

use algorithms::control::{DataType, ReduceOp};
use half::{bf16, f16};

use crate::memory::Plain;

/// A number that can be reduced.
pub trait Element: Plain + PartialEq + std::fmt::Display + Send + Sync + 'static {
    /// Its code.
    const DTYPE: DataType;
    /// Bits of integers that it holds exactly.
    const EXACT_BITS: u32;

    /// a + b; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// a x b; integers wrap.
    fn times(self, other: Self) -> Self;
    /// The smaller; if one is NaN, the first.
    fn smaller(self, other: Self) -> Self;
    /// The larger; if one is NaN, the first.
    fn larger(self, other: Self) -> Self;
    /// a x factor, see the head of this file; integers do not scale.
    fn scaled(self, factor: f64) -> Self;
    /// The element nearest to an integer; integers keep the low bits.
    fn from_i32(value: i32) -> Self;
    /// 2^exponent, negated if so wished; floating-point only.
    fn power_of_two(exponent: i32, negative: bool) -> Self;
}

macro_rules! float {
    ($type:ty, $dtype:expr, $bits:expr, $wide:ty, $narrow:expr, $widen:expr) => {
        impl Element for $type {
            const DTYPE: DataType = $dtype;
            const EXACT_BITS: u32 = $bits;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
            #[inline(always)]
            fn scaled(self, factor: f64) -> Self {
                $narrow($widen(self) * factor as $wide)
            }
            #[inline(always)]
            fn from_i32(value: i32) -> Self {
                $narrow(value as $wide)
            }
            fn power_of_two(exponent: i32, negative: bool) -> Self {
                $narrow((exponent as $wide).exp2() * if negative { -1.0 } else { 1.0 })
            }
        }
    };
}

float!(f32, DataType::F32, 24, f32, std::convert::identity, std::convert::identity::<f32>);
float!(f64, DataType::F64, 53, f64, std::convert::identity, std::convert::identity::<f64>);
float!(f16, DataType::F16, 11, f32, f16::from_f32, f16::to_f32);
float!(bf16, DataType::BF16, 8, f32, bf16::from_f32, bf16::to_f32);

macro_rules! integer {
    ($type:ty, $dtype:expr, $bits:expr) => {
        impl Element for $type {
            const DTYPE: DataType = $dtype;
            const EXACT_BITS: u32 = $bits;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn scaled(self, _factor: f64) -> Self {
                unreachable!("scaling integers is refused before anything runs")
            }
            #[inline(always)]
            fn from_i32(value: i32) -> Self {
                value as $type
            }
            fn power_of_two(_exponent: i32, _negative: bool) -> Self {
                unreachable!("integers have a pattern of their own")
            }
        }
    };
}

integer!(i32, DataType::I32, 31);
integer!(i64, DataType::I64, 63);

/// Runs `$body` with `$type` standing for the element type of `$dtype`.
#[macro_export]
macro_rules! for_dtype {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            algorithms::control::DataType::F32 => {
                type $type = f32;
                $body
            }
            algorithms::control::DataType::F64 => {
                type $type = f64;
                $body
            }
            algorithms::control::DataType::F16 => {
                type $type = half::f16;
                $body
            }
            algorithms::control::DataType::BF16 => {
                type $type = half::bf16;
                $body
            }
            algorithms::control::DataType::I32 => {
                type $type = i32;
                $body
            }
            algorithms::control::DataType::I64 => {
                type $type = i64;
                $body
            }
        }
    };
}

/// How what arrives is combined with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
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
}

impl Combine {
    /// What the data plane does for an operation; the factor of an average comes afterwards.
    pub fn of(op: ReduceOp) -> Combine {
        match op {
            ReduceOp::Sum | ReduceOp::Average => Combine::Sum,
            ReduceOp::Min => Combine::Min,
            ReduceOp::Max => Combine::Max,
            ReduceOp::Product => Combine::Product,
        }
    }
}

/// Combines `elements` elements at `from` into those at `into`.
///
/// # Safety
/// Both point to as many elements of the type, aligned; they do not overlap; nobody else writes
/// `from` or touches `into` meanwhile.
pub type Kernel = unsafe fn(into: *mut u8, from: *const u8, elements: usize);

/// The kernel of a type and a way to combine.
///
/// # Panics
/// For AND over anything but i64.
pub fn kernel(dtype: DataType, combine: Combine) -> Kernel {
    match combine {
        Combine::Sum => for_dtype!(dtype, T => combined::<T, Plus>),
        Combine::Min => for_dtype!(dtype, T => combined::<T, Smaller>),
        Combine::Max => for_dtype!(dtype, T => combined::<T, Larger>),
        Combine::Product => for_dtype!(dtype, T => combined::<T, Times>),
        Combine::And => {
            assert_eq!(dtype, DataType::I64, "bits travel as 64-bit integers");
            combined::<i64, Both>
        }
    }
}

/// Overwrites the elements at `into`; a [`Kernel`] like the others.
pub fn copy_kernel(dtype: DataType) -> Kernel {
    for_dtype!(dtype, T => copied::<T>)
}

trait Pair<T> {
    fn pair(mine: T, other: T) -> T;
}

macro_rules! pair {
    ($name:ident, $method:ident) => {
        struct $name;
        impl<T: Element> Pair<T> for $name {
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

unsafe fn combined<T: Element, P: Pair<T>>(into: *mut u8, from: *const u8, elements: usize) {
    // SAFETY: the caller's promise.
    let (into, from) = unsafe { pair_of_slices::<T>(into, from, elements) };
    into.iter_mut().zip(from).for_each(|(mine, &other)| *mine = P::pair(*mine, other));
}

unsafe fn copied<T: Element>(into: *mut u8, from: *const u8, elements: usize) {
    // SAFETY: the caller's promise.
    let (into, from) = unsafe { pair_of_slices::<T>(into, from, elements) };
    into.copy_from_slice(from);
}

/// # Safety
/// As [`Kernel`].
unsafe fn pair_of_slices<'a, T>(
    into: *mut u8,
    from: *const u8,
    elements: usize,
) -> (&'a mut [T], &'a [T]) {
    // SAFETY: the caller's promise.
    unsafe {
        (
            std::slice::from_raw_parts_mut(into.cast(), elements),
            std::slice::from_raw_parts(from.cast(), elements),
        )
    }
}

/// Multiplies every element by a factor.
pub fn scale<T: Element>(elements: &mut [T], factor: f64) {
    elements.iter_mut().for_each(|element| *element = element.scaled(factor));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(combine: Combine, into: &[i32], from: &[i32], expected: &[i32]) {
        let numbers = |list: &[i32]| list.iter().map(|&v| T::from_i32(v)).collect::<Vec<_>>();
        let (mut into, from) = (numbers(into), numbers(from));
        // SAFETY: two vectors of `T` of one length.
        unsafe {
            kernel(T::DTYPE, combine)(into.as_mut_ptr().cast(), from.as_ptr().cast(), into.len());
        }
        assert!(into == numbers(expected), "{:?} {combine:?}", T::DTYPE);
    }

    #[test]
    fn every_kernel_combines() {
        for dtype in DataType::ALL {
            for_dtype!(dtype, T => {
                check::<T>(Combine::Sum, &[1, 2, -3], &[4, 5, 6], &[5, 7, 3]);
                check::<T>(Combine::Min, &[1, 2, -3], &[4, -5, 6], &[1, -5, -3]);
                check::<T>(Combine::Max, &[1, 2, -3], &[4, -5, 6], &[4, 2, 6]);
                check::<T>(Combine::Product, &[1, 2, -3], &[4, -5, 6], &[4, -10, -18]);
            });
        }
        check::<i64>(Combine::And, &[0b1100, -1], &[0b1010, 7], &[0b1000, 7]);
        check::<i32>(Combine::Sum, &[i32::MAX], &[1], &[i32::MIN]);
    }

    #[test]
    fn an_average_rounds_once() {
        let mut third = [f32::from_i32(1), 2.0, 16777213.0];
        scale(&mut third, 1.0 / 3.0);
        assert_eq!(third, [1.0 / 3.0, 2.0 * (1.0_f32 / 3.0), 16777213.0 * (1.0_f32 / 3.0)]);
        let mut fifth = [f16::from_f32(7.0)];
        scale(&mut fifth, 0.2);
        assert_eq!(fifth, [f16::from_f32(7.0 * 0.2_f32)]);
    }
}
