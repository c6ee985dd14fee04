//! Executing schedules on threads, per transfer: almost no data, so that what remains is the
//! executor and the hand-over from core to core.

use std::time::{Duration, Instant};

use algorithms::control::DataType;
use algorithms::program::Program;
use algorithms::registry::find;
use algorithms::topology::Topology;
use criterion::{BenchmarkId, Criterion, Throughput};
use harness::element::Combine;
use harness::execute::execute;
use harness::memory::{Buffer, Memory};
use harness::transport::threads::Links;

/// `repetitions` allreduces of 8 elements per chunk on every rank; the longest that any rank took.
fn run(programs: &[Program], repetitions: u64) -> Duration {
    let links = Links::new(programs.len(), Duration::from_secs(60));
    std::thread::scope(|scope| {
        let spawn = |(rank, program): (usize, &Program)| {
            let (links, program) = (links.clone(), program.clone());
            scope.spawn(move || {
                let mut endpoint = links.join(rank);
                let mut memory = Memory::new(program.chunks * 8 * 4);
                let mut buffer = Buffer::of(DataType::F32, &mut memory);
                let mut one =
                    || execute(&mut endpoint, &program, &mut buffer, Combine::Max).unwrap();
                one();
                let start = Instant::now();
                (0..repetitions).for_each(|_| one());
                start.elapsed()
            })
        };
        let threads: Vec<_> = programs.iter().enumerate().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    })
}

fn transfers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("execute on threads, per transfer of rank 0");
    for (name, ranks) in [("ring", 1), ("ring", 2), ("two-shot", 2), ("tree", 2), ("ring", 4)] {
        let schedule = find(name).unwrap().schedule(&Topology::flat(ranks)).unwrap();
        let programs = Program::compile_world(&*schedule);
        group.throughput(Throughput::Elements(programs[0].ops.len().max(1) as u64));
        group.bench_function(BenchmarkId::new(name, format!("{ranks} ranks")), |bencher| {
            bencher.iter_custom(|repetitions| run(&programs, repetitions));
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    transfers(&mut criterion);
    criterion.final_summary();
}
