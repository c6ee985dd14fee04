//! `kolo calibrate` and `kolo validate --local`, on two threads and small messages.

use std::collections::HashMap;
use std::process::Command;

use results::toml_file::Checked;
use simulator::machine_file::MachineFile;

use crate::cli::sandbox::{Ended, Sweep, kolo};
use crate::coverage::all_worlds;

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
        let by_design = key.ends_with("large.bandwidth_gb_s")
            || ["control.bandwidth_gb_s", "interference.memory_per_gb_s"].contains(&key.as_str());
        let source = if by_design { "by design: " } else { "measured: " };
        assert!(parameter.source.starts_with(source), "{key}: {}", parameter.source);
    }
    // Ranks that share a core interrupt each other.
    let shares_cores = results::provenance::cores() < 2;
    assert_eq!(file.leaves_out().is_some(), shares_cores, "{:?}", file.leaves_out());
    assert!(file.control.unwrap().pack_gb_s.is_some());
    calibrate().says(2, "two-threads.toml exists; results are never overwritten");
    Ended::of(&mut kolo(&["calibrate", "--minutes", "-1"]))
        .says(2, "\"-1\" is not a number of minutes from 0 to 1440");
    // Refused before anything is measured.
    let nowhere = ["calibrate", "--ranks", "2", "--out", "nowhere/here.toml"];
    Ended::of(kolo(&nowhere).current_dir(folder.path()))
        .says(2, "kolo: nowhere/here.toml cannot be written: No such file or directory");
    Ended::of(&mut kolo(&["calibrate", "--ranks", "1"]))
        .says(2, "--ranks is 1, expected at least 2");
}

#[test]
fn on_a_full_disk_what_was_measured_is_printed() {
    if !all_worlds() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} calibrate --ranks 2 -e 32K --out full.toml",
        env!("CARGO_BIN_EXE_kolo")
    );
    let full = Ended::of(Command::new("bash").args(["-c", &script]).current_dir(folder.path()));
    full.says(
        2,
        "full.toml cannot be written: File too large (os error 27); name another with --out",
    );
    let printed: MachineFile = toml::from_str(&full.stdout).unwrap();
    assert_eq!(printed.name, "full");
}

/// Measured steps of two threads, simulated on a calibration of two threads.
#[test]
fn what_was_measured_is_predicted() {
    let sweep = Sweep::new(&[("\"2x2\"", "\"1x2\"")]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let folder = sweep.path("");
    let run = |arguments: &[&str]| Ended::of(kolo(arguments).current_dir(&folder));
    let ended = run(&["calibrate", "--ranks", "2", "-e", "32K", "--out", "here.toml"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let predict = |results: &str| {
        let machine = ["--machine", "here.toml", "--workloads", ".", "--out", "predicted"];
        run(&[&["predict", results], &machine[..]].concat())
    };
    let ended = predict("out");
    ended.says(
        0,
        "no larger worlds than 2 ranks: machine here has 1 node of 2 ranks and no network",
    );
    let mut reader = csv::Reader::from_path(sweep.path("predicted/rows.csv")).unwrap();
    let rows: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let reported = |name: &str, expected: &str| rows.iter().all(|row| row[name] == expected);
    assert!(!rows.is_empty() && reported("source", "simulated") && reported("machine", "here"));
    assert!(reported("transport", "threads") && reported("policy", "") && reported("status", "ok"));
    assert!(sweep.path("predicted/provenance.json").exists());
    predict("out").says(2, "predicted exists; results are never overwritten");
    std::fs::remove_dir_all(sweep.path("predicted")).unwrap();
    predict("nowhere").says(2, "nowhere/rows.csv: ");
    let rows = sweep.read("out/rows.csv");
    std::fs::write(sweep.path("out/rows.csv"), rows.replacen("backward_ms", "backward_s", 1))
        .unwrap();
    predict("out").says(
        2,
        "columns backward_ms are missing, and a simulation needs them; if another version",
    );
    let old = rows.replace("\n9,step,", "\n0,step,");
    std::fs::write(sweep.path("out/rows.csv"), old).unwrap();
    predict("out").says(2, "its rows are of schema 0, this kolo reads 1 to 9; measure it again");
    std::fs::write(sweep.path("out/rows.csv"), rows).unwrap();
    let machine = sweep.read("here.toml").replace("\nranks = 2\n", "\nranks = 1\n");
    let machine = machine.replace("ranks_per_socket = 2", "ranks_per_socket = 1");
    std::fs::write(sweep.path("here.toml"), machine).unwrap();
    predict("out").says(2, "no row of kind `step` can be simulated on machine here");
}

/// Those of the first version had half as many columns.
#[test]
fn rows_of_older_versions_are_read() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let predict = |machine: &str| {
        let arguments = ["predict", "harness/kolo/tests/data/older", "--machine", machine];
        Ended::of(kolo(&arguments).current_dir(repository))
    };
    predict("configs/machines/summit.toml")
        .says(2, "48 rows are left out: 4 ranks share cores; calibrate with as many ranks");
    // The machine file is read first.
    predict("summi").says(2, "kolo: summi: no such machine file; did you mean summit? There are ");
    predict("summit").says(2, "48 rows are left out: 4 ranks share cores");
}

#[test]
fn a_validation_has_a_row_for_each_algorithm_and_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = kolo(&["validate", "--local", "--ranks", "2", "-e", "64K", "--out", "out"]);
    let ended = Ended::of(command.args(["--algorithm", "ring,tree"]).current_dir(folder.path()));
    // Whether the goal is met depends on the machine, and nothing is scored on one core.
    let verdict = ended.stdout.lines().find_map(|line| match line {
        "nothing is scored: more ranks than cores, or no size from 64 KiB on" => Some(3),
        line if line.starts_with("all algorithms are within ") => Some(0),
        line if line.starts_with("not within ") => Some(1),
        _ => None,
    });
    assert!(verdict.is_some() && ended.status == verdict, "{}{}", ended.stdout, ended.stderr);
    let mut reader = csv::Reader::from_path(folder.path().join("out/validation.csv")).unwrap();
    let rows: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2 * 5);
    for row in &rows {
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        assert!(number("predicted_us") > 0.0 && number("measured_us") > 0.0);
        assert!(number("blocks") >= 2.0, "the first is not compared");
        let [low, error, high] = ["error_low", "error", "error_high"].map(number);
        assert!(-1.0 < low && low <= error && error <= high);
        let is_large = number("size_bytes") >= 65536.0;
        assert_eq!(row["scored"] == "true", is_large && row["oversubscribed"] == "false");
        assert!(ended.stdout.contains(&row["algorithm"]));
    }
    MachineFile::read(&folder.path().join("out/machine.toml")).unwrap();
}

#[test]
fn published_points_need_no_machine_at_hand() {
    let points = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/published.toml");
    let folder = tempfile::tempdir().unwrap();
    let mut command = kolo(&["validate", "--points", points, "--out", "out"]);
    let ended = Ended::of(command.current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for words in ["SIMULATED", "across nodes, both", "series for calibration"] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    assert!(folder.path().join("out/published.csv").exists());
    let provenance = std::fs::read_to_string(folder.path().join("out/provenance.json")).unwrap();
    for words in ["\"validate\"", "published.toml", "\"ended\": \"20"] {
        assert!(provenance.contains(words), "{words}: {provenance}");
    }
    let summary = std::fs::read_to_string(folder.path().join("out/summary.txt")).unwrap();
    assert!(ended.stdout.starts_with(&summary));
    Ended::of(&mut kolo(&["validate", "--points", "nowhere.toml"])).says(2, "nowhere.toml");
}
