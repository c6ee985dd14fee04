//! Every algorithm, type, operation, length and shape over MPI, against the one right answer, and
//! against threads.

use std::time::Duration;

use algorithms::algorithm::Choice;
use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::grouping::Packing;
use algorithms::listed::Listed;
use algorithms::program::Program;
use algorithms::registry::{ALL, find};
use algorithms::schedule::{Action, Move, Part};
use algorithms::topology::Topology;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transports::allreduce::{AllReduce, Fused, Scheduled, Sizes};
use transports::execute::execute;
use transports::for_dtype;
use transports::kernel::ElementOp;
use transports::memory::{Buffer, Memory};
use transports::mpi::LibraryAllReduce;
use transports::pattern::Pattern;
use transports::threads::{Links, run_ranks};
use transports::transport::{Transport, TransportError};

use crate::process::{Process, digest, doing};

/// An algorithm's schedules on a transport, with a fusion buffer of their own.
fn fused<'s, T: Transport>(
    transport: T,
    choices: &'s [Choice],
    sizes: Sizes,
    packing: Packing,
) -> Fused<Scheduled<'s, T>> {
    let reduces = Scheduled::new(transport, choices, sizes.segment_bytes);
    Fused::new(reduces, packing, sizes.packing_bytes, Memory::default())
}

/// Bytes of a part, where messages travel in parts.
const PART_BYTES: usize = 1000;

fn names() -> impl Iterator<Item = &'static str> {
    let more = ["hierarchical:tree", "leader:halving-doubling", "parameter-server:2"];
    ALL.iter().map(|entry| entry.name).chain(more)
}

/// Calls with each algorithm that has a schedule for each topology.
fn each(process: &Process, mut run: impl FnMut(&str, &Topology, &[Choice])) {
    let mut count = 0;
    for topology in process.topologies() {
        for name in names() {
            if let Ok(choices) = find(name).unwrap().choices(&topology) {
                run(name, &topology, &choices);
                count += 1;
            }
        }
    }
    assert!(count > ALL.len(), "only {count} algorithms have a schedule");
}

/// One allreduce.
#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DataType,
    op: ReduceOp,
    elements: usize,
    tensors: usize,
}

/// Every type and operation; awkward lengths, of one tensor and of several; and some at random.
fn cases(random: &mut impl Rng, ranks: usize) -> Vec<Case> {
    let tensors = [1, 5];
    let mut cases = Vec::new();
    let works =
        |(dtype, op): &(DataType, ReduceOp)| !(*op == ReduceOp::Average && dtype.is_integer());
    let all = DataType::ALL.iter().flat_map(|&dtype| ReduceOp::ALL.map(|op| (dtype, op)));
    let all: Vec<_> = all.filter(works).collect();
    for &(dtype, op) in &all {
        cases.push(Case { dtype, op, elements: 37, tensors: *tensors.choose(random).unwrap() });
    }
    let (dtype, op) = (DataType::F32, ReduceOp::Sum);
    for elements in [0, 1, ranks - 1, ranks + 1, 1000, 100_003] {
        cases.extend(tensors.map(|tensors| Case { dtype, op, elements, tensors }));
    }
    for _ in 0..4 {
        let &(dtype, op) = all.choose(random).unwrap();
        let (elements, tensors) = (random.random_range(0..9000), random.random_range(1..20));
        cases.push(Case { dtype, op, elements, tensors });
    }
    cases
}

/// Reduces tensors, and compares what this rank is left with with what it must be.
fn check(process: &Process, all_reduce: &mut impl AllReduce, case: Case) {
    let Case { dtype, op, elements, tensors } = case;
    let pattern = Pattern::of(process.ranks, op, process.seed + elements as u64);
    let lengths: Vec<usize> = split(elements, tensors).iter().map(|part| part.len()).collect();
    let mut memories: Vec<Memory> =
        lengths.iter().map(|length| Memory::new(length * dtype.size_bytes())).collect();
    let starts = lengths.iter().scan(0, |at, length| {
        *at += length;
        Some(*at - length)
    });
    let starts: Vec<usize> = starts.collect();
    for (memory, &start) in memories.iter_mut().zip(&starts) {
        for_dtype!(dtype, T => pattern.fill::<T>(process.rank, start, memory));
    }
    let mut buffer = Buffer::new(dtype);
    memories.iter_mut().for_each(|memory| buffer.push(memory));
    all_reduce.all_reduce(&mut buffer, op.into()).unwrap();
    for (memory, &start) in memories.iter().zip(&starts) {
        let wrong = for_dtype!(dtype, T => pattern.check::<T>(start, &[(process.rank, memory)]));
        assert_eq!(wrong.count, 0, "{:?}", wrong.first);
    }
}

/// Every algorithm that supports the world is exact: packed and scattered, whole and in segments, in
/// messages that travel whole and in parts. Each case is run in one of these ways.
pub fn exact(process: &mut Process) {
    let comms = [process.comm(0), process.comm(PART_BYTES)];
    let whole = Sizes { segment_bytes: 0, packing_bytes: 0 };
    let cut = Sizes { segment_bytes: 1000, packing_bytes: 3000 };
    let mut random = process.random(1);
    each(process, |name, topology, choices| {
        let mut cases = cases(&mut random, process.ranks);
        cases.shuffle(&mut random);
        for (way, (sizes, packing, comm)) in [
            (whole, Packing::Packed, 0),
            (whole, Packing::Scattered, 1),
            (cut, Packing::Packed, 1),
            (cut, Packing::Scattered, 0),
        ]
        .into_iter()
        .enumerate()
        {
            let endpoint = process.endpoint(&comms[comm]);
            let mut all_reduce = fused(endpoint, choices, sizes, packing);
            if random.random() {
                all_reduce.prepare(4000, 4000);
            }
            for &case in cases.iter().skip(way).step_by(4) {
                doing(format!(
                    "{name} {topology} {} {}, {} elements in {} tensors, {packing:?} {sizes:?}",
                    case.dtype.name(),
                    case.op.name(),
                    case.elements,
                    case.tensors
                ));
                check(process, &mut all_reduce, case);
            }
        }
    });
}

/// The library's own is as exact as ours, with types that it does not know, and in parts.
pub fn vendor(process: &mut Process) {
    let mut random = process.random(2);
    for most in [0, PART_BYTES] {
        let endpoint = process.endpoint(&process.comm(most));
        let mut all_reduce =
            Fused::new(LibraryAllReduce(endpoint), Packing::Packed, 0, Memory::default());
        if most > 0 {
            all_reduce.prepare(4000, 4000);
        }
        for case in cases(&mut random, process.ranks) {
            doing(format!("the library's own in parts of {most}, {case:?}"));
            check(process, &mut all_reduce, case);
        }
    }
}

/// Numbers of which no two orders of summation give the same.
fn rough(random: &mut impl Rng, memory: &mut Memory) {
    memory.elements_mut::<f32>().fill_with(|| random.random_range(-1.0..1.0));
}

fn reduce_rough<T: Transport>(
    seed: u64,
    transport: T,
    choices: &[Choice],
    elements: usize,
) -> Result<u64, TransportError> {
    let sizes = Sizes { segment_bytes: 3000, packing_bytes: 0 };
    let mut random = ChaCha8Rng::seed_from_u64(seed + transport.rank() as u64);
    let mut all_reduce = fused(transport, choices, sizes, Packing::Packed);
    let mut memory = Memory::new(elements * size_of::<f32>());
    rough(&mut random, &mut memory);
    all_reduce.all_reduce(&mut Buffer::of(DataType::F32, &mut memory), ReduceOp::Sum.into())?;
    Ok(digest(memory.elements::<u8>()))
}

/// Whatever moves the bytes, the same program gives the same bits, rounding included.
pub fn same_bits_as_on_threads(process: &mut Process) {
    let (comm, seed) = (process.comm(0), process.seed);
    each(process, |name, topology, choices| {
        for elements in [5, 5003] {
            doing(format!("{name} {topology} beside threads, {elements} elements"));
            let own = reduce_rough(seed, process.endpoint(&comm), choices, elements).unwrap();
            let over_mpi = process.world.comm().all_gather(own.to_ne_bytes()).unwrap();
            if process.rank == 0 {
                let links = Links::new(process.ranks, Duration::from_secs(20));
                let on_threads = run_ranks(&[&links], |rank| {
                    reduce_rough(seed, links.join(rank), choices, elements)
                });
                let on_threads: Vec<_> =
                    on_threads.unwrap().into_iter().map(u64::to_ne_bytes).collect();
                let other = (0..process.ranks).find(|&rank| on_threads[rank] != over_mpi[rank]);
                assert_eq!(other, None, "that rank has other bits than on threads");
            }
        }
    });
}

/// A message that may go straight into the buffer does not while somebody still reads the place, or while
/// an earlier message for it is still to come: rank 1 is late.
pub fn late_ranks(process: &mut Process) {
    const ELEMENTS: usize = 100_000;
    if process.ranks < 3 {
        return;
    }
    let comm = process.comm(0);
    for (first, what) in [
        ((0, 1, Action::Copy), "a message over one that is still read"),
        ((1, 0, Action::Reduce), "a message over one that is still to come"),
    ] {
        doing(what);
        let steps = [first, (2, 0, Action::Copy)].map(|(from, to, action): (usize, usize, _)| {
            let mut parts = vec![Part::default(); process.ranks];
            parts[from].sends.push(Move::new(to, 0..1, action));
            parts[to].receives.push(Move::new(from, 0..1, action));
            parts
        });
        let schedule = Listed { ranks: process.ranks, chunks: 1, steps: steps.to_vec() };
        let program = Program::compile(&schedule, process.rank);
        let mut memory = Memory::new(ELEMENTS * size_of::<f32>());
        memory.elements_mut::<f32>().fill(process.rank as f32);
        process.assert_alike(what);
        if process.rank == 1 {
            std::thread::sleep(Duration::from_millis(30));
        }
        let (mut endpoint, dtype) = (process.endpoint(&comm), DataType::F32);
        let mut buffer = Buffer::of(dtype, &mut memory);
        execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).unwrap();
        let expected = match (process.rank, first) {
            (0, _) => 2.0,
            (1, (0, 1, _)) => 0.0,
            (rank, _) => rank as f32,
        };
        let other = memory.elements::<f32>().iter().find(|element| **element != expected);
        assert_eq!(other, None, "an element that should be {expected}");
    }
}

/// The bits of control planes.
pub fn bits(process: &mut Process) {
    let comm = process.comm(0);
    let mut endpoint = process.endpoint(&comm);
    let schedule = find("recursive-doubling").unwrap().schedule(&Topology::flat(process.ranks));
    let program = Program::compile(&*schedule.unwrap(), process.rank);
    for words in [0, 1, 3, 64, 1025] {
        for combine in [ElementOp::And, ElementOp::Or] {
            doing(format!("{combine:?} of {words} words"));
            let of = |rank: usize| -> Vec<i64> {
                let mut random = process.random(rank as u64);
                // Few zeros for AND, few ones for OR, so that every rank's count.
                let word = || {
                    let word = (random.next_u64() & random.next_u64() & random.next_u64()) as i64;
                    if combine == ElementOp::And { !word } else { word }
                };
                std::iter::repeat_with(word).take(words).collect()
            };
            let pair = |a: i64, b: i64| if combine == ElementOp::And { a & b } else { a | b };
            let expected = (1..process.ranks).fold(of(0), |all, rank| {
                all.into_iter().zip(of(rank)).map(|(a, b)| pair(a, b)).collect()
            });
            let mut memory = Memory::new(words * size_of::<i64>());
            memory.elements_mut().copy_from_slice(&of(process.rank));
            let mut buffer = Buffer::of(DataType::I64, &mut memory);
            execute(&mut endpoint, &program, &mut buffer, combine).unwrap();
            assert_eq!(memory.elements::<i64>(), expected);
        }
    }
}

/// A message longer than MPI counts in one call.
pub fn large(process: &mut Process) {
    let topology = Topology::flat(process.ranks);
    let choices = find("tree").unwrap().choices(&topology).unwrap();
    let (comm, sizes) = (process.comm(0), Sizes { segment_bytes: 0, packing_bytes: 0 });
    let endpoint = process.endpoint(&comm);
    let mut all_reduce = fused(endpoint, &choices, sizes, Packing::Packed);
    let (dtype, op, elements, tensors) = (DataType::F32, ReduceOp::Sum, (1 << 29) + 1_000_003, 1);
    doing(format!("a tree of {elements} elements"));
    check(process, &mut all_reduce, Case { dtype, op, elements, tensors });
}

fn ring(process: &Process, spoil: impl FnOnce(&mut Memory)) -> Memory {
    let ring = find("ring").unwrap().schedule(&Topology::flat(process.ranks)).unwrap();
    let program = Program::compile(&*ring, process.rank);
    let mut endpoint = process.endpoint(&process.comm(0));
    let mut memory = Memory::new(1009 * 4);
    Pattern::of(process.ranks, ReduceOp::Sum, process.seed).fill::<f32>(
        process.rank,
        0,
        &mut memory,
    );
    spoil(&mut memory);
    doing("ring, 1009 elements");
    let mut buffer = Buffer::of(DataType::F32, &mut memory);
    execute(&mut endpoint, &program, &mut buffer, ElementOp::Sum).unwrap();
    memory
}

/// The last rank comes too late for the timeout of the others.
pub fn one_falls_silent(process: &mut Process) {
    let is_last = process.rank + 1 == process.ranks;
    ring(process, |_| {
        if is_last {
            std::thread::sleep(10 * process.waiting.timeout);
        }
    });
}

/// The last rank has another input than it should, and checks for all.
pub fn one_is_wrong(process: &mut Process) {
    let is_last = process.rank + 1 == process.ranks;
    let result = ring(process, |memory| {
        if is_last {
            memory.elements_mut::<f32>()[77] += 1.0;
        }
    });
    let pattern = Pattern::of(process.ranks, ReduceOp::Sum, process.seed);
    if is_last {
        let wrong = pattern.check::<f32>(0, &[(process.rank, &result)]);
        assert_eq!(wrong.count, 0, "{:?}", wrong.first);
    }
}
