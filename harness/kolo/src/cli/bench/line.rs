//! One half of a line of a table: out of place, or in place.

use std::ops::Range;

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;
use algorithms::topology::Topology;

use super::arguments::Arguments;
use results::row::{Bandwidths, CaseOutcome, CollectiveResult, Effort, Enqueued, Times};
use results::statistics::Summary;
use results::units::micros;
use transports::bench::{Bench, Timed};
use transports::data_plane::DataPlane;

/// One half of a line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    pub dtype: DataType,
    pub op: ReduceOp,
    pub elements: usize,
    pub in_place: bool,
    /// From 0; see `-N`.
    pub cycle: usize,
}

impl Line {
    /// Elements of each tensor.
    pub fn tensors(&self, arguments: &Arguments, data_plane: &DataPlane) -> Vec<usize> {
        match data_plane.grouping() {
            Some(_) => split(self.elements, arguments.groups).iter().map(Range::len).collect(),
            None => vec![self.elements],
        }
    }

    /// What is measured for it.
    pub fn bench<'b>(
        &self,
        arguments: &Arguments,
        topology: &'b Topology,
        data_plane: &'b DataPlane,
        tensors: &'b [usize],
    ) -> Bench<'b> {
        Bench {
            data_plane,
            topology,
            dtype: self.dtype,
            op: self.op,
            sizes: arguments.cut(),
            tensors,
            in_place: self.in_place,
            warmup: arguments.warmup_iters,
            repetitions: arguments.iters,
            check: arguments.check > 0,
            seed: arguments.seed,
        }
    }
}

/// What a measured line came to.
pub fn outcome(
    line: Line,
    topology: &Topology,
    timed: &Timed,
    blocks: usize,
    bound_us: Option<f64>,
) -> CaseOutcome<CollectiveResult> {
    let times: Vec<f64> = timed.times.iter().copied().map(micros).collect();
    let time = Summary::of(&times);
    let size_bytes = line.elements * line.dtype.size_bytes();
    let wrong = timed.wrong.as_ref();
    let result = CollectiveResult {
        effort: Effort {
            samples: times.len(),
            blocks,
            launches: 1,
            stop_reason: "count".into(),
            checked: wrong.map_or(0, |_| blocks),
            wrong: wrong.map(|wrong| wrong.count),
            first_wrong: wrong.and_then(|wrong| wrong.first.clone()).unwrap_or_default(),
        },
        times: time.as_ref().map(Times::of),
        bandwidths: time
            .as_ref()
            .and_then(|time| Bandwidths::of(size_bytes, topology.ranks(), time)),
        enqueued: timed.enqueued.as_ref().map(|enqueued| Enqueued {
            enqueued: enqueued.launches,
            graph_nodes: enqueued.nodes,
            enqueue_us_p50: Summary::of(&enqueued.times_us).map(|time| time.p50),
        }),
        context_switches_mean: timed.context_switches,
        device_us_p50: Summary::of(&timed.device_us).map(|device| device.p50),
        bound_us,
    };
    if wrong.is_some_and(|wrong| wrong.count > 0) {
        CaseOutcome::Wrong { result, reason: String::new() }
    } else {
        CaseOutcome::Ok(result)
    }
}
