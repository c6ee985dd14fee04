//! One process per GPU over NVIDIA's NCCL: this project's schedules as grouped sends and receives with kernels in
//! between, and NCCL's own allreduce.
//!
//! NCCL is loaded at run time, see [`library`], and nothing here needs MPI: processes get their rank from the
//! launcher's variables, connect to rank 0 ([`rendezvous`]), and exchange their [`facts`]. Each gets a GPU
//! ([`assignment`]); [`findings`] lists problems of these GPUs. Every wait has a timeout, and checks whether NCCL
//! reports an error or another process has failed ([`comm`]).

pub mod allreduce;
pub mod assignment;
pub mod back_end;
pub mod bench;
pub mod comm;
pub mod facts;
pub mod findings;
pub mod library;
#[cfg(feature = "mpi")]
pub mod process_rank;
pub mod rendezvous;
pub mod started;
pub mod stepped;
pub mod watchdog;

use std::time::Duration;

use algorithms::topology::Rank;
use thiserror::Error;

use crate::cuda::CudaError;
use crate::cuda::library::Missing;

/// Its name as a transport in tables and CSV files.
pub use transports::transport::NCCL as NAME;

/// Set to 1, it allows several ranks on one GPU, from NCCL 2.30 on.
pub const SHARE_GPUS: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// Why ranks cannot go on over NCCL.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum NcclError {
    /// NCCL is not there, or cannot be loaded.
    #[error(transparent)]
    Library(#[from] Missing),
    /// The GPU cannot be used.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Processes did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] rendezvous::RendezvousError),
    /// Ranks and GPUs do not fit together.
    #[error(transparent)]
    Assignment(#[from] assignment::AssignmentError),
    /// NCCL is too old.
    #[error(
        "{file} is NCCL {found}, and {} or later is needed; name another with KOLO_NCCL_LIB",
        library::in_words(library::LEAST_VERSION)
    )]
    TooOld {
        /// The library.
        file: String,
        /// Its version, as text.
        found: String,
    },
    /// A call failed, at once or later.
    #[error("{}{call}{} failed: {why}", of(*.rank), with(*.peer))]
    Failed {
        /// The calling rank, if the call is about a communicator.
        rank: Option<Rank>,
        /// The peer, if there is only one.
        peer: Option<Rank>,
        /// The call.
        call: String,
        /// NCCL's message.
        why: String,
    },
    /// Timeout has ended.
    #[error(
        "rank {rank} has waited {:.1} s for {call}, and no process is known to be gone: one of the {ranks} \
         ranks does not take part; set NCCL_DEBUG=INFO for details",
        waited.as_secs_f64()
    )]
    Silent {
        /// The waiting rank.
        rank: Rank,
        /// World size.
        ranks: usize,
        /// The operation.
        call: String,
        /// How long.
        waited: Duration,
    },
    /// A process does not respond, or makes no progress.
    #[error("rank {peer} on {host} does not respond: {diagnosis}; look at the process there")]
    Unresponsive {
        /// Which.
        peer: Rank,
        /// Its host.
        host: String,
        /// The failure detector's diagnosis.
        diagnosis: String,
    },
    /// A process is gone.
    #[error(
        "rank {rank}: rank {peer} on {host} is gone, its connection is closed; its own output may say why"
    )]
    Lost {
        /// The rank that noticed the failure or was notified.
        rank: Rank,
        /// The rank of the failed process.
        peer: Rank,
        /// Its host.
        host: String,
    },
    /// Another rank has given up.
    #[error("rank {rank}: rank {by} on {host} gave up: {why}")]
    GaveUp {
        /// The rank that was notified.
        rank: Rank,
        /// The rank that gave up.
        by: Rank,
        /// Its host.
        host: String,
        /// Why.
        why: String,
    },
}

fn of(rank: Option<Rank>) -> String {
    rank.map_or(String::new(), |rank| format!("rank {rank}: "))
}

fn with(peer: Option<Rank>) -> String {
    peer.map_or(String::new(), |peer| format!(" with rank {peer}"))
}

/// A few ranks by their numbers: `rank 3`, `ranks 0, 1 and 4`.
pub(crate) fn ranks_in_words(ranks: &[Rank]) -> String {
    const MOST: usize = 8;
    let listed: Vec<_> = ranks.iter().take(MOST).map(Rank::to_string).collect();
    match listed.split_last() {
        Some((last, [])) => format!("rank {last}"),
        Some(_) if ranks.len() > MOST => {
            format!("ranks {} and {} more", listed.join(", "), ranks.len() - MOST)
        }
        Some((last, others)) => format!("ranks {} and {last}", others.join(", ")),
        None => "no rank".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_the_first_are_named() {
        let said = |count: usize| ranks_in_words(&(0..count).collect::<Vec<_>>());
        assert_eq!([said(1), said(2)], ["rank 0", "ranks 0 and 1"]);
        assert_eq!(said(8), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
        assert_eq!(said(1000), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 992 more");
    }
}
