//! Measures this machine for the simulator: the cost of a message on the transport, by size.
//!
//! All data come from [`patterns`]: small programs, none of them an allreduce, that run on the same executor as
//! algorithms. Two ranks exchange messages step after step, at the same time as all other pairs of their reach, as
//! collectives do. A step's time is the difference between many steps and few, which excludes the cost of a call.
//! [`fit`] fits lines to times by size, [`estimate`] derives parameters from lines, and resampling gives their
//! intervals.

pub mod computing;
mod control;
pub mod estimate;
pub mod fit;
pub mod host;
pub mod interruptions;
pub mod logs;
pub mod patterns;
#[cfg(feature = "mpi")]
mod processes;
pub mod runner;
mod runner_error;
pub mod skew;
pub mod work;
pub mod write;

use computing::Computing;
use fit::SMALL_BYTES;
use patterns::{Reach, Shape, chunks, neighbours, pairs, plane, schedule, segments};
use results::statistics::quantile;
use runner::{Program, Runner};
use training::back_end::{BackEndRef, RankKind};
use transports::data_plane::DataPlane;
use transports::transport::TransportError;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Messages of an exchange are at most so long.
    pub most_bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Approximate seconds of a program's repetitions in a block.
    pub block_s: f64,
    /// No block starts after this many seconds, except the first three.
    pub budget_s: f64,
    /// The quantile of the samples: the median, or a low one where other programs also use the machine.
    pub quantile: f64,
}

impl Effort {
    /// The defaults of `kolo calibrate`.
    pub const DEFAULT: Effort =
        Effort { most_bytes: 8 << 20, blocks: 10, block_s: 4e-3, budget_s: 30.0, quantile: 0.5 };

    /// Whether another block starts, after `blocks` that took `spent_s`.
    pub fn goes_on(&self, blocks: usize, spent_s: f64) -> bool {
        blocks < self.blocks && (blocks < 3 || spent_s < self.budget_s)
    }
}

/// Lengths of messages in an exchange, in bytes: a factor of 4 or so apart.
const SIZES: [usize; 10] =
    [4, 64, 512, 4 << 10, SMALL_BYTES, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20];

/// A program in a short and a long form, or in one alone, and its times.
pub struct Point {
    reach: Reach,
    shape: Shape,
    /// Of each message.
    bytes: usize,
    planes: [DataPlane; 2],
    lengths: [usize; 2],
    samples: [Vec<f64>; 2],
}

impl Point {
    fn new(runner: &dyn Runner, reach: Reach, shape: Shape, bytes: usize) -> Point {
        let lengths = match shape {
            Shape::Burst => [2, 18],
            Shape::ReduceOnce | Shape::Silent => [0, 1],
            Shape::ThereAndBack | Shape::Crossing => [1, 2],
            Shape::Exchange { .. } if bytes <= SMALL_BYTES => [4, 24],
            // On threads nothing is sent ahead, and the second step differs from the first: chunks are copied
            // back, or combined with those that the other has just read.
            Shape::Exchange { .. } if runner.back_end().rank_kind() == RankKind::Thread => [1, 2],
            Shape::Exchange { .. } | Shape::Stream | Shape::Neighbours => [2, 6],
        };
        let topology = runner.topology();
        let pairs = match shape {
            Shape::Neighbours => neighbours(topology),
            _ => pairs(topology, reach),
        };
        let planes = lengths.map(|length| plane(schedule(topology.ranks(), &pairs, shape, length)));
        Point { reach, shape, bytes, planes, lengths, samples: Default::default() }
    }

    /// Seconds of a step, of a segment in it, or of one message more in a burst.
    fn step_s(&self, samples: &[Vec<f64>; 2], share: f64) -> f64 {
        // A form that is not measured takes no time: it has no steps.
        let quantile = |samples: &Vec<f64>| quantile(samples.clone(), share).unwrap_or(0.0);
        let [few, many] = samples.each_ref().map(quantile);
        let steps = self.lengths.map(|length| (length * segments(self.shape)) as f64);
        let difference = (many - few) / (steps[1] - steps[0]);
        if difference > 0.0 { difference } else { many / steps[1] }
    }
}

/// The points to measure, and their samples.
pub struct Calibration {
    points: Vec<Point>,
    ranks_per_node: usize,
    nodes: usize,
    back_end: BackEndRef,
    quantile: f64,
}

impl Calibration {
    /// Everything that the runner's world has: exchanges on a node and between nodes, and bursts.
    pub fn new(runner: &dyn Runner, effort: &Effort) -> Calibration {
        let topology = runner.topology();
        let (nodes, ranks_per_node) = (topology.nodes(), topology.local_size().unwrap_or(1));
        let mut points = Vec::new();
        let reaches = [
            (Reach::Inside, ranks_per_node > 1),
            (Reach::Between, nodes > 1),
            (Reach::AllBetween, nodes > 1 && ranks_per_node > 1),
        ];
        for (reach, _) in reaches.into_iter().filter(|(_, is_there)| *is_there) {
            for bytes in SIZES.into_iter().filter(|&bytes| bytes <= effort.most_bytes) {
                for reduces in [false, true] {
                    // Only bytes share a node's resources.
                    if reach != Reach::AllBetween || (!reduces && bytes > SMALL_BYTES) {
                        let shape = Shape::Exchange { reduces };
                        points.push(Point::new(runner, reach, shape, bytes));
                        if !reduces
                            && runner.back_end().rank_kind() != RankKind::Thread
                            && bytes > SMALL_BYTES
                        {
                            points.push(Point::new(runner, reach, Shape::Stream, bytes));
                        }
                        if reduces
                            && runner.back_end().rank_kind() == RankKind::Thread
                            && bytes > SMALL_BYTES
                        {
                            // Buffers of the same size.
                            for shape in [Shape::ReduceOnce, Shape::Silent, Shape::ThereAndBack] {
                                let bytes = 2 * bytes / chunks(shape, 1);
                                points.push(Point::new(runner, reach, shape, bytes));
                            }
                        }
                    }
                }
            }
            if reach != Reach::AllBetween {
                points.push(Point::new(runner, reach, Shape::Burst, SIZES[0]));
            }
            let longest = SIZES.into_iter().rfind(|&bytes| bytes <= effort.most_bytes);
            let longest = longest.filter(|&bytes| bytes > SMALL_BYTES);
            if let (Some(bytes), Reach::Between) = (longest, reach)
                && runner.back_end().rank_kind() != RankKind::Thread
            {
                // Segments are up to twice as long as asked for, since their number is a power of two.
                let large =
                    SIZES.into_iter().filter(|size| (SMALL_BYTES + 1..=bytes).contains(size));
                for bytes in large.chain([2 * bytes]) {
                    points.push(Point::new(runner, reach, Shape::Crossing, bytes));
                }
                if nodes > 2 {
                    points.push(Point::new(runner, reach, Shape::Neighbours, bytes));
                }
            }
        }
        Calibration {
            points,
            ranks_per_node,
            nodes,
            back_end: runner.back_end(),
            quantile: effort.quantile,
        }
    }

    /// The measured times, a line for each size: microseconds of a step.
    pub fn measured(&self) -> Vec<String> {
        let line = |point: &Point| {
            let what = match point.shape {
                Shape::Exchange { reduces: false } => "copied",
                Shape::Exchange { reduces: true } => "reduced",
                Shape::Stream => "copied, four under way",
                Shape::Neighbours => "copied between two partners each, four under way",
                Shape::Crossing => "returned, four under way",
                Shape::ReduceOnce => "reduced once",
                Shape::Silent => "reduced by a rank that sends nothing",
                Shape::ThereAndBack => "copied by a rank that sends nothing",
                Shape::Burst => "in a burst",
            };
            let step_us = point.step_s(&point.samples, self.quantile) * 1e6;
            let (bytes, samples) = (point.bytes, point.samples[1].len());
            format!("{}, {bytes} bytes {what}: {step_us:.3} us ({samples} times)", point.reach)
        };
        self.points.iter().map(line).collect()
    }

    /// The number of samples of each program, short and long: see [`Calibration::values_since`].
    pub fn marks(&self) -> Vec<[usize; 2]> {
        let counts = |point: &Point| point.samples.each_ref().map(Vec::len);
        self.points.iter().map(counts).collect()
    }

    /// The number of programs to measure.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Measures one of them in both forms; returns the seconds that were measured.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn measure(
        &mut self,
        index: usize,
        runner: &mut dyn Runner,
        effort: &Effort,
    ) -> Result<f64, TransportError> {
        let point = &mut self.points[index];
        let mut spent_s = 0.0;
        for form in (0..2).filter(|&form| point.lengths[form] > 0) {
            let segment_bytes = point.bytes * chunks(point.shape, point.lengths[form]);
            let sizes = match segments(point.shape) {
                1 => (segment_bytes, 0),
                segments => (segments * segment_bytes, segment_bytes),
            };
            let times = repeat(runner, &point.planes[form], sizes, &point.samples[form], effort)?;
            spent_s += times.iter().sum::<f64>();
            point.samples[form].extend(times);
        }
        Ok(spent_s)
    }
}

/// The most repetitions in a block.
const MOST_REPETITIONS: usize = 20;

/// Repeats a program for a block, as often as earlier samples suggest; sizes are the buffer's, and that of
/// its segments.
///
/// # Errors
/// When a rank does not answer.
pub fn repeat(
    runner: &mut dyn Runner,
    plane: &DataPlane,
    (size_bytes, segment_bytes): (usize, usize),
    before: &[f64],
    effort: &Effort,
) -> Result<Vec<f64>, TransportError> {
    let seconds = quantile(before.to_vec(), effort.quantile).filter(|&seconds| seconds > 0.0);
    let fitting = |seconds| ((effort.block_s / seconds) as usize).clamp(1, MOST_REPETITIONS);
    let repetitions = seconds.map_or(1, fitting);
    let warmup = repetitions.min(5);
    runner.time(&Program { plane, size_bytes, segment_bytes, warmup, repetitions })
}

/// Runs all blocks of a calibration; ranks compute between them.
///
/// # Errors
/// When a rank does not answer.
pub fn calibrate(
    runner: &mut dyn Runner,
    effort: &Effort,
) -> Result<(Calibration, Computing), TransportError> {
    let mut calibration = Calibration::new(runner, effort);
    let mut computing = Computing::default();
    let (mut blocks, mut spent_s) = (0, 0.0);
    while effort.goes_on(blocks, spent_s) {
        computing.measure(runner)?;
        for index in 0..calibration.points() {
            spent_s += calibration.measure(index, runner, effort)?;
        }
        blocks += 1;
    }
    Ok((calibration, computing))
}
