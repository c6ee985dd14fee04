//! Why there is no data plane.

use std::error::Error;
use std::sync::Arc;

use algorithms::algorithm::Unsupported;
use results::names::AlgorithmError;
use thiserror::Error;

use super::MPI_ALLREDUCE;
use super::nccl;

/// A name that no data plane has. The text says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The MPI library's own stands inside another name, or something follows it.
    #[error(
        "\"{name}\" is unknown: {MPI_ALLREDUCE} takes no parameter and cannot be nested, since the library has \
         no schedule; write only {MPI_ALLREDUCE}"
    )]
    MpiNotAlone {
        /// The name.
        name: String,
    },
    /// It is none of NCCL's own.
    #[error(transparent)]
    Nccl(#[from] nccl::NameError),
    /// It is no algorithm's.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
}

/// Why a back end has no data plane of a name.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DataPlaneError {
    /// It is the own allreduce of another transport's library.
    #[error(
        "{name} is {library}'s own and needs transport {owner}; with transport {transport} choose another \
         algorithm"
    )]
    Elsewhere {
        /// The data plane.
        name: String,
        /// The library.
        library: &'static str,
        /// The transport that has it.
        owner: &'static str,
        /// The transport that was asked.
        transport: String,
    },
    /// The algorithm has no schedule for the topology.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The back end refuses for a reason of its own.
    #[error(transparent)]
    BackEnd(Arc<dyn Error + Send + Sync>),
}

impl DataPlaneError {
    /// The back end refuses for a reason of its own.
    pub fn back_end(cause: impl Into<Box<dyn Error + Send + Sync>>) -> DataPlaneError {
        DataPlaneError::BackEnd(Arc::from(cause.into()))
    }
}
