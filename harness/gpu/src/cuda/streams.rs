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

/// Work that was captured: it is launched as a whole, as often as one likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph(pub usize);

/// Devices with memory, streams and events.
///
/// Nothing makes the host wait but [`Self::synchronize`], [`Self::write`], [`Self::read`], and what allocates
/// or releases memory. Addresses of all devices are apart, and of a device that [reaches](Self::reaches)
/// another kernels read its memory.
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

    /// As [`Self::stream`], of which what can run is run before that on others: for messages.
    ///
    /// # Errors
    /// When the driver refuses.
    fn urgent_stream(&mut self, device: usize) -> Result<Stream, CudaError>;

    /// Whether what the event was recorded for last has come to pass.
    ///
    /// # Errors
    /// When earlier work failed.
    fn happened(&mut self, event: Event) -> Result<bool, CudaError>;

    /// Memory of the host that kernels on a device read where it is; [`Self::release`] gives it back.
    ///
    /// # Errors
    /// When there is none left.
    fn mapped(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError>;

    /// Writes to such memory, at once; what was enqueued before and reads it must have happened.
    ///
    /// # Errors
    /// When it is not as long.
    fn write_mapped(&mut self, into: Address, words: &[u64]) -> Result<(), CudaError>;

    /// Blocks of this many keep a device busy, each on a multiprocessor of its own.
    fn multiprocessors(&self, device: usize) -> usize;

    /// From now on what is put on this stream, and on streams that wait for it, is not done but becomes part
    /// of a graph. Meanwhile memory is neither allocated, released, written nor read, and nobody waits for
    /// those streams.
    ///
    /// # Errors
    /// When the stream is captured already.
    fn begin_capture(&mut self, on: Stream) -> Result<(), CudaError>;

    /// What was captured since [`Self::begin_capture`] on that stream, which has to wait for all others that
    /// took part.
    ///
    /// # Errors
    /// When something was captured that may not be, or a stream took part that nobody waited for.
    fn end_capture(&mut self, on: Stream) -> Result<Graph, CudaError>;

    /// Copies, kernels and joints in a graph.
    fn nodes(&self, graph: Graph) -> usize;

    /// Does all that is in a graph, in its order, after what is on the stream so far.
    ///
    /// # Errors
    /// When the driver refuses.
    fn launch_graph(&mut self, on: Stream, graph: Graph) -> Result<(), CudaError>;

    /// A graph that nobody launches any more.
    ///
    /// # Errors
    /// When the driver refuses.
    fn drop_graph(&mut self, graph: Graph) -> Result<(), CudaError>;

    /// A stream as CUDA knows it, for libraries that put work on it; its device is made this thread's. Null
    /// where there is no CUDA.
    ///
    /// # Errors
    /// When the driver refuses.
    fn raw(&mut self, on: Stream) -> Result<*mut c_void, CudaError>;
}
