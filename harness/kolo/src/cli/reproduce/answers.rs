//! Whether a second run of `kolo tune` gives the answer of the first.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::Result;
use results::units::mib;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tune::answer::Verdict;
use tune::space::CACHED;

use crate::cli::usage;

/// The file that `kolo tune` writes.
pub const FILE: &str = "tune.json";

/// Horovod's default since v0.21, with which verdicts compare unless variables or options say otherwise. Older files do
/// not name it.
const DEFAULT: (usize, f64) = (128 << 20, 1.0);

/// The parts of the answer that are compared.
#[derive(Clone, Debug, Deserialize)]
struct Tuning {
    topology: String,
    verdict: Verdict,
    /// None if nothing is recommended.
    recommended: Option<Setting>,
    /// What the verdict compares with, as `compared` calls it; older files have none.
    reference: Option<String>,
    compared: Vec<Compared>,
    #[serde(default)]
    expected_within_margin: Vec<Setting>,
    #[serde(default)]
    smaller: Vec<Tuning>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Setting {
    control_plane: String,
    algorithm: String,
    fusion_threshold_bytes: usize,
    cycle_time_ms: f64,
    #[serde(default)]
    compression: String,
    #[serde(default)]
    num_groups: usize,
}

#[derive(Clone, Debug, Deserialize)]
struct Compared {
    setting: Setting,
    name: String,
    ratio: Interval,
    /// Older files have none.
    promised: Option<Interval>,
    #[serde(default)]
    tied: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Interval {
    /// Older promises have none.
    ratio: Option<f64>,
    low: f64,
    high: f64,
}

/// How the advice of a second run relates to that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// The same setting, or both keep what they compared with.
    Same,
    /// Another one, which the first run could not distinguish from its own, or found within the margin.
    AsGood,
    /// Another one.
    Another,
}

/// Time saved, as a share of the step's time without the change, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Saving {
    /// Nearest.
    saved: f64,
    /// Least.
    low: f64,
    /// Most.
    high: f64,
}

/// The answers of two runs for a topology.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Answered {
    /// Nodes x ranks per node, or the ranks of each node.
    topology: String,
    /// The first run's advice; null if it recommends nothing.
    first: Option<String>,
    /// The second run's.
    second: Option<String>,
    /// How they relate; null if one of them recommends nothing.
    advice: Option<Advice>,
    /// What the time saved is relative to; null if nothing was promised.
    reference: Option<String>,
    /// What the first run promised.
    promised: Option<Saving>,
    /// What the second run found.
    found: Option<Saving>,
    /// Whether that is within the promised interval.
    is_within: Option<bool>,
    /// Whether both intervals overlap.
    overlap: Option<bool>,
}

impl Tuning {
    fn read(folder: &Path) -> Result<Tuning> {
        let path = folder.join(FILE);
        let refuse = |why: String| {
            usage(format!("{}: {why}; expected what `kolo tune` writes", path.display()))
        };
        let text = fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
    }

    /// Of all topologies, the largest last.
    fn all(&self) -> impl Iterator<Item = &Tuning> {
        self.smaller.iter().chain([self])
    }

    /// What the verdict compares with.
    fn reference(&self) -> Option<&Compared> {
        let is_default =
            |setting: &Setting| (setting.fusion_threshold_bytes, setting.cycle_time_ms) == DEFAULT;
        self.compared.iter().find(|other| match &self.reference {
            Some(name) => other.name == *name,
            None => is_default(&other.setting),
        })
    }

    /// The setting to use after this run.
    fn advised(&self) -> Option<&Setting> {
        let recommended = self.recommended.as_ref();
        match self.verdict {
            Verdict::Unknown => None,
            Verdict::Keep => self.reference().map(|kept| &kept.setting).or(recommended),
            Verdict::Change | Verdict::Lean => recommended,
        }
    }

    fn in_words(&self) -> Option<String> {
        let advised = self.advised()?;
        let verb = match self.verdict {
            Verdict::Keep => "keep",
            Verdict::Lean => "probably use",
            _ => "use",
        };
        Some(format!("{verb} {advised}"))
    }

    /// A setting is as good as the recommended one, as far as this run can tell.
    fn finds_as_good(&self, setting: &Setting) -> bool {
        let tied = self.compared.iter().filter(|other| other.tied).map(|other| &other.setting);
        let near = self.expected_within_margin.iter();
        self.recommended.iter().chain(tied).chain(near).any(|good| good == setting)
    }

    /// What the recommended setting saves.
    fn saving(&self) -> Option<Saving> {
        let Compared { ratio, promised, .. } = self.reference()?;
        let promised = promised.as_ref().unwrap_or(ratio);
        let nearest = promised.ratio.or(ratio.ratio)?;
        let [saved, low, high] =
            [nearest, promised.low, promised.high].map(|ratio| 1.0 - 1.0 / ratio);
        Some(Saving { saved, low, high })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.control_plane == CACHED { "cache on" } else { "cache off" };
        let (threshold, ms) = (mib(self.fusion_threshold_bytes), self.cycle_time_ms);
        write!(f, "{threshold} MiB, {ms} ms, {cache}, {}", self.algorithm)?;
        if !matches!(self.compression.as_str(), "" | "none") {
            write!(f, ", {}", self.compression)?;
        }
        match self.num_groups {
            0 => Ok(()),
            count => write!(f, ", {count} groups"),
        }
    }
}

impl Answered {
    /// The answers of two folders for each topology that both have, the largest last.
    ///
    /// # Errors
    /// When a file is not what `kolo tune` writes.
    pub fn read(first: &Path, second: &Path) -> Result<Vec<Answered>> {
        let (first, second) = (Tuning::read(first)?, Tuning::read(second)?);
        let of_both = first.all().filter_map(|before| {
            let after = second.all().find(|after| after.topology == before.topology)?;
            Some(Answered::of(before, after))
        });
        Ok(of_both.collect())
    }

    fn of(first: &Tuning, second: &Tuning) -> Answered {
        let advised = first.advised().zip(second.advised());
        let keep = [first, second].map(|run| run.verdict == Verdict::Keep) == [true, true];
        let advice = advised.map(|(before, after)| {
            if keep || before == after {
                Advice::Same
            } else if first.finds_as_good(after) {
                Advice::AsGood
            } else {
                Advice::Another
            }
        });
        // Of two runs that keep what they have, nothing was promised.
        let is_promised = advice.is_some() && !keep;
        let savings = first.saving().zip(second.saving()).filter(|_| is_promised);
        Answered {
            topology: first.topology.clone(),
            first: first.in_words(),
            second: second.in_words(),
            advice,
            reference: savings.and(first.reference()).map(|reference| reference.name.clone()),
            promised: savings.map(|(promised, _)| promised),
            found: savings.map(|(_, found)| found),
            is_within: savings
                .map(|(promised, found)| (promised.low..=promised.high).contains(&found.saved)),
            overlap: savings
                .map(|(promised, found)| promised.low <= found.high && found.low <= promised.high),
        }
    }

    /// Whether the second run confirms the first; none if one of them recommends nothing.
    pub fn agrees(&self) -> Option<bool> {
        self.advice.map(|advice| advice != Advice::Another && self.overlap != Some(false))
    }
}

impl fmt::Display for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [saved, low, high] = [self.saved, self.low, self.high].map(|share| 100.0 * share);
        write!(f, "{saved:.1} % [{low:.1}, {high:.1}]")
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = "nothing is recommended".to_string();
        let [first, second] =
            [&self.first, &self.second].map(|advice| advice.as_ref().unwrap_or(&nothing));
        let how = match self.advice {
            None => "cannot be compared",
            Some(Advice::Same) => "the same recommendation",
            Some(Advice::AsGood) => "another recommendation, which the first run found as good",
            Some(Advice::Another) => "another recommendation",
        };
        let mut text = format!("{}: {how}\n  before: {first}\n  now:    {second}", self.topology);
        if let (Some(reference), Some(promised), Some(found)) =
            (&self.reference, self.promised, self.found)
        {
            let where_it_is = match (self.is_within, self.overlap) {
                (Some(true), _) => "within the promised interval",
                (_, Some(true)) => "outside of the promised interval, which its own overlaps",
                _ => "outside of the promised interval, which its own does not overlap",
            };
            write!(
                text,
                "\n  saved against {reference}: promised {promised}, now {found}: {where_it_is}"
            )?;
        }
        f.write_str(&text)
    }
}

/// Whether a second run confirms the first, over all topologies, and that in words.
pub fn verdict(answers: &[Answered]) -> (Option<bool>, String) {
    let agree: Vec<bool> = answers.iter().filter_map(Answered::agrees).collect();
    match agree.as_slice() {
        [] => (None, "one of the runs recommends nothing, so nothing can be said".into()),
        agree if agree.iter().all(|&is| is) => (Some(true), "reproduced".into()),
        _ => (
            Some(false),
            "not reproduced: the recommendation is another, or the intervals of what it saves do not overlap".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(mib: usize, ms: f64) -> String {
        format!(
            r#"{{"control_plane": "bitvector", "algorithm": "ring", "fusion_threshold_bytes": {}, "cycle_time_ms": {ms},
               "compression": "none", "num_groups": 0, "step_ms": 1.5}}"#,
            mib << 20
        )
    }

    /// An answer that recommends so many MiB, and what the default takes in parts of it.
    fn answer(verdict: &str, threshold: usize, [ratio, low, high]: [f64; 3]) -> Tuning {
        let interval = format!(r#"{{"ratio": {ratio}, "low": {low}, "high": {high}}}"#);
        let text = format!(
            r#"{{"topology": "4x1", "verdict": "{verdict}", "recommended": {}, "reference": "default", "compared": [
                {{"setting": {}, "name": "default", "ratio": {interval}, "promised": {interval}, "tied": false}},
                {{"setting": {}, "name": "close", "ratio": {interval}, "promised": {interval}, "tied": true}}],
              "expected_within_margin": [{}]}}"#,
            if verdict == "unknown" { "null".into() } else { setting(threshold, 1.0) },
            setting(64, 5.0),
            setting(2, 1.0),
            setting(4, 1.0),
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_same_recommendation_and_an_interval_that_holds_are_reproduced() {
        let first = answer("change", 1, [1.25, 1.2, 1.3]);
        let again = Answered::of(&first, &answer("change", 1, [1.28, 1.22, 1.4]));
        assert_eq!((again.advice, again.is_within), (Some(Advice::Same), Some(true)));
        let expected = "4x1: the same recommendation\n  before: use 1 MiB, 1 ms, cache on, ring\n  now:    use 1 MiB, 1 ms, \
                        cache on, ring\n  saved against default: promised 20.0 % [16.7, 23.1], now 21.9 % [18.0, 28.6]: \
                        within the promised interval";
        assert_eq!(again.to_string(), expected);
        assert_eq!(verdict(&[again]), (Some(true), "reproduced".into()));
    }

    #[test]
    fn intervals_that_do_not_overlap_are_not_reproduced() {
        let first = answer("change", 1, [1.25, 1.2, 1.3]);
        let apart = Answered::of(&first, &answer("change", 1, [1.5, 1.4, 1.6]));
        assert_eq!((apart.advice, apart.overlap), (Some(Advice::Same), Some(false)));
        assert!(apart.to_string().ends_with("which its own does not overlap"), "{apart}");
        let beside = Answered::of(&first, &answer("change", 1, [1.35, 1.25, 1.45]));
        assert_eq!((beside.is_within, beside.agrees()), (Some(false), Some(true)));
        assert!(beside.to_string().ends_with("interval, which its own overlaps"), "{beside}");
        let (is_reproduced, why) = verdict(&[beside, apart]);
        assert_eq!(is_reproduced, Some(false));
        assert!(why.starts_with("not reproduced: "), "{why}");
    }

    #[test]
    fn settings_that_the_first_run_found_as_good_count_as_the_same() {
        let first = answer("change", 1, [1.25, 1.2, 1.3]);
        for (mib, advice, agrees) in
            [(2, Advice::AsGood, true), (4, Advice::AsGood, true), (8, Advice::Another, false)]
        {
            let again = Answered::of(&first, &answer("lean", mib, [1.25, 0.99, 1.4]));
            assert_eq!((again.advice, again.agrees()), (Some(advice), Some(agrees)), "{mib} MiB");
            assert!(again.second.unwrap().starts_with(&format!("probably use {mib} MiB")));
        }
    }

    /// Whichever candidate did not pay, both runs advise the same.
    #[test]
    fn two_runs_that_keep_the_default_agree() {
        let first = answer("keep", 1, [1.01, 1.0, 1.02]);
        let again = Answered::of(&first, &answer("keep", 8, [0.9, 0.8, 0.95]));
        assert_eq!((again.advice, again.promised), (Some(Advice::Same), None));
        assert!(
            again.to_string().ends_with("now:    keep 64 MiB, 5 ms, cache on, ring"),
            "{again}"
        );
        let changed = Answered::of(&first, &answer("change", 8, [1.3, 1.2, 1.4]));
        assert_eq!((changed.advice, changed.agrees()), (Some(Advice::Another), Some(false)));
    }

    #[test]
    fn a_run_that_recommends_nothing_tells_nothing() {
        let (some, none) = (answer("change", 1, [1.25, 1.2, 1.3]), answer("unknown", 1, [1.0; 3]));
        for (first, second) in [(&some, &none), (&none, &some), (&none, &none)] {
            let answered = Answered::of(first, second);
            assert_eq!((answered.agrees(), answered.promised), (None, None));
            assert!(answered.to_string().contains("nothing is recommended"), "{answered}");
            assert_eq!(verdict(&[answered]).0, None);
        }
    }

    /// Files without the name of the reference compare with Horovod's default.
    #[test]
    fn answers_of_older_versions_are_read() {
        let folder =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/tune/four-nodes");
        let answers = Answered::read(Path::new(folder), Path::new(folder)).unwrap();
        assert_eq!(answers.len(), 1);
        let reference = answers[0].reference.as_deref();
        assert_eq!(reference, Some("128 MiB, 1 ms, cache on"));
        assert!(answers[0].to_string().contains("promised 30.9 % [24.7, 36.6], now 30.9 %"));
    }
}
