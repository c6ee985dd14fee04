//! What reduces gradients: an algorithm of this project, or the transport's own library.

mod error;
pub mod nccl;

use std::sync::Arc;

use algorithms::algorithm::{Algorithm, Choice, Unsupported};
use algorithms::grouping::{Grouping, Packing};
use algorithms::registry;
use algorithms::topology::Topology;

pub use self::error::{DataPlaneError, NameError};
use self::nccl::{self as nccl_plane, Native};
use crate::allreduce::{AllReduce, Fused, Scheduled, Sizes};
use crate::memory::Memory;
use crate::transport::{MPI, NCCL, Transport};
use results::names::algorithm;

/// `MPI_Allreduce`, as spelled in configurations and CSV files.
pub const MPI_ALLREDUCE: &str = "mpi-allreduce";

/// How a case's messages are reduced. A back end makes those that it can run, and refuses others.
pub enum DataPlane {
    /// By one of this project's algorithms.
    Ours(Schedules),
    /// By the MPI library's own allreduce, as in Horovod: whole tensors are copied into the fusion buffer, and one
    /// blocking call reduces it in place.
    MpiAllreduce,
    /// By NCCL, in GPU memory.
    Nccl(Native),
}

/// One of this project's algorithms, with its schedules in a world.
pub struct Schedules {
    /// The algorithm. A grouped algorithm also defines how several tensors become one vector.
    pub algorithm: Arc<dyn Algorithm>,
    /// Its schedules by size.
    pub choices: Vec<Choice>,
}

impl Schedules {
    /// How tensors are grouped and reduced, if the algorithm groups them.
    pub fn grouping(&self) -> Option<Grouping> {
        self.algorithm.grouping()
    }

    /// One rank's part of the algorithm on a transport. `fusion_buffer` is reused.
    pub fn on<'p, T: Transport + 'p>(
        &'p self,
        transport: T,
        sizes: Sizes,
        fusion_buffer: Memory,
    ) -> Box<dyn AllReduce + 'p> {
        let packing = self.grouping().map_or(Packing::Packed, |grouping| grouping.packing);
        let reduces = Scheduled::new(transport, &self.choices, sizes.segment_bytes);
        Box::new(Fused::new(reduces, packing, sizes.packing_bytes, fusion_buffer))
    }
}

impl DataPlane {
    /// Finds an algorithm by name, for a back end without an allreduce of its own, or for a name other than that.
    ///
    /// # Errors
    /// When the name is a library's own, or the algorithm has no schedule for the topology.
    ///
    /// # Panics
    /// When no data plane has that name, see [`spelling`].
    pub fn scheduled(
        name: &str,
        back_end: &str,
        topology: &Topology,
    ) -> Result<DataPlane, DataPlaneError> {
        if let Some(native) = nccl_plane::parse(name).expect("the name was checked") {
            return Err(DataPlane::Nccl(native).not_on(back_end));
        }
        if name == MPI_ALLREDUCE {
            return Err(DataPlane::MpiAllreduce.not_on(back_end));
        }
        Ok(DataPlane::ours(registry::find(name).expect("the name was checked"), topology)?)
    }

    /// One of this project's algorithms.
    ///
    /// # Errors
    /// When it has no schedule for the topology.
    pub fn ours(
        algorithm: Arc<dyn Algorithm>,
        topology: &Topology,
    ) -> Result<DataPlane, Unsupported> {
        let choices = algorithm.choices(topology)?;
        Ok(DataPlane::Ours(Schedules { algorithm, choices }))
    }

    /// The algorithm and its schedules, for a back end that has no allreduce of its own.
    ///
    /// # Errors
    /// When a library reduces.
    pub fn schedules(&self, back_end: &str) -> Result<&Schedules, DataPlaneError> {
        match self {
            DataPlane::Ours(schedules) => Ok(schedules),
            DataPlane::MpiAllreduce | DataPlane::Nccl(_) => Err(self.not_on(back_end)),
        }
    }

    /// The refusal of a back end that cannot run this data plane.
    pub fn not_on(&self, back_end: &str) -> DataPlaneError {
        let (name, library, owner) = match self {
            DataPlane::Ours(schedules) => (schedules.algorithm.name(), "kolo", "threads"),
            DataPlane::MpiAllreduce => (MPI_ALLREDUCE.into(), "the MPI library", MPI),
            DataPlane::Nccl(native) => (native.to_string(), "NCCL", NCCL),
        };
        DataPlaneError::Elsewhere { name, library, owner, transport: back_end.into() }
    }

    /// The schedules by size, if the algorithm is this project's.
    pub fn choices(&self) -> Option<&[Choice]> {
        match self {
            DataPlane::Ours(Schedules { choices, .. }) => Some(choices),
            DataPlane::MpiAllreduce | DataPlane::Nccl(_) => None,
        }
    }

    /// How tensors are grouped and reduced, if the algorithm groups them.
    pub fn grouping(&self) -> Option<Grouping> {
        match self {
            DataPlane::Ours(schedules) => schedules.grouping(),
            DataPlane::MpiAllreduce | DataPlane::Nccl(_) => None,
        }
    }
}

/// The canonical spelling of a data plane: an algorithm's, the MPI library's, or NCCL's.
///
/// # Errors
/// When no data plane has that name.
pub fn spelling(name: &str) -> Result<String, NameError> {
    if name == MPI_ALLREDUCE {
        return Ok(name.into());
    }
    if name.split(':').any(|part| part == MPI_ALLREDUCE) {
        return Err(NameError::MpiNotAlone { name: name.into() });
    }
    if let Some(native) = nccl_plane::parse(name)? {
        return Ok(native.to_string());
    }
    let native = [MPI_ALLREDUCE, nccl_plane::ALL_REDUCE, nccl_plane::HIERARCHICAL];
    Ok(algorithm(name, &native)?.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_librarys_own_is_for_its_back_end_and_alone() {
        let world = Topology::flat(2);
        let find = |name| DataPlane::scheduled(name, "threads", &world);
        assert!(find("ring").unwrap().choices().is_some());
        let Err(why) = find(MPI_ALLREDUCE) else { panic!("threads have no library") };
        assert!(why.to_string().contains("needs transport mpi; with transport threads"), "{why}");
        let Err(why) = find("nccl-allreduce") else { panic!("threads have no NCCL") };
        assert!(why.to_string().contains("needs transport nccl; with transport threads"), "{why}");
        assert_eq!(spelling(MPI_ALLREDUCE).unwrap(), MPI_ALLREDUCE);
        for name in ["grouped:mpi-allreduce", "mpi-allreduce:ring"] {
            assert!(spelling(name).unwrap_err().to_string().contains("write only mpi-allreduce"));
        }
        assert_eq!(spelling("nccl-allreduce:tree").unwrap(), "nccl-allreduce:Tree");
        assert_eq!(spelling("hierarchical:ring").unwrap(), "hierarchical");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_one_that_is_meant() {
        for (name, expected) in [
            (
                "rign",
                "algorithm \"rign\" is unknown; did you mean ring? `kolo info` lists all names",
            ),
            (
                "hierarchical:rnig",
                "algorithm \"hierarchical:rnig\" is unknown: there is no \"rnig\"; did you mean \
                 hierarchical:ring? `kolo info` lists all names",
            ),
            (
                "groupd:leader:tree",
                "algorithm \"groupd:leader:tree\" is unknown: there is no \"groupd\"; did you mean \
                 grouped:leader:tree? `kolo info` lists all names",
            ),
            (
                "ring:4",
                "algorithm \"ring:4\" is unknown: ring takes no parameter; `kolo info` lists the \
                 parameters of each name",
            ),
            (
                "mpi-alreduce",
                "algorithm \"mpi-alreduce\" is unknown; did you mean mpi-allreduce? `kolo info` lists \
                 all names",
            ),
        ] {
            assert_eq!(spelling(name).unwrap_err().to_string(), expected);
        }
        let all = spelling("both-way").unwrap_err().to_string();
        let first = registry::ALL[0].name;
        let begins = &format!("algorithm \"both-way\" is unknown; choose from {first}, ");
        let ends = ", mpi-allreduce, nccl-allreduce, nccl-hierarchical; `kolo info` describes each";
        assert!(all.starts_with(begins) && all.ends_with(ends), "{all}");
        let inner = spelling("leader:both").unwrap_err().to_string();
        assert!(inner.contains(&format!("there is no \"both\"; choose from {first}, ")), "{inner}");
        assert!(!inner.contains("mpi-allreduce"), "{inner}");
    }
}
