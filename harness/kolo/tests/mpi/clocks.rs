//! Clocks of processes that differ, and blocks that need them.

use std::time::Duration;

use algorithms::control::{DataType, ReduceOp};
use algorithms::registry::find;
use algorithms::topology::Topology;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, run_rank, synchronised};
use transports::clock::Clock;
use transports::data_plane::DataPlane;
use transports::memory::Memory;
use transports::mpi::MpiPlane;
use transports::transport::MessageChannel;

use crate::process::{Process, doing};

/// A clock of this machine's that was so far ahead when the machine started, and is so fast.
fn clock((by_s, drift): (f64, f64)) -> Clock {
    let machine = Clock::default();
    Clock::new(None, move || by_s + (1.0 + drift) * machine.now_s())
}

/// By how much a rank's clock is ahead, and how fast it is.
fn of(rank: usize) -> (f64, f64) {
    (rank as f64 * 1.5 - 1.0, rank as f64 * 2e-5 - 5e-5)
}

/// They are known within the bound, between comparisons and after them.
pub fn drifting(process: &mut Process) {
    doing("comparisons of clocks that drift");
    let comm = process.comm(0);
    let mut channel = process.control_channel(&comm);
    let place = (process.rank, process.ranks);
    let (machine, mut own) = (Clock::default(), clock(of(process.rank)));
    let mut moments_s = Vec::new();
    for _ in 0..4 {
        own.compare(&mut channel, place).unwrap();
        moments_s.push(machine.now_s());
        for later_s in [0.0, 1.0] {
            for at_s in moments_s.iter().map(|at_s| at_s + later_s) {
                let at = |(by_s, drift): (f64, f64)| by_s + (1.0 + drift) * at_s;
                let (own_s, rank0_s) = (at(of(process.rank)), at(of(0)));
                // Clocks have microseconds to spare beyond what f64 holds of a machine that has been up for years.
                let most_s = own.error_s(own_s) + 1e-7;
                let off_s = own.rank0_s(own_s) - rank0_s;
                assert!(off_s.abs() <= most_s, "{off_s} s off, promised {most_s}: {own:?}");
                assert!(most_s.is_finite());
            }
        }
    }
    channel.flush().unwrap();
}

/// The last rank's clock names no time: the block starts after a barrier, and all ranks know why.
pub fn unknown(process: &mut Process) {
    let topology = Topology::flat(process.ranks);
    let data_plane = DataPlane::ours(find("ring").unwrap(), &topology).unwrap();
    let plane = MpiPlane::of(&data_plane).unwrap();
    let comm = process.comm(0);
    let mut channel = process.control_channel(&comm);
    let (data, bits) = (process.comm(0), process.comm(0));
    let (rank, ranks) = (process.rank, process.ranks);
    for start in Start::ALL {
        doing(format!("a block by clocks that are unknown, with {}", start.name()));
        let bench = Bench {
            data_plane: &data_plane,
            topology: &topology,
            dtype: DataType::F32,
            op: ReduceOp::Sum,
            sizes: Sizes { segment_bytes: 0, packing_bytes: 0 },
            tensors: &[100],
            in_place: true,
            warmup: 1,
            repetitions: 3,
            start,
            check: false,
            seed: 1,
        };
        let mut own =
            if rank + 1 == ranks { Clock::new(None, || f64::NAN) } else { clock((0.0, 0.0)) };
        let mut run = |bench: &Bench, clock: &Clock| {
            let all_reduce =
                plane.all_reduce(process.endpoint(&data), bench.sizes, Memory::default());
            run_rank(bench, rank, all_reduce, (process.endpoint(&bits), clock))
        };
        let done = synchronised(&bench, (rank, ranks), &mut own, &mut channel, &mut run).unwrap();
        assert_eq!(done.start, Start::Barrier);
        assert_eq!(done.ended.times.clock_error, Duration::ZERO);
        let expected = (start != Start::Barrier).then(|| {
            format!(
                "the clock of rank {} cannot be compared with rank 0's, as the answers contradict each other, expected \
                 at most 10000.0 us (the furthest that a moment is named ahead); ranks start after a barrier instead",
                ranks - 1
            )
        });
        let why = done.why.map(|why| why.to_string());
        // Ranks between may have a bound that is too large, too: the machine is shared.
        let is_alone = why.as_ref().is_none_or(|why| why.starts_with("the clock of"));
        assert!(!is_alone || why.as_deref() == expected.as_deref(), "{why:?}");
        assert_eq!(why.is_some(), expected.is_some());
    }
    channel.flush().unwrap();
}
