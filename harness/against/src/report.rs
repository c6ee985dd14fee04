//! The comparison as text.

use std::fmt::Write;

use results::conclusion::Conclusion;
use results::statistics::Summary;

use measure::config::Host;

use crate::comparison::{CaseComparison, Comparison, Estimate, LongSteps, Overall};
use crate::plan::{Origin, Plan, Unrepresented};

/// Horovod differs from itself by more: the machine is too noisy for this case.
const NOISY: f64 = 0.05;

/// The report: conditions, a line per case, the worst first, groups, and the whole.
pub fn text(plan: &Plan, comparison: &Comparison) -> String {
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("texts grow");
    for condition in &plan.conditions {
        line(format!("# {condition}"));
    }
    for origin in &plan.origins {
        let Origin { name, host, .. } = origin;
        let &Host {
            wake_us,
            hand_over_us,
            take_back_us,
            loop_gradient_us,
            loop_message_us,
            framework_mib,
            ..
        } = host;
        line(format!(
            "# {name}: the framework's thread takes {wake_us} us to wake up from a wait, {hand_over_us} us to hand over a \
             gradient, and {take_back_us} us to take back its result; with each gradient the loop is busy for \
             {loop_gradient_us} us more than the engine's, and with each message for {loop_message_us} us; the framework has {framework_mib} MiB before gradients"
        ));
        let &Host { add_mb_us, cast_mb_us, cast_back_mb_us, .. } = host;
        if (add_mb_us, cast_mb_us) != (0.0, 0.0) {
            line(format!(
                "# {name}: PyTorch adds a megabyte of gradients in {add_mb_us} us, casts it to fp16 in {cast_mb_us} us, and \
                 back in {cast_back_mb_us} us"
            ));
        }
    }
    line("# step: median over blocks in ms, with exact 95 % interval from 6 blocks on".into());
    line("# ratio: kolo / Horovod, paired by block, with 95 % interval from 4 blocks on".into());
    line("# control: Horovod / Horovod in the same blocks".into());
    line(format!("{:>22}  {:>22}  {:>22}  {:>7}  case", "kolo", "Horovod", "ratio", "control"));
    let mut cases: Vec<&CaseComparison> = comparison.cases.iter().collect();
    let error = |case: &CaseComparison| case.ratio.map_or(f64::INFINITY, |it| it.error());
    cases.sort_by(|a, b| error(b).total_cmp(&error(a)));
    for case in &cases {
        let control = case.control.map_or("-".into(), |it| format!("{:.3}", it.ratio));
        let (kolo, horovod) = (step(&case.kolo), step(&case.horovod));
        let ratio = estimate(case.ratio);
        line(format!("{kolo:>22}  {horovod:>22}  {ratio:>22}  {control:>7}  {}", case.name));
    }
    for case in &comparison.cases {
        case.failed.iter().for_each(|why| line(format!("failed: {}: {why}", case.name)));
    }
    plan.left_out.iter().for_each(|(why, count)| line(left_out(*why, *count)));
    for case in comparison.cases.iter().filter(|it| it.control.is_some_and(|it| it.error() > NOISY))
    {
        let percent = 100.0 * case.control.map_or(0.0, |it| it.error());
        line(format!(
            "too noisy to compare: {}: Horovod differs from itself by {percent:.1} %",
            case.name
        ));
    }
    for case in cases.iter().filter(|case| case.moved_blocks > 0) {
        line(format!(
            "the hypervisor moved the processors: {}: {} of {} blocks do not count",
            case.name,
            case.moved_blocks,
            case.moved_blocks + case.blocks
        ));
    }
    for case in cases.iter().filter(|case| case.kolo_long.long + case.horovod_long.long > 0) {
        let words = |of: LongSteps| format!("{} of {} steps", of.long, of.steps);
        line(format!(
            "long steps, of more than twice their block's median: {}: kolo {}, Horovod {}",
            case.name,
            words(case.kolo_long),
            words(case.horovod_long)
        ));
    }
    for group in &comparison.groups {
        let correlation = group
            .rank_correlation
            .map_or(String::new(), |it| format!("rank correlation {it:.3}, "));
        line(format!(
            "{}, {} settings: {correlation}kolo's best is {}; with it Horovod takes {:.1} % longer than with its own best",
            group.name,
            group.settings,
            group.best,
            100.0 * group.regret
        ));
    }
    comparison.overall.iter().for_each(|overall| line(in_words(overall)));
    text
}

/// The conclusion over all cases; without verdict if none was compared.
pub fn conclusion(comparison: &Comparison) -> Conclusion {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let verdict = |overall: &Overall| {
        let those = if overall.cases == 1 { "case" } else { "cases" };
        format!(
            "Steps by kolo's engine and by Horovod differ by {} in the median and {} at most, over {} {those}; Horovod \
             differs from itself by {} in the median and {} at most.",
            percent(overall.median_error),
            percent(overall.worst_error),
            overall.cases,
            percent(overall.median_control),
            percent(overall.worst_control),
        )
    };
    let verdicts = comparison.overall.iter().map(verdict).collect();
    Conclusion { verdicts, ..Conclusion::default() }
}

/// A reason for which cases are left out.
pub fn left_out(why: Unrepresented, count: usize) -> String {
    let cases = if count == 1 { "1 case is" } else { &format!("{count} cases are") };
    format!("{cases} left out: {why}")
}

fn in_words(overall: &Overall) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let agreed = match overall.distinct_pairs {
        0 => "no pair of settings differs beyond its intervals".into(),
        pairs => format!("the same in {} of {pairs} pairs of settings", overall.ordered_alike),
    };
    let lines = [
        ("median |ratio - 1|", percent(overall.median_error)),
        ("largest |ratio - 1|", percent(overall.worst_error)),
        ("within 5 %", format!("{} of cases", percent(overall.close))),
        (
            "beyond the control",
            format!(
                "{} in the median, {} at most, {} of cases within 5 %",
                percent(overall.median_beyond_control),
                percent(overall.worst_beyond_control),
                percent(overall.close_beyond_control)
            ),
        ),
        ("bias", format!("{:+.1} %", 100.0 * overall.bias)),
        (
            "control",
            format!(
                "Horovod differs from itself by {} in the median, {} at most",
                percent(overall.median_control),
                percent(overall.worst_control)
            ),
        ),
        ("faster setting", agreed),
    ];
    let lines = lines.map(|(what, value)| format!("  {what:<20} {value}"));
    let all = match overall.cases {
        1 => "the one case".to_string(),
        cases => format!("all {cases} cases"),
    };
    format!("{all}\n{}", lines.join("\n"))
}

fn step(summary: &Option<Summary>) -> String {
    match summary {
        None => "-".into(),
        Some(Summary { p50, p50_interval: None, .. }) => format!("{p50:.2}"),
        Some(Summary { p50, p50_interval: Some((low, high)), .. }) => {
            format!("{p50:.2} [{low:.2}, {high:.2}]")
        }
    }
}

fn estimate(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "-".into(),
        Some(Estimate { ratio, interval: None }) => format!("{ratio:.3}"),
        Some(Estimate { ratio, interval: Some((low, high)) }) => {
            format!("{ratio:.3} [{low:.3}, {high:.3}]")
        }
    }
}
