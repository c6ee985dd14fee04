//! Ranks are processes that talk through an MPI library.

#[cfg(feature = "mpi")]
use algorithms::topology::Rank;
use algorithms::topology::Topology;
use results::provenance::Launch;
use transports::data_plane::{DataPlane, DataPlaneError, MPI_ALLREDUCE};
#[cfg(feature = "mpi")]
use transports::mpi::{self, Connected, MpiPlane};
#[cfg(feature = "mpi")]
use transports::transport::Connections;
use transports::transport::MPI;

use super::{BackEnd, LocalRanks, NoLocalRanks, RankKind};
#[cfg(feature = "mpi")]
use super::{Exchange, ProcessRank};
use crate::outcome::BackEndError;
#[cfg(feature = "mpi")]
use crate::{
    engine::{self, RankMemory},
    job::Job,
    outcome::{EngineError, RankLog},
};

/// The program cannot talk to an MPI library.
#[cfg(not(feature = "mpi"))]
#[derive(Debug, thiserror::Error)]
#[error("built without MPI; needs mpicc, libclang and --features mpi")]
struct BuiltWithoutMpi;

/// Horovod reduces by `MPI_Allreduce` alone here.
#[derive(Debug, thiserror::Error)]
#[error("over MPI Horovod has no hierarchical allreduce: it needs NCCL; leave --hierarchical out")]
struct NoHierarchicalAllReduce;

/// The back end.
pub struct Mpi;

impl BackEnd for Mpi {
    fn name(&self) -> &'static str {
        MPI
    }

    fn rank_kind(&self) -> RankKind {
        RankKind::Process
    }

    #[cfg(feature = "mpi")]
    fn availability(&self) -> Result<String, BackEndError> {
        Ok(format!("{}; start with mpirun, or srun as the site does", mpi::library()))
    }

    #[cfg(not(feature = "mpi"))]
    fn availability(&self) -> Result<String, BackEndError> {
        Err(BackEndError::new(MPI, BuiltWithoutMpi))
    }

    fn library_allreduce(&self) -> Option<&'static str> {
        Some(MPI_ALLREDUCE)
    }

    fn data_plane(&self, name: &str, topology: &Topology) -> Result<DataPlane, DataPlaneError> {
        if name == MPI_ALLREDUCE {
            Ok(DataPlane::MpiAllreduce)
        } else {
            DataPlane::scheduled(name, self.name(), topology)
        }
    }

    fn horovod_planes(
        &self,
        hierarchical: Option<bool>,
        _: bool,
    ) -> Result<Vec<&'static str>, BackEndError> {
        if hierarchical == Some(true) {
            return Err(BackEndError::new(MPI, NoHierarchicalAllReduce));
        }
        Ok(vec![MPI_ALLREDUCE])
    }

    fn open(&self, _: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
        Err(BackEndError::new(MPI, NoLocalRanks))
    }

    #[cfg(feature = "mpi")]
    fn join(
        &self,
        _: &mut dyn Exchange,
        _: std::time::Duration,
        _: &mut Launch,
    ) -> Result<Box<dyn ProcessRank>, BackEndError> {
        Ok(Box::new(MpiRank))
    }
}

#[cfg(feature = "mpi")]
struct MpiRank;

#[cfg(feature = "mpi")]
impl ProcessRank for MpiRank {
    fn run(
        &mut self,
        job: &Job,
        _: &[Rank],
        rank: Rank,
        connections: Connected,
        memory: &mut RankMemory,
    ) -> Result<RankLog, EngineError> {
        let Connections { data, bits, control, last_step } = connections;
        let plane = MpiPlane::of(job.data_plane);
        let plane = plane.map_err(|error| EngineError::BackEnd(BackEndError::new(MPI, error)))?;
        let all_reduce = |fusion_buffer| plane.all_reduce(data, job.sizes, fusion_buffer);
        memory.touch_framework(job);
        engine::run_rank(job, rank, all_reduce, (bits, control, last_step), memory)
    }
}
