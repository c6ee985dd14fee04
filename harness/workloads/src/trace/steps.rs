//! The training steps of a timeline, and what their time was spent on.

use std::collections::{BTreeMap, HashMap};

use algorithms::topology::Rank;

use super::messages::own_rank;
use super::read::{Span, Trace};
use super::{Category, names};
use crate::workload::from_timeline::usual;

/// Beginning and end of whole steps in microseconds, of all ranks together.
///
/// A timeline of Horovod has no steps. One begins wherever that gradient is negotiated again which was negotiated first.
/// Tensors that are reduced less or more often than most are no gradients.
pub fn steps(trace: &Trace) -> Vec<(f64, f64)> {
    let mut of_ranks: BTreeMap<Option<Rank>, Vec<&Span>> = BTreeMap::new();
    for span in &trace.spans {
        if span.category == Category::Step && &*span.name == names::STEP {
            of_ranks.entry(trace.tracks[span.track].rank).or_default().push(span);
        }
    }
    let Some(count) = of_ranks.values().map(Vec::len).min() else { return of_negotiations(trace) };
    let step = |index: usize| {
        let own = || of_ranks.values().map(|steps| steps[index]);
        let begin_us = own().map(|step| step.begin_us).fold(f64::INFINITY, f64::min);
        let end_us = own().map(|step| step.end_us).fold(f64::NEG_INFINITY, f64::max);
        own().all(|step| !step.is_open).then_some((begin_us, end_us))
    };
    (0..count).filter_map(step).collect()
}

fn of_negotiations(trace: &Trace) -> Vec<(f64, f64)> {
    let mut begins_us: HashMap<usize, Vec<f64>> = HashMap::new();
    for span in trace.spans.iter().filter(|span| &*span.name == names::NEGOTIATE_ALLREDUCE) {
        begins_us.entry(span.track).or_default().push(span.begin_us);
    }
    begins_us.values_mut().for_each(|begins| begins.sort_by(f64::total_cmp));
    let usual = usual(begins_us.values().map(Vec::len));
    // In a file that is cut the first ones come once more than the others.
    let is_gradient =
        |begins: &&Vec<f64>| usual.is_some_and(|usual| (usual..=usual + 1).contains(&begins.len()));
    let first = begins_us.values().filter(is_gradient).min_by(|a, b| a[0].total_cmp(&b[0]));
    first.map_or(Vec::new(), |begins| begins.windows(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Without the first fifth of the steps, at least one, which warms up.
pub fn warm(steps: &[(f64, f64)]) -> &[(f64, f64)] {
    &steps[(steps.len() / 5).max(1).min(steps.len())..]
}

/// How long each activity lasted in each step, in microseconds: the time in which at least one tensor was in it. By the name
/// that the file has for it, on the rank that wrote the file, or of kolo's files on the first rank.
pub fn activities(trace: &Trace, steps: &[(f64, f64)]) -> BTreeMap<String, Vec<f64>> {
    let rank = own_rank(trace);
    let mut stretches: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for span in trace.spans.iter().filter(|span| trace.tracks[span.track].rank == rank) {
        if &*span.name != names::STEP {
            stretches.entry(&span.name).or_default().push((span.begin_us, span.end_us));
        }
    }
    let of_steps = |(name, stretches): (&str, Vec<(f64, f64)>)| {
        let joined = joined(stretches);
        (name.to_string(), steps.iter().map(|step| within(&joined, *step)).collect())
    };
    stretches.into_iter().map(of_steps).collect()
}

/// In order, and joined where they overlap or touch.
fn joined(mut stretches: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (begin_us, end_us) in stretches {
        match joined.last_mut() {
            Some(last) if begin_us <= last.1 => last.1 = last.1.max(end_us),
            _ => joined.push((begin_us, end_us)),
        }
    }
    joined
}

/// The length of the parts within a step.
fn within(joined: &[(f64, f64)], (begin_us, end_us): (f64, f64)) -> f64 {
    let first = joined.partition_point(|stretch| stretch.1 <= begin_us);
    let own = joined[first..].iter().take_while(|stretch| stretch.0 < end_us);
    own.map(|stretch| stretch.1.min(end_us) - stretch.0.max(begin_us)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::golden::{HOROVOD, KOLO, trace};
    use super::*;

    /// It begins with broadcasts, and has a metric after the first step.
    #[test]
    fn steps_of_horovods_files_begin_with_the_first_gradient() {
        let steps = steps(&trace(HOROVOD));
        assert_eq!(steps, [(98_337.0, 166_324.0), (166_324.0, 238_335.0), (238_335.0, 275_670.0)]);
        assert_eq!(warm(&steps).len(), 2);
        assert_eq!((warm(&steps[..1]).len(), warm(&[]).len()), (0, 0));
    }

    /// The third one has no end.
    #[test]
    fn steps_of_kolos_files_are_those_that_end() {
        let steps = steps(&trace(KOLO));
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].0, 0.0);
    }

    #[test]
    fn time_in_an_activity_counts_once_and_in_its_step_alone() {
        let trace = trace(HOROVOD);
        let activities = activities(&trace, &steps(&trace));
        // From 106450 to 114352 of both tensors together, from 122547 to 138327, and the metric's.
        let expected = 7902.0 + 15_780.0 + 7952.0;
        assert_eq!(activities["MPI_ALLREDUCE"][0], expected);
        assert_eq!(activities["INIT_FUSION_BUFFER"], [71.0, 0.0, 0.0]);
        // Before the first step.
        assert_eq!(activities["MPI_BCAST"], [0.0; 3]);
        assert_eq!(within(&[(0.0, 10.0), (20.0, 30.0)], (5.0, 25.0)), 10.0);
    }
}
