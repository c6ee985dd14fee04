//! Control planes: how ranks agree on the tensors to reduce next, and on their order.
//!
//! Gradients become ready in a different order on every rank, but all ranks must run the same
//! collectives in the same order. A control plane decides that order, cycle by cycle. It is a state
//! machine without I/O: it takes events and returns effects, which its driver performs (a test, a
//! simulator, or the engine over a transport).
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
