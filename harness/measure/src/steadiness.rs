//! Whether a machine kept its speed during a sweep.
//!
//! Blocks follow each other in time. Each is compared with the usual block of its case, so that cases do not matter, and
//! the series is divided where its level changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use crate::round_effect::{Round, RoundEffect};
use results::block::Outline;
use results::conditions::Conditions;
use results::core_to_core::are_alike;
use results::levels::{Segment, segments};
use results::nested::Level;
use results::provenance::time_of_day;
use results::row::StepRow;
use results::statistics::median;
use results::stretch::{Stretch, stretch};

/// Levels that differ by less do not matter.
const MATTERS: f64 = 0.03;

/// At most this share of blocks at another speed leaves the others' intervals as they are.
const BRIEF: f64 = 0.05;

/// A machine that changed its speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsteady {
    /// Blocks of one speed; the level is the logarithm of the time in parts of the usual one.
    pub segments: Vec<Segment>,
    /// All blocks.
    pub blocks: usize,
    /// Cases and blocks at another speed than most of them, if the machine has come back to that.
    pub disturbed: Vec<(String, usize)>,
    /// When the level furthest from that of most blocks began and ended, in seconds since 1970 UTC; none if blocks do not
    /// say when they ran.
    pub moment_s: Option<[f64; 2]>,
    /// In what the system differed then, in words; none if it did not tell.
    pub reasons: Option<Vec<String>>,
}

impl Unsteady {
    /// From all blocks of each case; none if the speed did not change by more than 3 %.
    pub fn of(cases: &[Vec<&Outline>]) -> Option<Unsteady> {
        Unsteady::relative_to(cases, |_| 0)
    }

    /// The same of each launch by itself: a speed that differs between launches only is not reported.
    pub fn within_launches(cases: &[Vec<&Outline>]) -> Option<Unsteady> {
        Unsteady::relative_to(cases, |block| block.launch)
    }

    /// Each block is compared with the usual one of its case and `part`.
    fn relative_to(cases: &[Vec<&Outline>], part: fn(&Outline) -> usize) -> Option<Unsteady> {
        let mut series: Vec<Placed> = Vec::new();
        for blocks in cases {
            let mut parts: BTreeMap<usize, Vec<Placed>> = BTreeMap::new();
            for placed in blocks.iter().filter_map(|&block| Placed::of(block)) {
                parts.entry(part(placed.block)).or_default().push(placed);
            }
            for placed in parts.into_values() {
                let usual = median(placed.iter().map(|it| it.value).collect()).unwrap_or_default();
                series
                    .extend(placed.into_iter().map(|it| Placed { value: it.value - usual, ..it }));
            }
        }
        let has_moments = series.iter().all(|it| it.block.conditions.is_some());
        series.sort_by(|a, b| {
            if has_moments { a.moment().total_cmp(&b.moment()) } else { a.at.cmp(&b.at) }
        });
        let values: Vec<f64> = series.iter().map(|it| it.value).collect();
        // Worlds of different sizes vary differently.
        let ranks: Vec<usize> = series.iter().map(|it| it.block.ranks).collect();
        let segments = segments(&values, &ranks);
        let levels = || segments.iter().map(|segment| segment.level);
        let (least, most) = (levels().fold(f64::MAX, f64::min), levels().fold(f64::MIN, f64::max));
        if most - least <= MATTERS.ln_1p() {
            return None;
        }
        Some(Unsteady::described(&series, segments))
    }

    /// From all blocks of each case of a search, which measures some cases more often than others, in the order of their
    /// positions; none if no stretch of time was at a level that differs by more than 3 %.
    pub fn of_search(cases: &[Vec<&Outline>]) -> Option<Unsteady> {
        let placed = cases.iter().enumerate().flat_map(|(case, blocks)| {
            blocks.iter().filter_map(move |&block| Some((Placed::of(block)?, case)))
        });
        let mut series: Vec<(Placed, usize)> = placed.collect();
        series.sort_by_key(|(it, _)| it.block.order);
        let (series, cases): (Vec<Placed>, Vec<usize>) = series.into_iter().unzip();
        let values: Vec<f64> = series.iter().map(|it| it.value).collect();
        let Stretch { at, level } = stretch(&values, &cases)?;
        if level.abs() <= MATTERS.ln_1p() {
            return None;
        }
        // The level of most blocks is the usual one.
        let (inside, outside) =
            if 2 * at.len() > values.len() { (0.0, -level) } else { (level, 0.0) };
        let parts = [(0..at.start, outside), (at.clone(), inside), (at.end..values.len(), outside)];
        let parts = parts.into_iter().filter(|(at, _)| !at.is_empty());
        let segments: Vec<Segment> = parts.map(|(at, level)| Segment { at, level }).collect();
        Some(Unsteady::described(&series, segments))
    }

    /// With what is known of the disturbed blocks, the moment and the reasons.
    fn described(series: &[Placed], segments: Vec<Segment>) -> Unsteady {
        let disturbed = disturbed(&segments).map(|at| {
            let block = series[at].block;
            (block.case.clone(), block.block)
        });
        let conditions: Option<Vec<&Conditions>> =
            series.iter().map(|it| it.block.conditions.as_ref()).collect();
        let moment_s = conditions.as_ref().and_then(|conditions| {
            let then = &conditions[furthest(&segments)?.at.clone()];
            let last = then.last()?;
            Some([then.first()?.began_s, last.began_s + last.elapsed_s])
        });
        let reasons = conditions.map(|conditions| reasons(&segments, &conditions));
        let disturbed = disturbed.collect();
        Unsteady { segments, blocks: series.len(), disturbed, moment_s, reasons }
    }

    /// By how much the level of the last blocks differs from that of most blocks before them, as a share of the faster.
    pub fn of_last(&self, count: usize) -> f64 {
        let from = self.blocks.saturating_sub(count);
        let level = |at: Range<usize>| {
            let shared =
                |it: &&Segment| it.at.end.min(at.end).saturating_sub(it.at.start.max(at.start));
            self.segments.iter().max_by_key(shared).map_or(0.0, |segment| segment.level)
        };
        (level(from..self.blocks) - level(0..from)).abs().exp_m1()
    }

    /// So few blocks were at another speed than most that medians hardly see them, and the machine has come back.
    fn is_brief(&self) -> bool {
        let count = self.disturbed.len();
        count > 0 && count as f64 <= BRIEF * self.blocks as f64
    }

    /// How much slower the slowest level was than the fastest, in percent.
    pub fn change_percent(&self) -> f64 {
        let levels = || self.segments.iter().map(|segment| segment.level);
        let (least, most) = (levels().fold(f64::MAX, f64::min), levels().fold(f64::MIN, f64::max));
        100.0 * (most - least).exp_m1()
    }
}

/// What a machine that changed its speed does to intervals. Blocks at different speeds are not alike, and a machine that drifts
/// may be elsewhere next. Where rounds tell by how much ([`RoundEffect`]), intervals over blocks and launches contain it;
/// elsewhere medians lose their intervals. An interval over launches stays as it is if the speed changed between launches only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedChange {
    /// In percent; see [`Unsteady::change_percent`].
    at_all: Option<f64>,
    /// The same within launches.
    within_launches: Option<f64>,
    /// By how much rounds differ.
    rounds: Option<RoundEffect>,
}

impl SpeedChange {
    /// From the blocks of each case of a sweep, in rounds, and what [`Unsteady::of`] found in them.
    pub fn of(unsteady: Option<&Unsteady>, cases: &[Vec<&Outline>]) -> SpeedChange {
        // Medians hardly see brief disturbances.
        let brief: BTreeSet<(&str, usize)> = unsteady
            .filter(|unsteady| unsteady.is_brief())
            .into_iter()
            .flat_map(|unsteady| &unsteady.disturbed)
            .map(|(case, block)| (case.as_str(), *block))
            .collect();
        let counts = |block: &&Outline| !brief.contains(&(block.case.as_str(), block.block));
        let others: Vec<Vec<&Outline>> =
            cases.iter().map(|blocks| blocks.iter().copied().filter(counts).collect()).collect();
        SpeedChange { rounds: RoundEffect::of(&others), ..SpeedChange::of_search(unsteady, cases) }
    }

    /// From the blocks of each case of a search, which has no rounds.
    pub fn of_search(unsteady: Option<&Unsteady>, cases: &[Vec<&Outline>]) -> SpeedChange {
        let percent =
            |unsteady: &Unsteady| (!unsteady.is_brief()).then(|| unsteady.change_percent());
        SpeedChange {
            at_all: unsteady.and_then(percent),
            within_launches: Unsteady::within_launches(cases).as_ref().and_then(percent),
            rounds: None,
        }
    }

    /// By how much rounds differ, if they do.
    pub fn rounds(&self) -> Option<&RoundEffect> {
        self.rounds.as_ref()
    }

    /// By how much the speed changed, in percent, as far as it concerns an interval over this level.
    fn against(&self, level: &str) -> Option<f64> {
        if level == Level::Launch.plural() { self.within_launches } else { self.at_all }
    }

    /// Intervals over this level contain by how much rounds differ.
    pub fn widens(&self, level: &str) -> bool {
        // Rounds are compared within their launch, and do not tell how launches differ.
        let is_within_launches = self.at_all.is_none() || self.within_launches.is_some();
        let is_over_rounds =
            level == Level::Launch.plural() || level == Level::Block.plural() && is_within_launches;
        self.rounds.is_some() && is_over_rounds
    }

    /// What becomes of the interval of a median over this level, from these rounds; none if it does not stay.
    pub fn interval(
        &self,
        level: &str,
        p50: f64,
        interval: (f64, f64),
        rounds: impl IntoIterator<Item = Round>,
    ) -> Option<(f64, f64)> {
        match &self.rounds {
            Some(effect) if self.widens(level) => Some(effect.widened(p50, interval, rounds)),
            _ => self.against(level).is_none().then_some(interval),
        }
    }

    /// Rows with what becomes of the intervals of their medians. `rounds` gives those of a case.
    pub fn applied(
        &self,
        mut rows: Vec<StepRow>,
        rounds: impl Fn(&str) -> Vec<Round>,
    ) -> Vec<StepRow> {
        for row in &mut rows {
            let rounds = rounds(row.case());
            let Some(result) = row.outcome.right_mut() else { continue };
            let level = result.confidence.interval_over.clone();
            let of = |p50: f64, interval| self.interval(&level, p50, interval, rounds.clone());
            result.confidence.speed_change_percent = self.against(&level);
            if !result.replace_intervals(of) {
                result.withhold_intervals();
            }
            *row = row.clone().rounded();
        }
        rows
    }
}

/// A block in the order of time.
struct Placed<'b> {
    block: &'b Outline,
    /// Its round, and its place in it.
    at: (usize, usize),
    /// The logarithm of its median.
    value: f64,
}

impl Placed<'_> {
    fn of(block: &Outline) -> Option<Placed<'_>> {
        let value = median(block.times_us.clone())?.ln();
        Some(Placed { block, at: (block.block, block.order), value })
    }

    fn moment(&self) -> f64 {
        self.block.conditions.as_ref().map_or(0.0, |conditions| conditions.began_s)
    }
}

/// The level of most values.
fn usual(segments: &[Segment]) -> f64 {
    let at_level = |level: f64| {
        let same = segments.iter().filter(|it| (it.level - level).abs() <= MATTERS.ln_1p());
        same.map(|segment| segment.at.len()).sum::<usize>()
    };
    let most = segments.iter().max_by_key(|segment| (at_level(segment.level), segment.at.len()));
    most.map_or(0.0, |segment| segment.level)
}

/// So many of the blocks must be at the usual level for the others to count as disturbed.
const MOST: f64 = 2.0 / 3.0;

/// Of fewer blocks nobody can say which level is usual.
const ENOUGH: usize = 20;

/// Positions at another level than the usual one, if that is the level of most and of the last.
fn disturbed(segments: &[Segment]) -> impl Iterator<Item = usize> {
    let usual = usual(segments);
    let (same, other): (Vec<&Segment>, Vec<&Segment>) =
        segments.iter().partition(|it| (it.level - usual).abs() <= MATTERS.ln_1p());
    let count = |some: &[&Segment]| some.iter().map(|segment| segment.at.len()).sum::<usize>();
    let all = count(&same) + count(&other);
    let is_most = all >= ENOUGH && count(&same) as f64 >= MOST * all as f64;
    let is_back = same.last().zip(segments.last()).is_some_and(|(same, last)| *same == last);
    let positions = other.into_iter().flat_map(|segment| segment.at.clone());
    positions.filter(move |_| is_most && is_back).collect::<Vec<_>>().into_iter()
}

/// The segment whose level is furthest from that of most blocks.
fn furthest(segments: &[Segment]) -> Option<&Segment> {
    let usual = usual(segments);
    let away = |segment: &&Segment| (segment.level - usual).abs();
    segments.iter().max_by(|a, b| away(a).total_cmp(&away(b)))
}

/// In what the system differed, at the level furthest from that of most blocks.
fn reasons(segments: &[Segment], conditions: &[&Conditions]) -> Vec<String> {
    let usual = usual(segments);
    let then = furthest(segments).map_or(&[][..], |segment| &conditions[segment.at.clone()]);
    let is_usual = |segment: &&Segment| (segment.level - usual).abs() <= MATTERS.ln_1p();
    let usually: Vec<&Conditions> = segments
        .iter()
        .filter(is_usual)
        .flat_map(|it| conditions[it.at.clone()].to_vec())
        .collect();
    let means = |value: &dyn Fn(&Conditions) -> Option<f64>| -> Option<(f64, f64)> {
        let mean = |some: &[&Conditions]| {
            let values: Vec<f64> = some.iter().filter_map(|one| value(one)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Some((mean(then)?, mean(&usually)?))
    };
    let count = |value: Option<u64>| value.map(|count| count as f64);
    let mut found = Vec::new();
    if let Some((then, usually)) = means(&|it| it.others_share)
        && (then - usually).abs() > 0.05
    {
        found.push(format!(
            "other programs had {:.0} % of the processors, and {:.0} % otherwise",
            100.0 * then,
            100.0 * usually
        ));
    }
    if let Some((then, usually)) = means(&|it| it.steal_share)
        && (then - usually).abs() > 0.01
    {
        found.push(format!(
            "the hypervisor gave {:.1} % of the processors to other machines, and {:.1} % otherwise",
            100.0 * then,
            100.0 * usually
        ));
    }
    if let Some((then, usually)) = means(&|it| it.frequency_mhz)
        && (then / usually).ln().abs() > MATTERS
    {
        found.push(format!("processors ran at {then:.0} MHz, and at {usually:.0} MHz otherwise"));
    }
    if let Some((then, usually)) = means(&|it| count(it.throttled))
        && then > usually
    {
        found.push(format!(
            "processors were slowed down because of heat {then:.1} times a block, and {usually:.1} otherwise"
        ));
    }
    if let Some((then, usually)) = means(&|it| count(it.major_faults))
        && then > 2.0 * usually + 1.0
    {
        found.push(format!(
            "{then:.0} page faults a block were served from a disk, and {usually:.0} otherwise"
        ));
    }
    if let Some((then, usually)) = means(&|it| count(it.numa_misses))
        && then > 2.0 * usually + 1000.0
    {
        found.push(format!(
            "{then:.0} pages a block came from another node of the memory, and {usually:.0} otherwise"
        ));
    }
    if let Some((then, usually)) = means(&|it| it.core_to_core_ns)
        && !are_alike(then, usually)
    {
        found.push(format!(
            "the hypervisor had moved the processors: a write took {then:.0} ns from one to another, and {usually:.0} ns \
             otherwise"
        ));
    }
    if let Some((then, usually)) = means(&|it| it.preempted_per_s)
        && then > 2.0 * usually + 20.0
    {
        found.push(format!(
            "threads had to leave their cores {then:.0} times a second, and {usually:.0} otherwise"
        ));
    }
    found
}

/// More segments are not listed.
const LISTED: usize = 6;

impl fmt::Display for Unsteady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks;
        write!(f, "the machine changed its speed: of {blocks} blocks in the order of time, ")?;
        for (at, Segment { at: blocks, level }) in self.segments.iter().take(LISTED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let percent = 100.0 * level.exp_m1();
            write!(f, "{comma}{} to {} took {percent:+.0} %", blocks.start + 1, blocks.end)?;
        }
        let left = self.segments.len().saturating_sub(LISTED);
        if left > 0 {
            write!(f, ", and {left} more levels")?;
        }
        write!(f, " of the usual time")?;
        if let Some(moment) = self.moment_s {
            let [began, ended] = moment.map(time_of_day);
            write!(f, ", furthest from {began} to {ended} UTC")?;
        }
        write!(f, "; ")?;
        match &self.reasons {
            Some(reasons) if reasons.is_empty() => {
                write!(f, "the system's counters do not tell why (conditions.csv); ")?;
            }
            Some(reasons) => write!(f, "then {}; ", reasons.join(", "))?,
            None => {}
        }
        write!(f, "ratios of cases are by round, and hardly affected")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four cases in rounds of one block each; the machine takes this much longer in each round.
    fn sweep(levels: &[f64]) -> Vec<Vec<Outline>> {
        let block = |case: usize, round: usize| {
            let noise = 0.002 * ((7 * case + 5 * round) % 11) as f64;
            let time_us = 1e3 * (case + 1) as f64 * levels[round] * (1.0 + noise);
            Outline { block: round, order: case, times_us: vec![time_us], ..Outline::default() }
        };
        (0..4).map(|case| (0..levels.len()).map(|round| block(case, round)).collect()).collect()
    }

    fn unsteady(levels: &[f64]) -> Option<Unsteady> {
        let all = sweep(levels);
        Unsteady::of(&all.iter().map(|blocks| blocks.iter().collect()).collect::<Vec<_>>())
    }

    #[test]
    fn a_machine_that_slows_down_is_reported_with_its_blocks() {
        let said = unsteady(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2]).unwrap().to_string();
        assert!(
            said.starts_with(
                "the machine changed its speed: of 32 blocks in the order of time, 1 to 20 took"
            ),
            "{said}"
        );
        assert!(
            said.contains("21 to 32 took +20 %") || said.contains("21 to 32 took +19 %"),
            "{said}"
        );
    }

    #[test]
    fn blocks_are_disturbed_if_the_machine_comes_back() {
        let disturbed = |levels: &[f64]| unsteady(levels).unwrap().disturbed;
        let passing = disturbed(&[1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.0]);
        assert!(passing.iter().all(|(_, block)| (2..4).contains(block)), "{passing:?}");
        assert_eq!(passing.len(), 8);
        assert_eq!(disturbed(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.2]), [], "it stays");
        assert_eq!(disturbed(&[1.0, 1.2, 1.4, 1.6, 1.8, 1.0]), [], "no level is usual");
    }

    /// One round of forty does not move a median; five of ten do, and so does a machine that stays slower.
    #[test]
    fn a_brief_disturbance_is_told_and_leaves_intervals() {
        let change = |levels: &[f64]| {
            let all = sweep(levels);
            let all: Vec<Vec<&Outline>> =
                all.iter().map(|blocks| blocks.iter().collect()).collect();
            let unsteady = Unsteady::of(&all).unwrap();
            SpeedChange::of_search(Some(&unsteady), &all).against("blocks")
        };
        let mut brief = vec![1.0; 40];
        brief[20] = 1.3;
        assert_eq!(change(&brief), None);
        let mut stays = vec![1.0; 40];
        stays[39] = 1.3;
        assert!(change(&stays).is_some());
        assert!(change(&[1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.0]).is_some());
    }

    #[test]
    fn what_the_system_counted_then_is_told() {
        let mut all = sweep(&[1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.0, 1.0]);
        let told = |all: &[Vec<Outline>]| {
            let all: Vec<Vec<&Outline>> =
                all.iter().map(|blocks| blocks.iter().collect()).collect();
            Unsteady::of(&all).unwrap().to_string()
        };
        assert!(
            told(&all)
                .ends_with("of the usual time; ratios of cases are by round, and hardly affected")
        );
        for block in all.iter_mut().flatten() {
            let began_s = (10 * block.block + block.order) as f64;
            let steal_share = Some(0.002);
            block.conditions = Some(Conditions { began_s, steal_share, ..Conditions::default() });
        }
        let why = told(&all);
        assert!(
            why.contains("; the system's counters do not tell why (conditions.csv); "),
            "{why}"
        );
        assert!(
            why.contains(" of the usual time, furthest from 00:00:40 to 00:00:53 UTC; "),
            "{why}"
        );
        for block in all.iter_mut().flatten().filter(|it| (4..6).contains(&it.block)) {
            let conditions = block.conditions.as_mut().unwrap();
            (conditions.others_share, conditions.steal_share) = (Some(0.5), Some(0.25));
        }
        let why = told(&all);
        let expected = "; then the hypervisor gave 25.0 % of the processors to other machines, and 0.2 % otherwise; ";
        assert!(why.contains(expected), "{why}");
        for block in all.iter_mut().flatten() {
            block.conditions.as_mut().unwrap().others_share.get_or_insert(0.01);
            let is_near = block.conditions.as_ref().unwrap().others_share == Some(0.5);
            block.conditions.as_mut().unwrap().core_to_core_ns =
                Some(if is_near { 40.0 } else { 190.0 });
        }
        let why = told(&all);
        assert!(
            why.contains(
                "then other programs had 50 % of the processors, and 1 % otherwise, the hyp"
            ),
            "{why}"
        );
        let moved =
            "moved the processors: a write took 40 ns from one to another, and 190 ns otherwise; ";
        assert!(why.contains(moved), "{why}");
    }

    #[test]
    fn a_steady_machine_is_not_reported() {
        assert_eq!(unsteady(&[1.0; 8]), None);
        assert_eq!(unsteady(&[1.0, 1.0, 1.01, 1.01, 1.01, 1.0]), None, "1 % does not matter");
        assert_eq!(Unsteady::of(&[]), None);
    }
}
