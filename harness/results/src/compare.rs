//! Compares runs of the same cases: each with the first.
//!
//! A case's times of both runs are its medians by block. Their ratio has a 95 % interval by the rank-sum test on
//! logarithms, which holds where blocks are independent; rows without samples are compared by the intervals of their
//! medians, which is wider. Neither interval knows how the machine changed from one run to the other.

mod read;
mod repeated;
mod several;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::rank_tests::{Estimate, rank_sum, signed_rank};
use crate::statistics::{Summary, median};

pub use read::{ReadError, Run};
pub use repeated::Repeated;
pub use several::Comparisons;

/// The times of one case in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The median of all samples, in microseconds.
    pub median_us: f64,
    /// Its interval.
    pub interval_us: Option<(f64, f64)>,
    /// The median of each block; empty without samples.
    pub blocks_us: Vec<f64>,
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second takes longer.
    Slower,
    /// The second takes less time.
    Faster,
    /// The difference is within the threshold.
    Same,
    /// The interval includes both.
    Unknown,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "the same",
            Verdict::Unknown => "cannot be said",
        }
    }
}

/// Time of the second run over that of the first, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Ratio {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

impl Ratio {
    /// Independent times over others, by the rank-sum test; none if they are too few, see [`rank_sum`].
    pub fn of(times: &[f64], others: &[f64]) -> Option<Ratio> {
        let logarithms = |times: &[f64]| times.iter().map(|time| time.ln()).collect::<Vec<f64>>();
        rank_sum(&logarithms(times), &logarithms(others)).map(Ratio::of_logarithms)
    }

    fn of_logarithms(Estimate { value, low, high }: Estimate) -> Ratio {
        Ratio { ratio: value.exp(), low: low.exp(), high: high.exp() }
    }

    /// What it says, if a share `threshold` does not matter.
    pub fn verdict(&self, threshold: f64) -> Verdict {
        let (least, most) = (1.0 / (1.0 + threshold), 1.0 + threshold);
        match self {
            Ratio { low, high, .. } if *low >= least && *high <= most => Verdict::Same,
            Ratio { low, .. } if *low > 1.0 => Verdict::Slower,
            Ratio { high, .. } if *high < 1.0 => Verdict::Faster,
            _ => Verdict::Unknown,
        }
    }
}

/// One case in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// Its name.
    pub case: String,
    /// Median in the first run, in microseconds.
    pub first_us: f64,
    /// Median in the second.
    pub second_us: f64,
    /// The second over the first; none if there are too few blocks for an interval.
    pub ratio: Option<Ratio>,
    /// What it says.
    pub verdict: Verdict,
}

/// A field of the provenance that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Difference {
    pub what: String,
    pub first: String,
    pub second: String,
}

/// Two runs compared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Where the second run is.
    pub second: String,
    /// The share that does not matter.
    pub threshold: f64,
    /// What is said of both runs: slower if any case is, or all together are; else what is said of all together, or, of
    /// few cases, of each.
    pub verdict: Verdict,
    /// The runs took turns, block by block.
    pub interleaved: bool,
    /// What may be the reason.
    pub differences: Vec<Difference>,
    /// Cases in both, those that differ most first.
    pub cases: Vec<Compared>,
    /// Over all cases: the middle of their ratios; none for fewer than six.
    pub overall: Option<Ratio>,
    /// Cases in the first run only.
    pub only_first: Vec<String>,
    /// Cases in the second run only.
    pub only_second: Vec<String>,
}

/// Of more cases, all together are not compared pair by pair.
const MOST_PAIRED: usize = 1000;

/// Runs that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They trained different models.
    #[error(
        "the runs are of different workloads: {first} and {second}; compare runs of one workload"
    )]
    Workloads {
        /// The first run's.
        first: String,
        /// The second's.
        second: String,
    },
    /// No case is in both.
    #[error("no case is in both runs; the first has {first}, for example, and the second {second}")]
    NothingInCommon {
        /// A case of the first.
        first: String,
        /// A case of the second.
        second: String,
    },
}

/// Compares two runs. A share `threshold` of the time does not matter.
///
/// # Errors
/// When they have different workloads, or no case in common.
pub fn compare(first: &Run, second: &Run, threshold: f64) -> Result<Comparison, CompareError> {
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    if first.workloads.is_disjoint(&second.workloads) {
        let (first, second) = (list(&first.workloads), list(&second.workloads));
        return Err(CompareError::Workloads { first, second });
    }
    let (a, b) = (&first.cases, &second.cases);
    let only = |a: &BTreeMap<String, Times>, b: &BTreeMap<String, Times>| -> Vec<String> {
        a.keys().filter(|case| !b.contains_key(*case)).cloned().collect()
    };
    let both = a.iter().filter_map(|(case, times)| Some((case, times, b.get(case)?)));
    let mut cases: Vec<Compared> = both.map(|both| one(both, threshold)).collect();
    if cases.is_empty() {
        let any = |run: &Run| run.cases.keys().next().cloned().unwrap_or("none".into());
        return Err(CompareError::NothingInCommon { first: any(first), second: any(second) });
    }
    let logarithms: Vec<f64> =
        cases.iter().map(|case| (case.second_us / case.first_us).ln()).collect();
    let away = |case: &Compared| (case.second_us / case.first_us).ln().abs();
    cases.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(away(b).total_cmp(&away(a))));
    let overall = middle(&logarithms).map(Ratio::of_logarithms);
    Ok(Comparison {
        second: second.path.display().to_string(),
        threshold,
        verdict: conclude(&cases, overall.map(|ratio| ratio.verdict(threshold))),
        interleaved: first.took_turns_with(second),
        differences: first.differences(second),
        cases,
        overall,
        only_first: only(a, b),
        only_second: only(b, a),
    })
}

/// The middle of logarithms of ratios. Of very many the median, which takes no pairs.
fn middle(logarithms: &[f64]) -> Option<Estimate> {
    if logarithms.len() <= MOST_PAIRED {
        return signed_rank(logarithms);
    }
    let all = Summary::of(logarithms)?;
    all.p50_interval.map(|(low, high)| Estimate { value: all.p50, low, high })
}

fn one((case, first, second): (&String, &Times, &Times), threshold: f64) -> Compared {
    let ratio = ratio(first, second);
    Compared {
        case: case.clone(),
        first_us: first.median_us,
        second_us: second.median_us,
        ratio,
        verdict: ratio.map_or(Verdict::Unknown, |ratio| ratio.verdict(threshold)),
    }
}

fn ratio(first: &Times, second: &Times) -> Option<Ratio> {
    if !first.blocks_us.is_empty() && !second.blocks_us.is_empty() {
        return Ratio::of(&second.blocks_us, &first.blocks_us);
    }
    let ((first_low, first_high), (second_low, second_high)) =
        first.interval_us.zip(second.interval_us)?;
    Some(Ratio {
        ratio: second.median_us / first.median_us,
        low: second_low / first_high,
        high: second_high / first_low,
    })
}

/// What is said of both runs, see [`Comparison::verdict`]; `together` is of all cases.
fn conclude(cases: &[Compared], together: Option<Verdict>) -> Verdict {
    let any = |verdict| cases.iter().any(|case| case.verdict == verdict);
    match together {
        _ if any(Verdict::Slower) => Verdict::Slower,
        Some(verdict) => verdict,
        None if any(Verdict::Unknown) => Verdict::Unknown,
        None if any(Verdict::Faster) => Verdict::Faster,
        None => Verdict::Same,
    }
}

impl Times {
    /// From samples by block.
    pub fn of_blocks(blocks: &BTreeMap<usize, Vec<f64>>) -> Vec<f64> {
        blocks.values().filter_map(|samples| median(samples.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
