//! Moving and combining data between ranks.

pub mod allreduce;
pub mod bench;
pub mod cast;
pub mod clock;
pub mod data_plane;
pub mod element;
pub mod execute;
pub mod kernel;
pub mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod pattern;
pub mod programs;
pub mod threads;
pub mod transport;

// For `for_dtype`, which names its types.
#[doc(hidden)]
pub use half;
