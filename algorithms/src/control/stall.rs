//! Tensors that some ranks wait for in vain.

use std::fmt;
use std::time::Duration;

use crate::topology::Rank;

/// A tensor that some ranks wait for, and others have not made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The tensor.
    pub name: String,
    /// Who has not made it ready; in a tree, some rank in each of these ranks' subtrees.
    pub missing: Vec<Rank>,
    /// Since the first rank made it ready.
    pub waited: Duration,
    /// It has waited for so long that all ranks shut down.
    pub shuts_down: bool,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 6;
        let some: Vec<_> = self.missing.iter().take(MOST).map(Rank::to_string).collect();
        let more = if self.missing.len() > MOST { ", ..." } else { "" };
        write!(
            f,
            "tensor \"{}\" has been waiting for {:.1} s: not ready on rank{} {}{more} ({} of them)",
            self.name,
            self.waited.as_secs_f64(),
            if self.missing.len() == 1 { "" } else { "s" },
            some.join(", "),
            self.missing.len(),
        )?;
        if self.shuts_down { write!(f, "; all ranks shut down") } else { Ok(()) }
    }
}

/// When somebody is told that a tensor waits for some ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallCheck {
    /// A tensor that waits for longer is reported, again and again after as long.
    pub warn_after: Duration,
    /// A tensor that waits for longer ends the job.
    pub shut_down_after: Option<Duration>,
}

impl Default for StallCheck {
    /// Horovod's.
    fn default() -> StallCheck {
        StallCheck { warn_after: Duration::from_secs(60), shut_down_after: None }
    }
}
