use std::ops::Range;

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::registry::{self, ALL};
use algorithms::topology::Topology;

use super::*;
use crate::cuda::emulated::{Emulated, Turns};
use transports::allreduce::Sizes;
use transports::bench::Start;
use transports::data_plane::DataPlane;

fn bench<'b>(plane: &'b DataPlane, topology: &'b Topology, tensors: &'b [usize]) -> Bench<'b> {
    Bench {
        data_plane: plane,
        topology,
        dtype: DataType::F32,
        op: ReduceOp::Sum,
        sizes: Sizes { segment_bytes: 300, packing_bytes: 0 },
        tensors,
        in_place: false,
        warmup: 1,
        repetitions: 2,
        start: Start::Barrier,
        check: true,
        seed: 5,
    }
}

fn ranks(devices: usize, ranks: usize, seed: u64) -> Ranks<Emulated> {
    Ranks::new(Emulated::new(devices, true, Turns::Lot, seed), ranks).unwrap()
}

#[test]
fn every_algorithm_type_and_reduction_is_right_and_has_no_time() {
    let world = Topology::flat(4);
    let mut seed = 0;
    for entry in ALL {
        let plane = DataPlane::ours(registry::find(entry.name).unwrap(), &world).unwrap();
        for dtype in DataType::ALL {
            for op in ReduceOp::ALL {
                if op == ReduceOp::Average && dtype.is_integer() {
                    continue;
                }
                let all = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
                let shapes = [(1, false), (999, true), (0, true), (1000, false)];
                for &(elements, in_place) in &shapes[..if all { 4 } else { 2 }] {
                    let tensors: Vec<usize> = match plane.grouping() {
                        Some(_) => split(elements, 3).iter().map(Range::len).collect(),
                        None => vec![elements],
                    };
                    let bench = Bench { dtype, op, in_place, ..bench(&plane, &world, &tensors) };
                    seed += 1;
                    let mut ranks = ranks(1 + seed as usize % 3, 4, seed);
                    ranks.graphs = seed % 5 < 2;
                    let timed = ranks.run(&bench).unwrap();
                    assert_eq!(timed.enqueued.unwrap().nodes.is_some(), ranks.graphs);
                    let wrong = timed.wrong.unwrap();
                    assert_eq!(
                        wrong.count, 0,
                        "{} {dtype:?} {op:?}: {:?}",
                        entry.name, wrong.first
                    );
                    assert!(timed.times.is_empty() && timed.device_us.is_empty());
                }
            }
        }
    }
}

/// The host waits once before, and once behind an allreduce; everything is given back.
#[test]
fn the_host_does_not_wait_in_between_and_all_memory_is_released() {
    let world = Topology::flat(4);
    let plane = DataPlane::ours(registry::find("ring").unwrap(), &world).unwrap();
    let bench = Bench { check: false, ..bench(&plane, &world, &[1000]) };
    let mut ranks = ranks(1, 4, 1);
    ranks.run(&bench).unwrap();
    assert_eq!(ranks.streams.synchronized, 3 * (4 + 1));
    assert_eq!(ranks.streams.allocated(), 0);
}

/// A result that is wrong is found, counted and named.
#[test]
fn wrong_elements_are_reported() {
    let world = Topology::flat(2);
    let plane = DataPlane::ours(registry::find("ring").unwrap(), &world).unwrap();
    let bench = bench(&plane, &world, &[1000]);
    let mut ranks = ranks(1, 2, 1);
    let line = Line::new(&mut ranks.streams, &ranks.rank_streams, &bench).unwrap();
    line.fill(&mut ranks.streams).unwrap();
    let wrong = line.check(&mut ranks.streams).unwrap();
    assert_eq!(wrong.count, 2000);
    assert_eq!(wrong.first.unwrap(), "rank 0, element 0: got NaN");
}

#[test]
fn too_little_memory_is_an_error_with_the_sizes() {
    let world = Topology::flat(4);
    let plane = DataPlane::ours(registry::find("ring").unwrap(), &world).unwrap();
    let tensors = [10_000_000];
    let bench = bench(&plane, &world, &tensors);
    let mut streams = Emulated::new(2, true, Turns::Lot, 1);
    streams.free_bytes = Some(100_000_000);
    let error = Ranks::new(streams, 4).unwrap().run(&bench).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GPU 0 has 100 MB free, and 2 ranks of 40 MB there take 162 MB; choose a smaller -e, or fewer ranks"
    );
}
