//! Grouped allreduce: several tensors released and reduced as one unit.
//!
//! A group is a property of the buffer, not of the schedule: an inner algorithm reduces the
//! tensors of one or more groups as if they were one long vector. They become ready together, so
//! the control plane sees all of a group or nothing of it, whatever the cycle time. The vector is
//! either packed into the fusion buffer, as Horovod does, or scattered: the schedule's chunks are
//! mapped onto the tensors where they lie, and nothing is copied.
//!
//! Cost: that of the inner algorithm, per message; packing adds one copy in and one copy out.
//!
//! Horovod v0.21 `grouped_allreduce`, `DistributedOptimizer(groups=...)` (pull request 2453).

use std::ops::Range;
use std::sync::Arc;

use crate::algorithm::{Algorithm, Choice, Unsupported, Volume, compose};
use crate::grouping::{Grouping, Packing};
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// The default number of groups of gradients.
pub const DEFAULT_GROUPS: usize = 8;

/// `inner` over groups of tensors.
pub struct Grouped {
    /// The algorithm that reduces the vector.
    pub inner: Arc<dyn Algorithm>,
    /// How a message's tensors become one vector.
    pub packing: Packing,
}

impl Algorithm for Grouped {
    fn name(&self) -> String {
        let outer = match self.packing {
            Packing::Packed => "grouped",
            Packing::Scattered => "grouped-scattered",
        };
        compose(outer, &*self.inner)
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        self.inner.schedule(topology)
    }

    fn steps(&self, topology: &Topology) -> usize {
        self.inner.steps(topology)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        self.inner.volume(topology, rank)
    }

    fn choices(&self, topology: &Topology) -> Result<Vec<Choice>, Unsupported> {
        self.inner.choices(topology)
    }

    fn grouping(&self) -> Option<Grouping> {
        Some(Grouping { packing: self.packing })
    }
}

/// Splits `tensors` tensors, in their order of definition, into at most `groups` groups as evenly
/// as possible: the first `tensors % groups` have one more. With fewer tensors than groups, each tensor
/// is a group.
pub fn split(tensors: usize, groups: usize) -> Vec<Range<usize>> {
    let groups = groups.clamp(1, tensors.max(1));
    let bound = |group: usize| group * (tensors / groups) + group.min(tensors % groups);
    (0..groups).map(|group| bound(group)..bound(group + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_even_and_in_order() {
        let sizes: Vec<_> = split(161, 8).iter().map(|group| group.len()).collect();
        assert_eq!(sizes, [21, 20, 20, 20, 20, 20, 20, 20]);
        assert_eq!(split(5, 2), [0..3, 3..5]);
        assert_eq!(split(2, 8), [0..1, 1..2]);
        assert_eq!(split(3, 1), [0..3; 1]);
        assert_eq!(split(0, 4), [0..0; 1]);
    }
}
