//! `--format markdown` and `--format csv`: one table on stdout, and nothing else.

use std::path::Path;

use crate::cli::sandbox::{Ended, Sweep, kolo};

/// The table of a command, as CSV: its header and its lines. As Markdown it has as many.
#[track_caller]
fn table(words: &[&str], folder: &Path) -> (String, Vec<String>) {
    let printed = |format: &str| {
        let words = [words, &["--format", format]].concat();
        let ended = Ended::of(kolo(&words).current_dir(folder));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    let csv = printed("csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().iter().collect::<Vec<_>>().join(",");
    let records = reader.records().map(|record| record.unwrap());
    let lines: Vec<String> =
        records.map(|record| record.iter().collect::<Vec<_>>().join(",")).collect();
    let page = printed("markdown");
    assert_eq!(page.lines().count(), lines.len() + 2, "{page}");
    assert!(page.lines().all(|line| line.starts_with('|') && line.ends_with('|')), "{page}");
    (header, lines)
}

#[test]
fn a_bench_prints_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let bench =
        ["bench", "--ranks", "2", "-b", "8", "-e", "1K", "-n", "5", "--algorithm", "ring,tree"];
    let (header, lines) = table(&bench, folder.path());
    assert!(header.starts_with("kind,case,status,ranks,size_bytes,samples,wrong,time_us_p50,"));
    // Two algorithms, four sizes, out of place and in place.
    assert_eq!(lines.len(), 2 * 4 * 2, "{lines:?}");
    assert!(lines[0].starts_with("allreduce,threads/2x1/ring/f32/sum/8B/out-of-place,ok,2,8,5,0,"));
    let refused = [&bench[..], &["--format", "csv", "--out-prefix", "t"]].concat();
    Ended::of(&mut kolo(&refused)).says(2, "leave --out-prefix out, or choose another --format");
}

#[test]
fn a_sweep_prints_its_cases() {
    let sweep = Sweep::new(&[]);
    let ended = sweep.run(&["--format", "csv"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.starts_with("kind,case,status,ranks,size_bytes,samples,wrong,time_us_p50")
    );
    assert_eq!(ended.stdout.lines().count(), 1 + 8, "{}", ended.stdout);
    let planned = sweep.run(&["--dry-run", "--format", "csv"]);
    let mut lines = planned.stdout.lines();
    assert_eq!(lines.next(), Some("case,unsupported,seconds"), "{}", planned.stdout);
    assert_eq!(lines.count(), 8);
}

#[test]
fn a_report_prints_what_it_says_of_each_run_and_a_calibration_its_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let quick = root.join("results/reference/quick").display().to_string();
    let (header, lines) = table(&["report", &quick, "--out", "page.html"], folder.path());
    assert_eq!((header.as_str(), lines.len()), ("run,verdicts,limits,warnings,missing", 1));
    let log = root.join("harness/results/tests/data/logs/ring-simple.log").display().to_string();
    let (header, lines) = table(&["calibrate", "--logs", &log], folder.path());
    assert_eq!(header, "name,value");
    assert!(lines.iter().any(|line| line.contains("alpha_us")), "{lines:?}");
}
