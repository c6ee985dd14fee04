//! Work that was captured from streams, as the driver keeps it.

use std::ptr::null_mut;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::called;
use crate::cuda::CudaError;
use crate::cuda::streams::Graph;

/// Graphs that can be launched.
#[derive(Default)]
pub struct Graphs(Vec<Option<Ready>>);

struct Ready {
    handle: sys::CUgraphExec,
    nodes: usize,
}

/// Whatever this thread now puts on the stream is captured.
///
/// # Errors
/// When a driver call fails.
///
/// # Safety
/// The stream is one of the driver's.
pub unsafe fn begin(stream: sys::CUstream) -> Result<(), CudaError> {
    // Only errors of this thread are refused; other threads are not restricted.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the caller's promise.
    called("cuStreamBeginCapture", unsafe { result::stream::begin_capture(stream, mode) })
}

impl Graphs {
    /// Ends a capture, and instantiates the graph.
    ///
    /// # Errors
    /// When a driver call fails, or the graph cannot be instantiated.
    ///
    /// # Safety
    /// The stream is one of the driver's.
    pub unsafe fn end(&mut self, stream: sys::CUstream) -> Result<Graph, CudaError> {
        // SAFETY: the caller's promise.
        let captured = unsafe { result::stream::end_capture(stream) };
        let graph = called("cuStreamEndCapture", captured)?;
        // SAFETY: the driver has just returned it; launches use a copy.
        let ready = unsafe {
            let ready = ready(graph);
            let destroyed = sys::cuGraphDestroy(graph).result();
            ready.and_then(|ready| called("cuGraphDestroy", destroyed).map(|()| ready))
        };
        self.0.push(Some(ready?));
        Ok(Graph(self.0.len() - 1))
    }

    pub fn nodes(&self, Graph(graph): Graph) -> usize {
        self.ready(graph).nodes
    }

    /// # Errors
    /// When a driver call fails.
    ///
    /// # Safety
    /// The stream is one of the driver's, and memory in the graph is allocated.
    pub unsafe fn launch(
        &self,
        stream: sys::CUstream,
        Graph(graph): Graph,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; the graph has not been destroyed.
        called("cuGraphLaunch", unsafe { result::graph::launch(self.ready(graph).handle, stream) })
    }

    /// # Errors
    /// When a driver call fails.
    pub fn drop(&mut self, Graph(graph): Graph) -> Result<(), CudaError> {
        let Ready { handle, .. } = self.0[graph].take().expect("a graph is dropped once");
        // SAFETY: instantiated once, destroyed once.
        called("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(handle) }.result())
    }

    /// Destroys all graphs at the end; errors are ignored at this point.
    pub fn drop_all(&mut self) {
        for at in 0..self.0.len() {
            if self.0[at].is_some() {
                let _ = self.drop(Graph(at));
            }
        }
    }

    fn ready(&self, graph: usize) -> &Ready {
        self.0[graph].as_ref().expect("a graph is used before it is dropped")
    }
}

/// # Safety
/// The graph is one of the driver's.
unsafe fn ready(graph: sys::CUgraph) -> Result<Ready, CudaError> {
    let mut nodes = 0;
    // SAFETY: the caller's promise; without room for them the driver only counts nodes.
    unsafe {
        let counted = sys::cuGraphGetNodes(graph, null_mut(), &mut nodes);
        called("cuGraphGetNodes", counted.result())?;
        let handle = result::graph::instantiate(graph, CUgraphInstantiate_flags(0));
        Ok(Ready { handle: called("cuGraphInstantiate", handle)?, nodes })
    }
}
