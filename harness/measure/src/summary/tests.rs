use super::*;
use results::row::{CaseOutcome, Times, Training};

fn row(algorithm: &str, mib: usize, ms: f64, interval: Option<(f64, f64)>) -> StepRow {
    let key = Key {
        case: format!("{algorithm}/{mib}/{ms}"),
        ranks: 4,
        nodes: 2,
        local_size: Some(2),
        ..Key::default()
    };
    let training =
        Training { algorithm: algorithm.into(), workload: "tiny".into(), ..Training::default() };
    let tuning = Tuning {
        control_plane: "bitvector".into(),
        fusion_threshold_bytes: mib << 20,
        cycle_time_ms: ms,
        ..Tuning::default()
    };
    let time = Summary {
        p50: interval.map_or(1.0, |(low, high)| (low + high) / 2.0),
        p50_interval: interval,
        ..Summary::default()
    };
    let result = StepResult { times: Times::of(&time), ..StepResult::default() };
    let setting = StepSetting { key, training, tuning, ..StepSetting::default() };
    StepRow { setting, outcome: CaseOutcome::Ok(result), bound_us: 0.0 }
}

#[test]
fn best_tied_and_defaults_are_named() {
    let outcome = CaseOutcome::Wrong { result: StepResult::default(), reason: "3 wrong".into() };
    let wrong = StepRow { outcome, ..row("x", 1, 1.0, None) };
    let rows = [
        row("ring", 128, 1.0, Some((30e3, 32e3))),
        row("ring", 64, 5.0, Some((40e3, 44e3))),
        row("ring", 2, 1.0, Some((20e3, 22e3))),
        row("tree", 2, 1.0, Some((21e3, 29e3))),
        wrong,
    ];
    let text = text(&rows);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].contains("best") && lines[1].contains("21.0 ms [20.0, 22.0]"), "{text}");
    assert!(lines[2].contains("tied") && lines[2].contains("tree"), "{text}");
    assert!(lines[3].ends_with("since v0.21") && lines[3].contains("31.0 ms"), "{text}");
    assert!(lines[4].ends_with("before") && lines[4].contains("42.0 ms"), "{text}");
    assert!(lines[5].contains(SCOPE_OF_NODES), "{text}");
    assert!(lines[6].starts_with("WRONG       x/1/1: 3 wrong"), "{text}");
    assert_eq!(lines.len(), 7);
    let conclusion = conclusion(&rows);
    assert_eq!(
        conclusion.verdicts,
        [
            "tiny on 4 ranks, 2 nodes: a step takes 21.0 ms [20.0, 22.0] with bitvector, ring, 2 MiB and 1 ms. \
              1 other setting ties with it. With Horovod's default since v0.21 and the same control plane and \
              algorithm a step takes 31.0 ms [30.0, 32.0]."
        ]
    );
    assert_eq!(conclusion.limits, ["Best for this engine on these nodes."]);
    let emulated = rows.map(|mut row| {
        row.setting.run.emulated = true;
        row
    });
    let limits = super::conclusion(&emulated).limits;
    assert_eq!(limits, ["Best for this engine on this machine, not for a cluster."]);
}

#[test]
fn a_clear_gain_over_the_default_has_lines_to_copy() {
    let best = || {
        let mut row = row("mpi-allreduce", 4, 2.5, Some((20e3, 22e3)));
        row.setting.training.cache_capacity = 1024;
        row
    };
    let default = |low: f64| {
        let mut row = row("mpi-allreduce", 128, 1.0, Some((30e3, 32e3)));
        if let CaseOutcome::Ok(result) = &mut row.outcome {
            (result.confidence.over_best, result.confidence.over_best_low) = (Some(1.5), Some(low));
        }
        row
    };
    let said = conclusion(&[best(), default(1.4)]).to_copy;
    assert_eq!(said[0].purpose, "for a job script, on 4 ranks on 2 nodes");
    let lines = [
        "export HOROVOD_FUSION_THRESHOLD=4194304",
        "export HOROVOD_CYCLE_TIME=2.5",
        "export HOROVOD_CACHE_CAPACITY=1024",
    ];
    assert_eq!(said[0].lines, lines);
    // The default ties, or is not there, or the allreduce is not Horovod's.
    assert_eq!(conclusion(&[best(), default(0.9)]).to_copy, []);
    assert_eq!(conclusion(&[best()]).to_copy, []);
    let ours = [best(), default(1.4)].map(|mut row| {
        row.setting.training.algorithm = "ring".into();
        row
    });
    assert_eq!(conclusion(&ours).to_copy, []);
    let other_plane = {
        let mut row = default(1.4);
        row.setting.tuning.control_plane = "coordinator".into();
        row
    };
    let text = text(&[best(), other_plane]);
    let words =
        "(128 MiB, 1 ms) is not among the cases with the fastest's control plane and algorithm";
    assert!(text.contains(words), "{text}");
}

#[test]
fn worlds_are_compared_by_their_throughput_per_rank() {
    let world = |nodes: usize, passes_ms: f64, step_us: f64| {
        let mut row = row("ring", 128, 1.0, Some((step_us, step_us)));
        (row.setting.key.nodes, row.setting.key.ranks) = (nodes, 2 * nodes);
        row.setting.training.backward_ms = passes_ms;
        row
    };
    let said = |rows: &[StepRow]| conclusion(rows).verdicts[0].clone();
    let weak = said(&[world(4, 60.0, 150e3), world(1, 60.0, 75e3), world(2, 60.0, 100e3)]);
    assert_eq!(
        weak,
        "Scaling of tiny over : relative to 2 ranks on 1 node, throughput per rank is 75 % with 4 ranks on 2 nodes, 50 % \
             with 8 ranks on 4 nodes; each with its fastest setting."
    );
    let strong = said(&[world(1, 60.0, 75e3), world(2, 30.0, 50e3)]);
    assert!(
        strong.contains("on 1 node, throughput per rank is 75 % with 4 ranks on 2 nodes; each"),
        "{strong}"
    );
    assert!(said(&[world(1, 60.0, 75e3)]).starts_with("tiny on 2 ranks, 1 node: "));
}

#[test]
fn without_intervals_nothing_is_ranked() {
    let text = text(&[row("ring", 2, 1.0, None)]);
    assert!(text.contains("nothing can be ranked") && !text.contains("best "), "{text}");
    let conclusion = conclusion(&[row("ring", 2, 1.0, None)]);
    assert!(conclusion.verdicts[0].contains("nothing can be ranked"), "{conclusion:?}");
}

/// Without intervals of times, settings are still compared round by round.
#[test]
fn a_machine_that_changed_its_speed_by_more_than_the_effect_recommends_nothing() {
    let measured = |mib, ms, p50: f64, over_best: f64, percent| {
        let mut row = row("ring", mib, ms, None);
        let result = row.outcome.right_mut().unwrap();
        result.times = Times::of(&Summary { p50, ..Summary::default() });
        result.effort.blocks = 2;
        result.confidence.speed_change_percent = Some(percent);
        result.confidence.over_best = Some(over_best);
        result.confidence.over_best_low = Some(over_best - 0.02);
        row
    };
    let rows =
        |percent| [measured(4, 1.0, 20e3, 1.0, percent), measured(128, 1.0, 22e3, 1.1, percent)];
    let little = text(&rows(5.0));
    assert!(little.contains("best     20.0 ms  "), "{little}");
    assert!(
            little.contains(
                "  (times have no interval: the machine changed its speed by 5 %, and Horovod's default is 10 % slower than \
                 the fastest, at least 8 %)\n"
            ),
            "{little}"
        );
    assert!(!little.contains("nothing is recommended"), "{little}");
    assert!(text(&rows(25.0)).contains("  (nothing is recommended)\n"));
    let verdict = |percent| conclusion(&rows(percent)).verdicts.remove(0);
    assert!(verdict(5.0).starts_with("tiny on 4 ranks, 2 nodes: a step takes 20.0 ms with"));
    assert!(verdict(25.0).starts_with(
            "tiny on 4 ranks, 2 nodes: nothing is recommended, because the machine changed its speed by 25 %, and Horovod's \
             default is 10 % slower than the fastest, at least 8 %. The fastest: a step takes 20.0 ms with"
        ));
    // 10 % that may be 8 %, or nothing.
    assert!(text(&rows(9.0)).contains("  (nothing is recommended)\n"));
    let mut uncertain = rows(5.0);
    uncertain[1].outcome.right_mut().unwrap().confidence.over_best_low = Some(0.9);
    assert!(text(&uncertain).contains("slower than the fastest, or perhaps no slower)\n"));
    assert!(text(&uncertain).contains("  (nothing is recommended)\n"));
    assert!(little.contains(
            "Horovod's default since v0.21, 1.10 times as long as the best, round by round (at least 1.08)\n"
        ));
}

#[test]
fn a_missing_default_is_reported() {
    let text = text(&[row("ring", 2, 1.0, Some((1.0, 2.0)))]);
    assert!(text.contains("before (64 MiB, 5 ms) is not among the cases"), "{text}");
}
