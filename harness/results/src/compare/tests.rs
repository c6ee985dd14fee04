//! Comparisons of runs whose truth is known.

use std::fs;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use serde_json::json;

use super::*;

/// How times of blocks are distributed around the usual one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// Normal, with a deviation of 2 %.
    Normal,
    /// Never shorter, and exponentially rarer the longer, with a deviation of 2 %.
    Skewed,
}

impl Noise {
    fn factor(self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Noise::Normal => {
                1.0 + 0.02 * <StandardNormal as Distribution<f64>>::sample(&StandardNormal, random)
            }
            Noise::Skewed => 1.0 + 0.02 * <Exp1 as Distribution<f64>>::sample(&Exp1, random),
        }
    }
}

/// A run of cases whose blocks take that long, but for noise.
fn noisy(noise: Noise, blocks: usize, times_us: &[f64], random: &mut ChaCha8Rng) -> Run {
    let mut times = |time_us: f64| {
        let blocks: Vec<f64> = (0..blocks).map(|_| time_us * noise.factor(random)).collect();
        Times::of_values(&blocks)
    };
    let cases = times_us.iter().enumerate();
    let cases = cases.map(|(case, time_us)| (format!("step case-{case:04}"), times(*time_us)));
    Run { cases: cases.collect(), workloads: ["resnet50".to_string()].into(), ..Run::default() }
}

/// Runs that took turns.
fn in_turns(mut runs: Vec<Run>) -> Vec<Run> {
    for run in &mut runs {
        run.launch = Some(json!({"interleaved": {"session": "one"}}));
    }
    runs
}

/// A run of cases whose blocks take that long, but for normal noise of 2 %.
fn run(cases: usize, blocks: usize, time_us: f64, seed: u64) -> Run {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    noisy(Noise::Normal, blocks, &vec![time_us; cases], &mut random)
}

fn is_told(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Slower | Verdict::Faster)
}

/// Of so many runs with a probability of 5 % each, more than this many are found in less than 1 of 1000 series: the 99.9 %
/// quantile of the binomial distribution.
fn most_of(comparisons: u64) -> u64 {
    use statrs::distribution::{Binomial, DiscreteCDF};
    Binomial::new(0.05, comparisons).unwrap().inverse_cdf(0.999)
}

/// In how many comparisons of equals anything at all is said to differ: a case, all together, or the runs.
fn wrong(comparisons: u64, cases: usize, runs: usize, noise: Noise, takes_turns: bool) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(cases as u64 + 1000 * runs as u64);
    let (mut wrong, mut tables) = (0, Tables::default());
    for _ in 0..comparisons {
        // Few enough to be quick, and enough that a case of them can be told from its equal.
        let blocks = if takes_turns { 12 } else { 8 };
        let times_us = vec![5e4; cases];
        let mut all: Vec<Run> =
            (0..runs).map(|_| noisy(noise, blocks, &times_us, &mut random)).collect();
        if takes_turns {
            all = in_turns(all);
        }
        let found = Comparisons::with(&all[0], &all[1..], 0.02, &mut tables).unwrap();
        let of_pair = |pair: &Comparison| {
            is_told(pair.verdict)
                || pair.overall.as_ref().is_some_and(|overall| is_told(overall.verdict))
                || pair.cases.iter().any(|case| is_told(case.verdict))
        };
        let differs = found.pairs.iter().any(of_pair);
        assert!(differs || !is_told(found.verdict));
        wrong += u64::from(differs);
    }
    wrong
}

/// Whole comparisons, with everything that they say. The bound allows for the number of comparisons: 73 of 1000.
fn five_percent_of_a_thousand_are_wrong(takes_turns: bool) {
    assert_eq!(most_of(1000), 73);
    for cases in [1, 12, 48] {
        for noise in [Noise::Normal, Noise::Skewed] {
            let found = wrong(1000, cases, 2, noise, takes_turns);
            println!("{cases} cases, {noise:?}, in turns: {takes_turns}: {found} of 1000");
            assert!(found <= most_of(1000), "{cases} {noise:?} {takes_turns}: {found}");
        }
    }
}

#[test]
fn of_a_thousand_comparisons_of_equals_five_percent_say_that_anything_differs() {
    five_percent_of_a_thousand_are_wrong(false);
}

#[test]
fn of_a_thousand_comparisons_of_equals_in_turns_five_percent_say_that_anything_differs() {
    five_percent_of_a_thousand_are_wrong(true);
}

/// What is said of some cases leaves the others no larger error.
#[test]
fn equals_among_cases_that_differ_are_told_from_each_other_in_five_percent() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut tables = Tables::default();
    let usual_us = [5e4; 24];
    let slower_us: Vec<f64> = (0..24).map(|case| if case < 12 { 5e4 } else { 1.2 * 5e4 }).collect();
    let mut wrong = 0;
    for _ in 0..300 {
        let mut of = |times_us: &[f64]| noisy(Noise::Normal, 16, times_us, &mut random);
        let (first, second) = (of(&usual_us), of(&slower_us));
        let found = compare_all(&first, &[&second], 0.04, &mut tables).unwrap().remove(0);
        let is_equal = |case: &&Compared| case.case.as_str() < "step case-0012";
        let mut equals = found.cases.iter().filter(is_equal);
        assert_eq!(equals.clone().count(), 12);
        wrong += u64::from(equals.any(|case| is_told(case.verdict)));
        let slower = found.cases.iter().filter(|case| !is_equal(case));
        let slower = slower.filter(|case| case.verdict == Verdict::Slower).count();
        assert_eq!((slower, found.verdict), (12, Verdict::Slower));
    }
    println!("equals among cases that differ: {wrong} of 300");
    assert!(wrong <= most_of(300), "{wrong}");
}

#[test]
fn of_comparisons_of_several_equals_five_percent_say_that_anything_differs() {
    for takes_turns in [false, true] {
        let found = wrong(400, 12, 4, Noise::Skewed, takes_turns);
        println!("4 runs, in turns: {takes_turns}: {found} of 400");
        assert!(found <= most_of(400), "{takes_turns}: {found}");
    }
}

/// Errors of single cases would add up.
#[test]
fn verdicts_of_many_cases_take_more_than_their_intervals() {
    let found = compare(&run(1000, 12, 5e4, 1), &run(1000, 12, 5e4, 2), 0.02).unwrap();
    let excludes_1 = |ratio: Ratio| ratio.low > 1.0 || ratio.high < 1.0;
    let alone = found.cases.iter().filter(|case| excludes_1(case.ratio.unwrap())).count();
    // 5 % of 1000, with a deviation of 7.
    assert!((28..=72).contains(&alone), "{alone}");
    assert!(!found.cases.iter().any(|case| is_told(case.verdict)));
    assert!(found.cases.iter().all(|case| {
        let (alone, joint) = (case.ratio.unwrap(), case.joint.unwrap());
        joint.low < alone.low && alone.high < joint.high
    }));
    let overall = found.overall.clone().unwrap();
    assert_eq!(overall.ratio.verdict(0.005), Verdict::Same, "{overall:?}");
    assert!(
        found
            .text(false)
            .contains("verdicts take more, so that all of them hold together with 95 %\n")
    );
}

/// A case that is 3 % slower, among others that are not: found in how many of so many comparisons, with as many blocks as
/// the tool asks for after a few; and in how many anything else is said to differ, and the mean number of blocks.
fn told(comparisons: u64, cases: usize, noise: Noise, takes_turns: bool) -> (u64, u64, f64) {
    const FIRST: usize = 8;
    let mut random = ChaCha8Rng::seed_from_u64(cases as u64);
    let (mut told, mut wrong, mut all_blocks) = (0, 0, 0);
    let times_us = vec![5e4; cases];
    let slower_us: Vec<f64> =
        (0..cases).map(|case| if case == 0 { 1.03 * 5e4 } else { 5e4 }).collect();
    let mut tables = Tables::default();
    let mut compared =
        |both: &[Run]| compare_all(&both[0], &[&both[1]], 0.03, &mut tables).unwrap().remove(0);
    for _ in 0..comparisons {
        // More blocks go on from the first ones.
        let both = |blocks: usize, seed: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut one = |times_us: &[f64]| {
                let mut run = noisy(noise, 0, times_us, &mut random);
                for (at, times) in run.cases.values_mut().enumerate() {
                    let mut random = ChaCha8Rng::seed_from_u64(random.random());
                    let values: Vec<f64> =
                        (0..blocks).map(|_| times_us[at] * noise.factor(&mut random)).collect();
                    *times = Times::of_values(&values);
                }
                run
            };
            let both = vec![one(&times_us), one(&slower_us)];
            if takes_turns { in_turns(both) } else { both }
        };
        let seed = random.random();
        let first = both(FIRST, seed);
        let needed = compared(&first).needed.unwrap();
        let blocks = needed.blocks.unwrap().max(FIRST);
        all_blocks += blocks;
        let whole = both(blocks, seed);
        let found = compared(&whole);
        let is_slow = |case: &&Compared| case.case == "step case-0000";
        let slow = found.cases.iter().find(is_slow).unwrap();
        told += u64::from(slow.verdict == Verdict::Slower && found.verdict == Verdict::Slower);
        wrong += u64::from(found.cases.iter().any(|case| !is_slow(&case) && is_told(case.verdict)));
    }
    (told, wrong, all_blocks as f64 / comparisons as f64)
}

#[test]
fn three_percent_is_found_in_nine_of_ten_with_as_many_blocks_as_are_asked_for() {
    for (comparisons, cases) in [(300, 1), (100, 12), (60, 48)] {
        for noise in [Noise::Normal, Noise::Skewed] {
            for takes_turns in [false, true] {
                let (told, wrong, blocks) = told(comparisons, cases, noise, takes_turns);
                println!(
                    "{cases} cases, {noise:?}, in turns: {takes_turns}: told in {told}, wrong in {wrong} of {comparisons}; {blocks:.1} blocks"
                );
                assert!(10 * told >= 9 * comparisons, "{cases} {noise:?} {takes_turns}: {told}");
                assert!(wrong <= most_of(comparisons), "{cases} {noise:?} {takes_turns}: {wrong}");
                assert!(blocks < 60.0, "{blocks} are far more than are needed");
            }
        }
    }
}

#[test]
fn a_comparison_says_what_its_blocks_tell_and_how_many_would_tell_the_threshold() {
    let found = compare(&run(48, 8, 5e4, 1), &run(48, 8, 5e4, 2), 0.02).unwrap();
    let needed = found.needed.clone().unwrap();
    assert!((needed.noise - 0.02).abs() < 0.003 && needed.has == 8, "{needed:?}");
    let (tells, blocks) = (needed.tells.unwrap(), needed.blocks.unwrap());
    assert!(tells > 0.03 && (30..80).contains(&blocks), "{needed:?}");
    let said = format!(
        "8 blocks of each case tell a difference of {:.1} %, {blocks} would tell 2.0 % (in nine of ten runs; noise between \
         blocks: {:.1} %)\n",
        100.0 * tells,
        100.0 * needed.noise
    );
    assert!(found.text(false).contains(&said), "{}", found.text(false));
    let few = compare(&run(48, 3, 5e4, 1), &run(48, 3, 5e4, 2), 0.02).unwrap();
    assert!(few.text(false).contains("3 blocks of each case are too few to tell any difference, "));
    let enough = compare(&run(1, 40, 5e4, 1), &run(1, 40, 5e4, 2), 0.05).unwrap();
    let said = "40 blocks of each case tell a difference of ";
    assert!(enough.text(false).contains(said) && !enough.text(false).contains("would tell"));
}

/// A machine that is slower in some rounds does not matter to runs that took turns.
#[test]
fn runs_that_took_turns_are_compared_round_by_round() {
    let mut both = vec![run(1, 20, 5e4, 1), run(1, 20, 1.01 * 5e4, 2)];
    let mut machine = ChaCha8Rng::seed_from_u64(3);
    let speeds: Vec<f64> = (0..20).map(|_| 1.0 + machine.random::<f64>()).collect();
    for run in &mut both {
        for times in run.cases.values_mut() {
            for (block, speed) in times.blocks.iter_mut().zip(&speeds) {
                block.time_us *= speed;
            }
        }
    }
    let apart = compare(&both[0], &both[1], 0.02).unwrap();
    let both = in_turns(both);
    let found = compare(&both[0], &both[1], 0.02).unwrap();
    assert!(found.interleaved && !apart.interleaved);
    let width = |found: &Comparison| {
        let ratio = found.cases[0].ratio.unwrap();
        (ratio.high / ratio.low).ln()
    };
    assert!(width(&apart) > 5.0 * width(&found), "{apart:?} {found:?}");
    let needed = |found: &Comparison| found.needed.clone().unwrap();
    assert!(needed(&apart).noise > 5.0 * needed(&found).noise);
    // A round that only one run has does not count.
    let mut cut = both[1].clone();
    cut.cases.values_mut().for_each(|times| times.blocks.truncate(7));
    assert_eq!(compare(&both[0], &cut, 0.02).unwrap().needed.unwrap().has, 7);
}

/// Blocks of one launch are not independent.
#[test]
fn launches_stand_for_their_blocks_where_there_are_enough() {
    let of = |seed: u64| {
        let mut run = run(1, 40, 5e4, seed);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let launches: Vec<f64> = (0..5).map(|_| 1.0 + 0.4 * random.random::<f64>()).collect();
        for times in run.cases.values_mut() {
            for block in &mut times.blocks {
                block.launch = 1 + block.block / 8;
                block.time_us *= launches[block.launch - 1];
            }
        }
        run
    };
    let (first, second) = (of(1), of(2));
    let found = compare(&first, &second, 0.02).unwrap();
    assert_eq!(found.needed.as_ref().unwrap().has, 5);
    assert!(found.text(false).contains("\n5 launches of each case tell a difference of "));
    let by_launch = found.cases[0].ratio.unwrap();
    let flat = |mut run: Run| {
        let blocks = run.cases.values_mut().flat_map(|times| &mut times.blocks);
        blocks.for_each(|block| block.launch = 1);
        run
    };
    let by_block = compare(&flat(first), &flat(second), 0.02).unwrap().cases[0].ratio.unwrap();
    let width = |ratio: Ratio| (ratio.high / ratio.low).ln();
    assert!(width(by_launch) > 1.5 * width(by_block), "{by_launch:?} {by_block:?}");
}

/// A machine whose speed drifts by several percent within each run.
#[test]
fn the_drift_of_the_base_case_widens_all_intervals() {
    let drifting = |seed: u64, from: f64, to: f64| {
        let mut run = run(12, 20, 5e4, seed);
        for times in run.cases.values_mut() {
            for block in &mut times.blocks {
                block.time_us *= from + (to - from) * block.block as f64 / 19.0;
            }
        }
        run.base = Some("step case-0000".into());
        run
    };
    let (first, second) = (drifting(1, 1.0, 1.15), drifting(2, 1.1, 1.05));
    let found = compare(&first, &second, 0.02).unwrap();
    assert!((0.02..0.05).contains(&found.drift.unwrap()), "{:?}", found.drift);
    assert_eq!(found.verdict, Verdict::Unknown, "{found:?}");
    let text = found.text(false);
    assert!(text.contains(" % within the runs: intervals are wider by that"), "{text}");
    let without = |run: &Run| Run { base: None, ..run.clone() };
    let blind = compare(&without(&first), &without(&second), 0.02).unwrap();
    assert_eq!(blind.drift, None);
    for (wide, narrow) in [
        (found.overall.unwrap().ratio, blind.overall.unwrap().ratio),
        (found.cases[0].ratio.unwrap(), blind.cases[0].ratio.unwrap()),
    ] {
        assert!(wide.low < narrow.low && narrow.high < wide.high, "{wide:?} {narrow:?}");
    }
    let turns = in_turns(vec![first, second]);
    assert_eq!(compare(&turns[0], &turns[1], 0.02).unwrap().drift, None);
}

#[test]
fn few_blocks_say_nothing_of_a_case_but_many_cases_do_together() {
    let slow = compare(&run(30, 2, 5e4, 5), &run(30, 2, 1.1 * 5e4, 6), 0.02).unwrap();
    assert!(slow.cases.iter().all(|case| case.verdict == Verdict::Unknown && case.ratio.is_none()));
    assert_eq!(slow.verdict, Verdict::Slower);
    let text = slow.text(false);
    for words in ["[too few blocks]", "... and 10 more", "30 cannot be said", "all together: 1."] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let few = compare(&run(2, 2, 5e4, 7), &run(2, 2, 5e4, 8), 0.02).unwrap();
    assert_eq!((few.overall, few.verdict), (None, Verdict::Unknown));
}

#[test]
fn a_ratio_within_the_threshold_is_the_same_and_one_beyond_is_not() {
    let ratio = |low: f64, high: f64| Ratio { ratio: (low * high).sqrt(), low, high };
    for (low, high, expected) in [
        (0.99, 1.01, Verdict::Same),
        (1.005, 1.015, Verdict::Same),
        (1.005, 1.05, Verdict::Slower),
        (0.9, 0.97, Verdict::Faster),
        (0.9, 1.1, Verdict::Unknown),
    ] {
        assert_eq!(ratio(low, high).verdict(0.02), expected, "{low} {high}");
    }
}

/// A case of little time that is twice as slow weighs less than a long one that is a little slower.
#[test]
fn cases_are_sorted_by_what_they_cost_those_that_differ_first() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut of = |times_us: &[f64]| noisy(Noise::Normal, 20, times_us, &mut random);
    let (first, second) = (of(&[1e3, 1e5, 1e6, 1e4]), of(&[2e3, 1.1e5, 1.004e6, 1e4]));
    let found = compare(&first, &second, 0.001).unwrap();
    let order: Vec<&str> = found.cases.iter().map(|case| &case.case[10..]).collect();
    assert_eq!(order, ["0001", "0000", "0002", "0003"], "{}", found.text(true));
    let all_us: f64 = found.cases.iter().map(|case| case.first_us).sum();
    let one = &found.cases[0];
    assert!((one.weight - (one.second_us - one.first_us) / all_us).abs() < 1e-12);
    assert!(found.text(true).contains(&format!("  {:+.2} %  slower\n", 100.0 * one.weight)));
}

#[test]
fn rows_without_samples_are_compared_by_their_intervals() {
    let times = |low: f64, high: f64| Times {
        median_us: (low * high).sqrt(),
        interval_us: Some((low, high)),
        ..Times::default()
    };
    let question = |first: &Times, second: &Times| {
        let evidence = Evidence::of_case(first, second, false, &mut Laws::default());
        evidence.map(|evidence| Question::new(evidence, None))
    };
    let found = question(&times(90.0, 110.0), &times(180.0, 220.0)).unwrap().alone().unwrap();
    assert!((found.low - 180.0 / 110.0).abs() < 1e-9 && (found.high - 220.0 / 90.0).abs() < 1e-9);
    let without = Times { interval_us: None, ..times(1.0, 2.0) };
    assert!(question(&without, &times(1.0, 2.0)).is_none());
    // The more cases, the wider the interval of a verdict; the wider still, the fewer the blocks that it is from.
    let of = |freedom: Option<f64>, cases: usize| {
        let case = |case: usize| (case.to_string(), Times { freedom, ..times(90.0, 110.0) });
        let run = Run {
            cases: (0..cases).map(case).collect(),
            workloads: [String::new()].into(),
            ..Run::default()
        };
        compare(&run, &run, 0.02).unwrap().cases[0].joint.unwrap().high
    };
    assert!(of(None, 1) < of(None, 100) && of(None, 100) < of(Some(2.0), 100));
    assert_eq!(of(None, 1), of(Some(2.0), 1));
}

#[test]
fn other_workloads_and_other_cases_are_refused_or_listed() {
    let (a, mut b) = (run(2, 4, 1e3, 1), run(3, 4, 1e3, 2));
    let found = compare(&a, &b, 0.02).unwrap();
    assert_eq!(
        (found.only_first.len(), &found.only_second[..]),
        (0, &["step case-0002".into()][..])
    );
    assert!(found.text(false).contains("1 case is in the second run only: step case-0002\n"));
    b.workloads = ["vgg16".to_string()].into();
    let why = compare(&a, &b, 0.02).unwrap_err().to_string();
    assert!(why.contains("of different workloads: resnet50 and vgg16"), "{why}");
    let mut other = a.clone();
    other.cases = [("step other".to_string(), Times::default())].into();
    let why = compare(&a, &other, 0.02).unwrap_err().to_string();
    assert!(why.contains("the first has step case-0000, for example, and the second step other"));
}

#[test]
fn cases_of_one_run_are_named_ten_of_them_or_all() {
    let found = compare(&run(1, 4, 1e3, 1), &run(14, 4, 1e3, 2), 0.02).unwrap();
    let some = found.text(false);
    assert!(some.contains("13 cases are in the second run only: step case-0001, step case-0002, "));
    assert!(some.contains("step case-0010, and 3 more; --all lists them\n"), "{some}");
    for all in [found.text(true), found.markdown(true)] {
        assert!(all.contains("step case-0010, step case-0011, step case-0012, step case-0013\n"));
    }
    assert_eq!(found.only_second.len(), 13);
}

#[test]
fn other_work_under_the_same_name_is_refused_with_the_difference() {
    let with = |fields: [&str; work::SETTING.len()], digest: &str| {
        let mut run = run(1, 4, 1e3, 1);
        run.cases.values_mut().for_each(|times| times.work = Work::of(fields));
        run.workload_digest = digest.into();
        run
    };
    let usual = ["f32", "average", "1", "3.0", "20.0", "1.0", "none"];
    let first = with(usual, "85aa");
    for (at, field, said) in [
        (0, "f16", "dtype is f32 in the first run and f16 in the second"),
        (1, "sum", "op is average in the first run and sum in the second"),
        (2, "4", "backward_passes_per_step is 1 in the first run and 4 in the second"),
        (3, "4", "forward_ms is 3 in the first run and 4 in the second"),
        (4, "30", "backward_ms is 20 in the first run and 30 in the second"),
        (5, "0", "optimizer_ms is 1 in the first run and 0 in the second"),
    ] {
        let mut other = usual;
        other[at] = field;
        let why = compare(&first, &with(other, "85aa"), 0.02).unwrap_err().to_string();
        let expected = format!(
            "the runs are of different workloads: in step case-0000, {said}; compare runs of one workload"
        );
        assert_eq!(why, expected);
    }
    let why = compare(&first, &with(usual, "85ab"), 0.02).unwrap_err().to_string();
    assert_eq!(
        why,
        "the runs are of different workloads: the gradients of resnet50 differ, their digest is 85aa in the first run and \
         85ab in the second; compare runs of one workload"
    );
    // Written in another way, or not known: not another one.
    let alike = ["f32", "average", "", "3", "20", "1.00", ""];
    assert!(compare(&first, &with(alike, ""), 0.02).unwrap().differences.is_empty());
    // An option of the framework.
    let fp16 = ["f32", "average", "1", "3", "20", "1", "fp16"];
    let said = &compare(&first, &with(fp16, "85aa"), 0.02).unwrap().differences[0];
    assert_eq!((&*said.what, &*said.first, &*said.second), ("compression", "none", "fp16"));
}

#[test]
fn a_folder_is_read_with_its_blocks_and_its_origin() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/");
    let quick = Run::read(format!("{reference}quick").as_ref()).unwrap();
    assert_eq!(quick.cases.len(), 48);
    assert!(quick.cases.values().all(|times| times.blocks.len() == 2) && quick.is_doubtful);
    assert_eq!((quick.workload_digest.len(), &quick.base, &quick.notes[..]), (16, &None, &[][..]));
    let same = compare(&quick, &quick, 0.02).unwrap();
    assert_eq!((same.overall.unwrap().ratio.ratio, same.verdict), (1.0, Verdict::Same));
    let cluster = Run::read(format!("{reference}cluster").as_ref()).unwrap();
    assert_eq!(cluster.base.as_deref(), Some("step mpi/1x1/bitvector/ring/128MiB/1ms"));
    let bench = Run::read(format!("{reference}bench/2-ranks.csv").as_ref()).unwrap();
    assert!(bench.cases.keys().all(|case| case.starts_with("allreduce ")));
    let mut moved = quick.clone();
    moved.launch.as_mut().unwrap()["machine"]["kernel"] = "6.99".into();
    moved.launch.as_mut().unwrap()["environment"] = json!([
        ["OMPI_MCA_pml", "ob1"],
        ["SLURM_JOB_ID", "7"],
        ["OMPI_MCA_orte_hnp_uri", "1.0;tcp"]
    ]);
    let differences = compare(&quick, &moved, 0.02).unwrap().differences;
    let kernel = differences.iter().find(|it| it.what == "kernel").unwrap();
    assert_eq!(kernel.second, "6.99");
    let variable = differences.iter().find(|it| it.what == "OMPI_MCA_pml").unwrap();
    assert_eq!((variable.first.as_str(), variable.second.as_str()), ("not set", "ob1"));
    let of_jobs = ["SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri"];
    assert!(differences.iter().all(|it| !of_jobs.contains(&&*it.what)), "{differences:?}");
}

/// A folder with one case of two blocks.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("rows.csv", "schema,kind,case,status,time_us_p50\n4,step,a,ok,1\n4,step,b,ok,2\n");
    write("samples.csv", "case,block,time_us\na,0,1\na,0,3\na,1,5\n");
    write("conditions.csv", "case,block,frequency_mhz\na,0,2000\na,1,\nb,0,3000\nb,1,2500\n");
    folder
}

#[test]
fn a_cut_line_is_left_out_and_told() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let whole = Run::read(folder.path()).unwrap();
    assert_eq!((whole.cases.len(), whole.notes.len()), (2, 0));
    let blocks: Vec<f64> = whole.cases["step a"].blocks.iter().map(|it| it.time_us).collect();
    assert_eq!((blocks, whole.frequency_mhz), (vec![2.0, 5.0], Some(2500.0)));
    for (name, line, cut) in [("rows.csv", 3, "4,step,b"), ("samples.csv", 4, "a,1")] {
        let text = fs::read_to_string(path(name)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(path(name), lines[..lines.len() - 1].join("\n") + "\n" + cut).unwrap();
        let said = format!(
            "{}:{line}: the last line is cut, as when a run is killed; it is left out",
            path(name).display()
        );
        assert!(Run::read(folder.path()).unwrap().notes.contains(&said), "{name}");
    }
    let run = Run::read(folder.path()).unwrap();
    assert_eq!((run.cases.len(), run.cases["step a"].blocks.len()), (1, 1));
    // Not the last one.
    fs::write(path("samples.csv"), "case,block,time_us\na,0,1\na,0\na,1,5\n").unwrap();
    let why = Run::read(folder.path()).unwrap_err().to_string();
    assert!(why.contains("samples.csv: CSV error: record 2"), "{why}");
    fs::write(path("samples.csv"), "case,block,time_us\na,0,1\na,0,x\n").unwrap();
    let why = Run::read(folder.path()).unwrap_err().to_string();
    assert!(why.contains("samples.csv:3: column time_us has \"x\", expected a number"), "{why}");
}

#[test]
fn files_of_other_schemas_are_refused_and_missing_columns_are_named() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let refused = || Run::read(folder.path()).unwrap_err().to_string();
    let reads =
        format!("this kolo reads 1 to {}; compare with the kolo that wrote", crate::row::SCHEMA);
    write("provenance.json", "{\"schema\": 99, \"launches\": []}");
    assert!(refused().contains(&format!("provenance.json: schema 99, {reads}")), "{}", refused());
    write("provenance.json", "{\"schema\": 1, \"launches\": []}");
    assert!(Run::read(folder.path()).is_ok());
    write("samples.csv", "case,time\na,1\n");
    assert!(refused().contains("samples.csv: columns block, time_us are missing; expected"));
    write("rows.csv", "schema,kind,case,status,time_us_p50\n99,step,a,ok,1\n");
    assert!(refused().contains(&format!("rows.csv: schema 99, {reads}")), "{}", refused());
    write("rows.csv", "");
    assert!(refused().contains("rows.csv: no row is measured, right and has time_us_p50"));
    write("rows.csv", "schema,kind,case,time_us_p50\n4,step,a,1\n");
    assert!(refused().contains("rows.csv: column status is missing; expected"), "{}", refused());
}

#[test]
fn a_folder_that_is_none_and_a_file_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let why = Run::read(folder.path()).unwrap_err().to_string();
    assert!(why.contains("rows.csv") && why.contains("expected a folder of results"), "{why}");
    let path = folder.path().join("other.csv");
    fs::write(&path, "a,b\n1,2\n").unwrap();
    let why = Run::read(&path).unwrap_err().to_string();
    assert!(why.contains("columns schema, kind, case, status, time_us_p50 are missing"), "{why}");
}
