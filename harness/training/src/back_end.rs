//! The interface of a back end: how ranks exist, reduce gradients and train.
//!
//! A back end reports its name, the kind of its ranks, and whether it is available. It makes data planes, of this
//! project's algorithms or its library's own. It runs jobs: [`LocalRanks`] runs all ranks in this process,
//! `ProcessRank` (with the feature `mpi`) one rank per process.

mod mpi;
mod threads;

use std::fmt;

#[cfg(feature = "mpi")]
use algorithms::topology::Rank;
use algorithms::topology::Topology;
#[cfg(feature = "mpi")]
use cluster::preflight::Finding;
use results::provenance::Launch;
use transports::allreduce::SEGMENT_BYTES;
use transports::bench::{Bench, Timed};
use transports::data_plane::{DataPlane, DataPlaneError};
#[cfg(feature = "mpi")]
use transports::mpi::Connected;
#[cfg(feature = "mpi")]
use transports::transport::TransportError;

use crate::engine::RankMemory;
use crate::job::Job;
#[cfg(feature = "mpi")]
use crate::outcome::RankLog;
use crate::outcome::{BackEndError, EngineError, Outcome};

pub use mpi::Mpi;
pub use threads::Threads;

/// The kind of a back end's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankKind {
    /// Threads of this process, on the host's processor.
    Thread,
    /// Streams of this process, on GPUs.
    Stream,
    /// Processes, of which a launcher starts several.
    Process,
}

/// Where the gradients of a back end's ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// In host memory.
    Host,
    /// In GPU memory.
    Device,
}

/// A back end that is registered.
pub type BackEndRef = &'static dyn BackEnd;

/// One way for ranks to exist, to reduce gradients and to train.
pub trait BackEnd: Send + Sync {
    /// The one spelling of its name, in configurations and CSV files.
    fn name(&self) -> &'static str;

    /// The kind of its ranks.
    fn rank_kind(&self) -> RankKind;

    /// Where their gradients are.
    fn memory(&self) -> MemoryKind {
        MemoryKind::Host
    }

    /// Describes the available devices or library.
    ///
    /// # Errors
    /// When it is not available: why, and what to do.
    fn availability(&self) -> Result<String, BackEndError>;

    /// The data plane of that name in a world: one of our algorithms, or the library's own.
    ///
    /// # Errors
    /// When this back end has none of that name, or none for that world.
    ///
    /// # Panics
    /// When no data plane has that name, see [`transports::data_plane::spelling`].
    fn data_plane(&self, name: &str, topology: &Topology) -> Result<DataPlane, DataPlaneError> {
        DataPlane::scheduled(name, self.name(), topology)
    }

    /// The name of the library's own allreduce, if there is a library.
    fn library_allreduce(&self) -> Option<&'static str> {
        None
    }

    /// Ranks can write into each other's buffers.
    fn puts(&self) -> bool {
        false
    }

    /// Ranks can be bound to cores of their own.
    fn pins(&self) -> bool {
        false
    }

    /// Default size in bytes of the segments in which large vectors are pipelined; 0 leaves them whole.
    fn segment_bytes(&self) -> usize {
        SEGMENT_BYTES
    }

    /// Data planes that Horovod would choose among here, with `HOROVOD_HIERARCHICAL_ALLREDUCE` on, off or not set.
    ///
    /// # Errors
    /// When Horovod has none.
    fn horovod_planes(
        &self,
        hierarchical: Option<bool>,
        is_one_node: bool,
    ) -> Result<Vec<&'static str>, BackEndError> {
        Ok(match hierarchical {
            Some(true) => vec!["hierarchical"],
            Some(false) => vec!["ring"],
            None if is_one_node => vec!["ring"],
            None => vec!["ring", "hierarchical"],
        })
    }

    /// Allocates the resources of ranks in this process, and records them in `launch`. If it fails, `launch` is
    /// unchanged.
    ///
    /// # Errors
    /// The reason why the resources are not available; always where ranks are processes.
    fn open(&self, launch: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError>;

    /// Allocates the resources of this process's rank, together with all other processes.
    ///
    /// # Errors
    /// When some process cannot have it, with the same reason on all; always where ranks are not processes.
    #[cfg(feature = "mpi")]
    fn join(
        &self,
        _: &mut dyn Exchange,
        _: std::time::Duration,
        _: &mut Launch,
    ) -> Result<Box<dyn ProcessRank>, BackEndError> {
        Err(BackEndError::new(self.name(), NoProcessRank { back_end: self.name() }))
    }
}

impl fmt::Debug for dyn BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for dyn BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn BackEnd {
    fn eq(&self, other: &dyn BackEnd) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn BackEnd {}

/// A back end whose ranks are processes cannot open ranks in this one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("its ranks are processes; start several with a launcher")]
pub struct NoLocalRanks;

/// Why a back end whose ranks are in one process makes none of this process.
#[cfg(feature = "mpi")]
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("ranks of back end {back_end} are no processes")]
pub struct NoProcessRank {
    /// The back end.
    pub back_end: &'static str,
}

/// All ranks of a job, in this process.
pub trait LocalRanks {
    /// Whether a world's nodes are emulated, and whether its ranks share cores or devices.
    fn shares(&self, topology: &Topology) -> Shares;

    /// Rejects a job for which there is not enough memory.
    ///
    /// # Errors
    /// The memory that the job needs, and the memory that is free.
    fn check_room(&mut self, _: &Job) -> Result<(), BackEndError> {
        Ok(())
    }

    /// Runs a job; `memories` has one entry per rank.
    ///
    /// # Errors
    /// That of a rank that failed by itself.
    fn run(&mut self, job: &Job, memories: &mut [RankMemory]) -> Result<Outcome, EngineError>;

    /// Measures an allreduce alone.
    ///
    /// # Errors
    /// The first error of a rank; always on a back end that is not measured in this way.
    fn bench(&mut self, _: &Bench) -> Result<Timed, EngineError> {
        Err(EngineError::BackEnd(BackEndError::new("bench", NoBench)))
    }
}

/// A back end does not measure an allreduce alone.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this back end has no benchmark of an allreduce alone; choose another --transport")]
pub struct NoBench;

/// What the ranks of a world share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Its nodes are one machine.
    pub emulated: bool,
    /// Ranks share cores, or GPUs.
    pub oversubscribed: bool,
}

/// Data that processes exchange before a job.
#[cfg(feature = "mpi")]
pub trait Exchange {
    /// This process.
    fn rank(&self) -> Rank;

    /// Gathers the data of each process, in order, on all processes. All must call it.
    ///
    /// # Errors
    /// When a process does not answer.
    fn share(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, TransportError>;
}

/// The rank that this process is.
#[cfg(feature = "mpi")]
pub trait ProcessRank {
    /// Conditions of this back end that make times unreliable, the same on all processes. Findings about processes and nodes are
    /// common to all back ends, and not among these.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Whether ranks share devices; none if their device is the host's cores.
    fn is_oversubscribed(&self) -> Option<bool> {
        None
    }

    /// Why a job does not fit here, if so.
    fn refusal(&mut self, _: Rank, _: &Job) -> Option<String> {
        None
    }

    /// Runs this rank's part of a job, in which the processes `members` are ranks 0, 1, ...
    ///
    /// # Errors
    /// When ranks disagree, a rank does not answer, or a call of a device or library fails.
    fn run(
        &mut self,
        job: &Job,
        members: &[Rank],
        rank: Rank,
        connections: Connected,
        memory: &mut RankMemory,
    ) -> Result<RankLog, EngineError>;
}
