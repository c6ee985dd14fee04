//! What stays the same when there are more ranks: the batch of each rank, or that of all.

use std::fmt;

use algorithms::topology::Topology;
use results::row::STRONG;
use results::toml_file::Invalid;
use serde::{Deserialize, Serialize};
use workloads::replay::StepTimes;

use super::{Config, Step};

/// What stays the same when there are more ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// Every rank has the same batch in any world, so passes take the same time.
    #[default]
    Weak,
    /// All ranks together have the same batch, so passes take less time on more ranks.
    Strong,
}

impl Scaling {
    pub(super) fn is_weak(&self) -> bool {
        *self == Scaling::Weak
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scaling::Weak => "weak",
            Scaling::Strong => STRONG,
        })
    }
}

impl Step {
    /// Strong scaling shortens a computation.
    pub(super) fn check_scaling(&self) -> Result<(), Invalid> {
        if self.scaling.is_weak() || self.forward_ms + self.backward_ms > 0.0 {
            return Ok(());
        }
        let wrong = Invalid::value("step.scaling", "\"strong\"", "a computation that can shrink");
        Err(wrong.with_advice("give step.forward_ms and step.backward_ms for the fewest ranks"))
    }
}

impl Config {
    /// The share of the configured times that the passes of a rank take in a world. With strong scaling they take all
    /// of it on the fewest ranks of the sweep, and less in proportion on more.
    pub fn share_of_passes(&self, topology: &Topology) -> f64 {
        if self.step.scaling.is_weak() {
            return 1.0;
        }
        let fewest = self.sweep.topologies().iter().map(Topology::ranks).min();
        fewest.unwrap_or(1) as f64 / topology.ranks() as f64
    }

    /// The times of a step of one rank of a world.
    pub fn times_on(&self, topology: &Topology) -> StepTimes {
        let (times, share) = (self.times(), self.share_of_passes(topology));
        StepTimes {
            forward: times.forward.mul_f64(share),
            backward: times.backward.mul_f64(share),
            ..times
        }
    }
}
