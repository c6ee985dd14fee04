//! The result of driving a world of control planes: steps, and whether all ranks executed the same.

use std::time::{Duration, Instant};

use algorithms::control::{self, ControlError, ControlPlane, Response, Settings, TensorId};
use algorithms::topology::Rank;
use thiserror::Error;

use super::config::{Case, Measure};
use super::tensors::Steps;
use simulator::network::Reports;
use training::negotiate::NegotiateError;
use transports::transport::{CausedByTransport, TransportError};

/// The case to run.
pub struct Job<'a> {
    /// The setting.
    pub case: &'a Case,
    /// Tensors that become ready in each step.
    pub steps: &'a Steps,
    /// How long.
    pub measure: &'a Measure,
    /// Fusion threshold.
    pub fusion_threshold_bytes: usize,
}

/// A step in which everything is ready takes a cycle or two; after this many it has failed.
pub const MOST_CYCLES: usize = 100;

impl Job<'_> {
    /// The plane of a rank.
    pub fn plane(&self, rank: Rank) -> Box<dyn ControlPlane> {
        let settings = Settings {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cache_capacity: self.case.cache_capacity,
            stall_check: None,
            ..Settings::new(rank, self.case.ranks)
        };
        let tensors = self.steps.tensors.clone();
        control::find(&self.case.plane, tensors, &settings).expect("the configuration was checked")
    }

    /// Why the case ends after this many steps, if it does; `counting` is the time since the warm-up.
    pub fn stop_reason(&self, steps: usize, counting: Option<Instant>) -> Option<&'static str> {
        let counted = steps.checked_sub(self.measure.warmup_steps)?;
        let is_over = |start: Instant| start.elapsed().as_secs_f64() > self.measure.budget_seconds;
        if counted < self.measure.steps_min {
            None
        } else if counted >= self.measure.steps_max {
            Some("count")
        } else {
            counting.is_some_and(is_over).then_some("budget")
        }
    }
}

/// One step: everything becomes ready on all ranks, and is negotiated.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// In lockstep: time of rank 0.
    pub rank_0: Duration,
    /// In lockstep: time of all ranks, one after the other.
    pub all_ranks: Duration,
    /// On threads: the longest that a rank took.
    pub time: Duration,
    /// On threads: each cycle, as the rank saw it that came last.
    pub cycles: Vec<Duration>,
    /// Cycles without a response.
    pub idle_cycles: usize,
    /// Messages agreed on.
    pub messages: usize,
    /// The planes' reports.
    pub reports: Reports,
    /// Of all threads; unknown outside Linux.
    pub context_switches: Option<u64>,
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Each step, the warm-up included.
    pub steps: Vec<Step>,
    /// Why the case ended.
    pub stop_reason: &'static str,
    /// The result of the checks.
    pub check: Check,
}

/// Why a case ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriveError {
    /// A control plane reported an error, or a rank does not answer.
    #[error(transparent)]
    Negotiate(#[from] NegotiateError),
    /// A rank does not come to the barrier.
    #[error("barrier: {0}")]
    Transport(#[from] TransportError),
    /// Cycles pass and tensors wait.
    #[error(
        "rank {rank}: {waiting} of {count} tensors are not reduced after {MOST_CYCLES} cycles, although all are ready"
    )]
    #[allow(missing_docs, reason = "Display says what they mean")]
    Stuck { rank: Rank, waiting: usize, count: usize },
}

impl From<ControlError> for DriveError {
    fn from(error: ControlError) -> DriveError {
        NegotiateError::from(error).into()
    }
}

impl CausedByTransport for DriveError {
    fn transport_error(&self) -> Option<&TransportError> {
        match self {
            DriveError::Transport(error)
            | DriveError::Negotiate(NegotiateError::Transport(error)) => Some(error),
            _ => None,
        }
    }
}

/// Counts errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Ranks that executed other messages than rank 0, and tensors that were not executed once.
    pub wrong: usize,
    /// The first error.
    pub first: Option<String>,
}

impl Check {
    /// Checks one step: the ready tensors, and what each rank executed.
    pub fn step(
        &mut self,
        step: usize,
        ready: &[TensorId],
        executed: &[impl AsRef<[Response]>],
        name: impl Fn(TensorId) -> String,
    ) {
        let Some(of_rank_0) = executed.first().map(AsRef::as_ref) else { return };
        for (rank, other) in executed.iter().enumerate().skip(1) {
            if other.as_ref() != of_rank_0 {
                self.add(|| {
                    format!("step {step}: rank {rank} executed other messages than rank 0")
                });
            }
        }
        let mut left: Vec<TensorId> = ready.to_vec();
        left.sort_unstable();
        for response in of_rank_0 {
            if let Some(error) = &response.error {
                self.add(|| format!("step {step}: {error}"));
            }
            for &id in &*response.tensors {
                match left.binary_search(&id) {
                    Ok(at) => drop(left.remove(at)),
                    Err(_) => self.add(|| {
                        let name = name(id);
                        format!("step {step}: \"{name}\" was executed twice, or was not ready")
                    }),
                }
            }
        }
        for id in left {
            self.add(|| format!("step {step}: \"{}\" was not executed", name(id)));
        }
    }

    fn add(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first.get_or_insert_with(what);
    }
}

#[cfg(test)]
mod tests {
    use algorithms::fusion::Stop;

    use super::*;

    fn message(tensors: &[TensorId], error: Option<&str>) -> Response {
        Response { tensors: tensors.into(), error: error.map(Into::into), stop: Stop::Alone }
    }

    #[test]
    fn every_rank_executes_the_same_and_each_tensor_once() {
        let right = || vec![message(&[2, 0], None), message(&[1], None)];
        let swapped = vec![message(&[1], None), message(&[2, 0], None)];
        let twice = vec![message(&[2, 0], None), message(&[1, 0], None)];
        let missing = vec![message(&[2], None), message(&[1], None)];
        let refused = vec![message(&[2, 0], None), message(&[1], Some("shapes differ"))];
        for (executed, wrong, first) in [
            (vec![right(), right(), right()], 0, None),
            (vec![right()], 0, None),
            (
                vec![right(), right(), swapped],
                1,
                Some("step 3: rank 2 executed other messages than rank 0"),
            ),
            (
                vec![twice.clone(), twice],
                1,
                Some("step 3: \"t0\" was executed twice, or was not ready"),
            ),
            (vec![missing.clone(), missing], 1, Some("step 3: \"t0\" was not executed")),
            (vec![refused.clone(), refused], 1, Some("step 3: shapes differ")),
            (
                vec![right(), Vec::new()],
                1,
                Some("step 3: rank 1 executed other messages than rank 0"),
            ),
            (vec![Vec::new(), Vec::new()], 3, Some("step 3: \"t0\" was not executed")),
        ] {
            let mut check = Check::default();
            check.step(3, &[1, 0, 2], &executed, |id| format!("t{id}"));
            assert_eq!((check.wrong, check.first.as_deref()), (wrong, first));
        }
    }
}
