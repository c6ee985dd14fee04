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
mod hash;
pub mod lockstep;
pub mod message;
pub mod mutation;
mod negotiation;
mod plane;
pub mod point_to_point;
mod queue;
mod reduction;
mod registry;
mod report;
pub(crate) mod response;
mod settings;
mod shutdown;
pub mod simulation_test;
mod stall;
pub(crate) mod stop;
mod table;
mod tally;
pub(crate) mod tensor;
pub(crate) mod tensors;

pub use error::ControlError;
pub use plane::{Bitwise, ControlPlane, Effect, Event};
pub use reduction::Reduction;
pub use registry::{NAMES, find, spelling};
pub use report::Report;
pub use response::Response;
pub use settings::Settings;
pub use stall::{StallCheck, Stalled};
pub use tensor::{DataType, Device, Operation, ReduceOp, Tensor, TensorId};
pub use tensors::Tensors;
