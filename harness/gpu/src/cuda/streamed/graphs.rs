//! Collectives captured once and launched as graphs, in adversarial orders; and captures that are refused.

use algorithms::control::{DataType, ReduceOp};

use super::tests::{orders, programs, worlds};
use super::*;
use crate::cuda::CudaError;
use crate::cuda::collective::{Collective, RankStream};
use crate::cuda::emulated::{Emulated, Turns};
use crate::cuda::streams::{Event, Graph, Streams};
use crate::cuda::work::{Address, Values, Work};
use transports::kernel::ElementOp;
use transports::pattern::Pattern;

const DTYPE: DataType = DataType::I32;
const OP: ReduceOp = ReduceOp::Sum;

/// Ranks on two devices, each with a stream, memory, and a mark.
struct World {
    streams: Emulated,
    rank_streams: Vec<RankStream>,
    data: Vec<Address>,
    marks: Vec<Event>,
    elements: usize,
}

impl World {
    fn new(ranks: usize, elements: usize, turns: Turns, seed: u64) -> World {
        let mut streams = Emulated::new(2, true, turns, seed);
        let (mut rank_streams, mut data, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..ranks {
            let device = rank % 2;
            rank_streams.push(RankStream { device, stream: streams.stream(device).unwrap() });
            data.push(streams.allocate(device, elements * DTYPE.size_bytes()).unwrap());
            marks.push(streams.event(device, false).unwrap());
        }
        World { streams, rank_streams, data, marks, elements }
    }

    fn collective(&mut self, programs: &[Program], left_out: Option<Why>) -> Collective {
        let size_bytes = DTYPE.size_bytes();
        let streamed =
            Streamed::without(left_out, programs, self.elements, size_bytes, |_, _| true);
        let combine = ElementOp::of(OP);
        Collective::new(&mut self.streams, streamed, &self.rank_streams, DTYPE, combine).unwrap()
    }

    /// The others begin after the first stream.
    fn fork(&mut self) -> Result<(), CudaError> {
        let (first, others) = self.rank_streams.split_first().unwrap();
        self.streams.record(first.stream, self.marks[0])?;
        others
            .iter()
            .try_for_each(|rank_stream| self.streams.wait(rank_stream.stream, self.marks[0]))
    }

    /// The first stream continues after the others.
    fn join(&mut self) -> Result<(), CudaError> {
        let first = self.rank_streams[0].stream;
        for rank in 1..self.rank_streams.len() {
            self.streams.record(self.rank_streams[rank].stream, self.marks[rank])?;
            self.streams.wait(first, self.marks[rank])?;
        }
        Ok(())
    }

    fn capture(&mut self, collective: &Collective) -> Result<Graph, CudaError> {
        let first = self.rank_streams[0].stream;
        self.streams.begin_capture(first)?;
        self.fork()?;
        collective.enqueue(&mut self.streams, &self.data)?;
        self.join()?;
        self.streams.end_capture(first)
    }

    /// Launches the graph `rounds` times on fresh data, without waiting in between; returns wrong elements.
    fn launch(&mut self, graph: Graph, rounds: usize, seed: u64) -> u64 {
        let first = self.rank_streams[0].stream;
        let mut verdicts = Vec::new();
        for _ in 0..rounds * self.rank_streams.len() {
            let verdict = self.streams.allocate(0, 16).unwrap();
            self.streams
                .write(verdict, [0, u64::MAX].map(u64::to_le_bytes).as_flattened())
                .unwrap();
            verdicts.push(verdict);
        }
        let before = self.streams.synchronized;
        for round in 0..rounds {
            let pattern = Pattern::of(self.rank_streams.len(), OP, seed + round as u64);
            let values = Values::of(&pattern, DTYPE, 0, self.elements);
            for (rank, rank_stream) in self.rank_streams.iter().enumerate() {
                let into = self.data[rank];
                let fill = Work::Fill { dtype: DTYPE, into, values, rank };
                self.streams.launch(rank_stream.stream, &fill).unwrap();
            }
            self.join().unwrap();
            self.streams.launch_graph(first, graph).unwrap();
            self.fork().unwrap();
            for (rank, rank_stream) in self.rank_streams.iter().enumerate() {
                let (got, wrong) =
                    (self.data[rank], verdicts[round * self.rank_streams.len() + rank]);
                let check = Work::Check { dtype: DTYPE, got, wrong, values, factor: 1.0 };
                self.streams.launch(rank_stream.stream, &check).unwrap();
            }
        }
        assert_eq!(self.streams.synchronized, before, "the host waited");
        for rank_stream in &self.rank_streams {
            self.streams.synchronize(rank_stream.stream).unwrap();
        }
        assert!(self.streams.guards_are_whole());
        let mut wrong = 0;
        for verdict in verdicts {
            let mut words = [0; 16];
            self.streams.read(verdict, &mut words).unwrap();
            wrong += u64::from_le_bytes(words[..8].try_into().unwrap());
        }
        wrong
    }
}

#[test]
fn every_algorithm_is_right_as_a_graph_in_hostile_orders() {
    let mut seed = 0;
    for ranks in worlds([1, 2, 3, 4, 6], &[1, 2, 4]) {
        for (name, programs) in programs(ranks) {
            for turns in orders(ranks) {
                seed += 1;
                let elements = [333, 0, 1, 5, 64][seed as usize % 5];
                let mut world = World::new(ranks, elements, turns, seed);
                let collective = world.collective(&programs, None);
                let graph = world.capture(&collective).unwrap();
                let (launches, _) = collective.counts();
                assert_eq!(world.streams.nodes(graph), launches, "{name}");
                let wrong = world.launch(graph, 3, seed);
                assert_eq!(wrong, 0, "{name}, {elements} elements, {turns:?}, seed {seed}");
                world.streams.drop_graph(graph).unwrap();
            }
        }
    }
}

/// A graph is not ordered by accident.
#[test]
fn graphs_without_waits_of_any_sort_are_wrong() {
    // Fork and join of the capture already order its beginning and end.
    for why in [Why::Arrived, Why::Taken] {
        let mut found = 0;
        for (_, programs) in programs(4) {
            let is_wrong = |(turns, seed)| {
                let mut world = World::new(4, 333, turns, seed);
                let collective = world.collective(&programs, Some(why));
                let graph = world.capture(&collective).unwrap();
                world.launch(graph, 2, seed) > 0
            };
            found += usize::from(orders(4).zip(1..).any(is_wrong));
        }
        assert!(found > 10, "{why:?} was found out only in {found}");
    }
}

#[test]
fn what_cannot_be_captured_is_refused_and_streams_go_on() {
    let ring = programs(3).into_iter().find(|(name, _)| name.starts_with("ring on")).unwrap().1;
    let mut world = World::new(3, 100, Turns::Lot, 1);
    let collective = world.collective(&ring, None);
    let said = |ended: Result<Graph, CudaError>| ended.unwrap_err().to_string();

    // The ends of the ring's streams are ordered already, so that one more task is the one that no stream waits
    // for.
    let capture = |world: &mut World| {
        world.streams.begin_capture(world.rank_streams[0].stream).unwrap();
        world.fork().unwrap();
        collective.enqueue(&mut world.streams, &world.data).unwrap();
        world.streams.copy(world.rank_streams[2].stream, world.data[2], world.data[2], 4).unwrap();
    };
    capture(&mut world);
    let refused = said(world.streams.end_capture(world.rank_streams[0].stream));
    assert!(refused.contains("UNJOINED (no stream waits for stream 2)"), "{refused}");

    capture(&mut world);
    let refused = world.streams.synchronize(world.rank_streams[1].stream).unwrap_err().to_string();
    assert!(refused.contains("cuStreamSynchronize failed: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
    world.join().unwrap();
    let refused = said(world.streams.end_capture(world.rank_streams[0].stream));
    assert!(refused.contains("INVALIDATED (cuStreamSynchronize came in between)"), "{refused}");

    let outside = world.streams.event(0, false).unwrap();
    world.streams.record(world.rank_streams[1].stream, outside).unwrap();
    world.streams.begin_capture(world.rank_streams[0].stream).unwrap();
    let refused =
        world.streams.wait(world.rank_streams[0].stream, outside).unwrap_err().to_string();
    assert!(refused.contains("CUDA_ERROR_STREAM_CAPTURE_ISOLATION"), "{refused}");
    assert!(
        world.streams.allocate(0, 4).is_err()
            && world.streams.begin_capture(world.rank_streams[1].stream).is_err()
    );
    let refused = said(world.streams.end_capture(world.rank_streams[1].stream));
    assert!(refused.contains("UNMATCHED (it began on stream 0)"), "{refused}");
    assert!(world.streams.end_capture(world.rank_streams[0].stream).is_err());

    // An event recorded in a graph cannot be waited for outside.
    let graph = world.capture(&collective).unwrap();
    let refused = world.streams.wait(world.rank_streams[1].stream, world.marks[0]).unwrap_err();
    assert!(refused.to_string().contains("CUDA_ERROR_CAPTURED_EVENT"), "{refused}");
    assert_eq!(world.launch(graph, 2, 9), 0);
}
