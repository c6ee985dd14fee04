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
    // A machine that changed its speed in the first run has left it without intervals.
    let has_intervals = sweep.rows().iter().all(|row| row["speed_change_percent"].is_empty());
    if has_intervals {
        assert!(said[0].contains("of 8 medians"), "{}", ended.stdout);
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
    fs::write(sweep.path("out/provenance.json"), text.replace("\"sweep\",", "\"tune\",")).unwrap();
    reproduce(&sweep, &[]).says(2, "out: it was written by `kolo tune`; expected results of");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let mut provenance: serde_json::Value = serde_json::from_str(&text).unwrap();
    provenance["launches"][0]["commit"] = commit.into();
    fs::write(sweep.path("out/provenance.json"), provenance.to_string()).unwrap();
    reproduce(&sweep, &[]).says(2, "in no clone of kolo's repository, so commit 0123456789abcdef");
}
