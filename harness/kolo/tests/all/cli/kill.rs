//! A sweep that is killed at any moment and resumed has each case exactly once.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use crate::cli::sandbox::Sweep;

#[test]
fn killed_twenty_times_and_resumed_each_case_is_there_once() {
    let mut killed_midway = 0;
    for round in 0..20_u64 {
        let sweep = Sweep::new(&[("cycle_time_ms = [0.5]", "cycle_time_ms = [0.2, 0.5]")]);
        let mut child = sweep.command(&[]).stdout(std::process::Stdio::null()).spawn().unwrap();
        // From before the first block to the last one, and some moments later.
        let lines = || std::fs::read(sweep.path("out/samples.csv")).unwrap_or_default();
        let blocks_done = || lines().iter().filter(|&&byte| byte == b'\n').count() / 3;
        while blocks_done() < (round * 37 % 32) as usize && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_micros(round * 1237 % 9000));
        child.kill().unwrap();
        child.wait().unwrap();
        let blocks = |sweep: &Sweep| {
            let mut counts: HashMap<(String, String), usize> = HashMap::new();
            let Ok(mut reader) = csv::Reader::from_path(sweep.path("out/samples.csv")) else {
                return counts;
            };
            for record in reader.records() {
                // The last line may be cut.
                let Ok(record) = record else { continue };
                *counts.entry((record[0].into(), record[1].into())).or_default() += 1;
            }
            counts
        };
        if (1..32).contains(&blocks(&sweep).len()) {
            killed_midway += 1;
        }
        // Killed before it could say what it was, a run begins anew; otherwise it is resumed.
        let begun = sweep.path("out/provenance.json").exists();
        let ended = sweep.run(if begun { &["--resume"] } else { &[] });
        assert_eq!(ended.status, Some(0), "round {round}: {}", ended.stderr);
        let mut cases: Vec<String> =
            sweep.rows().into_iter().map(|row| row["case"].clone()).collect();
        cases.sort();
        let count = cases.len();
        cases.dedup();
        assert_eq!((count, cases.len()), (16, 16), "round {round}: {}", ended.stderr);
        let blocks = blocks(&sweep);
        assert_eq!(blocks.len(), 32, "round {round}");
        assert!(blocks.values().all(|&samples| samples == 3), "round {round}: {blocks:?}");
        assert!(sweep.rows().iter().all(|row| row["status"] == "ok" && row["samples"] == "6"));
    }
    assert!(killed_midway >= 10, "only {killed_midway} of 20 were killed while measuring");
}
