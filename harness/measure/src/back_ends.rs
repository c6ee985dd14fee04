//! The registry of back ends.

use std::sync::{PoisonError, RwLock};

use gpu::cuda::back_end::Cuda;
use gpu::nccl::back_end::NcclBackEnd;
use training::back_end::{BackEndRef, Mpi, RankKind, Threads};

/// Every back end; a new one is a line here.
static ALL: [BackEndRef; 4] = [&Threads, &Mpi, &Cuda, &NcclBackEnd];

/// Back ends that programs have added, see [`add`].
static ADDED: RwLock<Vec<BackEndRef>> = RwLock::new(Vec::new());

/// Every back end, those that were added last.
pub fn all() -> Vec<BackEndRef> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    ALL.iter().chain(added.iter()).copied().collect()
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    all().into_iter().map(|back_end| back_end.name()).collect()
}

/// Names of the back ends that `kolo calibrate` can measure for a simulation.
pub fn names_calibrated() -> [&'static str; 2] {
    [default().name(), default_of_processes().name()]
}

/// The back end of that name.
pub fn find(name: &str) -> Option<BackEndRef> {
    all().into_iter().find(|back_end| back_end.name() == name)
}

/// The back end of a name that was checked.
///
/// # Panics
/// When there is none.
pub fn named(name: &str) -> BackEndRef {
    find(name).expect("the name was checked")
}

/// The default back end.
pub fn default() -> BackEndRef {
    &Threads
}

/// The default back end of processes that a launcher has started.
pub fn default_of_processes() -> BackEndRef {
    &Mpi
}

/// Whether ranks are processes of a job.
pub fn has_processes(back_end: BackEndRef) -> bool {
    back_end.rank_kind() == RankKind::Process
}

/// Adds a back end from outside of this crate, for configurations and plans from now on.
///
/// # Panics
/// When its name is taken.
pub fn add(back_end: BackEndRef) {
    assert!(find(back_end.name()).is_none(), "back end {back_end} is already registered");
    ADDED.write().unwrap_or_else(PoisonError::into_inner).push(back_end);
}
