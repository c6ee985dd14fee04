//! Runs every case of a plan in blocks: each case once per block, in random order, so that slow drift of the
//! machine affects all cases alike.

mod again;
mod conclude;
mod timelines;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;
use rand::RngCore;
use rayon::prelude::*;

pub use self::again::Again;
use crate::block::{Context, Position, block_of};
use crate::case_result::row_of;
use crate::config::{Measure, Timelines};
use crate::drift::Drift;
use crate::executor::{BlockExecutor, BlockRequest, BlockResult};
use crate::few_blocks::FewBlocks;
use crate::plan::Plan;
use crate::round_effect::RoundEffect;
use crate::spread::Spread;
use crate::steadiness::Unsteady;
use crate::warmup::Warmup;
use results::block::{Block, Outline};
use results::conditions::Conditions;
use results::error::RecordError;
use results::journal::Journal;
use results::provenance::Launch;
use results::record::{Earlier, Key, Output};
use results::row::{MessageRow, StepRow, StepSetting};

/// Conditions that end a sweep early, and known failures of cases.
#[derive(Default)]
pub struct Course {
    /// No block begins that may not end before this moment.
    pub until: Option<SystemTime>,
    /// No block begins after this time, once every case has one. Unlike that of the configuration it is no property of
    /// the sweep, and a case may have fewer blocks than the configuration wants.
    pub budget: Option<Duration>,
    /// No block begins once this file exists.
    pub stop: Option<PathBuf>,
    /// The journal of blocks that may end the processes.
    pub journal: Option<Journal>,
}

/// The result of a sweep.
pub struct Report {
    /// Why cases were left that could have been measured, if some were.
    pub left: Option<String>,
    /// A row per case, in the order of the configuration.
    pub rows: Vec<StepRow>,
    /// Bus bandwidth of the messages, per algorithm and octave of size.
    pub bandwidth: Vec<MessageRow>,
    /// How the base case's time changed, if it is repeated.
    pub drift: Option<Drift>,
    /// Where the spread of the times comes from.
    pub spread: Option<Spread>,
    /// By how much rounds differ, which intervals contain.
    pub round_effect: Option<RoundEffect>,
    /// Cases whose blocks are too few for an interval.
    pub few_blocks: Option<FewBlocks>,
    /// Blocks at another speed than most, which this launch has measured again.
    pub again: Option<Again>,
    /// Whether the machine changed its speed over the blocks that count.
    pub unsteady: Option<Unsteady>,
    /// The warm-up, if it grew or was too short.
    pub warmup: Option<Warmup>,
    /// This launch is done, and the configuration wants another one.
    pub wants_launch: bool,
}

/// Runs a plan until every case is done. Blocks and rows are stored as soon as they are known.
///
/// # Errors
/// When results cannot be written. A case that fails is a row, not an error.
pub fn run(
    plan: &Plan,
    store: &mut dyn Output,
    earlier: Earlier,
    launches: &[Launch],
    course: &Course,
    executor: &mut dyn BlockExecutor,
    progress: &ProgressBar,
) -> Result<Report, RecordError> {
    // A case may have blocks of each.
    let launch = &Launch::of_all(launches);
    let settings: Vec<StepSetting> =
        plan.cases.par_iter().map(|planned| plan.setting(planned, launch)).collect();
    let mut done = vec![None; settings.len()];
    let rows = earlier.rows.into_iter().filter_map(StepRow::of);
    let earlier_done: HashMap<String, Done> =
        rows.map(|row| (row.case().to_string(), Done::of(&row, true))).collect();
    for (done, setting) in done.iter_mut().zip(&settings) {
        *done = earlier_done.get(&setting.key.case).copied();
    }
    let mut blocks = vec![Vec::new(); settings.len()];
    let indices: HashMap<&str, usize> = settings
        .iter()
        .enumerate()
        .map(|(index, setting)| (setting.key.case.as_str(), index))
        .collect();
    let mut warmup_steps = plan.config.measure.warmup_steps;
    for ((case, block), outline) in earlier.blocks {
        if let Some(&index) = indices.get(case.as_str()) {
            blocks[index].push(Measured::new(block, outline.launch, None));
            warmup_steps = warmup_steps.max(outline.warmup);
        }
    }
    let mut sweep = Sweep {
        plan,
        store,
        launch: launches.len(),
        settings,
        start: Instant::now(),
        done,
        blocks,
        journal: course.journal.as_ref().filter(|journal| executor.keeps(journal)),
        longest: HashMap::new(),
        useless: Duration::ZERO,
        warmup_steps,
        warmup_has_grown: false,
        base: plan.base(),
        budget: course.budget,
        rounds: 0..0,
        executor,
    };
    sweep.rounds = sweep.rounds_to_measure();
    for (index, planned) in plan.cases.iter().enumerate() {
        if let Err(reason) = &planned.data_plane {
            sweep.give_up(index, reason.to_string(), StepRow::unsupported)?;
        }
    }
    let mut left = sweep.measure_rounds(course, progress)?;
    let mut again = None;
    if left.is_none() {
        (again, left) = sweep.measure_again(course)?;
    }
    let wants_launch = left.is_none() && !sweep.is_last_launch();
    if wants_launch {
        let Measure { launches, blocks_max, .. } = plan.config.measure;
        let done = sweep.rounds.end / blocks_max;
        left = Some(format!("launch {done} of {launches} is done"));
    } else if let Some(base) = sweep.base {
        left = left.or_else(|| sweep.is_to_stop(course, base));
        if left.is_none() {
            progress.set_message(sweep.name(base).to_string());
            sweep.end(base)?;
        }
    }
    if left.is_none() {
        sweep.record_fastest(course)?;
    }
    let left = left.filter(|_| sweep.rows_are_missing());
    sweep.conclude(left, again, wants_launch)
}

/// What a sweep keeps in memory of a case that is done.
#[derive(Clone, Copy, Debug)]
struct Done {
    /// The median of its steps, if its data were right.
    right_us: Option<f64>,
    /// An earlier launch has concluded it: its row has intervals as they became then.
    is_concluded: bool,
}

impl Done {
    fn of(row: &StepRow, is_concluded: bool) -> Done {
        let right_us = row.outcome.right().map(|result| result.times.time_us_p50);
        Done { right_us, is_concluded }
    }
}

/// What a sweep keeps in memory of a block, in few bytes, because there may be millions: the store has the rest.
#[derive(Clone, Copy, Debug)]
struct Measured {
    block: u32,
    launch: u32,
    /// Not a number if an earlier launch measured it.
    took_s: f32,
}

impl Measured {
    fn new(block: usize, launch: usize, took: Option<Duration>) -> Measured {
        let small = |number: usize| u32::try_from(number).expect("fewer than 4 billion");
        let took_s = took.map_or(f32::NAN, |took| took.as_secs_f32());
        Measured { block: small(block), launch: small(launch), took_s }
    }

    /// Its number.
    fn block(self) -> usize {
        self.block as usize
    }

    /// The launch that measured it.
    fn launch(self) -> usize {
        self.launch as usize
    }

    /// How long it took, if it was measured in this launch.
    fn took(self) -> Option<Duration> {
        Duration::try_from_secs_f32(self.took_s).ok()
    }
}

/// A sweep that is running.
struct Sweep<'a> {
    plan: &'a Plan,
    store: &'a mut dyn Output,
    /// Runs of the program that have worked on the store, this one included.
    launch: usize,
    /// The settings of each case of the plan.
    settings: Vec<StepSetting>,
    start: Instant,
    /// What is known of each case that is done: its row is in the store.
    done: Vec<Option<Done>>,
    /// The journal of blocks that may end the processes.
    journal: Option<&'a Journal>,
    /// The longest block of each case so far, in this launch.
    longest: HashMap<usize, Duration>,
    /// The time of blocks that were set aside.
    useless: Duration,
    /// The warm-up of the blocks that begin now.
    warmup_steps: usize,
    /// It has grown in this launch, and not yet for the last time.
    warmup_has_grown: bool,
    /// The complete blocks of each case, by number.
    blocks: Vec<Vec<Measured>>,
    /// The case that is repeated until the end.
    base: Option<usize>,
    /// See [`Course::budget`].
    budget: Option<Duration>,
    /// The blocks of this launch.
    rounds: Range<usize>,
    executor: &'a mut dyn BlockExecutor,
}

impl Sweep<'_> {
    /// Every round of this launch; returns why it stopped before the last, if so.
    fn measure_rounds(
        &mut self,
        course: &Course,
        progress: &ProgressBar,
    ) -> Result<Option<String>, RecordError> {
        let (plan, mut left) = (self.plan, None);
        let mut block = self.rounds.start;
        while block < self.rounds.end {
            if self.base.is_some() && self.only_base_remains() {
                break;
            }
            for (order, index) in plan.order(block).into_iter().enumerate() {
                // A block that is there needs no time, and may still lack its case's row.
                if self.is_to_measure(index, block) {
                    let before = (block - self.rounds.start) * plan.cases.len();
                    progress.set_position((before + order) as u64);
                    progress.set_message(self.name(index).to_string());
                    left = left.or_else(|| self.is_to_stop(course, index));
                    if left.is_some() {
                        continue;
                    }
                }
                self.measure(index, block, order)?;
            }
            // What follows may set blocks aside, or end the launch. Any case tells about how long a block takes.
            let any = self.base.unwrap_or_default();
            left = left.or_else(|| self.is_to_stop(course, any));
            // Blocks of a launch before this one were looked at then, unless it ended at once.
            let is_new = (0..plan.cases.len()).any(|index| {
                self.numbers(index, block..block + 1).any(|measured| measured.took().is_some())
            });
            let is_due = left.is_none() && (is_new || block + 1 == self.rounds.end);
            let is_longer = is_due && self.lengthen_warmup()?;
            block = if is_longer { self.rounds.start } else { block + 1 };
        }
        Ok(left)
    }

    /// One block of one case, unless it is there; and the case's row, if that was its last.
    fn measure(&mut self, index: usize, block: usize, order: usize) -> Result<(), RecordError> {
        if self.done[index].is_some() {
            return Ok(());
        }
        let is_base = self.base == Some(index);
        let is_last_launch = self.is_last_launch();
        if self.is_out_of_time(block) && self.is_to_measure(index, block) {
            let is_done = !is_base && is_last_launch;
            return if is_done { self.finish(index, block, "budget") } else { Ok(()) };
        }
        if !self.take(index, block, order)? || is_base || !is_last_launch {
            return Ok(());
        }
        match self.stop_reason(index, block)? {
            Some(reason) => self.finish(index, block + 1, reason),
            None => Ok(()),
        }
    }

    /// Why a case is done after a block, if it is. Those before its last one did not end it.
    fn stop_reason(&self, index: usize, block: usize) -> Result<Option<&'static str>, RecordError> {
        let measure = &self.plan.config.measure;
        let in_launch = block + 1 - self.rounds.start;
        if in_launch < measure.blocks_min || self.next_block(index) > block + 1 {
            return Ok(None);
        }
        let may_be_narrow = measure.interval_percent > 0.0
            && self.numbers(index, 0..block + 1).count() >= BLOCKS_TO_STOP;
        let own = if may_be_narrow { self.outlines(index, 0..block + 1)? } else { Vec::new() };
        Ok(stop_reason(measure, &own.iter().collect::<Vec<_>>(), in_launch))
    }

    /// The base case's last block, and its row.
    fn end(&mut self, base: usize) -> Result<(), RecordError> {
        let block = self.next_block(base);
        if self.done[base].is_none() && self.take(base, block, 0)? {
            self.finish(base, block + 1, "end")?;
        }
        Ok(())
    }

    /// The blocks of the first launch that has not measured every case as often as it should at least.
    fn rounds_to_measure(&self) -> Range<usize> {
        let Measure { launches, blocks_min, blocks_max, .. } = self.plan.config.measure;
        let rounds = |launch: usize| launch * blocks_max..(launch + 1) * blocks_max;
        let is_measured = |launch: &usize| {
            self.plan.order(0).into_iter().all(|index| {
                self.done[index].is_some()
                    || self.numbers(index, rounds(*launch)).count() >= blocks_min
            })
        };
        let launch = (0..launches).find(|launch| !is_measured(launch));
        rounds(launch.unwrap_or(launches - 1))
    }

    /// No launch follows this one.
    fn is_last_launch(&self) -> bool {
        let Measure { launches, blocks_max, .. } = self.plan.config.measure;
        self.rounds.end == launches * blocks_max
    }

    /// All cases that can be run here are done, but for the base case.
    fn only_base_remains(&self) -> bool {
        let mut order = self.plan.order(0).into_iter();
        order.all(|index| self.base == Some(index) || self.done[index].is_some())
    }

    /// One block of one case, unless it is there. Returns false if the case cannot be measured.
    fn take(&mut self, index: usize, block: usize, order: usize) -> Result<bool, RecordError> {
        let planned = &self.plan.cases[index];
        let name = self.name(index).to_string();
        if !self.has(index, block) {
            let seed = self.plan.random(block, index as u64 + 1).next_u64();
            if let Some(journal) = self.journal {
                if let Some(reason) = journal.verdict(&name) {
                    return self.give_up(index, reason, StepRow::failed).map(|()| false);
                }
                journal.begin(&name, block, self.launch)?;
            }
            let counters = self.executor.counters();
            let begun = Instant::now();
            let is_recorded = self.plan.timelines == Timelines::All;
            let request =
                BlockRequest { index, seed, warmup_steps: self.warmup_steps, is_recorded };
            let BlockResult { outcome, records } = self.executor.run(self.plan, request);
            let took = begun.elapsed();
            let longest = self.longest.entry(index).or_default();
            *longest = took.max(*longest);
            let conditions = counters.map(|before| Conditions {
                case: name.clone(),
                block,
                launch: self.launch,
                ..before.until_now()
            });
            self.journal.iter().for_each(|journal| journal.end());
            if let Some(records) = records {
                self.write_timeline(planned, &records)?;
            }
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    let reason = error.to_string();
                    return self.give_up(index, reason, StepRow::failed).map(|()| false);
                }
            };
            let position = Position { block, order, launch: self.launch };
            let context = Context { warmup_steps: self.warmup_steps, ..self.plan.context(planned) };
            let measured = block_of(&context, position, &outcome);
            let measured = Block { conditions, ..measured };
            self.store.append_block(&measured)?;
            let own = &mut self.blocks[index];
            let at = own.partition_point(|other| other.block() < block);
            own.insert(at, Measured::new(block, self.launch, Some(took)));
        }
        Ok(true)
    }

    /// A block that is not there, of a case that is not done.
    fn is_to_measure(&self, index: usize, block: usize) -> bool {
        self.done[index].is_none() && !self.has(index, block)
    }

    /// Why no further block is to begin, if so.
    fn is_to_stop(&self, course: &Course, index: usize) -> Option<String> {
        if let Some(stop) = course.stop.as_ref().filter(|stop| stop.exists()) {
            return Some(format!("{} asks to stop", stop.display()));
        }
        let left = course.until?.duration_since(SystemTime::now()).unwrap_or_default();
        // As long as before, or as the longest of the others; with room for noise.
        let known = self.longest.get(&index).or_else(|| self.longest.values().max());
        let needed =
            known.map_or_else(|| self.plan.estimate(&self.plan.cases[index]), |&time| time);
        let needed = needed + reserve(needed);
        (left < needed).then(|| format!("{:.0} s are left", left.as_secs_f64()))
    }

    /// Every case has its minimum of blocks, and the time is over.
    fn is_out_of_time(&self, block: usize) -> bool {
        let (measure, elapsed) = (&self.plan.config.measure, self.useful());
        // Launches share the time.
        let share = elapsed * measure.launches as u32;
        let is_spent = self.budget.is_some_and(|budget| share > budget);
        let is_over = share.as_secs_f64() > measure.budget_seconds;
        let in_launch = block - self.rounds.start;
        in_launch >= 1 && is_spent || in_launch >= measure.blocks_min && is_over
    }

    /// The time since the beginning, without that of blocks that were set aside.
    fn useful(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.useless)
    }

    /// The name of a case, which was formatted once.
    fn name(&self, index: usize) -> &str {
        &self.settings[index].key.case
    }

    /// The block is complete.
    fn has(&self, index: usize, block: usize) -> bool {
        self.blocks[index].binary_search_by_key(&block, |measured| measured.block()).is_ok()
    }

    /// The number after a case's last block.
    fn next_block(&self, index: usize) -> usize {
        self.blocks[index].last().map_or(0, |last| last.block() + 1)
    }

    /// A case's blocks with these numbers.
    fn numbers(&self, index: usize, numbers: Range<usize>) -> impl Iterator<Item = &Measured> {
        self.blocks[index].iter().filter(move |measured| numbers.contains(&measured.block()))
    }

    /// What the store has of them.
    fn outlines(&self, index: usize, numbers: Range<usize>) -> Result<Vec<Outline>, RecordError> {
        let outline = |measured: &Measured| self.store.outline(&self.key(index, measured.block()));
        self.numbers(index, numbers).map(outline).collect()
    }

    /// All that the store has of them.
    fn whole_blocks(&self, index: usize, numbers: Range<usize>) -> Result<Vec<Block>, RecordError> {
        let block = |measured: &Measured| self.store.block(&self.key(index, measured.block()));
        self.numbers(index, numbers).map(block).collect()
    }

    fn key(&self, index: usize, block: usize) -> Key {
        (self.name(index).to_string(), block)
    }

    /// Ends a case after `count` blocks with its row.
    fn finish(&mut self, index: usize, count: usize, reason: &str) -> Result<(), RecordError> {
        let mut setting = self.settings[index].clone();
        let blocks = self.whole_blocks(index, 0..count)?;
        let warmups = blocks.iter().flat_map(|block| &block.samples).map(|sample| sample.warmup);
        setting.training.warmup = warmups.fold(setting.training.warmup, usize::max);
        let counts_bytes = self.plan.cases[index].choices().is_some();
        let row = row_of(setting, &blocks.iter().collect::<Vec<_>>(), reason, counts_bytes);
        self.keep(index, row)
    }

    /// A case without measurement is a row with a reason.
    fn give_up(
        &mut self,
        index: usize,
        reason: String,
        row: fn(StepSetting, String) -> StepRow,
    ) -> Result<(), RecordError> {
        if self.done[index].is_some() {
            return Ok(());
        }
        self.keep(index, row(self.settings[index].clone(), reason))
    }

    fn keep(&mut self, index: usize, row: StepRow) -> Result<(), RecordError> {
        self.done[index] = Some(Done::of(&row, false));
        self.store.append_row(row)
    }

    /// Some case that can be measured here is not done.
    fn rows_are_missing(&self) -> bool {
        let mut cases = self.plan.cases.iter().zip(&self.done);
        cases.any(|(planned, done)| planned.left.is_none() && done.is_none())
    }
}

/// What a block may take beyond the time that it took before.
fn reserve(took: Duration) -> Duration {
    took / 2 + Duration::from_secs(1)
}

/// No case is done for its narrow interval before it has so many blocks.
const BLOCKS_TO_STOP: usize = 5;

/// Why a case is done after these blocks, if it is; as many of them are of this launch.
fn stop_reason(measure: &Measure, own: &[&Outline], in_launch: usize) -> Option<&'static str> {
    if in_launch < measure.blocks_min {
        return None;
    }
    let times_us = Outline::nested(own);
    // Few blocks are alike by chance too often.
    let is_known = measure.interval_percent > 0.0 && own.len() >= BLOCKS_TO_STOP;
    let width =
        is_known.then(|| times_us.summary()).flatten().and_then(|all| all.relative_half_width());
    if width.is_some_and(|width| width <= measure.interval_percent / 100.0) {
        return Some("interval");
    }
    (in_launch == measure.blocks_max).then_some("count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_stops_when_its_interval_is_narrow_or_its_blocks_are_used_up() {
        let measure = Measure { blocks_max: 6, interval_percent: 5.0, ..Measure::default() };
        let block = |(block, times): (usize, [f64; 5])| Outline {
            block,
            times_us: times.to_vec(),
            ..Outline::default()
        };
        let narrow = [100.0, 101.0, 99.0, 100.0, 102.0];
        let wide = [100.0, 300.0, 80.0, 200.0, 102.0];
        let reason = |blocks: &[[f64; 5]]| {
            let blocks: Vec<Outline> = blocks.iter().copied().enumerate().map(block).collect();
            stop_reason(&measure, &blocks.iter().collect::<Vec<_>>(), blocks.len())
        };
        assert_eq!(reason(&[narrow]), None, "below the minimum of blocks");
        assert_eq!(reason(&[narrow; 4]), None, "few blocks may be alike by chance");
        assert_eq!(reason(&[narrow; 5]), Some("interval"));
        assert_eq!(reason(&[wide; 2]), None);
        let differ = [1.0, 1.4, 0.8, 1.2, 1.1, 0.9].map(|level| narrow.map(|time| level * time));
        assert_eq!(reason(&differ[..5]), None);
        assert_eq!(reason(&differ), Some("count"));
    }
}
