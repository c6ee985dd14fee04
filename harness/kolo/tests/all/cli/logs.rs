//! Logs of other programs, read by `kolo plot`, `kolo compare` and `kolo calibrate`, and the layouts that `kolo bench`
//! shares with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Ended, kolo};

/// Logs that are kept for tests: runs of ours in these formats.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/tests/data/logs");

fn data(name: &str) -> String {
    format!("{DATA}/{name}")
}

#[test]
fn logs_are_drawn_without_conversion() {
    let folder = tempfile::tempdir().unwrap();
    for (index, name) in
        ["kolo-bench.log", "kolo-bench.json", "osu-allreduce.txt"].iter().enumerate()
    {
        let out = format!("figures{index}");
        let plot = ["plot", &data(name), "--out", &out];
        let ended = Ended::of(kolo(&plot).current_dir(folder.path()));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let expected = format!("figure {out}/bus_bandwidth_allreduce");
        assert!(ended.stdout.contains(&expected), "{name}: {}", ended.stdout);
    }
}

#[test]
fn logs_are_compared_and_a_cut_one_says_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(data("kolo-bench.log")).unwrap();
    let cut = &text[..text.find("# Avg bus").unwrap() - 200];
    fs::write(folder.path().join("cut.log"), cut).unwrap();
    let compare = ["compare", "cut.log", &data("kolo-bench.log"), "--all"];
    let ended = Ended::of(kolo(&compare).current_dir(folder.path()));
    let line = cut.lines().count();
    assert!(ended.stderr.contains(&format!("kolo: cut.log:{line}: ")), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("allreduce nccl-tests/2x2/ring/f32/sum/1024B/in-place"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_machine_file_is_fitted_to_logs_and_can_be_simulated() {
    let folder = tempfile::tempdir().unwrap();
    // Of one node; ranks of the kept log are on two.
    let text = fs::read_to_string(data("kolo-bench.log")).unwrap().replace("[node 1]", "[node 0]");
    fs::write(folder.path().join("one.log"), text).unwrap();
    let calibrate = ["calibrate", "--logs", "one.log", "--proto", "Simple", "--out", "gpus.toml"];
    let ended = Ended::of(kolo(&calibrate).current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for words in [
        "ring, Simple, 1x4: ",
        "residual ",
        "8 points 1024:",
        "left out: [nccl]: no log has its channels",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let file = fs::read_to_string(folder.path().join("gpus.toml")).unwrap();
    assert!(
        file.contains("[socket.simple]")
            && file.contains("measured: kolo calibrate --logs one.log"),
        "{file}"
    );
    let predict = |machine: &str| {
        let words =
            ["predict", "--workload", "resnet50", "--backward-ms", "100", "--data-plane", "ring"];
        Ended::of(kolo(&words).args(["--machine", machine]).current_dir(folder.path()))
    };
    predict("gpus.toml").says(2, "machine gpus has no [control]");
    let complete = ["--complete", "dgx-a100", "--out", "whole.toml"];
    let ended = Ended::of(kolo(&calibrate[..3]).args(complete).current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let ended = predict("whole.toml");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("resnet50"), "{}", ended.stdout);
    // The file is there now, and no log of one kind of links is a machine.
    Ended::of(kolo(&calibrate).current_dir(folder.path())).says(2, "gpus.toml exists");
    let ended = Ended::of(&mut kolo(&["calibrate", "--logs", &data("kolo-bench.log")]));
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("do not tell hops on nodes from hops between them"),
        "{}",
        ended.stdout
    );
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/quick.toml");
    Ended::of(&mut kolo(&["calibrate", "--logs", config])).says(2, "expected a log of nccl-tests");
}

#[test]
fn bench_starts_ranks_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |options: &[&str]| {
        let sizes = ["bench", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "25", "-w", "2"];
        let out = format!("{}.csv", options.last().unwrap_or(&"default"));
        let mut command = kolo(&sizes);
        let ended =
            Ended::of(command.args(options).args(["--out", &out]).current_dir(folder.path()));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let mut reader = csv::Reader::from_path(folder.path().join(out)).unwrap();
        let head = reader.headers().unwrap().clone();
        let named = |record: csv::StringRecord| {
            let pairs = head.iter().zip(&record);
            pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let rows: Vec<BTreeMap<String, String>> =
            reader.records().map(|record| named(record.unwrap())).collect();
        (ended.stdout, rows)
    };
    let (said, barrier) = rows(&[]);
    assert!(said.contains("of the maximum over ranks, after a barrier;"), "{said}");
    for row in barrier {
        assert_eq!((&*row["sync"], &*row["late"], &*row["clock_error_us"]), ("barrier", "", ""));
        // Repetitions that follow each other too much have no interval.
        let has_interval = !row["time_us_p50_low"].is_empty();
        let over = if has_interval { "repetitions" } else { "" };
        assert_eq!((&*row["samples"], &*row["interval_over"]), ("25", over));
    }
    for (start, words) in
        [("round-time", "named for each to the end"), ("window", "named for ten at a time to")]
    {
        let (said, rows) = rows(&["--sync", start]);
        assert!(said.contains(words), "{said}");
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((&*row["sync"], &*row["clock_error_us"]), (start, "0.0"));
            let [late, samples] =
                ["late", "samples"].map(|name| row[name].parse::<usize>().unwrap());
            assert!(samples == 25 || (samples + late == 25 && late <= 12), "{late} of {samples}");
            assert_eq!(row["wrong"], "0");
        }
    }
    Ended::of(&mut kolo(&["bench", "--sync", "sometimes"]))
        .says(2, "[possible values: barrier, window, round-time]");
    Ended::of(&mut kolo(&["bench", "--transport", "cuda", "--sync", "window"]))
        .says(2, "--sync requires --transport threads or mpi");
}

#[test]
fn bench_takes_the_options_of_nccl_tests_and_writes_its_json() {
    let folder = tempfile::tempdir().unwrap();
    let run = |options: &[&str]| {
        let sizes = ["bench", "-b", "1K", "-e", "4K", "-n", "3", "-w", "1"];
        Ended::of(kolo(&sizes).args(options).current_dir(folder.path()))
    };
    let ended = run(&[
        "-t", "2", "-g", "2", "-z", "1", "-a", "1", "-M", "1", "-N", "2", "-m", "1", "-G", "0",
    ]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let lines = ended.stdout.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(lines, 4, "two sizes in two cycles");
    for words in [
        "# nThread 4 nGpus 0",
        "# -z 1: ranks start each repetition together",
        "# -a 1: times are of the slowest rank (3)",
        "# memory: buffers of the ranks here take up to 0.0 MB",
        " device  3 [node 0] ",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let ended = run(&["--algorithm", "ring,tree", "--out-prefix", "t", "-J", "a.json", "--bound"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for (name, algorithm) in [("a.json", "ring"), ("a.json.0", "tree")] {
        let file: serde_json::Value = serde_json::from_str(&read(folder.path(), name)).unwrap();
        assert_eq!((&file["version"], file["results"].as_array().unwrap().len()), (&3.into(), 2));
        let first = &file["results"][0];
        assert_eq!(first["experiment_name"], algorithm);
        assert_eq!((&first["root"], &first["in_place"]["nwrong"]), (&"    -1".into(), &0.0.into()));
        assert_eq!(file["out_of_bounds"]["okay"], "true");
        let table = read(folder.path(), &format!("t-{algorithm}.txt"));
        assert_eq!(table.matches("# Avg bus bandwidth").count(), 1);
        assert_eq!(table.matches("# bound ").count(), 2, "{table}");
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        assert!(rows.clone().all(|row| row.split_whitespace().count() == 13), "{table}");
    }
    run(&["--out-prefix", "t"]).says(2, "t-ring.txt: File exists");
    let ended = run(&["--format", "osu"]);
    assert!(ended.stdout.contains("\n# OSU MPI Allreduce Latency Test\n"), "{}", ended.stdout);
    for (options, expected) in [
        (&["-m", "3"][..], "-m 3: collectives are launched one by one, expected 1"),
        (&["-N", "0"], "-N 0: a run without end is not offered, expected at least 1"),
        (&["-G", "1"], "-G requires --transport cuda"),
        (&["-z", "4"], "4 is not in 0..=3"),
        (&["-d", "uint8"], "element type \"uint8\" is unknown; choose from f32"),
        (
            &["-g", "2", "--transport", "mpi"],
            "-t and -g ask for 2 ranks per process, but over mpi a process has one",
        ),
    ] {
        run(options).says(2, expected);
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}
