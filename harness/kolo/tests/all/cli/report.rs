//! `kolo report`, and the report at the end of a sweep.

use std::fs;
use std::path::Path;

use crate::cli::sandbox::{Ended, Sweep, kolo};

fn report(words: &[&str]) -> Ended {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    let mut all = vec!["report"];
    all.extend(words);
    Ended::of(kolo(&all).current_dir(reference))
}

#[test]
fn a_sweep_ends_with_figures_a_report_and_its_conclusion() {
    let sweep = Sweep::new(&[]);
    let mut command = kolo(&["sweep", "test.toml", "--out", "out", "--timeline"]);
    let ended = Ended::of(command.current_dir(sweep.folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("\nreport out/report.html\nresults in out\n"),
        "{}",
        ended.stdout
    );
    let page = sweep.read("out/report.html");
    let conclusion: serde_json::Value =
        serde_json::from_str(&sweep.read("out/conclusion.json")).unwrap();
    let verdict = conclusion["verdicts"][0].as_str().unwrap();
    // A busy machine changes its speed: then nothing is recommended, and the fastest is named all the same.
    assert!(verdict.starts_with("tiny on 4 ranks, 2 nodes: "), "{verdict}");
    assert!(verdict.contains("a step takes "), "{verdict}");
    assert!(page.contains(verdict), "the page leads with {verdict}");
    assert!(page.contains("One training step of "), "the timeline of a step");
    assert!(page.contains("kolo sweep test.toml --out out --timeline"), "how to repeat it");
    // The same results give the same page.
    let again = Ended::of(kolo(&["report", "out"]).current_dir(sweep.folder.path()));
    assert_eq!((again.status, again.stdout.as_str()), (Some(0), "report out/report.html\n"));
    assert_eq!(sweep.read("out/report.html"), page);
}

/// The results are there, so a launcher or a job must not take the run for failed.
#[test]
fn a_report_that_cannot_be_written_leaves_the_status_of_a_sweep() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    fs::create_dir(sweep.path("out/report.html")).unwrap();
    let mut again = kolo(&["sweep", "test.toml", "--out", "out", "--resume"]);
    let ended = Ended::of(again.current_dir(sweep.folder.path()));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("kolo: no report: out/report.html"), "{}", ended.stderr);
    assert!(ended.stderr.contains("`kolo report out` tries again"), "{}", ended.stderr);
}

#[test]
fn without_figures_there_is_no_report() {
    let sweep = Sweep::new(&[]);
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(!sweep.path("out/report.html").exists() && sweep.path("out/conclusion.json").exists());
}

#[test]
fn what_cannot_be_reported_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report.html");
    let out = out.to_str().unwrap();
    report(&["nowhere", "--out", out])
        .says(2, "nowhere: there is nothing; expected a folder that a run wrote");
    report(&["bench", "--out", out]).says(2, "bench: no table of results there; expected a folder");
    report(&["quick", "tune/four-nodes", "--out", out]).says(
        2,
        "the runs are of different workloads: quick has resnet50, tune/four-nodes has densenet121; give each its own \
         report",
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let out = folder.path().join("file/report.html");
    let ended = report(&["nowhere", "--out", out.to_str().unwrap()]);
    ended.says(2, "file/report.html cannot be written: ");
    assert!(ended.stderr.contains("name another with --out"), "{}", ended.stderr);
}

#[test]
fn rows_of_a_bench_are_a_run_too() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bench.html");
    let ended = report(&["bench/2-ranks.csv", "bench/4-ranks.csv", "--out", out.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let page = fs::read_to_string(out).unwrap();
    assert!(page.contains("Allreduces alone <small>"));
    assert!(page.contains("bus bandwidth (GB&#x2f;s)"));
}

/// A sweep that is stopped before its first row leaves a header; that of an older version left nothing.
#[test]
fn runs_without_rows_are_read_with_a_header_and_without() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    let header = sweep.read("out/rows.csv").lines().next().unwrap().to_string() + "\n";
    for rows in [header.as_str(), ""] {
        fs::write(sweep.path("out/rows.csv"), rows).unwrap();
        let command = |words: &[&str]| Ended::of(kolo(words).current_dir(sweep.folder.path()));
        let report = command(&["report", "out"]);
        assert_eq!(report.status, Some(0), "{}", report.stderr);
        assert!(sweep.read("out/report.html").contains("<html"));
        let plot = command(&["plot", "out", "--out", "figures"]);
        assert_eq!(plot.status, Some(0), "{}", plot.stderr);
        command(&["compare", "out", "out"]).says(2, "out/rows.csv: no row is measured");
    }
}
