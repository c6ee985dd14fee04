//! One half of a line of a table: out of place, or in place.

use std::ops::Range;

use algorithms::control::{DataType, ReduceOp};
use algorithms::grouped::split;

use super::arguments::Arguments;
use super::request::Request;
use results::nested::{Level, Nested};
use results::row::{
    Bandwidths, CaseOutcome, CollectiveResult, Confidence, Effort, Enqueued, Times,
};
use results::statistics::Summary;
use results::units::micros;
use transports::bench::{Bench, Start, Timed};
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
        request: &'b Request,
        data_plane: &'b DataPlane,
        tensors: &'b [usize],
    ) -> Bench<'b> {
        Bench {
            data_plane,
            topology: &request.topology,
            dtype: self.dtype,
            op: self.op,
            sizes: arguments.cut(),
            tensors,
            in_place: self.in_place,
            warmup: arguments.warmup_iters,
            repetitions: arguments.iters,
            start: arguments.start(&request.placement),
            check: arguments.check > 0,
            seed: arguments.seed,
        }
    }
}

/// What the interval of a median takes as independent.
fn interval_over(times: &Nested, time: Option<&Summary>) -> &'static str {
    match time.and_then(|time| time.p50_interval) {
        None => "",
        Some(_) if times.level() == Level::Sample => "repetitions",
        Some(_) => times.level().plural(),
    }
}

/// What a measured line came to.
pub fn outcome(
    line: Line,
    bench: &Bench,
    timed: &Timed,
    blocks: usize,
    bound_us: Option<f64>,
) -> CaseOutcome<CollectiveResult> {
    let by_block = timed.by_block();
    let time = by_block.summary();
    let size_bytes = line.elements * line.dtype.size_bytes();
    let wrong = timed.wrong.as_ref();
    let has_moments = timed.start != Start::Barrier;
    let result = CollectiveResult {
        effort: Effort {
            samples: timed.times.len(),
            blocks,
            launches: 1,
            stop_reason: "count".into(),
            checked: wrong.map_or(0, |_| blocks),
            wrong: wrong.map(|wrong| wrong.count),
            first_wrong: wrong.and_then(|wrong| wrong.first.clone()).unwrap_or_default(),
        },
        times: time.as_ref().map(Times::of),
        confidence: Confidence {
            interval_over: interval_over(&by_block, time.as_ref()).into(),
            samples_effective: by_block.effective_samples(),
            ..Confidence::default()
        },
        bandwidths: time
            .as_ref()
            .and_then(|time| Bandwidths::of(size_bytes, bench.topology.ranks(), time)),
        enqueued: timed.enqueued.as_ref().map(|enqueued| Enqueued {
            enqueued: enqueued.launches,
            graph_nodes: enqueued.nodes,
            enqueue_us_p50: Summary::of(&enqueued.times_us).map(|time| time.p50),
        }),
        late: has_moments.then_some(timed.late),
        clock_error_us: has_moments.then(|| micros(timed.clock_error)),
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
