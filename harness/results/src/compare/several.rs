//! Several runs, each compared with the first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::needed::Tables;
use super::text::{CONFIDENCE, LISTED, turns};
use super::{CompareError, Compared, Comparison, Difference, Run, Verdict, compare_all};

/// Version of [`Comparisons`] as JSON. Version 1 was a single [`Comparison`]. Before version 3 each verdict held for itself.
const SCHEMA: u32 = 3;

/// Several runs, each compared with the first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparisons {
    /// Version of this structure.
    pub schema: u32,
    /// Where the first run is.
    pub first: String,
    /// The worst of the verdicts: slower, then cannot be said, then the same, then faster.
    pub verdict: Verdict,
    /// Each of the others against the first.
    pub pairs: Vec<Comparison>,
}

impl Comparisons {
    /// Compares runs with the first. A share `threshold` of the time does not matter.
    ///
    /// # Errors
    /// When a run has other workloads than the first, or no case in common with it.
    pub fn of(first: &Run, others: &[Run], threshold: f64) -> Result<Comparisons, CompareError> {
        Comparisons::with(first, others, threshold, &mut Tables::default())
    }

    pub(super) fn with(
        first: &Run,
        others: &[Run],
        threshold: f64,
        tables: &mut Tables,
    ) -> Result<Comparisons, CompareError> {
        let pairs = compare_all(first, &others.iter().collect::<Vec<_>>(), threshold, tables)?;
        let verdicts = pairs.iter().map(|pair| pair.verdict);
        let verdict = verdicts.min_by_key(|verdict| badness(*verdict)).unwrap_or(Verdict::Same);
        Ok(Comparisons { schema: SCHEMA, first: first.path.display().to_string(), verdict, pairs })
    }

    /// How many blocks of each case tell the threshold in all pairs, none if 10,000 do not, and the largest noise; none
    /// if it is not known.
    pub fn needed(&self) -> Option<(Option<usize>, f64)> {
        let needed = || self.pairs.iter().filter_map(|pair| pair.needed.as_ref());
        let noise = needed().map(|needed| needed.noise).max_by(f64::total_cmp)?;
        let blocks: Option<Vec<usize>> = needed().map(|needed| needed.blocks).collect();
        Some((blocks.and_then(|blocks| blocks.into_iter().max()), noise))
    }

    /// For a terminal; the most different cases, or all.
    pub fn text(&self, all: bool) -> String {
        if let [pair] = &self.pairs[..] {
            return pair.text(all);
        }
        let mut text = String::new();
        for (letter, path) in self.runs() {
            let _ = writeln!(text, "{letter}  {path}");
        }
        for (letter, pair) in self.lettered() {
            for Difference { what, first, second } in &pair.differences {
                let _ = writeln!(text, "differs in {letter}: {what}: {first} -> {second}");
            }
        }
        let lines = self.lines();
        let listed = if all { lines.len() } else { LISTED.min(lines.len()) };
        let width = lines[..listed].iter().map(|line| line.case.len()).max().unwrap_or(0);
        let _ = write!(text, "{:<width$}  {:>12}", "case", "A (ms)");
        for (letter, _) in self.lettered() {
            let _ = write!(text, "  {:>22}  {:<14}", format!("{letter} / A"), "");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        for line in &lines[..listed] {
            let _ = write!(text, "{:<width$}  {:>12.3}", line.case, line.first_us / 1e3);
            for cell in &line.others {
                let (ratio, verdict) = words(*cell);
                let _ = write!(text, "  {ratio:>22}  {verdict:<14}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        if listed < lines.len() {
            let _ = writeln!(text, "... and {} more; --all lists them", lines.len() - listed);
        }
        text + &self.conclusion(all)
    }

    /// A table for an issue or a page; of cases of one run only some are named, or all.
    pub fn markdown(&self, all: bool) -> String {
        if let [pair] = &self.pairs[..] {
            return pair.markdown(all);
        }
        let mut text = String::new();
        for (letter, path) in self.runs() {
            let _ = writeln!(text, "- {letter}: {path}");
        }
        text += "\n| case | A (ms) |";
        for (letter, _) in self.lettered() {
            let _ = write!(text, " {letter} / A | |");
        }
        text += "\n|---|---|";
        text += &"---|---|".repeat(self.pairs.len());
        text.push('\n');
        for line in self.lines() {
            let _ = write!(text, "| {} | {:.3} |", line.case, line.first_us / 1e3);
            for cell in line.others {
                let (ratio, verdict) = words(cell);
                let _ = write!(text, " {ratio} | {verdict} |");
            }
            text.push('\n');
        }
        text.push('\n');
        text + &self.conclusion(all)
    }

    /// The tally of each pair, what intervals are, and whether the runs took turns.
    fn conclusion(&self, all: bool) -> String {
        let mut text = String::new();
        for (letter, pair) in self.lettered() {
            for line in pair.tally(all).lines() {
                let _ = writeln!(text, "{letter} / A: {line}");
            }
        }
        text + CONFIDENCE + turns(self.pairs.iter().all(|pair| pair.interleaved))
    }

    /// Every run with its letter.
    fn runs(&self) -> impl Iterator<Item = (String, &str)> {
        let others = self.lettered().map(|(letter, pair)| (letter, pair.second.as_str()));
        [("A".to_string(), self.first.as_str())].into_iter().chain(others)
    }

    fn lettered(&self) -> impl Iterator<Item = (String, &Comparison)> {
        self.pairs.iter().enumerate().map(|(index, pair)| (letter(index + 1), pair))
    }

    /// Cases of the first run that any other has, those that differ most first.
    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
        for (index, pair) in self.pairs.iter().enumerate() {
            for case in &pair.cases {
                let line = lines.entry(&case.case).or_insert_with(|| Line {
                    case: &case.case,
                    first_us: case.first_us,
                    others: vec![None; self.pairs.len()],
                });
                line.others[index] = Some(case);
            }
        }
        let mut lines: Vec<Line> = lines.into_values().collect();
        lines.sort_by(|a, b| b.is_told().cmp(&a.is_told()).then(b.weight().total_cmp(&a.weight())));
        lines
    }
}

/// One case in all runs.
struct Line<'c> {
    case: &'c str,
    /// Median in the first run, in microseconds.
    first_us: f64,
    /// What the others say of it; none where a run lacks it.
    others: Vec<Option<&'c Compared>>,
}

impl Line<'_> {
    /// A run is slower or faster.
    fn is_told(&self) -> bool {
        let mut others = self.others.iter().flatten();
        others.any(|case| matches!(case.verdict, Verdict::Slower | Verdict::Faster))
    }

    /// The largest weight.
    fn weight(&self) -> f64 {
        self.others.iter().flatten().map(|case| case.weight.abs()).fold(0.0, f64::max)
    }
}

/// The ratio and the verdict of a cell.
fn words(cell: Option<&Compared>) -> (String, &'static str) {
    cell.map_or(("-".into(), ""), |case| (case.ratio_in_words(), case.verdict.name()))
}

/// A, B, ... Z, then R27, R28, ...
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
        _ => format!("R{}", index + 1),
    }
}

/// Slower is the worst, then what cannot be said.
fn badness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Slower => 0,
        Verdict::Unknown => 1,
        Verdict::Same => 2,
        Verdict::Faster => 3,
    }
}
