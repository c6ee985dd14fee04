//! What runs work in order, for a driver or something that poses as one.

use std::ffi::c_void;

use super::CudaError;
use super::work::{Address, Work};

/// A queue: what is put on it happens in its order, and in none to what is on other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub usize);

/// A mark that streams can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub usize);

/// Devices with memory, streams and events.
///
/// Nothing makes the host wait but [`Self::synchronize`], [`Self::write`], [`Self::read`], and what allocates
/// or releases memory. Addresses of
/// all devices are apart, and of a device that [reaches](Self::reaches) another kernels read its memory.
pub trait Streams {
    /// In words: of each device.
    fn devices(&self) -> Vec<String>;

    /// Kernels on one device can read another's memory.
    fn reaches(&self, device: usize, other: usize) -> bool;

    /// Bytes that can be allocated on a device.
    ///
    /// # Errors
    /// When the driver does not say.
    fn free_bytes(&mut self, device: usize) -> Result<u64, CudaError>;

    /// Memory of a device, beginning on 256 bytes.
    ///
    /// # Errors
    /// When there is none left.
    fn allocate(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError>;

    /// Gives memory back that no stream needs any more.
    ///
    /// # Errors
    /// When earlier work failed.
    fn release(&mut self, address: Address) -> Result<(), CudaError>;

    /// A new stream of a device.
    ///
    /// # Errors
    /// When the driver refuses.
    fn stream(&mut self, device: usize) -> Result<Stream, CudaError>;

    /// An event of a device; a timed one can be given to [`Self::elapsed_us`].
    ///
    /// # Errors
    /// When the driver refuses.
    fn event(&mut self, device: usize, timed: bool) -> Result<Event, CudaError>;

    /// An event that nobody asks for any more: another one may be it.
    fn give_back(&mut self, event: Event);

    /// Copies bytes, from and to whatever devices.
    ///
    /// # Errors
    /// When the driver refuses.
    fn copy(
        &mut self,
        on: Stream,
        from: Address,
        into: Address,
        size_bytes: usize,
    ) -> Result<(), CudaError>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// When the driver refuses.
    fn launch(&mut self, on: Stream, work: &Work) -> Result<(), CudaError>;

    /// The event stands for everything on the stream so far.
    ///
    /// # Errors
    /// When the driver refuses.
    fn record(&mut self, on: Stream, event: Event) -> Result<(), CudaError>;

    /// What comes on the stream waits for what the event stands for now: for nothing, if it was never
    /// recorded.
    ///
    /// # Errors
    /// When the driver refuses.
    fn wait(&mut self, on: Stream, event: Event) -> Result<(), CudaError>;

    /// The host waits until everything on the stream is done.
    ///
    /// # Errors
    /// When some of it failed.
    fn synchronize(&mut self, on: Stream) -> Result<(), CudaError>;

    /// Between two timed events that have happened; none where there is no clock.
    ///
    /// # Errors
    /// When they have not.
    fn elapsed_us(&mut self, from: Event, to: Event) -> Result<Option<f64>, CudaError>;

    /// Copies bytes to a device, and waits for it.
    ///
    /// # Errors
    /// When the driver refuses.
    fn write(&mut self, into: Address, bytes: &[u8]) -> Result<(), CudaError>;

    /// Copies bytes from a device, and waits for it.
    ///
    /// # Errors
    /// When the driver refuses.
    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError>;

    /// Whether what the event stands for now is done; the host does not wait for it.
    ///
    /// # Errors
    /// When earlier work failed.
    fn happened(&mut self, event: Event) -> Result<bool, CudaError>;

    /// A stream as CUDA knows it, for libraries that put work on it; its device is made this thread's. Null
    /// where there is no CUDA.
    ///
    /// # Errors
    /// When the driver refuses.
    fn raw(&mut self, on: Stream) -> Result<*mut c_void, CudaError>;
}
