//! The facts that processes exchange.

use std::env;

use serde::{Deserialize, Serialize};

use super::SHARE_GPUS;
use super::library::Nccl;
use crate::cuda::CudaError;
use crate::cuda::devices::{Found, Gpu, peers};
use results::provenance::Launch;

/// The place, requirements and equipment of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its host's name.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its arguments, the program's name included.
    pub command: Vec<String>,
    /// The GPUs that it sees, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Which GPU's kernels can read which one's memory.
    pub peers: Vec<Vec<bool>>,
    /// The CUDA version that its driver supports, in the driver's numbering.
    pub driver: i32,
    /// Its NCCL version, in NCCL's numbering.
    pub nccl: i32,
    /// Whether sharing GPUs between ranks is enabled.
    pub may_share: bool,
}

impl Facts {
    /// This process.
    ///
    /// # Errors
    /// When the driver cannot report which GPUs reach each other.
    pub fn here(launch: &Launch, nccl: &Nccl, found: &Found) -> Result<Facts, CudaError> {
        Ok(Facts {
            host: launch.machine.host.clone(),
            pid: std::process::id(),
            command: launch.command.clone(),
            gpus: found.devices.clone(),
            peers: peers(found.devices.len())?,
            driver: found.version,
            nccl: nccl.version,
            may_share: env::var(SHARE_GPUS).is_ok_and(|value| value.trim() == "1"),
        })
    }

    /// One of its visible GPUs, as text.
    pub fn about(&self, ordinal: usize) -> String {
        let Gpu { bus, name, .. } = &self.gpus[ordinal];
        format!("GPU {ordinal} ({bus}): {name}")
    }
}
