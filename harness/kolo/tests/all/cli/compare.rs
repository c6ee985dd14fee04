//! `kolo compare`: on the reference runs, and on runs that it measures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cli::sandbox::{Ended, Sweep, kolo};

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
    let json = compare(&["quick", "quick", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let pair = &value["pairs"][0];
    assert_eq!(
        (value["schema"].as_u64(), pair["cases"].as_array().map(Vec::len)),
        (Some(2), Some(48))
    );
    assert_eq!((&value["verdict"], &pair["second"]), (&"same".into(), &"quick".into()));
    assert_eq!(compare(&["quick", "quick", "--format", "json"]).stdout, json.stdout);
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

#[test]
fn each_of_several_runs_is_compared_with_the_first_and_the_worst_decides() {
    let (calm, busy) = ("tune/four-nodes", "tune/four-nodes-busy");
    let ended = compare(&[calm, calm, busy]);
    assert_eq!(ended.status, Some(1), "{}", ended.stdout);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[..3], [format!("A  {calm}"), format!("B  {calm}"), format!("C  {busy}")]);
    assert!(lines[3].starts_with("differs in C: commit: "), "{}", ended.stdout);
    let case = lines.iter().find(|line| line.contains("/1MiB/0.1ms ")).unwrap();
    let words: Vec<&str> = case.split_whitespace().collect();
    assert!(case.ends_with("1.375 [1.342, 1.413]  slower"), "{case}");
    assert!(words[3] == "1.000" && words.contains(&"same"), "{case}");
    assert!(ended.stdout.contains("\nB / A: 11 cases: 0 slower, "), "{}", ended.stdout);
    assert!(ended.stdout.contains("\nC / A: 11 cases: 4 slower, "), "{}", ended.stdout);
    let table = compare(&[calm, calm, busy, "--format", "markdown"]).stdout;
    assert!(table.contains("| case | A (ms) | B / A | | C / A | |\n"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| step ")).count(), 11);
    let json: serde_json::Value =
        serde_json::from_str(&compare(&[calm, calm, busy, "--json"]).stdout).unwrap();
    let verdicts = [&json["verdict"], &json["pairs"][0]["verdict"], &json["pairs"][1]["verdict"]];
    assert_eq!(verdicts, ["slower", "same", "slower"]);
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().to_str().unwrap();
    let drawn = compare(&[calm, calm, busy, "--figure", into]);
    for name in ["changes_b.png", "changes_c.png"] {
        assert!(
            folder.path().join(name).exists() && drawn.stderr.contains(name),
            "{}",
            drawn.stderr
        );
    }
    compare(&["quick", "quick", calm]).says(2, "of different workloads: resnet50 and densenet121");
    compare(&["quick"]).says(2, "one run; expected two or more");
}

/// One case of two threads, in blocks of three steps.
fn one_case() -> Sweep {
    Sweep::new(&[
        ("\"2x2\"", "\"1x2\""),
        ("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]"),
        ("[\"ring\", \"grouped\"]", "[\"ring\"]"),
        ("[0.01, 64]", "[64]"),
    ])
}

/// A script that stands for a binary; `$KOLO` is the real one.
fn script(sweep: &Sweep, name: &str, lines: &str) {
    let text = format!("#!/bin/sh\nKOLO='{}'\n{lines}\n", env!("CARGO_BIN_EXE_kolo"));
    fs::write(sweep.path(name), text).unwrap();
    fs::set_permissions(sweep.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn interleaved(sweep: &Sweep, words: &[&str]) -> Ended {
    let mut all = vec!["compare", "--interleaved"];
    all.extend(words);
    Ended::of(kolo(&all).current_dir(sweep.folder.path()))
}

#[test]
fn two_binaries_take_turns_and_their_folders_say_so() {
    let sweep = one_case();
    // Its backward pass takes much longer than a step that a busy machine delays.
    let slower = "case $1 in sweep) sed -i 's/^backward_ms = .*/backward_ms = 300/' $2; esac; exec $KOLO \"$@\"";
    script(&sweep, "slower", slower);
    let words =
        [env!("CARGO_BIN_EXE_kolo"), "slower", "test.toml", "--blocks", "4", "--out", "out"];
    let ended = interleaved(&sweep, &words);
    assert_eq!(ended.status, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("1 cases: 1 slower"), "{}", ended.stdout);
    assert!(ended.stdout.ends_with(
        "the runs took turns, block by block: a change of the machine is in all of them\n"
    ));
    assert!(
        ended.stderr.contains("[8/8] threads/1x2/bitvector/ring/64MiB/0.5ms: "),
        "{}",
        ended.stderr
    );
    assert!(!sweep.path("out/scratch").exists());
    let again =
        kolo(&["compare", "out/a", "out/b"]).current_dir(sweep.folder.path()).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), ended.stdout);
    // Ordinary folders, in which the blocks of both alternate.
    let orders = |name: &str| {
        let mut reader = csv::Reader::from_path(sweep.path(name)).unwrap();
        let at = reader.headers().unwrap().iter().position(|column| column == "order").unwrap();
        reader.records().map(|line| line.unwrap()[at].to_string()).collect::<Vec<_>>()
    };
    let (a, b) = (orders("out/a/samples.csv"), orders("out/b/samples.csv"));
    assert_eq!((a.len(), b.len()), (12, 12));
    assert!(a.iter().zip(&b).all(|(a, b)| a != b), "{a:?} {b:?}");
    let provenance: serde_json::Value =
        serde_json::from_str(&sweep.read("out/b/provenance.json")).unwrap();
    let launch = &provenance["launches"][0];
    assert!(launch["interleaved"]["program"].as_str().unwrap().ends_with("/slower"));
    assert_ne!(launch["commit"], "unknown");
    assert!(
        kolo(&["report", "out/b"]).current_dir(sweep.folder.path()).status().unwrap().success()
    );
    // What is there is not measured again.
    let resumed = interleaved(&sweep, &[&words[..], &["--resume"]].concat());
    assert_eq!((resumed.status, &resumed.stdout), (Some(1), &ended.stdout), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains("/8] "), "{}", resumed.stderr);
    interleaved(&sweep, &words).says(2, "out/a exists; results are never overwritten");
}

#[test]
fn environments_of_one_binary_take_turns() {
    let sweep = one_case();
    let words = ["test.toml", "--with", "KOLO_MARK=x", "--out", "out"];
    let dry = interleaved(&sweep, &[&words[..], &["--dry-run"]].concat());
    assert_eq!((dry.status, dry.stdout.lines().count()), (Some(0), 12), "{}", dry.stderr);
    assert!(dry.stdout.contains(" with KOLO_MARK=x): threads/1x2/"), "{}", dry.stdout);
    let ended = interleaved(&sweep, &words);
    assert!(
        ended.stdout.starts_with("differs: with: none -> KOLO_MARK=x\n"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert!(ended.stdout.contains("differs: KOLO_MARK: not set -> x\n"), "{}", ended.stdout);
    // It would measure another case.
    let other = ["test.toml", "--with", "HOROVOD_CYCLE_TIME=3", "--out", "other"];
    let ended = interleaved(&sweep, &other);
    ended.says(2, "measured threads/1x2/bitvector/ring/64MiB/3ms in place of threads/1x2/bitvector/ring/64MiB/0.5ms");
}

/// Binaries may embed different lists under the same name.
#[test]
fn a_workload_may_be_embedded_and_is_the_same_for_all() {
    let sweep = one_case();
    sweep.configure(&[
        ("tiny.csv", "densenet121"),
        ("\"2x2\"", "\"1x2\""),
        ("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]"),
        ("[\"ring\", \"grouped\"]", "[\"ring\"]"),
        ("[0.01, 64]", "[64]"),
        ("warmup_steps = 1\nsteps_per_block = 3", "warmup_steps = 0\nsteps_per_block = 1"),
    ]);
    let me = env!("CARGO_BIN_EXE_kolo");
    let ended = interleaved(&sweep, &[me, me, "test.toml", "--blocks", "1", "--out", "out"]);
    // One block says nothing.
    assert_eq!(ended.status, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("[too few blocks]"), "{}", ended.stdout);
    let other = "case $1 in sweep) sed -i 's/^workload = .*/workload = \"resnet50\"/' $2; esac; exec $KOLO \"$@\"";
    script(&sweep, "other", other);
    interleaved(&sweep, &[me, "other", "test.toml", "--blocks", "1", "--out", "other-out"])
        .says(2, "other) has another workload densenet121: its gradients are ");
}

#[test]
fn a_binary_that_fails_is_named_and_what_was_measured_stays() {
    let sweep = one_case();
    let failing = "case $1 in sweep) echo x >> count; [ $(wc -l < count) -gt 2 ] && echo kolo: no luck && exit 9; esac\n\
                   exec $KOLO \"$@\"";
    script(&sweep, "failing", failing);
    let words =
        [env!("CARGO_BIN_EXE_kolo"), "failing", "test.toml", "--blocks", "4", "--out", "out"];
    let ended = interleaved(&sweep, &words);
    let said = "failed, the case is given up: exit status: 9; kolo: no luck; its output: out/b/failed/threads_1x2";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    // Nothing is left to compare.
    ended.says(2, "out/b/rows.csv: no row is measured");
    assert_eq!(sweep.read("out/b/samples.csv").lines().count(), 1 + 2 * 3);
    let row = sweep.read("out/a/rows.csv");
    assert!(row.contains(",ok,") && row.contains(",other-failed,"), "{row}");
    let output = fs::read_dir(sweep.path("out/b/failed")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(output).unwrap(), "kolo: no luck\n");
}

#[test]
fn what_cannot_take_turns_is_refused_before_it_measures() {
    let sweep = one_case();
    let me = env!("CARGO_BIN_EXE_kolo");
    let version = "case $1 in sweep) $KOLO \"$@\"; sed -i '1s/^schema,/version,/' $4/rows.csv; exit 0; esac; exec $KOLO \"$@\"";
    script(&sweep, "version", version);
    for (words, expected) in [
        (
            &[me, "nowhere", "test.toml"][..],
            "nowhere: there is no such file; expected a binary of kolo",
        ),
        (
            &[me, "/bin/echo", "test.toml"],
            "/bin/echo is no binary of kolo: `--version` says \"echo",
        ),
        (
            &[me, "version", "test.toml", "--out", "out"],
            "version) writes results that this kolo cannot read: ",
        ),
        (&[me, "test.toml"], "there is nothing to compare with"),
        (
            &[me, me, "control-planes"],
            "a sweep of control planes, which `kolo compare --interleaved` does not take",
        ),
        (&[me, me, "test.toml", "--launcher", "srun"], "\"srun\" does not say how many ranks"),
    ] {
        interleaved(&sweep, words).says(2, expected);
    }
    assert!(!sweep.path("results").exists());
}
