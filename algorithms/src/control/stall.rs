//! Tensors that some ranks wait for in vain.

use std::fmt;
use std::time::Duration;

use crate::topology::Rank;

/// A tensor that is ready on some ranks and not on others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The tensor.
    pub name: String,
    /// The ranks on which it is not ready; in a tree, ranks whose subtrees contain such a rank.
    pub missing: Vec<Rank>,
    /// The time since it became ready on the first rank.
    pub waited: Duration,
    /// Whether all ranks shut down because of it.
    pub shuts_down: bool,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 6;
        let some: Vec<_> = self.missing.iter().take(MAX).map(Rank::to_string).collect();
        let more = if self.missing.len() > MAX { ", ..." } else { "" };
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

/// When a tensor that waits for some ranks is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallCheck {
    /// A tensor that waits for longer is reported, and again after every such interval.
    pub warn_after: Duration,
    /// A tensor that waits for longer ends the job.
    pub shut_down_after: Option<Duration>,
}

impl Default for StallCheck {
    /// Horovod's defaults: a warning after a minute, and no shutdown.
    fn default() -> StallCheck {
        StallCheck { warn_after: Duration::from_secs(60), shut_down_after: None }
    }
}
