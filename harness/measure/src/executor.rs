//! Executes the blocks of a sweep: in this process, or together with all processes of an MPI job.

mod error;
#[cfg(feature = "mpi")]
mod links;
mod local;
#[cfg(feature = "mpi")]
pub mod preflight;
#[cfg(feature = "mpi")]
mod processes;
#[cfg(feature = "mpi")]
pub mod reports;

pub use error::{BuiltWithoutMpi, ExecutorError};
pub use local::Local;

use crate::back_ends::has_processes;
use crate::plan::Plan;
use cluster::launch::Launched;
use results::conditions::Counters;
use results::journal::Journal;
use results::provenance::Launch;
use training::back_end::{BackEndRef, RankKind};
use training::outcome::{EngineError, Outcome};
use training::timeline::record::Record;

/// One block of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The case: its position in the plan.
    pub index: usize,
    /// Seed of the data.
    pub seed: u64,
    /// Steps before those that count.
    pub warmup_steps: usize,
    /// Each rank records what it does, for a timeline.
    pub is_recorded: bool,
}

/// How a block ended.
pub struct BlockResult {
    /// What the ranks saw, or what went wrong.
    pub outcome: Result<Outcome, EngineError>,
    /// What each rank recorded, if that was requested.
    pub records: Option<Vec<Vec<Record>>>,
}

/// Executes blocks: this process alone, or together with all processes of a job.
pub trait BlockExecutor {
    /// Executes a block.
    fn run(&mut self, plan: &Plan, request: BlockRequest) -> BlockResult;

    /// Whether a block that fails may end the process. If so, each block is written to the journal before it
    /// begins.
    fn keeps(&mut self, _: &Journal) -> bool {
        false
    }

    /// What the system has counted so far; none if blocks do not run on it.
    fn counters(&self) -> Option<Counters> {
        Some(Counters::now())
    }
}

/// Makes the executor of a plan's blocks, and gives cases whose ranks are processes their processes. Returns none in
/// a process that only followed rank 0, once the sweep is over. A failed check of the processes ends the sweep;
/// with `forced` it is recorded in `launch`, as what the processes are is in any case.
///
/// # Errors
/// When the started processes do not fit the plan, or disagree about it.
pub fn assemble(
    plan: &mut Plan,
    launch: &mut Launch,
    forced: bool,
) -> Result<Option<Box<dyn BlockExecutor>>, ExecutorError> {
    let launched = Launched::here().filter(|launched| launched.tasks > 1);
    let needs_processes = plan.cases.iter().any(|planned| has_processes(planned.case.transport));
    match launched {
        Some(Launched { tasks, .. }) if !needs_processes => {
            Err(ExecutorError::SeveralProcesses { tasks })
        }
        // Who follows rank 0 needs none.
        Some(Launched { rank: 1.., .. }) => join(Local::default(), plan, launch, forced),
        _ => {
            let local = Local::open(plan, launch)?;
            if needs_processes {
                join(local, plan, launch, forced)
            } else {
                Ok(Some(Box::new(local)))
            }
        }
    }
}

/// Each back end of a plan's cases that `suits`, once.
fn back_ends_of(plan: &Plan, suits: impl Fn(RankKind) -> bool) -> Vec<BackEndRef> {
    let mut found: Vec<BackEndRef> = Vec::new();
    for planned in plan.cases.iter().filter(|planned| suits(planned.case.transport.rank_kind())) {
        if !found.contains(&planned.case.transport) {
            found.push(planned.case.transport);
        }
    }
    found
}

#[cfg(not(feature = "mpi"))]
fn join(
    local: Local,
    plan: &mut Plan,
    _: &mut Launch,
    _: bool,
) -> Result<Option<Box<dyn BlockExecutor>>, ExecutorError> {
    if plan.cases.iter().all(|planned| has_processes(planned.case.transport)) {
        return Err(BuiltWithoutMpi.into());
    }
    plan.place(Err(BuiltWithoutMpi));
    Ok(Some(Box::new(local)))
}

#[cfg(feature = "mpi")]
fn join(
    local: Local,
    plan: &mut Plan,
    launch: &mut Launch,
    forced: bool,
) -> Result<Option<Box<dyn BlockExecutor>>, ExecutorError> {
    use transports::mpi::World;
    let world = World::join()?;
    let ranks = world.comm().ranks();
    if let Some(problem) = Launched::here().and_then(|launched| launched.contradicts(ranks)) {
        return Err(problem.into());
    }
    plan.place(Ok(world.nodes()));
    let mut processes = processes::Processes::new(world, local)?;
    let ready = processes
        .agree_on(plan)
        .and_then(|()| processes.join_back_ends(plan, launch))
        .and_then(|()| processes.look_around(launch, forced))
        .and_then(|()| Ok(processes.watch(plan)?));
    if let Err(error) = ready {
        // All processes have the same error, and rank 0 reports it.
        return if processes.leads() { Err(error) } else { Ok(None) };
    }
    if processes.leads() {
        return Ok(Some(Box::new(processes)));
    }
    processes.follow(plan)?;
    Ok(None)
}
