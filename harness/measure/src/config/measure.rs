//! How long and how often each case of a sweep is measured.

use std::time::Duration;

use algorithms::control::StallCheck;
use results::toml_file::{Invalid, at_least_1, within};
use serde::{Deserialize, Serialize};

use super::timelines::Timelines;

/// How long and how often each case is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Steps of the warm-up at the beginning of each block, at least.
    pub warmup_steps: usize,
    /// The most that the warm-up grows to where the first steps that count are slower than the others.
    #[serde(skip_serializing_if = "is_most_warmup")]
    pub warmup_steps_max: usize,
    /// Measured steps of each block.
    pub steps_per_block: usize,
    /// Starts of the program. Blocks of one start share its processes and their placement.
    #[serde(skip_serializing_if = "is_1")]
    pub launches: usize,
    /// The fewest blocks of a case in each launch.
    pub blocks_min: usize,
    /// The most blocks of a case in each launch.
    pub blocks_max: usize,
    /// A case is done when half its interval is at most this share of its median.
    pub interval_percent: f64,
    /// No block begins after this time, once every case has its minimum.
    pub budget_seconds: f64,
    /// The first case has a block before all others of each round, and one at the end of the sweep.
    #[serde(skip_serializing_if = "is_off")]
    pub repeat_base: bool,
    /// A job ends with a calibration of its nodes, and with the simulator's prediction of the same cases.
    #[serde(skip_serializing_if = "is_off")]
    pub calibrate: bool,
    /// Which cases get a timeline.
    #[serde(skip_serializing_if = "Timelines::is_none")]
    pub timelines: Timelines,
    /// The timeout of a rank that waits for another. The case then fails.
    #[serde(alias = "patience_seconds")]
    pub timeout_seconds: f64,
    /// Whether to check for stalled gradients.
    pub stall_check: bool,
    /// Seconds after which a stalled gradient is reported.
    pub stall_warning_seconds: f64,
    /// Seconds after which a stalled gradient ends the case; 0: never.
    pub stall_shutdown_seconds: f64,
    /// Seed of the order and of the data.
    pub seed: u64,
}

/// The most steps of a warm-up, unless the configuration says otherwise.
const WARMUP_STEPS_MAX: usize = 16;

/// A number that older folders of results do not have.
fn is_most_warmup(number: &usize) -> bool {
    *number == WARMUP_STEPS_MAX
}

/// A number that older folders of results do not have.
fn is_1(number: &usize) -> bool {
    *number == 1
}

/// A switch that older folders of results do not have.
fn is_off(switch: &bool) -> bool {
    !switch
}

impl Measure {
    /// As control planes take it.
    pub fn stall_check(&self) -> Option<StallCheck> {
        let seconds = Duration::from_secs_f64;
        self.stall_check.then(|| StallCheck {
            warn_after: seconds(self.stall_warning_seconds),
            shut_down_after: (self.stall_shutdown_seconds > 0.0)
                .then(|| seconds(self.stall_shutdown_seconds)),
        })
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        for (key, value, most) in [
            ("measure.interval_percent", self.interval_percent, 100.0),
            ("measure.budget_seconds", self.budget_seconds, 1e7),
            ("measure.timeout_seconds", self.timeout_seconds, 1e5),
            ("measure.stall_warning_seconds", self.stall_warning_seconds, 1e5),
            ("measure.stall_shutdown_seconds", self.stall_shutdown_seconds, 1e5),
        ] {
            within(key, value, 0.0, most)?;
        }
        if self.budget_seconds == 0.0 {
            let least = "to measure as little as possible, make blocks_max as small as blocks_min";
            return Err(Invalid::value("measure.budget_seconds", 0, "more").with_advice(least));
        }
        for (key, value) in [
            ("measure.steps_per_block", self.steps_per_block),
            ("measure.launches", self.launches),
            ("measure.blocks_min", self.blocks_min),
        ] {
            at_least_1(key, value)?;
        }
        let Measure { blocks_min, blocks_max, .. } = *self;
        if blocks_max < blocks_min {
            let expected = format!("at least blocks_min ({blocks_min})");
            return Err(Invalid::value("measure.blocks_max", blocks_max, expected));
        }
        Ok(())
    }
}

impl Default for Measure {
    fn default() -> Measure {
        Measure {
            warmup_steps: 2,
            warmup_steps_max: WARMUP_STEPS_MAX,
            steps_per_block: 5,
            launches: 1,
            blocks_min: 2,
            blocks_max: 10,
            interval_percent: 2.0,
            budget_seconds: 600.0,
            repeat_base: false,
            calibrate: false,
            timelines: Timelines::None,
            timeout_seconds: 60.0,
            stall_check: true,
            stall_warning_seconds: 60.0,
            stall_shutdown_seconds: 0.0,
            seed: 1,
        }
    }
}
