//! The data of gradients that are accumulated, cast and scaled: correct results pass, errors are detected.

use algorithms::control::Reduction;
use algorithms::control::{DataType, ReduceOp};
use half::{bf16, f16};
use transports::for_dtype;
use transports::kernel::{add, scale};
use transports::memory::Memory;
use transports::pattern::{Pattern, turn};

/// Compares sums of all passes with sums in which a pass is missing, doubled, or not rotated.
#[test]
fn a_missing_or_doubled_pass_is_detected() {
    for dtype in DataType::ALL {
        for (passes, elements) in [(2, 1000), (3, 2049), (5, 40), (5, 6000)] {
            for ranks in [1, 3] {
                let pattern =
                    Pattern { passes, ..Pattern::of(ranks, ReduceOp::Sum, 0x1234_5678_9ABC) };
                for_dtype!(dtype, T => {
                    let later = |rank| {
                        let mut memory = Memory::new(elements * size_of::<T>());
                        pattern.fill_later::<T>(rank, 7, &mut memory);
                        memory.elements::<T>().to_vec()
                    };
                    let result = |added: &dyn Fn(usize) -> Vec<usize>| {
                        let mut sum = Memory::new(elements * size_of::<T>());
                        for rank in 0..ranks {
                            let mut part = Memory::new(elements * size_of::<T>());
                            pattern.fill::<T>(rank, 7, &mut part);
                            add(sum.elements_mut::<T>(), part.elements());
                            for pass in added(rank) {
                                let mut part = later(rank);
                                part.rotate_left(turn(pass, elements));
                                add(sum.elements_mut(), &part);
                            }
                        }
                        pattern.check::<T>(7, &[(0, &sum)]).count
                    };
                    let what = format!("{dtype:?}, {pattern:?}, {elements} elements");
                    let of_last = |last: Vec<usize>| {
                        move |rank| if rank + 1 == ranks { last.clone() } else { (1..passes).collect() }
                    };
                    assert_eq!(result(&of_last((1..passes).collect())), 0, "{what}");
                    assert!(result(&of_last((2..passes).collect())) > elements / 4, "{what} missing");
                    let doubled = (1..passes).chain([1]).collect();
                    assert!(result(&of_last(doubled)) > elements / 4, "{what} doubled");
                    let unturned = (2..passes).chain([0]).collect();
                    assert!(result(&of_last(unturned)) > elements / 4, "{what} not turned");
                });
            }
        }
    }
}

/// Results of a factor that rounds are compared within a bound, which still detects a missing rank.
#[test]
fn a_factor_that_rounds_is_compared_within_its_bound() {
    let reduction = |prescale| Reduction { prescale, ..ReduceOp::Average.into() };
    assert_eq!(Pattern::of(4, reduction(0.125), 1).tolerance::<f32>(), 0.0);
    let pattern = Pattern::of(4, reduction(1.0 / 3.0), 1);
    assert!(pattern.tolerance::<f32>() < 1e-6);
    for_each_float(|dtype| {
        for_dtype!(dtype, T => {
            let input = |rank| {
                    let mut memory = Memory::new(3000 * size_of::<T>());
                    pattern.fill::<T>(rank, 0, &mut memory);
                    memory.elements::<T>().to_vec()
                };
                let inputs: Vec<_> = (0..4).map(input).collect();
            let wrong = |ranks: &[usize]| {
                let mut sum = Memory::new(3000 * size_of::<T>());
                for &rank in ranks {
                    let mut part = inputs[rank].clone();
                    scale(&mut part, 1.0 / 3.0);
                    add(sum.elements_mut(), &part);
                }
                scale(sum.elements_mut::<T>(), 0.25);
                pattern.check::<T>(0, &[(0, &sum)]).count
            };
            for ranks in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
                assert_eq!(wrong(&ranks), 0, "{dtype:?}");
            }
            assert!(wrong(&[0, 1, 2]) > 2000, "{dtype:?} missing");
            assert!(wrong(&[0, 1, 2, 2]) > 1000, "{dtype:?} swapped");
        });
    });
}

fn for_each_float(check: impl Fn(DataType)) {
    DataType::ALL.into_iter().filter(|dtype| !dtype.is_integer()).for_each(check);
}

#[test]
fn factors_that_leave_the_range_of_a_type_are_refused() {
    let pattern = |prescale, postscale| {
        Pattern::of(4, Reduction { prescale, postscale, op: ReduceOp::Sum }, 1)
    };
    for (prescale, postscale) in [(0.125, 8.0), (1.0 / 3.0, 3.0), (8.0, 0.5)] {
        for_each_float(|dtype| {
            let why = for_dtype!(dtype, T => pattern(prescale, postscale).unsupported::<T>());
            assert_eq!(why, None, "{dtype:?}");
        });
    }
    for (prescale, postscale) in [(1e-5, 1e5), (100.0, 1.0), (1.0, 100.0), (1.0, 1e-6)] {
        let why = pattern(prescale, postscale).unsupported::<f16>().unwrap();
        let text = why.to_string();
        assert!(text.contains("which f16 does not hold; use factors nearer to 1"), "{text}");
        assert_eq!(pattern(prescale, postscale).unsupported::<bf16>(), None);
        let cast = Pattern { wire: Some(DataType::F16), ..pattern(prescale, postscale) };
        assert_eq!(cast.unsupported::<f32>(), Some(why));
    }
}
