//! Faults that tests inject into a job.

use std::time::Duration;

use algorithms::control::TensorId;
use algorithms::topology::Rank;

/// Something that goes wrong on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has another shape of this gradient than the others.
    Mismatch {
        /// The rank.
        rank: Rank,
        /// The gradient.
        gradient: TensorId,
    },
    /// This gradient never becomes ready on it.
    Missing {
        /// The rank.
        rank: Rank,
        /// The gradient.
        gradient: TensorId,
    },
    /// The rank stops answering after it has executed a message of this step.
    Death {
        /// The rank.
        rank: Rank,
        /// The step.
        step: usize,
        /// How long its thread lingers, without a word.
        lingers: Duration,
    },
}
