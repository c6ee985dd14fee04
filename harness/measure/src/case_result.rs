//! The row of a case that is done, from its blocks.

use std::collections::BTreeSet;

use results::block::{Block, Histogram, Sample, histogram, nested, p50, summary};
use results::row::{
    CaseOutcome, Confidence, Effort, Negotiation, StepResult, StepRow, StepSetting, Times, ends,
};
use results::statistics::median;

/// Cycles from which their 99th percentile has an interval.
const CYCLES_FOR_P99: u64 = 368;

/// The row of a case that was measured in these blocks. `counts_bytes` adds the bytes of data; those of a vendor's
/// library are unknown.
///
/// # Panics
/// If there is no sample.
pub fn row_of(
    setting: StepSetting,
    blocks: &[&Block],
    stop_reason: &str,
    counts_bytes: bool,
) -> StepRow {
    let of = |value: fn(&Sample) -> f64| summary(blocks, value).expect("a block has a sample");
    let p50 = |value: fn(&Sample) -> f64| p50(blocks, value).expect("a block has a sample");
    let known_p50 = |value: fn(&Sample) -> Option<f64>| known_p50(blocks, value);
    let aggregation_us_p50 = p50(|sample| sample.aggregation_us);
    let bound_us = setting.training.compute_us() + aggregation_us_p50;
    let times_us = nested(blocks, |sample| sample.time_us);
    let time = times_us.summary().expect("a block has a sample");
    let negotiation = of(|sample| sample.negotiation_us);
    let messages = of(|sample| sample.messages as f64);
    let (negotiation_us_p50_low, negotiation_us_p50_high) = ends(&negotiation);
    let (messages_p50_low, messages_p50_high) = ends(&messages);
    let cycles = latencies(blocks);
    let cycle_us = |quantile| cycles.value_at_quantile(quantile) as f64 / 1e3;
    let result = StepResult {
        effort: effort(blocks, stop_reason),
        times: Times::of(&time),
        confidence: Confidence {
            interval_over: time.p50_interval.map_or("", |_| times_us.level().plural()).into(),
            samples_effective: times_us.effective_samples(),
            ..Confidence::default()
        },
        negotiation: self::negotiation(blocks),
        device_us_p50: known_p50(|sample| sample.device_us),
        exposed_us_p50: time.p50 - bound_us,
        data_us_p50: p50(|sample| sample.data_us),
        packing_us_p50: p50(|sample| sample.packing_us),
        reduction_us_p50: known_p50(|sample| sample.reduction_us),
        compression_us_p50: Some(p50(|sample| sample.compression_us)),
        aggregation_us_p50: Some(aggregation_us_p50),
        wait_us_p50: p50(|sample| sample.wait_us),
        negotiation_us_p50: negotiation.p50,
        negotiation_us_p50_low,
        negotiation_us_p50_high,
        negotiation_cycle_us_p50: cycle_us(0.5),
        negotiation_cycle_us_p99: (cycles.len() >= CYCLES_FOR_P99).then(|| cycle_us(0.99)),
        cycles_p50: p50(|sample| sample.cycles as f64),
        idle_cycles_p50: p50(|sample| sample.idle_cycles as f64),
        messages_p50: messages.p50,
        messages_p50_low,
        messages_p50_high,
        tensors_per_message_mean: tensors_per_message(blocks),
        control_bytes_p50: p50(|sample| sample.control_bytes as f64),
        inside_bytes: counts_bytes.then(|| p50(|sample| sample.inside_bytes as f64)),
        between_bytes: counts_bytes.then(|| p50(|sample| sample.between_bytes as f64)),
        cycle_wait_us_p50: Some(p50(|sample| sample.cycle_wait_us)),
        until_cycle_us_p50: known_p50(|sample| sample.until_cycle_us),
        stop_empty_p50: Some(p50(|sample| sample.stop_empty as f64)),
        stop_threshold_p50: Some(p50(|sample| sample.stop_threshold as f64)),
        stop_unlike_p50: Some(p50(|sample| sample.stop_unlike as f64)),
        stop_group_p50: Some(p50(|sample| sample.stop_group as f64)),
        stop_alone_p50: Some(p50(|sample| sample.stop_alone as f64)),
        cpu_share_p50: known_p50(|sample| sample.cpu_share),
    };
    let outcome = match (result.effort.wrong, &result.effort.first_wrong) {
        (None | Some(0), _) => CaseOutcome::Ok(result),
        (Some(wrong), first) => {
            let reason = format!("{wrong} wrong elements; first: {first}");
            CaseOutcome::Wrong { result, reason }
        }
    };
    StepRow { setting, outcome, bound_us }.rounded()
}

/// The median of a value that every sample has; `None` if one does not.
fn known_p50(blocks: &[&Block], value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let samples = blocks.iter().flat_map(|block| &block.samples);
    median(samples.map(value).collect::<Option<Vec<f64>>>()?)
}

fn effort(blocks: &[&Block], stop_reason: &str) -> Effort {
    let samples = || blocks.iter().flat_map(|block| &block.samples);
    let launches: BTreeSet<usize> = samples().map(|sample| sample.launch).collect();
    let first_wrong =
        samples().map(|sample| &sample.first_wrong).find(|first_wrong| !first_wrong.is_empty());
    Effort {
        samples: samples().count(),
        blocks: blocks.len(),
        launches: launches.len(),
        stop_reason: stop_reason.into(),
        checked: samples().filter(|sample| sample.checked).count(),
        wrong: Some(samples().map(|sample| sample.wrong).sum()),
        first_wrong: first_wrong.cloned().unwrap_or_default(),
    }
}

fn negotiation(blocks: &[&Block]) -> Negotiation {
    let p50 = |value: fn(&Sample) -> usize| p50(blocks, |sample| value(sample) as f64);
    Negotiation {
        slow_cycles_p50: p50(|sample| sample.slow_cycles),
        hits_p50: p50(|sample| sample.hits),
        misses_p50: p50(|sample| sample.misses),
        invalid_p50: p50(|sample| sample.invalid),
        evictions_p50: p50(|sample| sample.evictions),
        rank0_sent_p50: p50(|sample| sample.rank0_sent),
        rank0_received_p50: p50(|sample| sample.rank0_received),
        control_messages_p50: p50(|sample| sample.control_messages),
        rank0_bytes_wire_p50: p50(|sample| sample.rank0_bytes_wire),
        bytes_wire_p50: p50(|sample| sample.bytes_wire),
        bytes_horovod_p50: p50(|sample| sample.bytes_horovod),
        bits_bytes_p50: p50(|sample| sample.bits_bytes),
    }
}

/// The negotiation of every cycle of all blocks, in nanoseconds.
fn latencies(blocks: &[&Block]) -> Histogram {
    let mut all = histogram();
    for latencies in blocks.iter().filter_map(|block| block.latencies.as_ref()) {
        all.add(latencies).expect("histograms of one shape");
    }
    all
}

fn tensors_per_message(blocks: &[&Block]) -> f64 {
    let messages = || blocks.iter().flat_map(|block| &block.messages);
    let tensors: usize = messages().map(|message| message.tensors).sum();
    tensors as f64 / messages().count().max(1) as f64
}
