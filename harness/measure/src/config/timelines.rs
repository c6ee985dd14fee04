//! Which cases of a sweep get a timeline.

use serde::{Deserialize, Serialize};

/// Which cases of a sweep get a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timelines {
    /// None.
    #[default]
    None,
    /// The fastest case in the largest world, in a block of its own after all cases are done.
    Fastest,
    /// Every case: its last block is recorded.
    All,
}

impl Timelines {
    pub(super) fn is_none(&self) -> bool {
        *self == Timelines::None
    }
}
