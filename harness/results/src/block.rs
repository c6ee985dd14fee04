//! One block of a case: the lines that it adds to the files of samples, messages and ranks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::nested::Nested;
use crate::statistics::{Summary, median};

/// The measurements of one block of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// One per step.
    pub samples: Vec<Sample>,
    /// One per allreduce.
    pub messages: Vec<Message>,
    /// One per rank.
    pub ranks: Vec<RankBlock>,
    /// The negotiation of each cycle, in nanoseconds; see [`Sample::negotiation_us`].
    pub latencies: Option<Histogram>,
    /// What the system did besides.
    pub conditions: Option<Conditions>,
}

/// What a sweep keeps of a block in memory: the rest is in its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// The case's name.
    pub case: String,
    /// The block, from 0: each case is measured once in it.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// Position of the case within the block.
    pub order: usize,
    /// World size.
    pub ranks: usize,
    /// Steps of the warm-up.
    pub warmup: usize,
    /// The time of each step; see [`Sample::time_us`].
    pub times_us: Vec<f64>,
    /// What the system did besides.
    pub conditions: Option<Conditions>,
}

impl Outline {
    /// From the samples of a block on so many ranks, and its conditions.
    pub fn of(samples: &[Sample], ranks: usize, conditions: Option<Conditions>) -> Outline {
        let Some(first) = samples.first() else {
            return Outline { ranks, conditions, ..Outline::default() };
        };
        Outline {
            case: first.case.clone(),
            block: first.block,
            launch: first.launch,
            order: first.order,
            ranks,
            warmup: first.warmup,
            times_us: samples.iter().map(|sample| sample.time_us).collect(),
            conditions,
        }
    }

    /// The step times of some blocks, by launch and block.
    pub fn nested(blocks: &[&Outline]) -> Nested {
        let times = blocks.iter().flat_map(|block| {
            block.times_us.iter().map(|&time_us| (block.launch, block.block, time_us))
        });
        times.collect()
    }
}

impl From<&Block> for Outline {
    fn from(block: &Block) -> Outline {
        let ranks = block.ranks.first().map_or(0, |first| first.ranks);
        Outline::of(&block.samples, ranks, block.conditions.clone())
    }
}

/// Latencies in nanoseconds, to three digits.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// An empty histogram.
pub fn histogram() -> Histogram {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("bounds that hdrhistogram accepts")
}

/// Values of samples by launch and block.
pub fn nested(blocks: &[&Block], value: impl Fn(&Sample) -> f64) -> Nested {
    let samples = blocks.iter().flat_map(|block| &block.samples);
    samples.map(|sample| (sample.launch, sample.block, value(sample))).collect()
}

/// Summarises one value over all samples of some blocks; `None` if there is no sample.
pub fn summary(blocks: &[&Block], value: impl Fn(&Sample) -> f64) -> Option<Summary> {
    nested(blocks, value).summary()
}

/// The median of one value over all samples of some blocks; `None` if there is no sample.
pub fn p50(blocks: &[&Block], value: impl Fn(&Sample) -> f64) -> Option<f64> {
    median(blocks.iter().flat_map(|block| &block.samples).map(value).collect())
}

/// One rank in one block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RankBlock {
    /// The case's name.
    pub case: String,
    /// The block, from 0: each case is measured once in it.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// World size.
    pub ranks: usize,
    /// The rank.
    pub rank: usize,
    /// Its node.
    pub node: usize,
    /// Measured steps.
    pub steps: usize,
    /// Median of its steps' times.
    pub time_us_p50: f64,
    /// The longest of them.
    pub time_us_max: f64,
    /// Median of its time in allreduces.
    pub data_us_p50: f64,
    /// Every step's time, in order, separated by spaces: for all ranks, or with more than 256 ranks for the 8 with
    /// the largest median.
    pub times_us: String,
}

/// One training step, with the maximum over ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The case's name.
    pub case: String,
    /// The block, from 0: each case is measured once in it.
    pub block: usize,
    /// Runs of the program that have worked on this folder, from 1.
    pub launch: usize,
    /// Position of the case within the block.
    pub order: usize,
    /// Measured steps, from 0; the last one of a block completes it.
    pub step: usize,
    /// From the start of the step to the end of the optimizer.
    pub time_us: f64,
    /// The same by the clocks of devices; empty where ranks are on processors.
    pub device_us: Option<f64>,
    /// In the control plane, over all cycles of the step: for each cycle the time of the last rank, which did not
    /// wait.
    pub negotiation_us: f64,
    /// Waiting in the control plane for the last rank, over all cycles of the step: for each cycle the time that
    /// the first rank waited.
    pub wait_us: f64,
    /// In allreduces, packing included.
    pub data_us: f64,
    /// Copying into and out of the fusion buffer.
    pub packing_us: f64,
    /// Casting gradients to the type on the wire, and results back.
    pub compression_us: f64,
    /// Adding up the gradients of several backward passes, and dividing the result.
    pub aggregation_us: f64,
    /// Cycles of rank 0.
    pub cycles: usize,
    /// Cycles after which there was nothing to reduce.
    pub idle_cycles: usize,
    /// Allreduces.
    pub messages: usize,
    /// Bytes of control messages, sent by all ranks together.
    pub control_bytes: usize,
    /// From the time when a gradient became ready to the start of its cycle: the mean, on rank 0.
    pub cycle_wait_us: f64,
    /// Cycles that used rank 0.
    pub slow_cycles: usize,
    /// Gradients that were in the response cache when rank 0 drained its queue.
    pub hits: usize,
    /// Gradients that were not in the response cache.
    pub misses: usize,
    /// Gradients that were cached in another shape or type.
    pub invalid: usize,
    /// Responses that had to make room in the cache.
    pub evictions: usize,
    /// Messages that are not larger because nothing else was ready.
    pub stop_empty: usize,
    /// Messages that hold no more because of the threshold.
    pub stop_threshold: usize,
    /// Messages that are not larger because the other ready tensors are of another kind.
    pub stop_unlike: usize,
    /// Messages that hold no more because groups are not fused.
    pub stop_group: usize,
    /// Messages that are never fused with others.
    pub stop_alone: usize,
    /// Control messages, sent by all ranks together.
    pub control_messages: usize,
    /// Control messages that rank 0 sent.
    pub rank0_sent: usize,
    /// Control messages that rank 0 got.
    pub rank0_received: usize,
    /// Bytes of the control messages that rank 0 sent and received.
    pub rank0_bytes_wire: usize,
    /// Bytes of control messages in our format, bits apart, sent by all ranks together.
    pub bytes_wire: usize,
    /// Bytes that Horovod would have sent in their place.
    pub bytes_horovod: usize,
    /// Bytes of all ranks' bit vectors.
    pub bits_bytes: usize,
    /// The share of the step's time that the thread of a rank's loop was on a core: the largest over ranks.
    pub cpu_share: Option<f64>,
    /// Bytes of data sent inside nodes, by all ranks together.
    pub inside_bytes: usize,
    /// Bytes of data sent between nodes, by all ranks together.
    pub between_bytes: usize,
    /// The data after this step were compared.
    pub checked: bool,
    /// Wrong elements.
    pub wrong: usize,
    /// The first wrong element; empty if there is none.
    pub first_wrong: String,
    /// Steps of the block's warm-up, which came before and do not count.
    #[serde(default)]
    pub warmup: usize,
    /// Combining received elements with own ones, part of `data_us`; empty if a library or a GPU reduces.
    #[serde(default)]
    pub reduction_us: Option<f64>,
    /// Idle until the next cycle, with gradients ready that it takes: from the first that became ready.
    #[serde(default)]
    pub until_cycle_us: Option<f64>,
    /// When the step ended on rank 0, in seconds since 1970 UTC; empty before schema 9.
    #[serde(default)]
    pub ended_s: Option<f64>,
}

/// One allreduce of a training step; the time is the maximum over ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The case's name.
    pub case: String,
    /// The block, from 0: each case is measured once in it.
    pub block: usize,
    /// Measured steps, from 0.
    pub step: usize,
    /// The message's number within its step.
    pub index: usize,
    /// Tensors that are fused in it.
    pub tensors: usize,
    /// Bytes of these tensors.
    pub size_bytes: usize,
    /// The maximum over ranks.
    pub time_us: f64,
}
