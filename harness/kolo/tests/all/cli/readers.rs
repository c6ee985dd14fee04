//! What other programs read off the tables of `kolo bench`, by their own rules.
//!
//! The rules are those of public readers of nccl-tests' tables, as of 2026.

use regex::Regex;
use serde_json::Value;

use crate::cli::sandbox::{Ended, kolo};

/// The columns of a table.
const NAMES: &str = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";

/// A table of two sizes on two nodes of two ranks, and the same run as JSON.
struct Bench {
    text: String,
    json: Value,
}

impl Bench {
    fn run(more: &[&str]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let words = ["bench", "--topology", "2x2", "--algorithm", "ring", "-d", "float"];
        let sizes = ["-b", "4K", "-e", "16K", "-f", "4", "-n", "6", "-w", "1", "-J", "bench.json"];
        let mut command = kolo(&words);
        let ended = Ended::of(command.args(sizes).args(more).current_dir(folder.path()));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let json = std::fs::read_to_string(folder.path().join("bench.json")).unwrap();
        Bench { text: ended.stdout, json: serde_json::from_str(&json).unwrap() }
    }

    /// The lines of results.
    fn rows(&self) -> Vec<&str> {
        self.text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
    }

    /// A value of each size in the JSON.
    fn of_json(&self, place: &str, name: &str) -> Vec<f64> {
        let results = self.json["results"].as_array().unwrap();
        results.iter().map(|result| result[place][name].as_f64().unwrap()).collect()
    }
}

/// The numbers of a column of a table agree with those of the JSON to the digits of the table.
#[track_caller]
fn agree(printed: impl Iterator<Item = f64>, exact: &[f64]) {
    let printed: Vec<f64> = printed.collect();
    assert_eq!(printed.len(), exact.len());
    for (printed, exact) in printed.iter().zip(exact) {
        assert!((printed - exact).abs() <= 0.006 + 0.001 * exact, "{printed} {exact}");
    }
}

/// SuperBench: the lines between the last `out-of-place` and the last `Out of bounds values`; columns from the end.
#[test]
fn superbench_reads_it() {
    for more in [&[][..], &["--bound"], &["--sync", "window"]] {
        let bench = Bench::run(more);
        let lines: Vec<&str> = bench.text.lines().collect();
        let last = |words: &str| lines.iter().rposition(|line| line.contains(words)).unwrap();
        let table = &lines[last("out-of-place") + 1..last("Out of bounds values")];
        let words = |line: &str| -> Vec<String> {
            line.split_whitespace().filter(|word| *word != "#").map(String::from).collect()
        };
        let head = table.iter().find(|line| line.contains("time") && line.contains("busbw"));
        assert_eq!(words(head.unwrap()).join(" "), NAMES);
        let rows: Vec<Vec<String>> = table
            .iter()
            .map(|line| words(line))
            .filter(|row| row[0].starts_with(|first: char| first.is_ascii_digit()))
            .collect();
        let from_end =
            |back: usize| rows.iter().map(move |row| row[row.len() - back].parse().unwrap());
        agree(from_end(8), &bench.of_json("out_of_place", "time"));
        agree(from_end(6), &bench.of_json("out_of_place", "bus_bw"));
        agree(from_end(4), &bench.of_json("in_place", "time"));
        agree(from_end(2), &bench.of_json("in_place", "bus_bw"));
    }
}

/// PerfKitBenchmarker: each rule finds what it needs, and the average exactly once.
#[test]
fn perfkit_benchmarker_reads_it() {
    let text = Bench::run(&[]).text;
    let count = |rule: &str| Regex::new(rule).unwrap().find_iter(&text).count();
    let head = r"# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\S+) warmup iters: (\d+) iters: (\d+) agg iters: (\d+) validation: (\d+) graph: (\d+)\s*";
    assert_eq!(count(head), 1);
    assert_eq!(count(r"(Rank\s+\d+) (.*)"), 4);
    let number = r"(\d+(?:\.\d+)?)\s+";
    let row = format!(
        r"(?m)^\s*(\d+)\s+(\d+)\s+(\w+)\s+[^1-9]+-?\d+\s+{number}{number}{number}(\S+)\s+{number}{number}{number}(\S+)"
    );
    assert_eq!(count(&row), 2);
    assert_eq!(count(r"Avg bus bandwidth\s+: ([0-9\.]+)"), 1);
}

/// Ramble and the NCCL parser of awsome-distributed-training: every row, with its type and operation.
#[test]
fn ramble_and_awsome_distributed_training_read_it() {
    let bench = Bench::run(&[]);
    let numbers = r"(\s+[0-9]+\.?[0-9]+){3}\s+(\d+|N/A)";
    let row = format!(
        r"^\s+[0-9]+\s+[0-9]+\s+(float|double|int|half)\s+(sum|prod|max|min|none)\s+(-?\d+){numbers}{numbers}\s*$"
    );
    let row = Regex::new(&row).unwrap();
    let rows = bench.rows();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|line| row.is_match(line)), "{rows:?}");
}

/// CloudAI: the header, rows of 13 words, hosts and devices of ranks, and the words of a run that succeeded.
#[test]
fn cloudai_reads_it() {
    let bench = Bench::run(&[]);
    let head = NAMES.split(' ').map(regex::escape).collect::<Vec<_>>().join(r"\s+");
    assert!(Regex::new(&head).unwrap().is_match(&bench.text));
    assert!(bench.rows().iter().all(|line| line.split_whitespace().count() == 13));
    let device = Regex::new(r"on\s+([\w\d\-.]+)\s+device\s+(\d+)").unwrap();
    let devices: Vec<&str> =
        device.captures_iter(&bench.text).map(|found| found.extract::<2>().1[1]).collect();
    assert_eq!(devices, ["0", "1", "2", "3"], "places among the ranks of one host");
    for words in ["# Out of bounds values", "# Avg bus bandwidth"] {
        assert!(bench.text.contains(words));
    }
    assert!(!bench.text.contains("Test failure") && !bench.text.contains("Test NCCL failure"));
}

/// The health checks of Azure and of cluster-health-scanner, ReFrame, and scripts with awk: the average, and the verdict.
#[test]
fn health_checks_and_scripts_read_it() {
    let bench = Bench::run(&[]);
    let first = bench.text.lines().find(|line| line.contains("bandwidth")).unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    assert_eq!(words.last(), words.get(5), "$NF and the sixth word");
    let of = |place| bench.of_json(place, "bus_bw");
    let all = [of("out_of_place"), of("in_place")].concat();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    agree([words[5].parse().unwrap()].into_iter(), &[mean]);
    assert!(Regex::new(r"# Avg bus bandwidth\s*:\s*(\d+)").unwrap().is_match(&bench.text));
    assert!(!bench.text.contains("FAILED"));
    let verdict = Regex::new(r"(?m)^# Out of bounds values\s*:\s*0\s+OK\s*$").unwrap();
    assert_eq!(verdict.find_iter(&bench.text).count(), 1);
    // aws-parallelcluster takes the row of a size by its count, and the twelfth word of it.
    let row = Regex::new(r"(?m)^.*16384\s+4096.*$").unwrap().find(&bench.text).unwrap();
    let twelfth = row.as_str().split_whitespace().nth(11).unwrap();
    agree([twelfth.parse().unwrap()].into_iter(), &of("in_place")[1..]);
}
