//! The processes of an MPI job as a runner: all run the same programs, and all learn all times.

use crate::back_ends;
use std::time::Duration;
use training::back_end::BackEndRef;

use algorithms::topology::{Rank, Topology};

use crate::executor::preflight;
use crate::executor::reports::Reports;

use super::interruptions::{MOST, Watched};
use super::runner::{Program, Runner, RunnerError, beside};
use super::skew::{Starts, TIMES, leave};
use super::work::{Work, Worked};
use cluster::launch::Launched;
use cluster::nodes::place;
use cluster::preflight::Severity;
use results::provenance::Launch;
use transports::bench::{TIMEOUT, run_rank};
use transports::clock::Clock;
use transports::memory::Memory;
use transports::mpi::{MpiPlane, World, give_up};
use transports::transport::{Connections, TransportError};

/// Number of times that are sent in one message.
const AT_ONCE: usize = 8;

/// All processes of a job.
pub struct Processes {
    world: World,
    topology: Topology,
    members: Vec<Rank>,
    /// What the preflight has found, in sentences.
    findings: Vec<String>,
}

impl Processes {
    /// Joins the job; `ranks` of its processes take part, the same number on each node.
    ///
    /// # Errors
    /// When MPI or the preflight refuses, or nodes cannot have equally many ranks.
    pub fn join(ranks: Option<usize>, is_forced: bool) -> Result<Processes, RunnerError> {
        let world = World::join()?;
        let all = world.comm().ranks();
        if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(all)) {
            return Err(problem.into());
        }
        let mut launch = Launch::now();
        let mut reports = Reports::new(&world)?;
        // Ranks that share cores may be what is to be measured.
        let crowded = Severity::Warning;
        preflight::check((&world, &mut reports), &mut launch, crowded, Vec::new(), is_forced)
            .map_err(Box::new)?;
        let processes: Vec<usize> = world.nodes().iter().map(|node| node.ranks.len()).collect();
        let nodes = processes.len();
        let most = nodes * processes.iter().copied().min().unwrap_or(1);
        let ranks = ranks.unwrap_or(most);
        if ranks < 2 || !ranks.is_multiple_of(nodes) || ranks > most {
            return Err(RunnerError::Uneven { ranks, processes, most });
        }
        let topology = Topology::uniform(nodes, ranks / nodes);
        let (members, _) = place(world.nodes(), &topology)?;
        Ok(Processes { world, topology, members, findings: launch.forced })
    }

    /// This process's own times; none if it has no part.
    fn own(&mut self, program: &Program) -> Result<Vec<Duration>, TransportError> {
        let Some((rank, connections)) = self.world.connect(&self.members, TIMEOUT)? else {
            return Ok(Vec::new());
        };
        let Connections { data, bits, .. } = connections;
        let ended = program.bench(&self.topology, |bench| {
            let plane = MpiPlane::of(bench.data_plane).expect("a pattern is a schedule of ours");
            let own = plane.all_reduce(data, bench.sizes, Memory::default());
            run_rank(bench, rank, own, (bits, &Clock::default()))
        })?;
        Ok(ended.times.times)
    }

    /// When this process leaves barriers by rank 0's clock, followed by the largest error of that clock; empty if
    /// it has no part.
    fn own_starts(&mut self) -> Result<Vec<Duration>, TransportError> {
        let Some((rank, connections)) = self.world.connect(&self.members, TIMEOUT)? else {
            return Ok(Vec::new());
        };
        let Connections { bits, mut control, .. } = connections;
        let of_members = (rank, self.members.len());
        let mut clock = Clock::default();
        clock.compare(&mut control, of_members)?;
        let left_s = leave(bits, || clock.now_s())?;
        clock.compare(&mut control, of_members)?;
        let error_s = left_s.iter().map(|&left_s| clock.error_s(left_s)).fold(0.0, f64::max);
        let shared_s = left_s.iter().map(|&left_s| clock.rank0_s(left_s)).chain([error_s]);
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0));
        Ok(shared_s
            .map(|seconds| time(seconds).unwrap_or(Duration::from_nanos(u64::MAX)))
            .collect())
    }

    /// The times of each process, in their order.
    fn all(&self, own: &[Duration], count: usize) -> Result<Vec<Vec<f64>>, TransportError> {
        let mut all = vec![Vec::new(); self.world.comm().ranks()];
        for first in (0..count).step_by(AT_ONCE) {
            let mut reported = [0; 8 * AT_ONCE];
            for (place, time) in reported.chunks_mut(8).zip(own.iter().skip(first)) {
                place.copy_from_slice(&(time.as_nanos() as u64).to_ne_bytes());
            }
            let blocks = self.world.comm().all_gather(reported)?;
            for (times, block) in all.iter_mut().zip(&blocks) {
                let reported = block.chunks(8).take(count - first);
                let ns = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                times.extend(reported.map(|bytes| ns(bytes) as f64 * 1e-9));
            }
        }
        Ok(all)
    }

    /// The longest that any process took.
    fn longest(&self, own: &[Duration], count: usize) -> Result<Vec<f64>, TransportError> {
        let all = self.all(own, count)?;
        Ok((0..count).map(|at| all.iter().map(|times| times[at]).fold(0.0, f64::max)).collect())
    }
}

impl Runner for Processes {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn back_end(&self) -> BackEndRef {
        back_ends::default_of_processes()
    }

    fn findings(&self) -> &[String] {
        &self.findings
    }

    fn is_oversubscribed(&self) -> bool {
        self.world.nodes().iter().any(|node| node.is_crowded(&self.members))
    }

    fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    fn time(&mut self, program: &Program) -> Result<Vec<f64>, TransportError> {
        let times = self.own(program);
        let times = times.and_then(|own| self.longest(&own, program.repetitions));
        Ok(times.unwrap_or_else(|error| give_up(&error)))
    }

    fn work(&mut self, work: Work, times: usize) -> Result<Vec<Vec<Worked>>, TransportError> {
        let mut own = Vec::new();
        for _ in 0..times {
            // All begin together.
            self.world.comm().all_gather([0; 8])?;
            let Worked { time_s, interrupted_s } = work.time();
            own.extend([time_s, interrupted_s].map(Duration::from_secs_f64));
        }
        let all = self.all(&own, 2 * times)?;
        let worked = |pair: &[f64]| Worked { time_s: pair[0], interrupted_s: pair[1] };
        let of = |&rank: &Rank| all[rank].chunks(2).map(worked).collect();
        Ok(self.members.iter().map(of).collect())
    }

    fn watch(&mut self) -> Result<Vec<Watched>, TransportError> {
        // All begin together.
        self.world.comm().all_gather([0; 8])?;
        let Watched { time_s, interruptions_s } = Watched::here();
        let own: Vec<f64> = [time_s].into_iter().chain(interruptions_s).collect();
        let numbers = self.world.comm().all_gather((own.len() as u64).to_ne_bytes())?;
        let numbers: Vec<usize> =
            numbers.into_iter().map(|bytes| u64::from_ne_bytes(bytes) as usize).collect();
        let most = numbers.iter().copied().max().unwrap_or(1).min(1 + MOST);
        let own: Vec<Duration> = own.into_iter().map(Duration::from_secs_f64).collect();
        let all = self.all(&own, most)?;
        let of = |&rank: &Rank| {
            let times_s = &all[rank][..numbers[rank]];
            Watched { time_s: times_s[0], interruptions_s: times_s[1..].to_vec() }
        };
        Ok(self.members.iter().map(of).collect())
    }

    fn compute_beside(&mut self, program: &Program) -> Result<Vec<f64>, TransportError> {
        let (ran, own_s) = beside(1, || self.own(program));
        let own: Vec<Duration> = own_s.into_iter().map(Duration::from_secs_f64).collect();
        let all = ran.and_then(|_| self.all(&own, 1)).unwrap_or_else(|error| give_up(&error));
        Ok(self.members.iter().map(|&rank| all[rank][0]).collect())
    }

    fn starts(&mut self) -> Result<Starts, TransportError> {
        let reported = self.own_starts().and_then(|own| self.all(&own, TIMES + 1));
        let reported = reported.unwrap_or_else(|error| give_up(&error));
        let mut left_s: Vec<_> = self.members.iter().map(|&rank| reported[rank].clone()).collect();
        let errors_s = left_s.iter_mut().filter_map(Vec::pop);
        let clock_error_s = errors_s.fold(0.0, f64::max);
        Ok(Starts::of(&left_s, clock_error_s))
    }
}
