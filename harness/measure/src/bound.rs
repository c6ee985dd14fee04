//! The reference of `kolo bench --bound`: a kernel with the reads and writes of an allreduce on threads, without
//! synchronisation, or, for small sizes, the time in which cores pass each other a cache line. Both are measured, so an
//! allreduce can be faster than its reference.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use algorithms::program::Bounds;
use algorithms::schedule::{Action, Move};
use algorithms::topology::Rank;

use transports::bench::{Barrier, Bench, TIMEOUT, Tensors, fill};
use transports::kernel::{ElementOp, kernel};
use transports::threads::{Links, run_ranks};
use transports::transport::TransportError;

/// The kernel combines this many elements and distributes the sum while it is in a near cache; the best of these
/// sizes is used.
const BLOCKS: [usize; 3] = [1 << 10, 1 << 13, 1 << 16];

/// The reference of an allreduce of these ranks, size, type and operation: the longer of
/// [`best_kernel`] and [`hand_over`].
///
/// # Errors
/// When a rank does not answer.
pub fn bound(bench: &Bench) -> Result<Duration, TransportError> {
    Ok(best_kernel(bench)?.0.max(hand_over(bench)?))
}

/// The best time of a kernel with the minimal reads and writes of an allreduce: every rank combines its share of
/// all ranks' vectors and writes the result to all of them, on the same threads, without synchronisation inside.
/// The time is that of the best repetition, from the start of the first rank to the end of the last: ranks that
/// share a core may take turns. Also returns the vectors, so that the reduction can be checked. The time is zero
/// for one rank.
///
/// # Errors
/// When a rank does not answer.
pub fn best_kernel(bench: &Bench) -> Result<(Duration, Vec<Tensors>), TransportError> {
    let ranks = bench.topology.ranks();
    let links = Links::new(ranks, TIMEOUT);
    let places = || (0..ranks).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect::<Vec<_>>();
    let (inputs, outputs) = (places(), places());
    let ended = run_ranks(&[&links], |rank| {
        let mut barrier = Barrier::new(links.join(rank));
        let mut input = Tensors::whole(bench);
        fill(bench, rank, &mut input);
        let mut output = if bench.in_place { Tensors::none() } else { Tensors::whole(bench) };
        inputs[rank].store(input.address(), Ordering::Relaxed);
        let written = if bench.in_place { &mut input } else { &mut output };
        outputs[rank].store(written.address(), Ordering::Relaxed);
        let mut times = Vec::with_capacity(bench.repetitions);
        for repetition in 0..bench.repetitions.max(BLOCKS.len()) {
            let block = BLOCKS[repetition % BLOCKS.len()];
            barrier.wait()?;
            let start = Instant::now();
            share(bench, rank, &inputs, &outputs, block);
            times.push((start, Instant::now()));
        }
        // No rank frees its memory while others use it.
        barrier.wait()?;
        Ok::<_, TransportError>((times, if bench.in_place { input } else { output }))
    })?;
    let all = |repetition: usize| {
        let begun = ended.iter().map(|(times, _)| times[repetition].0).min()?;
        ended.iter().map(|(times, _)| times[repetition].1 - begun).max()
    };
    let repetitions = ended[0].0.len();
    let best = (0..repetitions).filter_map(all).min().unwrap_or_default();
    let best = if ranks == 1 { Duration::ZERO } else { best };
    Ok((best, ended.into_iter().map(|(_, result)| result).collect()))
}

/// One rank's share of the kernel.
fn share(
    bench: &Bench,
    rank: Rank,
    inputs: &[AtomicPtr<u8>],
    outputs: &[AtomicPtr<u8>],
    block: usize,
) {
    let ranks = inputs.len();
    let own = Bounds::new(bench.elements(), ranks).elements(&Move::new(
        rank,
        rank..rank + 1,
        Action::Reduce,
    ));
    let kernel = kernel(bench.dtype, ElementOp::of(bench.op));
    let size = bench.dtype.size_bytes();
    let others = || (1..ranks).map(|distance| (rank + distance) % ranks);
    let mut sources: Vec<*const u8> = Vec::with_capacity(ranks - 1);
    for first in own.clone().step_by(block) {
        let elements = block.min(own.end - first);
        let at = |place: &AtomicPtr<u8>| place.load(Ordering::Relaxed).wrapping_add(first * size);
        sources.clear();
        sources.extend(others().map(|other| at(&inputs[other]).cast_const()));
        // SAFETY: all vectors have the same number of elements and live until the last barrier; this share of them
        // belongs to this rank alone.
        unsafe {
            let into = at(&outputs[rank]);
            if !bench.in_place {
                into.copy_from_nonoverlapping(at(&inputs[rank]), elements * size);
            }
            kernel(into, &sources, elements);
            for other in others() {
                at(&outputs[other]).copy_from_nonoverlapping(into, elements * size);
            }
        }
    }
}

/// The median time in which each rank writes one cache line and sees those of all others.
///
/// # Errors
/// When a rank does not answer.
pub fn hand_over(bench: &Bench) -> Result<Duration, TransportError> {
    #[derive(Default)]
    #[repr(align(128))]
    struct CacheLine(AtomicU64);

    let ranks = bench.topology.ranks();
    let links = Links::new(ranks, TIMEOUT);
    let lines: Vec<CacheLine> = (0..ranks).map(|_| CacheLine::default()).collect();
    let repetitions = bench.repetitions.max(100) as u64;
    let crowded = ranks > std::thread::available_parallelism().map_or(1, usize::from);
    let ended = run_ranks(&[&links], |rank| {
        let mut barrier = Barrier::new(links.join(rank));
        let mut times = Vec::with_capacity(repetitions as usize);
        for repetition in 1..=repetitions {
            barrier.wait()?;
            let start = Instant::now();
            lines[rank].0.store(repetition, Ordering::Release);
            for line in &lines {
                while line.0.load(Ordering::Acquire) < repetition {
                    // If ranks share a core, a spinning rank keeps the core from the rank it waits for.
                    if crowded { std::thread::yield_now() } else { std::hint::spin_loop() }
                }
            }
            times.push(start.elapsed());
        }
        Ok::<_, TransportError>(times)
    })?;
    let longest = |repetition: usize| ended.iter().map(|times| times[repetition]).max();
    let mut times: Vec<Duration> = (0..repetitions as usize).filter_map(longest).collect();
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use algorithms::control::{DataType, ReduceOp};
    use algorithms::registry::find;
    use algorithms::topology::Topology;
    use transports::bench::Start;
    use transports::data_plane::DataPlane;

    /// Its reads and writes are those of an allreduce: its result is one.
    #[test]
    fn the_kernel_reduces() {
        for ranks in [1, 2, 3, 4] {
            let ring = DataPlane::ours(find("ring").unwrap(), &Topology::flat(ranks)).unwrap();
            for in_place in [false, true] {
                for (dtype, op) in [(DataType::F32, ReduceOp::Sum), (DataType::BF16, ReduceOp::Max)]
                {
                    let bench = Bench {
                        data_plane: &ring,
                        topology: &Topology::flat(ranks),
                        dtype,
                        op,
                        sizes: transports::allreduce::Sizes { segment_bytes: 0, packing_bytes: 0 },
                        tensors: &[10_007],
                        in_place,
                        warmup: 0,
                        repetitions: 3,
                        start: Start::Barrier,
                        check: true,
                        seed: 5,
                    };
                    // In place, sums would be added again.
                    if in_place && op == ReduceOp::Sum {
                        continue;
                    }
                    let (time, results) = best_kernel(&bench).unwrap();
                    let results: Vec<_> = results.iter().enumerate().collect();
                    assert_eq!(
                        transports::bench::check(&bench, &results).count,
                        0,
                        "{ranks} {op:?}"
                    );
                    assert_eq!(time == Duration::ZERO, ranks == 1);
                    assert!(bound(&bench).unwrap() >= time.min(Duration::from_nanos(1)));
                }
            }
        }
    }
}
