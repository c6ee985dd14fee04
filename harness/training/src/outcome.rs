//! The ranks' logs of a job, and errors that end it.

use std::sync::Arc;
use std::time::Duration;

use algorithms::control::{Report, TensorId};
use algorithms::fusion::Stop;
use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::negotiate::NegotiateError;
use crate::optimizer::Work;
use transports::pattern::Wrong;
use transports::transport::{CausedByTransport, TransportError};

/// One rank's log of one step. Times are since the job began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStep {
    /// From the start of the step to the end of the optimizer.
    pub time: Duration,
    /// When the loop saw its end, since 1970 UTC; zero if it is not known.
    pub ended: Duration,
    /// The step's time by a device's clock, if there is one.
    pub device: Option<Duration>,
    /// In allreduces, packing included.
    pub data: Duration,
    /// Copying into and out of the fusion buffer.
    pub packing: Duration,
    /// Combining received elements with own ones; none if a library or a device does.
    pub reduction: Option<Duration>,
    /// Work on gradients above the core.
    pub work: Work,
    /// Bytes of control messages sent.
    pub control_bytes: usize,
    /// The control plane's report.
    #[serde(with = "ReportFields")]
    pub report: Report,
    /// Sum over gradients of the time from ready to the start of the cycle.
    pub cycle_wait: Duration,
    /// Idle until the next cycle, with gradients ready that it takes: from the first that became ready.
    pub until_cycle: Duration,
    /// CPU time of the loop's thread; none where the system does not report it.
    pub cpu: Option<Duration>,
}

/// One allreduce of one or several gradients, as one rank saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMessage {
    /// The step that it belongs to.
    pub step: usize,
    /// How many gradients.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
    /// How long it took, packing included.
    pub time: Duration,
}

/// Everything one rank saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankLog {
    /// Each step.
    pub steps: Vec<RankStep>,
    /// Each message, in order; the same messages on all ranks.
    pub messages: Vec<RankMessage>,
    /// Each cycle; if ranks negotiate, the same number on all, since each is an exchange between all.
    pub cycles: Vec<RankCycle>,
    /// Gradients about which ranks disagreed, and how: they were not reduced, and the job went on. The
    /// same on all ranks.
    pub refused: Vec<(TensorId, String)>,
}

/// One cycle, as one rank saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCycle {
    /// The step in which it began; none between steps, while data are written.
    pub step: Option<usize>,
    /// In the control plane, waiting for the slowest rank included.
    pub negotiation: Duration,
    /// Messages agreed on.
    pub messages: usize,
}

/// The result of a job.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The log of each rank.
    pub ranks: Vec<RankLog>,
    /// Whether cycles negotiate between all ranks; with static buckets each rank has its own cycles.
    pub negotiated: bool,
    /// The check of the last step's data, those that were refused left out.
    pub wrong: Wrong,
}

impl Outcome {
    /// The disagreement of the ranks, if any.
    pub fn refusal(&self) -> Option<EngineError> {
        let refused = self.ranks.first().map_or(&[][..], |rank| &rank.refused);
        let (_, first) = refused.first()?;
        Some(EngineError::Refused(match refused.len() {
            1 => first.clone(),
            all => format!("{first} ({all} such errors)"),
        }))
    }
}

/// An error of what a back end works with: a driver, a device, a library.
#[derive(Clone, Debug, Error)]
#[error("{what}: {source}")]
pub struct BackEndError {
    /// The source, such as `device`.
    pub what: &'static str,
    /// The underlying error.
    pub source: Arc<dyn std::error::Error + Send + Sync>,
}

impl BackEndError {
    /// An error with its source.
    pub fn new(
        what: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> BackEndError {
        BackEndError { what, source: Arc::new(source) }
    }
}

impl PartialEq for BackEndError {
    fn eq(&self, other: &BackEndError) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for BackEndError {}

/// Why a job ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Ranks cannot agree.
    #[error(transparent)]
    Negotiate(#[from] NegotiateError),
    /// An allreduce failed.
    #[error("data plane: {0}")]
    Transport(#[from] TransportError),
    /// A driver, device or library of the back end failed.
    #[error("{0}")]
    BackEnd(BackEndError),
    /// The control plane reports an error for some tensors.
    #[error("{0}")]
    Refused(String),
    /// All ranks have shut down before the job was over.
    #[error("all ranks have shut down before the job was over; never reduced: {unfinished}")]
    ShutDown {
        /// Names of this rank's gradients that were ready.
        unfinished: String,
    },
    /// Gradients do not become ready.
    #[error(
        "rank {rank}: {} s after the last backward pass {missing}; see that every gradient becomes \
         ready in every step",
        waited.as_secs_f64()
    )]
    NeverReady {
        /// The waiting rank.
        rank: Rank,
        /// How long it has waited.
        waited: Duration,
        /// Which gradients, of which group.
        missing: String,
    },
}

impl CausedByTransport for EngineError {
    fn transport_error(&self) -> Option<&TransportError> {
        match self {
            EngineError::Transport(error)
            | EngineError::Negotiate(NegotiateError::Transport(error)) => Some(error),
            _ => None,
        }
    }
}

/// The fields of a [`Report`], serialized to exchange it between processes.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Report")]
struct ReportFields {
    cycles: usize,
    slow_cycles: usize,
    hits: usize,
    misses: usize,
    invalid: usize,
    evictions: usize,
    stops: [usize; Stop::ALL.len()],
    messages_sent: usize,
    messages_received: usize,
    bytes_wire_sent: usize,
    bytes_wire_received: usize,
    bytes_horovod_sent: usize,
    bitwise: usize,
    bitwise_bytes: usize,
}
