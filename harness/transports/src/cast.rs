//! Casting numbers to 16 bits and back, as fast as memory allows: gradient compression.
//!
//! Every element is rounded once, to nearest, ties to even. An f64 is converted through f32. The first step rounds
//! to odd (inexact results get a last bit of 1), so that the second step rounds correctly. After S. Boldo and G.
//! Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans.
//! Computers 57 (2008).

use algorithms::control::DataType;
use half::{bf16, f16};
use multiversion::multiversion;
use multiversion::target::selected_target;

use crate::element::{Element, LANES};
use crate::memory::Memory;

/// A floating-point type wider than 16 bits.
trait Full: Element {
    /// As f32, rounded to odd.
    fn to_odd(self) -> f32;
    /// From an f32, exactly.
    fn from_f32(value: f32) -> Self;
}

impl Full for f32 {
    #[inline(always)]
    fn to_odd(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Full for f64 {
    #[inline(always)]
    fn to_odd(self) -> f32 {
        let nearest = self as f32;
        let (bits, exact) = (nearest.to_bits(), f64::from(nearest) == self);
        let away = f64::from(nearest).abs() > self.abs();
        let odd = bits.wrapping_sub(u32::from(away)) | 1;
        f32::from_bits(if exact { bits } else { odd })
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f64 {
        f64::from(value)
    }
}

/// Runs `$body` with `$full` and `$half` standing for the types of a cast.
macro_rules! for_cast {
    ($dtype:expr, $wire:expr, $full:ident, $half:ident => $body:expr) => {
        match ($dtype, $wire) {
            (DataType::F32, DataType::F16) => {
                type $full = f32;
                type $half = f16;
                $body
            }
            (DataType::F32, DataType::BF16) => {
                type $full = f32;
                type $half = bf16;
                $body
            }
            (DataType::F64, DataType::F16) => {
                type $full = f64;
                type $half = f16;
                $body
            }
            (DataType::F64, DataType::BF16) => {
                type $full = f64;
                type $half = bf16;
                $body
            }
            (full, half) => unreachable!("no cast from {full:?} to {half:?}"),
        }
    };
}

/// Casts all elements of `full`, of type `dtype`, to the 16-bit type `wire`.
///
/// # Panics
/// When the types are not f32 or f64 and f16 or bf16, or the numbers of elements differ.
pub fn compress(full: &Memory, dtype: DataType, half: &mut Memory, wire: DataType) {
    for_cast!(dtype, wire, F, H => narrow::<F, H>(full.elements(), half.elements_mut()));
}

/// Casts all elements of `half`, of the 16-bit type `wire`, to `dtype`.
///
/// # Panics
/// As [`compress`].
pub fn decompress(half: &Memory, wire: DataType, full: &mut Memory, dtype: DataType) {
    for_cast!(dtype, wire, F, H => widen::<F, H>(half.elements(), full.elements_mut()));
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2+fma+f16c",
    "x86_64+avx2+fma+f16c"
))]
fn narrow<F: Full, H: Element<Wide = f32>>(full: &[F], half: &mut [H]) {
    const NATIVE: bool = selected_target!().supports_feature_str("f16c");
    assert_eq!(full.len(), half.len(), "a cast keeps the number of elements");
    let whole = if NATIVE && H::CONVERTS { full.len() / LANES * LANES } else { 0 };
    let (full, full_rest) = full.split_at(whole);
    let (half, half_rest) = half.split_at_mut(whole);
    for (full, half) in full.as_chunks::<LANES>().0.iter().zip(half.as_chunks_mut::<LANES>().0) {
        let mut wide = [0.0; LANES];
        wide.iter_mut().zip(full).for_each(|(wide, full)| *wide = full.to_odd());
        // SAFETY: `multiversion` compiles this version for processors with f16c only.
        *half = unsafe { H::narrow_lanes(wide) };
    }
    for (full, half) in full_rest.iter().zip(half_rest) {
        *half = H::narrow(full.to_odd());
    }
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2+fma+f16c",
    "x86_64+avx2+fma+f16c"
))]
fn widen<F: Full, H: Element<Wide = f32>>(half: &[H], full: &mut [F]) {
    const NATIVE: bool = selected_target!().supports_feature_str("f16c");
    assert_eq!(full.len(), half.len(), "a cast keeps the number of elements");
    let whole = if NATIVE && H::CONVERTS { half.len() / LANES * LANES } else { 0 };
    let (half, half_rest) = half.split_at(whole);
    let (full, full_rest) = full.split_at_mut(whole);
    for (half, full) in half.as_chunks::<LANES>().0.iter().zip(full.as_chunks_mut::<LANES>().0) {
        // SAFETY: `multiversion` compiles this version for processors with f16c only.
        let wide = unsafe { H::widen_lanes(*half) };
        full.iter_mut().zip(wide).for_each(|(full, wide)| *full = F::from_f32(wide));
    }
    for (half, full) in half_rest.iter().zip(full_rest) {
        *full = F::from_f32(half.widen());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 16-bit number with the least distance to an f64, ties to even; `half` converts through f32.
    fn nearest<H: Element<Wide = f32>>(number: f64, bits: fn(u16) -> H, largest: u16) -> H {
        let value = |pattern: u16| {
            if pattern > largest {
                // Rounding treats infinity as the next number.
                2.0 * f64::from(bits(largest).widen()) - f64::from(bits(largest - 1).widen())
            } else {
                f64::from(bits(pattern).widen())
            }
        };
        if number.is_nan() {
            return bits(u16::MAX);
        }
        let (mut below, mut above) = (0, largest + 1);
        while above - below > 1 {
            let middle = (below + above) / 2;
            if value(middle) <= number.abs() { below = middle } else { above = middle }
        }
        let (down, up) = (number.abs() - value(below), value(above) - number.abs());
        let up_wins = up < down || (up == down && below % 2 == 1);
        bits(if up_wins { above } else { below } | if number < 0.0 { 0x8000 } else { 0 })
    }

    fn nearest_f16(number: f64) -> f16 {
        nearest(number, f16::from_bits, f16::MAX.to_bits())
    }

    fn nearest_bf16(number: f64) -> bf16 {
        nearest(number, bf16::from_bits, bf16::MAX.to_bits())
    }

    /// A cast yields the nearest number at every length, and casting back is exact.
    fn check<F: Full, H: Element<Wide = f32>>(numbers: &[F], nearest: impl Fn(F) -> H) {
        let mut full = Memory::new(size_of_val(numbers));
        full.elements_mut::<F>().copy_from_slice(numbers);
        let mut half = Memory::new(numbers.len() * size_of::<H>());
        compress(&full, F::DTYPE, &mut half, H::DTYPE);
        let same =
            |a: &H, b: &H| a == b || (a.partial_cmp(a).is_none() && b.partial_cmp(b).is_none());
        for (number, got) in numbers.iter().zip(half.elements::<H>()) {
            let want = nearest(*number);
            assert!(same(got, &want), "{number} became {got}, expected {want}");
        }
        full.poison();
        decompress(&half, H::DTYPE, &mut full, F::DTYPE);
        for (full, half) in full.elements::<F>().iter().zip(half.elements::<H>()) {
            let want = F::from_f32(half.widen());
            assert!(*full == want || want.partial_cmp(&want).is_none());
        }
        assert!(full.guards_are_whole() && half.guards_are_whole());
    }

    /// The ties of both 16-bit types in every exponent, with their nearest neighbours.
    fn awkward() -> Vec<f64> {
        let mut numbers =
            vec![0.0, -0.0, f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 1e39];
        for exponent in -160..160 {
            for steps in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 1023, 1024, 2047, 2048, 4095, 4096] {
                let number = (1.0 + f64::from(steps) / 4096.0) * f64::from(exponent).exp2();
                let near = [number.next_down(), number, number.next_up(), f64::from(number as f32)];
                numbers.extend(near.map(|number| if steps % 2 == 0 { number } else { -number }));
            }
        }
        numbers
    }

    #[test]
    fn casts_round_once_to_nearest_and_ties_to_even() {
        let numbers = awkward();
        let single: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        for length in [0, 1, LANES - 1, LANES, LANES + 1, numbers.len()] {
            let (numbers, single) =
                (&numbers[numbers.len() - length..], &single[single.len() - length..]);
            check(numbers, nearest_f16);
            check(numbers, nearest_bf16);
            check(single, |number| nearest_f16(number.into()));
            check(single, |number| nearest_bf16(number.into()));
        }
    }

    #[test]
    #[should_panic(expected = "no cast from I32 to F16")]
    fn integers_are_not_cast() {
        let (mut half, full) = (Memory::new(0), Memory::new(0));
        compress(&full, DataType::I32, &mut half, DataType::F16);
    }
}
