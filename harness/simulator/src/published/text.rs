//! The comparison as text: scores first, then every point, the worst of each group first.

use std::fmt::Write as _;

use super::score::{AllReduceScore, Score, groups};
use super::{Compared, Fitted, Group, LARGE, Points, Residuals, SMALL, Training, UsedFor, Verdict};

/// The comparison of all points.
pub fn text(points: &Points, compared: &[Compared]) -> String {
    let mut text = String::from(
        "SIMULATED beside published. Efficiency: throughput / (ranks x that of one). Lost: 1 - efficiency.\n",
    );
    for (fitted, heading) in [
        (false, "test points: no parameter was fitted to them"),
        (true, "calibration points: parameters come from them"),
    ] {
        let of: Vec<&Compared> = compared.iter().filter(|point| point.fitted == fitted).collect();
        scores(&mut text, heading, &of);
    }
    let residuals = Residuals::of(compared.iter());
    let _ = writeln!(
        text,
        "\nranges: seeds, parameters, and how far points for calibration are from their simulation"
    );
    for line in Group::TRAINING.into_iter().filter_map(|group| residuals.in_words(group)) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(
        text,
        "\nevery point; met: within {:.0} %, or {:.0} % for messages below 1 MiB; (c): for calibration",
        100.0 * LARGE,
        100.0 * SMALL
    );
    for group in groups(compared.iter()) {
        let mut own: Vec<&Compared> =
            compared.iter().filter(|point| point.group == group).collect();
        own.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
        let _ = writeln!(text, "\n{group}");
        own.iter().for_each(|point| line(&mut text, point));
    }
    let without_base = || points.training.iter().filter(|point| point.single_samples_s.is_none());
    if !points.left_out.is_empty() || without_base().next().is_some() {
        let _ = writeln!(text, "\nnot simulated");
    }
    for Training { name, .. } in without_base() {
        let _ = writeln!(text, "  {name:<54} no base: single_samples_s is missing");
    }
    for left_out in &points.left_out {
        let _ = writeln!(
            text,
            "  {:<54} efficiency {:.3}: {}",
            left_out.name, left_out.efficiency, left_out.why
        );
    }
    calibration(&mut text, points);
    text
}

/// The scores of groups of points, and of all training across nodes.
fn scores(text: &mut String, heading: &str, all: &[&Compared]) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}");
    let mut rows: Vec<(&str, Score)> = Vec::new();
    for group in groups(all.iter().copied()) {
        let own = all.iter().copied().filter(|point| point.group == group);
        rows.extend(Score::of(own).map(|score| (group.name(), score)));
    }
    let across = all.iter().copied().filter(|point| point.group.is_across_nodes());
    rows.extend(Score::of(across).map(|score| ("across nodes, both", score)));
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "  {:<24} points   |error| of efficiency, points of 100 (median)     lost, simulated / published  too   \
             rank         published within   range says",
            "training"
        );
        let _ = writeln!(
            text,
            "  {:<24}          simulated  perfect  bandwidth  best constant      median [quartiles]       fast  \
             correlation  the range (width)  nothing",
            ""
        );
    }
    for (name, score) in rows {
        let hundred = |value: f64| format!("{:.1}", 100.0 * value);
        let optional = |value: Option<f64>| value.map_or("-".into(), hundred);
        let lost = score
            .lost
            .map_or("-".into(), |[low, middle, high]| format!("{middle:.2} [{low:.2}, {high:.2}]"));
        let _ = writeln!(
            text,
            "  {name:<24} {:>6}  {:>9}  {:>7}  {:>9}  {:>13}  {lost:>22}  {:>5}  {:>11}  {:<17} {}",
            score.points,
            hundred(score.error),
            hundred(score.perfect_error),
            hundred(score.bandwidth_bound_error),
            optional(score.constant_error),
            score.too_fast,
            score.rank_correlation.map_or("-".into(), |value| format!("{value:.2}")),
            format!("{} ({:.1})", score.covered, 100.0 * score.range_width),
            score.says_nothing,
        );
    }
    let allreduces = [Group::LatencyBound, Group::BandwidthBound].into_iter().filter_map(|group| {
        let own = all.iter().copied().filter(|point| point.group == group);
        Some((group, AllReduceScore::of(own)?))
    });
    let mut is_first = true;
    for (group, score) in allreduces {
        if std::mem::take(&mut is_first) {
            let _ = writeln!(
                text,
                "  {:<24} points   |error|, % (median): simulated  bandwidth   published within the range",
                "allreduce"
            );
        }
        let _ = writeln!(
            text,
            "  {group:<24} {:>6}  {:>30.1}  {:>9.1}   {}",
            score.points,
            100.0 * score.error,
            100.0 * score.bandwidth_bound_error,
            score.covered
        );
    }
}

/// What each part of the model brings.
pub fn ablation(rows: &[(String, Option<Score>)]) -> String {
    let mut text = String::from(
        "\ntest points across nodes, without parts of the model\n                                                     \
         |error|, points of 100   lost, simulated / published   rank correlation\n",
    );
    for (name, score) in rows {
        let Some(score) = score else { continue };
        let lost = score.lost.map_or("-".into(), |[_, middle, _]| format!("{middle:.2}"));
        let rank = score.rank_correlation.map_or("-".into(), |value| format!("{value:.2}"));
        let _ =
            writeln!(text, "  {name:<50} {:>22.1}   {lost:>27}   {rank:>16}", 100.0 * score.error);
    }
    text
}

fn line(text: &mut String, point: &Compared) {
    let efficiency =
        |value: f64| point.efficiency(value).map(|part| format!("{:.1}", 100.0 * part));
    let (published, simulated, unit) =
        match (efficiency(point.published), efficiency(point.simulated)) {
            (Some(published), Some(simulated)) => (published, simulated, "%"),
            _ => (format!("{:.1}", point.published), format!("{:.1}", point.simulated), point.unit),
        };
    let verdict = match point.verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
    };
    let _ = writeln!(
        text,
        "  {:<54} {published:>7} {unit:<8} simulated {simulated:>7} {:+6.1} %  {verdict}{}",
        point.point,
        100.0 * point.error,
        match (point.fitted, point.efficiency(point.published) > Some(1.0)) {
            (true, false) => " (c)",
            (false, true) => " (over 100 %)",
            (true, true) => " (c, over 100 %)",
            (false, false) => "",
        },
    );
    if point.verdict == Verdict::Missed && !point.why.is_empty() {
        let _ = writeln!(text, "    {}", point.why);
    }
}

/// What parameters come from.
fn calibration(text: &mut String, points: &Points) {
    let used = points.series.iter().filter(|series| series.used_for == UsedFor::Calibration);
    let used: Vec<String> =
        used.map(|series| format!("  {:<16} {}", series.name, series.why)).collect();
    if !used.is_empty() {
        let _ = writeln!(text, "\nseries for calibration\n{}", used.join("\n"));
    }
    for Fitted { parameter, value, on, how } in &points.fitted {
        let _ = writeln!(text, "fitted: {parameter} = {value}, on {on}: {how}");
    }
}
