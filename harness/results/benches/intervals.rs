//! How long the intervals of a sweep take: 48 cases of ten blocks of 400 steps, with three medians each.
//!
//! `cargo bench -p results --bench intervals`. The goal is a second for 10,000 resamples of each.

use std::hint::black_box;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use results::nested::Nested;

const CASES: usize = 48;
const BLOCKS: usize = 10;
const STEPS: usize = 400;
const MEDIANS: usize = 3;

fn main() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut one = |_| -> Nested {
        let steps = (0..BLOCKS * STEPS).map(|at| (0, at / STEPS, 5e4 + random.random::<f64>()));
        steps.collect()
    };
    let all: Vec<Nested> = (0..CASES * MEDIANS).map(&mut one).collect();
    let begun = Instant::now();
    for times in &all {
        black_box(times.interval());
    }
    println!(
        "intervals of {CASES} cases of {BLOCKS} x {STEPS} steps, {MEDIANS} medians each: {:.2} s",
        begun.elapsed().as_secs_f64()
    );
}
