//! Blocks that the machine measured at another speed than most are measured again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use super::{Course, Measured, Sweep};
use crate::config::Measure;
use crate::steadiness::Unsteady;
use crate::warmup::{FirstSteps, TooShort, Warmup};
use results::block::Outline;
use results::error::RecordError;
use results::record::Key;
use results::row::{Row, StepRow};

/// Blocks at another speed, and what became of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// How the machine changed its speed.
    pub unsteady: Unsteady,
    /// How many of them were measured again.
    pub measured: usize,
    /// The time that the others take, and that was left, if that did not suffice for all.
    pub short: Option<[Duration; 2]>,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Again { unsteady, measured, short } = self;
        let count = unsteady.disturbed.len();
        let others = short.map_or(String::new(), |[needed, left]| {
            let (needed, left) = (needed.as_secs_f64().ceil(), left.as_secs_f64());
            format!("they take {needed:.0} s, and {left:.0} s are left")
        });
        match (measured, short) {
            (0, Some(_)) => {
                write!(
                    f,
                    "{count} blocks at another speed than most are not measured again: {others}"
                )
            }
            (_, Some(_)) => write!(
                f,
                "{unsteady}; {measured} of its {count} blocks at another speed than most are in aside.csv, and were measured \
                 again; the others are not: {others}"
            ),
            (_, None) => write!(
                f,
                "{unsteady}; its {count} blocks at another speed than most are in aside.csv, and were measured again"
            ),
        }
    }
}

impl Sweep<'_> {
    /// Sets aside those blocks of this launch, and measures them again, as many as there is time for. Also returns why it
    /// stopped before the last one, if so.
    pub(super) fn measure_again(
        &mut self,
        course: &Course,
    ) -> Result<(Option<Again>, Option<String>), RecordError> {
        let names: Vec<String> =
            self.settings.iter().map(|setting| setting.key.case.clone()).collect();
        // A case that failed keeps its row, and one that cannot run here keeps its blocks.
        let is_to_look_at = |index: usize| {
            let has_failed = self.done[index].is_some_and(|done| done.right_us.is_none());
            self.runs_here(index) && !has_failed
        };
        let of_launch = |index| match is_to_look_at(index) {
            true => self.outlines(index, self.rounds.clone()),
            false => Ok(Vec::new()),
        };
        let outlines: Vec<Vec<Outline>> =
            (0..names.len()).map(of_launch).collect::<Result<_, _>>()?;
        let blocks: Vec<Vec<&Outline>> =
            outlines.iter().map(|blocks| blocks.iter().collect()).collect();
        let unsteady = Unsteady::of(&blocks).filter(|unsteady| !unsteady.disturbed.is_empty());
        let Some(unsteady) = unsteady else { return Ok((None, None)) };
        let indices: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let takes = |(name, _): &Key| {
            let index = indices[name.as_str()];
            let known = self.longest.get(&index).copied();
            known.unwrap_or_else(|| self.plan.estimate(&self.plan.cases[index]))
        };
        let needed = |blocks: &[Key]| -> Duration { blocks.iter().map(takes).sum() };
        // Blocks that are set aside give their time back.
        let left = |blocks: &[Key]| {
            let took = |(name, block): &Key| {
                let own = &self.blocks[indices[name.as_str()]];
                own.iter().find(|measured| measured.block() == *block)?.took()
            };
            let back = blocks.iter().filter_map(took).sum();
            self.time_left(course, back).checked_sub(needed(blocks))
        };
        let count = first_that_fit(&unsteady.disturbed, |blocks| left(blocks).is_some());
        let (fitting, others) = unsteady.disturbed.split_at(count);
        let short =
            (!others.is_empty()).then(|| [needed(others), left(fitting).unwrap_or_default()]);
        let aside: BTreeSet<Key> = fitting.iter().cloned().collect();
        let mut again = Again { measured: 0, short, unsteady };
        if aside.is_empty() {
            return Ok((Some(again), None));
        }
        let reasons = self.set_aside(&aside)?;
        for block in self.rounds.clone() {
            for (order, index) in self.plan.order(block).into_iter().enumerate() {
                if !aside.contains(&(names[index].clone(), block)) {
                    continue;
                }
                if let Some(why) = self.is_to_stop(course, index) {
                    return Ok((Some(again), Some(why)));
                }
                self.take(index, block, order)?;
                again.measured += 1;
            }
        }
        for (name, reason) in reasons {
            if self.done[indices[name.as_str()]].is_none() {
                self.finish(indices[name.as_str()], usize::MAX, &reason)?;
            }
        }
        Ok((Some(again), None))
    }

    /// Sets all blocks of this launch aside, and lengthens the warm-up, if their first steps are slower than the others. Once
    /// they no longer are, does so a last time: what fades away may still be there, and be too small to show.
    pub(super) fn lengthen_warmup(&mut self) -> Result<bool, RecordError> {
        let most = self.plan.config.measure.warmup_steps_max;
        if self.warmup_steps >= most {
            return Ok(false);
        }
        if self.warmup_is_too_short()?.is_some() {
            self.warmup_has_grown = true;
        } else if !std::mem::take(&mut self.warmup_has_grown) {
            return Ok(false);
        }
        let mut aside = BTreeSet::new();
        for index in (0..self.blocks.len()).filter(|&index| self.runs_here(index)) {
            let own = self.numbers(index, self.rounds.clone());
            aside.extend(own.map(|measured| self.key(index, measured.block())));
        }
        self.warmup_steps = (2 * self.warmup_steps).clamp(1, most);
        self.set_aside(&aside)?;
        Ok(true)
    }

    /// Another job may have measured the others.
    fn runs_here(&self, index: usize) -> bool {
        self.plan.cases[index].left.is_none()
    }

    /// From the blocks of this launch.
    fn warmup_is_too_short(&self) -> Result<Option<TooShort>, RecordError> {
        let mut first_steps = FirstSteps::default();
        for index in (0..self.blocks.len()).filter(|&index| self.runs_here(index)) {
            self.outlines(index, self.rounds.clone())?.iter().for_each(|it| first_steps.add(it));
        }
        Ok(first_steps.too_short())
    }

    /// What is to say about the warm-up, if anything is.
    pub(super) fn warmup(&self) -> Result<Option<Warmup>, RecordError> {
        let configured = self.plan.config.measure.warmup_steps;
        let (needed, too_short) = (self.warmup_steps, self.warmup_is_too_short()?);
        let is_told = needed > configured || too_short.is_some();
        Ok(is_told.then_some(Warmup { configured, needed, too_short }))
    }

    /// Moves blocks away, with the rows that rest on them; returns why those cases had ended.
    fn set_aside(
        &mut self,
        aside: &BTreeSet<Key>,
    ) -> Result<BTreeMap<String, String>, RecordError> {
        let cases: HashSet<&str> = aside.iter().map(|(name, _)| name.as_str()).collect();
        for (index, setting) in self.settings.iter().enumerate() {
            let name = &setting.key.case;
            if !cases.contains(name.as_str()) {
                continue;
            }
            self.done[index] = None;
            let is_aside = |measured: &Measured| aside.contains(&(name.clone(), measured.block()));
            let took =
                self.blocks[index].iter().filter(|it| is_aside(it)).filter_map(|it| it.took());
            self.useless += took.sum::<Duration>();
            self.blocks[index].retain(|measured| !is_aside(measured));
        }
        let (mut reasons, mut rows) = (BTreeMap::new(), Vec::new());
        for row in self.store.rows()?.into_iter().filter_map(StepRow::of) {
            if !cases.contains(row.case()) {
                rows.push(Row::Step(row));
            } else if let Some(result) = row.outcome.measured() {
                reasons.insert(row.case().to_string(), result.effort.stop_reason.clone());
            }
        }
        self.store.set_aside(aside, &rows)?;
        Ok(reasons)
    }

    /// Until a limit of time ends this launch, if blocks that took so long do not count; a limit of the job stays.
    fn time_left(&self, course: &Course, back: Duration) -> Duration {
        let Measure { launches, budget_seconds, .. } = self.plan.config.measure;
        let share =
            |budget: Duration| (budget / launches as u32 + back).saturating_sub(self.useful());
        let reserve = super::reserve(self.longest.values().max().copied().unwrap_or_default());
        let until = course.until.map(|until| {
            let left = until.duration_since(SystemTime::now()).unwrap_or_default();
            left.saturating_sub(reserve)
        });
        let limits =
            [Some(share(Duration::from_secs_f64(budget_seconds))), self.budget.map(share), until];
        limits.into_iter().flatten().min().unwrap_or_default()
    }
}

/// How many of the first blocks fit. A round is not divided, because the settings of a round are compared with each other.
fn first_that_fit(blocks: &[Key], fit: impl Fn(&[Key]) -> bool) -> usize {
    let is_between = |&count: &usize| match (blocks.get(count.wrapping_sub(1)), blocks.get(count)) {
        (Some((_, before)), Some((_, after))) => before != after,
        _ => true,
    };
    let counts = (1..=blocks.len()).rev().filter(is_between);
    { counts }.find(|&count| fit(&blocks[..count])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::levels::Segment;

    #[test]
    fn as_many_whole_rounds_as_fit_are_measured_again() {
        let blocks = [("a", 3), ("b", 3), ("a", 4), ("a", 5), ("b", 5)];
        let blocks = blocks.map(|(name, block)| (name.to_string(), block));
        let fitting =
            [0, 1, 2, 3, 4, 5, 6].map(|most| first_that_fit(&blocks, |it| it.len() <= most));
        assert_eq!(fitting, [0, 0, 2, 3, 3, 5, 5]);
        assert_eq!(first_that_fit(&[], |_| true), 0);
    }

    #[test]
    fn what_there_is_no_time_for_is_told() {
        let unsteady = Unsteady {
            segments: vec![Segment { at: 0..3, level: 0.5 }, Segment { at: 3..20, level: 0.0 }],
            blocks: 20,
            disturbed: (0..3).map(|block| ("a".to_string(), block)).collect(),
            moment_s: None,
            reasons: None,
        };
        let said = |measured, short: Option<[u64; 2]>| {
            let short = short.map(|seconds| seconds.map(Duration::from_secs));
            Again { unsteady: unsteady.clone(), measured, short }.to_string()
        };
        let all = said(3, None);
        assert!(all.ends_with(
            "; its 3 blocks at another speed than most are in aside.csv, and were measured again"
        ));
        assert_eq!(
            said(0, Some([28, 24])),
            "3 blocks at another speed than most are not measured again: they take 28 s, and 24 s are left"
        );
        let some = said(1, Some([19, 15]));
        assert!(
            some.ends_with(
                "; 1 of its 3 blocks at another speed than most are in aside.csv, and were measured again; the others are not: \
                 they take 19 s, and 15 s are left"
            ),
            "{some}"
        );
    }
}
