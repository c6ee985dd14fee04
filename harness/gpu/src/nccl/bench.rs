//! One rank's part in timing an allreduce alone: its GPU, its stream, its end of the communicator.

use std::rc::Rc;
use std::time::{Duration, Instant};

use algorithms::control::DataType;
use serde::{Deserialize, Serialize};

use super::NcclError;
use super::allreduce::{DeviceAllReduce, Vector};
use super::comm::{Communicator, On};
use super::rendezvous::Control;
use crate::cuda::CudaError;
use crate::cuda::bench::line::{Line, elements, room};
use crate::cuda::collective::RankStream;
use crate::cuda::streams::{Event, Streams};
use crate::cuda::work::Address;
use transports::bench::{Bench, Repeated, Timed, repeat};
use transports::kernel::ElementOp;
use transports::pattern::Wrong;

/// One rank, with its first GPU.
pub struct BenchRank<'c, S> {
    /// The device streams.
    pub streams: &'c mut S,
    /// Connections with the others.
    pub control: &'c mut Control,
    communicator: Rc<Communicator>,
    /// The GPU's number, for error messages.
    ordinal: usize,
    rank_stream: RankStream,
    begin: Event,
    end: Event,
    met: Event,
    /// All ranks add these up when they meet.
    word: Address,
}

/// A rank's report to rank 0.
#[derive(Serialize, Deserialize)]
struct Reported {
    times: Vec<Duration>,
    device_us: Vec<f64>,
    wrong: Option<Wrong>,
}

impl<'c, S: Streams> BenchRank<'c, S> {
    /// For a communicator of all ranks, which also serves as the barrier.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn new(
        streams: &'c mut S,
        ordinal: usize,
        communicator: Rc<Communicator>,
        control: &'c mut Control,
    ) -> Result<BenchRank<'c, S>, CudaError> {
        let rank_stream = RankStream { device: 0, stream: streams.stream(0)? };
        let (begin, end) = (streams.event(0, true)?, streams.event(0, true)?);
        let met = streams.event(0, false)?;
        let word = streams.allocate(0, 4)?;
        streams.write(word, &[0; 4])?;
        Ok(BenchRank {
            streams,
            control,
            communicator,
            ordinal,
            rank_stream,
            begin,
            end,
            met,
            word,
        })
    }

    /// Checks that this rank's GPU has room for a benchmark.
    ///
    /// # Errors
    /// The sizes, if it has not.
    pub fn room(
        &mut self,
        bench: &Bench,
        all_reduce: &mut DeviceAllReduce,
    ) -> Result<(), CudaError> {
        let aside_bytes = all_reduce.aside_bytes(elements(bench), bench.dtype);
        let checked = room(self.streams, &[self.rank_stream], bench, &[aside_bytes]);
        checked.map_err(|error| self.named(error))
    }

    /// Numbers GPUs in errors as the process sees them.
    fn named(&self, error: CudaError) -> CudaError {
        match error {
            CudaError::OutOfMemory { ranks, size_mb, need_mb, free_mb, .. } => {
                let device = self.ordinal;
                CudaError::OutOfMemory { device, ranks, size_mb, need_mb, free_mb }
            }
            other => other,
        }
    }

    /// Runs a benchmark together with all ranks; rank 0 has the result.
    ///
    /// # Errors
    /// An error of the driver or NCCL, or a failed process. Memory and communicators are then not released: work
    /// on the GPU may never end.
    pub fn run(
        &mut self,
        bench: &Bench,
        all_reduce: &mut DeviceAllReduce,
    ) -> Result<Timed, NcclError> {
        let aside_bytes = all_reduce.aside_bytes(elements(bench), bench.dtype);
        let at = (self.control.rank, &[self.rank_stream][..]);
        let line = Line::of(self.streams, at, bench, &[aside_bytes]);
        let line = line.map_err(|error| self.named(error))?;
        all_reduce.prepare(self.streams, 0, elements(bench), bench.dtype)?;
        let (mut times, mut device_us) = (Vec::new(), Vec::new());
        let repetitions = &mut Repetitions { bench_rank: self, bench, line: &line, all_reduce };
        for (time, device) in repeat(bench, repetitions)? {
            times.extend(device.map(|_| time));
            device_us.extend(device);
        }
        let wrong = if bench.check { Some(line.check(self.streams)?) } else { None };
        line.release(self.streams)?;
        self.gather(Reported { times, device_us, wrong })
    }

    /// One allreduce, by the host's clock and the device's.
    fn once(
        &mut self,
        line: &Line,
        bench: &Bench,
        all_reduce: &mut DeviceAllReduce,
    ) -> Result<(Duration, Option<f64>), NcclError> {
        let (places, elements) = line.fused();
        let (dtype, combine) = (bench.dtype, ElementOp::of(bench.op));
        let vector = Vector { data: places[0], elements, dtype, combine };
        let BenchRank { streams, control, rank_stream, begin, end, .. } = self;
        let streams = &mut **streams;
        let start = Instant::now();
        streams.record(rank_stream.stream, *begin)?;
        line.pack(streams)?;
        all_reduce.enqueue(streams, rank_stream, &vector, &mut **control)?;
        line.unpack(streams)?;
        streams.record(rank_stream.stream, *end)?;
        all_reduce.wait(streams, *end, &mut **control)?;
        let time = start.elapsed();
        Ok((time, streams.elapsed_us(*begin, *end)?))
    }

    /// All ranks meet on their GPUs: closer together than processes could over connections of their own.
    fn meet(&mut self) -> Result<(), NcclError> {
        let BenchRank { streams, control, communicator, rank_stream, met, word, .. } = self;
        let streams = &mut **streams;
        let on = On { stream: streams.raw(rank_stream.stream)?, dtype: DataType::I32 };
        communicator.all_reduce(on, (*word, 1), ElementOp::Max, &mut **control)?;
        streams.record(rank_stream.stream, *met)?;
        communicator.wait(streams, *met, "all ranks to meet", &mut **control)
    }

    /// Combines the reports of all ranks.
    fn gather(&mut self, own: Reported) -> Result<Timed, NcclError> {
        let bytes = postcard::to_stdvec(&own).expect("plain data");
        let all = self.control.gather(bytes)?;
        let reported: Vec<Reported> = if all.is_empty() {
            vec![own]
        } else {
            all.iter()
                .map(|bytes| postcard::from_bytes(bytes).expect("all run the same program"))
                .collect()
        };
        Ok(together(reported))
    }
}

/// A line as the bench loop repeats it.
struct Repetitions<'r, 'c, 'a, S> {
    bench_rank: &'r mut BenchRank<'c, S>,
    bench: &'r Bench<'r>,
    line: &'r Line,
    all_reduce: &'r mut DeviceAllReduce<'a>,
}

impl<S: Streams> Repeated for Repetitions<'_, '_, '_, S> {
    /// By the host's clock, and by the device's in microseconds.
    type Time = (Duration, Option<f64>);
    type Error = NcclError;

    fn fill(&mut self, _: bool) -> Result<(), NcclError> {
        Ok(self.line.fill(self.bench_rank.streams)?)
    }

    fn meet(&mut self) -> Result<(), NcclError> {
        self.bench_rank.meet()
    }

    fn once(&mut self) -> Result<(Duration, Option<f64>), NcclError> {
        self.bench_rank.once(self.line, self.bench, self.all_reduce)
    }
}

/// The longest of every repetition, and everything that is wrong.
fn together(reported: Vec<Reported>) -> Timed {
    let mut all = Timed::default();
    for Reported { times, device_us, wrong } in reported {
        all.times.resize(all.times.len().max(times.len()), Duration::ZERO);
        all.times.iter_mut().zip(times).for_each(|(longest, time)| *longest = time.max(*longest));
        all.device_us.resize(all.device_us.len().max(device_us.len()), 0.0);
        all.device_us
            .iter_mut()
            .zip(device_us)
            .for_each(|(longest, us)| *longest = us.max(*longest));
        all.wrong = match (all.wrong, wrong) {
            (Some(all), Some(own)) => Some(all.and(own)),
            (all, own) => all.or(own),
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_longest_and_wrong_elements_are_summed() {
        let reported = |ms: [u64; 2], device_us: [f64; 2], count| Reported {
            times: ms.map(Duration::from_millis).to_vec(),
            device_us: device_us.to_vec(),
            wrong: Some(Wrong { count, first: (count > 0).then(|| "here".into()) }),
        };
        let timed =
            together(vec![reported([1, 5], [9.0, 2.0], 0), reported([3, 4], [8.0, 7.0], 2)]);
        assert_eq!(timed.times, [3, 5].map(Duration::from_millis));
        assert_eq!(timed.device_us, [9.0, 7.0]);
        assert_eq!(timed.wrong, Some(Wrong { count: 2, first: Some("here".into()) }));
    }
}
