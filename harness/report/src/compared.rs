//! Several runs beside each other: cases that not all of them have, and, of two, how their times differ.

use std::collections::BTreeSet;

use results::compare::{Comparison, compare};
use serde::Serialize;

use crate::run::Run;
use crate::words::sentence;

/// A difference of the time that does not matter, as in `kolo compare`.
const THRESHOLD: f64 = 0.02;

/// Several runs beside each other.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Cases that one run has and another has not, by run.
    pub only: Vec<Only>,
    /// What `kolo compare` says of two runs; none of more, or if no time of both can be compared.
    pub times: Option<Times>,
    /// Why not.
    pub why_not: String,
}

/// Cases of one run that another lacks.
#[derive(Debug, Serialize)]
pub struct Only {
    /// The run.
    pub run: String,
    /// Its cases.
    pub cases: Vec<String>,
}

/// The comparison of two runs.
#[derive(Debug, Serialize)]
pub struct Times {
    /// The verdict and the tally.
    pub words: Vec<String>,
    /// What may be the reason: fact, first value, second value.
    pub differences: Vec<[String; 3]>,
    /// Case, times in milliseconds, ratio with interval, verdict.
    pub cases: Vec<[String; 5]>,
}

/// Nothing of a single run.
pub fn of(runs: &[Run]) -> Option<Compared> {
    let [first, others @ ..] = runs else { return None };
    let second = others.first()?;
    let cases: Vec<BTreeSet<String>> = runs.iter().map(Run::cases).collect();
    let everywhere = |case: &&String| cases.iter().all(|cases| cases.contains(*case));
    let only = runs.iter().zip(&cases).map(|(run, own)| Only {
        run: run.path.display().to_string(),
        cases: own.iter().filter(|case| !everywhere(case)).cloned().collect(),
    });
    let only = only.filter(|only| !only.cases.is_empty()).collect();
    let times = match others.len() {
        1 => times(first, second),
        _ => Err("times are compared of two runs only".to_string()),
    };
    let why_not = times.as_ref().err().cloned().unwrap_or_default();
    Some(Compared { only, times: times.ok(), why_not })
}

fn times(first: &Run, second: &Run) -> Result<Times, String> {
    let read =
        |run: &Run| results::compare::Run::read(&run.path).map_err(|error| error.to_string());
    let compared = compare(&read(first)?, &read(second)?, THRESHOLD);
    let comparison: Comparison = compared.map_err(|error| error.to_string())?;
    let verdict = comparison.verdict.name();
    let said = format!("{} against {}: {verdict}.", second.path.display(), first.path.display());
    let case = |case: &results::compare::Compared| {
        let ms = |us: f64| format!("{:.3}", us / 1e3);
        let times = [ms(case.first_us), ms(case.second_us)];
        let [first_ms, second_ms] = times;
        [case.case.clone(), first_ms, second_ms, case.ratio_in_words(), case.verdict.name().into()]
    };
    Ok(Times {
        words: [said].into_iter().chain(comparison.conclusion().lines().map(sentence)).collect(),
        differences: comparison
            .differences
            .iter()
            .map(|it| [it.what.clone(), it.first.clone(), it.second.clone()])
            .collect(),
        cases: comparison.cases.iter().map(case).collect(),
    })
}
