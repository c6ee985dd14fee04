//! Ranks are processes, each with its main thread, which talk through an MPI library.
//!
//! Gradients, control messages and bits have communicators of their own, so that nobody takes one for
//! the other. Everything is nonblocking and asked for again and again, so that whoever waits can give up.
//! MPI itself cannot go on once a rank is gone: an error ends the whole job, and the next launch
//! goes on with the results that are on the disk.

mod comm;
mod endpoint;
mod library;
mod mail;
mod reduction;
mod wait;
mod world;

use std::ffi::c_void;
use std::sync::OnceLock;

use algorithms::grouping::Packing;
use cluster::failure_detector::BROKEN;

use crate::allreduce::{AllReduce, Fused, Sizes};
use crate::data_plane::DataPlane;
use crate::memory::Memory;
use crate::transport::TransportError;

pub use comm::{Comm, Requests};
pub use endpoint::Endpoint;
pub use library::LibraryAllReduce;
pub use mail::{Barrier, Mailbox};
pub use wait::Waiting;
pub use world::{Connected, TIMEOUT, World};

/// One rank's part of a data plane over MPI: our algorithm's, or the library's own.
///
/// # Panics
/// When NCCL reduces.
pub fn all_reduce(
    data_plane: &DataPlane,
    endpoint: Endpoint,
    sizes: Sizes,
    fusion_buffer: Memory,
) -> Box<dyn AllReduce + '_> {
    match data_plane {
        DataPlane::Vendor => {
            let library = LibraryAllReduce(endpoint);
            Box::new(Fused::new(library, Packing::Packed, 0, fusion_buffer))
        }
        DataPlane::Ours { .. } | DataPlane::Nccl(_) => {
            data_plane.on(endpoint, sizes, fusion_buffer)
        }
    }
}

/// What a process does when a message fails, besides ending.
type LastWords = Box<dyn Fn(&TransportError) + Send + Sync>;

static LAST_WORDS: OnceLock<LastWords> = OnceLock::new();

/// Ends the process: another rank may be writing into memory that an error would free, and no
/// communicator can be used any more.
pub fn give_up(error: &TransportError) -> ! {
    match LAST_WORDS.get() {
        Some(last_words) => last_words(error),
        None => eprintln!("kolo: {error}"),
    }
    // Not by MPI's abort, which would ask the other processes.
    std::process::exit(BROKEN)
}

/// What is to be done before the process ends. Once.
pub fn set_last_words(say: impl Fn(&TransportError) + Send + Sync + 'static) {
    let fresh = LAST_WORDS.set(Box::new(say)).is_ok();
    assert!(fresh, "last words are set once");
}

/// The library, in words: its name and version, without what follows on other lines.
pub fn library() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    let text = text.trim_end_matches('\0');
    text.lines().next().unwrap_or("unknown").split(',').next().unwrap_or(text).trim().to_string()
}

/// `MPI_IN_PLACE`, which the library's header hides from other languages: 1 with Open MPI and in MPI's own
/// binary interface, -1 with MPICH and all that follow its interface.
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
