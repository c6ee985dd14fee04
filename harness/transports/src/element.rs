//! Numbers that can be reduced, one at a time or a vector register at a time.
//!
//! `average` is a sum followed by one multiplication by 1 / world size, as in Horovod. The factor is first rounded
//! to the element type (for f16 and bf16 the multiplication is done in f32), and the product is rounded once.
//! Other factors are applied in the same way. Integers do not support factors.

use algorithms::control::DataType;
use half::{bf16, f16};

use crate::memory::Plain;

/// Elements that are processed together: a few vector registers.
pub const LANES: usize = 32;

/// A type whose vectors can be reduced.
pub trait Element: Plain + PartialOrd + std::fmt::Display + Send + Sync + 'static {
    /// Its code.
    const DTYPE: DataType;
    /// Bits of integers that it holds exactly.
    const EXACT_BITS: u32;
    /// The type of the computation: f32 for f16 and bf16, otherwise the type itself.
    type Wide: Number;

    /// Converts to the wide form, exactly.
    fn widen(self) -> Self::Wide;
    /// Rounds from the wide form.
    fn narrow(wide: Self::Wide) -> Self;

    /// Whether [`Self::widen_lanes`] and [`Self::narrow_lanes`] are implemented, with instructions that compilers
    /// do not generate by themselves.
    const CONVERTS: bool = false;

    /// [`Self::widen`] of each.
    ///
    /// # Safety
    /// The processor must support f16c.
    unsafe fn widen_lanes(_lanes: [Self; LANES]) -> [Self::Wide; LANES] {
        unreachable!("only for types that have it")
    }

    /// [`Self::narrow`] of each.
    ///
    /// # Safety
    /// As [`Self::widen_lanes`].
    unsafe fn narrow_lanes(_lanes: [Self::Wide; LANES]) -> [Self; LANES] {
        unreachable!("only for types that have it")
    }

    /// The element nearest to an integer; integers keep the low bits.
    fn from_i32(value: i32) -> Self {
        Self::narrow(Self::Wide::integer(value))
    }
    /// 2^exponent, negated if `negative`; floating-point only.
    fn power_of_two(exponent: i32, negative: bool) -> Self {
        Self::narrow(Self::Wide::power(exponent, negative))
    }
}

/// The type in which elements are computed.
pub trait Number: Copy {
    /// a + b; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// a x b; integers wrap.
    fn times(self, other: Self) -> Self;
    /// The smaller; if one is NaN, the first.
    fn smaller(self, other: Self) -> Self;
    /// The larger; if one is NaN, the first.
    fn larger(self, other: Self) -> Self;
    /// a x factor, see the module documentation; integers do not scale.
    fn scaled(self, factor: f64) -> Self;
    /// The nearest f64; inexact only for large integers.
    fn as_f64(self) -> f64;
    /// The nearest number to an f64.
    fn of_f64(value: f64) -> Self;
    /// See [`Element::from_i32`].
    fn integer(value: i32) -> Self;
    /// See [`Element::power_of_two`].
    fn power(exponent: i32, negative: bool) -> Self;
}

macro_rules! itself {
    ($($type:ty, $dtype:expr, $bits:expr;)*) => { $(
        impl Element for $type {
            const DTYPE: DataType = $dtype;
            const EXACT_BITS: u32 = $bits;
            type Wide = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
        }
    )* };
}
itself! {
    f32, DataType::F32, 24;
    f64, DataType::F64, 53;
    i32, DataType::I32, 31;
    i64, DataType::I64, 63;
    u8, DataType::U8, 8;
}

impl Element for f16 {
    const DTYPE: DataType = DataType::F16;
    const EXACT_BITS: u32 = 11;
    type Wide = f32;
    const CONVERTS: bool = cfg!(target_arch = "x86_64");

    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        f16::from_f32(wide)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn widen_lanes(lanes: [f16; LANES]) -> [f32; LANES] {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        let mut wide = [0.0; LANES];
        for at in (0..LANES).step_by(8) {
            // SAFETY: eight of the lanes, and the caller's promise.
            unsafe {
                let narrow = _mm_loadu_si128(lanes.as_ptr().add(at).cast());
                _mm256_storeu_ps(wide.as_mut_ptr().add(at), _mm256_cvtph_ps(narrow));
            }
        }
        wide
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn narrow_lanes(lanes: [f32; LANES]) -> [f16; LANES] {
        use std::arch::x86_64::{_mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps};
        let mut narrow = [f16::ZERO; LANES];
        for at in (0..LANES).step_by(8) {
            // SAFETY: eight of the lanes, and the caller's promise. 0: round to nearest, ties to even.
            unsafe {
                let wide = _mm256_loadu_ps(lanes.as_ptr().add(at));
                _mm_storeu_si128(narrow.as_mut_ptr().add(at).cast(), _mm256_cvtps_ph::<0>(wide));
            }
        }
        narrow
    }
}

impl Element for bf16 {
    const DTYPE: DataType = DataType::BF16;
    const EXACT_BITS: u32 = 8;
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    /// As `bf16::from_f32` but without a branch, so that whole registers can be converted.
    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        let to_even = (bits >> 16 & 1) + 0x7FFF;
        let rounded = bits.wrapping_add(to_even) >> 16;
        let quiet_nan = bits >> 16 | 0x40;
        bf16::from_bits(if wide.is_nan() { quiet_nan } else { rounded } as u16)
    }
}

macro_rules! float {
    ($($type:ty),*) => { $(
        impl Number for $type {
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
                self * factor as $type
            }
            #[inline(always)]
            fn as_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn integer(value: i32) -> Self {
                value as $type
            }
            fn power(exponent: i32, negative: bool) -> Self {
                (exponent as $type).exp2() * if negative { -1.0 } else { 1.0 }
            }
        }
    )* };
}
float!(f32, f64);

macro_rules! integer {
    ($($type:ty),*) => { $(
        impl Number for $type {
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
            fn as_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn integer(value: i32) -> Self {
                value as $type
            }
            fn power(_exponent: i32, _negative: bool) -> Self {
                unreachable!("integers have a pattern of their own")
            }
        }
    )* };
}
integer!(i32, i64, u8);

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
                type $type = $crate::half::f16;
                $body
            }
            algorithms::control::DataType::BF16 => {
                type $type = $crate::half::bf16;
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
            algorithms::control::DataType::U8 => {
                type $type = u8;
                $body
            }
        }
    };
}
