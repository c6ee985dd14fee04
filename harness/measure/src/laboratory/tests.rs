use super::*;

fn scored(machine: &str, design: usize, sweeps: u64) -> Score {
    let machine = MACHINES.iter().find(|known| known.name == machine).unwrap();
    score(machine, DESIGNS[design], sweeps).unwrap()
}

/// A part of what `kolo validate --intervals` runs.
#[test]
fn intervals_contain_the_truth_where_their_assumptions_hold() {
    for machine in MACHINES.iter().filter(|machine| machine.holds) {
        for design in [DESIGNS[2], DESIGNS[6]] {
            let score = score(machine, design, 20).unwrap();
            assert!(score.printed_percent >= 80.0, "{}", score.line());
            assert!(score.covered_percent >= 90.0, "{}", score.line());
            assert!(score.negotiation_covered_percent >= 90.0, "{}", score.line());
            // One of each sweep.
            assert!(score.bandwidth_covered_percent >= 85.0, "{}", score.line());
            assert!(score.best_is_tied_percent >= 90.0, "{}", score.line());
        }
    }
}

/// The table can show a miss: steps of one block that differs from others tell nothing about those.
#[test]
fn blocks_that_differ_show_in_the_width() {
    let (same, differ) = (scored("independent steps", 2, 15), scored("blocks differ", 2, 15));
    assert!(differ.width_percent > 2.0 * same.width_percent, "{same:?} {differ:?}");
    assert_eq!((same.interval_over.as_str(), same.blocks_mean), ("blocks", 6.0));
    let launches = scored("launches differ", 6, 10);
    assert_eq!((launches.interval_over.as_str(), launches.blocks_mean), ("launches", 10.0));
}

/// A few blocks do not show how much blocks differ, or whether steps follow each other.
#[test]
fn few_blocks_have_no_interval() {
    for machine in ["independent steps", "steps that follow each other"] {
        let few = scored(machine, 1, 5);
        assert_eq!((few.printed_percent, few.interval_over.as_str()), (0.0, ""), "{few:?}");
    }
}

/// Rounds that differ widen intervals, and not the comparison with the fastest.
#[test]
fn a_comparison_of_rounds_does_not_see_what_they_share() {
    let (same, differ) = (scored("independent steps", 2, 15), scored("rounds differ", 2, 15));
    assert!(differ.width_percent > 4.0 * same.width_percent, "{same:?} {differ:?}");
    assert!(differ.covered_percent >= 90.0, "{differ:?}");
    assert!(differ.tied_mean < same.tied_mean + 1.0, "{same:?} {differ:?}");
}

#[test]
fn the_same_seeds_give_the_same_score() {
    assert_eq!(scored("blocks differ", 2, 5), scored("blocks differ", 2, 5));
    let stopped = scored("independent steps", 7, 10);
    assert!(stopped.blocks_mean < 10.0 && stopped.blocks_mean >= 3.0, "{stopped:?}");
}

/// A machine that drifts is reported, and intervals contain what it may do later; a steady one is not.
#[test]
fn sweeps_of_a_machine_that_drifts_say_so() {
    let (steady, drift) = (scored("independent steps", 3, 15), scored("drift", 3, 40));
    assert!(steady.unsteady_percent <= 7.0, "{steady:?}");
    assert!(drift.unsteady_percent >= 90.0, "{drift:?}");
    assert!(drift.printed_percent >= 95.0 && drift.covered_percent >= 88.0, "{drift:?}");
    assert!(drift.bandwidth_covered_percent >= 85.0, "{drift:?}");
}

/// Launches at different speeds are what an interval over launches is about; rounds of a launch widen it.
#[test]
fn an_interval_over_launches_stays_if_the_speed_changes_between_them() {
    let (between, within) = (scored("launches differ", 6, 15), scored("rounds differ", 6, 15));
    assert!(between.unsteady_percent >= 80.0 && between.printed_percent >= 90.0, "{between:?}");
    assert!(within.width_percent > 1.5 * between.width_percent, "{between:?} {within:?}");
}

/// The first step that counts would be half as slow again, without a longer warm-up.
#[test]
fn a_warm_up_grows_until_the_first_steps_are_like_the_others() {
    let (warm, cold) = (scored("blocks differ", 2, 15), scored("cold first steps", 2, 15));
    assert!(cold.covered_percent >= 90.0, "{cold:?}");
    assert_eq!(cold.blocks_mean, 6.0, "each block once: {cold:?}");
    assert!(cold.width_percent < warm.width_percent, "{warm:?} {cold:?}");
}

/// Sweeps that stop at a narrow interval do not stop at a lucky one.
#[test]
fn stopping_at_a_narrow_interval_does_not_bias() {
    let stopped = scored("blocks differ", 7, 40);
    assert!(stopped.covered_percent >= 90.0, "{stopped:?}");
    assert!(stopped.bias_percent.abs() <= 0.5, "{stopped:?}");
}

/// Without that, a fifth of the blocks would be half as slow again, and the intervals as wide.
#[test]
fn a_round_at_another_speed_is_measured_again() {
    let (steady, disturbed) =
        (scored("blocks differ", 2, 15), scored("one round disturbed", 2, 15));
    assert!(disturbed.unsteady_percent >= 95.0, "{disturbed:?}");
    assert!(disturbed.printed_percent >= 90.0, "{disturbed:?}");
    assert!(disturbed.covered_percent >= 90.0, "{disturbed:?}");
    assert_eq!(disturbed.blocks_mean, 6.0, "each block once: {disturbed:?}");
    assert!(disturbed.width_percent < steady.width_percent, "{steady:?} {disturbed:?}");
}

/// A quarter of the blocks is half as slow again, here and there: that is what the machine does. Without those blocks, medians
/// would be too short.
#[test]
fn blocks_disturbed_at_random_are_not_measured_again() {
    let disturbed = scored("one block in four disturbed", 3, 20);
    assert!(disturbed.unsteady_percent <= 20.0, "{disturbed:?}");
    assert!(disturbed.printed_percent >= 85.0, "{disturbed:?}");
    assert!(disturbed.covered_percent >= 90.0, "{disturbed:?}");
    assert!(disturbed.bandwidth_covered_percent >= 85.0, "{disturbed:?}");
}

/// A sweep that is resumed when everything is done concludes the same: intervals do not become wider again.
#[test]
fn resuming_a_sweep_that_is_done_changes_nothing() {
    let machine = MACHINES.iter().find(|known| known.name == "drift").unwrap();
    let drawn = Drawn::of(machine);
    let (plan, launch) = (plan(DESIGNS[2], machine.ranks(), 3), [Launch::now()]);
    let random = ChaCha8Rng::seed_from_u64(3);
    let mut executor = Synthetic::new(machine, &drawn, settings(), random);
    executor.launch();
    let mut kept = Kept::default();
    let mut conclude = |kept: &mut Kept| {
        let earlier =
            Earlier { rows: kept.rows.clone(), blocks: kept.earlier(), ..Earlier::default() };
        let (hidden, course) = (ProgressBar::hidden(), Course::default());
        let report = run(&plan, kept, earlier, &launch, &course, &mut executor, &hidden).unwrap();
        assert!(report.round_effect.is_some(), "a drift of 10 %");
        kept.rows.clone()
    };
    let first = conclude(&mut kept);
    assert_eq!(first.len(), SETTINGS);
    assert_eq!(conclude(&mut kept), first);
    assert_eq!(conclude(&mut kept), first);
}
