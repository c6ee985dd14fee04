//! A sweep of control planes alone, as a user runs it.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use crate::cli::sandbox::{Ended, Sweep, kolo};

const CONFIG: &str = r#"
[control]
plane = ["coordinator", "tree:3", "point-to-point", "bitvector", "ddp"]
[control.base]
ranks = 12
tensors = "tiny.csv"
[control.vary]
ranks = [5, 96]
thread_ranks = [3]
tensors = [40]
ready_order = ["shuffled"]
cache_capacity = [0, 4]
miss_share = [0.5]
invalid_share = [0.2]
[measure]
warmup_steps = 2
steps_min = 6
steps_max = 7
seed = 3
"#;

/// Sizes of `rows.csv`, of which a whole sweep writes 22 KiB; other files are smaller than all of them.
const KILLED_AT_KIB: [usize; 4] = [4, 7, 12, 18];

/// The small sweep, with some text of its configuration replaced.
fn sweep(changes: &[(&str, &str)]) -> Sweep {
    let sweep = Sweep::new(&[]);
    configure(&sweep, changes);
    sweep
}

fn configure(sweep: &Sweep, changes: &[(&str, &str)]) {
    let mut config = CONFIG.to_string();
    for (from, to) in changes {
        assert!(config.contains(from), "{from}");
        config = config.replace(from, to);
    }
    fs::write(sweep.path("test.toml"), config).unwrap();
}

type Row = HashMap<String, String>;

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {} is empty", row["case"]))
}

/// The row of a plane that differs from the base in these columns.
fn find<'a>(rows: &'a [Row], plane: &str, differs: &[(&str, &str)]) -> &'a Row {
    let mut wanted = HashMap::from([
        ("transport", "lockstep"),
        ("ranks", "12"),
        ("workload", "tiny.csv"),
        ("ready_order", "same"),
        ("cache_capacity", "1024"),
        ("miss_share", "0.0"),
        ("invalid_share", "0.0"),
        ("control_plane", plane),
    ]);
    wanted.extend(differs.iter().copied());
    let is_it = |row: &&Row| wanted.iter().all(|(column, value)| row[*column] == *value);
    let found: Vec<&Row> = rows.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{plane} {differs:?}");
    found[0]
}

#[test]
fn rows_have_the_work_of_control_planes() {
    let sweep = sweep(&[]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    // The base, two worlds, threads, another list, order, misses, invalid; two capacities.
    assert_eq!(rows.len(), 5 * 8 + 2);
    for row in &rows {
        assert_eq!((row["kind"].as_str(), row["source"].as_str()), ("control", "measured"));
        let changes = row["miss_share"] != "0.0" || row["invalid_share"] != "0.0";
        if row["control_plane"] == "ddp" && changes {
            assert_eq!(row["status"], "unsupported");
            assert!(row["reason"].contains("same tensors in every step"), "{}", row["reason"]);
            continue;
        }
        assert_eq!((row["status"].as_str(), row["wrong"].as_str()), ("ok", "0"), "{row:?}");
        assert_eq!((row["samples"].as_str(), row["checked"].as_str()), ("7", "7"));
        assert_eq!(row["network_source"], "assumed");
        // Nobody measures a network, and nobody a rank among threads.
        let in_lockstep = row["transport"] == "lockstep";
        assert_eq!(row["rank0_us_p50"].is_empty(), !in_lockstep);
        assert_eq!(row["time_us_p50"].is_empty(), in_lockstep);
        let measured = if in_lockstep { "rank0_us_p50" } else { "time_us_p50" };
        assert!(number(row, &format!("{measured}_low")) <= number(row, measured));
        assert!(number(row, measured) > 0.0);
    }
    // Every rank's list reaches rank 0, and every rank gets an answer.
    for ranks in ["5", "12", "96"] {
        let row = find(&rows, "coordinator", &[("ranks", ranks)]);
        let others = ranks.parse::<f64>().unwrap() - 1.0;
        assert_eq!(number(row, "rank0_received_p50"), others);
        assert_eq!(number(row, "rank0_sent_p50"), others);
        assert_eq!(number(row, "control_messages_p50"), 2.0 * others);
        assert_eq!(number(row, "bits_bytes_p50"), 0.0);
        let row = find(&rows, "tree:3", &[("ranks", ranks)]);
        assert_eq!(number(row, "rank0_received_p50"), 3.0, "its children");
        assert_eq!(number(row, "control_messages_p50"), 2.0 * others);
        // Six tensors and an end from everybody; one response and an end to everybody.
        let row = find(&rows, "point-to-point", &[("ranks", ranks)]);
        assert_eq!(number(row, "rank0_received_p50"), 7.0 * others);
        assert_eq!(number(row, "rank0_sent_p50"), 2.0 * others);
        assert_eq!(number(row, "control_messages_p50"), 9.0 * others);
        assert!(number(row, "network_us_p50") > 9.0 * others * number(row, "network_message_us"));
        // Cached: no message, one AND.
        let row = find(&rows, "bitvector", &[("ranks", ranks)]);
        assert_eq!(number(row, "control_messages_p50") + number(row, "slow_cycles_p50"), 0.0);
        assert_eq!((number(row, "hits_p50"), number(row, "misses_p50")), (6.0, 0.0));
        let bits_bytes = 8.0 * (others + 1.0);
        assert_eq!((number(row, "cycles_p50"), number(row, "bits_bytes_p50")), (1.0, bits_bytes));
        assert_eq!(number(row, "bytes_horovod_p50"), 0.0);
        let row = find(&rows, "ddp", &[("ranks", ranks)]);
        assert_eq!(number(row, "network_us_p50") + number(row, "control_messages_p50"), 0.0);
    }
    let bits = |differs: (&str, &str)| find(&rows, "bitvector", &[differs]);
    let uncached = bits(("cache_capacity", "0"));
    assert_eq!(number(uncached, "rank0_received_p50"), 11.0);
    // Six tensors, and room for four of them.
    let small = bits(("cache_capacity", "4"));
    assert_eq!((number(small, "misses_p50"), number(small, "evictions_p50")), (2.0, 2.0));
    let misses = bits(("miss_share", "0.5"));
    assert_eq!((number(misses, "hits_p50"), number(misses, "misses_p50")), (3.0, 3.0));
    let invalid = bits(("invalid_share", "0.2"));
    assert_eq!((number(invalid, "invalid_p50"), number(invalid, "hits_p50")), (1.0, 5.0));
    assert_eq!(number(invalid, "slow_cycles_p50"), 1.0);
    let synthetic = bits(("workload", "synthetic-40"));
    assert_eq!(number(synthetic, "tensors"), 40.0);
    // What was written can be drawn; the summary is what was said.
    assert_eq!(sweep.read("out/summary.txt") + "results in out\n", ended.stdout);
    for sentence in
        ["grows as (ranks x tensors)^", "fitted over 4 points", "us from 5 to 96 ranks, as ranks^"]
    {
        assert!(ended.stdout.contains(sentence), "{}", ended.stdout);
    }
    let drawn = Ended::of(kolo(&["plot", "out"]).current_dir(sweep.folder.path()));
    assert_eq!(drawn.status, Some(0), "{}", drawn.stderr);
    assert!(sweep.path("out/figures/control_planes.png").exists(), "{}", drawn.stderr);
}

#[test]
fn a_dry_run_prints_every_case_and_writes_nothing() {
    let sweep = sweep(&[]);
    let ended = sweep.run(&["--dry-run"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let case = "threads/3/bitvector/tiny.csv/same/cache-1024/miss-0/invalid-0  6 tensors, about";
    assert!(ended.stdout.contains(case), "{}", ended.stdout);
    assert!(ended.stdout.contains("42 cases, 37 of them with all ranks in one thread; each 2 + 6"));
    assert!(!sweep.path("out").exists());
}

#[test]
fn invalid_command_lines_end_with_status_2_and_advice() {
    for (from, to, expected) in [
        ("\"ddp\"", "\"dpd\"", "control.plane is \"dpd\", expected one of coordinator, tree"),
        ("tiny.csv", "resnet5", "test.toml: workloads/resnet5.csv: No such file"),
        ("seed = 3", "sed = 3", "test.toml: line 19: unknown field `sed`, expected one of"),
        ("ranks = 12", "ranks = -1", "test.toml: line 5: invalid value: integer `-1`"),
        ("ranks = 12", "ranks = 1000000", "control.base.ranks is 1000000, expected 1 to 100000"),
        ("[0.5]", "[0.5, 1.1]", "control: miss_share is 1.1, expected 0 to 1"),
    ] {
        sweep(&[(from, to)]).run(&[]).says(2, expected);
    }
    let sweep = sweep(&[]);
    sweep
        .run(&["--cycle-time-ms", "1"])
        .says(2, "takes no --timeline, --samples, --budget, --nodes, --ranks-per-node, --fusion-threshold-mb, --cycle-time-ms");
    assert!(!sweep.path("out").exists());
    let mut command = sweep.command(&["--dry-run"]);
    let ended = Ended::of(command.env("HOROVOD_CACHE_CAPACITY", "7"));
    ended.says(0, "HOROVOD_CACHE_CAPACITY=7 is ignored: a sweep of control planes uses only its");
}

#[test]
fn a_sweep_of_another_kind_is_not_resumed() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    configure(&sweep, &[]);
    sweep.run(&["--resume"]).says(
        2,
        "the folder holds another sweep: data.dtype: the folder has \"f32\", now it is none",
    );
    sweep.run(&[]).says(2, "out exists; results are never overwritten");
}

#[test]
fn killed_within_a_write_and_resumed_each_case_is_there_once() {
    for kib in KILLED_AT_KIB {
        let sweep = sweep(&[]);
        sweep.killed_at_file_size(kib);
        let rows = sweep.read("out/rows.csv");
        let complete = rows.rfind('\n').map_or(0, |at| at + 1);
        let before = rows.lines().count();
        assert!((2..42).contains(&before), "{kib} KiB: {before} lines");
        let ended = sweep.run(&["--resume"]);
        assert_eq!(ended.status, Some(0), "{kib} KiB: {}", ended.stderr);
        let appended = sweep.read("out/rows.csv").starts_with(&rows[..complete]);
        assert!(appended, "rows are only appended");
        let rows = sweep.rows();
        let mut cases: Vec<_> = rows.iter().map(|row| &row["case"]).collect();
        cases.sort();
        cases.dedup();
        assert_eq!((cases.len(), rows.len()), (42, 42), "{kib} KiB");
    }
}

/// A full disk, by a limit on the size of files.
#[test]
fn a_full_disk_loses_nothing_that_was_written() {
    let sweep = sweep(&[]);
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} sweep test.toml --out out --no-figures",
        env!("CARGO_BIN_EXE_kolo")
    );
    let mut limited = Command::new("bash");
    let ended = Ended::of(limited.args(["-c", &script]).current_dir(sweep.folder.path()));
    ended.says(1, "earlier results are intact");
    let ended = sweep.run(&["--resume"]);
    ended.says(0, "of 42 cases are there");
    assert_eq!(sweep.rows().len(), 42);
}
