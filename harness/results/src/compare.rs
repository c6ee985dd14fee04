//! Compares runs of the same cases: each with the first.
//!
//! A case's times of both runs are its medians by block. Runs that took turns are compared round by round, by the
//! signed-rank test on the logarithms of ratios. Others are compared by the rank-sum test on logarithms of times, which
//! holds where blocks are independent; where both have three launches or more, the medians of launches stand for their
//! blocks. Rows without samples are compared by the intervals of their medians, which is wider. How the machine changed
//! from one run to the other no interval knows; where both repeated a base case, intervals are wider by the drift within
//! the runs.
//!
//! Each interval holds with 95 %. Verdicts hold together with 95 %, those of all cases and of all runs.

mod differences;
mod drift;
mod evidence;
mod needed;
mod read;
mod repeated;
mod several;
mod text;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::rank_tests::{Estimate, Laws, rank_sum};
use crate::statistics::median;
use drift::Drift;
use evidence::{Evidence, Question, answer};
use needed::Tables;

pub use needed::Needed;
pub use read::{ReadError, Run};
pub use repeated::Repeated;
pub use several::Comparisons;
pub use work::Work;

/// The times of one case in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The median of all samples, in microseconds.
    pub median_us: f64,
    /// Its interval.
    pub interval_us: Option<(f64, f64)>,
    /// Degrees of freedom of the interval; none if they are many.
    pub freedom: Option<f64>,
    /// Its blocks, ascending; empty without samples.
    pub blocks: Vec<Block>,
    /// What was done.
    pub work: Work,
}

/// The time of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Its number: a round has a block of every case.
    pub block: usize,
    /// The run of the program that measured it, from 1.
    pub launch: usize,
    /// The median of its samples, in microseconds.
    pub time_us: f64,
}

impl Times {
    /// Of one launch whose blocks took so long, in microseconds.
    pub fn of_values(times_us: &[f64]) -> Times {
        let block = |(block, &time_us): (usize, &f64)| Block { block, launch: 1, time_us };
        Times {
            median_us: median(times_us.to_vec()).unwrap_or_default(),
            blocks: times_us.iter().enumerate().map(block).collect(),
            ..Times::default()
        }
    }

    /// The median of the blocks of each launch, in microseconds.
    fn of_launches(&self) -> Vec<f64> {
        let mut launches: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for block in &self.blocks {
            launches.entry(block.launch).or_default().push(block.time_us);
        }
        launches.into_values().filter_map(median).collect()
    }
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

/// Time of the second run over that of the first, with an interval.
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
    /// By how much longer the second takes, as a share of the time of all cases in the first run; of parts of a step, as a share
    /// of the step.
    pub weight: f64,
    /// The second over the first; none if there are too few blocks for an interval.
    pub ratio: Option<Ratio>,
    /// The same with the interval that the verdict rests on: such intervals hold together with 95 %. None if there are too few
    /// blocks for it.
    pub joint: Option<Ratio>,
    /// What it says.
    pub verdict: Verdict,
}

/// All cases together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Overall {
    /// The middle of their ratios.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// See [`Compared::joint`].
    pub joint: Option<Ratio>,
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
    /// Cases in both: those that are slower or faster first, then by the size of their weight.
    pub cases: Vec<Compared>,
    /// Over all cases: the middle of their ratios; none for fewer than six.
    pub overall: Option<Overall>,
    /// How the machine drifted within the runs, as a share of the time; none without a base case that was repeated in both, or if
    /// they took turns. Intervals are wider by it.
    pub drift: Option<f64>,
    /// What the blocks tell, and how many would tell the threshold; none without blocks.
    pub needed: Option<Needed>,
    /// Cases in the first run only.
    pub only_first: Vec<String>,
    /// Cases in the second run only.
    pub only_second: Vec<String>,
}

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
    /// They trained models of the same name with other gradients.
    #[error(
        "the runs are of different workloads: the gradients of {workload} differ, their digest is {first} in the first run and \
         {second} in the second; compare runs of one workload"
    )]
    Gradients {
        /// The model.
        workload: String,
        /// The first run's digest.
        first: String,
        /// The second's.
        second: String,
    },
    /// A case of the same name did other work.
    #[error(
        "the runs are of different workloads: in {case}, {what} is {first} in the first run and {second} in the second; \
         compare runs of one workload"
    )]
    Work {
        /// The case.
        case: String,
        /// The column of the rows.
        what: &'static str,
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
    let mut all = compare_all(first, &[second], threshold, &mut Tables::default())?;
    Ok(all.remove(0))
}

/// Compares runs with the first; all verdicts hold together.
fn compare_all(
    first: &Run,
    others: &[&Run],
    threshold: f64,
    tables: &mut Tables,
) -> Result<Vec<Comparison>, CompareError> {
    let pairs = others.iter().map(|second| Pair::of(first, second, &mut tables.laws));
    let mut pairs: Vec<Pair> = pairs.collect::<Result<_, _>>()?;
    let (mut cases, mut together) = (Vec::new(), Vec::new());
    for pair in &mut pairs {
        cases.extend(pair.cases.iter_mut().filter_map(|case| case.question.as_mut()));
        together.extend(pair.together.as_mut());
    }
    let error = answer(cases, together, threshold);
    Ok(pairs.into_iter().map(|pair| pair.compared(error, threshold, tables)).collect())
}

/// Two runs whose questions are to be answered.
struct Pair<'r> {
    first: &'r Run,
    second: &'r Run,
    took_turns: bool,
    drift: Option<Drift>,
    cases: Vec<Case<'r>>,
    together: Option<Question>,
}

/// A case of two runs.
struct Case<'r> {
    name: &'r String,
    first: &'r Times,
    second: &'r Times,
    /// None if nothing is known of its noise.
    question: Option<Question>,
}

impl<'r> Pair<'r> {
    fn of(first: &'r Run, second: &'r Run, laws: &mut Laws) -> Result<Pair<'r>, CompareError> {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        if first.workloads.is_disjoint(&second.workloads) {
            let (first, second) = (list(&first.workloads), list(&second.workloads));
            return Err(CompareError::Workloads { first, second });
        }
        work::check(first, second)?;
        let took_turns = first.took_turns_with(second);
        let drift = if took_turns { None } else { Drift::of(first, second) };
        let both = first.cases.iter().filter_map(|(name, own)| {
            let other = second.cases.get(name)?;
            let evidence = Evidence::of_case(own, other, took_turns, laws);
            let question = evidence.map(|evidence| Question::new(evidence, drift));
            Some(Case { name, first: own, second: other, question })
        });
        let cases: Vec<Case> = both.collect();
        if cases.is_empty() {
            let any = |run: &Run| run.cases.keys().next().cloned().unwrap_or("none".into());
            return Err(CompareError::NothingInCommon { first: any(first), second: any(second) });
        }
        let logarithms =
            cases.iter().map(|case| (case.second.median_us / case.first.median_us).ln());
        let has_parts = first.has_parts || second.has_parts;
        let together = if has_parts { None } else { Evidence::of_all(logarithms.collect(), laws) };
        let together = together.map(|evidence| Question::new(evidence, drift));
        Ok(Pair { first, second, took_turns, drift, cases, together })
    }

    fn compared(self, error: f64, threshold: f64, tables: &mut Tables) -> Comparison {
        let Pair { first, second, took_turns, drift, cases, together } = self;
        let times: Vec<(&Times, &Times)> =
            cases.iter().map(|case| (case.first, case.second)).collect();
        let needed = Needed::of(&times, took_turns, error, threshold, tables);
        let times_us = cases.iter().map(|case| case.first.median_us);
        let all_us: f64 =
            if first.has_parts { times_us.fold(0.0, f64::max) } else { times_us.sum() };
        let mut cases: Vec<Compared> =
            cases.into_iter().map(|case| case.compared(all_us)).collect();
        let is_told = |case: &Compared| matches!(case.verdict, Verdict::Slower | Verdict::Faster);
        cases.sort_by(|a, b| {
            is_told(b).cmp(&is_told(a)).then(b.weight.abs().total_cmp(&a.weight.abs()))
        });
        let overall = together.and_then(|together| {
            let Question { joint, verdict, .. } = together;
            Some(Overall { ratio: together.alone()?, joint, verdict })
        });
        let only = |a: &Run, b: &Run| -> Vec<String> {
            a.cases.keys().filter(|case| !b.cases.contains_key(*case)).cloned().collect()
        };
        Comparison {
            second: second.path.display().to_string(),
            threshold,
            verdict: conclude(&cases, overall.as_ref().map(|overall| overall.verdict)),
            interleaved: took_turns,
            differences: first.differences(second),
            cases,
            overall,
            drift: drift.map(|drift| drift.deviation),
            needed,
            only_first: only(first, second),
            only_second: only(second, first),
        }
    }
}

impl Case<'_> {
    fn compared(self, all_us: f64) -> Compared {
        let Case { name, first, second, question } = self;
        Compared {
            case: name.clone(),
            first_us: first.median_us,
            second_us: second.median_us,
            weight: (second.median_us - first.median_us) / all_us,
            ratio: question.as_ref().and_then(Question::alone),
            joint: question.as_ref().and_then(|question| question.joint),
            verdict: question.map_or(Verdict::Unknown, |question| question.verdict),
        }
    }
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

#[cfg(test)]
mod tests;
