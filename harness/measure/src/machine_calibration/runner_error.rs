//! Why no ranks can run the programs of a calibration.

use cluster::launch::Contradiction;
use cluster::nodes::TooFewProcesses;
use thiserror::Error;
use transports::transport::TransportError;

use crate::back_ends;
use crate::executor::ExecutorError;
use training::back_end::BackEndRef;

/// Why no ranks can run the programs of a calibration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// Fewer than two ranks were asked for.
    #[error("--ranks is {ranks}, expected at least 2: one rank sends no messages")]
    TooFewRanks {
        /// How many.
        ranks: usize,
    },
    /// Several processes were started, and ranks are threads.
    #[error(
        "started as {tasks} processes, but ranks are threads of one process; start one process, or add --transport {}",
        back_ends::default_of_processes()
    )]
    SeveralProcesses {
        /// How many were started.
        tasks: usize,
    },
    /// Its ranks are neither threads nor processes over MPI.
    #[error(
        "--transport {back_end} cannot be calibrated; choose {} or {}",
        back_ends::default(),
        back_ends::default_of_processes()
    )]
    Unmeasured {
        /// The back end.
        back_end: BackEndRef,
    },
    /// Ranks are processes, and the program has no MPI.
    #[error("this program was built without MPI; build it with --features mpi")]
    BuiltWithoutMpi,
    /// The preflight refuses the processes.
    #[error(transparent)]
    Preflight(#[from] Box<ExecutorError>),
    /// The launcher started more or fewer processes than MPI sees.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// MPI refuses.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Nodes cannot have equally many ranks.
    #[error(
        "{ranks} ranks on {} node(s) with {processes:?} processes: expected the same number of ranks on each node, \
         and at least 2; start other numbers of processes, or use --ranks {most}",
        processes.len()
    )]
    Uneven {
        /// How many ranks were asked for.
        ranks: usize,
        /// Processes on each node.
        processes: Vec<usize>,
        /// The most ranks that these processes can be.
        most: usize,
    },
    /// The ranks do not fit on the nodes.
    #[error(transparent)]
    TooFewProcesses(#[from] TooFewProcesses),
}
