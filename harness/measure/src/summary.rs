//! The summary of a sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::{back_ends, fastest};
use algorithms::control::bitvector::NAME as CACHED;
use results::conclusion::{Conclusion, ToCopy};
use results::row::{Key, StepResult, StepRow, StepSetting, Tuning};
use results::statistics::Summary;
use results::units::mib;
use training::back_end::MemoryKind;

/// Horovod's default settings: fusion threshold in MiB, cycle time in ms, since when.
pub const HOROVOD_DEFAULTS: [(usize, f64, &str); 2] =
    [(128, 1.0, "Horovod's default since v0.21"), (64, 5.0, "Horovod's default before")];

/// The sentence under every result that does not rest on the data plane that Horovod would use.
pub const SCOPE: &str = "best for this engine on this machine, not for a cluster";

/// The same of several nodes that are not emulated.
const SCOPE_OF_NODES: &str = "best for this engine on these nodes";

/// Data planes that are Horovod's own, too: allreduces of a library.
const HOROVODS: [&str; 3] = ["mpi-allreduce", "nccl-allreduce", "nccl-hierarchical"];

/// The summary of a sweep's rows, one part per topology.
pub fn text(rows: &[StepRow]) -> String {
    let mut text = String::new();
    let groups = groups(rows);
    groups.iter().for_each(|group| part(group, &mut text));
    scaling(&groups).iter().for_each(|sentence| {
        let _ = writeln!(text, "{sentence}");
    });
    for ToCopy { purpose, lines } in largest(&groups).map_or_else(Vec::new, to_copy) {
        let _ = writeln!(text, "{purpose}");
        lines.iter().for_each(|line| {
            let _ = writeln!(text, "  {line}");
        });
    }
    for complaint in rows.iter().filter_map(|row| row.outcome.complaint(row.case())) {
        let _ = writeln!(text, "{complaint}");
    }
    text
}

/// The conclusion of the same rows: how they scale, and a verdict per topology.
pub fn conclusion(rows: &[StepRow]) -> Conclusion {
    let groups = groups(rows);
    let scaling = scaling(&groups).into_iter().map(|words| sentence(&words));
    let verdicts = scaling.chain(groups.iter().map(|group| verdict(group))).collect();
    let limits = vec![sentence(largest(&groups).map_or(SCOPE, scope))];
    let to_copy = largest(&groups).map_or_else(Vec::new, to_copy);
    Conclusion { verdicts, limits, to_copy, ..Conclusion::default() }
}

/// The rows of the topology with the most ranks.
fn largest<'g, 'r>(groups: &'g [Vec<&'r StepRow>]) -> Option<&'g [&'r StepRow]> {
    groups.iter().max_by_key(|group| group[0].setting.key.ranks).map(Vec::as_slice)
}

/// What the results of a topology hold for.
fn scope(rows: &[&StepRow]) -> &'static str {
    let StepSetting { key, run, .. } = &rows[0].setting;
    if key.nodes > 1 && !run.emulated { SCOPE_OF_NODES } else { SCOPE }
}

/// The lines of a job script for the fastest setting, if it has Horovod's data plane and is clearly faster than Horovod's
/// default.
fn to_copy(rows: &[&StepRow]) -> Vec<ToCopy> {
    let tied = best_and_tied(rows);
    let Some((time, best)) = tied.first() else { return Vec::new() };
    let StepSetting { key, training, tuning, .. } = &best.setting;
    let [(mib, ms, _), _] = HOROVOD_DEFAULTS;
    let default = default_row(rows, best, mib, ms);
    let is_slower = default.and_then(over_best_low).is_some_and(|low| low > 1.0);
    let is_steady = !Change::of(rows, best).is_some_and(|change| change.is_more_than_the_effect());
    let is_horovods = HOROVODS.contains(&training.algorithm.as_str());
    if !(is_ranked(rows, time) && is_slower && is_steady && is_horovods) {
        return Vec::new();
    }
    let capacity = if tuning.control_plane == CACHED { training.cache_capacity } else { 0 };
    let lines = vec![
        format!("export HOROVOD_FUSION_THRESHOLD={}", tuning.fusion_threshold_bytes),
        format!("export HOROVOD_CYCLE_TIME={}", tuning.cycle_time_ms),
        format!("export HOROVOD_CACHE_CAPACITY={capacity}"),
    ];
    vec![ToCopy { purpose: format!("for a job script, on {}", world(key, " on ")), lines }]
}

/// Rows of the same workload and topology.
fn groups(rows: &[StepRow]) -> Vec<Vec<&StepRow>> {
    let of = |group: Vec<usize>| group.into_iter().map(|at| &rows[at]).collect();
    fastest::groups(rows).into_iter().map(of).collect()
}

/// How each workload scales over a transport, relative to its smallest world: work per rank and time, with the fastest
/// setting of each world.
fn scaling(groups: &[Vec<&StepRow>]) -> Vec<String> {
    let mut by_work: BTreeMap<(&str, &str), Vec<(&Key, f64)>> = BTreeMap::new();
    for group in groups {
        let StepSetting { key, run, training, .. } = &group[0].setting;
        // Under strong scaling the passes shrink.
        let work = training.forward_ms + training.backward_ms;
        if let Some((time, _)) = best_and_tied(group).first().filter(|_| work > 0.0) {
            let worlds = by_work.entry((&training.workload, &run.transport)).or_default();
            worlds.push((key, work / time.p50));
        }
    }
    let in_words = |((workload, transport), mut worlds): ((&str, &str), Vec<(&Key, f64)>)| {
        worlds.sort_by_key(|(key, _)| (key.ranks, key.nodes));
        let ((base, most), larger) = worlds.split_first()?;
        let share = |(key, speed): &(&Key, f64)| {
            format!("{:.0} % with {}", 100.0 * speed / most, world(key, " on "))
        };
        let shares: Vec<String> = larger.iter().map(share).collect();
        (!shares.is_empty()).then(|| {
            format!(
                "scaling of {workload} over {transport}: relative to {}, throughput per rank is {}; each with its fastest setting",
                world(base, " on "),
                shares.join(", ")
            )
        })
    };
    by_work.into_iter().filter_map(in_words).collect()
}

/// A world in words: its ranks and its nodes.
fn world(key: &Key, between: &str) -> String {
    let nodes = if key.nodes == 1 { "node" } else { "nodes" };
    let ranks = if key.ranks == 1 { "rank" } else { "ranks" };
    format!("{} {ranks}{between}{} {nodes}", key.ranks, key.nodes)
}

fn verdict(rows: &[&StepRow]) -> String {
    let StepSetting { key, training, .. } = &rows[0].setting;
    let of = format!("{} on {}", training.workload, world(key, ", "));
    let tied = best_and_tied(rows);
    let Some(((time, best), others)) = tied.split_first() else {
        return format!("{of}: no case was measured correctly.");
    };
    if !is_ranked(rows, time) {
        return format!("{of}: one block per case, so nothing can be ranked.");
    }
    let StepSetting { training, tuning, .. } = &best.setting;
    let tie = match others.len() {
        0 => "No other setting ties with it.".to_string(),
        1 => "1 other setting ties with it.".to_string(),
        count => format!("{count} other settings tie with it."),
    };
    let mut defaults = HOROVOD_DEFAULTS
        .iter()
        .filter_map(|&(mib, ms, since)| Some((default_row(rows, best, mib, ms)?, since)));
    let against = defaults.next().and_then(|(row, since)| {
        let time = row.outcome.measured()?.times.median();
        Some(format!(
            " With {since} and the same control plane and algorithm a step takes {}.",
            ms_of(&time)
        ))
    });
    let change = Change::of(rows, best);
    let nothing = change.filter(Change::is_more_than_the_effect);
    let nothing =
        nothing.map(|change| format!("nothing is recommended, because {change}. The fastest: "));
    format!(
        "{of}: {}a step takes {} with {}, {}, {} MiB and {} ms. {tie}{}",
        nothing.unwrap_or_default(),
        ms_of(time),
        tuning.control_plane,
        training.algorithm,
        mib(tuning.fusion_threshold_bytes),
        tuning.cycle_time_ms,
        against.unwrap_or_default(),
    )
}

fn sentence(words: &str) -> String {
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

/// The best row and those tied with it, with their median times, best first: what blocks side by side do not tell
/// apart, or, where they were not compared, rows whose intervals overlap.
fn best_and_tied<'r>(rows: &[&'r StepRow]) -> Vec<(Summary, &'r StepRow)> {
    let mut ranked: Vec<(Summary, &StepRow)> =
        rows.iter().filter_map(|&row| Some((row.outcome.right()?.times.median(), row))).collect();
    ranked.sort_by(|(a, _), (b, _)| a.p50.total_cmp(&b.p50));
    let Some((best, _)) = ranked.first().cloned() else {
        return Vec::new();
    };
    let is_tied = |(time, row): &(Summary, &StepRow)| {
        let low = over_best_low(row);
        low.map_or_else(|| time.tied_with(&best), |low| low <= 1.0)
    };
    ranked.retain(is_tied);
    ranked
}

fn part(rows: &[&StepRow], text: &mut String) {
    let StepSetting { key, run, training, tuning, .. } = &rows[0].setting;
    let mut notes = Vec::new();
    if let Some(passes) = training.backward_passes_per_step.filter(|&passes| passes > 1) {
        notes.push(format!("{passes} backward passes per step"));
    }
    if !matches!(training.compression.as_str(), "" | "none") {
        notes.push(format!("{} cast to {}", key.dtype, training.compression));
    }
    if run.emulated {
        notes.push("nodes are emulated".into());
    }
    if run.oversubscribed {
        let on_gpus = back_ends::find(&run.transport)
            .is_some_and(|back_end| back_end.memory() == MemoryKind::Device);
        notes.push(format!("more ranks than {}", if on_gpus { "GPUs" } else { "cores" }));
    }
    let _ = writeln!(
        text,
        "{}: {} gradients, {:.1} MB, {} rank{} on {} node{} over {}{}{}; step time, median{}",
        training.workload,
        tuning.tensors,
        key.size_bytes as f64 / 1e6,
        key.ranks,
        if key.ranks == 1 { "" } else { "s" },
        key.nodes,
        if key.nodes == 1 { "" } else { "s" },
        run.transport,
        if notes.is_empty() { "" } else { "; " },
        notes.join(", "),
        over(rows),
    );
    let tied = best_and_tied(rows);
    let Some(((time, best), others)) = tied.split_first() else {
        let _ = writeln!(text, "  no case was measured correctly");
        return;
    };
    if !is_ranked(rows, time) {
        let _ = writeln!(text, "  one block per case: nothing can be ranked; the shortest was");
        line(best, "", "", text);
        return;
    }
    line(best, "best", "", text);
    for (_, row) in others.iter().take(8) {
        line(row, "tied", "", text);
    }
    if others.len() > 8 {
        let _ = writeln!(text, "  tied  and {} more, see rows.csv", others.len() - 8);
    }
    if others.iter().any(|(_, row)| over_best_low(row).is_some()) {
        let _ = writeln!(
            text,
            "  (of {} settings, those named best or tied contain the truly fastest in 95 % of runs)",
            rows.len()
        );
    }
    defaults(rows, best, text);
    let without = if time.p50_interval.is_none() { "times have no interval: " } else { "" };
    if let Some(change) = Change::of(rows, best) {
        let _ = writeln!(text, "  ({without}{change})");
        if change.is_more_than_the_effect() {
            let _ = writeln!(text, "  (nothing is recommended)");
        }
    } else if !without.is_empty() {
        let _ = writeln!(text, "  ({without}too few blocks)");
    }
    let _ = writeln!(text, "  ({})", scope(rows));
}

/// Settings can be told apart: times have intervals, or were compared with the fastest round by round.
fn is_ranked(rows: &[&StepRow], best: &Summary) -> bool {
    let is_compared = |row: &&StepRow| row.outcome.right().is_some_and(StepResult::is_compared);
    best.p50_interval.is_some() || rows.iter().any(is_compared)
}

/// The lower end of a row's time over that of the fastest, if they were compared round by round.
fn over_best_low(row: &StepRow) -> Option<f64> {
    row.outcome.right()?.confidence.over_best_low
}

/// A machine that changed its speed, and what its fastest setting gains.
#[derive(Clone, Copy)]
struct Change {
    /// The slowest level over the fastest, minus 1, in percent.
    percent: f64,
    /// By how much Horovod's default, or where it is not among the cases the slowest setting, is slower than the fastest.
    effect_percent: f64,
    /// The lower end of that.
    effect_percent_low: f64,
    is_default: bool,
}

impl Change {
    /// If the rows say that the machine changed its speed.
    fn of(rows: &[&StepRow], best: &StepRow) -> Option<Change> {
        let confidence = |row: &StepRow| row.outcome.right().map(|it| it.confidence.clone());
        let percents = rows.iter().filter_map(|row| confidence(row)?.speed_change_percent);
        let percent = percents.max_by(f64::total_cmp)?;
        let over_best = |row: &StepRow| {
            let confidence = confidence(row)?;
            Some((confidence.over_best?, confidence.over_best_low.unwrap_or(1.0)))
        };
        let (mib, ms, _) = HOROVOD_DEFAULTS[0];
        let default = default_row(rows, best, mib, ms).and_then(over_best);
        let all = rows.iter().filter_map(|row| over_best(row));
        let slowest = || all.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let (ratio, ratio_low) = default.or_else(slowest).unwrap_or((1.0, 1.0));
        Some(Change {
            percent,
            effect_percent: 100.0 * (ratio - 1.0),
            effect_percent_low: 100.0 * (ratio_low - 1.0),
            is_default: default.is_some(),
        })
    }

    /// No recommendation can rest on such a run. Load makes effects look larger, and makes them less certain. So their lower
    /// end counts.
    fn is_more_than_the_effect(&self) -> bool {
        self.percent > self.effect_percent_low
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { percent, effect_percent, effect_percent_low, is_default } = self;
        let other = if *is_default { "Horovod's default" } else { "the slowest setting" };
        write!(f, "the machine changed its speed by {percent:.0} %, and {other} is ")?;
        if *effect_percent < 0.5 {
            return f.write_str("no slower than the fastest");
        }
        write!(f, "{effect_percent:.0} % slower than the fastest")?;
        match effect_percent_low {
            low if *low >= 0.5 => write!(f, ", at least {low:.0} %"),
            _ => f.write_str(", or perhaps no slower"),
        }
    }
}

/// What intervals take as independent, if all take the same; nothing if there are none.
fn over(rows: &[&StepRow]) -> String {
    let of = |row: &&StepRow| Some(row.outcome.right()?.confidence.interval_over.clone());
    let levels: BTreeSet<String> = rows.iter().filter_map(of).collect();
    let mut levels = levels.iter().filter(|level| !level.is_empty());
    match (levels.next(), levels.next()) {
        (None, _) => String::new(),
        (Some(level), None) => format!(" with 95 % interval over {level}"),
        _ => " with 95 % interval".into(),
    }
}

/// Horovod's defaults with the control plane and algorithm of the best.
fn defaults(rows: &[&StepRow], best: &StepRow, text: &mut String) {
    for (mib, ms, since) in HOROVOD_DEFAULTS {
        match default_row(rows, best, mib, ms) {
            Some(row) => line(row, "", &(since.to_string() + &times_the_best(row)), text),
            None => {
                let with = if rows.iter().any(|row| has(row, mib, ms)) {
                    " with the fastest's control plane and algorithm"
                } else {
                    ""
                };
                let _ =
                    writeln!(text, "  {since} ({mib} MiB, {ms} ms) is not among the cases{with}");
            }
        }
    }
}

/// A row's time over that of the fastest, which blocks side by side tell, in words.
fn times_the_best(row: &StepRow) -> String {
    let confidence = row.outcome.right().map(|result| &result.confidence);
    let ratio = confidence.and_then(|it| it.over_best.zip(it.over_best_low));
    ratio.map_or(String::new(), |(ratio, low)| {
        format!(", {ratio:.2} times as long as the best, round by round (at least {low:.2})")
    })
}

/// The row of a default, with the control plane and algorithm of the best.
fn default_row<'r>(
    rows: &[&'r StepRow],
    best: &StepRow,
    mib: usize,
    ms: f64,
) -> Option<&'r StepRow> {
    let planes = |row: &StepRow| {
        let StepSetting { training, tuning, .. } = &row.setting;
        (tuning.control_plane.clone(), training.algorithm.clone())
    };
    let is_default = |row: &&&StepRow| has(row, mib, ms) && planes(row) == planes(best);
    rows.iter().find(is_default).copied()
}

/// The row has this fusion threshold and cycle time.
fn has(row: &StepRow, mib: usize, ms: f64) -> bool {
    let Tuning { fusion_threshold_bytes, cycle_time_ms, .. } = row.setting.tuning;
    (fusion_threshold_bytes, cycle_time_ms) == (mib << 20, ms)
}

/// A median with its interval.
fn ms_of(time: &Summary) -> String {
    let ms = |us: f64| format!("{:.1}", us / 1e3);
    let interval = time.p50_interval;
    let interval =
        interval.map_or(String::new(), |(low, high)| format!(" [{}, {}]", ms(low), ms(high)));
    format!("{} ms{interval}", ms(time.p50))
}

fn line(row: &StepRow, tag: &str, since: &str, text: &mut String) {
    let ms = |us: f64| format!("{:.1}", us / 1e3);
    let StepSetting { training, tuning, .. } = &row.setting;
    let result = row.outcome.measured();
    let time = result.map(|result| result.times.median());
    let interval = time.as_ref().and_then(|time| time.p50_interval);
    let interval =
        interval.map_or(String::new(), |(low, high)| format!(" [{}, {}]", ms(low), ms(high)));
    let line = format!(
        "  {tag:<5} {:>7} ms{interval:<18} {:<12} {:<18} {:>5} MiB  {:>4} ms  {:>5} messages  {since}",
        time.map_or("?".into(), |time| ms(time.p50)),
        tuning.control_plane,
        training.algorithm,
        mib(tuning.fusion_threshold_bytes),
        tuning.cycle_time_ms,
        result.map_or(0.0, |result| result.messages_p50),
    );
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests;
