//! Ranks are processes with a GPU each, which talk through NCCL.

use algorithms::grouping::Packing;
use algorithms::registry;
use algorithms::topology::Topology;
use results::provenance::Launch;
use thiserror::Error;
use training::back_end::{BackEnd, LocalRanks, MemoryKind, NoLocalRanks, RankKind};
use training::outcome::BackEndError;
use transports::data_plane::nccl::{self, ALL_REDUCE, HIERARCHICAL};
use transports::data_plane::{DataPlane, DataPlaneError};

use super::NAME;
use super::library::Nccl;
use crate::cuda::devices;

/// An algorithm reduces tensors where they lie.
#[derive(Debug, Error)]
#[error("{name} reduces tensors without copying them, which transport {NAME} does not support yet")]
struct Scattered {
    name: String,
}

/// The back end.
pub struct NcclBackEnd;

impl BackEnd for NcclBackEnd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rank_kind(&self) -> RankKind {
        RankKind::Process
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn availability(&self) -> Result<String, BackEndError> {
        Nccl::open().map_err(error)?;
        devices::find().map_err(error)?;
        let sweeps = if cfg!(feature = "mpi") {
            "sweep and tune negotiate over MPI"
        } else {
            "only for kolo bench; sweep and tune need a build with --features mpi"
        };
        Ok(format!("ranks are processes, each with a GPU; {sweeps}"))
    }

    fn library_allreduce(&self) -> Option<&'static str> {
        Some(ALL_REDUCE)
    }

    fn data_plane(&self, name: &str, topology: &Topology) -> Result<DataPlane, DataPlaneError> {
        if let Some(native) = nccl::parse(name).expect("the name was checked") {
            return Ok(DataPlane::Nccl(native));
        }
        let grouping = registry::find(name).ok().and_then(|algorithm| algorithm.grouping());
        if grouping.is_some_and(|it| it.packing == Packing::Scattered) {
            return Err(DataPlaneError::back_end(Scattered { name: name.into() }));
        }
        DataPlane::scheduled(name, NAME, topology)
    }

    fn segment_bytes(&self) -> usize {
        0
    }

    fn horovod_planes(
        &self,
        hierarchical: Option<bool>,
        is_one_node: bool,
    ) -> Result<Vec<&'static str>, BackEndError> {
        Ok(match hierarchical {
            Some(true) => vec![HIERARCHICAL],
            Some(false) => vec![ALL_REDUCE],
            None if is_one_node => vec![ALL_REDUCE],
            None => vec![ALL_REDUCE, HIERARCHICAL],
        })
    }

    fn open(&self, _: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
        Err(error(NoLocalRanks))
    }

    #[cfg(feature = "mpi")]
    fn join(
        &self,
        processes: &mut dyn training::back_end::Exchange,
        timeout: std::time::Duration,
        launch: &mut Launch,
    ) -> Result<Box<dyn training::back_end::ProcessRank>, BackEndError> {
        let rank = super::process_rank::GpuRank::join(processes, timeout, launch);
        Ok(Box::new(rank.map_err(error)?))
    }
}

fn error(error: impl std::error::Error + Send + Sync + 'static) -> BackEndError {
    BackEndError::new("NCCL", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_that_nccl_supports() {
        let find = |name| NcclBackEnd.data_plane(name, &Topology::flat(2));
        assert!(find("ring").unwrap().choices().is_some());
        let native = find("nccl-hierarchical").unwrap();
        assert!(native.choices().is_none() && native.grouping().is_none());
        let Err(why) = find("grouped-scattered") else { panic!("it is packed") };
        assert!(why.to_string().contains("which transport nccl does not support yet"), "{why}");
        let Err(why) = find("mpi-allreduce") else { panic!("it is MPI's") };
        assert!(why.to_string().contains("needs transport mpi"), "{why}");
    }
}
