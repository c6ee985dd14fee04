//! What the blocks of all cases say: per case, per group of settings, and overall.
//!
//! A case's ratio is the step time of the engine in parts of Horovod's. It is paired by block: in each, the engine's
//! step is divided by the geometric mean of Horovod's two. The ratio of those two is the control: how far Horovod
//! differs from itself on this machine. Which three blocks are compared, [`Rounds`] says.

use std::collections::BTreeMap;

use measure::config::Case;
use results::statistics::{Summary, median, rank_correlation};
use schemars::JsonSchema;
use serde::Serialize;
use tune::answer::Ratio;
use workloads::framework::Compression;

use crate::block::{BlockRow, Runner};
use crate::plan::{Compared, Plan, RING};
use crate::rounds::{Rounds, StepsMs};

/// Errors within this are good.
pub const CLOSE: f64 = 0.05;

/// One case.
#[derive(Clone, Debug)]
pub struct CaseComparison {
    /// Its name.
    pub name: String,
    /// Settings of the same configuration and topology compete with each other.
    pub group: String,
    /// Control plane, compression and groups.
    pub variant: String,
    /// Fusion threshold.
    pub fusion_threshold_bytes: usize,
    /// Cycle time.
    pub cycle_time_ms: f64,
    /// The engine's step in ms, over blocks.
    pub kolo: Option<Summary>,
    /// Horovod's, over the blocks of both runs.
    pub horovod: Option<Summary>,
    /// The engine's step in parts of Horovod's.
    pub ratio: Option<Estimate>,
    /// Horovod's step in parts of its own.
    pub control: Option<Estimate>,
    /// The engine's steps of more than twice their block's median. Medians of blocks do not show them.
    pub kolo_long: LongSteps,
    /// Horovod's, of both runs.
    pub horovod_long: LongSteps,
    /// Blocks that all runners have, and that count; see [`Rounds`].
    pub blocks: usize,
    /// Blocks that do not count, because the processors had moved.
    pub moved_blocks: usize,
    /// Nodes are emulated.
    pub emulated: Option<bool>,
    /// Ranks share cores.
    pub oversubscribed: Option<bool>,
    /// Why blocks failed, each reason once.
    pub failed: Vec<String>,
}

/// Steps of more than twice their block's median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongSteps {
    /// How many.
    pub long: usize,
    /// Of so many steps.
    pub steps: usize,
}

impl LongSteps {
    fn of<'r>(rows: impl Iterator<Item = &'r BlockRow>) -> LongSteps {
        rows.fold(LongSteps::default(), |sum, row| LongSteps {
            long: sum.long + row.long_steps,
            steps: sum.steps + row.steps,
        })
    }

    /// Their share of all steps, if there are any.
    pub fn share(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.long as f64 / self.steps as f64)
    }
}

/// The geometric mean of a ratio over blocks, and its interval where there are enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub ratio: f64,
    /// 95 % interval.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// None without a pair.
    pub fn of(pairs: &[f64]) -> Option<Estimate> {
        let logs: Vec<f64> = pairs.iter().map(|pair| pair.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let interval = Ratio::of(pairs).map(|ratio| (ratio.low, ratio.high));
        (!pairs.is_empty()).then_some(Estimate { ratio: mean.exp(), interval })
    }

    /// Distance from 1.
    pub fn error(&self) -> f64 {
        (self.ratio - 1.0).abs()
    }

    /// The interval includes 1.
    pub fn may_be_one(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low <= 1.0 && 1.0 <= high)
    }
}

/// Settings of one configuration and topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Settings with both step times.
    pub settings: usize,
    /// Spearman's correlation of the two orders of settings; for 3 settings or more.
    pub rank_correlation: Option<f64>,
    /// The engine's best setting.
    pub best: String,
    /// How much longer Horovod takes with it than with Horovod's own best, as a share.
    pub regret: f64,
}

/// Everything that was compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Each case, in the order of the plan.
    pub cases: Vec<CaseComparison>,
    /// Each group with two settings or more.
    pub groups: Vec<Group>,
    /// Over all cases.
    pub overall: Option<Overall>,
}

/// Over all cases. Errors are distances of ratios from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overall {
    /// Cases with a ratio.
    pub cases: usize,
    /// Median error.
    pub median_error: f64,
    /// Errors less the control's error of the same case: the median.
    pub median_beyond_control: f64,
    /// The share of them within [`CLOSE`].
    pub close_beyond_control: f64,
    /// The largest of them.
    pub worst_beyond_control: f64,
    /// Share of cases within [`CLOSE`].
    pub close: f64,
    /// The largest error.
    pub worst_error: f64,
    /// The geometric mean of all ratios, less 1.
    pub bias: f64,
    /// Median error of the controls.
    pub median_control: f64,
    /// The largest error of a control.
    pub worst_control: f64,
    /// Pairs of settings whose intervals overlap in neither engine.
    pub distinct_pairs: usize,
    /// Those of them that both engines order alike.
    pub ordered_alike: usize,
}

impl Comparison {
    /// Compares the blocks of a plan.
    pub fn of(plan: &Plan, rows: &[BlockRow]) -> Comparison {
        let cases: Vec<CaseComparison> =
            plan.cases.iter().map(|case| compare(plan, case, rows)).collect();
        let mut by_group: BTreeMap<&str, Vec<&CaseComparison>> = BTreeMap::new();
        for case in cases.iter().filter(|case| case.kolo.is_some() && case.horovod.is_some()) {
            by_group.entry(&case.group).or_default().push(case);
        }
        let groups = by_group.iter().filter_map(|(name, cases)| group(name, cases)).collect();
        let overall = overall(&cases, by_group.values());
        Comparison { cases, groups, overall }
    }
}

fn compare(plan: &Plan, case: &Compared, rows: &[BlockRow]) -> CaseComparison {
    let own = || rows.iter().filter(|row| row.case == case.name);
    let summary = |is_of: fn(&BlockRow) -> bool| {
        let own = own().filter(|row| is_of(row));
        Summary::of(&own.filter_map(|row| row.step_ms).collect::<Vec<f64>>())
    };
    let Rounds { counted, moved } = Rounds::of(own());
    let ratio = |[kolo, first, second]: &StepsMs| kolo / (first * second).sqrt();
    let ratios: Vec<f64> = counted.iter().map(ratio).collect();
    let controls: Vec<f64> = counted.iter().map(|[_, first, second]| first / second).collect();
    let long = |is_of: fn(&BlockRow) -> bool| LongSteps::of(own().filter(|row| is_of(row)));
    let mut failed = Vec::new();
    for row in own().filter(|row| !row.reason.is_empty()) {
        let why = format!("{}: {}", row.engine, row.reason);
        if !failed.contains(&why) {
            failed.push(why);
        }
    }
    CaseComparison {
        name: case.name.clone(),
        group: format!("{} {}", plan.origin(case).name, case.case.topology),
        variant: variant(&case.case),
        fusion_threshold_bytes: case.case.fusion_threshold_bytes,
        cycle_time_ms: case.case.cycle_time_ms(),
        kolo: summary(of_kolo),
        horovod: summary(of_horovod),
        ratio: Estimate::of(&ratios),
        control: Estimate::of(&controls),
        kolo_long: long(of_kolo),
        horovod_long: long(of_horovod),
        blocks: ratios.len(),
        moved_blocks: moved,
        emulated: own().find_map(|row| row.emulated),
        oversubscribed: own().find_map(|row| row.oversubscribed),
        failed,
    }
}

fn of_kolo(row: &BlockRow) -> bool {
    row.is_of(Runner::Kolo)
}

/// Of either run.
fn of_horovod(row: &BlockRow) -> bool {
    !of_kolo(row)
}

/// What of a setting is neither threshold nor cycle time.
fn variant(case: &Case) -> String {
    let compression = case.varied.compression.filter(|it| *it != Compression::None);
    let groups = case.varied.num_groups.filter(|&count| count > 0);
    let parts = [
        Some(case.control_plane.clone()),
        (case.algorithm == RING).then(|| case.algorithm.clone()),
        compression.map(|compression| compression.name().to_string()),
        groups.map(|count| format!("{count} groups")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn medians(case: &CaseComparison) -> (f64, f64) {
    let p50 = |summary: &Option<Summary>| summary.as_ref().map_or(f64::NAN, |summary| summary.p50);
    (p50(&case.kolo), p50(&case.horovod))
}

fn group(name: &str, cases: &[&CaseComparison]) -> Option<Group> {
    if cases.len() < 2 {
        return None;
    }
    let (kolo, horovod): (Vec<f64>, Vec<f64>) = cases.iter().map(|case| medians(case)).unzip();
    let best = (0..cases.len()).min_by(|&a, &b| kolo[a].total_cmp(&kolo[b]))?;
    let shortest = horovod.iter().copied().min_by(f64::total_cmp)?;
    Some(Group {
        name: name.into(),
        settings: cases.len(),
        rank_correlation: (cases.len() > 2).then(|| rank_correlation(&kolo, &horovod)),
        best: cases[best].name.clone(),
        regret: horovod[best] / shortest - 1.0,
    })
}

fn overall<'c>(
    cases: &[CaseComparison],
    groups: impl Iterator<Item = &'c Vec<&'c CaseComparison>>,
) -> Option<Overall> {
    let both = cases.iter().filter_map(|case| Some((case.ratio?, case.control?)));
    let (ratios, controls): (Vec<Estimate>, Vec<Estimate>) = both.unzip();
    let errors = |all: &[Estimate]| all.iter().map(Estimate::error).collect::<Vec<f64>>();
    let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    let close = |errors: &[f64]| {
        errors.iter().filter(|&&error| error <= CLOSE).count() as f64 / errors.len() as f64
    };
    let (of_ratios, of_controls) = (errors(&ratios), errors(&controls));
    let both = of_ratios.iter().zip(&of_controls);
    let beyond: Vec<f64> = both.map(|(error, control)| (error - control).max(0.0)).collect();
    let mean_log = ratios.iter().map(|it| it.ratio.ln()).sum::<f64>() / ratios.len() as f64;
    let alike: Vec<bool> =
        groups.flat_map(|group| pairs(group)).filter_map(ordered_alike).collect();
    Some(Overall {
        cases: ratios.len(),
        close: close(&of_ratios),
        worst_error: worst(&of_ratios),
        close_beyond_control: close(&beyond),
        worst_beyond_control: worst(&beyond),
        median_beyond_control: median(beyond)?,
        bias: mean_log.exp_m1(),
        worst_control: worst(&of_controls),
        median_error: median(of_ratios)?,
        median_control: median(of_controls)?,
        distinct_pairs: alike.len(),
        ordered_alike: alike.iter().filter(|&&alike| alike).count(),
    })
}

/// Every pair of cases of a group.
fn pairs<'c>(
    group: &[&'c CaseComparison],
) -> impl Iterator<Item = (&'c CaseComparison, &'c CaseComparison)> {
    let rest = |at: usize| group[at + 1..].iter().copied();
    group.iter().enumerate().flat_map(move |(at, &one)| rest(at).map(move |other| (one, other)))
}

/// Both engines have the same of two settings as the shorter one; none where either cannot tell.
fn ordered_alike((one, other): (&CaseComparison, &CaseComparison)) -> Option<bool> {
    let order = |one: &Option<Summary>, other: &Option<Summary>| {
        let (one, other) = (one.as_ref()?, other.as_ref()?);
        (!one.tied_with(other)).then_some(one.p50 < other.p50)
    };
    Some(order(&one.kolo, &other.kolo)? == order(&one.horovod, &other.horovod)?)
}

/// A line of `comparison.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ComparisonRow {
    /// The case.
    pub case: String,
    /// Settings of a group compete with each other.
    pub group: String,
    /// Control plane, compression and groups.
    pub variant: String,
    /// The fusion threshold.
    pub fusion_threshold_bytes: usize,
    /// The cycle time.
    pub cycle_time_ms: f64,
    /// Blocks that all engines have, and that count.
    pub blocks: usize,
    /// Blocks that do not count, because the hypervisor had moved the processors between their runs.
    pub moved_blocks: usize,
    /// Kolo's step: the median over blocks, with its 95 % interval.
    pub kolo_ms: Option<f64>,
    /// See `kolo_ms`.
    pub kolo_ms_low: Option<f64>,
    /// See `kolo_ms`.
    pub kolo_ms_high: Option<f64>,
    /// Horovod's step: the median over the blocks of both its runs, with its 95 % interval.
    pub horovod_ms: Option<f64>,
    /// See `horovod_ms`.
    pub horovod_ms_low: Option<f64>,
    /// See `horovod_ms`.
    pub horovod_ms_high: Option<f64>,
    /// Kolo's step over Horovod's: the geometric mean over blocks, with its 95 % interval.
    pub ratio: Option<f64>,
    /// See `ratio`.
    pub ratio_low: Option<f64>,
    /// See `ratio`.
    pub ratio_high: Option<f64>,
    /// Horovod's step over its own in the other run.
    pub control_ratio: Option<f64>,
    /// The share of kolo's steps that took more than twice their block's median.
    pub kolo_long_share: Option<f64>,
    /// The same of Horovod's steps.
    pub horovod_long_share: Option<f64>,
    /// Whether the interval of the ratio includes 1.
    pub agrees: Option<bool>,
    /// Nodes are emulated, as in `rows.csv`.
    pub emulated: Option<bool>,
    /// Ranks share cores, as in `rows.csv`.
    pub oversubscribed: Option<bool>,
    /// Why blocks failed.
    pub reason: String,
}

impl CaseComparison {
    /// The line of `comparison.csv`.
    pub fn row(&self) -> ComparisonRow {
        let p50 = |of: &Option<Summary>| of.as_ref().map(|of| of.p50);
        let interval = |of: &Option<Summary>| of.as_ref().and_then(|of| of.p50_interval);
        let ratio_interval = self.ratio.and_then(|ratio| ratio.interval);
        ComparisonRow {
            case: self.name.clone(),
            group: self.group.clone(),
            variant: self.variant.clone(),
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cycle_time_ms: self.cycle_time_ms,
            blocks: self.blocks,
            moved_blocks: self.moved_blocks,
            kolo_ms: p50(&self.kolo),
            kolo_ms_low: interval(&self.kolo).map(|it| it.0),
            kolo_ms_high: interval(&self.kolo).map(|it| it.1),
            horovod_ms: p50(&self.horovod),
            horovod_ms_low: interval(&self.horovod).map(|it| it.0),
            horovod_ms_high: interval(&self.horovod).map(|it| it.1),
            ratio: self.ratio.map(|it| it.ratio),
            ratio_low: ratio_interval.map(|it| it.0),
            ratio_high: ratio_interval.map(|it| it.1),
            control_ratio: self.control.map(|it| it.ratio),
            kolo_long_share: self.kolo_long.share(),
            horovod_long_share: self.horovod_long.share(),
            agrees: ratio_interval.and(self.ratio).map(|it| it.may_be_one()),
            emulated: self.emulated,
            oversubscribed: self.oversubscribed,
            reason: self.failed.join("; "),
        }
    }
}
