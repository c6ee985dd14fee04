use rand_distr::{Distribution, StandardNormal};

use super::*;

fn nested(launches: &[&[&[f64]]]) -> Nested {
    let mut nested = Nested::default();
    for (launch, blocks) in launches.iter().enumerate() {
        for (block, values) in blocks.iter().enumerate() {
            nested.extend(values.iter().map(|&value| (launch, 10 * launch + block, value)));
        }
    }
    nested
}

#[test]
fn the_level_is_the_highest_with_three_launches_or_five_blocks() {
    let block: &[f64] = &[1.0, 2.0];
    for (blocks, launches, level) in [
        (1, 1, Level::Sample),
        (2, 1, Level::Sample),
        (4, 1, Level::Sample),
        (5, 1, Level::Block),
        (2, 2, Level::Sample),
        (3, 2, Level::Block),
        (1, 2, Level::Sample),
        (1, 3, Level::Launch),
        (4, 3, Level::Launch),
    ] {
        let launch = vec![block; blocks];
        let all: Vec<&[&[f64]]> = vec![&launch; launches];
        assert_eq!(nested(&all).level(), level, "{blocks} blocks in {launches} launches");
    }
}

/// Steps of one block: the interval of order statistics, if the block shows that they are independent.
#[test]
fn steps_of_one_block_have_exact_intervals() {
    let values: Vec<f64> = (0..20).map(|step| f64::from(step * 11 % 20 + 1)).collect();
    assert_eq!(nested(&[&[&values]]).interval(), Some((6.0, 15.0)));
    assert_eq!(nested(&[&[&values[..19]]]).interval(), None, "too short to show it");
    assert_eq!(
        nested(&[&[&values, &values]]).interval(),
        None,
        "two blocks do not show how they differ"
    );
    assert_eq!(Nested::default().summary(), None);
}

/// 30 steps of which each repeats the one before for ten steps tell as much as three.
#[test]
fn steps_that_follow_each_other_count_less() {
    let steady: Vec<f64> = (0..60).map(|step| f64::from(step * 37 % 60)).collect();
    let slow: Vec<f64> =
        (0..60).map(|step| f64::from(step / 20) + f64::from(step * 37 % 60) / 1e3).collect();
    let width = |values: &[f64]| {
        let (low, high) = nested(&[&[values]]).interval().unwrap_or((f64::MIN, f64::MAX));
        values.iter().filter(|&&value| low <= value && value <= high).count()
    };
    assert_eq!(width(&steady), 18, "of 60 independent ones, from the 22nd to the 39th");
    assert!(width(&slow) > 40, "{}", width(&slow));
}

/// Five blocks that differ more than their steps: far wider than by steps alone.
#[test]
fn blocks_that_differ_widen_the_interval() {
    let block =
        |level: f64| (0..20).map(|step| level + 0.001 * f64::from(step)).collect::<Vec<f64>>();
    let blocks = [10.0, 10.5, 11.0, 11.5, 12.0].map(block);
    let blocks: Vec<&[f64]> = blocks.iter().map(Vec::as_slice).collect();
    let (low, high) = nested(&[&blocks]).interval().unwrap();
    assert!(low < 9.7 && high > 12.4, "{low} {high}");
    let same = [10.0; 5].map(block);
    let same: Vec<&[f64]> = same.iter().map(Vec::as_slice).collect();
    let (low, high) = nested(&[&same]).interval().unwrap();
    assert!(9.9 < low && high < 10.1, "{low} {high}");
}

/// So many that a table of pairs of them would not fit in memory: the interval is as wide as theory says.
#[test]
fn the_interval_of_very_many_blocks_is_that_of_their_number() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    const BLOCKS: usize = 200_000;
    let values = (0..BLOCKS).map(|block| (1, block, 100.0 + normal(&mut random)));
    let (low, high) = values.collect::<Nested>().interval().unwrap();
    let error = (std::f64::consts::PI / 2.0 / BLOCKS as f64).sqrt();
    let half_widths = (high - low) / 2.0 / (1.96 * error);
    assert!((0.8..1.25).contains(&half_widths), "{half_widths}");
    assert!(low < 100.0 && 100.0 < high, "{low} {high}");
}

#[test]
fn values_that_never_differ_have_a_point_as_interval() {
    for value in [0.0, 7.0] {
        let block: &[f64] = &[value; 4];
        let summary = nested(&[&[block; 5]]).summary().unwrap();
        assert_eq!((summary.p50, summary.p50_interval), (value, Some((value, value))));
    }
}

#[test]
fn the_same_samples_give_the_same_interval() {
    let block = |seed: u64| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        (0..5000).map(|_| random.random_range(1.0..2.0)).collect::<Vec<f64>>()
    };
    let blocks: Vec<Vec<f64>> = (0..5).map(block).collect();
    let blocks: Vec<&[f64]> = blocks.iter().map(Vec::as_slice).collect();
    let all = nested(&[&blocks]);
    let (low, high) = all.interval().unwrap();
    assert_eq!(all.interval(), Some((low, high)));
    // 25,000 samples are thinned out, and still give their median.
    assert!(low < 1.5 && 1.5 < high && high - low < 0.1, "{low} {high}");
}

/// Standard normal values.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(random)
}

/// Logarithms of steps of a synthetic machine.
fn synthetic(random: &mut ChaCha8Rng, deviations: [f64; 3], counts: [usize; 3]) -> Nested {
    let mut all = Nested::default();
    for launch in 0..counts[0] {
        let of_launch = deviations[0] * normal(random);
        for block in 0..counts[1] {
            let of_block = deviations[1] * normal(random);
            for _ in 0..counts[2] {
                let step: f64 = of_launch + of_block + deviations[2] * normal(random);
                all.extend([(launch, launch * counts[1] + block, step.exp())]);
            }
        }
    }
    all
}

/// Each sample as often as its unit was drawn, in a list.
#[test]
fn medians_of_resamples_are_those_of_all_their_samples() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..500 {
        let units: Vec<Vec<f64>> = (0..random.random_range(1..7))
            .map(|_| {
                (0..random.random_range(1..6))
                    .map(|_| f64::from(random.random_range(0..9)))
                    .collect()
            })
            .collect();
        let mut drawn: Vec<usize> = units.iter().map(|_| random.random_range(0..3)).collect();
        drawn[0] = 1;
        let listed = units
            .iter()
            .zip(&drawn)
            .flat_map(|(unit, &drawn)| unit.iter().flat_map(move |&value| vec![value; drawn]));
        assert_eq!(
            Some(Sorted::new(&units).median(&drawn)),
            median(listed.collect()),
            "{units:?} {drawn:?}"
        );
    }
}

/// Intervals of blocks and of launches contain the truth nearly as often as they say.
#[test]
fn intervals_cover_the_median() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for (deviations, counts) in [
        ([0.0, 0.05, 0.05], [1, 6, 10]),
        ([0.0, 0.05, 0.05], [1, 5, 10]),
        ([0.0, 0.0, 0.05], [1, 5, 10]),
        ([0.0, 0.05, 0.05], [1, 10, 10]),
        ([0.05, 0.02, 0.05], [3, 3, 5]),
        ([0.05, 0.02, 0.05], [5, 3, 5]),
    ] {
        let covers = |_: &usize| {
            let (low, high) = synthetic(&mut random, deviations, counts).interval().unwrap();
            low <= 1.0 && 1.0 <= high
        };
        let covered = (0..400).filter(covers).count();
        assert!((364..=398).contains(&covered), "{deviations:?} {counts:?}: {covered} of 400");
    }
}

#[test]
fn one_block_shows_its_independent_samples_by_their_correlation() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut block = |memory: f64| {
        let (mut deviation, mut values) = (0.0, Vec::new());
        for _ in 0..2_000 {
            let fresh: f64 = StandardNormal.sample(&mut random);
            deviation = memory * deviation + (1.0 - memory * memory).sqrt() * fresh;
            values.push(1.0 + 0.01 * deviation);
        }
        nested(&[&[&values]]).effective_samples().unwrap()
    };
    let (independent, correlated) = (block(0.0), block(0.7));
    assert!((1_800.0..=2_000.0).contains(&independent), "{independent}");
    // (1 - 0.7) / (1 + 0.7) of them.
    assert!((270.0..=450.0).contains(&correlated), "{correlated}");
    assert_eq!(nested(&[&[&[1.0; 19]]]).effective_samples(), None, "too short");
    assert_eq!(Nested::default().effective_samples(), None, "no sample");
    let two = nested(&[&[&[1.0, 1.1], &[1.2, 1.0]]]);
    assert_eq!(
        two.effective_samples(),
        two.components().map(|components| components.effective_samples)
    );
}

#[test]
fn components_are_those_of_the_machine() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let of = |deviations, counts, random: &mut ChaCha8Rng| {
        synthetic(random, deviations, counts).components().unwrap()
    };
    let steps = of([0.0, 0.0, 0.1], [1, 30, 30], &mut random);
    assert!(steps.step > 0.7 && steps.launch.is_none(), "{steps:?}");
    assert!(steps.effective_samples > 500.0, "{steps:?}");
    let blocks = of([0.0, 0.1, 0.1], [1, 30, 30], &mut random);
    assert!(blocks.block > 0.9, "{blocks:?}");
    assert!((20.0..=90.0).contains(&blocks.effective_samples), "{blocks:?}");
    let launches = of([0.1, 0.02, 0.1], [30, 10, 10], &mut random);
    assert!(launches.launch.unwrap() > 0.9 && launches.effective_samples < 100.0, "{launches:?}");
    // Shares of one whole, also with unequal numbers.
    let uneven = nested(&[&[&[1.0, 1.1, 1.3], &[1.2]], &[&[1.5, 1.6]]]).components().unwrap();
    let whole = uneven.launch.unwrap() + uneven.block + uneven.step;
    assert!((whole - 1.0).abs() < 1e-9, "{uneven:?}");
    assert_eq!(nested(&[&[&[1.0, 2.0]]]).components(), None, "one block");
    assert_eq!(nested(&[&[&[0.0], &[1.0]]]).components(), None, "no logarithm");
    assert_eq!(nested(&[&[&[1.0], &[1.0]]]).components(), None, "nothing varies");
}

#[test]
fn medians_of_units_have_students_interval_which_contains_their_median() {
    let of = |logarithms: &[f64]| {
        let values: Vec<f64> = logarithms.iter().map(|logarithm| logarithm.exp()).collect();
        // Three samples of which the unit's median is the value.
        let in_units = |place: fn(usize) -> (usize, usize)| {
            let samples = values.iter().enumerate().flat_map(|(unit, &value)| {
                let (launch, block) = place(unit);
                [0.5, 1.0, 1.5].map(|factor| (launch, block, factor * value))
            });
            samples.collect::<Nested>().of_unit_medians()
        };
        let launches = in_units(|unit| (unit, unit));
        if values.len() >= BLOCKS_MIN {
            assert_eq!(in_units(|unit| (unit / 5, unit)), launches, "blocks of two launches");
        }
        let summary = launches?;
        let (low, high) = summary.p50_interval.unwrap();
        Some((summary.p50.ln(), low.ln(), high.ln()))
    };
    let (median, low, high) = of(&[0.1, -0.1, 0.0]).unwrap();
    // 4.3027 standard errors, each 0.1 / sqrt(3).
    assert!(median.abs() < 1e-9 && (low + 0.24841).abs() < 1e-4 && (high - 0.24841).abs() < 1e-4);
    let (median, low, high) = of(&[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
    // The mean's interval is from 0.039 to 0.850.
    assert!(median == 0.0 && low == 0.0 && (high - 0.850).abs() < 1e-3, "{low} {high}");
    assert_eq!(of(&[0.1, -0.1]), None, "two launches");
    assert_eq!(Nested::default().of_unit_medians(), None);
    let idle: Nested = (0..3).map(|launch| (launch, 0, launch as f64)).collect();
    assert_eq!(idle.of_unit_medians().unwrap().p50_interval, Some((0.0, 2.0)));
}
