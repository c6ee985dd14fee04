//! What a pair of runs tells of one ratio of times, for every probability of error.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::drift::Drift;
use super::{Ratio, Times, Verdict};
use crate::nested::{LAUNCHES_MIN, Level};
use crate::rank_tests::{Estimate, Laws, Ranked};
use crate::statistics::{CONFIDENCE, interval_ranks_at, median};

/// The error that the confidence of a single interval leaves.
pub(super) const ERROR: f64 = 1.0 - CONFIDENCE;

/// Of more cases, all together are not compared pair by pair.
const MOST_PAIRED: usize = 1000;

/// More degrees of freedom are as good as these.
const FREEDOM_MAX: f64 = 1e6;

/// Logarithms of ratios.
#[derive(Clone, Debug)]
pub(super) enum Evidence {
    /// By ranks.
    Ranks(Ranked),
    /// From two medians with their 95 % intervals, as logarithms.
    Medians {
        /// The first and the second.
        medians: [(f64, Estimate); 2],
        /// Of the intervals.
        freedom: f64,
    },
    /// The median of very many, ascending.
    Middle(Vec<f64>),
}

/// How the blocks of a case are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// Round by round: so many rounds.
    Pairs(usize),
    /// As independent samples of these sizes.
    Samples(usize, usize),
}

impl Evidence {
    /// Of a case. Runs that took turns are compared round by round.
    pub(super) fn of_case(
        first: &Times,
        second: &Times,
        took_turns: bool,
        laws: &mut Laws,
    ) -> Option<Evidence> {
        if !first.blocks.is_empty() && !second.blocks.is_empty() {
            return Some(Evidence::Ranks(if took_turns {
                laws.signed_rank(&rounds(first, second))
            } else {
                let (first, second, _) = units(first, second);
                laws.rank_sum(&logarithms(&second), &logarithms(&first))
            }));
        }
        let median = |times: &Times| {
            let (low, high) = times.interval_us?;
            let value = times.median_us.ln();
            Some((value, Estimate { value, low: low.ln(), high: high.ln() }))
        };
        let freedom = |times: &Times| times.freedom.unwrap_or(FREEDOM_MAX);
        Some(Evidence::Medians {
            medians: [median(first)?, median(second)?],
            freedom: freedom(first).min(freedom(second)),
        })
    }

    /// Of all cases together; none for fewer than six.
    pub(super) fn of_all(mut logarithms: Vec<f64>, laws: &mut Laws) -> Option<Evidence> {
        let evidence = if logarithms.len() <= MOST_PAIRED {
            Evidence::Ranks(laws.signed_rank(&logarithms))
        } else {
            logarithms.sort_unstable_by(f64::total_cmp);
            Evidence::Middle(logarithms)
        };
        evidence.at(ERROR).is_some().then_some(evidence)
    }

    fn at(&self, error: f64) -> Option<Estimate> {
        match self {
            Evidence::Ranks(ranked) => ranked.at(error),
            Evidence::Medians { medians: [(first, a), (second, b)], freedom } => {
                let value = second - first;
                let below = end([first_side(a), last_side(b)], *freedom, error);
                let above = end([last_side(a), first_side(b)], *freedom, error);
                Some(Estimate { value, low: value - above, high: value + below })
            }
            Evidence::Middle(sorted) => {
                let (low, high) = interval_ranks_at(sorted.len(), 0.5, error)?;
                let value = median(sorted.clone())?;
                Some(Estimate { value, low: sorted[low - 1], high: sorted[high - 1] })
            }
        }
    }
}

/// From the lower end to the value.
fn first_side(of: &Estimate) -> f64 {
    of.value - of.low
}

/// From the value to the upper end.
fn last_side(of: &Estimate) -> f64 {
    of.high - of.value
}

/// How far an end of a ratio's interval is from the ratio. With 95 % the ends of both intervals add up, which is wide; for
/// smaller errors they grow as Student's interval of a difference does.
fn end([one, other]: [f64; 2], freedom: f64, error: f64) -> f64 {
    let grown = student(freedom, error) / student(freedom, ERROR);
    (one + other).max(grown * one.hypot(other))
}

/// How many deviations a value is away at most, but for this probability.
pub(super) fn student(freedom: f64, error: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.clamp(1.0, FREEDOM_MAX))
        .map_or(f64::INFINITY, |law| law.inverse_cdf(1.0 - error / 2.0))
}

fn logarithms(times: &[f64]) -> Vec<f64> {
    times.iter().map(|time| time.ln()).collect()
}

/// The logarithm of the second time over the first, for each block that both have.
pub(super) fn rounds(first: &Times, second: &Times) -> Vec<f64> {
    let mut others = second.blocks.iter().peekable();
    let mut ratios = Vec::new();
    for one in &first.blocks {
        while others.next_if(|other| other.block < one.block).is_some() {}
        if let Some(other) = others.next_if(|other| other.block == one.block) {
            ratios.push((other.time_us / one.time_us).ln());
        }
    }
    ratios
}

/// Times that are independent, and of what: of launches where both runs have enough, else of blocks.
pub(super) fn units(first: &Times, second: &Times) -> (Vec<f64>, Vec<f64>, Level) {
    let (one, other) = (first.of_launches(), second.of_launches());
    if one.len().min(other.len()) >= LAUNCHES_MIN {
        return (one, other, Level::Launch);
    }
    let of_blocks = |times: &Times| times.blocks.iter().map(|block| block.time_us).collect();
    (of_blocks(first), of_blocks(second), Level::Block)
}

/// A ratio that is asked for: of a case, or of all together.
#[derive(Clone, Debug)]
pub(super) struct Question {
    evidence: Evidence,
    drift: Option<Drift>,
    /// The interval that the verdict rests on.
    pub(super) joint: Option<Ratio>,
    /// What it says.
    pub(super) verdict: Verdict,
}

impl Question {
    /// Not yet answered. Intervals are wider by the drift.
    pub(super) fn new(evidence: Evidence, drift: Option<Drift>) -> Question {
        Question { evidence, drift, joint: None, verdict: Verdict::Unknown }
    }

    /// The ratio with its 95 % interval alone.
    pub(super) fn alone(&self) -> Option<Ratio> {
        self.at(ERROR)
    }

    fn at(&self, error: f64) -> Option<Ratio> {
        let estimate = self.evidence.at(error)?;
        let wide = self.drift.map_or(estimate, |drift| drift.widened(estimate, error));
        Some(Ratio::of_logarithms(wide))
    }

    fn answer(&mut self, error: f64, threshold: f64) {
        self.joint = self.at(error);
        self.verdict = self.joint.map_or(Verdict::Unknown, |ratio| ratio.verdict(threshold));
    }
}

/// Answers all questions from intervals that hold together with 95 %, so that all answers are right together with 95 %.
///
/// Half of the error is for the ratios of all cases together and half for single cases; without the former it is all for
/// cases. Each half is shared equally among its questions (Bonferroni). Holm's step-down method would leave the
/// share of an answered question to the others only if each question had a single wrong answer: those that turn out to be
/// the same would leave the others, which are the extreme ones, too large an error. Returns the error of a single case once all of them have enough
/// blocks.
pub(super) fn answer<'q>(
    mut cases: Vec<&'q mut Question>,
    mut together: Vec<&'q mut Question>,
    threshold: f64,
) -> f64 {
    let all_cases = cases.len();
    // What could not be answered if it was the only question takes nothing from the others.
    cases.retain(|case| case.alone().is_some());
    let halves = if cases.is_empty() || together.is_empty() { 1.0 } else { 2.0 };
    let error = |questions: &[&mut Question]| ERROR / halves / questions.len().max(1) as f64;
    for questions in [&mut cases, &mut together] {
        let error = error(questions);
        questions.iter_mut().for_each(|question| question.answer(error, threshold));
    }
    let halves = if together.is_empty() { 1.0 } else { 2.0 };
    ERROR / halves / all_cases.max(1) as f64
}
