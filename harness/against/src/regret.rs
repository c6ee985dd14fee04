//! What each tuner's answer costs where Horovod runs it.
//!
//! The regret of a setting is how much longer Horovod's step takes with it than with the best setting that Horovod ran:
//! the answers, and all cases of the configuration. A best of many noisy medians is a little too short, for all alike.
//!
//! A hypervisor may move the processors of a virtual machine between cores that share a cache and cores that do not, which
//! changes step times and gains. A promise holds for the distance at which it was measured, so that only steps at that
//! distance count, and Horovod runs more blocks where too few do. It also runs more of them until a measured gain is precise
//! enough to test the promise.

use std::collections::BTreeMap;
use std::fmt::Write;

use results::statistics::{Summary, median};
use schemars::JsonSchema;
use serde::Serialize;
use tune::answer::Ratio;

use crate::block::{BlockRow, Runner};
use crate::comparison::Estimate;
use crate::plan::{Compared, Plan};
use crate::tuners::{Answers, Autotuned, Chosen};

/// Whose answer a setting is.
const AUTOTUNE: &str = "autotune";
const KOLO: &str = "kolo tune";
const DEFAULT: &str = "default";

/// The verdict with which `kolo tune` leaves the user with the default, whatever it compared the default with.
const KEEP: &str = "keep";

/// A gain is measured if both settings have so many blocks that count; it has an interval from four blocks on.
const LEAST_BLOCKS: usize = 2;

/// A measured gain tests a promise if its interval is at most this part of the promised one (both on a logarithmic scale).
/// Wider, the noise of the measurement would decide.
const PRECISE: f64 = 0.5;

/// A setting has at most so many times its number of blocks that count, to measure a gain as precisely as that.
const MOST_BLOCKS: usize = 6;

/// A line of `autotune.csv`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RegretRow {
    /// The configuration.
    pub config: String,
    /// Whose answer it is: `autotune`, `kolo tune` or `default`.
    pub tuner: &'static str,
    /// The tuner's conclusion: whether autotune has finished; the verdict of `kolo tune`.
    pub conclusion: String,
    /// Steps that it measured, those that warm up included.
    pub steps: usize,
    /// How long that took, in seconds.
    pub seconds: f64,
    /// The fusion threshold that the answer leaves the user with: the default's where `kolo tune` says keep.
    pub fusion_threshold_mib: f64,
    /// The cycle time, likewise.
    pub cycle_time_ms: f64,
    /// Whether the response cache is on, likewise.
    pub is_cached: bool,
    /// Horovod's step with it: the median over blocks, and its 95 % interval where there are enough.
    pub step_ms: Option<f64>,
    /// See `step_ms`.
    pub step_ms_low: Option<f64>,
    /// See `step_ms`.
    pub step_ms_high: Option<f64>,
    /// How much longer it takes than the best of the settings, in percent.
    pub regret_percent: Option<f64>,
    /// Blocks of Horovod with it that count.
    pub blocks: usize,
    /// Latency between the first two processors of a virtual machine during the rounds of the tuner's promise, in nanoseconds.
    /// Only blocks at that latency count; empty if all count.
    pub core_to_core_ns: Option<f64>,
    /// Its step over that of autotune's answer in the same blocks, with its 95 % interval.
    pub over_autotune: Option<f64>,
    /// See `over_autotune`.
    pub over_autotune_low: Option<f64>,
    /// See `over_autotune`.
    pub over_autotune_high: Option<f64>,
    /// The default's step over that of the setting which the tuner chose (`answers.json` has it where the default is kept), as the
    /// tuner promises, with its 95 % interval.
    pub promised: Option<f64>,
    /// See `promised`.
    pub promised_low: Option<f64>,
    /// See `promised`.
    pub promised_high: Option<f64>,
    /// The same ratio, measured with Horovod: from four blocks on, estimated as the promise is, with its 95 % interval; of two or
    /// three, the geometric mean.
    pub measured: Option<f64>,
    /// See `measured`.
    pub measured_low: Option<f64>,
    /// See `measured`.
    pub measured_high: Option<f64>,
    /// The same ratio in the same rounds, measured with this program's engine, in the same way.
    pub engine: Option<f64>,
    /// See `engine`.
    pub engine_low: Option<f64>,
    /// See `engine`.
    pub engine_high: Option<f64>,
    /// The setting that the tuner chose.
    #[serde(skip)]
    pub chosen: Chosen,
}

/// Adds the answers for a configuration to its cases, each once; returns the name of each answer's case. Horovod runs all
/// cases; this program's engine runs its own answer and the default, too.
pub fn with_answers(plan: &mut Plan, origin: usize, answers: &Answers) -> Vec<Answer> {
    let name = plan.origins[origin].name.clone();
    let of_origin = plan.cases.iter_mut().filter(|case| case.origin == origin);
    of_origin.for_each(|case| case.runners = vec![Runner::Horovod]);
    let like = plan.cases.iter().find(|case| case.origin == origin).cloned();
    let like = like.expect("a configuration has a case");
    let Answers { autotune, kolo } = answers;
    let autotune = autotune.map(|autotune| (AUTOTUNE, autotune.chosen));
    let others = [(KOLO, kolo.chosen), (DEFAULT, Chosen::default())];
    let named = autotune.into_iter().chain(others).map(|(tuner, chosen)| {
        let case = chosen.case(&like, &name);
        let at = plan.cases.iter().position(|other| other.name == case.name);
        let at = at.unwrap_or_else(|| {
            plan.cases.push(case);
            plan.cases.len() - 1
        });
        let Compared { runners, name: case, .. } = &mut plan.cases[at];
        if tuner != AUTOTUNE && !runners.contains(&Runner::Kolo) {
            runners.push(Runner::Kolo);
        }
        Answer { origin, tuner, chosen, case: case.clone() }
    });
    named.collect()
}

/// A setting that somebody has chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    origin: usize,
    tuner: &'static str,
    chosen: Chosen,
    case: String,
}

/// A row for each answer.
pub fn rows(
    plan: &Plan,
    named: &[Answer],
    answers: &BTreeMap<String, Answers>,
    blocks: &[BlockRow],
) -> Vec<RegretRow> {
    let row = |answer: &Answer| {
        let Answer { origin, tuner, chosen, ref case } = *answer;
        let name = &plan.origins[origin].name;
        let Answers { autotune, kolo } = &answers[name];
        let blocks = &of_origin(plan, origin, kolo.core_to_core_ns, blocks);
        let (conclusion, steps, seconds) = match (tuner, autotune) {
            (AUTOTUNE, &Some(Autotuned { finished, steps, seconds, .. })) => {
                let conclusion = if finished { "finished" } else { "not finished" };
                (conclusion.into(), steps, seconds)
            }
            (KOLO, _) => (kolo.verdict.clone(), kolo.steps, kolo.seconds),
            _ => (String::new(), 0, 0.0),
        };
        let case_of = |tuner: &str| {
            let other = named.iter().find(|other| other.origin == origin && other.tuner == tuner);
            other.map(|other| &other.case)
        };
        let kept = case_of(DEFAULT).filter(|_| tuner == KOLO && kolo.verdict == KEEP);
        let used = kept.unwrap_or(case);
        let setting = if kept.is_some() { Chosen::default() } else { chosen };
        let step = step(used, blocks);
        let best = best(plan, origin, blocks).map(|(_, ms)| ms);
        let promised = kolo.promised.filter(|_| tuner == KOLO);
        let gain_by = |runner: Runner| {
            let default = case_of(DEFAULT).filter(|default| *default != case)?;
            let pairs = pairs(default, case, runner, blocks);
            gain(&pairs).filter(|_| pairs.len() >= LEAST_BLOCKS)
        };
        let (measured, engine) = (gain_by(Runner::Horovod), gain_by(Runner::Kolo));
        let over_autotune = case_of(AUTOTUNE)
            .filter(|_| tuner != AUTOTUNE)
            .and_then(|autotune| Ratio::of(&pairs(used, autotune, Runner::Horovod, blocks)));
        RegretRow {
            config: name.clone(),
            tuner,
            conclusion,
            steps,
            seconds: rounded(seconds),
            fusion_threshold_mib: setting.fusion_threshold_mib,
            cycle_time_ms: setting.cycle_time_ms,
            is_cached: setting.is_cached,
            blocks: step.as_ref().map_or(0, |step| step.samples),
            core_to_core_ns: kolo.core_to_core_ns,
            step_ms: step.as_ref().map(|step| rounded(step.p50)),
            step_ms_low: step
                .as_ref()
                .and_then(|step| step.p50_interval)
                .map(|(low, _)| rounded(low)),
            step_ms_high: step
                .as_ref()
                .and_then(|step| step.p50_interval)
                .map(|(_, high)| rounded(high)),
            regret_percent: step
                .zip(best)
                .map(|(step, best)| rounded(100.0 * (step.p50 / best - 1.0))),
            over_autotune: over_autotune.map(|over| rounded(over.ratio)),
            over_autotune_low: over_autotune.map(|over| rounded(over.low)),
            over_autotune_high: over_autotune.map(|over| rounded(over.high)),
            promised: promised.map(|(ratio, ..)| rounded(ratio)),
            promised_low: promised.map(|(_, low, _)| rounded(low)),
            promised_high: promised.map(|(.., high)| rounded(high)),
            measured: measured.map(|measured| rounded(measured.ratio)),
            measured_low: measured.and_then(|it| it.interval).map(|(low, _)| rounded(low)),
            measured_high: measured.and_then(|it| it.interval).map(|(_, high)| rounded(high)),
            engine: engine.map(|engine| rounded(engine.ratio)),
            engine_low: engine.and_then(|it| it.interval).map(|(low, _)| rounded(low)),
            engine_high: engine.and_then(|it| it.interval).map(|(_, high)| rounded(high)),
            chosen,
        }
    };
    named.iter().map(row).collect()
}

/// The blocks of a configuration that ran where the processors were that far apart; all of them if that does not matter.
fn of_origin<'b>(
    plan: &Plan,
    origin: usize,
    core_to_core_ns: Option<f64>,
    blocks: &'b [BlockRow],
) -> Vec<&'b BlockRow> {
    let cases = || plan.cases.iter().filter(|case| case.origin == origin);
    let counts = |row: &&BlockRow| {
        cases().any(|case| case.name == row.case) && core_to_core_ns.is_none_or(|ns| row.ran_at(ns))
    };
    blocks.iter().filter(counts).collect()
}

/// Cases of a configuration that Horovod runs again: those with too few blocks that count; also the promised setting and the
/// default, as long as the interval of the measured gain is wider than `PRECISE` allows.
pub fn cases_to_run_again(
    plan: &Plan,
    origin: usize,
    named: &[Answer],
    answers: &Answers,
    blocks: &[BlockRow],
) -> Vec<usize> {
    let counted = of_origin(plan, origin, answers.kolo.core_to_core_ns, blocks);
    let of_kolo = |answer: &&Answer| answer.origin == origin && answer.tuner != AUTOTUNE;
    let compared: Vec<&String> = named.iter().filter(of_kolo).map(|answer| &answer.case).collect();
    let is_vague = answers.kolo.promised.is_some_and(|(_, low, high)| {
        let [answer, default] = compared[..] else { return false };
        let measured = gain(&pairs(default, answer, Runner::Horovod, &counted));
        measured.and_then(|it| it.interval).is_some_and(|measured| !can_test(measured, (low, high)))
    });
    let has_few = |&index: &usize| {
        let case = &plan.cases[index];
        let is_of = |row: &&&BlockRow| row.case == case.name && row.is_of(Runner::Horovod);
        let is_more_needed = is_vague && compared.contains(&&case.name);
        let enough = plan.blocks(case) * if is_more_needed { MOST_BLOCKS } else { 1 };
        case.origin == origin && counted.iter().filter(is_of).count() < enough
    };
    (0..plan.cases.len()).filter(has_few).collect()
}

/// A measured gain, estimated as the promised one is: blocks follow each other, and may be like those before.
fn gain(pairs: &[f64]) -> Option<Estimate> {
    let of_rounds = |it: Ratio| Estimate { ratio: it.ratio, interval: Some((it.low, it.high)) };
    Ratio::of_rounds(pairs).map(of_rounds).or_else(|| Estimate::of(pairs))
}

/// Whether a measured interval is precise enough to test a promised one.
fn can_test(measured: (f64, f64), promised: (f64, f64)) -> bool {
    let [measured, promised] = [measured, promised].map(|(low, high)| (high / low).ln());
    measured <= PRECISE * promised
}

/// Horovod's step of a case over blocks.
fn step(case: &str, blocks: &[&BlockRow]) -> Option<Summary> {
    let of_case = blocks.iter().filter(|row| row.case == case && row.is_of(Runner::Horovod));
    Summary::of(&of_case.filter_map(|row| row.step_ms).collect::<Vec<_>>())
}

/// The fastest case of a configuration, and its step in ms.
fn best<'p>(plan: &'p Plan, origin: usize, blocks: &[&BlockRow]) -> Option<(&'p Compared, f64)> {
    let cases = plan.cases.iter().filter(|case| case.origin == origin);
    let steps = cases.filter_map(|case| Some((case, step(&case.name, blocks)?.p50)));
    steps.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The ratios of two cases that somebody ran, in the order of their blocks.
fn pairs(over: &str, under: &str, runner: Runner, blocks: &[&BlockRow]) -> Vec<f64> {
    let of = |case: &str| -> Vec<f64> {
        let rows = blocks.iter().filter(|row| row.case == case && row.is_of(runner));
        rows.filter_map(|row| row.step_ms).collect()
    };
    of(over).into_iter().zip(of(under)).map(|(over, under)| over / under).collect()
}

/// The report.
pub fn text(
    plan: &Plan,
    rows: &[RegretRow],
    answers: &BTreeMap<String, Answers>,
    blocks: &[BlockRow],
) -> String {
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("texts grow");
    plan.conditions.iter().for_each(|condition| line(format!("# {condition}")));
    line("# step: Horovod's, median over blocks; regret: over that of the best setting".into());
    line(
        "# gain: the default's step over this one's, as kolo tune promised it, as measured, and in kolo's engine then"
            .into(),
    );
    for (index, origin) in plan.origins.iter().enumerate() {
        let core_to_core_ns = answers.get(&origin.name).and_then(|it| it.kolo.core_to_core_ns);
        let counted = of_origin(plan, index, core_to_core_ns, blocks);
        let Some((best, best_ms)) = best(plan, index, &counted) else { continue };
        let settings = plan.cases.iter().filter(|case| case.origin == index).count();
        let all = of_origin(plan, index, None, blocks).len();
        let there = core_to_core_ns.map_or(String::new(), |ns| {
            format!(
                "; {} of {all} blocks ran on processors {ns:.0} ns apart, and count",
                counted.len()
            )
        });
        line(format!(
            "{}, best of {settings} settings: {best_ms:.1} ms, {}{there}",
            origin.name, best.name
        ));
        for row in rows.iter().filter(|row| row.config == origin.name) {
            line(format!("  {}", row.in_words()));
        }
    }
    for tuner in [AUTOTUNE, KOLO, DEFAULT] {
        let of_tuner = || rows.iter().filter(|row| row.tuner == tuner);
        let regrets: Vec<f64> = of_tuner().filter_map(|row| row.regret_percent).collect();
        let worst = regrets.iter().copied().fold(0.0, f64::max);
        let Some(middle) = median(regrets) else { continue };
        line(format!("{tuner}: regret {middle:.1} % in the median, {worst:.1} % at most"));
    }
    let beside: Vec<Ratio> =
        rows.iter().filter(|row| row.tuner == KOLO).filter_map(RegretRow::beside).collect();
    if !beside.is_empty() {
        let count = |is: fn(&Ratio) -> bool| beside.iter().filter(|ratio| is(ratio)).count();
        line(format!(
            "steps with kolo tune's answer beside autotune's: shorter in {} of {} cases, longer in {}, no difference beyond \
             the interval in {}",
            count(|ratio| ratio.high < 1.0),
            beside.len(),
            count(|ratio| ratio.low > 1.0),
            count(Ratio::is_tie),
        ));
    }
    promises(rows).into_iter().for_each(line);
    text
}

/// How many promised gains Horovod showed, and how many of those that the machine still allowed.
fn promises(rows: &[RegretRow]) -> Vec<String> {
    let promised: Vec<(bool, &RegretRow)> =
        rows.iter().filter_map(|row| Some((row.is_kept()?, row))).collect();
    let kept = || promised.iter().filter(|(is_kept, _)| *is_kept);
    let broken = || promised.iter().filter(|(is_kept, _)| !is_kept);
    let width = median(promised.iter().filter_map(|(_, row)| row.width()).collect());
    let mut lines = vec![format!(
        "promised gains: {} of {} intervals contain what was measured{}",
        kept().count(),
        promised.len(),
        width.map_or(String::new(), |width| format!(
            "; they are {width:.1} points of the saving wide in the median"
        )),
    )];
    let overlapping = broken().filter(|(_, row)| row.overlaps() == Some(true)).count();
    if overlapping > 0 {
        lines.push(format!(
            "other intervals that overlap with the one of what was measured: {overlapping} of {}",
            broken().count()
        ));
    }
    let is_tested = |(_, row): &&(bool, &RegretRow)| row.is_tested() == Some(true);
    let tested = promised.iter().filter(is_tested).count();
    if tested < promised.len() {
        lines.push(format!(
            "where the interval of what was measured is at most half as wide: {} of {tested}",
            kept().filter(is_tested).count(),
        ));
    }
    if rows.iter().any(|row| row.is_as_then() == Some(false)) {
        let is_as_then = |(_, row): &&(bool, &RegretRow)| row.is_as_then() == Some(true);
        lines.push(format!(
            "the machine has changed since some promises: where the engine's gain still lies in the interval, {} of {} \
             contain what was measured",
            kept().filter(is_as_then).count(),
            promised.iter().filter(is_as_then).count(),
        ));
    }
    lines
}

impl RegretRow {
    fn in_words(&self) -> String {
        let RegretRow { tuner, fusion_threshold_mib, cycle_time_ms, is_cached, .. } = *self;
        let setting = Chosen { fusion_threshold_mib, cycle_time_ms, is_cached };
        let step = self.step_ms.map_or("no block".into(), |ms| format!("{ms:.1} ms"));
        let regret = self.regret_percent.map_or(String::new(), |regret| format!("{regret:+.1} %"));
        let mut words = format!("{tuner:<10} {:<32} {step:>10} {regret:>9}", in_words(setting));
        if self.steps > 0 {
            let conclusion = &self.conclusion;
            write!(words, "  {conclusion}: {} steps, {:.0} s", self.steps, self.seconds)
                .expect("texts grow");
        }
        if let (Some(promised), Some(low), Some(high), Some(measured)) =
            (self.promised, self.promised_low, self.promised_high, self.measured)
        {
            let of = if setting == self.chosen {
                String::new()
            } else {
                format!(" of {}", in_words(self.chosen))
            };
            write!(words, "; gain{of} {promised:.2} [{low:.2}, {high:.2}], measured {measured:.2}")
                .expect("texts grow");
            if let (Some(low), Some(high)) = (self.measured_low, self.measured_high) {
                write!(words, " [{low:.2}, {high:.2}]").expect("texts grow");
            }
            if let Some(engine) = self.engine {
                write!(words, ", in the engine {engine:.2}").expect("texts grow");
            }
        }
        if let Some(Ratio { ratio, low, high }) = self.beside().filter(|_| tuner == KOLO) {
            write!(words, "; {ratio:.3} [{low:.3}, {high:.3}] of autotune's step")
                .expect("texts grow");
        }
        words
    }

    /// Its step over autotune's.
    fn beside(&self) -> Option<Ratio> {
        Some(Ratio {
            ratio: self.over_autotune?,
            low: self.over_autotune_low?,
            high: self.over_autotune_high?,
        })
    }

    /// Whether what was measured lies in the promised interval.
    fn is_kept(&self) -> Option<bool> {
        Some((self.promised_low?..=self.promised_high?).contains(&self.measured?))
    }

    /// Whether the gain was measured precisely enough to test the promise.
    fn is_tested(&self) -> Option<bool> {
        let measured = (self.measured_low?, self.measured_high?);
        Some(can_test(measured, (self.promised_low?, self.promised_high?)))
    }

    /// Whether the promised interval and that of what was measured overlap.
    fn overlaps(&self) -> Option<bool> {
        Some(self.measured_low? <= self.promised_high? && self.promised_low? <= self.measured_high?)
    }

    /// How wide the promised interval is, in points of the share of the default's step that is saved.
    fn width(&self) -> Option<f64> {
        Some(100.0 * (1.0 / self.promised_low? - 1.0 / self.promised_high?))
    }

    /// Whether the gain in the engine, measured beside Horovod, lies in the promised interval. Otherwise the machine has
    /// changed since the promise.
    fn is_as_then(&self) -> Option<bool> {
        Some((self.promised_low?..=self.promised_high?).contains(&self.engine?))
    }
}

fn in_words(setting: Chosen) -> String {
    let short = |value: f64| (100.0 * value).round() / 100.0;
    let Chosen { fusion_threshold_mib: mib, cycle_time_ms: ms, is_cached } = setting;
    let cache = if is_cached { "" } else { ", cache off" };
    format!("{} MiB, {} ms{cache}", short(mib), short(ms))
}

/// Three digits behind the point.
fn rounded(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}
