//! An allreduce alone on streams: repeated, timed by the host and by the devices, checked there.

pub(crate) mod line;

use std::time::{Duration, Instant};

use algorithms::program::Program;

use super::CudaError;
use super::collective::RankStream;
use super::streams::{Event, Graph, Streams};
use line::Line;
use transports::bench::{Bench, Enqueued, Repeated, Timed, repeat};
use transports::programs::of_all_ranks;

/// Ranks on devices, each with its stream.
pub struct Ranks<S> {
    /// The device streams.
    pub streams: S,
    rank_streams: Vec<RankStream>,
    begin: Event,
    end: Event,
    /// Events at which each rank has finished; the first rank's is the one at which the others may begin.
    through: Vec<Event>,
    /// Every collective is captured once, and repeated as a graph.
    pub graphs: bool,
}

impl<S: Streams> Ranks<S> {
    /// Creates `ranks` ranks; neighbours are on the same device.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn new(mut streams: S, ranks: usize) -> Result<Ranks<S>, CudaError> {
        let devices = streams.devices().len();
        let mut rank_streams = Vec::new();
        for rank in 0..ranks {
            let device = rank * devices / ranks.max(devices);
            rank_streams.push(RankStream { device, stream: streams.stream(device)? });
        }
        let first = rank_streams[0].device;
        let (begin, end) = (streams.event(first, true)?, streams.event(first, true)?);
        let mut through = Vec::new();
        for rank_stream in &rank_streams {
            through.push(streams.event(rank_stream.device, false)?);
        }
        Ok(Ranks { streams, rank_streams, begin, end, through, graphs: false })
    }

    /// The device of each rank, as text.
    pub fn devices(&self) -> Vec<String> {
        let names = self.streams.devices();
        let device = |rank_stream: &RankStream| {
            format!("GPU {}: {}", rank_stream.device, names[rank_stream.device])
        };
        self.rank_streams.iter().map(device).collect()
    }

    /// Runs a benchmark. Devices without a clock report no times.
    ///
    /// # Errors
    /// When there is too little memory, or a driver call fails.
    ///
    /// # Panics
    /// When the data plane is not one of this project's algorithms.
    pub fn run(&mut self, bench: &Bench) -> Result<Timed, CudaError> {
        let mut line = Line::new(&mut self.streams, &self.rank_streams, bench)?;
        let ended = self.repeat(&mut line, bench);
        // The first error is returned.
        let released = line.release(&mut self.streams);
        ended.and_then(|timed| released.map(|()| timed))
    }

    fn repeat(&mut self, line: &mut Line, bench: &Bench) -> Result<Timed, CudaError> {
        if !self.graphs {
            return self.repeat_as(line, bench, None);
        }
        let graph = self.capture(line)?;
        let ended = self.repeat_as(line, bench, Some(graph));
        let dropped = self.streams.drop_graph(graph);
        ended.and_then(|timed| dropped.map(|()| timed))
    }

    fn repeat_as(
        &mut self,
        line: &mut Line,
        bench: &Bench,
        graph: Option<Graph>,
    ) -> Result<Timed, CudaError> {
        let nodes = graph.map(|graph| self.streams.nodes(graph));
        let mut enqueued = Enqueued { nodes, ..line.enqueued() };
        let all = repeat(bench, &mut Repetitions { ranks: self, line, graph })?;
        let (mut times, mut device_us) = (Vec::new(), Vec::new());
        // Devices without a clock are emulated: the host's times would be meaningless.
        for Clocked { host, enqueuing, device_us: device } in all {
            times.extend(device.map(|_| host));
            enqueued.times_us.extend(device.map(|_| enqueuing.as_nanos() as f64 / 1e3));
            device_us.extend(device);
        }
        let wrong = if bench.check { Some(line.check(&mut self.streams)?) } else { None };
        let enqueued = Some(enqueued);
        Ok(Timed { times, device_us, enqueued, wrong, ..Timed::default() })
    }

    /// One allreduce.
    fn once(&mut self, line: &Line, graph: Option<Graph>) -> Result<Clocked, CudaError> {
        let (first, begin, end) = (self.rank_streams[0].stream, self.begin, self.end);
        let start = Instant::now();
        self.streams.record(first, begin)?;
        match graph {
            Some(graph) => self.streams.launch_graph(first, graph)?,
            None => self.all(line, begin)?,
        }
        self.streams.record(first, end)?;
        let enqueuing = start.elapsed();
        self.streams.synchronize(first)?;
        let host = start.elapsed();
        Ok(Clocked { host, enqueuing, device_us: self.streams.elapsed_us(begin, end)? })
    }

    /// Enqueues all ranks' work: that of the others after the event on the first one's stream, which then waits
    /// for theirs.
    fn all(&mut self, line: &Line, begun: Event) -> Result<(), CudaError> {
        let Ranks { streams, rank_streams, through, .. } = self;
        let (first, others) = rank_streams.split_first().expect("a rank");
        for rank_stream in others {
            streams.wait(rank_stream.stream, begun)?;
        }
        line.enqueue(streams)?;
        for (rank_stream, &through) in others.iter().zip(&through[1..]) {
            streams.record(rank_stream.stream, through)?;
            streams.wait(first.stream, through)?;
        }
        Ok(())
    }

    /// Captures all of it as a graph.
    fn capture(&mut self, line: &Line) -> Result<Graph, CudaError> {
        let (first, begun) = (self.rank_streams[0].stream, self.through[0]);
        self.streams.begin_capture(first)?;
        let put = self.streams.record(first, begun).and_then(|()| self.all(line, begun));
        // The streams must be usable again even after an error.
        let graph = self.streams.end_capture(first);
        put.and(graph)
    }

    /// The host waits for all ranks.
    fn meet(&mut self) -> Result<(), CudaError> {
        let Ranks { streams, rank_streams, .. } = self;
        rank_streams.iter().try_for_each(|rank_stream| streams.synchronize(rank_stream.stream))
    }
}

/// The time of one repetition.
struct Clocked {
    /// By the host's clock.
    host: Duration,
    /// How much of that the host needed to enqueue it.
    enqueuing: Duration,
    /// By the first device's clock in microseconds, if it has one.
    device_us: Option<f64>,
}

/// A line as the bench loop repeats it.
struct Repetitions<'r, S> {
    ranks: &'r mut Ranks<S>,
    line: &'r Line,
    graph: Option<Graph>,
}

impl<S: Streams> Repeated for Repetitions<'_, S> {
    type Time = Clocked;
    type Error = CudaError;

    fn fill(&mut self, _: bool) -> Result<(), CudaError> {
        self.line.fill(&mut self.ranks.streams)
    }

    fn meet(&mut self) -> Result<(), CudaError> {
        self.ranks.meet()
    }

    fn once(&mut self) -> Result<Clocked, CudaError> {
        self.ranks.once(self.line, self.graph)
    }
}

/// The programs of all ranks for a buffer of that size.
fn programs(bench: &Bench, size_bytes: usize) -> Vec<Program> {
    let choices = bench.data_plane.choices().expect("one of our algorithms");
    of_all_ranks(choices, size_bytes, bench.sizes.segment_bytes)
}

#[cfg(test)]
mod tests;
