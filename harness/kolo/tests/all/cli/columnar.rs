//! `kolo sweep --samples parquet`, and what reads its results.

use std::fs;

use crate::cli::sandbox::{Ended, Sweep, kolo};

fn run(sweep: &Sweep, words: &[&str]) -> Ended {
    Ended::of(kolo(words).current_dir(sweep.folder.path()))
}

/// Nothing is measured that could not be written, and every reader says what it found.
#[cfg_attr(feature = "parquet", ignore = "needs a build without Parquet: make test-default")]
#[test]
fn builds_without_parquet_say_how_to_build() {
    let sweep = Sweep::new(&[]);
    for more in [&["--samples", "parquet"][..], &["--samples", "parquet", "--dry-run"]] {
        sweep.run(more).says(
            2,
            "kolo: --samples parquet: this build of kolo writes no Apache Parquet; leave the option out, or build one \
             that does: cargo build --release --features parquet\n",
        );
    }
    assert!(!sweep.path("out").exists());
    assert_eq!(sweep.run(&["--samples", "csv"]).status, Some(0));
    fs::remove_file(sweep.path("out/samples.csv")).unwrap();
    fs::write(sweep.path("out/samples.parquet"), "PAR1").unwrap();
    for words in [
        &["compare", "out", "out"][..],
        &["plot", "out"],
        &["report", "out"],
        &["reproduce", "out", "--out", "again"],
        &["sweep", "test.toml", "--resume", "--out", "out"],
    ] {
        let ended = run(&sweep, words);
        let expected = "out/samples.parquet: it is Apache Parquet, which this build of kolo does not read; expected a CSV \
                        file, or a build that reads it: cargo build --release --features parquet\n";
        ended.says(2, expected);
        assert!(ended.stderr.ends_with(expected), "{words:?}: {}", ended.stderr);
    }
    assert_eq!(sweep.read("out/samples.parquet"), "PAR1");
    assert!(!sweep.path("out/samples.csv").exists() && !sweep.path("again").exists());
}

#[cfg_attr(
    any(feature = "parquet", feature = "pdf"),
    ignore = "needs a build without PDF: make test-default"
)]
#[test]
fn builds_without_pdf_say_how_to_build() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    run(&sweep, &["plot", "out", "--format", "pdf"]).says(
        2,
        "kolo: this build writes no PDF; build with `--features pdf`, or convert the SVG\n",
    );
    assert!(!sweep.path("out/figures").exists());
}

/// The same tables are in the files, by whichever way they are read; a sweep that goes on has CSV again.
#[cfg(feature = "parquet")]
#[test]
fn samples_by_columns_are_read_by_all_that_read_samples() {
    use results::columnar;

    let sweep = Sweep::new(&[]);
    let ended = sweep.run(&["--samples", "parquet"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    ended.says(0, "out/samples.parquet: 48 lines, ");
    ended.says(0, "out/messages.parquet: ");
    for name in ["samples.csv", "messages.csv", "samples.new", "messages.new"] {
        assert!(!sweep.path("out").join(name).exists(), "{name}");
    }
    let text = |table: &str| {
        let path = columnar::find(&sweep.path("out"), table).unwrap();
        std::io::read_to_string(columnar::open(&path, None).unwrap()).unwrap()
    };
    let (samples, messages) = (text("samples"), text("messages"));
    assert_eq!(samples.lines().count(), 1 + 48);

    let compared = run(&sweep, &["compare", "out", "out"]);
    assert_eq!(compared.status, Some(0), "{}", compared.stderr);
    let plotted = run(&sweep, &["plot", "out", "--paper"]);
    assert!(plotted.stdout.contains("distribution_single.svg"), "{}", plotted.stdout);
    let reported = run(&sweep, &["report", "out"]);
    assert_eq!(reported.status, Some(0), "{}", reported.stderr);
    let page = sweep.read("out/report.html");
    assert!(page.contains("Distribution of step times") && !page.contains("samples.csv"));
    let reproduced = run(&sweep, &["reproduce", "out", "--out", "again"]);
    assert!(matches!(reproduced.status, Some(0 | 1 | 3)), "{}", reproduced.stderr);
    assert!(sweep.path("again/samples.parquet").exists());

    // The sweep is done, so nothing is measured again.
    let resumed = sweep.run(&["--resume"]);
    assert_eq!(resumed.status, Some(0), "{}", resumed.stderr);
    assert_eq!(sweep.read("out/samples.csv"), samples);
    assert_eq!(sweep.read("out/messages.csv"), messages);
    assert!(!sweep.path("out/samples.parquet").exists());
    assert_eq!(sweep.run(&["--resume", "--samples", "parquet"]).status, Some(0));
    assert_eq!(text("samples"), samples);

    // A sweep that has left cases can grow, so its tables stay CSV.
    sweep.configure(&[("seed = 7", "seed = 8")]);
    fs::remove_dir_all(sweep.path("out")).unwrap();
    let left = sweep.run(&["--samples", "parquet", "--until", "0"]);
    assert_eq!(left.status, Some(4), "{}", left.stderr);
    assert!(sweep.path("out/samples.csv").exists() && !sweep.path("out/samples.parquet").exists());
}
