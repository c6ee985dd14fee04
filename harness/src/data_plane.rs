//! Who combines gradients: one of our algorithms, or the library that moves the bytes, by itself.

use std::sync::Arc;

use algorithms::grouped::{Buffer as Packing, Grouping};
use algorithms::registry::{self, Algorithm, Choice};
use algorithms::topology::Topology;

use crate::allreduce::{Scheduled, Sizes};
use crate::calibrate;
use crate::memory::Memory;
use crate::nccl;
use crate::nccl::data_plane::{self as nccl_plane, Native};
use crate::transport::{self, Transport};

/// `MPI_Allreduce`, as configurations and CSV files call it.
pub const MPI_ALLREDUCE: &str = "mpi-allreduce";

/// How a case's messages are reduced.
pub enum DataPlane {
    /// By one of our algorithms.
    Ours {
        /// The algorithm; if it groups, it says how several tensors become one vector.
        algorithm: Arc<dyn Algorithm>,
        /// Its schedules by size.
        choices: Vec<Choice>,
    },
    /// By the transport's own allreduce: as in Horovod, several tensors are copied whole into the fusion
    /// buffer, and one blocking call reduces it in place.
    Vendor,
    /// By NCCL itself, in memory of GPUs.
    Nccl(Native),
}

impl DataPlane {
    /// The data plane of that name on a transport.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Panics
    /// When no data plane has that name, see [`spelling`].
    pub fn find(name: &str, transport: &str, topology: &Topology) -> Result<DataPlane, String> {
        if let Some(native) = nccl_plane::parse(name).expect("the name was checked") {
            return match transport {
                nccl::NAME => Ok(DataPlane::Nccl(native)),
                other => Err(nccl_plane::elsewhere(name, other)),
            };
        }
        match (name, transport) {
            (MPI_ALLREDUCE, transport::MPI) => Ok(DataPlane::Vendor),
            (MPI_ALLREDUCE, other) => Err(format!(
                "{MPI_ALLREDUCE} is the MPI library's own, which transport {other} does not have; take \
                 transport {}, or an algorithm of ours",
                transport::MPI
            )),
            _ => {
                let algorithm = registry::find(name).expect("the name was checked");
                let grouping = algorithm.grouping();
                let is_scattered = grouping.is_some_and(|it| it.buffer == Packing::Scattered);
                match transport == nccl::NAME && is_scattered {
                    true => Err(format!(
                        "{name} works on tensors where they lie, which transport {transport} does not yet"
                    )),
                    false => DataPlane::ours(algorithm, topology),
                }
            }
        }
    }

    /// One of our algorithms.
    ///
    /// # Errors
    /// Why it has no schedule for the topology.
    pub fn ours(algorithm: Arc<dyn Algorithm>, topology: &Topology) -> Result<DataPlane, String> {
        let choices = algorithm.choices(topology).map_err(|why| why.to_string())?;
        Ok(DataPlane::Ours { algorithm, choices })
    }

    /// One of our algorithms; if it chooses, then as `table` says.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Panics
    /// When there is no such algorithm.
    pub fn calibrated(
        name: &str,
        topology: &Topology,
        table: &calibrate::Table,
    ) -> Result<DataPlane, String> {
        let (algorithm, choices) = calibrate::prepared(name, topology, table);
        Ok(DataPlane::Ours { algorithm, choices: choices? })
    }

    /// The schedules by size, if they are ours.
    pub fn choices(&self) -> Option<&[Choice]> {
        match self {
            DataPlane::Ours { choices, .. } => Some(choices),
            DataPlane::Vendor | DataPlane::Nccl(_) => None,
        }
    }

    /// Whether tensors are released in groups, and how a group is reduced.
    pub fn grouping(&self) -> Option<Grouping> {
        match self {
            DataPlane::Ours { algorithm, .. } => algorithm.grouping(),
            DataPlane::Vendor | DataPlane::Nccl(_) => None,
        }
    }

    /// One rank's part of it. The fusion buffer is given so that it can be used again.
    pub fn on<T: Transport>(
        &self,
        transport: T,
        sizes: Sizes,
        fusion_buffer: Memory,
    ) -> Scheduled<'_, T> {
        match self {
            DataPlane::Ours { choices, .. } => {
                let packing = self.grouping().map_or(Packing::Packed, |grouping| grouping.buffer);
                Scheduled::new(transport, choices, sizes, packing, fusion_buffer)
            }
            DataPlane::Vendor | DataPlane::Nccl(_) => {
                Scheduled::by_vendor(transport, fusion_buffer)
            }
        }
    }
}

/// The one spelling of a data plane's name: of an algorithm's, of the MPI library's own, or of NCCL's.
///
/// # Errors
/// What is wrong with it, and which there are.
pub fn spelling(name: &str) -> Result<String, String> {
    if name == MPI_ALLREDUCE {
        return Ok(name.into());
    }
    if name.split(':').any(|part| part == MPI_ALLREDUCE) {
        return Err(format!(
            "\"{name}\" is unknown: {MPI_ALLREDUCE} takes nothing after it and runs inside nothing, \
             since the library has no schedule; write {MPI_ALLREDUCE} alone"
        ));
    }
    if let Some(native) = nccl_plane::parse(name)? {
        return Ok(native.to_string());
    }
    match registry::find(name) {
        Ok(algorithm) => Ok(algorithm.name()),
        Err(error) => Err(format!(
            "{error}; over MPI also {MPI_ALLREDUCE}, the library's own, and over NCCL {} and {}",
            nccl_plane::ALL_REDUCE,
            nccl_plane::HIERARCHICAL
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_stay_where_they_lie_unless_nccl_moves_them() {
        let find = |transport| DataPlane::find("grouped-scattered", transport, &Topology::flat(2));
        for transport in ["threads", "mpi", "cuda"] {
            assert!(find(transport).is_ok(), "{transport}");
        }
        assert!(find("nccl").err().unwrap().contains("which transport nccl does not yet"));
    }

    #[test]
    fn the_librarys_own_is_for_its_transport_and_alone() {
        let world = Topology::flat(2);
        let find = |transport| DataPlane::find(MPI_ALLREDUCE, transport, &world);
        assert!(find("mpi").unwrap().choices().is_none());
        let Err(why) = find("threads") else { panic!("threads have no library") };
        assert!(why.contains("transport threads does not have; take transport mpi"), "{why}");
        assert_eq!(spelling(MPI_ALLREDUCE).unwrap(), MPI_ALLREDUCE);
        for name in ["grouped:mpi-allreduce", "mpi-allreduce:ring"] {
            assert!(spelling(name).unwrap_err().contains("write mpi-allreduce alone"));
        }
        let unknown = spelling("rign").unwrap_err();
        assert!(unknown.contains("over MPI also mpi-allreduce, the library's own"), "{unknown}");
        assert!(unknown.ends_with("over NCCL nccl-allreduce and nccl-hierarchical"), "{unknown}");
        assert_eq!(spelling("nccl-allreduce:tree").unwrap(), "nccl-allreduce:Tree");
        let Err(why) = DataPlane::find("nccl-allreduce", "mpi", &world) else { panic!("found") };
        assert!(why.contains("transport mpi does not have; take transport nccl"), "{why}");
        let nccl = DataPlane::find("nccl-hierarchical", "nccl", &world).unwrap();
        assert!(nccl.choices().is_none() && nccl.grouping().is_none());
        assert_eq!(spelling("hierarchical:ring").unwrap(), "hierarchical");
    }
}
