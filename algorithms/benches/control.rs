//! What control planes cost by themselves: cycles of whole worlds in one thread and without I/O, rank 0's
//! part of them, and a cached cycle of one rank.
//!
//! `cargo bench -p algorithms --bench control`; the tables come first, criterion's figures after them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::control::lockstep::Lockstep;
use algorithms::control::{
    self, ControlPlane, DataType, Effect, Event, ReduceOp, Settings, Tensor, Tensors,
};
use criterion::{BenchmarkId, Criterion, Throughput};

fn tensors(count: usize) -> Arc<Tensors> {
    let tensor = |id: usize| {
        let name = format!("layer{}.{}.conv{}.weight", id / 40, id / 4, id % 4);
        Tensor::new(name, DataType::F32, ReduceOp::Average, &[64, 64, 3, 3])
    };
    Arc::new(Tensors::new((0..count).map(tensor).collect()).unwrap())
}

fn world(plane: &str, ranks: usize, tensors: &Arc<Tensors>) -> Lockstep {
    let plane = |rank| control::find(plane, tensors.clone(), &Settings::new(rank, ranks)).unwrap();
    let start = Instant::now();
    Lockstep::new((0..ranks).map(plane).collect()).with_clock(move || start.elapsed())
}

/// Everything is ready on every rank, and is negotiated; how long all ranks take.
fn cycle(world: &mut Lockstep, ranks: usize, ready: &[usize]) -> Duration {
    let start = Instant::now();
    let executed = world.cycle_with(Duration::ZERO, |_| ready).unwrap();
    let time = start.elapsed();
    assert!(executed.len() == ranks && !executed[0].is_empty(), "everything was ready");
    time
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Rank 0's time for a cycle in which all ranks have everything ready, per rank and tensor.
fn at_rank_0() {
    println!(
        "\n## Rank 0: ns per rank and tensor, all checks made; goal of the coordinator <= 40\n"
    );
    println!("| plane | ranks | tensors | first cycle | later cycles |");
    println!("|---|---|---|---|---|");
    for plane in ["coordinator", "tree:4", "point-to-point", "bitvector"] {
        for (ranks, count) in [(96, 161), (768, 161), (768, 1000), (6000, 161)] {
            let tensors = tensors(count);
            let all: Vec<usize> = (0..count).collect();
            let mut world = world(plane, ranks, &tensors);
            let mut rank_0 = || {
                cycle(&mut world, ranks, &all);
                world.take_rank_0().as_nanos() as f64 / (ranks * count) as f64
            };
            let first = rank_0();
            let mut later: Vec<f64> = (0..7).map(|_| rank_0()).collect();
            later.sort_by(f64::total_cmp);
            println!("| {plane} | {ranks} | {count} | {first:.2} | {:.2} |", later[3]);
        }
    }
}

/// 27,600 ranks in one process.
fn whole_machine() {
    println!("\n## 27,600 ranks x 161 tensors, all state machines in one thread, ms\n");
    println!("| plane | first cycle | goal | later cycles | goal | resident (MiB) | goal |");
    println!("|---|---|---|---|---|---|---|");
    let tensors = tensors(161);
    let all: Vec<usize> = (0..161).collect();
    for plane in ["bitvector", "coordinator", "tree:4", "point-to-point"] {
        let mut world = world(plane, 27_600, &tensors);
        let first = cycle(&mut world, 27_600, &all);
        let later = median((0..9).map(|_| cycle(&mut world, 27_600, &all)).collect());
        let goal = if plane == "bitvector" { "50" } else { "-" };
        println!(
            "| {plane} | {:.0} | 1000 | {:.1} | {goal} | {} | 1024 |",
            first.as_secs_f64() * 1e3,
            later.as_secs_f64() * 1e3,
            peak_mib().map_or("-".into(), |mib| mib.to_string()),
        );
    }
}

/// The most memory that this process has had.
fn peak_mib() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? / 1024)
}

/// One rank's local work in a cached cycle, both sides of the AND, and the look-up of names apart.
fn cached(criterion: &mut Criterion) {
    let tensors = tensors(161);
    let all: Vec<usize> = (0..161).collect();
    let mut plane = control::find("bitvector", tensors.clone(), &Settings::new(0, 1)).unwrap();
    let mut out = Vec::new();
    let step = |plane: &mut Box<dyn ControlPlane>, out: &mut Vec<Effect>| {
        plane.on(Event::Ready(&all), out).unwrap();
        plane.on(Event::Cycle(Duration::ZERO), out).unwrap();
        let Some(Effect::Bitwise(_, words)) = out.pop() else { panic!("it asks for an AND") };
        plane.on(Event::Combined(&words), out).unwrap();
        assert!(matches!(out.last(), Some(Effect::EndCycle)));
        out.clear();
    };
    step(&mut plane, &mut out);
    let mut group = criterion.benchmark_group("one rank");
    group.bench_function("bitvector, a cycle of 161 cached tensors", |bencher| {
        bencher.iter(|| step(&mut plane, &mut out));
    });
    let names: Vec<String> = (0..161).map(|id| tensors.get(id).name.clone()).collect();
    group.bench_function("look-up of 161 names", |bencher| {
        bencher
            .iter(|| names.iter().filter_map(|name| tensors.find(black_box(name))).sum::<usize>());
    });
}

fn small_worlds(criterion: &mut Criterion) {
    const RANKS: usize = 4;
    let mut group = criterion.benchmark_group("cycle of 4 ranks, per rank");
    group.throughput(Throughput::Elements(RANKS as u64));
    for plane in control::NAMES {
        for count in [161, 1000] {
            let all: Vec<usize> = (0..count).collect();
            let mut world = world(plane, RANKS, &tensors(count));
            cycle(&mut world, RANKS, &all);
            let id = BenchmarkId::new(plane, format!("{count} tensors"));
            group.bench_function(id, |bencher| bencher.iter(|| cycle(&mut world, RANKS, &all)));
        }
    }
}

fn main() {
    // Tables take long: not when criterion is asked for a figure by name, nor in tests.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--bench"] {
        at_rank_0();
        whole_machine();
    }
    let mut criterion = Criterion::default().configure_from_args();
    cached(&mut criterion);
    small_worlds(&mut criterion);
    criterion.final_summary();
}
