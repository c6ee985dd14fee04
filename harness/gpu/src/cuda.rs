//! NVIDIA GPUs: detection, and collectives as work on their streams.
//!
//! Nothing here needs CUDA to build, or to run without a GPU: libraries are loaded at run time, see [`library`].
//! Ranks are streams of one process. The programs of a schedule become copies, kernels and events, which the host
//! enqueues at once, see [`streamed`]. [`streams::Streams`] executes them: the [`driver`], or an emulation in host
//! memory with adversarial order, see [`emulated`].

pub mod back_end;
pub mod bench;
pub mod collective;
pub mod devices;
pub mod driver;
pub mod emulated;
pub mod inventory;
pub mod library;
pub mod nics;
pub mod nvml;
pub mod packing;
pub mod speed;
pub mod streamed;
pub mod streams;
pub mod work;

use thiserror::Error;

/// Its name as a transport in tables and CSV files.
pub use transports::transport::CUDA as NAME;

/// The kernels, compiled ahead of time by `kernels/generate.sh`: any driver of CUDA 12.0 or later takes them.
pub const PTX: &str = include_str!("cuda/kernels/kernels.ptx");

/// The oldest driver that accepts [`PTX`], in the driver's numbering: CUDA 12.0.
pub const LEAST_DRIVER: i32 = 12_000;

/// The oldest GPUs that [`PTX`] is for: compute capability 8.0.
pub const LEAST_CAPABILITY: (i32, i32) = (8, 0);

/// Why GPUs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// A library is not there, or cannot be loaded.
    #[error(transparent)]
    Library(#[from] library::Missing),
    /// The driver is older than the kernels.
    #[error(
        "the driver supports CUDA {found}, but the kernels need {} or later; install a newer driver (R525 or \
         later)",
        version(LEAST_DRIVER)
    )]
    DriverTooOld {
        /// The driver's CUDA version, as text.
        found: String,
    },
    /// The driver is older than the language of this build's kernels.
    #[error(
        "the driver supports CUDA {found}, and this build's kernels are in PTX {ptx}, which it does not know; install \
         a newer driver, or make the kernels anew with an older NVRTC (harness/gpu/src/cuda/kernels/generate.sh)"
    )]
    KernelsTooNew {
        /// The driver's CUDA version, as text.
        found: String,
        /// The kernels' version of PTX.
        ptx: String,
    },
    /// The driver is there, and no GPU.
    #[error(
        "the driver {library} finds no GPU{}; check nvidia-smi, or use another transport",
        visible.as_ref().map_or(String::new(), |list| format!(" among CUDA_VISIBLE_DEVICES={list}"))
    )]
    NoDevice {
        /// The driver's file.
        library: String,
        /// The variable that hides GPUs, if it is set.
        visible: Option<String>,
    },
    /// A GPU is older than the kernels.
    #[error(
        "GPU {device} ({name}) has compute capability {found}, and the kernels are for {}.{} or later; hide \
         it with CUDA_VISIBLE_DEVICES",
        LEAST_CAPABILITY.0, LEAST_CAPABILITY.1
    )]
    WrongArchitecture {
        /// Its number.
        device: usize,
        /// Its name.
        name: String,
        /// Its compute capability.
        found: String,
    },
    /// A GPU has too little free memory.
    #[error(
        "GPU {device} has {free_mb} MB free, and {ranks} ranks of {size_mb} MB there take {need_mb} MB; \
         choose a smaller -e, or fewer ranks"
    )]
    OutOfMemory {
        /// Its number.
        device: usize,
        /// Ranks on it.
        ranks: usize,
        /// Size of each rank's buffer.
        size_mb: u64,
        /// The memory that all of them need.
        need_mb: u64,
        /// The free memory.
        free_mb: u64,
    },
    /// A GPU has too little free memory for ranks of a training job.
    #[error(
        "GPU {device} has {free_mb} MB free, and the gradients and fusion buffers of {ranks} ranks there take \
         {need_mb} MB; take fewer ranks on it, or a lower fusion threshold"
    )]
    NoRoom {
        /// Its number.
        device: usize,
        /// Ranks on it.
        ranks: usize,
        /// The memory that all of them need.
        need_mb: u64,
        /// The free memory.
        free_mb: u64,
    },
    /// Elements at that address would not be aligned.
    #[error(
        "a tensor begins at {address:#x}, which is not a multiple of the {size_bytes} bytes of its elements"
    )]
    Unaligned {
        /// Its address.
        address: u64,
        /// Size of an element.
        size_bytes: usize,
    },
    /// A call failed.
    #[error("{call} failed: {why}")]
    Failed {
        /// The call.
        call: String,
        /// The driver's message.
        why: String,
    },
}

/// A version of CUDA as people write it: 12080 is 12.8.
pub fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}
