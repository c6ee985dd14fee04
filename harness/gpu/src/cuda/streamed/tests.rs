use algorithms::combinators::Pipelined;
use algorithms::control::{DataType, ReduceOp};
use algorithms::program::Program;
use algorithms::registry::{self, ALL};
use algorithms::schedule::Schedule;
use algorithms::topology::Topology;

use super::races::race;
use super::*;
use crate::cuda::CudaError;
use crate::cuda::collective::{Collective, RankStream};
use crate::cuda::emulated::{Emulated, Turns};
use crate::cuda::streams::Streams;
use crate::cuda::work::{Values, Work};
use transports::kernel::ElementOp;
use transports::pattern::Pattern;

/// A deliberate error in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Waits of one sort are left out.
    Without(Why),
    /// The host puts one rank's work on its stream after another's.
    RankByRank,
    /// Tensors are taken to end one element later than they do.
    Late,
}

/// A case to run, with its devices.
#[derive(Clone, Copy)]
struct Case<'c> {
    programs: &'c [Program],
    /// Elements of each tensor.
    tensors: &'c [usize],
    dtype: DataType,
    op: ReduceOp,
    devices: usize,
    reaches: bool,
    flaw: Flaw,
}

/// Two collectives, one right after the other on data that is filled anew; returns how many elements are
/// wrong after each.
fn wrong(case: &Case, turns: Turns, seed: u64) -> Result<u64, CudaError> {
    let &Case { programs, tensors, dtype, op, .. } = case;
    let elements = tensors.iter().sum();
    let mut streams = Emulated::new(case.devices, case.reaches, turns, seed);
    let mut rank_streams = Vec::new();
    for rank in 0..programs.len() {
        let device = rank % case.devices;
        rank_streams.push(RankStream { device, stream: streams.stream(device)? });
    }
    let reaches = |a: Rank, b: Rank| case.reaches || a % case.devices == b % case.devices;
    let left_out = if let Flaw::Without(why) = case.flaw { Some(why) } else { None };
    let mut streamed = Streamed::without(left_out, programs, elements, dtype.size_bytes(), reaches);
    let mut ends = tensors.to_vec();
    if case.flaw == Flaw::Late {
        let shorter = ends.iter().skip(1).position(|&elements| elements > 0).expect("two of them");
        (ends[0], ends[1 + shorter]) = (ends[0] + 1, ends[1 + shorter] - 1);
    }
    if tensors.len() > 1 {
        streamed = streamed.scattered(&ends, dtype.size_bytes());
    }
    if case.flaw == Flaw::RankByRank {
        streamed.tasks.sort_by_key(|(rank, _)| *rank);
    }
    let collective =
        Collective::new(&mut streams, streamed, &rank_streams, dtype, ElementOp::of(op))?;
    let (mut data, mut verdicts) = (Vec::new(), Vec::new());
    for rank_stream in &rank_streams {
        for elements in tensors {
            data.push(streams.allocate(rank_stream.device, elements * dtype.size_bytes())?);
        }
        let verdict = [(); 2].map(|()| streams.allocate(rank_stream.device, 16));
        for verdict in verdict {
            let verdict = verdict?;
            streams.write(verdict, [0, u64::MAX].map(u64::to_le_bytes).as_flattened())?;
            verdicts.push(verdict);
        }
    }
    for round in 0..2 {
        let pattern = Pattern::of(programs.len(), op, seed + round as u64);
        let firsts = tensors.iter().scan(0, |next, &elements| {
            *next += elements;
            Some(Values::of(&pattern, dtype, *next - elements, elements))
        });
        let values: Vec<Values> = firsts.collect();
        let each = || rank_streams.iter().zip(data.chunks(tensors.len())).enumerate();
        for (rank, (rank_stream, data)) in each() {
            for (&into, &values) in data.iter().zip(&values) {
                streams.launch(rank_stream.stream, &Work::Fill { dtype, into, values, rank })?;
            }
        }
        collective.enqueue(&mut streams, &data)?;
        for (rank, (rank_stream, data)) in each() {
            for (&got, &values) in data.iter().zip(&values) {
                let wrong = verdicts[2 * rank + round];
                let check = Work::Check { dtype, got, wrong, values, factor: 1.0 };
                streams.launch(rank_stream.stream, &check)?;
            }
        }
    }
    assert_eq!(streams.synchronized, 0, "the host waited inside a collective");
    rank_streams.iter().try_for_each(|rank_stream| streams.synchronize(rank_stream.stream))?;
    assert!(streams.guards_are_whole());
    let mut wrong = 0;
    for verdict in verdicts {
        let mut words = [0; 16];
        streams.read(verdict, &mut words)?;
        wrong += u64::from_le_bytes(words[..8].try_into().expect("eight bytes"));
    }
    Ok(wrong)
}

/// `elements` elements in tensors of awkward lengths, some of them empty; or in one.
fn tensors(elements: usize, seed: usize) -> Vec<usize> {
    let lengths = [
        &[usize::MAX][..],
        &[0, 7, 0, 1, 164, 3],
        &[1, 1, 1, 0, 197],
        &[elements / 2, 0, 0, 1, 333],
        &[13, 228, 0, 5],
    ];
    let (mut tensors, mut rest) = (Vec::new(), elements);
    for &length in lengths[seed % lengths.len()].iter().cycle() {
        tensors.push(length.min(rest));
        rest -= length.min(rest);
        if rest == 0 {
            break;
        }
    }
    tensors
}

/// The programs of every registered algorithm that has any in that world, whole and in segments.
pub fn programs(ranks: usize) -> Vec<(String, Vec<Program>)> {
    let mut worlds = vec![Topology::flat(ranks)];
    if ranks > 2 && ranks.is_multiple_of(2) {
        worlds.push(Topology::uniform(2, ranks / 2));
    }
    let mut all = Vec::new();
    for entry in ALL {
        let algorithm = registry::find(entry.name).unwrap();
        for world in &worlds {
            let Ok(choices) = algorithm.choices(world) else { continue };
            for choice in &choices {
                let schedule = &*choice.schedule;
                let compile = |schedule: &dyn Schedule| {
                    (0..ranks).map(|rank| Program::compile(schedule, rank)).collect::<Vec<_>>()
                };
                let name = format!("{} on {world}", entry.name);
                all.push((name.clone(), compile(schedule)));
                for (segments, lag) in [(4, 1), (3, 4)] {
                    let pipelined = Pipelined::with_lag(schedule, segments, lag);
                    let name = format!("{name} in {segments} segments, {lag} ahead");
                    all.push((name, compile(&pipelined)));
                }
            }
        }
    }
    all
}

pub fn orders(ranks: usize) -> impl Iterator<Item = Turns> {
    let each = (0..ranks).flat_map(|rank| [Turns::Starving(rank), Turns::Hurrying(rank)]);
    [Turns::Lot, Turns::Eager, Turns::Lot, Turns::Eager].into_iter().chain(each)
}

/// Numbers of ranks: all with `KOLO_ALL_WORLDS=1`, some without.
pub fn worlds<const N: usize>(all: [usize; N], some: &'static [usize]) -> Vec<usize> {
    let is_set = std::env::var_os("KOLO_ALL_WORLDS").is_some_and(|value| value == "1");
    if is_set { all.into() } else { some.into() }
}

#[test]
fn every_algorithm_is_right_on_streams_in_hostile_orders() {
    let kinds: Vec<(DataType, ReduceOp)> = DataType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
        .filter(|(_, op)| *op != ReduceOp::Average)
        .collect();
    let sizes = [1009, 0, 1, 5, 64, 333];
    let mut seed = 0;
    for ranks in worlds([1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5]) {
        for (name, programs) in programs(ranks) {
            for turns in orders(ranks) {
                seed += 1;
                let (dtype, op) = kinds[seed % kinds.len()];
                let elements = sizes[seed / 7 % sizes.len()];
                let (devices, reaches) = [(1, true), (2, true), (3, false)][seed / 3 % 3];
                let flaw = Flaw::None;
                let programs = &programs;
                let tensors = &tensors(elements, seed);
                let case = Case { programs, tensors, dtype, op, devices, reaches, flaw };
                let wrong = wrong(&case, turns, seed as u64);
                let what = format!("{name}, {dtype:?} {op:?} {tensors:?}, {turns:?}, seed {seed}");
                assert_eq!(wrong, Ok(0), "{what}");
            }
        }
    }
}

/// Holds for all orders, not only for those that were tried.
#[test]
fn every_access_of_every_algorithm_is_ordered() {
    for ranks in worlds([1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5]) {
        for (name, programs) in programs(ranks) {
            for (elements, reaches) in [(1009, true), (64, false), (5, true)] {
                let streamed = Streamed::new(&programs, elements, 4, |a, b| reaches || a == b);
                assert_eq!(race(&streamed, &[elements], 4), None, "{name}, {elements} elements");
                let waits = streamed.waits();
                let tensors = tensors(elements, 1 + elements % 4);
                let scattered = streamed.scattered(&tensors, 4);
                assert_eq!(race(&scattered, &tensors, 4), None, "{name}, {tensors:?}");
                assert_eq!(scattered.waits(), waits, "{name}");
            }
        }
    }
}

/// Each error shows in this many of the algorithms.
#[test]
fn every_kind_of_wait_is_needed() {
    let (dtype, op, devices, reaches) = (DataType::I32, ReduceOp::Sum, 1, true);
    let whys = [Why::Begun, Why::Arrived, Why::Taken, Why::Ended].map(Flaw::Without);
    let flaws = || whys.into_iter().chain([Flaw::RankByRank]);
    let (whole, scattered) = ([333], [100, 0, 1, 132, 0, 100]);
    let cases = flaws().map(|flaw| (flaw, &whole[..]));
    let cases = cases.chain(flaws().chain([Flaw::Late]).map(|flaw| (flaw, &scattered[..])));
    for (flaw, tensors) in cases {
        let mut found = Vec::new();
        for (name, programs) in programs(4) {
            let programs = &programs;
            let case = Case { programs, tensors, dtype, op, devices, reaches, flaw };
            if !orders(4).zip(1..).any(|(turns, seed)| wrong(&case, turns, seed) != Ok(0)) {
                continue;
            }
            if let Flaw::Without(why) = flaw {
                let streamed = Streamed::without(Some(why), programs, 333, 4, |_, _| true);
                assert!(race(&streamed, &[333], 4).is_some(), "{flaw:?} of {name} is no race");
                let streamed = streamed.scattered(tensors, 4);
                assert!(race(&streamed, tensors, 4).is_some(), "{flaw:?} of {name}, scattered");
            }
            found.push(name);
        }
        let ring = found.iter().any(|name| name.starts_with("ring on"));
        assert!(found.len() > 10, "{flaw:?} was found out only in {found:?}");
        assert!(ring || flaw == Flaw::Without(Why::Taken), "{flaw:?} was not found out in a ring");
    }
}

/// As text: the tasks of each stream, in the host's order.
fn drawn(streamed: &Streamed) -> Vec<String> {
    let place = |at: &At| match at.place {
        Place::Tensor(0) => format!("{}+{}", at.rank, at.offset_bytes),
        Place::Tensor(tensor) => format!("{}.{tensor}+{}", at.rank, at.offset_bytes),
        Place::Aside => format!("aside of {}+{}", at.rank, at.offset_bytes),
    };
    let draw = |(rank, task): &(Rank, Task)| match task {
        Task::Copy { from, into, elements } => {
            format!("{rank}: {elements} from {} to {}", place(from), place(into))
        }
        Task::Reduce { vectors, elements } => {
            format!("{rank}: {elements} of {} into {}", place(&vectors[1]), place(&vectors[0]))
        }
        Task::Record(event) => format!("{rank}: event {event}"),
        Task::Wait(event) => format!("{rank}: wait {event}"),
    };
    streamed.tasks.iter().map(draw).collect()
}

/// The ring of two ranks: the tasks of each stream, in the host's order.
#[test]
fn a_ring_of_two_becomes_copies_kernels_and_events() {
    let ring = registry::find("ring").unwrap();
    let schedule = ring.schedule(&Topology::flat(2)).unwrap();
    let programs: Vec<_> = (0..2).map(|rank| Program::compile(&*schedule, rank)).collect();
    let streamed = Streamed::new(&programs, 8, 4, |_, _| true);
    let drawn = drawn(&streamed);
    assert_eq!(streamed.aside_bytes, [0, 0]);
    let expected = [
        "0: event 0",
        "1: event 1",
        "0: wait 1",
        "0: 4 of 1+0 into 0+0",
        "0: event 2",
        "1: wait 0",
        "1: 4 of 0+16 into 1+16",
        "1: event 3",
        "0: wait 3",
        "0: 4 from 1+16 to 0+16",
        "0: event 4",
        "1: wait 2",
        "1: 4 from 0+0 to 1+0",
        "1: event 5",
        "0: wait 5",
        "1: wait 4",
    ];
    assert_eq!(drawn, expected);
}

/// The same with tensors of 3, 0 and 5 elements: tasks that cross a boundary are split, and events stay.
#[test]
fn scattered_tensors_are_reduced_where_they_lie() {
    let ring = registry::find("ring").unwrap();
    let schedule = ring.schedule(&Topology::flat(2)).unwrap();
    let programs: Vec<_> = (0..2).map(|rank| Program::compile(&*schedule, rank)).collect();
    let streamed = Streamed::new(&programs, 8, 4, |_, _| true).scattered(&[3, 0, 5], 4);
    let drawn = drawn(&streamed);
    let expected = [
        "0: event 0",
        "1: event 1",
        "0: wait 1",
        "0: 3 of 1+0 into 0+0",
        "0: 1 of 1.2+0 into 0.2+0",
        "0: event 2",
        "1: wait 0",
        "1: 4 of 0.2+4 into 1.2+4",
        "1: event 3",
        "0: wait 3",
        "0: 4 from 1.2+4 to 0.2+4",
        "0: event 4",
        "1: wait 2",
        "1: 3 from 0+0 to 1+0",
        "1: 1 from 0.2+0 to 1.2+0",
        "1: event 5",
        "0: wait 5",
        "1: wait 4",
    ];
    assert_eq!(drawn, expected);
}
