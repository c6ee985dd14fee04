//! A world of any size in one thread: the cost of the planes alone, without messages or waits.

use std::time::{Duration, Instant};

use algorithms::control::Response;
use algorithms::control::lockstep::Lockstep;

use super::measured::{Check, DriveError, Job, MOST_CYCLES, Measured, Step};
use results::usage::context_switches;
use simulator::network::Reports;

/// Drives a case.
///
/// # Errors
/// When a plane reports an error.
pub fn run(job: &Job) -> Result<Measured, DriveError> {
    let start = Instant::now();
    let planes = (0..job.case.ranks).map(|rank| job.plane(rank)).collect();
    // The thread never waits: its time is CPU time, except for interruptions.
    let mut world = Lockstep::new(planes).with_clock(move || start.elapsed());
    let (mut steps, mut check) = (Vec::new(), Check::default());
    let mut counting = None;
    let stop_reason = loop {
        if let Some(reason) = job.stop_reason(steps.len(), counting) {
            break reason;
        }
        if steps.len() == job.measure.warmup_steps {
            counting = Some(Instant::now());
        }
        steps.push(step(job, &mut world, steps.len(), &mut check)?);
    };
    Ok(Measured { steps, stop_reason, check })
}

fn step(
    job: &Job,
    world: &mut Lockstep,
    number: usize,
    check: &mut Check,
) -> Result<Step, DriveError> {
    let ids = job.steps.of(number);
    let ready: Vec<_> = (0..job.case.ranks).map(|rank| job.steps.on(rank, number, &ids)).collect();
    let mut executed: Vec<Vec<Response>> = vec![Vec::new(); job.case.ranks];
    let mut step = Step::default();
    let switches = context_switches();
    let start = Instant::now();
    for (rank, ready) in ready.iter().enumerate() {
        world.ready(rank, ready)?;
    }
    step.all_ranks = start.elapsed();
    let mut waiting = ids.len();
    for _ in 0..MOST_CYCLES {
        if waiting == 0 {
            break;
        }
        let start = Instant::now();
        let agreed = world.cycle(Duration::ZERO)?;
        step.all_ranks += start.elapsed();
        let tensors: usize = agreed[0].iter().map(|message| message.tensors.len()).sum();
        waiting = waiting.saturating_sub(tensors);
        step.messages += agreed[0].len();
        step.idle_cycles += usize::from(agreed[0].is_empty());
        executed.iter_mut().zip(agreed).for_each(|(all, more)| all.extend_from_slice(more));
    }
    step.context_switches = context_switches().zip(switches).map(|(now, then)| now - then);
    if waiting > 0 {
        return Err(DriveError::Stuck { rank: 0, waiting, count: ids.len() });
    }
    step.rank_0 = world.take_rank_0();
    for rank in 0..job.case.ranks {
        let report = world.take_report(rank);
        let Reports { rank_0, last, all } = &mut step.reports;
        if rank == 0 {
            *rank_0 = report;
        }
        *last = report;
        *all += report;
    }
    check.step(number, &ids, &executed, |id| job.steps.tensors.get(id).name.clone());
    Ok(step)
}
