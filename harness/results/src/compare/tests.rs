//! Comparisons of runs whose truth is known.

use std::fs;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// A run of cases whose blocks take that long, but for noise of 2 %.
fn run(cases: usize, blocks: usize, time_us: f64, seed: u64) -> Run {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut times = || {
        // The sum of twelve is nearly normal.
        let mut noise = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let blocks_us: Vec<f64> = (0..blocks).map(|_| time_us * (1.0 + 0.02 * noise())).collect();
        Times { median_us: median(blocks_us.clone()).unwrap(), interval_us: None, blocks_us }
    };
    let cases = (0..cases).map(|case| (format!("step case-{case:04}"), times())).collect();
    Run { cases, workloads: ["resnet50".to_string()].into(), ..Run::default() }
}

#[test]
fn equals_are_called_different_in_5_percent() {
    let differ = |case: &&Compared| [Verdict::Slower, Verdict::Faster].contains(&case.verdict);
    let found = compare(&run(4000, 8, 5e4, 1), &run(4000, 8, 5e4, 2), 0.02).unwrap();
    let differ = found.cases.iter().filter(differ).count();
    // The test's level with 8 and 8 blocks is 4.98 %: 199 are expected, with a deviation of 14.
    assert!((160..=228).contains(&differ), "{differ} of 4000");
    assert!(found.overall.unwrap().verdict(0.005) == Verdict::Same, "{:?}", found.overall);
}

#[test]
fn three_percent_is_found_in_nine_of_ten() {
    let found = compare(&run(1000, 14, 5e4, 3), &run(1000, 14, 1.03 * 5e4, 4), 0.02).unwrap();
    let slower = found.cases.iter().filter(|case| case.verdict == Verdict::Slower).count();
    assert!(slower >= 900, "{slower} of 1000");
    assert_eq!(found.verdict, Verdict::Slower);
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

#[test]
fn rows_without_samples_are_compared_by_their_intervals() {
    let times = |low: f64, high: f64| Times {
        median_us: (low + high) / 2.0,
        interval_us: Some((low, high)),
        blocks_us: Vec::new(),
    };
    let found = ratio(&times(90.0, 110.0), &times(180.0, 220.0)).unwrap();
    assert!((found.low - 180.0 / 110.0).abs() < 1e-12 && (found.high - 220.0 / 90.0).abs() < 1e-12);
    let without = Times { interval_us: None, ..times(1.0, 2.0) };
    assert_eq!(ratio(&without, &times(1.0, 2.0)), None);
}

#[test]
fn other_workloads_and_other_cases_are_refused_or_listed() {
    let (a, mut b) = (run(2, 4, 1e3, 1), run(3, 4, 1e3, 2));
    let found = compare(&a, &b, 0.02).unwrap();
    assert_eq!(
        (found.only_first.len(), &found.only_second[..]),
        (0, &["step case-0002".into()][..])
    );
    assert!(
        found.text(false).contains("1 cases are in the second run only, such as step case-0002")
    );
    b.workloads = ["vgg16".to_string()].into();
    let why = compare(&a, &b, 0.02).unwrap_err().to_string();
    assert!(why.contains("of different workloads: resnet50 and vgg16"), "{why}");
    let mut other = a.clone();
    other.cases = [("step other".to_string(), Times::default())].into();
    let why = compare(&a, &other, 0.02).unwrap_err().to_string();
    assert!(why.contains("the first has step case-0000, for example, and the second step other"));
}

#[test]
fn a_folder_is_read_with_its_blocks_and_its_origin() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/");
    let quick = Run::read(format!("{reference}quick").as_ref()).unwrap();
    assert_eq!(quick.cases.len(), 48);
    assert!(quick.cases.values().all(|times| times.blocks_us.len() == 2) && quick.is_doubtful);
    let same = compare(&quick, &quick, 0.02).unwrap();
    assert_eq!((same.overall.unwrap().ratio, same.verdict), (1.0, Verdict::Same));
    let bench = Run::read(format!("{reference}bench/2-ranks.csv").as_ref()).unwrap();
    assert!(bench.cases.keys().all(|case| case.starts_with("allreduce ")));
    let mut moved = quick.clone();
    moved.launch.as_mut().unwrap()["machine"]["kernel"] = "6.99".into();
    moved.launch.as_mut().unwrap()["environment"] = serde_json::json!([
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

#[test]
fn a_folder_that_is_none_and_a_file_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let why = Run::read(folder.path()).unwrap_err().to_string();
    assert!(why.contains("rows.csv") && why.contains("expected a folder of results"), "{why}");
    let path = folder.path().join("other.csv");
    fs::write(&path, "a,b\n1,2\n").unwrap();
    let why = Run::read(&path).unwrap_err().to_string();
    assert!(why.contains("missing field `kind`"), "{why}");
}
