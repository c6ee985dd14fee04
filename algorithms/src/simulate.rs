//! How long a collective takes on a machine, in virtual time.
//!
//! | engine | does | for |
//! |---|---|---|
//! | [`crate::cost`] | sums the slowest rank of every step | coefficients, bounds |
//! | [`rounds`] | the clock of each rank, step by step; of ranks that do the same, one | whole machines |
//! | [`events`] | every message, in the order of time | overlap and contention across steps |
//!
//! They depend on no algorithm, only on a [`crate::schedule::Schedule`] and a [`machine::Machine`].
//!
//! **Common assumptions.** A rank sends a step's messages when it has received and reduced all messages of the step
//! before, or of an earlier one if the schedule allows it ([`crate::schedule::Schedule::lag`]); it does not wait for
//! other ranks (receives are posted ahead). Its messages leave one after another through two ports, one to its own
//! node and one to the network. Messages of a step pass the receiving port in the order of arrival, after those of
//! earlier steps, and are then reduced one at a time, while the next one arrives. Without contention a message of m bytes
//! that begins at t has arrived at t + alpha + m beta, and is reduced kappa + m gamma later. Alpha may grow with m, and
//! beta with the number of partners; see [`machine::Protocol`].
//!
//! **Differences.**
//! - The capacities that the ranks of a node share ([`machine::Shared`]: network cards, the node's link to
//!   the network, the bus between sockets) are divided max-min fairly among the messages of a step by
//!   [`rounds`]; in [`events`] messages pass them one after another, whatever their step. With one rank
//!   per node nothing is shared, and both agree to the last digits.
//! - Only in [`events`] is a message announced, and waits behind data of the same pair of ranks.
//! - In [`crate::cost`] no rank is ahead of the others, so every step of a ring costs the slowest link,
//!   where the others give the mean over all links of the ring; and reducing begins after the last message
//!   of a step. With one rank per node and gamma = 0 it agrees for schedules in which all ranks do the
//!   same. (The messages of a step share a link there, and queue here.)
//!
//! Chunks are assumed to have equal length: bytes over chunks, as a fraction.

mod clock;
pub mod events;
pub mod goal;
pub mod machine;
pub mod nccl;
mod paths;
mod radix_heap;
pub mod rounds;
mod sharing;

use std::fmt;

use crate::schedule::Schedule;
use crate::topology::Rank;

/// When a collective ends, and what its time consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last rank ends, with the parts of its time; ranks begin at 0 unless starts are given.
    pub end: Moment,
    /// When each simulated rank ends; the others behave like these.
    pub ends_s: Vec<f64>,
    /// Messages that were simulated.
    pub transfers: usize,
}

/// A point in virtual time, and the parts of the time until then, along the critical path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Seconds since the start.
    pub at_s: f64,
    /// Seconds of latency: from the sending of a first byte to its arrival.
    pub latency_s: f64,
    /// Seconds of bandwidth, on links without contention.
    pub bandwidth_s: f64,
    /// Further seconds because of contention.
    pub contention_s: f64,
    /// Seconds of processor time: reducing, copying, and posting messages.
    pub reduction_s: f64,
}

impl Moment {
    /// The beginning, at this time.
    pub fn start(at_s: f64) -> Moment {
        Moment { at_s, ..Moment::default() }
    }

    /// The sum with `times` times another one.
    pub fn plus(self, times: f64, other: Moment) -> Moment {
        Moment {
            at_s: self.at_s + times * other.at_s,
            latency_s: self.latency_s + times * other.latency_s,
            bandwidth_s: self.bandwidth_s + times * other.bandwidth_s,
            contention_s: self.contention_s + times * other.contention_s,
            reduction_s: self.reduction_s + times * other.reduction_s,
        }
    }

    /// The same without latency.
    pub fn without_latency(self) -> Moment {
        Moment { at_s: self.at_s - self.latency_s, latency_s: 0.0, ..self }
    }

    /// The later of two; this one if they are equal.
    fn later(self, other: Moment) -> Moment {
        if other.at_s > self.at_s { other } else { self }
    }

    fn latency(mut self, seconds: f64) -> Moment {
        self.at_s += seconds;
        self.latency_s += seconds;
        self
    }

    /// Adds a transfer of `alone` seconds without contention and `shared` seconds with it.
    fn bytes(mut self, alone: f64, shared: f64) -> Moment {
        self.at_s += shared;
        self.bandwidth_s += alone;
        self.contention_s += shared - alone;
        self
    }

    fn reduction(mut self, seconds: f64) -> Moment {
        self.at_s += seconds;
        self.reduction_s += seconds;
        self
    }
}

/// A schedule that never ends: the ranks that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked(pub Vec<Waiting>);

/// A rank in a step that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The rank.
    pub rank: Rank,
    /// The step it is in.
    pub step: usize,
    /// Messages that it expects in this step.
    pub expected: usize,
    /// Messages that it received.
    pub received: usize,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 4;
        write!(f, "the schedule never ends: ")?;
        for (index, waiting) in self.0.iter().take(MAX).enumerate() {
            let Waiting { rank, step, expected, received } = waiting;
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}rank {rank} expects {expected} in step {step} and gets {received}")?;
        }
        match self.0.len().saturating_sub(MAX) {
            0 => Ok(()),
            more => write!(f, ", and {more} more ranks wait"),
        }
    }
}

impl std::error::Error for Blocked {}

/// Bytes of one chunk.
fn chunk_bytes(schedule: &dyn Schedule, size_bytes: f64) -> f64 {
    size_bytes / schedule.chunks() as f64
}

#[cfg(test)]
mod tests;
