//! The allreduces of a timeline, with sizes where the file has the shapes of tensors.
//!
//! Horovod does not say which tensors are fused into a message. Those that are reduced at the same time are taken as one,
//! on the rank that wrote the file; of kolo's files on the first rank.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use algorithms::topology::Rank;

use super::read::{Span, Trace};
use super::{Category, names};
use crate::workload::from_timeline::parse_shape;

/// One allreduce of one or several tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// When the last of its tensors begins, in microseconds: Horovod marks one after the other.
    pub begin_us: f64,
    /// From there to the end of the first, in microseconds.
    pub time_us: f64,
    /// Tensors in it.
    pub tensors: usize,
    /// Their bytes; none where the file lacks the shape of one, or where the allreduce is only a part of the operation, as in
    /// Horovod's hierarchical allreduce.
    pub size_bytes: Option<u64>,
    /// Its name in the file: `MPI_ALLREDUCE`, `NCCL_ALLREDUCE`.
    pub name: Rc<str>,
    /// The file has its end.
    pub is_whole: bool,
}

/// The rank whose spans are taken: the first of kolo's files; none of Horovod's, which are one rank's.
pub fn own_rank(trace: &Trace) -> Option<Rank> {
    trace.tracks.iter().filter_map(|track| track.rank).min()
}

/// How many ranks there are at least, as far as ready times of ranks say; none if there are none.
pub fn ranks(trace: &Trace) -> Option<usize> {
    trace.ticks.iter().map(|tick| tick.rank + 1).max()
}

/// How the allreduce itself ends, as the name of an activity.
const TRANSFER: &str = "_ALLREDUCE";

/// How the other parts of a hierarchical allreduce end.
const OTHER_PART: &str = "_REDUCESCATTER";

/// The messages of a timeline, in the order of their beginnings.
pub fn messages(trace: &Trace) -> Vec<Message> {
    let rank = own_rank(trace);
    let own = || {
        trace.spans.iter().filter(|span| {
            let is_own = trace.tracks[span.track].rank == rank;
            is_own
                && span.category == Category::Tensor
                && !span.name.starts_with(names::NEGOTIATE_PREFIX)
        })
    };
    let in_parts: HashSet<usize> =
        own().filter(|span| span.name.ends_with(OTHER_PART)).map(|span| span.track).collect();
    let sizes = Sizes::of(trace);
    let mut transfers: Vec<&Span> = own().filter(|span| span.name.ends_with(TRANSFER)).collect();
    transfers.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us));
    let mut groups: Vec<Vec<&Span>> = Vec::new();
    let (mut end_us, mut members) = (f64::NEG_INFINITY, HashSet::new());
    for span in transfers {
        if span.begin_us >= end_us || members.contains(&span.track) {
            groups.push(Vec::new());
            members.clear();
            end_us = f64::NEG_INFINITY;
        }
        groups.last_mut().expect("just pushed").push(span);
        members.insert(span.track);
        end_us = end_us.max(if span.is_open { f64::INFINITY } else { span.end_us });
    }
    let message = |spans: Vec<&Span>| {
        let begin_us = spans.iter().map(|span| span.begin_us).fold(f64::NEG_INFINITY, f64::max);
        let end_us = spans.iter().map(|span| span.end_us).fold(f64::INFINITY, f64::min);
        let size =
            |span: &&Span| sizes.bytes(span.track).filter(|_| !in_parts.contains(&span.track));
        Message {
            begin_us,
            time_us: (end_us - begin_us).max(0.0),
            tensors: spans.len(),
            size_bytes: spans.iter().map(size).sum(),
            name: spans[0].name.clone(),
            is_whole: spans.iter().all(|span| !span.is_open),
        }
    };
    groups.into_iter().map(message).collect()
}

/// Tensors that are reduced as often as most, on the rank whose spans are taken: how many, and their bytes; none if the file
/// lacks the shape of one.
pub fn gradients(trace: &Trace) -> Option<(usize, u64)> {
    let (rank, sizes) = (own_rank(trace), Sizes::of(trace));
    let mut times: HashMap<usize, usize> = HashMap::new();
    for span in &trace.spans {
        let is_own = trace.tracks[span.track].rank == rank && span.category == Category::Tensor;
        if is_own && &*span.name == names::ALLREDUCE {
            *times.entry(span.track).or_default() += 1;
        }
    }
    let usual = crate::workload::from_timeline::usual(times.values().copied())?;
    // The last step may have begun for some of them only.
    let mut often = times.iter().filter(|(_, times)| **times + 1 >= usual).map(|(track, _)| *track);
    let bytes: u64 = often.clone().map(|track| sizes.bytes(track)).sum::<Option<u64>>()?;
    often.next().map(|_| (1 + often.count(), bytes))
}

/// Bytes of tensors by track; none if a tensor changes its size.
struct Sizes(HashMap<usize, Option<u64>>);

impl Sizes {
    fn of(trace: &Trace) -> Sizes {
        let mut sizes: HashMap<usize, Option<u64>> = HashMap::new();
        for description in &trace.described {
            let elements =
                parse_shape(&description.shape).map(|shape| shape.iter().product::<u64>());
            let element = description.dtype.as_deref().and_then(element_bytes);
            let bytes = elements.zip(element).and_then(|(count, bytes)| count.checked_mul(bytes));
            let known = sizes.entry(description.track).or_insert(bytes);
            if *known != bytes {
                *known = None;
            }
        }
        Sizes(sizes)
    }

    fn bytes(&self, track: usize) -> Option<u64> {
        self.0.get(&track).copied().flatten()
    }
}

/// Bytes of an element, by Horovod's name of the type or ours.
fn element_bytes(dtype: &str) -> Option<u64> {
    let bytes = match dtype {
        "uint8" | "int8" | "bool" | "u8" => 1,
        "uint16" | "int16" | "float16" | "bfloat16" | "f16" | "bf16" => 2,
        "int32" | "float32" | "i32" | "f32" => 4,
        "int64" | "float64" | "i64" | "f64" => 8,
        _ => return None,
    };
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::golden::{HOROVOD, KOLO, trace};
    use super::*;

    #[test]
    fn fused_tensors_are_one_message_of_their_bytes() {
        let trace = trace(HOROVOD);
        let messages = messages(&trace);
        let own: Vec<(usize, Option<u64>)> =
            messages.iter().map(|it| (it.tensors, it.size_bytes)).collect();
        // 10 + 2560 elements, then 256 + 65536, and a loss after the first step.
        let (few, many) = ((2, Some(4 * 2570)), (2, Some(4 * 65_792)));
        assert_eq!(own, [few, many, (1, Some(4)), few, many, few, many, few, many]);
        assert_eq!((messages[0].begin_us, messages[0].time_us), (106_450.0, 7901.0));
        assert!(messages.iter().all(|it| &*it.name == "MPI_ALLREDUCE" && it.is_whole));
        assert_eq!((ranks(&trace), own_rank(&trace)), (Some(2), None));
        assert_eq!(gradients(&trace), Some((4, 4 * (2570 + 65_792))));
    }

    #[test]
    fn of_kolos_files_the_first_rank_is_taken() {
        let trace = trace(KOLO);
        let sizes: Vec<Option<u64>> = messages(&trace).iter().map(|it| it.size_bytes).collect();
        assert_eq!(sizes, [Some(8), Some(24), Some(32)]);
        assert_eq!((own_rank(&trace), gradients(&trace)), (Some(0), Some((2, 32))));
    }

    /// A timeline of one tensor, which is reduced once.
    fn one(activity: &str, args: &str) -> Trace {
        let event = |ph: &str, ts: u32, more: &str| {
            format!(r#"{{"ph": "{ph}", "pid": 1, "ts": {ts}{more}}}"#)
        };
        let events = [
            event("B", 1, r#", "name": "ALLREDUCE""#),
            event("B", 2, &format!(r#", "name": "{activity}""#)),
            event("E", 4, ""),
            event("B", 5, r#", "name": "NCCL_ALLREDUCE""#),
            event("E", 9, ""),
            event("E", 10, args),
        ];
        trace(&format!("[{}]", events.join(",")))
    }

    #[test]
    fn sizes_that_the_file_does_not_tell_are_none() {
        let size = |activity: &str, args: &str| messages(&one(activity, args))[0].size_bytes;
        let shape = r#", "args": {"dtype": "float16", "shape": "[3, 5]"}"#;
        assert_eq!(size("QUEUE", shape), Some(30));
        assert_eq!(size("QUEUE", ""), None);
        assert_eq!(size("QUEUE", r#", "args": {"dtype": "complex64", "shape": "[3]"}"#), None);
        // What travels between nodes is a part of the tensor.
        assert_eq!(size("NCCL_REDUCESCATTER", shape), None);
        assert_eq!(gradients(&one("QUEUE", "")), None);
    }

    #[test]
    fn a_message_whose_end_is_missing_is_not_whole() {
        let cut = &HOROVOD[..HOROVOD.rfind(r#"{"ph": "E", "ts": 284131, "pid": 7"#).unwrap()];
        let messages = messages(&trace(cut));
        let whole: Vec<bool> = messages.iter().map(|it| it.is_whole).collect();
        assert_eq!(whole.iter().filter(|is_whole| !**is_whole).count(), 1);
        assert_eq!(whole.last(), Some(&false));
    }
}
