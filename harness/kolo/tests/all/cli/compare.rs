//! `kolo compare`: on the reference runs, and on runs that it measures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use results::row::{OLDEST_SCHEMA, SCHEMA};

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
        (Some(3), Some(48))
    );
    assert_eq!((&value["verdict"], &pair["second"]), (&"same".into(), &"quick".into()));
    assert_eq!(compare(&["quick", "quick", "--format", "json"]).stdout, json.stdout);
    let table = compare(&["quick", "quick", "--format", "markdown"]);
    assert_eq!(table.stdout.lines().filter(|line| line.starts_with("| step ")).count(), 48);
}

/// A program that reads the table learns of every case.
#[test]
fn cases_of_one_run_and_cases_without_an_interval_are_lines_of_csv_too() {
    let folder = quick();
    let (rows, samples) = (folder.path().join("rows.csv"), folder.path().join("samples.csv"));
    let text = fs::read_to_string(&rows).unwrap();
    let less: Vec<&str> = text.lines().take(3).collect();
    fs::write(&rows, less.join("\n") + "\n").unwrap();
    fs::remove_file(samples).unwrap();
    let path = folder.path().to_str().unwrap();
    for (words, verdict) in
        [(["quick", path], "only in the first"), ([path, "quick"], "only in the second")]
    {
        let csv = compare(&[&words[..], &["--format", "csv"]].concat()).stdout;
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let is_alone = |line: &&csv::StringRecord| &line[10] == verdict;
        assert_eq!((lines.len(), lines.iter().filter(is_alone).count()), (48, 46), "{csv}");
        let alone = lines.iter().find(is_alone).unwrap();
        assert!(alone[1].starts_with("step threads/2x2/") && alone[2].is_empty(), "{csv}");
        assert!(lines.iter().all(|line| &line[0] == words[1]), "{csv}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    compare(&["quick", "nowhere"]).says(2, "nowhere: ");
    compare(&["quick", "summit-scaling"]).says(2, "no row is measured, right and has time_us_p50");
    compare(&["quick", "tune/four-nodes"])
        .says(2, "the runs are of different workloads: resnet50 and densenet121");
    compare(&["quick", "quick", "--threshold", "2"]).says(2, "\"2\" is not a percentage");
}

/// A copy of the quick reference run.
fn quick() -> tempfile::TempDir {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference/quick");
    let folder = tempfile::tempdir().unwrap();
    for name in ["rows.csv", "samples.csv", "provenance.json"] {
        fs::copy(reference.join(name), folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn a_run_that_was_killed_is_compared_as_far_as_it_is_whole() {
    let folder = quick();
    let samples = folder.path().join("samples.csv");
    let text = fs::read_to_string(&samples).unwrap();
    fs::write(&samples, &text[..text.len() - 60]).unwrap();
    let ended = compare(&["quick", folder.path().to_str().unwrap()]);
    let line = text.lines().count();
    let said = format!(
        "samples.csv:{line}: the last line is cut, as when a run is killed; it is left out\n"
    );
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(ended.stdout.contains("\n48 cases: 0 slower, 0 faster, "), "{}", ended.stdout);
}

#[test]
fn other_schemas_and_other_work_are_refused_by_compare_and_plot() {
    assert_eq!((plots::OLDEST_SCHEMA, plots::SCHEMA), (OLDEST_SCHEMA, SCHEMA));
    let folder = quick();
    let path = folder.path().to_str().unwrap();
    let rows = folder.path().join("rows.csv");
    let text = fs::read_to_string(&rows).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let forward = header.split(',').position(|column| column == "forward_ms").unwrap();
    let longer = lines.lines().map(|line| {
        let mut fields: Vec<&str> = line.split(',').collect();
        fields[forward] = "33.0";
        fields.join(",") + "\n"
    });
    fs::write(&rows, format!("{header}\n{}", longer.collect::<String>())).unwrap();
    compare(&["quick", path]).says(2, ", forward_ms is 3 in the first run and 33 in the second");
    let version = lines.split(',').next().unwrap();
    let newer = lines.replace(&format!("{version},step,"), "99,step,");
    fs::write(&rows, format!("{header}\n{newer}")).unwrap();
    let said = format!("rows.csv: schema 99, this kolo reads 1 to {SCHEMA}; ");
    compare(&["quick", path]).says(2, &said);
    let said = format!("rows.csv:2: schema 99, this kolo draws 1 to {SCHEMA}; ");
    Ended::of(&mut kolo(&["plot", path])).says(2, &said);
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
    assert_eq!(words[3], "1.000", "{case}");
    assert!(ended.stdout.contains("\nB / A: 11 cases: 0 slower, "), "{}", ended.stdout);
    assert!(ended.stdout.contains("\nC / A: 11 cases: 1 slower, "), "{}", ended.stdout);
    let table = compare(&[calm, calm, busy, "--format", "markdown"]).stdout;
    assert!(table.contains("| case | A (ms) | B / A | | C / A | |\n"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| step ")).count(), 11);
    let json: serde_json::Value =
        serde_json::from_str(&compare(&[calm, calm, busy, "--json"]).stdout).unwrap();
    let verdicts = [&json["verdict"], &json["pairs"][0]["verdict"], &json["pairs"][1]["verdict"]];
    assert_eq!(verdicts, ["slower", "same", "slower"]);
    let csv = compare(&[calm, calm, busy, "--format", "csv"]).stdout;
    let header = "second,case,first_us,second_us,ratio,ratio_low,ratio_high,joint_low,joint_high,weight,verdict";
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some(header), 1 + 2 * 11));
    let case = csv
        .lines()
        .find(|line| line.starts_with(&format!("{busy},")) && line.contains("/1MiB/0.1ms,"));
    let fields: Vec<&str> = case.unwrap().split(',').collect();
    assert!(fields[4].starts_with("1.37") && fields[10] == "slower", "{csv}");
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

/// A script that changes the times of steps, which are in the sixth column. A sweep of one block ends with a status of its own.
fn saying(time_us: &str) -> String {
    format!(
        "case $1 in sweep) echo >> count\n\
         $KOLO \"$@\"; status=$?\n\
         awk -F, -v count=$(wc -l < count) 'NR > 1 {{ $6 = {time_us} }} 1' OFS=, $4/samples.csv > $4/changed\n\
         mv $4/changed $4/samples.csv; exit $status; esac\n\
         exec $KOLO \"$@\""
    )
}

fn interleaved(sweep: &Sweep, words: &[&str]) -> Ended {
    let mut all = vec!["compare", "--interleaved"];
    all.extend(words);
    Ended::of(kolo(&all).current_dir(sweep.folder.path()))
}

#[test]
fn two_binaries_take_turns_and_their_folders_say_so() {
    let sweep = one_case();
    // It says that its steps took ten times as long, which is longer than a busy machine delays them.
    script(&sweep, "slower", &saying("$6 * 10"));
    let words =
        [env!("CARGO_BIN_EXE_kolo"), "slower", "test.toml", "--blocks", "6", "--out", "out"];
    let ended = interleaved(&sweep, &words);
    assert_eq!(ended.status, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("1 cases: 1 slower"), "{}", ended.stdout);
    assert!(ended.stdout.ends_with(
        "the runs took turns, block by block: a change of the machine is in all of them\n"
    ));
    assert!(
        ended.stderr.contains("[12/12] threads/1x2/bitvector/ring/64MiB/0.5ms: "),
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
    assert_eq!((a.len(), b.len()), (18, 18));
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
    assert!(!resumed.stderr.contains("/12] "), "{}", resumed.stderr);
    interleaved(&sweep, &words).says(2, "out/a exists; results are never overwritten");
}

/// The noise of the first eight blocks tells how many there are. Times are made up, so it is the same on every machine.
#[test]
fn as_many_blocks_are_measured_as_tell_the_threshold() {
    let sweep = one_case();
    // By turns 2 % more, as much, and 2 % less.
    script(&sweep, "steady", &saying("10000"));
    script(&sweep, "noisy", &saying("10000 * (1 + (count % 3 - 1) / 50)"));
    let words = ["steady", "noisy", "test.toml", "--out", "out"];
    let ended = interleaved(&sweep, &words);
    let said = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("8 blocks of each case: noise "));
        line.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    let line = said(&ended.stderr);
    let after = line.split("to tell a difference of 2.0 % takes ").nth(1).unwrap();
    let count: usize = after.split(',').next().unwrap().parse().unwrap();
    assert!((9..60).contains(&count), "{line}");
    assert!(line.ends_with(&format!(", so {} more are measured", count - 8)), "{line}");
    assert!(ended.stderr.contains(&format!("[{}/{}] threads/", 2 * count, 2 * count)));
    assert_eq!(sweep.read("out/a/samples.csv").lines().count(), 1 + 3 * count);
    assert_eq!(sweep.read("out/a/rows.csv").lines().count(), 2);
    let provenance: serde_json::Value =
        serde_json::from_str(&sweep.read("out/a/provenance.json")).unwrap();
    assert_eq!(provenance["config"]["measure"]["blocks_min"], count);
    let overrides = provenance["launches"][0]["overrides"].as_array().unwrap();
    let set_by = "kolo compare --interleaved, from the noise of the first blocks";
    assert!(overrides.iter().any(|it| it["set_by"] == set_by), "{overrides:?}");
    assert!(ended.stdout.contains(&format!("\n{count} blocks of each case tell a difference of ")));
    let resumed = interleaved(&sweep, &[&words[..], &["--resume"]].concat());
    assert_eq!((resumed.status, &resumed.stdout), (ended.status, &ended.stdout));
    assert!(!resumed.stderr.contains("] threads/"), "{}", resumed.stderr);
    // Without noise the first ones are enough.
    let words = ["steady", "steady", "test.toml", "--threshold", "50%", "--out", "enough"];
    script(&sweep, "steady", &saying("10000 + count"));
    let ended = interleaved(&sweep, &words);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(said(&ended.stderr).ends_with(", so these are enough"), "{}", ended.stderr);
    assert_eq!(sweep.read("enough/a/samples.csv").lines().count(), 1 + 3 * 8);
}

#[test]
fn environments_of_one_binary_take_turns() {
    let sweep = one_case();
    let words = ["test.toml", "--with", "KOLO_MARK=x", "--out", "out"];
    let dry = interleaved(&sweep, &[&words[..], &["--dry-run"]].concat());
    assert_eq!((dry.status, dry.stdout.lines().count()), (Some(0), 16), "{}", dry.stderr);
    assert!(
        dry.stderr
            .contains("these are the first blocks; their noise tells how many more there are")
    );
    let words = ["test.toml", "--with", "KOLO_MARK=x", "--blocks", "2", "--out", "out"];
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
