//! Runs the programs of a calibration, on threads of this process or on all processes of an MPI job.

use crate::back_ends;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use training::back_end::BackEndRef;

use algorithms::control::{DataType, ReduceOp};
use algorithms::topology::Topology;

use super::interruptions::Watched;
pub use super::runner_error::RunnerError;
use super::skew::{self, Starts};
use super::work::{Work, Worked};
use cluster::launch::Launched;
use results::provenance::cores;
use transports::allreduce::Sizes;
use transports::bench::{Bench, Start, TIMEOUT, run};
use transports::data_plane::DataPlane;
use transports::threads::{Links, run_ranks};
use transports::transport::TransportError;

/// Runs programs over a world.
pub trait Runner {
    /// The topology of its ranks: nodes of equal size.
    fn topology(&self) -> &Topology;

    /// The back end of its ranks.
    fn back_end(&self) -> BackEndRef;

    /// A node has fewer cores than ranks.
    fn is_oversubscribed(&self) -> bool;

    /// Whether this process prints.
    fn leads(&self) -> bool;

    /// What the checks before the job have found, in sentences.
    fn findings(&self) -> &[String] {
        &[]
    }

    /// Seconds of each repetition, the longest that any rank took; the same in all processes.
    ///
    /// # Errors
    /// When a rank does not answer.
    fn time(&mut self, program: &Program) -> Result<Vec<f64>, TransportError>;

    /// How long each rank takes for the same work, all at the same time, `times` times; the same in all processes.
    ///
    /// # Errors
    /// When a rank does not answer.
    fn work(&mut self, work: Work, times: usize) -> Result<Vec<Vec<Worked>>, TransportError>;

    /// What interrupts each rank while all compute at the same time; the same in all processes.
    ///
    /// # Errors
    /// When a rank does not answer.
    fn watch(&mut self) -> Result<Vec<Watched>, TransportError>;

    /// Seconds, in the median, that each rank's second thread takes for [`Work::Compute`] while the first one runs a
    /// program; the same in all processes.
    ///
    /// # Errors
    /// When a rank does not answer.
    fn compute_beside(&mut self, program: &Program) -> Result<Vec<f64>, TransportError>;

    /// How far apart ranks leave barriers; the same in all processes.
    ///
    /// # Errors
    /// When a rank does not answer.
    fn starts(&mut self) -> Result<Starts, TransportError>;
}

/// The program to run.
#[derive(Clone, Copy)]
pub struct Program<'p> {
    /// The schedule, in place on `f32` that are multiplied: for products every rank writes its input anew before
    /// each repetition, as a backward pass does, so that no data are in another core's cache from the previous
    /// repetition.
    pub plane: &'p DataPlane,
    /// Size of each rank's buffer.
    pub size_bytes: usize,
    /// Length of segments; 0: none.
    pub segment_bytes: usize,
    /// Repetitions of the warm-up.
    pub warmup: usize,
    /// Measured repetitions.
    pub repetitions: usize,
}

impl Program<'_> {
    /// Calls `then` with the benchmark of this program on a world.
    pub(super) fn bench<T>(&self, topology: &Topology, then: impl FnOnce(&Bench) -> T) -> T {
        then(&Bench {
            data_plane: self.plane,
            topology,
            dtype: DataType::F32,
            op: ReduceOp::Product,
            sizes: Sizes { segment_bytes: self.segment_bytes, packing_bytes: 0 },
            tensors: &[self.size_bytes / size_of::<f32>()],
            in_place: true,
            warmup: self.warmup,
            repetitions: self.repetitions,
            start: Start::Barrier,
            check: false,
            seed: 0,
        })
    }
}

/// Threads of this process, on one node.
pub struct Threads(Topology);

impl Threads {
    /// The number of ranks.
    pub fn new(ranks: usize) -> Threads {
        Threads(Topology::uniform(1, ranks))
    }

    /// Lets each rank work on a thread, with a barrier of all.
    fn at_once<T: Send>(&self, rank: impl Fn(&Barrier) -> T + Sync) -> Vec<T> {
        let barrier = Barrier::new(self.0.ranks());
        let rank = || rank(&barrier);
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..self.0.ranks()).map(|_| scope.spawn(rank)).collect();
            ranks.into_iter().map(|rank| rank.join().expect("work does not fail")).collect()
        })
    }
}

impl Runner for Threads {
    fn topology(&self) -> &Topology {
        &self.0
    }

    fn back_end(&self) -> BackEndRef {
        back_ends::default()
    }

    fn is_oversubscribed(&self) -> bool {
        self.0.ranks() > cores()
    }

    fn leads(&self) -> bool {
        true
    }

    fn time(&mut self, program: &Program) -> Result<Vec<f64>, TransportError> {
        let timed = program.bench(&self.0, run)?;
        Ok(timed.times.iter().map(|time| time.as_secs_f64()).collect())
    }

    fn work(&mut self, work: Work, times: usize) -> Result<Vec<Vec<Worked>>, TransportError> {
        Ok(self.at_once(|barrier| {
            let one = |_| {
                barrier.wait();
                work.time()
            };
            (0..times).map(one).collect()
        }))
    }

    fn watch(&mut self) -> Result<Vec<Watched>, TransportError> {
        Ok(self.at_once(|barrier| {
            barrier.wait();
            Watched::here()
        }))
    }

    fn compute_beside(&mut self, program: &Program) -> Result<Vec<f64>, TransportError> {
        let ranks = self.0.ranks();
        let (result, times) = beside(ranks, || self.time(program));
        result.map(|_| times)
    }

    fn starts(&mut self) -> Result<Starts, TransportError> {
        let (links, clock) = (Links::new(self.0.ranks(), TIMEOUT), Instant::now());
        let left_s = run_ranks(&[&links], |rank| {
            skew::leave(links.join(rank), || clock.elapsed().as_secs_f64())
        })?;
        Ok(Starts::of(&left_s, 0.0))
    }
}

/// Runs `program` here, and [`Work::Compute`] on `threads` further threads until it has ended: its result, and the median
/// time of each thread in seconds.
pub(super) fn beside<T>(threads: usize, program: impl FnOnce() -> T) -> (T, Vec<f64>) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let compute = || {
            let mut times = vec![Work::Compute.time().time_s];
            while !has_ended.load(Ordering::Relaxed) {
                times.push(Work::Compute.time().time_s);
            }
            times.sort_unstable_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compute)).collect();
        let result = program();
        has_ended.store(true, Ordering::Relaxed);
        let times = threads.into_iter().map(|one| one.join().expect("computing does not fail"));
        (result, times.collect())
    })
}

/// The runner of a back end with all ranks, or with `ranks` of them.
///
/// # Errors
/// When what was started, or asked for, cannot be the ranks of a calibration.
pub fn assemble(
    back_end: BackEndRef,
    ranks: Option<usize>,
    is_forced: bool,
) -> Result<Box<dyn Runner>, RunnerError> {
    if let Some(ranks @ (0 | 1)) = ranks {
        return Err(RunnerError::TooFewRanks { ranks });
    }
    let started = Launched::here().filter(|launched| launched.tasks > 1);
    match started {
        _ if back_end == back_ends::default_of_processes() => processes(ranks, is_forced),
        _ if back_end != back_ends::default() => Err(RunnerError::Unmeasured { back_end }),
        Some(Launched { tasks, .. }) => Err(RunnerError::SeveralProcesses { tasks }),
        None => Ok(Box::new(Threads::new(ranks.unwrap_or(cores().max(2))))),
    }
}

#[cfg(not(feature = "mpi"))]
fn processes(_: Option<usize>, _: bool) -> Result<Box<dyn Runner>, RunnerError> {
    Err(RunnerError::BuiltWithoutMpi)
}

#[cfg(feature = "mpi")]
fn processes(ranks: Option<usize>, is_forced: bool) -> Result<Box<dyn Runner>, RunnerError> {
    super::processes::Processes::join(ranks, is_forced).map(|processes| Box::new(processes) as _)
}
