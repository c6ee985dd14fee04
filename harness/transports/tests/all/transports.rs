//! The conformance suite of all executors of schedules.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::program::Program;
use algorithms::registry::{ALL, find};
use algorithms::topology::Topology;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, run};
use transports::data_plane::DataPlane;
use transports::execute::execute;
use transports::kernel::ElementOp;
use transports::memory::{Buffer, Memory};
use transports::threads::{ControlChannel, Links, run_ranks};
use transports::transport::{MessageChannel, TransportError};

use crate::coverage::{all_worlds, not_tested};

/// Runs one allreduce twice on threads and asserts that every element is right.
fn check(
    algorithm: &str,
    topology: &Topology,
    dtype: DataType,
    op: ReduceOp,
    elements: usize,
    in_place: bool,
) {
    let data_plane = DataPlane::ours(find(algorithm).unwrap(), topology).unwrap();
    let tensors: Vec<usize> = match data_plane.grouping() {
        Some(_) => split(elements, 3).iter().map(Range::len).collect(),
        None => vec![elements],
    };
    let timed = run(&Bench {
        data_plane: &data_plane,
        topology,
        dtype,
        op,
        sizes: Sizes { segment_bytes: 300, packing_bytes: 1000 },
        tensors: &tensors,
        in_place,
        warmup: 1,
        repetitions: 2,
        start: Start::Barrier,
        check: true,
        seed: 42 + elements as u64,
    })
    .unwrap();
    let wrong = timed.wrong.unwrap();
    assert_eq!(
        wrong.count, 0,
        "{algorithm} {topology} {dtype:?} {op:?} {elements}: {:?}",
        wrong.first
    );
    assert_eq!(timed.times.len(), 2);
}

fn worlds() -> Vec<Topology> {
    let uniform = |(nodes, local)| Topology::uniform(nodes, local);
    if all_worlds() {
        (1..=8).map(Topology::flat).chain([(2, 2), (3, 2), (2, 4)].map(uniform)).collect()
    } else {
        [1, 2, 3, 4, 5, 7]
            .map(Topology::flat)
            .into_iter()
            .chain([(2, 2), (3, 2)].map(uniform))
            .collect()
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name).chain(["hierarchical:tree", "grouped-scattered:tree"])
}

/// In two worlds; elsewhere every algorithm has one type and operation, unless `KOLO_ALL_WORLDS` is set.
#[test]
fn every_type_and_operation() {
    let all: Vec<_> = DataType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
        .filter(|(dtype, op)| *op != ReduceOp::Average || !dtype.is_integer())
        .collect();
    let mut turn = 0;
    for name in names() {
        for topology in worlds() {
            let is_full = [Topology::flat(3), Topology::uniform(2, 2)].contains(&topology);
            turn += 1;
            let one = &all[turn % all.len()];
            let some = if is_full || all_worlds() { &all[..] } else { std::slice::from_ref(one) };
            for &(dtype, op) in some {
                check(name, &topology, dtype, op, 37, true);
            }
        }
    }
}

#[test]
fn awkward_lengths() {
    for name in names() {
        for topology in worlds() {
            let ranks = topology.ranks();
            let lengths = [0, 1, 2, ranks - 1, ranks, ranks + 1, 64, 1009, 100_003];
            for (turn, elements) in lengths.into_iter().enumerate() {
                for in_place in [true, false] {
                    // Each length in place or out of place, unless `KOLO_ALL_WORLDS` is set.
                    if in_place != (turn % 2 == 0) && !all_worlds() {
                        continue;
                    }
                    let (dtype, op) = (DataType::F32, ReduceOp::Sum);
                    check(name, &topology, dtype, op, elements, in_place);
                }
            }
        }
    }
}

#[test]
fn more_ranks_than_cores() {
    for name in names() {
        let worlds = [Topology::flat(13), Topology::flat(32), Topology::uniform(4, 8)];
        for topology in worlds.into_iter().take(if all_worlds() { 3 } else { 1 }) {
            check(name, &topology, DataType::F32, ReduceOp::Sum, 5000, true);
        }
    }
}

/// Exchanges, in which each side reads what the other is about to overwrite.
#[test]
fn exchanges_are_exact() {
    for exchange in ["recursive-doubling", "swing-latency", "one-shot"] {
        for ranks in [2, 4, 8] {
            for elements in [0, 1, 1000, 50_000] {
                for dtype in [DataType::F32, DataType::BF16, DataType::I64] {
                    let world = Topology::flat(ranks);
                    check(exchange, &world, dtype, ReduceOp::Sum, elements, true);
                }
            }
        }
    }
}

/// Random delays between operations do not change a bit on any rank. All ranks hold the same bits, except with
/// `one-shot`, in which each rank adds in its own order.
#[test]
fn delays_do_not_change_results() {
    let world = Topology::uniform(2, 2);
    for name in names() {
        let schedule = find(name).unwrap().schedule(&world).unwrap();
        let mut first: Option<Vec<Vec<f32>>> = None;
        for seed in 0..20 {
            let links = Links::new(4, Duration::from_secs(20));
            let results: Vec<Vec<f32>> = std::thread::scope(|scope| {
                let spawn = |rank: usize| {
                    let (links, schedule) = (links.clone(), &*schedule);
                    scope.spawn(move || {
                        let mut endpoint = links.join(rank);
                        let program = Program::compile_world(schedule).swap_remove(rank);
                        let mut memory = Memory::new(4 * 999);
                        for (i, x) in memory.elements_mut::<f32>().iter_mut().enumerate() {
                            *x = (rank * 1000 + i) as f32 * 0.1;
                        }
                        for round in 0..3 {
                            let pause = (seed * 31 + rank * 17 + round * 7) % 5 * 100;
                            std::thread::sleep(Duration::from_micros(pause as u64));
                            let mut buffer = Buffer::of(DataType::F32, &mut memory);
                            execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).unwrap();
                        }
                        memory.elements::<f32>().to_vec()
                    })
                };
                let threads: Vec<_> = (0..4).map(spawn).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let first = first.get_or_insert_with(|| results.clone());
            for rank in 0..4 {
                assert!(results[rank] == first[rank], "{name}, seed {seed}: rank {rank} differs");
                let alike = results[rank] == results[0] || name == "one-shot";
                assert!(alike, "{name}, seed {seed}: rank {rank} differs from rank 0");
            }
        }
    }
}

/// Ring on two ranks: each combines half of the buffer once.
#[test]
fn combining_is_timed_apart_in_transfers_of_4_kib_and_more() {
    let schedule = find("ring").unwrap().schedule(&Topology::flat(2)).unwrap();
    let times = |bytes: usize| {
        let links = Links::new(2, Duration::from_secs(20));
        std::thread::scope(|scope| {
            let spawn = |rank: usize| {
                let (links, schedule) = (links.clone(), &*schedule);
                scope.spawn(move || {
                    let mut endpoint = links.join(rank);
                    let program = Program::compile_world(schedule).swap_remove(rank);
                    let mut memory = Memory::new(bytes);
                    let mut buffer = Buffer::of(DataType::F32, &mut memory);
                    let start = Instant::now();
                    let time =
                        execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).unwrap();
                    (time, start.elapsed())
                })
            };
            let threads: Vec<_> = (0..2).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    };
    for (combining, whole) in times(2 * 4096) {
        assert!(Duration::ZERO < combining && combining < whole, "{combining:?} of {whole:?}");
    }
    for (combining, _) in times(2 * 4092) {
        assert_eq!(combining, Duration::ZERO);
    }
}

/// A rank that never joins makes all others fail, and none hangs.
#[test]
fn a_silent_rank_is_an_error_on_every_other() {
    let schedule = find("ring").unwrap().schedule(&Topology::flat(3)).unwrap();
    let links = Links::new(3, Duration::from_millis(200));
    let errors: Vec<TransportError> = std::thread::scope(|scope| {
        let spawn = |rank: usize| {
            let (links, schedule) = (links.clone(), &*schedule);
            scope.spawn(move || {
                let mut endpoint = links.join(rank);
                let program = Program::compile(schedule, rank);
                let mut memory = Memory::new(4000);
                let mut buffer = Buffer::of(DataType::F32, &mut memory);
                execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).unwrap_err()
            })
        };
        // Rank 2 joins, so that it can be woken, and exits.
        scope.spawn(|| drop(links.join(2)));
        let threads: Vec<_> = (0..2).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        let TransportError::Aborted { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("which does not answer"), "{error}");
    }
}

/// More than 2^31 bytes on each of two ranks: with `KOLO_ALL_WORLDS=1`, if the memory suffices.
#[test]
fn more_than_two_to_the_31_bytes() {
    const NEEDED_GIB: f64 = 8.0;
    if !all_worlds() {
        return;
    }
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    let available_gib = kib.map_or(f64::INFINITY, |kib| kib / (1 << 20) as f64);
    if available_gib < NEEDED_GIB {
        let why = format!("{available_gib:.1} GiB are free, it takes {NEEDED_GIB} GiB");
        return not_tested("allreduces of more than 2^31 bytes", why);
    }
    let elements = (1 << 31) / 4 + 1_000_003;
    check("ring", &Topology::flat(2), DataType::F32, ReduceOp::Sum, elements, true);
}

/// Rank 0 does not answer. Whichever rank times out first, the error names rank 0.
#[test]
fn a_chain_of_waiting_ranks_blames_its_end() {
    const RANKS: usize = 4;
    let round = |round: usize| {
        // Long enough that all ranks begin to wait before the first timeout.
        let data = Links::new(RANKS, Duration::from_millis(1500));
        let control = data.beside();
        let has_ended = AtomicBool::new(false);
        let begun = AtomicUsize::new(0);
        let wait_for_another = |rank: usize| {
            let mut endpoint = data.join(rank);
            let mut control = ControlChannel::new(control.join(rank));
            if rank == 0 {
                while !has_ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Ok(());
            }
            // Rank 3 begins to wait first, rank 1 last, each for the rank below; or all at once.
            while round > 0 && begun.load(Ordering::SeqCst) < RANKS - 1 - rank {
                std::thread::yield_now();
            }
            begun.fetch_add(1, Ordering::SeqCst);
            if round == 2 {
                return control.receive(rank - 1, &mut Vec::new()).map(|_| ());
            }
            let ring = find("ring").unwrap().schedule(&Topology::flat(RANKS)).unwrap();
            let program = Program::compile(&*ring, rank);
            let mut memory = Memory::new(4000);
            let mut buffer = Buffer::of(DataType::F32, &mut memory);
            execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).map(drop)
        };
        let ended = run_ranks(&[&data, &control], |rank| {
            let ended = wait_for_another(rank);
            has_ended.store(true, Ordering::Relaxed);
            ended
        });
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("for rank 0, which does not answer"), "round {round}: {error}");
    };
    std::thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || round(number)))));
}
