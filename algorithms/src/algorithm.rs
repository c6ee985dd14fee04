//! What an algorithm is: a function from a topology to a schedule, with the steps and volumes that it
//! promises.

use std::fmt;

use crate::grouping::Grouping;
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// A function from a topology to a schedule.
pub trait Algorithm: Send + Sync {
    /// The one spelling of its name.
    fn name(&self) -> String;

    /// The schedule for a topology, or why there is none: the world is beyond the algorithm's
    /// [`Algorithm::limit`], or [`Algorithm::formula`] refuses it.
    fn schedule(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        match self.limit() {
            Some(limit) if topology.ranks() > limit.ranks => {
                Err(limit.exceeded(&self.name(), topology.ranks()))
            }
            _ => self.formula(topology),
        }
    }

    /// The schedule for a topology within the limit, or why there is none. Who wants a schedule
    /// calls [`Algorithm::schedule`], of an inner algorithm as well.
    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported>;

    /// The number of steps that the file's header promises; [`crate::verify`] counts.
    fn steps(&self, topology: &Topology) -> usize;

    /// What the file's header promises that `rank` sends and receives; [`crate::verify`] counts.
    fn volume(&self, topology: &Topology, rank: Rank) -> Volume;

    /// The largest world that it makes sense for. There is none where no step asks more of a rank in
    /// a larger world, save logarithmically; an inner algorithm's limit is on its own world.
    fn limit(&self) -> Option<Limit> {
        None
    }

    /// Which schedule is for buffers of which size: ascending, the first from 0 bytes on. One, unless
    /// the algorithm chooses among others.
    fn choices(&self, topology: &Topology) -> Result<Vec<Choice>, Unsupported> {
        let schedule = self.schedule(topology)?;
        Ok(vec![Choice { from_bytes: 0, name: self.name(), schedule }])
    }

    /// Whether tensors are released in groups, and how a group is reduced.
    fn grouping(&self) -> Option<Grouping> {
        None
    }
}

/// The schedule for buffers from some size on.
pub struct Choice {
    /// The smallest size, per rank.
    pub from_bytes: usize,
    /// Name of the algorithm whose schedule it is.
    pub name: String,
    /// The schedule.
    pub schedule: Box<dyn Schedule>,
}

/// The largest world that an algorithm makes sense for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// That many ranks, and no more.
    pub ranks: usize,
    /// What becomes too much beyond.
    pub because: &'static str,
    /// What to use there.
    pub instead: &'static str,
}

impl Limit {
    fn exceeded(&self, name: &str, found: usize) -> Unsupported {
        let Limit { ranks, because, instead } = self;
        Unsupported(format!(
            "{name} is for at most {ranks} ranks, but there are {found}: {because}; use {instead}"
        ))
    }
}

/// What one rank moves in one allreduce, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Chunks that the rank sends, over all steps.
    pub sent: usize,
    /// Chunks that the rank receives, over all steps.
    pub received: usize,
}

/// An algorithm has no schedule for a topology; says why and what would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// What runs inside `hierarchical`, `grouped`, ... when no inner algorithm is named.
pub const DEFAULT_INNER: &str = "ring";

/// The name of an outer algorithm over an inner one; the default inner one is left out.
pub(crate) fn compose(outer: &str, inner: &dyn Algorithm) -> String {
    match inner.name() {
        inner if inner == DEFAULT_INNER => outer.to_string(),
        inner => format!("{outer}:{inner}"),
    }
}

/// The schedule of an algorithm that has one rank on each node, for `hierarchical` and the like.
pub(crate) fn across_nodes(
    inner: &dyn Algorithm,
    topology: &Topology,
) -> Result<Box<dyn Schedule>, Unsupported> {
    let schedule = inner.schedule(&Topology::flat(topology.nodes()));
    schedule.map_err(|Unsupported(why)| Unsupported(format!("across nodes, {why}")))
}
