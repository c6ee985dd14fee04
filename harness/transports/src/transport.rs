//! What an executor needs from whatever moves bytes between ranks.
//!
//! One verb per moment in an operation's life, so that threads, MPI requests and NCCL groups can
//! all implement it: [`Transport::begin`] posts, [`Transport::receive`] waits for what arrives and
//! combines it, [`Transport::settle`] waits until what was sent may be overwritten.

pub(crate) mod chunks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use algorithms::program::{Bounds, Op, Program};
use algorithms::topology::Rank;
use thiserror::Error;

use crate::kernel::{ElementOp, Kernel, kernel};
use crate::memory::Buffer;

/// Ranks are processes, on one node or several, and talk through an MPI library.
pub const MPI: &str = "mpi";

/// Ranks are streams of this process on one or several GPUs.
pub const CUDA: &str = "cuda";

/// Ranks are processes with a GPU each, which talk through NCCL.
pub const NCCL: &str = "nccl";

/// One collective as a transport sees it.
pub struct Collective<'c, 'b> {
    /// This rank's data.
    pub buffer: &'c Buffer<'b>,
    /// How chunks lie in it.
    pub bounds: Bounds,
    /// What a reduction does.
    pub combine: ElementOp,
    /// Does it.
    pub kernel: Kernel,
}

impl<'c, 'b> Collective<'c, 'b> {
    /// A collective over a buffer that is cut into `chunks` chunks.
    pub fn new(buffer: &'c Buffer<'b>, chunks: usize, combine: ElementOp) -> Collective<'c, 'b> {
        let bounds = Bounds::new(buffer.elements(), chunks);
        Collective { buffer, bounds, combine, kernel: kernel(buffer.dtype(), combine) }
    }
}

/// Point-to-point communication of one rank with the others.
///
/// [`crate::execute::execute`] calls the verbs in the order of a compiled program, which says when
/// each may begin; empty ranges are passed too, and nothing travels for them.
pub trait Transport {
    /// This rank.
    fn rank(&self) -> Rank;

    /// World size.
    fn ranks(&self) -> usize;

    /// Senders can write into a receiver's buffer, see [`Program::compile_world`].
    fn puts(&self) -> bool;

    /// Whether this rank need not hurry: then it soon sleeps where it has to wait.
    fn set_calm(&mut self, calm: bool);

    /// Makes room for what collectives of this program, on buffers of at most `most_bytes`, need beyond
    /// their buffer. What has not been prepared makes room as it goes.
    fn prepare(&mut self, program: &Program, most_bytes: usize);

    /// Posts sends and receives of one step that may begin together. Waits for no receive.
    fn begin(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Waits for what receives of the same chunks in one step bring, and combines or copies it into
    /// the buffer, in their order: one receive, or several that reduce.
    fn receive(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// First half of an exchange: takes what these receives of one step bring and puts it aside.
    fn stage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Second half, once this rank's own sends are settled: combines or copies what was put aside.
    fn unstage(&mut self, collective: &Collective, batch: &[Op]) -> Result<(), TransportError>;

    /// Waits until this rank's first `sends` sends of the collective may be overwritten.
    fn settle(&mut self, sends: usize) -> Result<(), TransportError>;

    /// The collective is over, well or not: afterwards no other rank touches this rank's buffer.
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

    /// Waits for a message from anybody; `expecting` is who to name if nobody sends one. Returns from
    /// whom it is.
    ///
    /// # Errors
    /// When nobody sends one.
    fn receive(&mut self, expecting: Rank, message: &mut Vec<u8>) -> Result<Rank, TransportError>;

    /// Waits until everything that was sent has been taken.
    ///
    /// # Errors
    /// When a receiver does not take it.
    fn flush(&mut self) -> Result<(), TransportError>;

    /// As [`Transport::set_calm`].
    fn set_calm(&mut self, calm: bool);
}

/// A moment that comes when all ranks have arrived, for which nobody waits idly.
pub trait NonblockingBarrier {
    /// This rank has arrived. Once.
    fn arrive(&mut self);

    /// When the last rank arrived, once this rank knows.
    fn begun(&mut self) -> Option<Instant>;
}

/// One rank's connections to all others: each kind of message has its own.
pub struct Connections<D, B, M, S> {
    /// For gradients.
    pub data: D,
    /// For the bits of control planes.
    pub bits: B,
    /// For their messages.
    pub mail: M,
    /// Where all ranks begin the last step of a job together.
    pub last_step: S,
}

/// Why data could not be moved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A rank does not answer.
    #[error(
        "rank {rank} has waited {:.1} s for rank {peer}, which does not answer; the case is given up",
        waited.as_secs_f64()
    )]
    Silent {
        /// Who waits.
        rank: Rank,
        /// For whom.
        peer: Rank,
        /// How long.
        waited: Duration,
    },
    /// The library underneath refuses.
    #[error(
        "rank {rank}: {call}{} failed: {why}",
        peer.map_or(String::new(), |peer| format!(" with rank {peer}"))
    )]
    Failed {
        /// Who called.
        rank: Rank,
        /// With whom, if it is one rank.
        peer: Option<Rank>,
        /// What was called.
        call: String,
        /// What the library says.
        why: String,
    },
    /// Another rank has given up.
    #[error("rank {by} gave up: {reason}")]
    Aborted {
        /// Who gave up first.
        by: Rank,
        /// Why.
        reason: String,
    },
}

/// An error that may have come from a transport.
pub trait CausedByTransport: From<TransportError> + std::fmt::Display {
    /// The transport's error, if it was one.
    fn transport_error(&self) -> Option<&TransportError>;
}

impl CausedByTransport for TransportError {
    fn transport_error(&self) -> Option<&TransportError> {
        Some(self)
    }
}
