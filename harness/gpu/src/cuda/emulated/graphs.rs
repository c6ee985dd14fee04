//! Graphs of emulated devices: captured work, errors of calls that CUDA refuses during a capture, and launches
//! whose nodes run in any permitted order.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Emulated, Item};
use crate::cuda::CudaError;
use crate::cuda::streams::{Event, Graph, Stream};

/// A copy or a kernel of a graph.
pub struct Node {
    /// The stream that it was captured from.
    pub stream: usize,
    pub device: usize,
    pub item: Item,
    /// Nodes that come before it.
    after: Vec<usize>,
}

/// A capture in progress.
pub struct Capture {
    origin: usize,
    nodes: Vec<Node>,
    /// For each participating stream: the nodes at its end.
    ends: HashMap<usize, Vec<usize>>,
    /// For each event recorded meanwhile: the nodes that it stands for.
    events: HashMap<usize, Vec<usize>>,
    /// A call that invalidated the capture.
    spoiled: Option<String>,
}

/// A graph that can be launched.
pub struct Captured {
    nodes: Arc<[Node]>,
    /// Launches that were enqueued, and those that have finished: no two overlap.
    asked: usize,
    over: usize,
}

/// A launch of a graph.
#[derive(Clone)]
pub struct Run {
    graph: usize,
    turn: usize,
    nodes: Arc<[Node]>,
    done: Vec<bool>,
}

impl Run {
    /// Nodes that can be done now.
    pub fn able(&self) -> impl Iterator<Item = (usize, &Node)> {
        let is_able = |&(at, node): &(usize, &Node)| {
            !self.done[at] && node.after.iter().all(|&before| self.done[before])
        };
        self.nodes.iter().enumerate().filter(is_able)
    }

    /// Removes a node; returns its device and its work.
    pub fn take(&mut self, node: usize) -> (usize, Item) {
        self.done[node] = true;
        (self.nodes[node].device, self.nodes[node].item.clone())
    }

    pub fn is_over(&self) -> bool {
        self.done.iter().all(|&done| done)
    }
}

impl Capture {
    fn new(origin: usize) -> Capture {
        Capture {
            origin,
            nodes: Vec::new(),
            ends: HashMap::from([(origin, Vec::new())]),
            events: HashMap::new(),
            spoiled: None,
        }
    }

    /// A stream takes part.
    pub fn takes(&self, Stream(on): Stream) -> bool {
        self.ends.contains_key(&on)
    }

    pub fn put(&mut self, Stream(on): Stream, device: usize, item: Item) {
        let end = self.ends.get_mut(&on).expect("it takes part");
        let after = std::mem::replace(end, vec![self.nodes.len()]);
        self.nodes.push(Node { stream: on, device, item, after });
    }

    pub fn record(&mut self, Stream(on): Stream, Event(event): Event) {
        self.events.insert(event, self.ends[&on].clone());
    }

    /// A stream waits for an event, and takes part from then on; false if the event was not recorded in this
    /// capture.
    pub fn wait(&mut self, Stream(on): Stream, Event(event): Event) -> bool {
        let Some(before) = self.events.get(&event) else { return false };
        let end = self.ends.entry(on).or_default();
        end.extend(before);
        end.sort_unstable();
        end.dedup();
        true
    }

    /// A stream that did something for which the first one does not wait.
    fn unjoined(&self) -> Option<usize> {
        let mut joined = vec![false; self.nodes.len()];
        let mut open = self.ends[&self.origin].clone();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut joined[node], true) {
                open.extend(&self.nodes[node].after);
            }
        }
        let missing = joined.iter().position(|joined| !joined)?;
        Some(self.nodes[missing].stream)
    }
}

/// An error of CUDA, by its name.
fn refused<R>(call: &str, name: &str, why: impl Into<String>) -> Result<R, CudaError> {
    Err(CudaError::Failed { call: call.into(), why: format!("{name} ({})", why.into()) })
}

impl Emulated {
    /// Refuses calls that are not permitted during a capture, or on a captured stream.
    pub(super) fn check_no_capture(
        &mut self,
        call: &str,
        on: Option<Stream>,
    ) -> Result<(), CudaError> {
        match &mut self.capture {
            Some(capture) if on.is_none_or(|on| capture.takes(on)) => {
                capture.spoiled = Some(format!("{call} came in between"));
                refused(call, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "a stream is captured")
            }
            _ => Ok(()),
        }
    }

    /// Waits within a capture; false if the call does not belong to one.
    pub(super) fn wait_in_capture(&mut self, on: Stream, event: Event) -> Result<bool, CudaError> {
        const CALL: &str = "cuStreamWaitEvent";
        let was_captured = self.events[event.0].captured;
        let Some(capture) = &mut self.capture else {
            return if was_captured {
                refused(CALL, "CUDA_ERROR_CAPTURED_EVENT", "it was recorded in a graph")
            } else {
                Ok(false)
            };
        };
        let takes = capture.takes(on);
        if was_captured && capture.wait(on, event) {
            return Ok(true);
        }
        if takes || was_captured {
            capture.spoiled = Some("a wait for what is outside".into());
            let why = "the event was recorded outside of the graph";
            return refused(CALL, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", why);
        }
        Ok(false)
    }

    pub(super) fn begin(&mut self, on: Stream) -> Result<(), CudaError> {
        if self.capture.is_some() {
            let why = "a stream is captured already";
            return refused("cuStreamBeginCapture", "CUDA_ERROR_ILLEGAL_STATE", why);
        }
        self.capture = Some(Capture::new(on.0));
        Ok(())
    }

    pub(super) fn end(&mut self, Stream(on): Stream) -> Result<Graph, CudaError> {
        const CALL: &str = "cuStreamEndCapture";
        let Some(capture) = self.capture.take() else {
            return refused(CALL, "CUDA_ERROR_ILLEGAL_STATE", "nothing is captured");
        };
        if capture.origin != on {
            let why = format!("it began on stream {}", capture.origin);
            self.capture = Some(capture);
            return refused(CALL, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", why);
        }
        if let Some(why) = capture.spoiled {
            return refused(CALL, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", why);
        }
        if let Some(stream) = capture.unjoined() {
            let why = format!("no stream waits for stream {stream}");
            return refused(CALL, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", why);
        }
        self.graphs.push(Some(Captured { nodes: capture.nodes.into(), asked: 0, over: 0 }));
        Ok(Graph(self.graphs.len() - 1))
    }

    pub(super) fn captured(&self, Graph(graph): Graph) -> &Arc<[Node]> {
        &self.graphs[graph].as_ref().expect("a graph is used before it is dropped").nodes
    }

    /// The next launch of a graph.
    pub(super) fn run(&mut self, Graph(graph): Graph) -> Run {
        let captured = self.graphs[graph].as_mut().expect("launched before it is dropped");
        captured.asked += 1;
        let (turn, nodes) = (captured.asked - 1, captured.nodes.clone());
        Run { graph, turn, done: vec![false; nodes.len()], nodes }
    }

    /// A launch may begin: those before it are over.
    pub(super) fn may_run(&self, run: &Run) -> bool {
        self.graphs[run.graph].as_ref().is_some_and(|captured| captured.over == run.turn)
    }

    pub(super) fn ran(&mut self, run: &Run) {
        self.graphs[run.graph].as_mut().expect("dropped only when nothing runs").over += 1;
    }
}
