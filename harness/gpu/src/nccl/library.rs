//! NCCL's functions, found while the program runs.
//!
//! This project has its own loader: `cudarc` supports NCCL, too, but searches for other names, and panics where it
//! is missing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;

use algorithms::control::DataType;

use super::NcclError;
use crate::cuda::library::{Found, NCCL};
use transports::kernel::ElementOp;

/// The oldest NCCL with all functions used, in NCCL's numbering: 2.18 has `ncclCommSplit`.
pub const LEAST_VERSION: i32 = 21_800;

/// The oldest NCCL that can let several ranks share a GPU: 2.30.
pub const SHARES_GPUS_FROM: i32 = 23_000;

/// NCCL's communicator, an opaque pointer.
pub type Handle = *mut c_void;

/// CUDA's handle of a stream.
pub type CudaStream = *mut c_void;

/// Size of a [`UniqueId`].
pub const ID_BYTES: usize = 128;

/// Identifies a communicator to the ranks that initialise it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; ID_BYTES]);

/// The configuration of a communicator: `ncclConfig_t` of NCCL 2.18, which later versions accept.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
    /// Explicit padding, so that all bytes are initialised.
    padding: c_int,
}

impl Config {
    /// Calls return at once; everything else is left to NCCL.
    pub fn nonblocking() -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: LEAST_VERSION as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: ptr::null(),
            split_share: UNDEFINED,
            padding: UNDEFINED,
        }
    }
}

/// Return codes that are used.
pub const SUCCESS: c_int = 0;
/// Not finished; poll `ncclCommGetAsyncError`.
pub const IN_PROGRESS: c_int = 7;

macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// Names of all functions that are called.
        pub const FUNCTIONS: &[&str] = &[$($name),*];

        /// Addresses of the functions, with the signatures of NCCL's header. Callers are responsible for their
        /// arguments.
        #[allow(missing_docs, reason = "NCCL's documentation explains each")]
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Panics
            /// When one is missing: the library was opened with all of [`FUNCTIONS`].
            fn of(library: &libloading::Library) -> Functions {
                Functions {
                    // SAFETY: the types are those of NCCL's header.
                    $($field: *unsafe { library.get($name.as_bytes()) }.expect("it was checked"),)*
                }
            }
        }
    };
}

functions! {
    get_version: "ncclGetVersion" (*mut c_int) -> c_int;
    get_unique_id: "ncclGetUniqueId" (*mut UniqueId) -> c_int;
    init: "ncclCommInitRankConfig" (*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int;
    async_error: "ncclCommGetAsyncError" (Handle, *mut c_int) -> c_int;
    abort: "ncclCommAbort" (Handle) -> c_int;
    finalize: "ncclCommFinalize" (Handle) -> c_int;
    destroy: "ncclCommDestroy" (Handle) -> c_int;
    split: "ncclCommSplit" (Handle, c_int, c_int, *mut Handle, *mut Config) -> c_int;
    group_start: "ncclGroupStart" () -> c_int;
    group_end: "ncclGroupEnd" () -> c_int;
    send: "ncclSend" (*const c_void, usize, c_int, c_int, Handle, CudaStream) -> c_int;
    receive: "ncclRecv" (*mut c_void, usize, c_int, c_int, Handle, CudaStream) -> c_int;
    all_reduce: "ncclAllReduce"
        (*const c_void, *mut c_void, usize, c_int, c_int, Handle, CudaStream) -> c_int;
    reduce_scatter: "ncclReduceScatter"
        (*const c_void, *mut c_void, usize, c_int, c_int, Handle, CudaStream) -> c_int;
    all_gather: "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Handle, CudaStream) -> c_int;
    reduce: "ncclReduce"
        (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, CudaStream) -> c_int;
    broadcast: "ncclBroadcast"
        (*const c_void, *mut c_void, usize, c_int, c_int, Handle, CudaStream) -> c_int;
    error_string: "ncclGetErrorString" (c_int) -> *const c_char;
    last_error: "ncclGetLastError" (Handle) -> *const c_char;
}

/// The library, opened, and new enough.
pub struct Nccl {
    /// Its functions.
    pub functions: Functions,
    /// In NCCL's numbering: 22706 is 2.27.6.
    pub version: i32,
    found: Found,
}

impl Nccl {
    /// Looks for the library.
    ///
    /// # Errors
    /// Searched names and folders, or the reason why a file was refused.
    pub fn open() -> Result<Rc<Nccl>, NcclError> {
        let found = NCCL.open()?;
        let functions = Functions::of(&found.library);
        let mut version = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (functions.get_version)(&mut version) };
        let nccl = Nccl { functions, version, found };
        nccl.expect("ncclGetVersion", code)?;
        if version < LEAST_VERSION {
            Err(NcclError::TooOld { file: nccl.found.file, found: in_words(version) })
        } else {
            Ok(Rc::new(nccl))
        }
    }

    /// The library's file.
    pub fn file(&self) -> &str {
        &self.found.file
    }

    /// The library, as text.
    pub fn about(&self) -> String {
        format!("NCCL {}, {}", in_words(self.version), self.file())
    }

    /// A name under which ranks of one communicator find each other; of one rank for all.
    ///
    /// # Errors
    /// When NCCL finds no network interface.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: it writes so many bytes.
        self.expect("ncclGetUniqueId", unsafe { (self.functions.get_unique_id)(&mut id) })?;
        Ok(id)
    }

    /// The meaning of a code, and NCCL's last error message.
    pub fn why(&self, code: c_int) -> String {
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: texts of NCCL end with a zero, and stay until its next call.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
        };
        // SAFETY: any code has a text; the communicator may be null.
        let (about, last) = unsafe {
            (
                text((self.functions.error_string)(code)),
                text((self.functions.last_error)(ptr::null_mut())),
            )
        };
        if last.is_empty() { about } else { format!("{about}: {last}") }
    }

    /// Checks a call without a communicator.
    fn expect(&self, call: &str, code: c_int) -> Result<(), NcclError> {
        match code {
            SUCCESS => Ok(()),
            _ => {
                let (call, why) = (call.into(), self.why(code));
                Err(NcclError::Failed { rank: None, peer: None, call, why })
            }
        }
    }
}

/// A version as people write it: 22706 is 2.27.6.
pub fn in_words(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// NCCL's number for an element type; it has all of ours.
pub fn type_code(dtype: DataType) -> c_int {
    match dtype {
        DataType::U8 => 1,
        DataType::I32 => 2,
        DataType::I64 => 4,
        DataType::F16 => 6,
        DataType::F32 => 7,
        DataType::F64 => 8,
        DataType::BF16 => 9,
    }
}

/// NCCL's number for a reduction.
///
/// # Panics
/// For AND and OR, which are for words of control planes.
pub fn op_code(combine: ElementOp) -> c_int {
    match combine {
        ElementOp::Sum => 0,
        ElementOp::Product => 1,
        ElementOp::Max => 2,
        ElementOp::Min => 3,
        ElementOp::And | ElementOp::Or => unreachable!("bits are never combined on a GPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::library::Wanted;

    #[test]
    fn the_configuration_lies_as_in_nccls_header() {
        assert_eq!((size_of::<Config>(), size_of::<UniqueId>()), (48, 128));
        let config = Config::nonblocking();
        let at = |field: *const c_int| field.addr() - ptr::from_ref(&config).addr();
        assert_eq!((at(&config.blocking), at(&config.split_share)), (16, 40));
    }

    #[test]
    fn versions_are_written_as_nccl_does() {
        let written = [LEAST_VERSION, 22_706, SHARES_GPUS_FROM].map(in_words);
        assert_eq!(written, ["2.18.0", "2.27.6", "2.30.0"]);
    }

    #[test]
    fn without_the_library_users_are_told_what_was_looked_for() {
        let names = &["libnccl-of-no-machine.so.2", "libnccl-of-no-machine.so"];
        let Err(error) = (Wanted { names, variable: None, ..NCCL }).open() else {
            panic!("no machine has a library of that name")
        };
        let said = error.to_string();
        let expected = format!("NCCL was not found: looked for {} and {} in ", names[0], names[1]);
        assert!(said.starts_with(&expected), "{said}");
    }
}
