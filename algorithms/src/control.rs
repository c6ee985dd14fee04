//! Control planes: how ranks agree which tensors to reduce next, and in which order.
//!
//! Gradients become ready in another order on every rank, but all ranks must run the same
//! collectives in the same order. A control plane settles that, cycle by cycle. It is a state
//! machine without I/O: events come in, effects go out, and whoever drives it (a test, a simulator,
//! the engine over a transport) performs the effects.
//!
//! ```text
//! Ready(tensors) ...         tensors that became ready since the last cycle
//! Cycle                 ->   Bitwise | Send ...           the driver performs these
//! Combined | Arrived    ->   ... Execute ... EndCycle     until the cycle is over
//! ```

mod answer;
pub mod bitvector;
pub mod buckets;
pub mod cache;
pub mod coordinator;
mod error;
pub mod flaw;
mod hash;
pub mod lockstep;
pub mod message;
mod negotiation;
pub mod point_to_point;
mod queue;
mod reduction;
pub mod rehearsal;
mod report;
mod table;
mod tally;
mod tensor;

use std::sync::Arc;
use std::time::Duration;

pub use error::ControlError;
pub use reduction::Reduction;
pub use report::Report;
pub use tensor::{DataType, Device, Operation, ReduceOp, Tensor, TensorId, Tensors};

use crate::fusion::{Groups, Stop};
use crate::topology::Rank;
use flaw::Flaws;

/// What all ranks do together: reduce these tensors as one message, or report this error for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The tensors, in the order in which they are packed.
    pub tensors: Arc<[TensorId]>,
    /// Why they cannot be reduced; the same text on every rank.
    pub error: Option<Arc<str>>,
    /// Why no more were fused; the same on every rank.
    pub stop: Stop,
}

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

/// A tensor that some ranks wait for, and others have not made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The tensor.
    pub name: String,
    /// Who has not made it ready; in a tree, some rank in each of these ranks' subtrees.
    pub missing: Vec<Rank>,
    /// Since the first rank made it ready.
    pub waited: Duration,
    /// It has waited for so long that all ranks shut down.
    pub shuts_down: bool,
}

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 6;
        let some: Vec<_> = self.missing.iter().take(MOST).map(Rank::to_string).collect();
        let more = if self.missing.len() > MOST { ", ..." } else { "" };
        write!(
            f,
            "tensor \"{}\" has been waiting for {:.1} s: not ready on rank{} {}{more} ({} of them)",
            self.name,
            self.waited.as_secs_f64(),
            if self.missing.len() == 1 { "" } else { "s" },
            some.join(", "),
            self.missing.len(),
        )?;
        if self.shuts_down { write!(f, "; all ranks shut down") } else { Ok(()) }
    }
}

/// When somebody is told that a tensor waits for some ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallCheck {
    /// A tensor that waits for longer is reported, again and again after as long.
    pub warn_after: Duration,
    /// A tensor that waits for longer ends the job.
    pub shut_down_after: Option<Duration>,
}

impl Default for StallCheck {
    /// Horovod's.
    fn default() -> StallCheck {
        StallCheck { warn_after: Duration::from_secs(60), shut_down_after: None }
    }
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

/// What every control plane is told at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This rank.
    pub rank: Rank,
    /// World size.
    pub ranks: usize,
    /// Fused messages hold at most this many bytes, unless a single tensor is larger; 0 turns
    /// fusion off. See [`crate::fusion::effective_threshold_bytes`].
    pub fusion_threshold_bytes: usize,
    /// Responses that the bit-vector plane remembers; 0: none, rank 0 is asked in every cycle.
    pub cache_capacity: usize,
    /// Groups that are not fused with one another (`HOROVOD_DISABLE_GROUP_FUSION`).
    pub groups: Option<Arc<Groups>>,
    /// Whether to look for tensors that some ranks wait for in vain.
    pub stall_check: Option<StallCheck>,
    /// None but in tests of tests.
    pub flaws: Flaws,
}

impl Settings {
    /// Horovod's defaults: 128 MiB, 1024 responses, a warning after a minute.
    pub fn new(rank: Rank, ranks: usize) -> Settings {
        Settings {
            rank,
            ranks,
            fusion_threshold_bytes: 128 << 20,
            cache_capacity: 1024,
            groups: None,
            stall_check: Some(StallCheck::default()),
            flaws: Flaws::default(),
        }
    }
}

/// Names of the control planes, as in configurations and CSV files; some take a number (`tree:4`).
pub const NAMES: [&str; 6] = [
    coordinator::NAME,
    coordinator::TREE,
    point_to_point::NAME,
    bitvector::NAME,
    buckets::DDP,
    buckets::PACKS,
];

/// The control plane of that name for one rank, or `None` for an unknown name.
pub fn find(
    name: &str,
    tensors: Arc<Tensors>,
    settings: &Settings,
) -> Option<Box<dyn ControlPlane>> {
    let (base, number) = match name.split_once(':') {
        Some((base, number)) => (base, Some(number.parse::<usize>().ok()?)),
        None => (name, None),
    };
    Some(match (base, number) {
        (coordinator::NAME, None) => Box::new(coordinator::Coordinator::star(tensors, settings)),
        (coordinator::TREE, None) => {
            Box::new(coordinator::Coordinator::tree(tensors, settings, coordinator::RADIX))
        }
        (coordinator::TREE, Some(radix @ 2..)) => {
            Box::new(coordinator::Coordinator::tree(tensors, settings, radix))
        }
        (point_to_point::NAME, None) => {
            Box::new(point_to_point::PointToPoint::new(tensors, settings))
        }
        (bitvector::NAME, None) => Box::new(bitvector::BitVector::new(tensors, settings)),
        (buckets::DDP | buckets::PACKS, None | Some(1..)) => {
            let size = number.map(|mib| mib << 20);
            Box::new(buckets::Buckets::new(base, size, tensors, settings))
        }
        _ => return None,
    })
}

/// The one spelling of a control plane's name, or `None` for an unknown one.
pub fn spelling(name: &str) -> Option<String> {
    find(name, Arc::default(), &Settings::new(0, 1)).map(|plane| plane.name())
}
