//! A world on threads, one per rank: messages and bits travel over the same lines as in the engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use algorithms::control::{Report, Response};
use algorithms::topology::Rank;

use super::measured::{Check, DriveError, Job, MOST_CYCLES, Measured, Step};
use results::usage::context_switches;
use simulator::network::Reports;
use training::negotiate::Negotiator;
use transports::bench::Barrier;
use transports::threads::{ControlChannel, Endpoint, Links, run_ranks};

/// One rank's log of one step.
#[derive(Default)]
struct RankStep {
    time: Duration,
    cycles: Vec<Duration>,
    idle_cycles: usize,
    executed: Vec<Response>,
    report: Report,
    context_switches: Option<u64>,
}

/// How a rank's steps ended.
struct RankLog {
    steps: Vec<RankStep>,
    /// Set by rank 0.
    stop_reason: &'static str,
}

/// Drives a case.
///
/// # Errors
/// That of a rank that failed by itself.
pub fn run(job: &Job) -> Result<Measured, DriveError> {
    let timeout = Duration::from_secs_f64(job.measure.timeout_seconds);
    let [bits, control, barrier] = [(); 3].map(|()| Links::new(job.case.ranks, timeout));
    let stop_at = AtomicUsize::new(usize::MAX);
    let logs = run_ranks(&[&bits, &control, &barrier], |rank| {
        let control = ControlChannel::new(control.join(rank));
        let negotiator = Negotiator::new(job.plane(rank), control, bits.join(rank));
        run_rank(job, rank, negotiator, Barrier::new(barrier.join(rank)), &stop_at)
    })?;
    let stop_reason = logs[0].stop_reason;
    let mut check = Check::default();
    let mut ranks: Vec<_> = logs.into_iter().map(|log| log.steps.into_iter()).collect();
    let mut steps = Vec::new();
    loop {
        let of_ranks: Vec<RankStep> = ranks.iter_mut().filter_map(Iterator::next).collect();
        if of_ranks.is_empty() {
            break;
        }
        let executed: Vec<&[Response]> = of_ranks.iter().map(|step| &*step.executed).collect();
        let ids = job.steps.of(steps.len());
        check.step(steps.len(), &ids, &executed, |id| job.steps.tensors.get(id).name.clone());
        steps.push(joined(&of_ranks));
    }
    Ok(Measured { steps, stop_reason, check })
}

/// All ranks run each step together, until rank 0 ends the run.
fn run_rank(
    job: &Job,
    rank: Rank,
    mut negotiator: Negotiator<Endpoint, ControlChannel>,
    mut barrier: Barrier,
    stop_at: &AtomicUsize,
) -> Result<RankLog, DriveError> {
    let mut steps = Vec::new();
    let mut counting = None;
    let mut stop_reason = "";
    loop {
        if rank == 0 {
            if let Some(reason) = job.stop_reason(steps.len(), counting) {
                stop_reason = reason;
                stop_at.store(steps.len(), Ordering::Relaxed);
            }
            if steps.len() == job.measure.warmup_steps {
                counting = Some(Instant::now());
            }
        }
        let ready = job.steps.on(rank, steps.len(), &job.steps.of(steps.len()));
        let mut step = RankStep::default();
        let switches = context_switches();
        // The barrier publishes rank 0's stores.
        barrier.wait()?;
        if steps.len() >= stop_at.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let mut ready = &ready[..];
        let (count, mut done) = (ready.len(), 0);
        while done < count {
            if step.cycles.len() == MOST_CYCLES {
                return Err(DriveError::Stuck { rank, waiting: count - done, count });
            }
            let cycle_start = Instant::now();
            let before = step.executed.len();
            negotiator.cycle(std::mem::take(&mut ready), &mut step.executed)?;
            step.cycles.push(cycle_start.elapsed());
            let new = &step.executed[before..];
            step.idle_cycles += usize::from(new.is_empty());
            done += new.iter().map(|message| message.tensors.len()).sum::<usize>();
        }
        step.time = start.elapsed();
        step.context_switches = context_switches().zip(switches).map(|(now, then)| now - then);
        step.report = negotiator.take_report();
        steps.push(step);
    }
    negotiator.flush()?;
    Ok(RankLog { steps, stop_reason })
}

/// Combines the ranks' logs of a step.
fn joined(ranks: &[RankStep]) -> Step {
    let (first, last) = (&ranks[0], &ranks[ranks.len() - 1]);
    let mut all = Report::default();
    ranks.iter().for_each(|rank| all += rank.report);
    // The rank that enters a cycle last does not wait.
    let cycle = |index: usize| ranks.iter().filter_map(|rank| rank.cycles.get(index)).min();
    Step {
        time: ranks.iter().map(|rank| rank.time).max().unwrap_or_default(),
        cycles: (0..first.cycles.len()).filter_map(|index| cycle(index).copied()).collect(),
        idle_cycles: first.idle_cycles,
        messages: first.executed.len(),
        reports: Reports { rank_0: first.report, last: last.report, all },
        context_switches: ranks.iter().map(|rank| rank.context_switches).sum(),
        ..Step::default()
    }
}
