//! The cost of recording a timeline, per record: the records of one rank in one cycle in which 8 tensors become
//! ready and are reduced in one message; and the same calls with recording off.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use training::timeline::record::{Recorder, Track};

const TENSORS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// A beginning and an end of the cycle, of the message, and each tensor as ready and as reduced.
const RECORDS: usize = 4 + 2 * TENSORS.len();
const CYCLES: usize = 1000;

fn cycle(track: &mut Track, step: Instant, time: Instant) {
    track.cycle(time, Some(step), TENSORS.iter().map(|&tensor| (time, tensor)));
    track.negotiation(time);
    track.negotiated(time, 1);
    track.message(time, &TENSORS);
    track.reduced(time, Duration::ZERO, Duration::ZERO);
}

fn cycles(track: &mut Track, start: Instant) {
    for index in 0..CYCLES {
        let time = start + Duration::from_micros(index as u64);
        cycle(black_box(&mut *track), black_box(start), black_box(time));
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("timeline, per record");
    group.throughput(Throughput::Elements((CYCLES * RECORDS) as u64));
    group.bench_function("recorded", |bencher| {
        // Memory is reserved beforehand, as in a job.
        let fresh = || Recorder::new(1, CYCLES * RECORDS + 1);
        let record = |recorder: Recorder| {
            cycles(&mut recorder.track(0), Instant::now());
            recorder
        };
        bencher.iter_batched(fresh, record, BatchSize::PerIteration);
    });
    group.bench_function("off", |bencher| {
        bencher.iter(|| cycles(&mut Track::off(), black_box(Instant::now())));
    });
    group.finish();
    criterion.final_summary();
}
