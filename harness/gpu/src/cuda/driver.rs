//! Streams of real GPUs, by NVIDIA's driver.

mod graphs;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt::Display;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUevent_flags};

use super::devices::{Found, find};
use super::streams::{Event, Graph, Stream, Streams};
use super::work::{Address, THREADS, Work};
use super::{CudaError, PTX, version};
use graphs::Graphs;

/// Functions that the driver must have: all that are called below.
pub const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxEnablePeerAccess",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuStreamCreate",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuLaunchKernel",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// All GPUs, taken; by any thread, one at a time.
pub struct Driver {
    /// The driver and its GPUs.
    pub found: Found,
    contexts: Vec<Context>,
    streams: Vec<(usize, sys::CUstream)>,
    events: Vec<Mark>,
    /// By device, and whether they are timed.
    spare: HashMap<(usize, bool), Vec<Event>>,
    allocated: HashMap<Address, usize>,
    /// Words of the host's memory that kernels read.
    mapped: HashMap<Address, usize>,
    graphs: Graphs,
}

// SAFETY: the driver's handles are good for every thread; each call is made with the context of its device.
unsafe impl Send for Driver {}

/// An event of the driver.
struct Mark {
    device: usize,
    timed: bool,
    handle: sys::CUevent,
}

struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    module: sys::CUmodule,
    kernels: HashMap<String, sys::CUfunction>,
    reaches: Vec<bool>,
}

impl Driver {
    /// Takes all GPUs, and loads the kernels on each.
    ///
    /// # Errors
    /// A missing or outdated library, or a driver error.
    pub fn open() -> Result<Driver, CudaError> {
        let found = find()?;
        let all: Vec<usize> = (0..found.devices.len()).collect();
        Driver::take(found, &all)
    }

    /// Takes some of the GPUs that were found, which are then counted from 0, and loads the kernels on each.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn take(mut found: Found, ordinals: &[usize]) -> Result<Driver, CudaError> {
        ordinals.iter().try_for_each(|&at| found.devices[at].check(at))?;
        found.devices = ordinals.iter().map(|&at| found.devices[at].clone()).collect();
        let mut driver = Driver {
            found,
            contexts: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            spare: HashMap::new(),
            allocated: HashMap::new(),
            mapped: HashMap::new(),
            graphs: Graphs::default(),
        };
        for (device, &ordinal) in ordinals.iter().enumerate() {
            driver.contexts.push(Context::retain(ordinal)?);
            driver.enter(device)?;
            let supported = driver.found.version;
            driver.contexts[device].load(supported)?;
        }
        for device in 0..driver.contexts.len() {
            driver.enter(device)?;
            driver.contexts[device].reaches = driver.enable_peers(device)?;
        }
        Ok(driver)
    }

    /// The devices whose memory kernels on a device can read.
    fn enable_peers(&self, device: usize) -> Result<Vec<bool>, CudaError> {
        let reaches = |other: &Context| {
            let own = &self.contexts[device];
            if other.device == own.device {
                return Ok(true);
            }
            let mut can = 0;
            // SAFETY: the driver has given both handles; the context is this thread's.
            unsafe {
                let asked = sys::cuDeviceCanAccessPeer(&mut can, own.device, other.device);
                called("cuDeviceCanAccessPeer", asked.result())?;
                if can == 0 {
                    return Ok(false);
                }
                match sys::cuCtxEnablePeerAccess(other.context, 0) {
                    sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
                    sys::CUresult::CUDA_ERROR_TOO_MANY_PEERS => Ok(false),
                    ended => called("cuCtxEnablePeerAccess", ended.result()).map(|()| true),
                }
            }
        };
        self.contexts.iter().map(reaches).collect()
    }

    /// Makes a device current for this thread, also for other libraries. Called every time, since a thread may use
    /// several drivers.
    ///
    /// # Errors
    /// When a driver call fails.
    pub fn enter(&mut self, device: usize) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as this lives.
        let set = unsafe { result::ctx::set_current(self.contexts[device].context) };
        called("cuCtxSetCurrent", set)
    }

    fn enter_stream(&mut self, Stream(stream): Stream) -> Result<sys::CUstream, CudaError> {
        let (device, handle) = self.streams[stream];
        self.enter(device)?;
        Ok(handle)
    }
}

impl Context {
    fn retain(ordinal: usize) -> Result<Context, CudaError> {
        let device = called("cuDeviceGet", result::device::get(ordinal as i32))?;
        // SAFETY: the driver has just given the handle; released when dropped.
        let retained = unsafe { result::primary_ctx::retain(device) };
        let context = called("cuDevicePrimaryCtxRetain", retained)?;
        let (kernels, reaches) = (HashMap::new(), Vec::new());
        Ok(Context { device, context, module: std::ptr::null_mut(), kernels, reaches })
    }

    /// Loads the kernels with a driver for this CUDA version; the context is this thread's.
    fn load(&mut self, supported: i32) -> Result<(), CudaError> {
        let text = CString::new(PTX).expect("text without a zero");
        // SAFETY: text that ends with a zero.
        let loaded = unsafe { result::module::load_data(text.as_ptr().cast()) };
        if let Err(DriverError(sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION)) = loaded {
            let ptx = PTX.lines().find_map(|line| line.strip_prefix(".version "));
            let ptx = ptx.unwrap_or("unknown").into();
            return Err(CudaError::KernelsTooNew { found: version(supported), ptx });
        }
        self.module = called("cuModuleLoadData of the kernels", loaded)?;
        for entry in Work::entries() {
            let name = CString::new(entry.as_str()).expect("a name without a zero");
            // SAFETY: the module was just loaded, and is unloaded when this is dropped.
            let function = unsafe { result::module::get_function(self.module, name) };
            self.kernels.insert(entry, called("cuModuleGetFunction", function)?);
        }
        Ok(())
    }
}

impl Streams for Driver {
    fn devices(&self) -> Vec<String> {
        self.found.devices.iter().map(|device| device.name.clone()).collect()
    }

    fn reaches(&self, device: usize, other: usize) -> bool {
        self.contexts[device].reaches[other]
    }

    fn free_bytes(&mut self, device: usize) -> Result<u64, CudaError> {
        self.enter(device)?;
        let (free, _) = called("cuMemGetInfo", result::mem_get_info())?;
        Ok(free as u64)
    }

    fn allocate(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError> {
        self.enter(device)?;
        // SAFETY: memory is written before it is read.
        let allocated = unsafe { result::malloc_sync(size_bytes.max(1)) };
        let address = called(format_args!("cuMemAlloc of {size_bytes} bytes"), allocated)?;
        self.allocated.insert(address, device);
        Ok(address)
    }

    fn release(&mut self, address: Address) -> Result<(), CudaError> {
        let device = self.allocated.remove(&address).expect("released once");
        self.enter(device)?;
        if self.mapped.remove(&address).is_some() {
            // SAFETY: it was allocated so, and the caller's promise.
            return called("cuMemFreeHost", unsafe { result::free_host(address as *mut c_void) });
        }
        // SAFETY: it was allocated there, and the caller's promise; the call waits for the device.
        called("cuMemFree", unsafe { result::free_sync(address) })
    }

    fn stream(&mut self, device: usize) -> Result<Stream, CudaError> {
        self.enter(device)?;
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = called("cuStreamCreate", result::stream::create(kind))?;
        self.streams.push((device, stream));
        Ok(Stream(self.streams.len() - 1))
    }

    fn event(&mut self, device: usize, timed: bool) -> Result<Event, CudaError> {
        if let Some(spare) = self.spare.get_mut(&(device, timed)).and_then(Vec::pop) {
            return Ok(spare);
        }
        self.enter(device)?;
        let flags = if timed {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        let handle = called("cuEventCreate", result::event::create(flags))?;
        self.events.push(Mark { device, timed, handle });
        Ok(Event(self.events.len() - 1))
    }

    fn give_back(&mut self, event: Event) {
        let &Mark { device, timed, .. } = &self.events[event.0];
        self.spare.entry((device, timed)).or_default().push(event);
    }

    fn copy(
        &mut self,
        on: Stream,
        from: Address,
        into: Address,
        size_bytes: usize,
    ) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: the caller's promise: both are allocated, and stay so until the stream is through.
        let copied = unsafe { result::memcpy_dtod_async(into, from, size_bytes, stream) };
        called("cuMemcpyDtoDAsync", copied)
    }

    fn launch(&mut self, on: Stream, work: &Work) -> Result<(), CudaError> {
        let device = self.streams[on.0].0;
        let multiprocessors = self.found.devices[device].multiprocessors;
        let Some(mut launch) = work.launch(multiprocessors)? else { return Ok(()) };
        let stream = self.enter_stream(on)?;
        let kernel = self.contexts[device].kernels[&launch.entry];
        let mut arguments = [launch.arguments.as_mut_ptr().cast::<c_void>()];
        let (blocks, threads) = ((launch.blocks, 1, 1), (THREADS, 1, 1));
        // SAFETY: the kernel takes one structure, which the driver copies now; the addresses in it are the
        // caller's promise.
        let launched =
            unsafe { result::launch_kernel(kernel, blocks, threads, 0, stream, &mut arguments) };
        called(format_args!("the launch of {}", launch.entry), launched)
    }

    fn record(&mut self, on: Stream, Event(event): Event) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: both were created by the driver, and live as long as this.
        called("cuEventRecord", unsafe { result::event::record(self.events[event].handle, stream) })
    }

    fn wait(&mut self, on: Stream, Event(event): Event) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as in `record`.
        let waits = unsafe { result::stream::wait_event(stream, self.events[event].handle, flags) };
        called("cuStreamWaitEvent", waits)
    }

    fn synchronize(&mut self, on: Stream) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: as in `record`.
        called("work on a stream", unsafe { result::stream::synchronize(stream) })
    }

    fn elapsed_us(
        &mut self,
        Event(from): Event,
        Event(to): Event,
    ) -> Result<Option<f64>, CudaError> {
        self.enter(self.events[from].device)?;
        // SAFETY: as in `record`.
        let elapsed =
            unsafe { result::event::elapsed(self.events[from].handle, self.events[to].handle) };
        called("cuEventElapsedTime", elapsed).map(|ms| Some(f64::from(ms) * 1e3))
    }

    fn write(&mut self, into: Address, bytes: &[u8]) -> Result<(), CudaError> {
        self.enter(0)?;
        // SAFETY: the caller's promise: it is allocated, and as long.
        called("cuMemcpyHtoD", unsafe { result::memcpy_htod_sync(into, bytes) })?;
        // The call returns when the bytes have left the caller, and streams of ours do not wait for it.
        // SAFETY: the stream that the call went through.
        let arrived = unsafe { result::stream::synchronize(result::stream::null()) };
        called("work on a stream", arrived)
    }

    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.enter(0)?;
        // SAFETY: the caller's promise: it is allocated, and as long.
        called("cuMemcpyDtoH", unsafe { result::memcpy_dtoh_sync(bytes, from) })
    }

    fn urgent_stream(&mut self, device: usize) -> Result<Stream, CudaError> {
        self.enter(device)?;
        let range = called("cuCtxGetStreamPriorityRange", result::stream::get_priority_range())?;
        let kind = result::stream::StreamKind::NonBlocking;
        // The lower number goes first.
        let urgent = result::stream::create_with_priority(kind, range.1);
        let stream = called("cuStreamCreateWithPriority", urgent)?;
        self.streams.push((device, stream));
        Ok(Stream(self.streams.len() - 1))
    }

    fn happened(&mut self, Event(event): Event) -> Result<bool, CudaError> {
        self.enter(self.events[event].device)?;
        // SAFETY: as in `record`.
        match unsafe { result::event::query(self.events[event].handle) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            ended => called("work on a stream", ended).map(|()| true),
        }
    }

    fn mapped(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError> {
        self.enter(device)?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: memory is written before it is read.
        let allocated = unsafe { result::malloc_host(size_bytes.max(1), flags) };
        let place = called(format_args!("cuMemHostAlloc of {size_bytes} bytes"), allocated)?;
        // On 64-bit systems, with unified addressing, kernels read it under the same address.
        let address = place as Address;
        self.allocated.insert(address, device);
        self.mapped.insert(address, size_bytes / size_of::<u64>());
        Ok(address)
    }

    fn write_mapped(&mut self, into: Address, words: &[u64]) -> Result<(), CudaError> {
        if self.mapped.get(&into).is_none_or(|&room| room < words.len()) {
            let why = format!("{} words do not fit there", words.len());
            return Err(CudaError::Failed { call: format!("writing at {into:#x}"), why });
        }
        // SAFETY: that many words are allocated there, and the caller promises that they are not being read.
        let place = unsafe { std::slice::from_raw_parts_mut(into as *mut u64, words.len()) };
        place.copy_from_slice(words);
        Ok(())
    }

    fn multiprocessors(&self, device: usize) -> usize {
        self.found.devices[device].multiprocessors
    }

    fn begin_capture(&mut self, on: Stream) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: created by the driver, and lives as long as this.
        unsafe { graphs::begin(stream) }
    }

    fn end_capture(&mut self, on: Stream) -> Result<Graph, CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: as above.
        unsafe { self.graphs.end(stream) }
    }

    fn nodes(&self, graph: Graph) -> usize {
        self.graphs.nodes(graph)
    }

    fn launch_graph(&mut self, on: Stream, graph: Graph) -> Result<(), CudaError> {
        let stream = self.enter_stream(on)?;
        // SAFETY: as above; that memory in the graph is still allocated is the caller's promise.
        unsafe { self.graphs.launch(stream, graph) }
    }

    fn drop_graph(&mut self, graph: Graph) -> Result<(), CudaError> {
        self.graphs.drop(graph)
    }

    fn raw(&mut self, on: Stream) -> Result<*mut c_void, CudaError> {
        Ok(self.enter_stream(on)?.cast())
    }
}

impl Drop for Driver {
    /// Releases everything; errors are ignored at this point.
    fn drop(&mut self) {
        let (streams, events) =
            (std::mem::take(&mut self.streams), std::mem::take(&mut self.events));
        for (device, stream) in streams {
            let _ = self.enter(device);
            // Destroying a stream or a graph does not wait for its work, which may use memory that is freed below.
            // SAFETY: created once, destroyed once.
            unsafe {
                let _ = result::stream::synchronize(stream);
                let _ = result::stream::destroy(stream);
            }
        }
        self.graphs.drop_all();
        for Mark { device, handle, .. } in events {
            let _ = self.enter(device);
            // SAFETY: as above.
            let _ = unsafe { result::event::destroy(handle) };
        }
        let allocated: Vec<_> = self.allocated.keys().copied().collect();
        allocated.into_iter().for_each(|address| drop(self.release(address)));
        for at in 0..self.contexts.len() {
            let _ = self.enter(at);
            // SAFETY: loaded once, unloaded once, if it was; retained once, released once.
            unsafe {
                if !self.contexts[at].module.is_null() {
                    let _ = result::module::unload(self.contexts[at].module);
                }
                let _ = result::primary_ctx::release(self.contexts[at].device);
            }
        }
    }
}

pub(super) fn called<R>(call: impl Display, ended: Result<R, DriverError>) -> Result<R, CudaError> {
    let text = |text: Result<&CStr, _>| {
        text.map_or("unknown".into(), |text| text.to_string_lossy().into_owned())
    };
    ended.map_err(|error| CudaError::Failed {
        call: call.to_string(),
        why: format!("{} ({})", text(error.error_name()), text(error.error_string())),
    })
}
