//! `kolo calibrate` and `kolo validate --local`, on two threads and small messages.

use std::collections::HashMap;

use harness::simulate::machine_file::MachineFile;

use crate::sandbox::{Ended, kolo};

#[test]
fn a_calibration_is_a_machine_file() {
    let folder = tempfile::tempdir().unwrap();
    let calibrate = || {
        let mut command =
            kolo(&["calibrate", "--ranks", "2", "-e", "32K", "--out", "two-threads.toml"]);
        Ended::of(command.current_dir(folder.path()))
    };
    let ended = calibrate();
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    let mut file = MachineFile::read(&folder.path().join("two-threads.toml")).unwrap();
    assert_eq!((file.name.as_str(), file.node.ranks, file.node.nodes), ("two-threads", 2, 1));
    for (key, parameter) in file.parameters() {
        let by_design = key.ends_with("large.bandwidth_gb_s");
        let source = if by_design { "by design: " } else { "measured: " };
        assert!(parameter.source.starts_with(source), "{key}: {}", parameter.source);
    }
    calibrate().says(2, "two-threads.toml exists; results are never overwritten");
    Ended::of(&mut kolo(&["calibrate", "--ranks", "1"]))
        .says(2, "--ranks is 1, expected at least 2");
}

#[test]
fn a_validation_has_a_row_for_each_algorithm_and_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = kolo(&["validate", "--local", "--ranks", "2", "-e", "64K", "--out", "out"]);
    let ended = Ended::of(command.args(["--algorithm", "ring,tree"]).current_dir(folder.path()));
    // Whether the goal is met is up to the machine, and nothing is scored on one core.
    assert!(matches!(ended.status, Some(0 | 1 | 3)), "{}", ended.stderr);
    let mut reader = csv::Reader::from_path(folder.path().join("out/validation.csv")).unwrap();
    let rows: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2 * 5);
    for row in &rows {
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        let [predicted, measured] = ["predicted_us", "measured_us"].map(number);
        assert!((predicted / measured - 1.0 - number("error")).abs() < 1e-9);
        assert!(number("measured_us_low") <= measured && measured <= number("measured_us_high"));
        let is_large = number("size_bytes") >= 65536.0;
        assert_eq!(row["scored"] == "true", is_large && row["oversubscribed"] == "false");
        assert!(ended.stdout.contains(&row["algorithm"]));
    }
    MachineFile::read(&folder.path().join("out/machine.toml")).unwrap();
}

#[test]
fn published_points_need_no_machine_at_hand() {
    let points = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/published.toml");
    let folder = tempfile::tempdir().unwrap();
    let mut command = kolo(&["validate", "--points", points, "--out", "out"]);
    let ended = Ended::of(command.current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("points that nothing was fitted to are met"), "{}", ended.stdout);
    assert!(folder.path().join("out/published.csv").exists());
    Ended::of(&mut kolo(&["validate", "--points", "nowhere.toml"])).says(2, "nowhere.toml");
}
