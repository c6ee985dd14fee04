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
/// When the driver refuses.
///
/// # Safety
/// The stream is one of the driver's.
pub unsafe fn begin(stream: sys::CUstream) -> Result<(), CudaError> {
    // Mistakes of this thread are refused; what other threads do meanwhile is their own.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the caller's promise.
    called("cuStreamBeginCapture", unsafe { result::stream::begin_capture(stream, mode) })
}

impl Graphs {
    /// Ends a capture, and makes what was captured ready to be launched.
    ///
    /// # Errors
    /// When the driver refuses, or what was captured cannot be instantiated.
    ///
    /// # Safety
    /// The stream is one of the driver's.
    pub unsafe fn end(&mut self, stream: sys::CUstream) -> Result<Graph, CudaError> {
        // SAFETY: the caller's promise.
        let captured = unsafe { result::stream::end_capture(stream) };
        let graph = called("cuStreamEndCapture", captured)?;
        // SAFETY: the driver has just given it; what is launched has a copy.
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
    /// When the driver refuses.
    ///
    /// # Safety
    /// The stream is one of the driver's, and memory in the graph is allocated.
    pub unsafe fn launch(
        &self,
        stream: sys::CUstream,
        Graph(graph): Graph,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; what is ready was not destroyed.
        called("cuGraphLaunch", unsafe { result::graph::launch(self.ready(graph).handle, stream) })
    }

    /// # Errors
    /// When the driver refuses.
    pub fn drop(&mut self, Graph(graph): Graph) -> Result<(), CudaError> {
        let Ready { handle, .. } = self.0[graph].take().expect("a graph is dropped once");
        // SAFETY: instantiated once, destroyed once; the driver waits for what is launched.
        called("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(handle) }.result())
    }

    /// At the end; what the driver refuses now nobody can help.
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
