//! How long it takes to compare two runs of 10,000 cases with 180,000 samples each, from their folders.
//!
//! `cargo bench -p results --bench compare`. The goal is a second.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use results::compare::{Comparisons, Run};
use results::row::{SCHEMA, columns};

const CASES: usize = 10_000;
const BLOCKS: usize = 6;
const STEPS: usize = 3;
const ROUNDS: usize = 5;

/// Writes a folder of results with all columns.
fn write(folder: &Path, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let columns = columns();
    let mut rows = format!("{columns}\n");
    let mut samples = String::from("case,block,launch,order,step,time_us");
    // As many columns as a sweep writes.
    (6..41).for_each(|column| samples += &format!(",column_{column}"));
    samples.push('\n');
    for case in 0..CASES {
        let name = format!("threads/2x2/bitvector/ring/{case}MiB/1ms");
        let fields = columns.split(',').map(|column| match column {
            "schema" => SCHEMA.to_string(),
            "kind" => "step".into(),
            "case" => name.clone(),
            "status" => "ok".into(),
            "source" => "measured".into(),
            "workload" => "resnet50".into(),
            "time_us_p50" => "50000.0".into(),
            _ => String::new(),
        });
        rows += &(fields.collect::<Vec<_>>().join(",") + "\n");
        for (block, step) in (0..BLOCKS * STEPS).map(|at| (at / STEPS, at % STEPS)) {
            let time_us = 5e4 * (1.0 + 0.04 * random.random::<f64>());
            let _ = write!(samples, "{name},{block},1,{case},{step},{time_us:.3}");
            (6..41).for_each(|_| samples += ",123.456");
            samples.push('\n');
        }
    }
    fs::write(folder.join("rows.csv"), rows).expect("the folder is writable");
    fs::write(folder.join("samples.csv"), samples).expect("the folder is writable");
}

fn main() {
    let folders = [1, 2].map(|seed| {
        let folder = tempfile::tempdir().expect("there is room");
        write(folder.path(), seed);
        folder
    });
    let paths = folders.each_ref().map(|folder| folder.path().to_path_buf());
    let mut times_ms: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let runs = Run::read_all(&paths).expect("they were written whole");
            let found =
                Comparisons::of(&runs[0], &runs[1..], 0.02).expect("the cases are the same");
            black_box(found.text(false));
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times_ms.sort_by(f64::total_cmp);
    println!(
        "2 x {CASES} rows, 2 x {} samples: {:.0} ms, median of {ROUNDS}, goal 1000 ms",
        CASES * BLOCKS * STEPS,
        times_ms[ROUNDS / 2]
    );
}
