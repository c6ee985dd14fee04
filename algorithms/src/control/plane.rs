//! The interface of control planes: events in, effects out.

use std::sync::Arc;
use std::time::Duration;

use super::error::ControlError;
use super::report::Report;
use super::response::Response;
use super::stall::Stalled;
use super::tensor::TensorId;
use crate::topology::Rank;

/// An input of a control plane.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// These tensors of this rank are ready. They are taken together, or none of them is.
    Ready(&'a [TensorId]),
    /// This rank wants all ranks to shut down after the responses of this cycle.
    ShutDown,
    /// A cycle begins, at this time since the start. Planes have no other clock.
    Cycle(Duration),
    /// The result of [`Effect::Bitwise`] over all ranks.
    Combined(&'a [u64]),
    /// A message from another rank.
    Arrived {
        /// Its sender.
        from: Rank,
        /// Its bytes.
        message: &'a [u8],
    },
}

/// A bitwise reduction over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitwise {
    /// A bit is set if it is set on all ranks.
    And,
    /// A bit is set if it is set on any rank.
    Or,
}

/// What the driver of a control plane has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this message to a rank.
    Send {
        /// The receiver.
        to: Rank,
        /// Its bytes.
        message: Arc<[u8]>,
    },
    /// Send this message to every other rank.
    Broadcast(Arc<[u8]>),
    /// Reduce these words over all ranks; the result is [`Event::Combined`].
    Bitwise(Bitwise, Vec<u64>),
    /// Execute this response; it is the same on every rank.
    Execute(Response),
    /// Warn the user of a stalled tensor.
    Warn(Stalled),
    /// All ranks stop after the responses so far. These tensors of this rank will not be reduced.
    Stop(Vec<TensorId>),
    /// The cycle is over for this rank.
    EndCycle,
}

/// The control plane of one rank.
pub trait ControlPlane: Send {
    /// Its name, as in configurations and CSV files.
    fn name(&self) -> String;

    /// Handles one event and appends the effects to `out`, which the driver may reuse.
    ///
    /// # Errors
    /// When a message is malformed or names an unknown tensor, or when an event is not allowed now. A
    /// tensor that becomes ready twice leaves the plane as it was; after any other error the plane cannot
    /// be used any more.
    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError>;

    /// Returns the report since the last call, and resets it.
    fn take_report(&mut self) -> Report;

    /// False for a plane that does not negotiate: its cycles begin as soon as a tensor is ready, whatever
    /// the cycle time.
    fn is_paced(&self) -> bool {
        true
    }

    /// The ranks whose messages it needs to continue the cycle; none between cycles, and none while it
    /// waits for a bitwise reduction.
    fn waits_for(&self) -> Vec<Rank> {
        Vec::new()
    }

    /// The state that must be equal on all ranks between cycles: the tensor of each bit, in order of use.
    fn agreed(&self) -> Vec<(usize, TensorId)> {
        Vec::new()
    }
}
