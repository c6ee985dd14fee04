//! A comparison as text, and as Markdown.

use std::fmt::Write as _;

use super::{Compared, Comparison, Difference, Ratio, Verdict};

/// As many cases are listed without `all`.
pub(super) const LISTED: usize = 20;

/// As many cases of one run only are listed without `all`.
const LISTED_OF_ONE: usize = 10;

/// What intervals and verdicts are, in a sentence.
pub(super) const CONFIDENCE: &str = "each interval holds with 95 %; verdicts take more, so that all of them hold together with 95 %\n";

impl Comparison {
    /// For a terminal; the most different cases, or all.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        for Difference { what, first, second } in &self.differences {
            let _ = writeln!(text, "differs: {what}: {first} -> {second}");
        }
        let listed = if all { self.cases.len() } else { LISTED.min(self.cases.len()) };
        let width = self.cases[..listed].iter().map(|case| case.case.len()).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "{:<width$}  {:>12}  {:>12}  {:>22}  {:>8}",
            "case", "first (ms)", "second (ms)", "second / first", "weight"
        );
        for case in &self.cases[..listed] {
            let Compared { case: name, first_us, second_us, verdict, .. } = case;
            let (first_ms, second_ms) = (first_us / 1e3, second_us / 1e3);
            let _ = writeln!(
                text,
                "{name:<width$}  {first_ms:>12.3}  {second_ms:>12.3}  {:>22}  {:>8}  {}",
                case.ratio_in_words(),
                case.weight_in_words(),
                verdict.name()
            );
        }
        if listed < self.cases.len() {
            let _ = writeln!(text, "... and {} more; --all lists them", self.cases.len() - listed);
        }
        text + &self.tally(all) + CONFIDENCE + turns(self.interleaved)
    }

    /// A table for an issue or a page; of cases of one run only some are named, or all.
    pub fn markdown(&self, all: bool) -> String {
        let mut text = String::from(
            "| case | first (ms) | second (ms) | second / first | weight | |\n|---|---|---|---|---|---|\n",
        );
        for case in &self.cases {
            let _ = writeln!(
                text,
                "| {} | {:.3} | {:.3} | {} | {} | {} |",
                case.case,
                case.first_us / 1e3,
                case.second_us / 1e3,
                case.ratio_in_words(),
                case.weight_in_words(),
                case.verdict.name()
            );
        }
        text.push('\n');
        text + &self.tally(all) + CONFIDENCE + turns(self.interleaved)
    }

    /// The tally, what is said of all together, what more blocks would tell, what was left out, what intervals are, and whether the
    /// runs took turns.
    pub fn conclusion(&self) -> String {
        self.tally(false) + CONFIDENCE + turns(self.interleaved)
    }

    /// The tally, what is said of all together, what more blocks would tell, and cases of one run only: some of them, or
    /// all.
    pub(super) fn tally(&self, all: bool) -> String {
        let count = |verdict| self.cases.iter().filter(|case| case.verdict == verdict).count();
        let mut text = format!(
            "{} cases: {} slower, {} faster, {} the same within {:.1} %, {} cannot be said\n",
            self.cases.len(),
            count(Verdict::Slower),
            count(Verdict::Faster),
            count(Verdict::Same),
            100.0 * self.threshold,
            count(Verdict::Unknown)
        );
        if let Some(overall) = &self.overall {
            let _ = writeln!(
                text,
                "all together: {} {}",
                in_words(overall.ratio),
                overall.verdict.name()
            );
        }
        if let Some(needed) = &self.needed {
            text += &needed.in_words(self.threshold);
        }
        if let Some(drift) = self.drift {
            let _ = writeln!(
                text,
                "the base cases drift by {:.1} % within the runs: intervals are wider by that, however many blocks there \
                 are",
                100.0 * drift
            );
        }
        for (which, only) in [("first", &self.only_first), ("second", &self.only_second)] {
            let listed = if all { only.len() } else { LISTED_OF_ONE.min(only.len()) };
            let names = only[..listed].join(", ");
            let are = if only.len() == 1 { "case is" } else { "cases are" };
            let more = match only.len() - listed {
                0 => String::new(),
                more => format!(", and {more} more; --all lists them"),
            };
            if !only.is_empty() {
                let _ =
                    writeln!(text, "{} {are} in the {which} run only: {names}{more}", only.len());
            }
        }
        text
    }
}

/// Whether the runs took turns, in a sentence.
pub(super) fn turns(interleaved: bool) -> &'static str {
    if interleaved {
        "the runs took turns, block by block: a change of the machine is in all of them\n"
    } else {
        "the runs did not take turns: a change of the machine between them counts as a difference\n"
    }
}

impl Compared {
    /// The ratio with its interval.
    pub fn ratio_in_words(&self) -> String {
        let few = || format!("{:.3} [too few blocks]", self.second_us / self.first_us);
        self.ratio.map_or_else(few, in_words)
    }

    /// The weight, as a percentage.
    fn weight_in_words(&self) -> String {
        format!("{:+.2} %", 100.0 * self.weight)
    }
}

fn in_words(Ratio { ratio, low, high }: Ratio) -> String {
    format!("{ratio:.3} [{low:.3}, {high:.3}]")
}
