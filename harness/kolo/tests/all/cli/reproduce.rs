//! `kolo reproduce`: runs of this very binary, again.

use std::fs;

use crate::cli::sandbox::{Ended, Sweep, kolo};

fn reproduce(sweep: &Sweep, words: &[&str]) -> Ended {
    let mut all = vec!["reproduce", "out"];
    all.extend(words);
    Ended::of(kolo(&all).current_dir(sweep.folder.path()))
}

#[test]
fn a_sweep_runs_again_as_it_was_and_is_compared() {
    let sweep = Sweep::new(&[("steps_per_block = 3", "steps_per_block = 4")]);
    let mut first = sweep.command(&["--budget", "10m"]);
    let first = Ended::of(first.env("HOROVOD_CYCLE_TIME", "0.7"));
    assert_eq!(first.status, Some(0), "{}", first.stderr);
    let planned = reproduce(&sweep, &["--dry-run", "--out", "again"]);
    planned.says(0, "HOROVOD_CYCLE_TIME=0.7 is set, as it was\n");
    planned.says(0, " sweep test.toml --no-figures --budget 10m --out ");
    assert!(!sweep.path("again").exists());

    let ended = reproduce(&sweep, &["--out", "again"]);
    assert!(matches!(ended.status, Some(0 | 1 | 3)), "{}", ended.stderr);
    let provenance = |name: &str| -> serde_json::Value {
        serde_json::from_str(&sweep.read(&format!("{name}/provenance.json"))).unwrap()
    };
    assert_eq!(provenance("out")["config"], provenance("again")["config"]);
    let environment = provenance("again")["launches"][0]["environment"].to_string();
    assert!(environment.contains("HOROVOD_CYCLE_TIME"), "{environment}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(!ended.stdout.contains("differs: the folder"), "{}", ended.stdout);
    let said = lines.iter().rev().take(2).rev().copied().collect::<Vec<_>>();
    // No interval if the machine changed its speed, or if there are too few blocks.
    let with = sweep.rows().iter().filter(|row| !row["time_us_p50_low"].is_empty()).count();
    if with > 0 {
        assert!(said[0].contains(&format!(" of {with} medians")), "{}", ended.stdout);
        assert_eq!(said[1].starts_with("reproduced"), ended.status == Some(0), "{said:?}");
    } else {
        assert!(said[1].starts_with("no case has an interval"), "{}", ended.stdout);
        assert_eq!(ended.status, Some(3));
    }
    let again = reproduce(&sweep, &["--out", "third", "--json"]);
    let printed = serde_json::from_str(&again.stdout).unwrap();
    crate::cli::schema::is_as_described("reproduce", &printed);
}

#[test]
fn what_cannot_be_run_again_says_why() {
    let sweep = Sweep::new(&[]);
    reproduce(&sweep, &[]).says(2, "out/provenance.json: ");
    assert_eq!(sweep.run(&["--budget", "10m"]).status, Some(0));
    // The configuration is another one now.
    let config = sweep.read("test.toml");
    fs::write(sweep.path("test.toml"), config + "\n# Changed.\n").unwrap();
    reproduce(&sweep, &[]).says(2, "test.toml is missing, or not the file that the run read");
    reproduce(&sweep, &["--binary", "nowhere"]).says(2, "nowhere: no such binary");
    let text = sweep.read("out/provenance.json");
    for (command, expected) in [
        (
            "against",
            "out: it was written by `kolo against`; expected a folder of `kolo sweep` or `kolo tune`, or a file of `kolo bench \
             --out`",
        ),
        ("validate", "out: it was written by `kolo validate`; expected a folder of"),
        ("predict", "out: it was written by `kolo predict`; expected a folder of"),
        (
            "tune",
            "out: no tune.json, so there is no answer to compare; expected one of `kolo tune` for a",
        ),
    ] {
        let other = text.replace("\"sweep\",", &format!("\"{command}\","));
        fs::write(sweep.path("out/provenance.json"), other).unwrap();
        reproduce(&sweep, &[]).says(2, expected);
    }
    let rows = ["reproduce", "out/rows.csv"];
    Ended::of(kolo(&rows).current_dir(sweep.folder.path())).says(
        2,
        "out/rows.provenance.json: No such file or directory (os error 2); expected what `kolo bench --out` writes beside \
         its rows, or the folder of another run",
    );
    fs::write(sweep.path("out/provenance.json"), &text).unwrap();
    fs::create_dir_all(sweep.path("there")).unwrap();
    fs::write(sweep.path("there/rows.csv"), "").unwrap();
    reproduce(&sweep, &["--out", "there"])
        .says(2, "there/rows.csv exists; results are never overwritten: name another with --out");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let mut provenance: serde_json::Value = serde_json::from_str(&text).unwrap();
    provenance["launches"][0]["commit"] = commit.into();
    fs::write(sweep.path("out/provenance.json"), provenance.to_string()).unwrap();
    reproduce(&sweep, &[]).says(2, "in no clone of kolo's repository, so commit 0123456789abcdef");
}

#[test]
fn rows_of_a_bench_are_measured_again_and_compared() {
    let sandbox = Sweep::new(&[]);
    let run = |words: &[&str]| Ended::of(kolo(words).current_dir(sandbox.folder.path()));
    // A case has an interval if its repetitions are worth six independent ones. On a busy machine neighbours are alike, and
    // 48 of them can be worth fewer.
    let words =
        ["bench", "--algorithm", "ring,tree", "--ranks", "2", "-b", "1K", "-e", "4K", "-n", "2000"];
    let bench = run(&[&words[..], &["--out", "first.csv", "--out-prefix", "table"]].concat());
    assert_eq!(bench.status, Some(0), "{}", bench.stderr);
    let planned = run(&["reproduce", "first.csv", "--dry-run", "--out", "folder/again.csv"]);
    planned.says(0, " bench --algorithm ring,tree --ranks 2 -b 1K -e 4K -n 2000 --out ");
    assert!(!sandbox.path("folder").exists());
    let again = run(&["reproduce", "first.csv", "--out", "folder/again.csv"]);
    assert!(matches!(again.status, Some(0 | 1)), "{}", again.stderr);
    assert!(again.stdout.contains(" of 8 medians ("), "{}", again.stdout);
    let verdict = again.stdout.lines().last().unwrap();
    assert_eq!(verdict.starts_with("reproduced"), again.status == Some(0), "{verdict}");
    let rows = |name: &str| sandbox.read(name).lines().count();
    assert_eq!((rows("first.csv"), rows("folder/again.csv")), (9, 9));
    assert!(sandbox.path("folder/again.provenance.json").exists());
    run(&["reproduce", "first.csv", "--out", "folder/again.csv"])
        .says(2, "folder/again.csv exists; results are never overwritten");
    let json = run(&["reproduce", "first.csv", "--out", "third.csv", "--json"]);
    let printed = serde_json::from_str(&json.stdout).unwrap();
    crate::cli::schema::is_as_described("reproduce", &printed);
}

#[test]
fn the_tuner_is_asked_again_and_its_answers_are_compared() {
    let sandbox = Sweep::new(&[]);
    let run = |words: &[&str]| Ended::of(kolo(words).current_dir(sandbox.folder.path()));
    let words = ["tune", "--workload", "tiny.csv", "--backward-ms", "2", "--budget", "3s"];
    let few = ["--cycle-time-ms", "1", "--cache", "on", "--out", "first", "--json"];
    let tuned = run(&[&words[..], &few].concat());
    assert!(matches!(tuned.status, Some(0 | 3)), "{}", tuned.stderr);
    let planned = run(&["reproduce", "first", "--dry-run"]);
    let expected =
        " tune --workload tiny.csv --backward-ms 2 --budget 3s --cycle-time-ms 1 --cache on --out ";
    planned.says(0, expected);
    let again = run(&["reproduce", "first", "--out", "again", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    crate::cli::schema::is_as_described("reproduce", &printed);
    let verdicts = ["first", "again"].map(|folder| {
        let text = sandbox.read(&format!("{folder}/tune.json"));
        let tuning: serde_json::Value = serde_json::from_str(&text).unwrap();
        tuning["verdict"].as_str().unwrap().to_string()
    });
    let expected = match &printed["is_reproduced"] {
        serde_json::Value::Null => 3,
        is_reproduced => i32::from(is_reproduced == false),
    };
    assert_eq!(again.status, Some(expected), "{}", again.stderr);
    assert_eq!(expected == 3, verdicts.contains(&"unknown".to_string()), "{verdicts:?}");
    let answer = &printed["answers"][0];
    assert_eq!(answer["topology"], "1x2");
    let says = |run: usize| answer[["first", "second"][run]].as_str().map(str::to_string);
    for (run, verdict) in verdicts.iter().enumerate() {
        let begins = match verdict.as_str() {
            "unknown" => None,
            "change" => Some("use "),
            "lean" => Some("probably use "),
            _ => Some("keep "),
        };
        let is_as_said = match (says(run), begins) {
            (Some(text), Some(begins)) => text.starts_with(begins),
            (text, begins) => text.is_none() && begins.is_none(),
        };
        assert!(is_as_said, "{verdicts:?}: {answer}");
    }
}
