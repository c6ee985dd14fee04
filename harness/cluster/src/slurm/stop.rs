//! Signals of Slurm to a batch script: the time limit is near, or the job ends now.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag::register;

/// Why a job is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The time limit is near: USR1, requested by `--signal=B:USR1@120`.
    TimeLimit,
    /// It is preempted or cancelled: TERM.
    Terminated,
}

/// Whether the job is to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    time_limit: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl Stop {
    /// Listens to signals from now on.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn listen() -> io::Result<Stop> {
        let stop = Stop::default();
        register(SIGUSR1, Arc::clone(&stop.time_limit))?;
        register(SIGTERM, Arc::clone(&stop.terminated))?;
        register(SIGINT, Arc::clone(&stop.terminated))?;
        Ok(stop)
    }

    /// Why the job is to stop, if it is. That it ends now comes before that its time is nearly over.
    pub fn requested(&self) -> Option<Reason> {
        match (self.terminated.load(Relaxed), self.time_limit.load(Relaxed)) {
            (true, _) => Some(Reason::Terminated),
            (false, true) => Some(Reason::TimeLimit),
            (false, false) => None,
        }
    }
}
