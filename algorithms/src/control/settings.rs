//! What every control plane is given at the start.

use std::sync::Arc;

use super::mutation::Mutations;
use super::stall::StallCheck;
use crate::fusion::Groups;
use crate::topology::Rank;

/// What every control plane is given at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This rank.
    pub rank: Rank,
    /// World size.
    pub ranks: usize,
    /// Fused messages hold at most this many bytes, unless a single tensor is larger; 0 turns
    /// fusion off. See [`crate::fusion::effective_threshold_bytes`].
    pub fusion_threshold_bytes: usize,
    /// Capacity of the response cache of the bit-vector plane; with 0 every cycle is negotiated by rank 0.
    pub cache_capacity: usize,
    /// Groups that are not fused with one another (`HOROVOD_DISABLE_GROUP_FUSION`).
    pub groups: Option<Arc<Groups>>,
    /// When to report stalled tensors; never if `None`.
    pub stall_check: Option<StallCheck>,
    /// A mutation, in mutation tests only.
    pub mutations: Mutations,
}

impl Settings {
    /// Horovod's defaults: 128 MiB, 1024 responses, a warning after a minute.
    pub fn new(rank: Rank, ranks: usize) -> Settings {
        Settings {
            rank,
            ranks,
            fusion_threshold_bytes: 128 << 20,
            cache_capacity: 1024,
            groups: None,
            stall_check: Some(StallCheck::default()),
            mutations: Mutations::default(),
        }
    }
}
