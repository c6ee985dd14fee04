//! Measured rows without a prediction.

use thiserror::Error;

/// Why there is no prediction for a measured row.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeftOut {
    /// There is nothing to compare with.
    #[error("were not measured, or not well")]
    NotMeasured,
    /// The data plane is a library's own.
    #[error("{algorithm}: no schedule of ours, so nothing to simulate")]
    NoSchedule {
        /// The data plane.
        algorithm: String,
    },
    /// Tensors are in groups.
    #[error("groups: the rows do not say which tensors they hold")]
    Groups,
    /// The machine has one node.
    #[error("{nodes} nodes, but {machine} has 1 and no network")]
    NoNetwork {
        /// The row's nodes.
        nodes: usize,
        /// The machine.
        machine: String,
    },
    /// Ranks shared cores, but not as they did in the calibration.
    #[error("{ranks} ranks that share cores, which is not simulated; calibrate with as many")]
    SharedCores {
        /// The row's ranks.
        ranks: usize,
    },
    /// A node of the machine has fewer ranks.
    #[error("{ranks} ranks on a node, but {machine} has {here}")]
    TooManyRanks {
        /// The row's ranks.
        ranks: usize,
        /// The machine.
        machine: String,
        /// Ranks of each of its nodes.
        here: usize,
    },
    /// The nodes of the machine have another number of ranks.
    #[error("another number of ranks on each node than {here}, as {machine} has")]
    OtherNodes {
        /// The machine.
        machine: String,
        /// Ranks of each of its nodes.
        here: usize,
    },
}
