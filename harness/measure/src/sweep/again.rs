//! Blocks that the machine measured at another speed than most are measured again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use super::{Course, Sweep};
use crate::config::Measure;
use crate::steadiness::Unsteady;
use results::block::Block;
use results::error::RecordError;
use results::row::Row;

/// Blocks at another speed, and what became of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// How the machine changed its speed.
    pub unsteady: Unsteady,
    /// The time that they take, and that was left, if that did not suffice.
    pub short: Option<[Duration; 2]>,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.unsteady.disturbed.len();
        match self.short {
            None => write!(
                f,
                "{}; its {count} blocks at another speed than most are in aside.csv, and were measured again",
                self.unsteady
            ),
            Some([needed, left]) => write!(
                f,
                "{count} blocks at another speed than most are not measured again: they take {:.0} s, and {:.0} s are left",
                needed.as_secs_f64().ceil(),
                left.as_secs_f64()
            ),
        }
    }
}

impl Sweep<'_> {
    /// Sets aside those blocks of this launch, and measures them again, if there is time for all of them. Also returns
    /// why it stopped before the last one, if so.
    pub(super) fn measure_again(
        &mut self,
        course: &Course,
    ) -> Result<(Option<Again>, Option<String>), RecordError> {
        let names: Vec<String> =
            self.plan.cases.iter().map(|planned| planned.case.to_string()).collect();
        let of_launch = |name: &String| -> Vec<&Block> {
            let key = |block| (name.clone(), block);
            let blocks = self.blocks.range(key(self.rounds.start)..key(self.rounds.end));
            blocks.map(|(_, block)| block).collect()
        };
        let blocks: Vec<Vec<&Block>> = names.iter().map(of_launch).collect();
        let unsteady = Unsteady::of(&blocks).filter(|unsteady| !unsteady.disturbed.is_empty());
        let Some(unsteady) = unsteady else { return Ok((None, None)) };
        let indices: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
        let takes = |(name, _): &(String, usize)| {
            let index = indices[name.as_str()];
            let known = self.longest.get(&index).copied();
            known.unwrap_or_else(|| self.plan.estimate(&self.plan.cases[index]))
        };
        let needed: Duration = unsteady.disturbed.iter().map(takes).sum();
        let left = self.time_left(course);
        if left < needed {
            return Ok((Some(Again { unsteady, short: Some([needed, left]) }), None));
        }
        let aside: BTreeSet<(String, usize)> = unsteady.disturbed.iter().cloned().collect();
        let reasons = self.set_aside(&aside)?;
        for block in self.rounds.clone() {
            for (order, index) in self.plan.order(block).into_iter().enumerate() {
                if !aside.contains(&(names[index].clone(), block)) {
                    continue;
                }
                if let Some(why) = self.is_to_stop(course, index) {
                    return Ok((Some(Again { unsteady, short: None }), Some(why)));
                }
                self.take(index, block, order)?;
            }
        }
        for (name, reason) in reasons {
            if !self.rows.contains_key(&name) {
                self.finish(indices[name.as_str()], usize::MAX, &reason)?;
            }
        }
        Ok((Some(Again { unsteady, short: None }), None))
    }

    /// Moves blocks away, with the rows that rest on them; returns why those cases had ended.
    fn set_aside(
        &mut self,
        aside: &BTreeSet<(String, usize)>,
    ) -> Result<BTreeMap<String, String>, RecordError> {
        let blocks: Vec<Block> = aside.iter().filter_map(|key| self.blocks.remove(key)).collect();
        let mut reasons = BTreeMap::new();
        for (name, _) in aside {
            let row = self.rows.remove(name);
            if let Some(result) = row.as_ref().and_then(|row| row.outcome.measured()) {
                reasons.insert(name.clone(), result.effort.stop_reason.clone());
            }
        }
        self.done.retain(|name| self.rows.contains_key(name));
        let rows: Vec<Row> =
            self.done.iter().map(|name| Row::Step(self.rows[name].clone())).collect();
        self.store.set_aside(&blocks, &rows, &self.blocks)?;
        Ok(reasons)
    }

    /// Until a limit of time ends this launch.
    fn time_left(&self, course: &Course) -> Duration {
        let Measure { launches, budget_seconds, .. } = self.plan.config.measure;
        let share =
            |budget: Duration| (budget / launches as u32).saturating_sub(self.start.elapsed());
        let until =
            course.until.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
        let limits =
            [Some(share(Duration::from_secs_f64(budget_seconds))), self.budget.map(share), until];
        limits.into_iter().flatten().min().unwrap_or_default()
    }
}
