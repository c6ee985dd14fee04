//! Random algorithm, topology, count, type, operation and segments: every element must be right. 200 allreduces by
//! default; `KOLO_SOAK_SECONDS` sets a duration instead. `KOLO_SEED` is the first seed; a failure names its own.

use std::ops::Range;
use std::time::{Duration, Instant};

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::registry::{ALL, find};
use algorithms::topology::Topology;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use results::names::check_op;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, run};
use transports::data_plane::DataPlane;

/// One allreduce chosen by a seed; false if the chosen combination is not supported.
fn one(seed: u64) -> bool {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut name = ALL.choose(random).unwrap().name.to_string();
    if find(&format!("{name}:tree")).is_ok() && random.random() {
        let inner: Vec<_> = ALL.iter().filter(|inner| !inner.takes_inner()).collect();
        name = format!("{name}:{}", inner.choose(random).unwrap().name);
    }
    let topology = match random.random_range(0..4) {
        0 => Topology::new(&[random.random_range(1..5), random.random_range(1..5)]),
        1 => Topology::uniform(random.random_range(1..5), random.random_range(1..5)),
        _ => Topology::flat(random.random_range(1..10)),
    };
    // Some algorithms cannot be nested.
    let Ok(algorithm) = find(&name) else { return false };
    let Ok(data_plane) = DataPlane::ours(algorithm, &topology) else { return false };
    let (dtype, op) =
        (*DataType::ALL.choose(random).unwrap(), *ReduceOp::ALL.choose(random).unwrap());
    if check_op(dtype, op).is_err() {
        return false;
    }
    let elements = match random.random_range(0..4) {
        0 => random.random_range(0..40),
        1 => random.random_range(0..3000),
        _ => random.random_range(0..200_000),
    };
    let tensors: Vec<usize> = match data_plane.grouping() {
        Some(_) => split(elements, random.random_range(1..12)).iter().map(Range::len).collect(),
        None => vec![elements],
    };
    let bench = Bench {
        data_plane: &data_plane,
        topology: &topology,
        dtype,
        op,
        sizes: Sizes {
            segment_bytes: [0, 64, 5000, 70_000][random.random_range(0..4)],
            packing_bytes: [0, 40, 1000, 30_000, 1 << 20][random.random_range(0..5)],
        },
        tensors: &tensors,
        in_place: random.random(),
        warmup: random.random_range(0..3),
        repetitions: random.random_range(1..4),
        start: Start::Barrier,
        check: true,
        seed,
    };
    let wrong = run(&bench).unwrap().wrong.unwrap();
    let what = format!("{name} {topology} {dtype:?} {op:?} {elements} elements");
    assert_eq!(wrong.count, 0, "seed {seed}: {what}: {:?}", wrong.first);
    true
}

/// A number from the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a whole number")))
}

#[test]
fn random_allreduces_are_exact() {
    const LEAST: u64 = 200;
    let time = Duration::from_secs(variable("KOLO_SOAK_SECONDS").unwrap_or(0));
    let first = variable("KOLO_SEED").unwrap_or(1) << 20;
    let (start, mut seed, mut done) = (Instant::now(), first, 0);
    while done < LEAST || start.elapsed() < time {
        done += u64::from(one(seed));
        seed += 1;
    }
    println!("{done} random allreduces, seeds {first} to {}", seed - 1);
}
