//! How long the figures and the report of a run take, beside their goals: the quick sweep below 2 s, and 10,000 rows below
//! 10 s. The report is to be smaller than 5 MB.
//!
//! `cargo bench -p report --bench speed` prints a table. With `--rows N` it has another number of rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plots::{Options, Rows};
use report::Report;

/// The largest report in bytes.
const MOST_BYTES: usize = 5_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let asked = arguments.iter().position(|it| it == "--rows").and_then(|at| arguments.get(at + 1));
    let rows = asked.map_or(10_000, |rows| rows.parse().expect("a number of rows"));
    let quick = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference/quick");
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large");
    write(&quick, &large, rows);
    println!("{:<32} {:>10} {:>8} {:>12}", "", "time", "goal", "size");
    let many = format!("{rows} rows");
    for (run, name, goal_s) in [(&quick, "quick sweep", 2.0), (&large, &*many, 10.0)] {
        measure(run, &folder.path().join("figures"), name, goal_s);
    }
}

fn measure(run: &Path, out: &Path, name: &str, goal_s: f64) {
    let figures = |paper: bool| {
        let begin = Instant::now();
        let tables = ["rows.csv", "bandwidth.csv", "samples.csv"].map(|table| run.join(table));
        let tables: Vec<PathBuf> = tables.into_iter().filter(|table| table.exists()).collect();
        let rows = Rows::read(&tables).expect("rows");
        let options = Options { paper, ..Options::default() };
        plots::draw(&rows, out, options, |_| {}).expect("figures");
        begin.elapsed()
    };
    let drawn = figures(false);
    line(&format!("{name}, figures"), drawn, None, String::new());
    let begin = Instant::now();
    let page = Report::read(&[run.to_path_buf()], |_| {}).expect("a report").html();
    let reported = begin.elapsed();
    let size = format!("{:.2} MB", page.len() as f64 / 1e6);
    let size = if page.len() < MOST_BYTES { size } else { format!("{size}, too large") };
    line(&format!("{name}, report"), reported, None, size);
    line(&format!("{name}, both"), drawn + reported, Some(goal_s), String::new());
    line(&format!("{name}, figures for a paper"), figures(true), None, String::new());
}

fn line(what: &str, time: Duration, goal_s: Option<f64>, size: String) {
    let goal = goal_s.map_or(String::new(), |goal| format!("{goal} s"));
    let missed = goal_s.is_some_and(|goal| time.as_secs_f64() > goal);
    let missed = if missed { "  missed" } else { "" };
    println!("{what:<32} {:>8.2} s {goal:>8} {size:>12}{missed}", time.as_secs_f64());
}

/// A folder of a run as the quick sweep, of so many settings: each of its control planes and algorithms at 50 thresholds
/// and as many cycle times as are needed.
fn write(quick: &Path, to: &Path, rows: usize) {
    let text = fs::read_to_string(quick.join("rows.csv")).expect("the quick sweep");
    let (header, lines) = text.split_once('\n').expect("a header");
    let place = |name: &str| header.split(',').position(|it| it == name).expect("a column");
    let [plane, algorithm] = ["control_plane", "algorithm"].map(place);
    let mut of_lines: Vec<Vec<&str>> =
        lines.lines().map(|line| line.split(',').collect()).collect();
    of_lines.sort_by_key(|fields| (fields[plane], fields[algorithm]));
    of_lines.dedup_by_key(|fields| (fields[plane], fields[algorithm]));
    let times = ["time_us_p50", "time_us_p50_low", "time_us_p50_high", "negotiation_us_p50"];
    let row = |at: usize| {
        let setting = at / of_lines.len();
        let mut fields: Vec<String> =
            of_lines[at % of_lines.len()].iter().map(ToString::to_string).collect();
        let (threshold, cycle) = (setting % 50, setting / 50);
        fields[place("case")] = format!("case {at}");
        fields[place("fusion_threshold_bytes")] = (1_048_576 * (threshold + 1)).to_string();
        fields[place("cycle_time_ms")] = format!("{:.1}", 0.1 * (cycle + 1) as f64);
        let factor = 1.0 + 0.01 * ((at * 7919) % 100) as f64 + 0.02 * cycle as f64;
        for time in times.map(place) {
            if let Ok(value) = fields[time].parse::<f64>() {
                fields[time] = format!("{:.3}", value * factor);
            }
        }
        fields.join(",")
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    fs::create_dir_all(to).expect("a folder");
    fs::write(to.join("rows.csv"), format!("{header}\n{}\n", rows.join("\n"))).expect("rows");
    for name in ["provenance.json", "conclusion.json", "summary.txt"] {
        fs::copy(quick.join(name), to.join(name)).expect("files of the quick sweep");
    }
}
