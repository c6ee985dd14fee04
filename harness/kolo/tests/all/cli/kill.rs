//! A sweep that is killed at any moment and resumed has each case exactly once.

use std::collections::HashMap;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::cli::sandbox::Sweep;
use crate::coverage::all_worlds;

/// Cases, blocks and steps of the sweep.
const CASES: usize = 8;
const BLOCKS: usize = 2 * CASES;
const STEPS: usize = 6;

fn sweep() -> Sweep {
    Sweep::new(&[
        ("\"2x2\"", "\"1x2\""),
        ("backward_ms = 1.5", "backward_ms = 0.2"),
        ("steps_per_block = 3", "steps_per_block = 6"),
    ])
}

/// Samples of each block that is on disk; the last line may be incomplete.
fn blocks(sweep: &Sweep) -> HashMap<(String, String), usize> {
    let mut counts = HashMap::new();
    if let Ok(mut reader) = csv::Reader::from_path(sweep.path("out/samples.csv")) {
        for record in reader.records().flatten() {
            *counts.entry((record[0].into(), record[1].into())).or_default() += 1;
        }
    }
    counts
}

#[track_caller]
fn finish_and_check(sweep: &Sweep, what: &str) {
    // Killed before it wrote what it is, a run begins anew; otherwise it is resumed.
    let has_begun = sweep.path("out/provenance.json").exists();
    let ended = sweep.run(if has_begun { &["--resume"] } else { &[] });
    assert_eq!(ended.status, Some(0), "{what}: {}", ended.stderr);
    let rows = sweep.rows();
    let mut cases: Vec<&str> = rows.iter().map(|row| &*row["case"]).collect();
    cases.sort_unstable();
    cases.dedup();
    assert_eq!((rows.len(), cases.len()), (CASES, CASES), "{what}: {}", ended.stderr);
    let blocks = blocks(sweep);
    assert_eq!(blocks.len(), BLOCKS, "{what}");
    assert!(blocks.values().all(|&samples| samples == STEPS), "{what}: {blocks:?}");
    let samples = (2 * STEPS).to_string();
    assert!(rows.iter().all(|row| row["status"] == "ok" && row["samples"] == samples), "{what}");
}

/// The kernel kills the process within a write, where a file reaches a limit: most often within a line of samples.
#[test]
fn killed_within_a_write_and_resumed_each_case_is_there_once() {
    for kib in if all_worlds() { (5..=17).collect() } else { vec![5, 9, 14] } {
        let sweep = sweep();
        sweep.killed_at_file_size(kib);
        let done = blocks(&sweep).len();
        assert!((1..BLOCKS).contains(&done), "{kib} KiB: {done} blocks");
        finish_and_check(&sweep, &format!("files of {kib} KiB"));
    }
}

/// Whatever the moment: before the first block, between two writes, or after the end.
#[test]
fn killed_at_any_time_and_resumed_each_case_is_there_once() {
    let rounds = if all_worlds() { 20 } else { 4 };
    for round in 0..rounds {
        let sweep = sweep();
        let mut child = sweep.command(&[]).stdout(Stdio::null()).spawn().unwrap();
        let least = BLOCKS * round / rounds;
        while blocks(&sweep).len() < least && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_micros(round as u64 * 1237 % 9000));
        child.kill().unwrap();
        child.wait().unwrap();
        finish_and_check(&sweep, &format!("round {round}"));
    }
}
