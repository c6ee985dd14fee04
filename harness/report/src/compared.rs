//! Several runs beside each other: cases that not all of them have, and how the times of each differ from the first.

use std::collections::BTreeSet;

use results::compare::{Comparison, compare};
use serde::Serialize;

use crate::run::Run;
use crate::tables::{self, Column, Table};
use crate::words::sentence;

/// A difference of the time that does not matter, as in `kolo compare`.
const THRESHOLD: f64 = 0.02;

/// The most cases of one run alone that are named.
const MOST_NAMED: usize = 1000;

/// Several runs beside each other.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Cases that one run has and another has not, by run.
    pub only: Vec<Only>,
    /// What `kolo compare` says of each run against the first.
    pub pairs: Vec<Pair>,
}

/// Cases of one run that another lacks.
#[derive(Debug, Serialize)]
pub struct Only {
    /// The run.
    pub run: String,
    /// Its cases, at most the first thousand.
    pub cases: Vec<String>,
    /// How many it has.
    pub count: usize,
}

/// A run against the first.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// The run that is compared with the first.
    pub run: String,
    /// The comparison; none if no time of both can be compared.
    pub times: Option<Times>,
    /// Why not.
    pub why_not: String,
}

/// The comparison of two runs.
#[derive(Debug, Serialize)]
pub struct Times {
    /// The verdict and the tally.
    pub words: Vec<String>,
    /// What may be the reason: fact, first value, second value.
    pub differences: Vec<[String; 3]>,
    /// Case, times in milliseconds, ratio with interval, verdict.
    pub cases: Table,
}

/// Nothing of a single run.
pub fn of(runs: &[Run]) -> Option<Compared> {
    let [first, others @ ..] = runs else { return None };
    others.first()?;
    let cases: Vec<BTreeSet<String>> = runs.iter().map(Run::cases).collect();
    let everywhere = |case: &&String| cases.iter().all(|cases| cases.contains(*case));
    let only = runs.iter().zip(&cases).map(|(run, own)| {
        let mut alone: Vec<String> = own.iter().filter(|case| !everywhere(case)).cloned().collect();
        let count = alone.len();
        alone.truncate(MOST_NAMED);
        Only { run: run.path.display().to_string(), cases: alone, count }
    });
    let only = only.filter(|only| only.count > 0).collect();
    let pair = |second: &Run| {
        let times = times(first, second);
        let why_not = times.as_ref().err().cloned().unwrap_or_default();
        Pair { run: second.path.display().to_string(), times: times.ok(), why_not }
    };
    let mut pairs: Vec<Pair> = others.iter().map(pair).collect();
    let times = pairs.iter_mut().filter_map(|pair| pair.times.as_mut());
    tables::split(times.map(|times| &mut times.cases).collect(), "compared");
    Some(Compared { only, pairs })
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
        vec![
            case.case.clone(),
            ms(case.first_us),
            ms(case.second_us),
            case.ratio_in_words(),
            case.verdict.name().into(),
        ]
    };
    let column = |(header, is_number): (&str, bool)| Column {
        header: header.into(),
        is_number,
        ..Column::default()
    };
    let columns = [
        ("case", false),
        ("first (ms)", true),
        ("second (ms)", true),
        ("second / first", true),
        ("second is", false),
    ];
    let cases = Table {
        caption: format!("Times of {} beside the first", second.path.display()),
        columns: columns.map(column).into(),
        rows: comparison.cases.iter().map(case).collect(),
        file: "what kolo compare --all prints".into(),
        ..Table::default()
    };
    Ok(Times {
        words: [said].into_iter().chain(comparison.conclusion().lines().map(sentence)).collect(),
        differences: comparison
            .differences
            .iter()
            .map(|it| [it.what.clone(), it.first.clone(), it.second.clone()])
            .collect(),
        cases,
    })
}
