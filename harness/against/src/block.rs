//! The row of a block: one case, run once by one engine.

use results::core_to_core::are_alike;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who runs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// This program's engine.
    Kolo,
    /// Horovod.
    Horovod,
    /// Horovod once more: how far it differs from itself.
    Control,
}

impl Runner {
    /// All of them.
    pub const ALL: [Runner; 3] = [Runner::Kolo, Runner::Horovod, Runner::Control];

    /// Its name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Runner::Kolo => "kolo",
            Runner::Horovod => "horovod",
            Runner::Control => "control",
        }
    }
}

/// A line of `blocks.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRow {
    /// The case.
    pub case: String,
    /// The block, from 0.
    pub block: usize,
    /// The position in the order of the whole run.
    pub order: usize,
    /// Who ran it: `kolo`, `horovod`, or `control` for Horovod's second block.
    pub engine: String,
    /// `ok` or `failed`.
    pub status: String,
    /// Why it failed; empty if it did not.
    pub reason: String,
    /// Measured steps that count.
    pub steps: usize,
    /// Median over steps of the slowest rank's time, in ms.
    pub step_ms: Option<f64>,
    /// The shortest step.
    pub min_ms: Option<f64>,
    /// The longest step.
    pub max_ms: Option<f64>,
    /// Steps that took more than twice the median.
    pub long_steps: usize,
    /// Nodes are emulated; empty where the engine does not know.
    pub emulated: Option<bool>,
    /// Ranks share cores; empty where the engine does not know.
    pub oversubscribed: Option<bool>,
    /// The least latency between the first two processors in nanoseconds: while the steps ran that count, or, where all count,
    /// since warm-up began. Empty on a machine that is not virtual, whose processors do not move.
    pub core_to_core_ns_least: Option<f64>,
    /// The largest one.
    pub core_to_core_ns_most: Option<f64>,
    /// Wall time of the whole block in seconds, start of the processes included.
    pub block_s: f64,
}

impl BlockRow {
    /// Whether the processors were that far apart all the time, as far as it is known: ranks may run on other machines.
    pub fn ran_at(&self, core_to_core_ns: f64) -> bool {
        let mut known =
            [self.core_to_core_ns_least, self.core_to_core_ns_most].into_iter().flatten();
        known.all(|ns| are_alike(ns, core_to_core_ns))
    }

    /// Whether this runner ran it.
    pub fn is_of(&self, runner: Runner) -> bool {
        self.engine == runner.name()
    }
}
