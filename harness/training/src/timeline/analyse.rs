//! The breakdown of time in a timeline.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use algorithms::topology::Rank;
use schemars::JsonSchema;
use serde::Serialize;

use super::intervals::Intervals;
use results::statistics::Summary;
use workloads::trace::read::{Span, Trace};
use workloads::trace::{Category, names};

/// The breakdown of time in microseconds; `None` if the file does not contain it.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// From the first event to the last.
    pub covered_us: f64,
    /// Times of training steps, each of the rank that took longest.
    pub steps: Option<Summary>,
    /// By rank; Horovod's files have one without a number, which is rank 0's view.
    pub ranks: Vec<Share>,
    /// Until ranks agreed.
    pub negotiation: Option<Negotiation>,
    /// Allreduces of one or several tensors.
    pub messages: Option<Messages>,
    /// By mean time in negotiation, the longest first.
    pub tensors: Vec<Tensor>,
}

/// The breakdown of one rank's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// The rank, if known.
    pub rank: Option<Rank>,
    /// In operations on tensors, including their queues.
    pub communication_us: f64,
    /// Copying into and out of the fusion buffer.
    pub packing_us: f64,
    /// In forward pass, backward pass and optimizer.
    pub computation_us: Option<f64>,
    /// Communication during which nothing was computed.
    pub exposed_us: Option<f64>,
    /// In the control plane.
    pub control_us: Option<f64>,
    /// Cycles of the background loop.
    pub cycles: Option<Cycles>,
}

/// Cycles of a background loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cycles {
    /// All.
    pub count: usize,
    /// Cycles in which no operation started.
    pub idle: usize,
}

/// All negotiations of tensors.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Negotiation {
    /// Negotiations of single tensors, from the first ready rank to the response.
    pub time: Summary,
    /// During which at least one tensor was negotiated.
    pub wall_us: f64,
    /// Negotiations with ready times of at least two ranks.
    pub ticked: usize,
    /// From the first ready rank to the last, summed over all of them.
    pub waiting_us: f64,
    /// The last ranks to be ready, the most frequent first.
    pub last: Vec<Last>,
}

/// A rank that others waited for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Last {
    /// The rank.
    pub rank: Rank,
    /// Negotiations in which it was last.
    pub times: usize,
    /// During which it alone kept at least one tensor back.
    pub alone_us: f64,
}

/// Allreduces of one or several tensors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Messages {
    /// How many.
    pub count: usize,
    /// Tensors in them, on the average.
    pub tensors_mean: f64,
    /// Tensors in the smallest.
    pub tensors_min: usize,
    /// Tensors in the largest.
    pub tensors_max: usize,
    /// Whether the file has the tensors of each message; otherwise tensors that overlap in time count as one
    /// message.
    pub reported: bool,
}

/// A tensor's negotiations.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// How many.
    pub times: usize,
    /// How long, on the average.
    pub mean_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The rank that was last most often.
    pub last: Option<Rank>,
}

/// Computes the breakdown.
pub fn analyse(trace: &Trace) -> Analysis {
    let numbers: BTreeSet<Rank> = trace.tracks.iter().filter_map(|track| track.rank).collect();
    let ranks = if numbers.is_empty() {
        vec![share(trace, None)]
    } else {
        numbers.into_iter().map(|rank| share(trace, Some(rank))).collect()
    };
    let rounds = rounds(trace);
    Analysis {
        covered_us: trace.last_us - trace.first_us,
        steps: steps(trace),
        ranks,
        negotiation: negotiation(&rounds),
        messages: told_messages(trace).or_else(|| overlapping_messages(trace)),
        tensors: tensors(trace, &rounds),
    }
}

fn stretch(span: &Span) -> (f64, f64) {
    (span.begin_us, span.end_us)
}

fn is_operation(span: &Span) -> bool {
    span.category == Category::Tensor && names::OPERATIONS.contains(&&*span.name)
}

/// Times of the steps: the k-th of all ranks is one.
fn steps(trace: &Trace) -> Option<Summary> {
    let mut of_ranks: BTreeMap<Option<Rank>, Vec<f64>> = BTreeMap::new();
    for step in trace.spans.iter().filter(|span| &*span.name == names::STEP) {
        if step.category == Category::Step {
            of_ranks.entry(trace.tracks[step.track].rank).or_default().push(step.time_us());
        }
    }
    let count = of_ranks.values().map(Vec::len).max()?;
    let longest = (0..count).map(|k| {
        let times = of_ranks.values().filter_map(|times| times.get(k));
        times.copied().fold(0.0, f64::max)
    });
    Summary::of(&longest.collect::<Vec<_>>())
}

/// The breakdown of one rank's time.
fn share(trace: &Trace, rank: Option<Rank>) -> Share {
    let own = || trace.spans.iter().filter(|span| trace.tracks[span.track].rank == rank);
    let named = |category: Category, wanted: &[&str]| {
        let spans = own().filter(|span| span.category == category && wanted.contains(&&*span.name));
        Intervals::union(spans.map(stretch))
    };
    let known = |category: Category| own().any(|span| span.category == category);
    let communication = Intervals::union(own().filter(|span| is_operation(span)).map(stretch));
    let computation = named(Category::Step, &[names::FORWARD, names::BACKWARD, names::OPTIMIZER]);
    let computation = known(Category::Step).then_some(computation);
    let exposed = |computation| communication.length() - communication.overlap(computation);
    let control = named(Category::Cycle, &[names::NEGOTIATE]);
    Share {
        rank,
        communication_us: communication.length(),
        packing_us: named(Category::Tensor, &[names::MEMCPY_IN, names::MEMCPY_OUT]).length(),
        exposed_us: computation.as_ref().map(exposed),
        computation_us: computation.as_ref().map(Intervals::length),
        control_us: known(Category::Cycle).then(|| control.length()),
        cycles: cycles(trace, rank),
    }
}

/// A cycle lasts until the next one begins.
fn cycles(trace: &Trace, rank: Option<Rank>) -> Option<Cycles> {
    let starts = trace.cycle_starts.iter().filter(|(of, _)| *of == rank);
    let mut starts: Vec<f64> = starts.map(|&(_, time_us)| time_us).collect();
    starts.sort_by(f64::total_cmp);
    let operations = trace.spans.iter().filter(|span| is_operation(span));
    let own = operations.filter(|span| trace.tracks[span.track].rank == rank);
    let cycle = |span: &Span| starts.partition_point(|&start| start <= span.begin_us);
    let busy: HashSet<usize> = own.map(cycle).filter(|&cycle| cycle > 0).collect();
    let count = starts.len();
    (count > 0).then(|| Cycles { count, idle: count - busy.len() })
}

/// One negotiation of one tensor.
struct Round<'t> {
    span: &'t Span,
    /// Ready times of the ranks, in order.
    ticks: Vec<(f64, Rank)>,
}

impl Round<'_> {
    /// The last rank, and the time since which all others were ready; none if two ranks were last at the same
    /// time.
    fn last(&self) -> Option<(Rank, (f64, f64))> {
        let [.., (before_us, _), (last_us, rank)] = self.ticks[..] else { return None };
        (before_us < last_us).then_some((rank, (before_us, last_us)))
    }
}

/// Negotiations of tensors by all ranks, by track and time.
fn rounds(trace: &Trace) -> Vec<Round<'_>> {
    let spans = trace.spans.iter().filter(|span| {
        trace.tracks[span.track].rank.is_none()
            && span.category == Category::Tensor
            && span.name.starts_with(names::NEGOTIATE_PREFIX)
    });
    let mut rounds: Vec<_> = spans.map(|span| Round { span, ticks: Vec::new() }).collect();
    rounds.sort_by(|a, b| {
        (a.span.track.cmp(&b.span.track)).then(a.span.begin_us.total_cmp(&b.span.begin_us))
    });
    for tick in &trace.ticks {
        let begun =
            |round: &Round| (round.span.track, round.span.begin_us) <= (tick.track, tick.time_us);
        let Some(index) = rounds.partition_point(begun).checked_sub(1) else { continue };
        let Round { span, ticks } = &mut rounds[index];
        if span.track == tick.track && tick.time_us <= span.end_us {
            ticks.push((tick.time_us, tick.rank));
        }
    }
    for round in &mut rounds {
        round.ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    rounds
}

/// How often each rank was last, the most frequent first.
fn lasts<'r>(rounds: impl Iterator<Item = &'r Round<'r>>) -> Vec<Last> {
    let mut by_rank: BTreeMap<Rank, Vec<(f64, f64)>> = BTreeMap::new();
    for (rank, alone) in rounds.filter_map(Round::last) {
        by_rank.entry(rank).or_default().push(alone);
    }
    let last = |(rank, alone): (Rank, Vec<(f64, f64)>)| Last {
        rank,
        times: alone.len(),
        alone_us: Intervals::union(alone).length(),
    };
    let mut lasts: Vec<Last> = by_rank.into_iter().map(last).collect();
    lasts.sort_by(|a, b| b.times.cmp(&a.times).then(b.alone_us.total_cmp(&a.alone_us)));
    lasts
}

fn negotiation(rounds: &[Round]) -> Option<Negotiation> {
    let times: Vec<f64> = rounds.iter().map(|round| round.span.time_us()).collect();
    let ticked = || rounds.iter().filter(|round| round.ticks.len() > 1);
    let waiting = |round: &Round| round.ticks[round.ticks.len() - 1].0 - round.ticks[0].0;
    Some(Negotiation {
        time: Summary::of(&times)?,
        wall_us: Intervals::union(rounds.iter().map(|round| stretch(round.span))).length(),
        ticked: ticked().count(),
        waiting_us: ticked().map(waiting).sum(),
        last: lasts(rounds.iter()),
    })
}

fn tensors(trace: &Trace, rounds: &[Round]) -> Vec<Tensor> {
    let tensor = |rounds: &[Round]| {
        let times = || rounds.iter().map(|round| round.span.time_us());
        Tensor {
            name: trace.tracks[rounds[0].span.track].name.clone(),
            times: rounds.len(),
            mean_us: times().sum::<f64>() / rounds.len() as f64,
            max_us: times().fold(0.0, f64::max),
            last: lasts(rounds.iter()).first().map(|last| last.rank),
        }
    };
    let of_tensors = rounds.chunk_by(|a, b| a.span.track == b.span.track);
    let mut tensors: Vec<Tensor> = of_tensors.map(tensor).collect();
    tensors.sort_by(|a, b| b.mean_us.total_cmp(&a.mean_us));
    tensors
}

/// This project's files contain the number of tensors of each message; messages are equal on all ranks.
fn told_messages(trace: &Trace) -> Option<Messages> {
    let messages = trace.spans.iter().filter(|span| span.category == Category::Message);
    let rank = |span: &&Span| trace.tracks[span.track].rank;
    let first = messages.clone().filter_map(|span| rank(&span)).min()?;
    let own = messages.filter(|span| rank(span) == Some(first));
    of_sizes(own.map(|span| span.tensors.unwrap_or(0) as usize), true)
}

/// In Horovod's files tensors that are reduced at the same time form one message.
fn overlapping_messages(trace: &Trace) -> Option<Messages> {
    let mut reductions: Vec<&Span> = trace
        .spans
        .iter()
        .filter(|span| span.name.ends_with("_ALLREDUCE"))
        .filter(|span| !span.name.starts_with(names::NEGOTIATE_PREFIX))
        .collect();
    reductions.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us));
    let (mut sizes, mut end_us, mut members) = (Vec::new(), 0.0, HashSet::new());
    for span in reductions {
        if sizes.is_empty() || span.begin_us >= end_us || members.contains(&span.track) {
            sizes.push(0);
            members.clear();
            end_us = span.end_us;
        }
        *sizes.last_mut().expect("just pushed") += 1;
        members.insert(span.track);
        end_us = span.end_us.max(end_us);
    }
    of_sizes(sizes.into_iter(), false)
}

fn of_sizes(tensors: impl Iterator<Item = usize> + Clone, reported: bool) -> Option<Messages> {
    let count = tensors.clone().count();
    Some(Messages {
        count,
        tensors_min: tensors.clone().min()?,
        tensors_max: tensors.clone().max()?,
        tensors_mean: tensors.sum::<usize>() as f64 / count as f64,
        reported,
    })
}
