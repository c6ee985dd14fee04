//! Writes a timeline of kolo in the layout of Horovod 0.28 (`horovod/common/timeline.cc`), for tools that know that layout
//! alone: a process for each tensor, spans as pairs of `B` and `E`, ticks as `X` without duration, whole microseconds.
//!
//! As in Horovod the file is one rank's: its cycles and allreduces. Negotiations are those of all ranks, with a tick for
//! each rank, as rank 0 of Horovod sees them. One that overlaps an allreduce of the same tensor on this rank is cut there,
//! because pairs have to be nested.

use std::collections::BTreeMap;
use std::io::{self, Write};

use algorithms::topology::Rank;
use serde_json::{Value, json};

use super::read::{Span, Trace};
use super::{Category, names};

/// The events of one tensor.
#[derive(Default)]
struct Tensor<'t> {
    negotiations: Vec<(f64, f64)>,
    ticks: Vec<(f64, Rank)>,
    /// Allreduces and their activities.
    spans: Vec<&'t Span>,
    args: Option<Value>,
}

/// Writes the part of a timeline that is one rank's.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, trace: &Trace, rank: Rank) -> io::Result<()> {
    let mut tensors: BTreeMap<&str, Tensor> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for span in trace.spans.iter().filter(|span| span.category == Category::Tensor) {
        let track = &trace.tracks[span.track];
        let tensor = tensors.entry(&track.name).or_insert_with(|| {
            order.push(&track.name);
            Tensor::default()
        });
        let is_negotiation = span.name.starts_with(names::NEGOTIATE_PREFIX);
        match track.rank {
            None if is_negotiation => tensor.negotiations.push((span.begin_us, span.end_us)),
            Some(own) if own == rank && !is_negotiation => tensor.spans.push(span),
            _ => {}
        }
    }
    for tick in &trace.ticks {
        if let Some(tensor) = tensors.get_mut(&*trace.tracks[tick.track].name) {
            tensor.ticks.push((tick.time_us, tick.rank));
        }
    }
    for description in &trace.described {
        if let Some(tensor) = tensors.get_mut(&*trace.tracks[description.track].name) {
            let dtype = description.dtype.as_deref().unwrap_or_default();
            tensor.args = Some(json!({ "dtype": dtype, "shape": description.shape }));
        }
    }
    // Each tensor's events are in order; so they stay where times are equal.
    let mut events: Vec<(f64, Value)> = Vec::new();
    for (index, name) in order.iter().enumerate() {
        events.extend(tensors[name].events(index + 1));
    }
    for &(own, time_us) in &trace.cycle_starts {
        if own == Some(rank) {
            events.push((
                time_us,
                json!({ "ph": "i", "name": names::CYCLE_START, "ts": whole(time_us), "s": "g" }),
            ));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let metadata = order
        .iter()
        .enumerate()
        .flat_map(|(index, name)| process(index + 1, json!({ "name": name })));
    let start = process(0, json!({ "start_time_since_epoch_in_micros": 0 }));
    let all = start.into_iter().chain(metadata).chain(events.into_iter().map(|(_, event)| event));
    for (index, event) in all.enumerate() {
        out.write_all(if index == 0 { b"[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &event)?;
    }
    out.write_all(b"\n]\n")
}

/// The events that name a process.
fn process(pid: usize, args: Value) -> [Value; 2] {
    [
        json!({ "name": "process_name", "ph": "M", "pid": pid, "args": args }),
        json!({ "name": "process_sort_index", "ph": "M", "pid": pid, "args": { "sort_index": pid } }),
    ]
}

fn whole(time_us: f64) -> i64 {
    time_us.round() as i64
}

impl Tensor<'_> {
    /// In order, with their times.
    fn events(&self, pid: usize) -> Vec<(f64, Value)> {
        let reductions: Vec<&Span> = self
            .spans
            .iter()
            .copied()
            .filter(|span| names::OPERATIONS.contains(&&*span.name))
            .collect();
        let mut spans: Vec<(f64, f64, &str)> =
            self.spans.iter().map(|span| (span.begin_us, span.end_us, &*span.name)).collect();
        let mut ticks = Vec::new();
        for &(begin_us, end_us) in &self.negotiations {
            // The last reduction that began before, and the next.
            let before = reductions.iter().filter(|it| it.begin_us < begin_us).map(|it| it.end_us);
            let next = reductions.iter().filter(|it| it.begin_us >= begin_us).map(|it| it.begin_us);
            let first_us = before.fold(begin_us, f64::max);
            let last_us = next.fold(end_us, f64::min).max(first_us);
            spans.push((first_us, last_us, names::NEGOTIATE_ALLREDUCE));
            let own =
                self.ticks.iter().filter(|(time_us, _)| (begin_us..=end_us).contains(time_us));
            ticks.extend(own.map(|&(time_us, rank)| (time_us.clamp(first_us, last_us), rank)));
        }
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ticks = ticks.into_iter().peekable();
        let mut events: Vec<(f64, Value)> = Vec::new();
        let mut open: Vec<(f64, &str)> = Vec::new();
        for (begin_us, end_us, name) in spans {
            self.close(pid, begin_us, &mut open, &mut events);
            // Activities lie within their allreduce.
            let end_us = open.last().map_or(end_us, |&(outer_us, _)| end_us.min(outer_us));
            events.push((
                begin_us,
                json!({ "ph": "B", "name": name, "ts": whole(begin_us), "pid": pid }),
            ));
            open.push((end_us, name));
            if name == names::NEGOTIATE_ALLREDUCE {
                while let Some((time_us, rank)) = ticks.next_if(|(time_us, _)| *time_us <= end_us) {
                    let (ts, name) = (whole(time_us), rank.to_string());
                    events.push((
                        time_us,
                        json!({ "ph": "X", "name": name, "ts": ts, "pid": pid, "dur": 0 }),
                    ));
                }
            }
        }
        self.close(pid, f64::INFINITY, &mut open, &mut events);
        events
    }

    /// Ends the spans that end until `time_us`.
    fn close(
        &self,
        pid: usize,
        time_us: f64,
        open: &mut Vec<(f64, &str)>,
        events: &mut Vec<(f64, Value)>,
    ) {
        while let Some((end_us, name)) = open.pop_if(|(end_us, _)| *end_us <= time_us) {
            let mut event = json!({ "ph": "E", "ts": whole(end_us), "pid": pid });
            if let Some(args) = self.args.as_ref().filter(|_| names::OPERATIONS.contains(&name)) {
                event["args"] = args.clone();
            }
            events.push((end_us, event));
        }
    }
}
