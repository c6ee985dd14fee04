//! The training that a background loop drives: it produces gradients and reduces them.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use algorithms::control::TensorId;
use algorithms::topology::Rank;

use crate::fault::Fault;
use crate::gradients::Gradients;
use crate::job::Job;
use crate::optimizer::Work;
use crate::outcome::EngineError;
use algorithms::control::Reduction;
use transports::transport::NonblockingBarrier;
use workloads::groups::Missing;

/// One rank's training. Only [`Trainer::reduce`] on processors waits for another rank.
pub trait Trainer {
    /// The first step begins.
    ///
    /// # Errors
    /// When a device call fails.
    fn begin(&mut self, start: Instant) -> Result<(), EngineError>;

    /// No step runs, since the data of the last one are not there yet.
    fn is_waiting(&self) -> bool;

    /// Continues writing the data of the last step; true if the step begins now.
    ///
    /// # Errors
    /// When a device call fails.
    fn begin_last_step(
        &mut self,
        barrier: &mut impl NonblockingBarrier,
    ) -> Result<bool, EngineError>;

    /// Since when this rank has the data of the last step.
    fn written(&self) -> Option<Instant>;

    /// When the running step began or will begin.
    fn begun(&self) -> Option<Instant>;

    /// When a gradient of the running step became ready, if known.
    fn ready_at(&self, gradient: TensorId) -> Option<Instant>;

    /// Takes the gradients that are ready by now, and appends those that are handed over. Returns how long
    /// they have waited in the last pass, summed up.
    ///
    /// # Errors
    /// When a device has failed.
    fn take_ready(
        &mut self,
        now: Instant,
        hand_over: &mut Vec<TensorId>,
    ) -> Result<Duration, EngineError>;

    /// How long until something may become ready; none if it is due.
    fn until_next(&self, now: Instant) -> Option<Duration>;

    /// When the last backward pass of the running step ended, if known.
    fn backward_end(&self) -> Option<Instant>;

    /// Gradients that the step still waits for.
    fn missing(&self) -> Option<Missing>;

    /// Begins, now, to reduce a message: several gradients as one vector. It may be over at once, or later.
    ///
    /// # Errors
    /// When a rank does not answer, or a device call fails.
    fn reduce(
        &mut self,
        start: Instant,
        tensors: &[TensorId],
        reduction: Reduction,
    ) -> Result<(), EngineError>;

    /// These gradients will not be reduced in this step.
    fn refuse(&mut self, tensors: &[TensorId]);

    /// The next message that is over, in the order in which they began.
    ///
    /// # Errors
    /// When a device has failed, or at the timeout of a message.
    fn reduced(&mut self) -> Result<Option<Reduced>, EngineError>;

    /// How long to sleep before polling again, while messages are in flight.
    fn nap(&self) -> Option<Duration>;

    /// Whether the step has ended. If `goes_on`, the next one begins.
    ///
    /// # Errors
    /// When a device call fails.
    fn ended(&mut self, now: Instant, goes_on: bool) -> Result<Option<EndedStep>, EngineError>;
}

/// A step that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStep {
    /// How long it took, the optimizer included.
    pub time: Duration,
    /// The same by a device's clock, if there is one.
    pub device: Option<Duration>,
    /// Work on gradients in it.
    pub work: Work,
}

/// A message that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// The end of the message.
    pub end: Instant,
    /// How long it took, packing included.
    pub time: Duration,
    /// Copying into the fusion buffer.
    pub packing: Duration,
    /// Copying back.
    pub unpacking: Duration,
    /// Combining elements; none if it is not timed apart.
    pub reduction: Option<Duration>,
    /// How many gradients.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
}

/// The location of the last step's data. Another thread writes them anew before the step begins, so that the loop
/// keeps its cycle, as it does while a framework loads data.
pub enum Place<'scope> {
    /// Here, with the results of earlier steps.
    Stale(Gradients),
    /// With the thread that writes them.
    Away(ScopedJoinHandle<'scope, Gradients>),
    /// Here, for the last step, since this time.
    Fresh(Gradients, Instant),
}

impl<'scope> Place<'scope> {
    /// Begins to write, or looks whether that is over.
    pub fn advance<'a: 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        job: &'a Job<'a>,
        rank: Rank,
    ) -> Place<'scope> {
        match self {
            Place::Stale(mut gradients) => Place::Away(scope.spawn(move || {
                gradients.fill(job, rank);
                gradients
            })),
            Place::Away(writer) if writer.is_finished() => {
                let gradients = writer.join().expect("writing gradients panicked");
                Place::Fresh(gradients, Instant::now())
            }
            other => other,
        }
    }

    /// The gradients.
    ///
    /// # Panics
    /// While they are written.
    pub fn here(&mut self) -> &mut Gradients {
        match self {
            Place::Stale(gradients) | Place::Fresh(gradients, _) => gradients,
            Place::Away(_) => unreachable!("no tensor is ready while gradients are away"),
        }
    }

    /// Since when they are written.
    pub fn written(&self) -> Option<Instant> {
        match self {
            Place::Fresh(_, written) => Some(*written),
            _ => None,
        }
    }
}

impl Default for Place<'_> {
    fn default() -> Self {
        Place::Stale(Gradients::default())
    }
}

/// A fault: this rank never sees this gradient.
pub fn is_lost(job: &Job, rank: Rank, gradient: TensorId) -> bool {
    matches!(job.fault, Some(Fault::Missing { rank: who, gradient: lost }) if (who, lost) == (rank, gradient))
}
