//! The kernels, compiled for the processor, match the harness bit for bit.

use algorithms::control::Reduction;
use algorithms::control::{DataType, ReduceOp};
use gpu::cuda::packing::{Tensor, pieces};
use gpu::cuda::work::{Values, Work, casts};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transports::cast::{compress, decompress};
use transports::element::Element;
use transports::for_dtype;
use transports::kernel::{ElementOp, kernel, scale};
use transports::memory::Memory;
use transports::pattern::Pattern;

use crate::coverage::all_worlds;
use crate::cuda::processor::{self, run};

const LENGTHS: [usize; 8] = [0, 1, 3, 4, 17, 255, 4095, 8192 + 5];

/// Elements before the vector that a kernel gets, and as many after it that must not be written.
const MARGIN: usize = 64;

/// A number that is awkward in every type, more often than not.
fn awkward<T: Element>(random: &mut ChaCha8Rng) -> T {
    let special =
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-40, 65504.0, 6e-8, 1e39];
    if T::DTYPE.is_integer() || random.random_range(0..4) > 0 {
        let (number, exponent) = (random.random_range(-2000..2000), random.random_range(-2..3));
        let number = T::from_i32(number);
        return if T::DTYPE.is_integer() {
            T::from_i32(random.random())
        } else {
            ElementOp::Product.pair(number, T::power_of_two(exponent * 7, false))
        };
    }
    let value = special[random.random_range(0..special.len())];
    T::narrow(<T::Wide as transports::element::Number>::of_f64(value))
}

/// The same bits, or not a number both.
fn same<T: Element>(a: T, b: T) -> bool {
    let is_nan = |number: T| number.partial_cmp(&number).is_none();
    let bytes = |number: &T| {
        // SAFETY: a plain number.
        unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(number).cast::<u8>(), size_of::<T>())
        }
        .to_vec()
    };
    bytes(&a) == bytes(&b) || (is_nan(a) && is_nan(b))
}

fn assert_same<T: Element>(got: &[T], want: &[T], what: &str) {
    assert_eq!(got.len(), want.len());
    let wrong = got.iter().zip(want).position(|(got, want)| !same(*got, *want));
    if let Some(at) = wrong {
        panic!("{what}: element {at} is {}, expected {}", got[at], want[at]);
    }
}

/// A vector with margins, of awkward numbers.
struct Vector(Memory);

impl Vector {
    fn new<T: Element>(elements: usize, random: &mut ChaCha8Rng) -> Vector {
        let mut memory = Memory::new((elements + 2 * MARGIN) * size_of::<T>());
        memory.elements_mut::<T>().iter_mut().for_each(|number| *number = awkward(random));
        Vector(memory)
    }

    fn all<T: Element>(&self) -> &[T] {
        self.0.elements()
    }

    fn address<T: Element>(&mut self, offset: usize) -> u64 {
        self.0.elements_mut::<T>()[offset..].as_mut_ptr() as u64
    }
}

fn check_reduce<T: Element>(
    combine: ElementOp,
    elements: usize,
    offsets: &[usize],
    in_place: bool,
) {
    let Some(library) = processor::kernels() else { return };
    let what = format!("{:?} {combine:?} of {elements} at {offsets:?}", T::DTYPE);
    let mut random = ChaCha8Rng::seed_from_u64(elements as u64 + offsets.len() as u64);
    let mut vectors: Vec<_> =
        offsets.iter().map(|_| Vector::new::<T>(elements, &mut random)).collect();
    let mut into = Vector::new::<T>(elements, &mut random);
    if in_place {
        into.0.elements_mut::<T>().copy_from_slice(vectors[0].all());
    }
    let own = offsets[0];
    let mut expected = into.all::<T>().to_vec();
    expected[own..own + elements].copy_from_slice(&vectors[0].all::<T>()[own..own + elements]);
    let others: Vec<_> = vectors[1..]
        .iter()
        .zip(&offsets[1..])
        .map(|(vector, &offset)| vector.all::<T>()[offset..].as_ptr().cast::<u8>())
        .collect();
    // SAFETY: all are as long, and apart.
    unsafe {
        kernel(T::DTYPE, combine)(expected[own..].as_mut_ptr().cast(), &others, elements);
    }
    let mut from: smallvec::SmallVec<[u64; 9]> = vectors
        .iter_mut()
        .zip(offsets)
        .map(|(vector, &offset)| vector.address::<T>(offset))
        .collect();
    let place = into.address::<T>(own);
    if in_place {
        from[0] = place;
    }
    run(library, &Work::Reduce { dtype: T::DTYPE, combine, into: place, from, elements });
    assert_same(into.all::<T>(), &expected, &what);
}

#[test]
fn reductions_are_those_of_the_processor() {
    let places: [&[usize]; 7] =
        [&[0], &[0, 0], &[1, 1, 1], &[3, 0], &[5, 5, 6], &[7; 9], &[0, 8, 16, 24]];
    for dtype in DataType::ALL {
        for combine in [ElementOp::Sum, ElementOp::Min, ElementOp::Max, ElementOp::Product] {
            for (index, offsets) in places.iter().enumerate() {
                // Long vectors at two of the places, unless all are asked for.
                let is_short = |elements: &usize| *elements < 1000 || [0, 4].contains(&index);
                for elements in LENGTHS.into_iter().filter(|n| all_worlds() || is_short(n)) {
                    for_dtype!(dtype, T => {
                        check_reduce::<T>(combine, elements, offsets, index % 2 == 1);
                    });
                }
            }
        }
    }
}

/// The expected result of packing.
fn packed<F: Element, T: Element>(from: &[F], factor: f64) -> Vec<T> {
    let memory = |size_bytes| Memory::new(size_bytes);
    let (mut full, mut into) = (memory(size_of_val(from)), memory(from.len() * size_of::<T>()));
    full.elements_mut::<F>().copy_from_slice(from);
    let scaled = |memory: &mut Memory, dtype: DataType| {
        if !dtype.is_integer() {
            for_dtype!(dtype, N => scale(memory.elements_mut::<N>(), factor));
        }
    };
    if size_of::<F>() < size_of::<T>() {
        scaled(&mut full, F::DTYPE);
        decompress(&full, F::DTYPE, &mut into, T::DTYPE);
        return into.elements::<T>().to_vec();
    }
    if F::DTYPE == T::DTYPE {
        into.elements_mut::<u8>().copy_from_slice(full.elements::<u8>())
    } else {
        compress(&full, F::DTYPE, &mut into, T::DTYPE)
    }
    scaled(&mut into, T::DTYPE);
    into.elements::<T>().to_vec()
}

fn check_pack<F: Element, T: Element>(factor: f64) {
    let Some(library) = processor::kernels() else { return };
    let mut random = ChaCha8Rng::seed_from_u64(7);
    // Tensors of every length, each at every misfit of both places, one after the other.
    // One of them takes several pieces: of one pair of types, unless all are asked for.
    let is_long = all_worlds() || (F::DTYPE, T::DTYPE) == (DataType::F32, DataType::F16);
    let tensors: Vec<_> = LENGTHS
        .iter()
        .chain(is_long.then_some(&70_001))
        .flat_map(|&elements| [(0, 0), (1, 1), (0, 3), (5, 2)].map(|misfit| (elements, misfit)))
        .collect();
    let room: usize =
        tensors.iter().map(|(elements, _)| (elements + MARGIN).next_multiple_of(16)).sum();
    let (mut from, mut into) =
        (Vector::new::<F>(room, &mut random), Vector::new::<T>(room, &mut random));
    let mut expected = into.all::<T>().to_vec();
    let (mut pairs, mut start) = (Vec::new(), 0);
    for (elements, (from_misfit, into_misfit)) in tensors {
        let (read, write) = (start + from_misfit, start + into_misfit);
        let address = from.address::<F>(read);
        pairs.push((Tensor { address, elements }, into.address::<T>(write)));
        let numbers = packed::<F, T>(&from.all::<F>()[read..read + elements], factor);
        expected[write..write + elements].copy_from_slice(&numbers);
        start += (elements + MARGIN).next_multiple_of(16);
    }
    let table: Vec<u64> =
        pieces(pairs, F::DTYPE, T::DTYPE).unwrap().iter().flat_map(|piece| piece.words()).collect();
    let (pieces, count) = (table.as_ptr() as u64, table.len() / 3);
    run(library, &Work::Pack { from: F::DTYPE, into: T::DTYPE, pieces, count, factor });
    let what = format!("{:?} as {:?} x {factor}", F::DTYPE, T::DTYPE);
    assert_same(into.all::<T>(), &expected, &what);
}

#[test]
fn packing_casts_and_scales_as_the_processor_does() {
    for from in DataType::ALL {
        for into in DataType::ALL.into_iter().filter(|&into| casts(from, into)) {
            for factor in [1.0, 1.0 / 3.0] {
                if !from.is_integer() || factor == 1.0 {
                    for_dtype!(from, F => for_dtype!(into, T => check_pack::<F, T>(factor)));
                }
            }
        }
    }
}

/// Every f32 near a tie of 16-bit patterns narrows as it should: of all patterns, or every 13th.
#[test]
fn halves_are_those_of_the_processor() {
    let Some(library) = processor::kernels() else { return };
    let halves: Vec<u16> = (0..=u16::MAX).step_by(if all_worlds() { 1 } else { 13 }).collect();
    let near = |half: &u16| {
        let tie = half::f16::from_bits(*half).to_f32().to_bits() | 0x1000;
        [tie - 1, tie, tie + 1].map(f32::from_bits)
    };
    let full: Vec<f32> = halves.iter().flat_map(near).collect();
    let mut narrow = vec![half::f16::ZERO; full.len()];
    let pair = (
        Tensor { address: full.as_ptr() as u64, elements: full.len() },
        narrow.as_mut_ptr() as u64,
    );
    let table: Vec<u64> = pieces([pair], DataType::F32, DataType::F16)
        .unwrap()
        .iter()
        .flat_map(|piece| piece.words())
        .collect();
    let (pieces, count) = (table.as_ptr() as u64, table.len() / 3);
    let (from, into, factor) = (DataType::F32, DataType::F16, 1.0);
    run(library, &Work::Pack { from, into, pieces, count, factor });
    let expected: Vec<_> = full.iter().map(|full| half::f16::from_f32(*full)).collect();
    assert_same(&narrow, &expected, "f32 as f16");
}

fn check_pattern<T: Element>(op: ReduceOp, ranks: usize, first: usize, elements: usize) {
    let Some(library) = processor::kernels() else { return };
    let pattern = Pattern::of(ranks, op, 0x1234_5678_9ABC_DEF0 + first as u64);
    if pattern.unsupported::<T>().is_some() {
        return;
    }
    let what = format!("{:?} {op:?} of {ranks} ranks from {first}", T::DTYPE);
    let values = Values::of(&pattern, T::DTYPE, first, elements);
    let mut inputs = Vec::new();
    for rank in 0..ranks {
        let mut expected = Memory::new(elements * size_of::<T>());
        pattern.fill::<T>(rank, first, &mut expected);
        let mut got = vec![T::from_i32(7); elements];
        let into = got.as_mut_ptr() as u64;
        run(library, &Work::Fill { dtype: T::DTYPE, into, values, rank });
        assert_same(&got, expected.elements::<T>(), &what);
        inputs.push(got);
    }
    let (sum, others) = inputs.split_first_mut().unwrap();
    for other in others.iter() {
        let pairs = sum.iter_mut().zip(other);
        pairs.for_each(|(sum, other)| *sum = ElementOp::of(op).pair(*sum, *other));
    }
    let factor = Reduction::from(op).factor_after(ranks);
    if factor != 1.0 {
        scale(sum, factor);
    }
    let mut memory = Memory::new(elements * size_of::<T>());
    memory.elements_mut::<T>().copy_from_slice(sum);
    assert_eq!(pattern.check::<T>(first, &[(0, &memory)]).count, 0, "{what}");
    let verdict = |got: &[T]| {
        let (mut wrong, got) = ([0, u64::MAX], got.as_ptr() as u64);
        let address = wrong.as_mut_ptr() as u64;
        run(library, &Work::Check { dtype: T::DTYPE, got, wrong: address, values, factor });
        wrong
    };
    assert_eq!(verdict(sum), [0, u64::MAX], "{what}");
    if elements > 2 {
        let one = T::from_i32(1);
        let bad = |number: T| if same(number, one) { T::from_i32(0) } else { one };
        for at in [elements - 1, elements / 2] {
            sum[at] = bad(sum[at]);
        }
        assert_eq!(verdict(sum), [2, elements as u64 / 2], "{what}");
    }
}

#[test]
fn patterns_are_filled_and_checked_as_on_the_processor() {
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            if op == ReduceOp::Average && dtype.is_integer() {
                continue;
            }
            for ranks in if all_worlds() { &[1, 2, 3, 7, 20][..] } else { &[1, 7] } {
                for (first, elements) in
                    [(0, 0), (0, 1), (3, 4), (5, 4095), ((1 << 32) - 1000, 4099)]
                {
                    for_dtype!(dtype, T => check_pattern::<T>(op, *ranks, first, elements));
                }
            }
        }
    }
}

/// Unwritten memory is wrong whatever the expected value: a NaN, or a large and even negative number. A byte has no value
/// that is never expected.
#[test]
fn what_nobody_wrote_is_wrong() {
    let Some(library) = processor::kernels() else { return };
    for (dtype, op) in
        DataType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
    {
        let pattern = Pattern::of(3, op, 1);
        let values = Values::of(&pattern, dtype, 0, 4096);
        let poison = vec![if dtype.is_integer() { 0x80_u8 } else { 0xFF }; 4096 * 8];
        let (got, mut wrong) = (poison.as_ptr() as u64, [0, u64::MAX]);
        let address = wrong.as_mut_ptr() as u64;
        // The vector begins somewhere; elements have to lie where they may.
        let got = got.next_multiple_of(8);
        let values = Values { elements: 4095, ..values };
        run(library, &Work::Check { dtype, got, wrong: address, values, factor: 1.0 });
        // As many as the processor finds, of the sum that the kernel was asked for with a factor of 1.
        let is_sum = op == ReduceOp::Average && dtype.is_integer();
        let pattern = Pattern::of(3, if is_sum { ReduceOp::Sum } else { op }, 1);
        let mut unwritten = Memory::new(4095 * dtype.size_bytes());
        unwritten.elements_mut::<u8>().fill(poison[0]);
        let own = [(0, &unwritten)];
        let expected = for_dtype!(dtype, T => pattern.check::<T>(0, &own)).count;
        assert!(dtype == DataType::U8 || expected == 4095, "{dtype:?} {op:?}: {expected}");
        assert_eq!(wrong, [expected as u64, 0], "{dtype:?} {op:?}");
    }
}
