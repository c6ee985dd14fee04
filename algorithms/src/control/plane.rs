//! The interface of control planes: events in, effects out.

use std::sync::Arc;
use std::time::Duration;

use super::error::ControlError;
use super::report::Report;
use super::response::Response;
use super::stall::Stalled;
use super::tensor::TensorId;
use crate::topology::Rank;

/// What happens to a control plane.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// These tensors of this rank may be reduced; they enter together, or none of them does.
    Ready(&'a [TensorId]),
    /// This rank wants all ranks to stop, once what they agree on in this cycle is done.
    ShutDown,
    /// A cycle begins at this time since the start, the only notion of time.
    Cycle(Duration),
    /// What all ranks asked for with [`Effect::Bitwise`], combined.
    Combined(&'a [u64]),
    /// A message from another rank.
    Arrived {
        /// Its sender.
        from: Rank,
        /// Its bytes.
        message: &'a [u8],
    },
}

/// How bits of all ranks are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitwise {
    /// A bit is set if it is on all ranks.
    And,
    /// A bit is set if it is on some rank.
    Or,
}

/// What a control plane wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bring this message to a rank.
    Send {
        /// The receiver.
        to: Rank,
        /// Its bytes.
        message: Arc<[u8]>,
    },
    /// Bring this message to every other rank.
    Broadcast(Arc<[u8]>),
    /// Combine these words over all ranks and give them back as [`Event::Combined`].
    Bitwise(Bitwise, Vec<u64>),
    /// Do this now; the same on every rank.
    Execute(Response),
    /// Tell the user.
    Warn(Stalled),
    /// All ranks stop after what they were told to execute; these tensors of this rank will not be
    /// reduced.
    Stop(Vec<TensorId>),
    /// The cycle is over for this rank.
    EndCycle,
}

/// One rank's part in agreeing what is reduced next.
pub trait ControlPlane: Send {
    /// The one spelling of its name.
    fn name(&self) -> String;

    /// Takes one event and appends what is to be done. `out` is the driver's, to be reused.
    ///
    /// # Errors
    /// When a message is malformed, names an unknown tensor, or when the driver breaks the rules
    /// (a tensor ready twice, which leaves the plane as it was). After any other error the plane is of
    /// no use.
    fn on(&mut self, event: Event<'_>, out: &mut Vec<Effect>) -> Result<(), ControlError>;

    /// What it has done since this was last asked.
    fn take_report(&mut self) -> Report;

    /// False for a plane that has nothing to negotiate and wants to be asked as soon as a tensor is
    /// ready, whatever the cycle time.
    fn is_paced(&self) -> bool {
        true
    }

    /// Those whose messages it needs to go on with the cycle; none between cycles, and none while it waits
    /// for a bitwise collective of all ranks.
    fn waits_for(&self) -> Vec<Rank> {
        Vec::new()
    }

    /// What ranks must hold alike between cycles: the tensor of each bit, in order of use.
    fn agreed(&self) -> Vec<(usize, TensorId)> {
        Vec::new()
    }
}
