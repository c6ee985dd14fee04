//! A comparison as text, and as Markdown.

use std::fmt::Write as _;

use super::{Compared, Comparison, Difference, Ratio, Verdict};

/// As many cases are listed without `all`.
pub(super) const LISTED: usize = 20;

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
            "{:<width$}  {:>12}  {:>12}  {:>22}",
            "case", "first (ms)", "second (ms)", "second / first"
        );
        for case in &self.cases[..listed] {
            let Compared { case: name, first_us, second_us, verdict, .. } = case;
            let (first_ms, second_ms) = (first_us / 1e3, second_us / 1e3);
            let _ = writeln!(
                text,
                "{name:<width$}  {first_ms:>12.3}  {second_ms:>12.3}  {:>22}  {}",
                case.ratio_in_words(),
                verdict.name()
            );
        }
        if listed < self.cases.len() {
            let _ = writeln!(text, "... and {} more; --all lists them", self.cases.len() - listed);
        }
        text + &self.conclusion()
    }

    /// A table for an issue or a page.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| case | first (ms) | second (ms) | second / first | |\n|---|---|---|---|---|\n",
        );
        for case in &self.cases {
            let _ = writeln!(
                text,
                "| {} | {:.3} | {:.3} | {} | {} |",
                case.case,
                case.first_us / 1e3,
                case.second_us / 1e3,
                case.ratio_in_words(),
                case.verdict.name()
            );
        }
        text.push('\n');
        text + &self.conclusion()
    }

    /// The tally, what is said of all together, what was left out, and whether the runs took turns.
    pub fn conclusion(&self) -> String {
        self.tally() + turns(self.interleaved)
    }

    /// The tally, what is said of all together, and what was left out.
    pub(super) fn tally(&self) -> String {
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
        if let Some(overall) = self.overall {
            let verdict = overall.verdict(self.threshold);
            let _ = writeln!(text, "all together: {} {}", in_words(overall), verdict.name());
        }
        for (which, only) in [("first", &self.only_first), ("second", &self.only_second)] {
            if let Some(any) = only.first() {
                let _ = writeln!(
                    text,
                    "{} cases are in the {which} run only, such as {any}",
                    only.len()
                );
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
}

fn in_words(Ratio { ratio, low, high }: Ratio) -> String {
    format!("{ratio:.3} [{low:.3}, {high:.3}]")
}
