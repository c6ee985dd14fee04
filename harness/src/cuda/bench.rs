//! An allreduce alone on streams: repeated, timed by the host and by the devices, checked there.

pub(crate) mod line;

use std::time::{Duration, Instant};

use algorithms::program::Program;

use super::CudaError;
use super::collective::Seat;
use super::streams::{Event, Streams};
use crate::bench::{Bench, Timed};
use crate::programs::{choice_for, pipelined};
use line::Line;

/// Ranks on devices, each with its stream.
pub struct Ranks<S> {
    /// What carries out the work.
    pub streams: S,
    seats: Vec<Seat>,
    begin: Event,
    end: Event,
    /// Where each rank is through.
    through: Vec<Event>,
}

impl<S: Streams> Ranks<S> {
    /// So many ranks, neighbours on the same device.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn new(mut streams: S, ranks: usize) -> Result<Ranks<S>, CudaError> {
        let devices = streams.devices().len();
        let mut seats = Vec::new();
        for rank in 0..ranks {
            let device = rank * devices / ranks.max(devices);
            seats.push(Seat { device, stream: streams.stream(device)? });
        }
        let first = seats[0].device;
        let (begin, end) = (streams.event(first, true)?, streams.event(first, true)?);
        let mut through = Vec::new();
        for seat in &seats {
            through.push(streams.event(seat.device, false)?);
        }
        Ok(Ranks { streams, seats, begin, end, through })
    }

    /// The device of each rank, in words.
    pub fn devices(&self) -> Vec<String> {
        let names = self.streams.devices();
        let device = |seat: &Seat| format!("GPU {}: {}", seat.device, names[seat.device]);
        self.seats.iter().map(device).collect()
    }

    /// Runs a bench. Where devices have no clock, nothing is said of times.
    ///
    /// # Errors
    /// When memory does not suffice, or the driver refuses.
    ///
    /// # Panics
    /// When the data plane is not one of our algorithms.
    pub fn run(&mut self, bench: &Bench) -> Result<Timed, CudaError> {
        let mut line = Line::new(&mut self.streams, &self.seats, bench)?;
        let ended = self.repeat(&mut line, bench);
        // What went wrong first is what counts.
        let released = line.release(&mut self.streams);
        ended.and_then(|timed| released.map(|()| timed))
    }

    fn repeat(&mut self, line: &mut Line, bench: &Bench) -> Result<Timed, CudaError> {
        let (mut times, mut device_us) = (Vec::new(), Vec::new());
        for repetition in 0..bench.warmup + bench.repetitions {
            // What is checked is the last repetition, on data that no earlier one has touched.
            line.fill(&mut self.streams)?;
            self.meet()?;
            let (time, device) = self.once(line)?;
            if repetition >= bench.warmup {
                times.extend(device.map(|_| time));
                device_us.extend(device);
            }
        }
        let wrong = if bench.check { Some(line.check(&mut self.streams)?) } else { None };
        Ok(Timed { times, device_us, context_switches: None, wrong })
    }

    /// One allreduce, by the host's clock and the first device's.
    fn once(&mut self, line: &Line) -> Result<(Duration, Option<f64>), CudaError> {
        let Ranks { streams, seats, begin, end, through } = self;
        let (first, others) = seats.split_first().expect("a rank");
        let start = Instant::now();
        streams.record(first.stream, *begin)?;
        for seat in others {
            streams.wait(seat.stream, *begin)?;
        }
        line.enqueue(streams)?;
        for (seat, &through) in others.iter().zip(&through[1..]) {
            streams.record(seat.stream, through)?;
            streams.wait(first.stream, through)?;
        }
        streams.record(first.stream, *end)?;
        streams.synchronize(first.stream)?;
        let time = start.elapsed();
        Ok((time, streams.elapsed_us(*begin, *end)?))
    }

    /// The host waits for all ranks.
    fn meet(&mut self) -> Result<(), CudaError> {
        let Ranks { streams, seats, .. } = self;
        seats.iter().try_for_each(|seat| streams.synchronize(seat.stream))
    }
}

/// The programs of all ranks for a buffer of that size.
fn programs(bench: &Bench, size_bytes: usize) -> Vec<Program> {
    let choices = bench.data_plane.choices().expect("one of our algorithms");
    let schedule = &*choice_for(choices, size_bytes).schedule;
    let schedule = pipelined(schedule, size_bytes, bench.sizes.segment_bytes, false);
    (0..bench.topology.ranks()).map(|rank| Program::compile(&schedule, rank)).collect()
}

#[cfg(test)]
mod tests;
