//! Why a job cannot continue, and which process is at fault.

use std::fmt;
use std::time::Duration;

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};

/// Rank 0's conclusion, which it sends to all processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Diagnosis {
    /// A process's connection has closed before it had finished.
    Lost {
        /// The process.
        rank: Rank,
    },
    /// A process has sent something that is no message.
    Protocol {
        /// The process.
        rank: Rank,
        /// The error.
        error: String,
    },
    /// A process sends no heartbeats: it is stopped, or its node does not respond.
    Silent {
        /// The process.
        rank: Rank,
        /// Since its last heartbeat.
        silence: Duration,
    },
    /// Rank 0 itself was stopped, so that others gave up.
    Suspended {
        /// How long.
        pause: Duration,
    },
    /// A process sends heartbeats and makes no progress, and another has given up waiting.
    Stuck {
        /// The process.
        rank: Rank,
        /// The reason that the process reports.
        reason: String,
    },
    /// A process cannot continue, and no other is known to be at fault.
    GaveUp {
        /// The process.
        rank: Rank,
        /// The reason that the process reports.
        reason: String,
    },
    /// No process makes progress, and none has given up.
    Standstill {
        /// A process that is not known to wait for another.
        rank: Rank,
        /// How long.
        duration: Duration,
    },
}

impl Diagnosis {
    /// The process at fault.
    pub fn rank(&self) -> Rank {
        match *self {
            Diagnosis::Lost { rank }
            | Diagnosis::Protocol { rank, .. }
            | Diagnosis::Silent { rank, .. }
            | Diagnosis::Stuck { rank, .. }
            | Diagnosis::GaveUp { rank, .. }
            | Diagnosis::Standstill { rank, .. } => rank,
            Diagnosis::Suspended { .. } => 0,
        }
    }

    /// The same with another text, if it has one.
    pub fn map_reason(mut self, change: impl FnOnce(String) -> String) -> Diagnosis {
        if let Diagnosis::Protocol { error: text, .. }
        | Diagnosis::Stuck { reason: text, .. }
        | Diagnosis::GaveUp { reason: text, .. } = &mut self
        {
            *text = change(std::mem::take(text));
        }
        self
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnosis::Lost { rank } => write!(f, "process {rank} is gone"),
            Diagnosis::Protocol { rank, error } => {
                write!(f, "process {rank} broke the protocol: {error}")
            }
            Diagnosis::Silent { rank, silence } => {
                write!(f, "process {rank} has sent no heartbeat for {:.1} s", silence.as_secs_f64())
            }
            Diagnosis::Suspended { pause } => {
                write!(f, "process 0 was suspended for {:.1} s", pause.as_secs_f64())
            }
            Diagnosis::Stuck { rank, reason } => {
                write!(f, "process {rank} makes no progress: {reason}")
            }
            // It names the rank.
            Diagnosis::GaveUp { reason, .. } => f.write_str(reason),
            Diagnosis::Standstill { rank, duration } => write!(
                f,
                "no process has made progress for {:.1} s; process {rank} is not waiting for any other",
                duration.as_secs_f64()
            ),
        }
    }
}
