//! The interface between executors and the code that moves data between ranks.
//!
//! It has one call per state of an operation, so that threads, MPI requests and NCCL groups can implement it:
//! [`Transport::begin`] posts, [`Transport::receive`] waits for data and combines them, [`Transport::settle`]
//! waits until sent data may be overwritten.

pub(crate) mod chunks;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::program::{Bounds, Op, Program};
use algorithms::topology::Rank;
use thiserror::Error;

use crate::kernel::{ElementOp, Kernel, kernel};
use crate::memory::Buffer;

/// Ranks are processes on one or more nodes that communicate through an MPI library.
pub const MPI: &str = "mpi";

/// Ranks are streams of this process on one or several GPUs.
pub const CUDA: &str = "cuda";

/// Ranks are processes with one GPU each that communicate through NCCL.
pub const NCCL: &str = "nccl";

/// One collective as a transport sees it.
pub struct Collective<'c, 'b> {
    /// This rank's data.
    pub buffer: &'c Buffer<'b>,
    /// How chunks lie in it.
    pub bounds: Bounds,
    /// The operation of the reduction.
    pub combine: ElementOp,
    /// The kernel of the operation.
    pub kernel: Kernel,
    /// The time spent combining so far, without pieces that are too short to be timed.
    pub(crate) combining: Cell<Duration>,
}

impl<'c, 'b> Collective<'c, 'b> {
    /// A collective over a buffer that is cut into `chunks` chunks.
    pub fn new(buffer: &'c Buffer<'b>, chunks: usize, combine: ElementOp) -> Collective<'c, 'b> {
        let bounds = Bounds::new(buffer.elements(), chunks);
        let kernel = kernel(buffer.dtype(), combine);
        Collective { buffer, bounds, combine, kernel, combining: Cell::default() }
    }
}

/// Point-to-point communication of one rank with the others.
///
/// [`crate::execute::execute`] makes the calls in the order of a compiled program, which defines when each may
/// begin. Empty ranges are passed, too, and send nothing.
pub trait Transport {
    /// This rank.
    fn rank(&self) -> Rank;

    /// World size.
    fn ranks(&self) -> usize;

    /// Whether senders can write into a receiver's buffer, see [`Program::compile_world`].
    fn puts(&self) -> bool;

    /// Whether waits are not urgent; a waiting rank then sleeps soon, unless its transport always polls.
    fn set_calm(&mut self, _calm: bool) {}

    /// Allocates the memory that collectives of this program need beside their buffer, for buffers of at most
    /// `most_bytes`. Without it, memory is allocated on first use.
    fn prepare(&mut self, program: &Program, most_bytes: usize);

    /// Posts the sends and receives of one step that may start together. Does not wait for receives.
    ///
    /// # Errors
    /// When a peer is gone, or a library call fails.
    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Waits for the data of receives of the same chunks in one step, and combines or copies them into the buffer,
    /// in order: one receive, or several that reduce.
    ///
    /// # Errors
    /// When a peer is gone, or nothing arrives within the timeout.
    fn receive(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// First half of an exchange: receives the data of one step into staging memory.
    ///
    /// # Errors
    /// When a peer is gone, or nothing arrives within the timeout.
    fn stage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Second half, after this rank's own sends are settled: combines or copies the staged data.
    ///
    /// # Errors
    /// When a peer is gone.
    fn unstage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Waits until this rank's first `sends` sends of the collective may be overwritten.
    ///
    /// # Errors
    /// When a receiver is gone, or does not finish within the timeout.
    fn settle(&mut self, sends: usize) -> Result<(), TransportError>;

    /// Ends the collective, successful or not. Afterwards no other rank accesses this rank's buffer.
    ///
    /// # Errors
    /// `ended` if it is an error; otherwise when a peer is gone or does not finish within the timeout.
    fn finish(
        &mut self,
        collective: &Collective,
        program: &Program,
        ended: Result<(), TransportError>,
    ) -> Result<(), TransportError>;
}

/// Messages of bytes between the ranks of a world, for control planes.
pub trait MessageChannel {
    /// Sends a message; does not wait for it to arrive.
    ///
    /// # Errors
    /// When the receiver does not take earlier ones.
    fn send(&mut self, to: Rank, message: Arc<[u8]>) -> Result<(), TransportError>;

    /// Waits for a message from any rank and returns its sender; the error names `expecting`.
    ///
    /// # Errors
    /// When no message arrives.
    fn receive(&mut self, expecting: Rank, message: &mut Vec<u8>) -> Result<Rank, TransportError>;

    /// Waits until all sent messages have been taken.
    ///
    /// # Errors
    /// When a receiver does not take it.
    fn flush(&mut self) -> Result<(), TransportError>;

    /// As [`Transport::set_calm`].
    fn set_calm(&mut self, _calm: bool) {}
}

/// A nonblocking barrier that records when the last rank arrived.
pub trait NonblockingBarrier {
    /// This rank has arrived. Call once.
    fn arrive(&mut self);

    /// When the last rank arrived, as soon as this rank knows it.
    fn begun(&mut self) -> Option<Instant>;
}

/// One rank's connections to all others, separate for each kind of message.
pub struct Connections<D, B, M, S> {
    /// For gradients.
    pub data: D,
    /// For the bit vectors of control planes.
    pub bits: B,
    /// For the messages of control planes.
    pub control: M,
    /// The barrier at which all ranks start the last step of a job.
    pub last_step: S,
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A rank does not answer.
    #[error(
        "rank {rank} has waited {:.1} s for rank {peer}, which does not answer; the case was aborted",
        waited.as_secs_f64()
    )]
    Silent {
        /// The waiting rank.
        rank: Rank,
        /// The rank it waited for.
        peer: Rank,
        /// How long.
        waited: Duration,
    },
    /// A call of the underlying library failed.
    #[error(
        "rank {rank}: {call}{} failed: {why}",
        peer.map_or(String::new(), |peer| format!(" with rank {peer}"))
    )]
    Failed {
        /// The calling rank.
        rank: Rank,
        /// The peer, if there is only one.
        peer: Option<Rank>,
        /// The call.
        call: String,
        /// The library's message.
        why: String,
    },
    /// Another rank has given up.
    #[error("rank {by} gave up: {reason}")]
    Aborted {
        /// The first rank that gave up.
        by: Rank,
        /// Why.
        reason: String,
    },
}

/// An error that may have been caused by a transport.
pub trait CausedByTransport: From<TransportError> + std::fmt::Display {
    /// The transport's error, if that was the cause.
    fn transport_error(&self) -> Option<&TransportError>;
}

impl CausedByTransport for TransportError {
    fn transport_error(&self) -> Option<&TransportError> {
        Some(self)
    }
}
