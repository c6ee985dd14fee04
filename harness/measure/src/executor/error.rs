//! Why a sweep cannot begin.

use std::error::Error;
use std::sync::Arc;

use algorithms::topology::Rank;
use cluster::launch::Contradiction;
use cluster::preflight::Refused;
use thiserror::Error;
use transports::transport::TransportError;

use crate::back_ends;

/// Why a sweep cannot begin with these processes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// Several processes were started, and none of the cases needs them.
    #[error(
        "started as {tasks} processes, but no case uses MPI; start one process, or add --transport {}",
        back_ends::default_of_processes()
    )]
    SeveralProcesses {
        /// How many were started.
        tasks: usize,
    },
    /// All cases need MPI.
    #[error(transparent)]
    BuiltWithoutMpi(#[from] BuiltWithoutMpi),
    /// No case has a back end that is available.
    #[error(transparent)]
    BackEnd(Arc<dyn Error + Send + Sync>),
    /// The launcher started more or fewer processes than MPI sees.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// Processes do not hear of each other.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Processes have different plans.
    #[error(
        "program, configuration or workload of process {rank} and process 0 differ; make all nodes read the same \
         files"
    )]
    Disagreement {
        /// The first process whose plan is another than that of process 0.
        rank: Rank,
    },
    /// What processes and nodes are makes figures doubtful.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Ranks that are processes negotiate over MPI, which this program cannot.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "this program was built without MPI, which ranks in separate processes need; build it with --features mpi"
)]
pub struct BuiltWithoutMpi;
