//! The trait of algorithms: functions from a topology to a schedule, with promised steps and volumes.

use std::fmt;

use crate::grouping::Grouping;
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// A function from a topology to a schedule.
pub trait Algorithm: Send + Sync {
    /// Its name, in the one spelling used in configurations, CSV files and legends.
    fn name(&self) -> String;

    /// The schedule for a topology.
    ///
    /// # Errors
    /// When there are more ranks than [`Algorithm::limit`] allows, or when [`Algorithm::formula`] refuses
    /// the topology.
    fn schedule(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        match self.limit() {
            Some(limit) if topology.ranks() > limit.ranks => {
                Err(limit.exceeded(&self.name(), topology.ranks()))
            }
            _ => self.formula(topology),
        }
    }

    /// The schedule for a topology within the limit: what an algorithm implements. Callers use
    /// [`Algorithm::schedule`], for an inner algorithm as well.
    ///
    /// # Errors
    /// When the algorithm has no schedule for the topology.
    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported>;

    /// The number of steps that the algorithm promises; [`crate::verify`] checks it.
    fn steps(&self, topology: &Topology) -> usize;

    /// The volume that the algorithm promises for `rank`; [`crate::verify`] checks it.
    fn volume(&self, topology: &Topology, rank: Rank) -> Volume;

    /// The largest world for which it makes sense; none if the work of a rank per step grows at most
    /// logarithmically with the world. The limit of an inner algorithm is on its own world.
    fn limit(&self) -> Option<Limit> {
        None
    }

    /// The schedules by size of buffer: ascending, the first from 0 bytes on. There is one, unless the
    /// algorithm chooses among others.
    ///
    /// # Errors
    /// As [`Algorithm::schedule`].
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
    /// The name of the algorithm whose schedule it is.
    pub name: String,
    /// The schedule.
    pub schedule: Box<dyn Schedule>,
}

/// The largest world that an algorithm makes sense for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The largest number of ranks.
    pub ranks: usize,
    /// What becomes too much in a larger world.
    pub because: &'static str,
    /// What to use in a larger world.
    pub instead: &'static str,
}

impl Limit {
    fn exceeded(&self, name: &str, found: usize) -> Unsupported {
        let Limit { ranks, because, instead } = self;
        Unsupported(format!(
            "{name} supports at most {ranks} ranks, but there are {found}: {because}; use {instead}"
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

/// An algorithm has no schedule for a topology. The text says why, and what would work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// The inner algorithm of `hierarchical`, `grouped`, ... if the name gives none.
pub const DEFAULT_INNER: &str = "ring";

/// The name of an outer algorithm over an inner one: `outer:inner`, or `outer` over the default one.
pub(crate) fn compose(outer: &str, inner: &dyn Algorithm) -> String {
    match inner.name() {
        inner if inner == DEFAULT_INNER => outer.to_string(),
        inner => format!("{outer}:{inner}"),
    }
}

/// The schedule of an inner algorithm over one rank of each node, for `hierarchical` and `leader`.
pub(crate) fn across_nodes(
    inner: &dyn Algorithm,
    topology: &Topology,
) -> Result<Box<dyn Schedule>, Unsupported> {
    let schedule = inner.schedule(&Topology::flat(topology.nodes()));
    schedule.map_err(|Unsupported(why)| Unsupported(format!("across nodes, {why}")))
}
