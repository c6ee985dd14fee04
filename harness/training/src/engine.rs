//! Horovod's background loop, fed by a replayed training job.
//!
//! Each rank runs one thread. Its loop sleeps until the next cycle is due, collects ready gradients, negotiates,
//! and executes the responses. A training step never resets the phase of the cycle, and an allreduce on the CPU
//! blocks the loop, both as in Horovod. The cycle time is a deadline: after a long cycle the next starts
//! immediately, and missed cycles are not made up for.

use std::sync::Mutex;

use algorithms::topology::Rank;
use transports::allreduce::AllReduce;
use transports::memory::Memory;
use transports::pattern::Wrong;
use transports::threads::{self, Arrivals, ControlChannel, LastStep, Links, run_ranks};
use transports::transport::{MessageChannel, NonblockingBarrier, Transport};
use workloads::replay::HostCosts;

use crate::background::Background;
use crate::gradients::{self, Gradients};
use crate::host::Host;
use crate::job::Job;
use crate::outcome::{BackEndError, EngineError, Outcome, RankLog};
use crate::threaded_host::ThreadedHost;

/// The memory of one rank, kept between jobs.
#[derive(Default)]
pub struct RankMemory {
    /// Its gradients and their sums.
    pub gradients: Gradients,
    /// The fusion buffer.
    pub fusion_buffer: Memory,
    /// The framework's own, of the first rank in a process. A process gets the smallest fragments of free memory first, and
    /// MPI takes longer to copy scattered pages.
    pub framework: Memory,
}

impl RankMemory {
    /// Touches the memory of the framework that a job replays, before that of gradients is allocated.
    pub fn touch_framework(&mut self, job: &Job) {
        let HostCosts { framework_bytes, .. } = job.times.host;
        if self.framework.size_bytes() != framework_bytes {
            self.framework = Memory::new(framework_bytes);
        }
    }
}

/// Runs a job on threads, one per rank. `memories` has one entry per rank.
///
/// # Errors
/// When ranks disagree, or a rank does not answer: the error of a rank that failed by itself.
pub fn run(job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError> {
    let ranks = job.topology.ranks();
    assert_eq!(memories.len(), ranks, "one memory per rank");
    for rank in 0..ranks {
        job.tensors(rank)?;
    }
    let data = Links::new(ranks, job.timeout);
    let (bits, control, arrivals) = (data.beside(), data.beside(), Arrivals::new(ranks));
    let schedules = job.data_plane.schedules(threads::NAME);
    let schedules =
        schedules.map_err(|error| EngineError::BackEnd(BackEndError::new(threads::NAME, error)))?;
    // This process has one framework.
    memories.iter_mut().take(1).for_each(|memory| memory.touch_framework(job));
    let slots: Vec<_> = memories.iter_mut().map(Mutex::new).collect();
    let logs = run_ranks(&[&data, &bits, &control], |rank| {
        let mut slot = slots[rank].lock().expect("only this rank takes it");
        let data = data.join(rank);
        let all_reduce = |fusion_buffer| schedules.on(data, job.sizes, fusion_buffer);
        let control = ControlChannel::new(control.join(rank));
        let beside = (bits.join(rank), control, LastStep(arrivals.clone()));
        run_rank(job, rank, all_reduce, beside, &mut slot)
    })?;
    drop(slots);
    let wrong = check(job, &logs[0], memories.iter().enumerate());
    Ok(Outcome { ranks: logs, negotiated: job.negotiates()?, wrong })
}

/// Runs one rank's part of a job on this thread, with gradients in host memory. `all_reduce` makes its part of the
/// data plane from a fusion buffer. The other arguments are connections for bit vectors and messages of the
/// control plane, and the barrier before the last step.
///
/// # Errors
/// When ranks disagree, or a rank does not answer.
pub fn run_rank<'a, B: Transport, M: MessageChannel, S: NonblockingBarrier>(
    job: &'a Job<'a>,
    rank: Rank,
    all_reduce: impl FnOnce(Memory) -> Box<dyn AllReduce + 'a>,
    beside: (B, M, S),
    memory: &mut RankMemory,
) -> Result<RankLog, EngineError> {
    let mut taken = std::mem::take(memory);
    let framework = std::mem::take(&mut taken.framework);
    std::thread::scope(|scope| {
        let (left, log) = if job.times.host.has_framework_thread() {
            let host = ThreadedHost::new(scope, job, rank, all_reduce, taken);
            let (host, log) = Background::new(job, rank, beside, host)?.run()?;
            (host.into_memory(), log)
        } else {
            let host = Host::new(scope, job, rank, all_reduce, taken);
            let (host, log) = Background::new(job, rank, beside, host)?.run()?;
            (host.into_memory(), log)
        };
        *memory = RankMemory { framework, ..left };
        Ok(log)
    })
}

/// Compares the final gradients of some ranks with the exact result.
pub fn check<'m>(
    job: &Job,
    log: &RankLog,
    memories: impl Iterator<Item = (Rank, &'m RankMemory)> + Clone,
) -> Wrong {
    let is_refused = |id| log.refused.iter().any(|(refused, _)| *refused == id);
    let results = memories.map(|(rank, memory)| (rank, &memory.gradients));
    gradients::check(job, results, is_refused)
}
