//! `kolo compare`, on the reference runs.

use std::path::Path;

use crate::cli::sandbox::{Ended, kolo};

fn compare(words: &[&str]) -> Ended {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    let mut all = vec!["compare"];
    all.extend(words);
    Ended::of(kolo(&all).current_dir(reference))
}

#[test]
fn a_run_is_the_same_as_itself_and_not_as_another() {
    let same = compare(&["quick", "quick"]);
    assert_eq!(same.status, Some(0), "{}", same.stderr);
    assert!(same.stdout.contains("48 cases: 0 slower, 0 faster"), "{}", same.stdout);
    assert!(same.stdout.contains("all together: 1.000 [1.000, 1.000] the same"), "{}", same.stdout);
    assert!(same.stderr.contains("quick: nodes are emulated, or ranks share cores"));
    let json = compare(&["quick", "quick", "--format", "json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (value["schema"].as_u64(), value["cases"].as_array().map(Vec::len)),
        (Some(1), Some(48))
    );
    let table = compare(&["quick", "quick", "--format", "markdown"]);
    assert_eq!(table.stdout.lines().filter(|line| line.starts_with("| step ")).count(), 48);
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    compare(&["quick", "nowhere"]).says(2, "nowhere: ");
    compare(&["quick", "summit-scaling"]).says(2, "no row is measured, right and has time_us_p50");
    compare(&["quick", "tune/four-nodes"])
        .says(2, "the runs are of different workloads: resnet50 and densenet121");
    compare(&["quick", "quick", "--threshold", "2"]).says(2, "\"2\" is not a percentage");
}
