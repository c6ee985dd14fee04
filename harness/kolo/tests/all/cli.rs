//! The binary as a user runs it.

mod against;
mod calibrate;
mod columnar;
mod compare;
mod control;
mod environment;
mod examples;
mod formats;
mod hlog;
mod kill;
mod logs;
mod nodes;
mod readers;
mod report;
mod reproduce;
pub mod sandbox;
mod schema;
mod simulated;
mod timeline;
mod tune;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;

use self::sandbox::{Ended, Sweep, kolo};
use algorithms::registry::ALL;
use results::block::Sample;
use serde_json::Value;

#[test]
fn a_sweep_leaves_rows_samples_and_provenance() {
    let sweep = Sweep::new(&[]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in &rows {
        assert_eq!((row["status"].as_str(), row["wrong"].as_str()), ("ok", "0"));
        assert_eq!((row["samples"].as_str(), row["checked"].as_str()), ("6", "2"));
        assert_eq!((row["emulated"].as_str(), row["source"].as_str()), ("true", "measured"));
        assert_eq!((row["ranks"].as_str(), row["stop_reason"].as_str()), ("4", "count"));
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        // Two blocks do not show how much blocks differ.
        assert_eq!((row["interval_over"].as_str(), row["time_us_p50_low"].as_str()), ("", ""));
        assert!(number("time_us_p50") >= number("bound_us"), "no step beats its own computation");
        let (reduction_us, data_us) = (number("reduction_us_p50"), number("data_us_p50"));
        assert!((0.0..=data_us).contains(&reduction_us), "a part of the allreduces");
        let messages = number("messages_p50");
        match row["algorithm"].as_str() {
            "grouped" if row["fusion_threshold_bytes"] == "67108864" => assert!(messages <= 2.0),
            _ => assert!((1.0..=6.0).contains(&messages)),
        }
        // Both ways around a ring of 4, and the optimizer's 7,229 gradients in f32.
        let bytes = number("inside_bytes") + number("between_bytes");
        assert_eq!(bytes, 6.0 * 7229.0 * 4.0);
    }
    assert_eq!(sweep.read("out/samples.csv").lines().count(), 1 + 8 * 2 * 3);
    assert!(ended.stdout.contains("  best "), "{}", ended.stdout);
    assert!(ended.stdout.contains("blocks: 8 cases have fewer than 5, "), "{}", ended.stdout);
    assert!(ended.stdout.contains("best for this engine on this machine, not for a cluster"));
    assert_eq!(sweep.read("out/summary.txt") + "results in out\n", ended.stdout);
    let provenance: Value = serde_json::from_str(&sweep.read("out/provenance.json")).unwrap();
    assert_eq!(provenance["seed"], 7);
    assert_eq!(provenance["config"]["sweep"]["groups"], 2);
    assert!(provenance["launches"][0]["ended"].is_string());
    assert!(provenance["launches"][0]["command"][1] == "sweep");
    // What was written can be drawn.
    let drawn = Ended::of(kolo(&["plot", "out"]).current_dir(sweep.folder.path()));
    assert_eq!(drawn.status, Some(0), "{}", drawn.stderr);
    for figure in ["surface", "negotiation"] {
        assert!(sweep.path(&format!("out/figures/{figure}.svg")).exists(), "{}", drawn.stderr);
    }
}

#[test]
fn a_sweep_concludes_for_programs() {
    let sweep = Sweep::new(&[("\"coordinator\", ", "")]);
    let ended = sweep.run(&["--json"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let concluded: Value = serde_json::from_str(&ended.stdout).unwrap();
    schema::is_as_described("sweep", &concluded);
    assert_eq!(concluded["results"], "out");
    let written: Value = serde_json::from_str(&sweep.read("out/conclusion.json")).unwrap();
    assert_eq!(concluded["verdicts"], written["verdicts"]);
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let order = |seed: &str| {
        let sweep = Sweep::new(&[("seed = 7", seed)]);
        assert_eq!(sweep.run(&[]).status, Some(0));
        // The case at each place of each round; blocks that were measured again are later in the file.
        let mut samples = csv::Reader::from_path(sweep.path("out/samples.csv")).unwrap();
        let samples = samples.deserialize::<Sample>().map(Result::unwrap);
        samples.map(|it| ((it.block, it.order), it.case)).collect::<BTreeMap<_, _>>()
    };
    let first = order("seed = 7");
    assert_eq!(first, order("seed = 7"));
    assert_ne!(first, order("seed = 8"));
}

#[test]
fn a_dry_run_prints_every_case_and_writes_nothing() {
    let sweep = Sweep::new(&[("\"2x2\"", "\"2x2\", \"3+1\""), ("\"ring\"", "\"hierarchical\"")]);
    let ended = sweep.run(&["--dry-run"]);
    assert_eq!(ended.status, Some(0));
    assert!(ended.stdout.contains("threads/2x2/bitvector/hierarchical/64MiB/0.5ms  4 steps"));
    assert!(ended.stdout.contains("threads/3+1/bitvector/hierarchical/64MiB/0.5ms  unsupported:"));
    assert!(ended.stdout.contains("16 cases of tiny (6 gradients, 0.0 MB); each 2 blocks of"));
    assert!(!sweep.path("out").exists());
}

#[test]
fn an_unsupported_case_is_a_row_and_the_rest_goes_on() {
    let sweep = Sweep::new(&[("\"2x2\"", "\"3+1\""), ("\"grouped\"", "\"hierarchical\"")]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for row in sweep.rows() {
        if row["algorithm"] == "hierarchical" {
            assert_eq!(row["status"], "unsupported");
            assert!(row["reason"].contains("needs nodes of one size, but these have 3+1"));
        } else {
            assert_eq!(row["status"], "ok");
        }
    }
    assert!(ended.stdout.contains("unsupported threads/3+1/coordinator/hierarchical"));
}

#[test]
fn invalid_command_lines_end_with_status_2_and_advice() {
    Sweep::new(&[("\"ring\"", "\"rign\"")])
        .run(&[])
        .says(2, "kolo: test.toml: sweep.algorithm: algorithm \"rign\" is unknown; did you mean");
    Sweep::new(&[("groups = 2", "group = 2")])
        .run(&[])
        .says(2, "kolo: test.toml: line 13: unknown field `group`, expected one of");
    Sweep::new(&[("tiny.csv", "resnet5")])
        .run(&[])
        .says(2, "kolo: test.toml: workloads/resnet5.csv: No such file");
    // A model that ships with the program is found beside no configuration.
    let from_repository = |model: &str| {
        let sweep = Sweep::new(&[("tiny.csv", model)]);
        let path = sweep.path("test.toml").display().to_string();
        let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        Ended::of(kolo(&["sweep", &path, "--dry-run"]).current_dir(repository))
    };
    let shipped = from_repository("resnet50");
    assert!(shipped.stdout.contains("cases of resnet50 (161 gradients"), "{}", shipped.stderr);
    from_repository("resnet5").says(2, "; did you mean resnet50? There are alexnet, bert_base, ");
    let groups = "[framework]\ngroups = [[\"a.bias\", \"d.bias\"]]\n[sweep]";
    Sweep::new(&[("[sweep]", groups)])
        .run(&[])
        .says(2, "kolo: test.toml: framework.groups: workload tiny has no gradient \"d.bias\"");
    let sweep = Sweep::new(&[]);
    fs::write(sweep.path("tiny.csv"), "index,name,shape,elements\n0,a,2x2,5\n").unwrap();
    sweep.run(&[]).says(2, "tiny.csv:2: elements is 5, expected the product of the shape 2x2");
    Ended::of(&mut kolo(&["sweep", "nowhere.toml"])).says(2, "kolo: nowhere.toml: No such file");
    Ended::of(&mut kolo(&["bench", "--algorithm", "rign"]))
        .says(2, "algorithm \"rign\" is unknown");
    Ended::of(&mut kolo(&["bench", "-d", "i32", "-o", "avg"]))
        .says(2, "average of i32 would have to round; use sum");
    Ended::of(&mut kolo(&["bench", "-b", "1M", "-e", "1K"]))
        .says(2, "sizes from 1048576 to 1024 bytes: the range is empty");
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    for missing in ["nowhere.toml", "."] {
        Ended::of(kolo(&["sweep", missing]).current_dir(configs))
            .says(2, "in . there are ci.toml, cluster.toml, control-planes.toml, ");
    }
    Ended::of(&mut kolo(&["verify", "--ranks", "0"]))
        .says(2, "\"0\" is not a range of ranks; write 1..64 or 8");
    Ended::of(&mut kolo(&["plot", "nowhere"])).says(2, "nowhere");
}

#[test]
fn numbers_beyond_their_range_are_refused_with_it() {
    for (arguments, expected) in [
        (
            &["bench", "-b", "-5"][..],
            "value '-5' for '--minbytes <BYTES>': \"-5\" is not a size; write 1048576",
        ),
        (&["bench", "-n", "-1"], "expected a whole number from 0"),
        (
            &["bench", "--ranks", "0"],
            "'--ranks <RANKS>': expected a number of ranks from 1 to 4096",
        ),
        (&["bench", "--ranks", "100000"], "expected a number of ranks from 1 to 4096"),
        (&["bench", "--topology", "0x2"], "--topology: \"0x2\" is not a topology; write nodes x"),
        (&["tune", "--backward-ms", "-3"], "expected a number from 0 to 100000"),
        (
            &["timeline", "a.json", "--tensors", "-1"],
            "'--tensors <COUNT>': expected a whole number",
        ),
        (&["verify", "--control-planes", "0"], "expected a whole number from 1"),
        (&["verify", "--control-planes", "-1"], "expected a whole number from 1"),
        (
            &["bench", "-b", "1", "-e", "2"],
            "size 1 is smaller than one element of f32; choose -b 4",
        ),
        (&["bench", "-b", "4", "-e", "8", "-d", "f32,f64"], "smaller than one element of f64"),
    ] {
        let ended = Ended::of(&mut kolo(arguments));
        ended.says(2, expected);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn results_are_never_overwritten() {
    let sweep = Sweep::new(&[("interval_percent = 0", "interval_percent = 100")]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let rows = sweep.read("out/rows.csv");
    let bench = ["bench", "--out", "nowhere/b.csv"];
    Ended::of(kolo(&bench).current_dir(sweep.folder.path()))
        .says(2, "kolo: nowhere/b.csv cannot be written: No such file or directory");
    let beneath_a_file = ["sweep", "test.toml", "--out", "test.toml/out"];
    Ended::of(kolo(&beneath_a_file).current_dir(sweep.folder.path()))
        .says(2, "kolo: test.toml/out cannot be written: Not a directory");
    sweep.run(&[]).says(2, "out exists; results are never overwritten: add --resume");
    // Resuming a finished run measures nothing.
    assert_eq!(sweep.run(&["--resume"]).status, Some(0));
    assert_eq!(sweep.read("out/rows.csv"), rows);
    // Another sweep is not mixed into it.
    sweep.configure(&[("seed = 7", "seed = 8")]);
    sweep.run(&["--resume"]).says(
        2,
        "another sweep: measure.interval_percent: the folder has 100.0, now it is 0.0; resume",
    );
    // Whatever differs: nothing of what is there is touched.
    let samples = sweep.read("out/samples.csv");
    sweep.configure(&[
        ("interval_percent = 0", "interval_percent = 100"),
        ("steps_per_block = 3", "steps_per_block = 4"),
    ]);
    sweep
        .run(&["--resume"])
        .says(2, "another sweep: measure.steps_per_block: the folder has 3, now it is 4; resume");
    sweep.configure(&[("interval_percent = 0", "interval_percent = 100")]);
    let gradients = sweep.read("tiny.csv").replace("300x7", "7x300");
    fs::write(sweep.path("tiny.csv"), gradients).unwrap();
    sweep.run(&["--resume"]).says(2, "another sweep: workload: the folder has gradients ");
    let provenance = sweep.read("out/provenance.json").replace("\"schema\": 9", "\"schema\": 0");
    fs::write(sweep.path("out/provenance.json"), provenance).unwrap();
    sweep
        .run(&["--resume"])
        .says(2, "the folder is of schema 0, this kolo writes 9; resume it with");
    assert_eq!(sweep.read("out/samples.csv"), samples);
    let nothing = Sweep::new(&[]);
    nothing.run(&["--resume"]).says(2, "out: no provenance.json, so there is no run to resume");
}

/// Once every case has its minimum of blocks, no block begins after the budget is spent.
#[test]
fn a_budget_ends_a_sweep_after_the_minimum() {
    let sweep = Sweep::new(&[("blocks_max = 2", "blocks_max = 50\nbudget_seconds = 0.001")]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    for row in sweep.rows() {
        assert_eq!((row["stop_reason"].as_str(), row["blocks"].as_str()), ("budget", "2"));
    }
}

/// Each launch is a process of its own, and measures all its blocks.
#[test]
fn launches_follow_each_other() {
    let sweep = Sweep::new(&[]);
    let ended = sweep.run(&["--launches", "3"]);
    ended.says(0, "launch 1 of 3 is done");
    ended.says(0, "launch 2 of 3 is done");
    assert!(ended.stdout.contains("% is between launches"), "{}", ended.stdout);
    assert_eq!(ended.stdout.matches("results in").count(), 1);
    for row in sweep.rows() {
        let of = |column: &str| row[column].as_str();
        assert_eq!((of("blocks"), of("launches"), of("samples")), ("6", "3", "18"));
        assert_eq!(of("stop_reason"), "count");
        // A change of speed that rounds do not tell takes the interval away.
        let may_lack = !of("speed_change_percent").is_empty() && of("interval_over").is_empty();
        assert!(may_lack || of("interval_over") == "launches", "{row:?}");
    }
    let provenance: Value = serde_json::from_str(&sweep.read("out/provenance.json")).unwrap();
    let launches = provenance["launches"].as_array().unwrap();
    assert_eq!(launches.len(), 3);
    assert!(launches.iter().all(|launch| launch["ended"].is_string()));
    let mut samples = csv::Reader::from_path(sweep.path("out/samples.csv")).unwrap();
    let samples: Vec<HashMap<String, String>> = samples.deserialize().map(Result::unwrap).collect();
    for (launch, blocks) in [("1", ["0", "1"]), ("2", ["2", "3"]), ("3", ["4", "5"])] {
        let of_launch = samples.iter().filter(|sample| sample["launch"] == launch);
        assert!(of_launch.clone().all(|sample| blocks.contains(&sample["block"].as_str())));
        assert_eq!(of_launch.count(), 8 * 2 * 3);
    }
    let zero = sweep.run(&["--launches", "0"]);
    zero.says(2, "invalid value '0' for '--launches <COUNT>': expected at least 1");
}

/// Every block has as many steps as the option says, and a folder keeps its number.
#[test]
fn an_option_sets_the_steps_of_each_block() {
    let sweep = Sweep::new(&[]);
    sweep.run(&["--steps", "1"]).says(0, "measure.steps_per_block");
    for row in sweep.rows() {
        assert_eq!((row["blocks"].as_str(), row["samples"].as_str()), ("2", "2"));
    }
    let more = sweep.run(&["--resume", "--steps", "2"]);
    more.says(2, "another sweep: measure.steps_per_block: the folder has 1, now it is 2; resume");
    let zero = sweep.run(&["--steps", "0"]);
    zero.says(2, "invalid value '0' for '--steps <COUNT>': expected at least 1");
}

/// Another job adds launches to what an earlier one has measured.
#[test]
fn launches_are_added_to_a_run_that_is_done() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let before = sweep.read("out/samples.csv");
    assert_eq!(sweep.run(&["--resume", "--launches", "3"]).status, Some(0));
    assert!(sweep.read("out/samples.csv").starts_with(&before), "what is there stays");
    for row in sweep.rows() {
        let of = |column: &str| row[column].as_str();
        assert_eq!((of("blocks"), of("launches"), of("samples")), ("6", "3", "18"));
    }
    let fewer = sweep.run(&["--resume", "--launches", "2"]);
    fewer.says(2, "another sweep: measure.launches: the folder has 3, now it is 2; resume");
}

/// A killed launch is continued by the next one, and the number of launches that follow stays.
#[test]
fn a_killed_launch_is_continued() {
    let sweep = Sweep::new(&[("steps_per_block = 3", "steps_per_block = 3\nlaunches = 2")]);
    sweep.killed_at_file_size(8);
    let before = sweep.read("out/samples.csv").lines().count();
    assert!(before < 1 + 8 * 2 * 3, "in the first launch: {before}");
    assert_eq!(sweep.run(&["--resume"]).status, Some(0));
    let rows = sweep.rows();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row["blocks"] == "4" && row["samples"] == "12"));
}

/// A row that has failed is measured again when that is asked for; blocks that are there count.
#[test]
fn cases_that_failed_are_measured_again_on_request() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let rows = sweep.read("out/rows.csv");
    fs::write(sweep.path("out/rows.csv"), rows.replacen(",ok,,", ",failed,a node is gone,", 1))
        .unwrap();
    let ended = sweep.run(&["--resume"]);
    assert!(ended.status == Some(1) && ended.stdout.contains("a node is gone"), "{}", ended.stdout);
    let ended = sweep.run(&["--resume", "--retry", "failed"]);
    ended.says(0, "cases that have failed and are measured again: 1");
    let rows = sweep.rows();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row["status"] == "ok" && row["blocks"] == "2"));
}

#[test]
fn what_another_commit_began_is_resumed_on_request() {
    let sweep = Sweep::new(&[("\"coordinator\", ", "")]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let rows = sweep.read("out/rows.csv");
    let first: Vec<&str> = rows.lines().take(2).collect();
    fs::write(sweep.path("out/rows.csv"), first.join("\n") + "\n").unwrap();
    let text = sweep.read("out/provenance.json");
    let mut provenance: Value = serde_json::from_str(&text).unwrap();
    let own = provenance["launches"][0]["commit"].as_str().unwrap().to_string();
    provenance["launches"][0]["commit"] = "0123456789".into();
    fs::write(sweep.path("out/provenance.json"), provenance.to_string()).unwrap();
    sweep.run(&["--resume"]).says(2, "was measured by commit 0123456789, this kolo is of commit ");
    assert_eq!(sweep.run(&["--resume", "--force"]).status, Some(0));
    let mut commits: Vec<String> =
        sweep.rows().into_iter().map(|row| row["commit"].clone()).collect();
    commits.sort();
    commits.dedup();
    assert!(commits.contains(&format!("0123456789+{own}")), "{commits:?}");
}

#[test]
fn a_cut_last_line_is_reported_and_redone() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    for name in ["out/rows.csv", "out/samples.csv"] {
        let text = sweep.read(name);
        fs::write(sweep.path(name), &text[..text.len() - 9]).unwrap();
    }
    let ended = sweep.run(&["--resume"]);
    ended.says(0, "the last line of rows.csv was cut off and is dropped");
    ended.says(0, "the last line of samples.csv was cut off and is dropped");
    assert_eq!(sweep.rows().len(), 8);
    assert_eq!(sweep.read("out/samples.csv").lines().count(), 1 + 8 * 2 * 3);
}

/// A full disk, by a limit on the size of files.
#[test]
fn a_full_disk_loses_nothing_that_was_written() {
    let sweep = Sweep::new(&[]);
    let script = format!(
        "trap '' XFSZ; ulimit -f 4; exec {} sweep test.toml --out out --no-figures",
        env!("CARGO_BIN_EXE_kolo")
    );
    let mut limited = Command::new("bash");
    let ended = Ended::of(limited.args(["-c", &script]).current_dir(sweep.folder.path()));
    ended.says(1, "File too large");
    ended.says(1, "earlier results are intact");
    let before = sweep.read("out/samples.csv").lines().count();
    assert!((1..49).contains(&before), "{before} lines");
    let ended = sweep.run(&["--resume"]);
    ended.says(0, "blocks are there");
    assert_eq!(sweep.rows().len(), 8);
    assert_eq!(sweep.read("out/samples.csv").lines().count(), 1 + 8 * 2 * 3);
}

/// nccl-tests' table has a line for every algorithm, type, operation and size. That data are right in worlds of all
/// sizes is tested beside the transports.
#[test]
fn bench_prints_a_line_for_every_algorithm_type_operation_and_size() {
    // 4 floating-point types x 5 operations and 3 integer types x 4.
    for (algorithm, dtype, op, tables, lines) in
        [("all", "f32", "sum", ALL.len(), 1), ("ring,grouped", "all", "all", 2, 32)]
    {
        let every = ["bench", "--algorithm", algorithm, "-d", dtype, "-o", op, "--ranks", "2"];
        let sizes = ["--sizes", "1120:2200:+1000", "-n", "1", "-w", "1"];
        let ended = Ended::of(kolo(&every).args(sizes));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let printed: Vec<_> = ended.stdout.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(printed.len(), tables * lines * 2, "in 2 sizes");
        for line in printed {
            let fields: Vec<_> = line.split_whitespace().collect();
            assert_eq!((fields.len(), fields[8], fields[12]), (13, "0", "0"), "{line}");
        }
        assert_eq!(ended.stdout.matches("# Out of bounds values : 0 OK").count(), tables);
    }
}

#[test]
fn bench_writes_rows_that_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let bench = &["bench", "--ranks", "2", "-b", "1K", "-e", "4K", "-n", "10", "--out", "b.csv"];
    let ended = Ended::of(kolo(bench).current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let plot = ["plot", "b.csv", "--out", "figures"];
    let ended = Ended::of(kolo(&plot).current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(folder.path().join("figures/bus_bandwidth_allreduce.png").exists());
    let provenance = fs::read_to_string(folder.path().join("b.provenance.json")).unwrap();
    assert!(provenance.contains("\"command\"") && provenance.contains("\"machine\""));
    let ended = Ended::of(kolo(bench).current_dir(folder.path()));
    ended.says(2, "b.csv exists; results are never overwritten");
    // An unsupported line is a row with its reason, too.
    let bench = ["bench", "--topology", "3+1", "--algorithm", "hierarchical", "--out", "c.csv"];
    let ended = Ended::of(kolo(&bench).current_dir(folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = fs::read_to_string(folder.path().join("c.csv")).unwrap();
    assert!(rows.contains("unsupported,\"hierarchical needs nodes of one size"), "{rows}");
}

/// Eight servers need eight ranks.
#[test]
fn verify_that_proves_nothing_says_so() {
    let verify = ["verify", "--algorithm", "parameter-server:8", "--ranks", "1..2"];
    let expected = "nothing is proved of parameter-server:8: unsupported on every topology; give other --ranks";
    Ended::of(&mut kolo(&verify)).says(3, expected);
}

#[test]
fn verify_and_info_list_algorithms_and_control_planes() {
    let ended = Ended::of(&mut kolo(&["verify", "--ranks", "1..12"]));
    assert_eq!(ended.status, Some(0));
    let proved = ALL.iter().filter(|entry| !entry.chooses());
    for name in proved.map(|entry| entry.name).chain(["hierarchical:tree"]) {
        assert!(ended.stdout.contains(&format!("{name:<22} proved on 35 topologies")), "{name}");
    }
    let ended = Ended::of(&mut kolo(&["info"]));
    assert!(ended.stdout.contains("algorithms") && ended.stdout.contains("bitvector"));
}
