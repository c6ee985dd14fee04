//! Cases that cannot be run.

use std::error::Error;
use std::sync::Arc;

use results::toml_file::Invalid;
use thiserror::Error;
use transports::data_plane::DataPlaneError;
use transports::pattern::Uncheckable;

/// Why a case cannot be run.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum UnsupportedCase {
    /// Its back end has no such data plane.
    #[error(transparent)]
    DataPlane(#[from] DataPlaneError),
    /// Its results cannot be checked.
    #[error(transparent)]
    Uncheckable(#[from] Uncheckable),
    /// Its gradients cannot be split into groups.
    #[error(transparent)]
    Groups(#[from] Invalid),
    /// There is not enough memory for it.
    #[error(transparent)]
    Room(Arc<dyn Error + Send + Sync>),
    /// A process has too little memory for it.
    #[error("{reason}")]
    Refused {
        /// What the process reports.
        reason: String,
    },
}
