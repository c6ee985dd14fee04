//! The cost of control planes on this processor: the real state machines, all ranks in one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::control::lockstep::Lockstep;
use algorithms::control::{self, DataType, ReduceOp, Settings, Tensor, TensorId, Tensors};

use super::estimate::Estimate;
use results::statistics::quantile;

/// Ranks of the measured world of the coordinator.
const RANKS: usize = 8;

/// The number of gradients of ResNet-50.
const TENSORS: usize = 161;

/// Each is measured so often.
const TIMES: usize = 101;

/// Nanoseconds of rank 0 for each rank and tensor that the coordinator counts, validates and answers.
pub fn rank0_ns(share: f64) -> Estimate {
    let (mut world, all) = world("coordinator", RANKS);
    let times = (0..TIMES).map(|_| {
        cycle(&mut world, &all);
        world.take_rank_0().as_nanos() as f64 / (RANKS * TENSORS) as f64
    });
    estimate(times.collect(), share)
}

/// Microseconds of a rank for a cycle of the bit-vector cache with all tensors ready.
pub fn cycle_us(share: f64) -> Estimate {
    let (mut world, all) = world("bitvector", 2);
    // Tensors that are not cached yet take longer.
    (0..3).for_each(|_| cycle(&mut world, &all));
    let times = (0..TIMES).map(|_| {
        let start = Instant::now();
        cycle(&mut world, &all);
        start.elapsed().as_nanos() as f64 / 1e3 / 2.0
    });
    estimate(times.collect(), share)
}

fn world(plane: &str, ranks: usize) -> (Lockstep, Vec<TensorId>) {
    let tensor = |id: usize| {
        let name = format!("layer{}.{}.conv{}.weight", id / 40, id / 4, id % 4);
        Tensor::new(name, DataType::F32, ReduceOp::Average, &[64, 64, 3, 3])
    };
    let tensors = Tensors::new((0..TENSORS).map(tensor).collect()).expect("names are unlike");
    let tensors = Arc::new(tensors);
    let plane = |rank| {
        let settings = Settings { stall_check: None, ..Settings::new(rank, ranks) };
        control::find(plane, tensors.clone(), &settings).expect("a known plane")
    };
    let start = Instant::now();
    let world = Lockstep::new((0..ranks).map(plane).collect());
    (world.with_clock(move || start.elapsed()), (0..TENSORS).collect())
}

fn cycle(world: &mut Lockstep, all: &[TensorId]) {
    let agreed = world.cycle_with(Duration::ZERO, |_| all).expect("all ranks are alike");
    assert!(!agreed[0].is_empty(), "all ranks have everything");
}

fn estimate(times: Vec<f64>, share: f64) -> Estimate {
    let at = |share| quantile(times.clone(), share).unwrap_or(0.0);
    let (value, low, high) = (at(share), at(0.025), at(0.975));
    Estimate { value, low: low.min(value), high: high.max(value) }
}
