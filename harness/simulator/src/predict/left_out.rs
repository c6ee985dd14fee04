//! Measured rows without a prediction.

use thiserror::Error;

/// Why there is no prediction for a measured row.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeftOut {
    /// There is nothing to compare with.
    #[error("no correct measurement")]
    NotMeasured,
    /// The data plane is a library's own.
    #[error("{algorithm}: a library's own allreduce, which cannot be simulated")]
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
    #[error("{ranks} ranks share cores; calibrate with as many ranks")]
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
    #[error("not every node has {here} ranks, as on {machine}")]
    OtherNodes {
        /// The machine.
        machine: String,
        /// Ranks of each of its nodes.
        here: usize,
    },
}
