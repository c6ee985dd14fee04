//! What moves the messages of a case.

use std::fmt;

use transports::threads;

/// What moves the messages of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Nothing: all ranks are driven in one thread.
    Lockstep,
    /// Memory that ranks share, each of which is a thread.
    Threads,
}

impl Transport {
    /// The one spelling of its name, in CSV files.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Lockstep => "lockstep",
            Transport::Threads => threads::NAME,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
