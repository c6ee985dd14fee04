//! Lists GPUs without using them.

use std::env;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};
use serde::{Deserialize, Serialize};

use super::driver::called;
use super::library::DRIVER;
use super::{CudaError, LEAST_CAPABILITY, LEAST_DRIVER, version};

/// The driver and the GPUs that it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The driver's file.
    pub library: String,
    /// The CUDA version that it supports, in its numbering.
    pub version: i32,
    /// Every GPU, in the driver's order.
    pub devices: Vec<Gpu>,
}

impl Found {
    /// The driver, as text.
    pub fn about(&self) -> String {
        format!("CUDA {}, {}", version(self.version), self.library)
    }
}

/// One GPU, as a process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its UUID, as nvidia-smi prints it, which is the same in every process.
    pub uuid: String,
    /// Its PCI address.
    pub bus: String,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// All of its memory.
    pub memory_bytes: u64,
    /// How many multiprocessors it has.
    pub multiprocessors: usize,
}

impl Gpu {
    /// The kernels are for it.
    ///
    /// # Errors
    /// When it is too old.
    pub fn check(&self, device: usize) -> Result<(), CudaError> {
        let (major, minor) = self.capability;
        if self.capability < LEAST_CAPABILITY {
            Err(CudaError::WrongArchitecture {
                device,
                name: self.name.clone(),
                found: format!("{major}.{minor}"),
            })
        } else {
            Ok(())
        }
    }
}

/// Finds the driver and its GPUs without using any.
///
/// # Errors
/// A missing library, or a driver that is too old.
pub fn find() -> Result<Found, CudaError> {
    let library = DRIVER.open()?.file;
    // SAFETY: searches a library by its names.
    if !unsafe { sys::is_culib_present() } {
        let why = "it was there a moment ago".into();
        return Err(CudaError::Failed { call: format!("opening {library}"), why });
    }
    let mut found = 0;
    // SAFETY: as documented: it may be called before anything else.
    called("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut found) }.result())?;
    if found < LEAST_DRIVER {
        return Err(CudaError::DriverTooOld { found: version(found) });
    }
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    let none = CudaError::NoDevice { library: library.clone(), visible };
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Err(none),
        ended => called("cuInit", ended)?,
    }
    let count = called("cuDeviceGetCount", result::device::get_count())?;
    let devices: Vec<_> = (0..count).map(gpu).collect::<Result<_, _>>()?;
    if devices.is_empty() { Err(none) } else { Ok(Found { library, version: found, devices }) }
}

fn gpu(ordinal: i32) -> Result<Gpu, CudaError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
    };
    let handle = called("cuDeviceGet", result::device::get(ordinal))?;
    let name = called("cuDeviceGetName", result::device::get_name(handle))?;
    // SAFETY: the driver has just given the handle.
    let attribute = |which| unsafe { result::device::get_attribute(handle, which) };
    let capability = (
        called("cuDeviceGetAttribute", attribute(MAJOR))?,
        called("cuDeviceGetAttribute", attribute(MINOR))?,
    );
    let multiprocessors = called("cuDeviceGetAttribute", attribute(MULTIPROCESSORS))? as usize;
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(handle) };
    let memory_bytes = called("cuDeviceTotalMem", memory)? as u64;
    let uuid = called("cuDeviceGetUuid", result::device::get_uuid(handle))?;
    let uuid = uuid_in_words(uuid.bytes.map(|byte| byte as u8));
    Ok(Gpu { uuid, bus: bus(handle)?, name, capability, memory_bytes, multiprocessors })
}

/// Whether kernels on each of `count` GPUs can read the memory of each other.
///
/// # Errors
/// When the driver reports an error. [`find`] must be called before.
pub fn peers(count: usize) -> Result<Vec<Vec<bool>>, CudaError> {
    let handle = |at: usize| called("cuDeviceGet", result::device::get(at as i32));
    let handles: Vec<_> = (0..count).map(handle).collect::<Result<_, _>>()?;
    let reaches = |&own: &CUdevice, &other: &CUdevice| {
        let mut can = i32::from(own == other);
        if own != other {
            // SAFETY: the driver has given both handles.
            let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, own, other) };
            called("cuDeviceCanAccessPeer", asked.result())?;
        }
        Ok(can != 0)
    };
    handles.iter().map(|own| handles.iter().map(|other| reaches(own, other)).collect()).collect()
}

fn uuid_in_words(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    format!("GPU-{}", parts.join("-"))
}

/// The PCI address of a GPU.
fn bus(handle: CUdevice) -> Result<String, CudaError> {
    let mut text = [0_u8; 32];
    // SAFETY: the handle comes from the driver, which writes no more than the given length.
    let asked = unsafe {
        sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, handle).result()
    };
    called("cuDeviceGetPCIBusId", asked)?;
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}
