//! Ranks are processes. The main thread of each communicates through an MPI library.
//!
//! Gradients, control messages and bit vectors use separate communicators, so that they cannot be mixed up. All
//! calls are nonblocking and polled, so that a wait can time out. MPI cannot continue without a rank: an error
//! ends the whole job, and the next launch resumes from the results on disk.

mod barrier;
mod comm;
mod control_channel;
mod control_variable;
mod endpoint;
mod library;
mod reduction;
mod wait;
mod world;

use std::ffi::c_void;
use std::sync::OnceLock;

use algorithms::grouping::Packing;
use cluster::failure_detector::BROKEN;

use crate::allreduce::{AllReduce, Fused, Sizes};
use crate::data_plane::{DataPlane, DataPlaneError, Schedules};
use crate::memory::Memory;
use crate::transport::{MPI, TransportError};

pub use barrier::Barrier;
pub use comm::{Comm, Requests};
pub use control_channel::ControlChannel;
pub use endpoint::Endpoint;
pub use library::LibraryAllReduce;
pub use wait::{Meanwhile, Waiting};
pub use world::{Connected, TIMEOUT, World};

/// What reduces gradients over MPI.
#[derive(Clone, Copy)]
pub enum MpiPlane<'p> {
    /// One of this project's algorithms.
    Ours(&'p Schedules),
    /// The library's own allreduce.
    Library,
}

impl<'p> MpiPlane<'p> {
    /// The same as a data plane.
    ///
    /// # Errors
    /// When NCCL reduces.
    pub fn of(data_plane: &'p DataPlane) -> Result<MpiPlane<'p>, DataPlaneError> {
        match data_plane {
            DataPlane::Ours(schedules) => Ok(MpiPlane::Ours(schedules)),
            DataPlane::MpiAllreduce => Ok(MpiPlane::Library),
            DataPlane::Nccl(_) => Err(data_plane.not_on(MPI)),
        }
    }

    /// One rank's part of it. `fusion_buffer` is reused.
    pub fn all_reduce(
        self,
        endpoint: Endpoint,
        sizes: Sizes,
        fusion_buffer: Memory,
    ) -> Box<dyn AllReduce + 'p> {
        match self {
            MpiPlane::Ours(schedules) => schedules.on(endpoint, sizes, fusion_buffer),
            MpiPlane::Library => {
                let library = LibraryAllReduce(endpoint);
                Box::new(Fused::new(library, Packing::Packed, 0, fusion_buffer))
            }
        }
    }
}

/// A callback that runs before the process exits after an error.
type LastWords = Box<dyn Fn(&TransportError) + Send + Sync>;

static LAST_WORDS: OnceLock<LastWords> = OnceLock::new();

/// Ends the process. Another rank may be writing into memory that returning an error would free, and the
/// communicators are unusable.
pub fn give_up(error: &TransportError) -> ! {
    match LAST_WORDS.get() {
        Some(last_words) => last_words(error),
        None => eprintln!("kolo: {error}"),
    }
    // Not `MPI_Abort`, which waits for the other processes.
    std::process::exit(BROKEN)
}

/// Sets the callback that runs before the process exits. May be called once.
pub fn set_last_words(say: impl Fn(&TransportError) + Send + Sync + 'static) {
    let fresh = LAST_WORDS.set(Box::new(say)).is_ok();
    assert!(fresh, "last words are set once");
}

/// The library's name and version, without further lines.
pub fn library() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    let text = text.trim_end_matches('\0');
    text.lines().next().unwrap_or("unknown").split(',').next().unwrap_or(text).trim().to_string()
}

/// `MPI_IN_PLACE`, which the library's header defines for C only: 1 with Open MPI and in the MPI ABI, -1 with
/// MPICH and its derivatives.
fn in_place() -> *const c_void {
    static IN_PLACE: OnceLock<isize> = OnceLock::new();
    let of_mpich =
        |text: &str| text.contains("MPICH") || text.contains("MVAPICH") || text.contains("Intel");
    let value = *IN_PLACE.get_or_init(|| {
        let text = mpi::environment::library_version().unwrap_or_default();
        if of_mpich(&text) { -1 } else { 1 }
    });
    std::ptr::without_provenance(value as usize)
}
