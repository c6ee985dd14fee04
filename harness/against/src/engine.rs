//! What both engines are: one block of one case.

use std::time::Duration;

use measure::config::Config;
use thiserror::Error;
use training::back_end::Shares;

use crate::plan::{Compared, Plan};
use crate::process::ProcessError;

/// Time that processes may take to start and end.
const START: Duration = Duration::from_secs(120);

/// One of the programs that are compared.
pub trait Engine {
    /// The program and its version, in words.
    fn about(&self) -> String;

    /// Runs a block, in processes of its own unless they stay from the block before.
    ///
    /// # Errors
    /// When the processes fail, do not end, or reduce wrongly.
    fn run(&mut self, plan: &Plan, case: &Compared) -> Result<Steps, BlockError>;
}

/// The steps of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The time of each measured step in ms, the slowest rank's.
    pub times_ms: Vec<f64>,
    /// When the steps that warm up began and the last step ended, in seconds since 1970 UTC, if the engine tells.
    pub moments_s: Option<[f64; 2]>,
    /// When the first measured step began, and when each one ended, in seconds since 1970 UTC; empty if the engine does not tell.
    pub ends_s: Vec<f64>,
    /// What ranks share, if the engine knows.
    pub shares: Option<Shares>,
}

/// Why a block has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Its processes failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file of its own cannot be written or read.
    #[error("{what}: {cause}")]
    File {
        /// The file's purpose.
        what: &'static str,
        /// The system's error.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It ended without what was expected.
    #[error("{0}")]
    Result(String),
}

impl BlockError {
    /// The error of a file of the block.
    pub(crate) fn file<E>(what: &'static str) -> impl FnOnce(E) -> BlockError
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |cause| BlockError::File { what, cause: cause.into() }
    }
}

/// The most time that a block may take.
pub(crate) fn limit(config: &Config) -> Duration {
    let steps = (config.measure.warmup_steps + config.measure.steps_per_block) as u32;
    START + 20 * own_time(config) * steps + Duration::from_secs_f64(config.measure.timeout_seconds)
}

/// The time of a step without communication.
pub(crate) fn own_time(config: &Config) -> Duration {
    let times = config.times();
    let passes = config.framework.backward_passes_per_step as u32;
    (times.forward + times.backward) * passes + times.optimizer
}
