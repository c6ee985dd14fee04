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

/// Files that the tests of `training` keep.
const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../training/tests/all/golden");

fn in_folder(folder: &Path, words: &[&str]) -> Ended {
    Ended::of(kolo(words).current_dir(folder))
}

const AUTOTUNE: &str = "\
hierarchical_allreduce,hierarchical_allgather,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score
0,0,1,5,64,400
0,0,1,1,32,500
0,0,0,12.5,0,100.5
0,0,1,1,32,500
";

#[test]
fn an_autotuners_log_is_drawn_and_compared_and_not_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("one.csv"), AUTOTUNE).unwrap();
    // Another run, which tried less, and was killed.
    let other = AUTOTUNE.replace("64,400", "64,800");
    fs::write(folder.join("other.csv"), &other[..other.find("0.5\n").unwrap()]).unwrap();
    let ended = in_folder(folder, &["plot", "one.csv", "other.csv", "--out", "figures"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    // Of a figure with several pictures the first is named.
    assert_eq!(ended.stdout, "figure figures/autotune_1.png\n");
    let cut = "kolo: other.csv:4: the line has no end, so its score may be cut; it is left out\n";
    assert!(ended.stderr.contains(cut), "{}", ended.stderr);
    let svg = read(folder, "figures/autotune_1.svg");
    for words in ["Shortest of 3 settings: 2000", "The tuner ended with 32", "cache off"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    assert!(read(folder, "figures/autotune_2.svg").contains("The log ends before the tuner did."));
    let ended = in_folder(folder, &["compare", "one.csv", "other.csv"]);
    // One score of each does not say anything.
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    let case = "autotune, a million bytes with 64 MiB, 5 ms, cache on";
    let line = ended.stdout.lines().find(|line| line.starts_with(case)).unwrap();
    assert!(line.contains("2.500") && line.contains("0.500 [too few blocks]"), "{line}");
    let only = "1 case is in the first run only: autotune, a million bytes with 0 MiB, 12.5 ms, cache off\n";
    assert!(ended.stdout.contains(only), "{}", ended.stdout);
    in_folder(folder, &["calibrate", "--logs", "one.csv"])
        .says(2, "one.csv: a log of Horovod's autotuner has bytes per microsecond of whole settings, and no time of a message");
}

#[test]
fn a_timeline_of_horovod_is_drawn_by_step_and_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let golden = format!("{TIMELINES}/horovod_training.json");
    let text = fs::read_to_string(&golden).unwrap();
    let ended = in_folder(folder, &["plot", &golden, "--topology", "2x1", "--out", "figures"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for name in ["step", "time_by_size", "bus_bandwidth"] {
        assert!(ended.stdout.contains(&format!("figure figures/{name}")), "{}", ended.stdout);
    }
    let svg = read(folder, "figures/time_by_size.svg");
    assert!(svg.contains("mpi-allreduce") && svg.contains("horovod-timeline"), "{svg}");
    // Without the ranks' nodes there is no bus bandwidth, and a name of its own is no obstacle.
    fs::write(folder.join("timeline"), &text[..text.len() - 300]).unwrap();
    let ended = in_folder(folder, &["plot", "timeline", "--out", "cut"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let said = "kolo: timeline: the end of the file is missing; what is whole is read\n";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(ended.stdout.contains("cut/time_by_size"), "{}", ended.stdout);
    // Without shapes a step is left.
    fs::write(folder.join("bare.json"), text.replace("\"shape\"", "\"form\"")).unwrap();
    let ended = in_folder(folder, &["plot", "bare.json", "--out", "bare"]);
    assert_eq!(
        (ended.status, &*ended.stdout),
        (Some(0), "figure bare/step.png\n"),
        "{}",
        ended.stderr
    );
    let said = "it has 9 allreduces, but not their sizes: expected args with dtype and shape where an ALLREDUCE ends";
    assert!(ended.stderr.contains(said) && ended.stderr.contains("; no allreduce is drawn"));
    let first = text.find(r#"{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 98337"#).unwrap();
    fs::write(folder.join("early.json"), &text[..first]).unwrap();
    in_folder(folder, &["plot", "early.json", "--out", "early"])
        .says(2, "early.json: there is no whole training step in it; record at least two");
    in_folder(folder, &["plot", &golden, "--topology", "1x1", "--out", "few"])
        .says(2, "--topology 1x1 has 1 ranks, but rank 1 is in the file; expected 2 ranks or more");
}

/// A timeline of Horovod of so many steps of one tensor; packing takes twice as long if `is_slow`.
fn timeline(steps: usize, is_slow: bool) -> String {
    let mut events =
        vec![r#"{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "w"}}"#.to_string()];
    let mut now_us = 0;
    for step in 0..steps {
        let mut event = |ph: &str, after_us: usize, name: &str, more: &str| {
            now_us += after_us;
            let name =
                if name.is_empty() { String::new() } else { format!(r#", "name": "{name}""#) };
            events.push(format!(r#"{{"ph": "{ph}", "pid": 1, "ts": {now_us}{name}{more}}}"#));
        };
        // Steps differ, or there would be nothing to rank.
        event("B", 1000 + step % 3, "NEGOTIATE_ALLREDUCE", "");
        event("X", 0, "0", r#", "dur": 0"#);
        event("E", 50 + step % 5, "", "");
        event("B", 1, "ALLREDUCE", "");
        event("B", 1, "MEMCPY_IN_FUSION_BUFFER", "");
        event("E", if is_slow { 200 } else { 100 } + step % 7, "", "");
        event("B", 1, "NCCL_ALLREDUCE", "");
        event("E", 30, "", "");
        event("E", 1, "", r#", "args": {"dtype": "float32", "shape": "[1024]"}"#);
    }
    format!("[\n{}\n]", events.join(",\n"))
}

#[test]
fn timelines_are_compared_by_activity() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("before.json"), timeline(60, false)).unwrap();
    fs::write(folder.join("after.json"), timeline(70, true)).unwrap();
    let ended = in_folder(folder, &["compare", "before.json", "after.json"]);
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    let line = |name: &str| {
        let name = format!("timeline, {name}");
        ended
            .stdout
            .lines()
            .find(|line| line.starts_with(&name))
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert!(line("MEMCPY_IN_FUSION_BUFFER in a step").ends_with("  slower"), "{}", ended.stdout);
    assert!(line("a step").ends_with("  slower"), "{}", ended.stdout);
    // 100 us of a step of some 1200 us.
    let weight = line("MEMCPY_IN_FUSION_BUFFER in a step").split_whitespace().rev().nth(2).unwrap();
    let weight: f64 = weight.trim_start_matches('+').parse().unwrap();
    assert!((7.0..9.0).contains(&weight), "{}", ended.stdout);
    assert!(!ended.stdout.contains("all together"), "{}", ended.stdout);
    let same = in_folder(folder, &["compare", "before.json", "before.json", "--threshold", "5%"]);
    assert_eq!(same.status, Some(0), "{}", same.stdout);
    // Another model.
    let golden = format!("{TIMELINES}/horovod_training.json");
    in_folder(folder, &["compare", &golden, "before.json"]).says(
        2,
        "the gradients of a timeline differ, their digest is 4 tensors of 273448 bytes in the first run and 1 tensors of 4096 \
         bytes in the second",
    );
    let quick = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/reference/quick");
    in_folder(folder, &["compare", "before.json", quick])
        .says(2, "the runs are of different workloads: a timeline and resnet50");
    let text = timeline(60, false);
    fs::write(folder.join("one.json"), &text[..text.rfind("NEGOTIATE").unwrap() / 60]).unwrap();
    in_folder(folder, &["compare", "before.json", "one.json"])
        .says(2, "expected at least 2, since the first one warms up; record a longer timeline");
}

#[test]
fn a_machine_file_is_fitted_to_a_timeline_with_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("sized.json"), sized()).unwrap();
    let calibrate =
        |more: &[&str]| in_folder(folder, &[&["calibrate", "--logs", "sized.json"], more].concat());
    let ended = calibrate(&[]);
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("does not say which ranks there were; give --topology"),
        "{}",
        ended.stdout
    );
    let ended = calibrate(&["--topology", "1x2"]);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    // 20 us and 0.001 us/B by two hops of an assumed ring.
    let alpha = ended.stdout.lines().find(|line| line.starts_with("alpha_us")).unwrap();
    assert!(
        alpha.contains("value = 10.0") && alpha.contains("assumed: a ring"),
        "{}",
        ended.stdout
    );
    let bandwidth = ended.stdout.lines().find(|line| line.starts_with("bandwidth_gb_s")).unwrap();
    assert!(bandwidth.contains("value = 1.0,"), "{bandwidth}");
    let bare = sized().replace("\"shape\"", "\"form\"");
    fs::write(folder.join("bare.json"), bare).unwrap();
    in_folder(folder, &["calibrate", "--logs", "bare.json", "--topology", "1x2"]).says(
        2,
        "bare.json: it has 10 allreduces, but not their sizes: expected args with dtype and shape",
    );
    // MPI libraries choose among algorithms.
    fs::write(folder.join("mpi.json"), sized().replace("NCCL_", "MPI_")).unwrap();
    let words = ["calibrate", "--logs", "mpi.json", "--topology", "1x2"];
    let ended = in_folder(folder, &words);
    assert!(
        ended.stdout.contains("the hops of Ring and Tree are known, of mpi-allreduce not"),
        "{}",
        ended.stdout
    );
    let ended = in_folder(folder, &[&words[..], &["--algo", "ring"]].concat());
    assert_eq!(ended.status, Some(0), "{}", ended.stdout);
}

/// Five tensors of 1 to 256 kB, each by itself in a message of 20 us and 1 us per kB, in two steps.
fn sized() -> String {
    let mut events = Vec::new();
    let mut now_us = 0;
    for _ in 0..2 {
        for tensor in 0..5 {
            let elements = 250 * 4_usize.pow(tensor);
            let mut event = |ph: &str, after_us: usize, more: &str| {
                now_us += after_us;
                events.push(format!(r#"{{"ph": "{ph}", "pid": {tensor}, "ts": {now_us}{more}}}"#));
            };
            event("B", 100, r#", "name": "NEGOTIATE_ALLREDUCE""#);
            event("E", 9, "");
            event("B", 1, r#", "name": "ALLREDUCE""#);
            event("B", 1, r#", "name": "NCCL_ALLREDUCE""#);
            event("E", 20 + 4 * elements / 1000, "");
            event("E", 1, &format!(r#", "args": {{"dtype": "float32", "shape": "[{elements}]"}}"#));
        }
    }
    format!("[{}]", events.join(","))
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
    let ended = run(&["-d", "uint8", "-o", "sum,prod,max"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.matches(" uint8 ").count(), 2 * 3, "{}", ended.stdout);
    assert!(ended.stdout.contains("# Out of bounds values : 0 OK"), "{}", ended.stdout);
    let ended = run(&["--format", "osu"]);
    assert!(ended.stdout.contains("\n# OSU MPI Allreduce Latency Test\n"), "{}", ended.stdout);
    for (options, expected) in [
        (&["-m", "3"][..], "-m 3: collectives are launched one by one, expected 1"),
        (&["-N", "0"], "-N 0: a run without end is not offered, expected at least 1"),
        (&["-G", "1"], "-G requires --transport cuda"),
        (&["-z", "4"], "4 is not in 0..=3"),
        (&["-d", "uint16"], "element type \"uint16\" is unknown; choose from f32"),
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
