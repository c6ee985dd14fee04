//! Executing schedules on threads, per transfer. There is almost no data, so that the time is that of the executor
//! and of the hand-over between cores.

use std::time::{Duration, Instant};

use algorithms::control::DataType;
use algorithms::program::Program;
use algorithms::registry::find;
use algorithms::topology::Topology;
use criterion::{BenchmarkId, Criterion, Throughput};
use transports::execute::execute;
use transports::kernel::ElementOp;
use transports::memory::{Buffer, Memory};
use transports::threads::{Links, run_ranks};
use transports::transport::TransportError;

/// Runs `repetitions` allreduces of 8 elements per chunk on every rank; returns the longest time of any rank.
fn run(programs: &[Program], repetitions: u64) -> Duration {
    let links = Links::new(programs.len(), Duration::from_secs(60));
    let times = run_ranks(&[&links], |rank| {
        let mut endpoint = links.join(rank);
        let program = &programs[rank];
        let mut memory = Memory::new(program.chunks * 8 * 4);
        let mut buffer = Buffer::of(DataType::F32, &mut memory);
        let mut one = || execute(&mut endpoint, program, &mut buffer, ElementOp::Max);
        one()?;
        let start = Instant::now();
        for _ in 0..repetitions {
            one()?;
        }
        Ok::<_, TransportError>(start.elapsed())
    });
    times.unwrap().into_iter().max().unwrap()
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
