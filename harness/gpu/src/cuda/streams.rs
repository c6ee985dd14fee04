//! The interface of streams, implemented by a driver and by an emulation.

use std::ffi::c_void;

use super::CudaError;
use super::work::{Address, Work};

/// A queue: its tasks run in order, without order relative to other streams.
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
/// Only [`Self::synchronize`], [`Self::write`], [`Self::read`], and calls that allocate or release memory block
/// the host. Addresses of all devices are distinct. Kernels read the memory of a device that theirs
/// [reaches](Self::reaches).
pub trait Streams {
    /// The name of each device.
    fn devices(&self) -> Vec<String>;

    /// Kernels on one device can read another's memory.
    fn reaches(&self, device: usize, other: usize) -> bool;

    /// Bytes that can be allocated on a device.
    ///
    /// # Errors
    /// When the driver reports an error.
    fn free_bytes(&mut self, device: usize) -> Result<u64, CudaError>;

    /// Memory of a device, beginning on 256 bytes.
    ///
    /// # Errors
    /// When there is no memory left.
    fn allocate(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError>;

    /// Gives memory back that no stream needs any more.
    ///
    /// # Errors
    /// When earlier work failed.
    fn release(&mut self, address: Address) -> Result<(), CudaError>;

    /// A new stream of a device.
    ///
    /// # Errors
    /// When a driver call fails.
    fn stream(&mut self, device: usize) -> Result<Stream, CudaError>;

    /// An event of a device; a timed one can be given to [`Self::elapsed_us`].
    ///
    /// # Errors
    /// When a driver call fails.
    fn event(&mut self, device: usize, timed: bool) -> Result<Event, CudaError>;

    /// Returns an unused event for reuse.
    fn give_back(&mut self, event: Event);

    /// Copies bytes, from and to whatever devices.
    ///
    /// # Errors
    /// When a driver call fails.
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
    /// When a driver call fails.
    fn launch(&mut self, on: Stream, work: &Work) -> Result<(), CudaError>;

    /// Records an event after all work on the stream so far.
    ///
    /// # Errors
    /// When a driver call fails.
    fn record(&mut self, on: Stream, event: Event) -> Result<(), CudaError>;

    /// Work enqueued later on the stream waits for the event's last recording; if it was never recorded, it does
    /// not wait.
    ///
    /// # Errors
    /// When a driver call fails.
    fn wait(&mut self, on: Stream, event: Event) -> Result<(), CudaError>;

    /// The host waits until everything on the stream is done.
    ///
    /// # Errors
    /// When some of it failed.
    fn synchronize(&mut self, on: Stream) -> Result<(), CudaError>;

    /// Time between two timed events that have happened; none without a clock.
    ///
    /// # Errors
    /// When they have not happened.
    fn elapsed_us(&mut self, from: Event, to: Event) -> Result<Option<f64>, CudaError>;

    /// Copies bytes to a device, and waits for the copy.
    ///
    /// # Errors
    /// When a driver call fails.
    fn write(&mut self, into: Address, bytes: &[u8]) -> Result<(), CudaError>;

    /// Copies bytes from a device, and waits for the copy.
    ///
    /// # Errors
    /// When a driver call fails.
    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), CudaError>;

    /// As [`Self::stream`], with priority over other streams: for messages.
    ///
    /// # Errors
    /// When a driver call fails.
    fn urgent_stream(&mut self, device: usize) -> Result<Stream, CudaError>;

    /// Whether the last recording of the event has happened.
    ///
    /// # Errors
    /// When earlier work failed.
    fn happened(&mut self, event: Event) -> Result<bool, CudaError>;

    /// Host memory that kernels on a device read directly; [`Self::release`] frees it.
    ///
    /// # Errors
    /// When there is no memory left.
    fn mapped(&mut self, device: usize, size_bytes: usize) -> Result<Address, CudaError>;

    /// Writes to such memory at once; earlier work that reads it must have finished.
    ///
    /// # Errors
    /// When the memory is shorter.
    fn write_mapped(&mut self, into: Address, words: &[u64]) -> Result<(), CudaError>;

    /// Blocks of this many keep a device busy, each on a multiprocessor of its own.
    fn multiprocessors(&self, device: usize) -> usize;

    /// Starts a capture: from now on work on this stream, and on streams that wait for it, becomes part of a graph
    /// instead of running. Meanwhile memory must not be allocated, released, written or read, and those streams
    /// must not be waited for.
    ///
    /// # Errors
    /// When the stream is already being captured.
    fn begin_capture(&mut self, on: Stream) -> Result<(), CudaError>;

    /// Returns the work captured since [`Self::begin_capture`] on that stream, which must wait for all other
    /// participating streams.
    ///
    /// # Errors
    /// When a call is not permitted in a capture, or the stream does not wait for a participating stream.
    fn end_capture(&mut self, on: Stream) -> Result<Graph, CudaError>;

    /// Copies, kernels and joints in a graph.
    fn nodes(&self, graph: Graph) -> usize;

    /// Runs a graph after the work on the stream so far.
    ///
    /// # Errors
    /// When a driver call fails.
    fn launch_graph(&mut self, on: Stream, graph: Graph) -> Result<(), CudaError>;

    /// Destroys a graph.
    ///
    /// # Errors
    /// When a driver call fails.
    fn drop_graph(&mut self, graph: Graph) -> Result<(), CudaError>;

    /// CUDA's handle of a stream, for libraries that enqueue work on it; makes its device current for this thread.
    /// Null without CUDA.
    ///
    /// # Errors
    /// When a driver call fails.
    fn raw(&mut self, on: Stream) -> Result<*mut c_void, CudaError>;
}
