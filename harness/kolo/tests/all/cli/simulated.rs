//! A simulated sweep and its outputs, as a user runs it.

use std::fs;

use crate::cli::sandbox::{Ended, Sweep, kolo};

const CONFIG: &str = r#"
[simulate]
machine = "machine.toml"
ranks = [4, 8, 64]
base_ranks = 4
seeds = 6
steps = 3
[jitter]
cv = 0.02
[[model]]
workload = "tiny.csv"
batch = 2
forward_ms = 0.3
backward_ms = 0.6
source = "made up"
[[policy]]
name = "coordinator"
control_plane = "coordinator"
data_plane = "ring"
cycle_time_ms = 0.2
about = "a test"
[[policy]]
name = "cached"
control_plane = "bitvector"
data_plane = "hierarchical:one-shot"
cycle_time_ms = 0.2
groups = 2
about = "a test"
[crossover]
algorithm = ["ring", "one-shot"]
ranks = [4, 128]
size_log2 = [2, 12]
[[claim]]
name = "the cache pays"
published = 3.0
policy = "cached"
against = "coordinator"
ranks = 64
source = "made up"
"#;

const MACHINE: &str = r#"
name = "machine"
about = "made up"
[node]
ranks = 4
ranks_per_socket = 4
nodes = 32
nics = 1
[socket.one]
alpha_us = { value = 1, source = "made up" }
bandwidth_gb_s = { value = 10, source = "made up" }
[network.one]
alpha_us = { value = 5, source = "made up" }
bandwidth_gb_s = { value = 2, low = 1, high = 3, source = "assumed: made up" }
[shared]
nic_gb_s = { value = 3, source = "made up" }
[reduction]
combine_gb_s = { value = 20, source = "made up" }
[control]
alpha_us = { value = 2, source = "made up" }
bandwidth_gb_s = { value = 2, source = "made up" }
rank0_ns = { value = 500, low = 400, high = 600, source = "assumed: made up" }
cycle_us = { value = 3, source = "made up" }
launch_us = { value = 2, source = "made up" }
"#;

/// The sweep, with some text of configuration and machine replaced.
fn sweep(changes: &[(&str, &str)]) -> Sweep {
    let sweep = Sweep::new(&[]);
    let (mut config, mut machine) = (CONFIG.to_string(), MACHINE.to_string());
    for (from, to) in changes {
        assert!(config.contains(from) || machine.contains(from), "{from}");
        (config, machine) = (config.replace(from, to), machine.replace(from, to));
    }
    fs::write(sweep.path("test.toml"), config).unwrap();
    fs::write(sweep.path("machine.toml"), machine).unwrap();
    sweep
}

#[test]
fn a_simulated_sweep_writes_marked_rows_and_a_comparison() {
    let sweep = sweep(&[]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    assert_eq!(rows.len(), 6 + 4 * 11);
    for row in &rows {
        assert_eq!((row["source"].as_str(), row["machine"].as_str()), ("simulated", "machine"));
        assert_eq!((row["host"].as_str(), row["commit"].as_str()), ("", ""));
    }
    let steps: Vec<_> = rows.iter().filter(|row| row["kind"] == "step").collect();
    assert_eq!(steps.len(), 6);
    for row in &steps {
        let number = |name: &str| row[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}"));
        let parts = ["compute", "jitter", "cycle", "negotiation", "latency", "bandwidth"];
        let parts = parts.into_iter().chain(["contention", "reduction"]);
        let sum: f64 = parts.map(|part| number(&format!("part_{part}_us"))).sum();
        // Medians over seeds need not add up to the last digit.
        assert!((sum / number("time_us_p50") - 1.0).abs() < 0.05, "{sum} of {row:?}");
        assert!(number("efficiency_p50_low") <= number("efficiency_p50"));
        if row["ranks"] == "4" {
            assert_eq!(row["efficiency_p50"], "1.0");
        }
        assert_eq!(row["driven"], "classes");
    }
    // Unsupported schedules have a reason.
    let refused: Vec<_> = rows.iter().filter(|row| row["status"] == "unsupported").collect();
    assert_eq!(refused.len(), 11);
    assert!(refused[0]["reason"].starts_with("one-shot supports at most 64 ranks"));
    let claims = sweep.read("out/claims.csv");
    assert!(
        claims.lines().nth(1).unwrap().starts_with("the cache pays,tiny.csv,64,3.0,"),
        "{claims}"
    );
    for text in
        ["SIMULATED on machine (made up)", "assumed of machine: network.one.bandwidth_gb_s 2"]
    {
        assert!(ended.stdout.contains(text), "{}", ended.stdout);
    }
    assert!(ended.stdout.contains("published ratios beside simulated ones"));
    let drawn = Ended::of(kolo(&["plot", "out"]).current_dir(sweep.folder.path()));
    assert_eq!(drawn.status, Some(0), "{}", drawn.stderr);
    assert!(sweep.path("out/figures/speedup.svg").exists(), "{}", drawn.stdout);
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let written = |threads: &str| {
        let sweep = sweep(&[]);
        let run = ["sweep", "test.toml", "--out", "out", "--no-figures"];
        let mut command = kolo(&run);
        let ended =
            Ended::of(command.current_dir(sweep.folder.path()).env("RAYON_NUM_THREADS", threads));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        (sweep.read("out/rows.csv"), sweep.read("out/claims.csv"), sweep.read("out/summary.txt"))
    };
    assert_eq!(written("1"), written("3"));
}

#[test]
fn a_killed_run_resumes_with_the_same_rows() {
    let sweep = sweep(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let whole = sweep.read("out/rows.csv");
    let cut: String = whole.lines().take(5).map(|line| format!("{line}\n")).collect();
    fs::write(sweep.path("out/rows.csv"), cut + "half of a li").unwrap();
    let again = sweep.run(&["--resume"]);
    assert_eq!(again.status, Some(0), "{}", again.stderr);
    assert_eq!(sweep.read("out/rows.csv"), whole);
    let reproduce = |into: &str| {
        let words = ["reproduce", "out", "--out", into];
        Ended::of(kolo(&words).current_dir(sweep.folder.path()))
    };
    let same = reproduce("again");
    assert!(
        same.stdout.starts_with("reproduced: rows.csv is the same, byte for byte ("),
        "{}",
        same.stdout
    );
    assert_eq!((same.status, sweep.read("again/rows.csv")), (Some(0), whole.clone()));
    fs::write(sweep.path("out/rows.csv"), whole.replacen("cached", "cashed", 1)).unwrap();
    let other = reproduce("once-more");
    assert!(
        other.stdout.starts_with("not reproduced: rows.csv differs from line "),
        "{}",
        other.stdout
    );
    assert_eq!(other.status, Some(1));
}

#[test]
fn invalid_configurations_are_refused_before_anything_is_written() {
    for (from, to, expected) in [
        ("machine = \"machine.toml\"", "machine = \"nowhere\"", "machines/nowhere.toml"),
        (
            "alpha_us = { value = 5,",
            "alpha_us = { value = 5e7,",
            "network.one.alpha_us is 50000000, expected 0 to 1000000 microseconds; is that another unit?",
        ),
        ("[network.one]", "[net.one]", "unknown field `net`"),
        (
            "[\"ring\", \"one-shot\"]",
            "[\"ring\", \"both-way\"]",
            "kolo: test.toml: crossover.algorithm: algorithm \"both-way\" is unknown; choose from ring,",
        ),
        (
            "data_plane = \"ring\"",
            "data_plane = \"rng\"",
            "policy \"coordinator\": data_plane: algorithm \"rng\" is unknown; did you mean ring?",
        ),
        (
            "data_plane = \"ring\"",
            "data_plane = \"server-nodes:x\"",
            "policy \"coordinator\": data_plane: server-nodes takes a number of at least 1, but \"x\"",
        ),
        (
            "data_plane = \"ring\"",
            "data_plane = \"ncl\"",
            "policy \"coordinator\": data_plane: algorithm \"ncl\" is unknown; did you mean nccl?",
        ),
        (
            "groups = 2",
            "groups = 0",
            "policy \"cached\": groups: found 0 groups, expected at least 1",
        ),
        (
            "against = \"coordinator\"",
            "against = \"nobody\"",
            "claim \"the cache pays\": against is \"nobody\", expected one of coordinator, cached",
        ),
    ] {
        let sweep = sweep(&[(from, to)]);
        let ended = sweep.run(&[]);
        assert_eq!(ended.status, Some(2), "{from}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}\nexpected {expected}", ended.stderr);
        assert!(!sweep.path("out").exists());
    }
}

#[test]
fn ranks_that_do_not_fit_are_rows_with_a_reason() {
    let sweep =
        sweep(&[("ranks = [4, 8, 64]", "ranks = [4, 6, 4000]"), ("ranks = 64", "ranks = 8")]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for (ranks, why) in [
        ("6", "6 ranks do not fill nodes of machine machine evenly; use a multiple of 4"),
        ("4000", "machine machine has 128 ranks (32 nodes of 4), but 4000 were asked for"),
    ] {
        let rows = sweep.rows();
        let row = rows.iter().find(|row| row["ranks"] == ranks && row["kind"] == "step").unwrap();
        assert_eq!((row["status"].as_str(), row["reason"].as_str()), ("unsupported", why));
    }
}

#[test]
fn a_dry_run_prints_the_simulated_cases() {
    let sweep = sweep(&[]);
    let ended = sweep.run(&["--dry-run"]);
    assert_eq!(ended.status, Some(0));
    assert!(ended.stdout.contains("64/cached/tiny.csv"));
    assert!(
        ended
            .stdout
            .contains("6 cases, each 6 seeds x (2 + 3) steps, simulated on machine machine")
    );
    assert!(!sweep.path("out").exists());
}

#[test]
fn a_schedule_is_drawn_or_written_for_another_simulator() {
    let drawn = Ended::of(&mut kolo(&["schedule", "--algorithm", "ring", "--ranks", "3"]));
    assert_eq!(drawn.status, Some(0), "{}", drawn.stderr);
    assert!(drawn.stdout.starts_with("step 0:  0+>1 c2  1+>2 c0  2+>0 c1\n"), "{}", drawn.stdout);
    let goal = ["schedule", "--algorithm", "tree", "--nodes", "2x2", "--goal", "1M"];
    let goal = Ended::of(&mut kolo(&goal));
    assert!(goal.stdout.starts_with("num_ranks 4\n"), "{}", goal.stdout);
    assert!(goal.stdout.contains("send 1048576b to 0 tag 0"), "{}", goal.stdout);
    let refused = Ended::of(&mut kolo(&["schedule", "--algorithm", "rign", "--ranks", "3"]));
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("algorithm \"rign\" is unknown"), "{}", refused.stderr);
}

#[test]
fn a_model_is_simulated_up_to_the_size_that_misses_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let predict = |more: &[&str]| {
        let mut words = vec!["predict", "--workload", "resnet50", "--machine", "dgx1-v100"];
        words.extend(more);
        Ended::of(kolo(&words).current_dir(folder.path()))
    };
    let ended = predict(&["--backward-ms", "116", "--up-to", "32", "--out", "far"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for words in [
        "SIMULATED on dgx1-v100",
        "resnet50, bitvector, nccl, 128 MiB, 1 ms",
        "efficiency 0.90 ",
        "lost at 32 GPUs",
        "the slowest rank's computation",
        "network twice as fast",
        "figure far/figures/losses.png",
        "predictions in far",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let rows = fs::read_to_string(folder.path().join("far/rows.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3, "8, 16 and 32 GPUs");
    assert!(rows.contains("simulated"), "{rows}");
    predict(&["--backward-ms", "116", "--out", "far"])
        .says(2, "far exists; results are never overwritten");
    let wrong = ["--backward-ms", "116", "--target-efficiency", "90", "--out", "wrong"];
    predict(&wrong).says(2, "--target-efficiency is 90, expected 0.01 to 0.999");
    predict(&["--target-efficiency", "0.9"]).says(2, "--backward-ms");
    let neither = Ended::of(kolo(&["predict", "--machine", "summit"]).current_dir(folder.path()));
    neither.says(2, "<RESULTS>");
    assert!(!folder.path().join("wrong").exists());
}
