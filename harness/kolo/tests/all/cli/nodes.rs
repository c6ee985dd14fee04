//! Sweeps over numbers of nodes: what depends on where they run, weak and strong scaling, and the base case.

use crate::cli::sandbox::Sweep;

/// One algorithm on nodes of one rank.
const NODES: [(&str, &str); 5] = [
    ("topology = [\"2x2\"]", "nodes = \"powers\""),
    ("[\"ring\", \"grouped\"]", "[\"ring\", \"library\"]"),
    ("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]"),
    ("[0.01, 64]", "[64]"),
    ("interval_percent = 0", "interval_percent = 0\nrepeat_base = true"),
];

fn cases(sweep: &Sweep) -> Vec<String> {
    let mut names: Vec<String> = sweep.rows().iter().map(|row| row["case"].clone()).collect();
    names.sort();
    names
}

/// A sweep keeps the numbers with which it began, and refuses others.
#[test]
fn nodes_double_up_to_the_option_and_are_kept() {
    let sweep = Sweep::new(&NODES);
    let nodes = ["--nodes", "5", "--ranks-per-node", "1"];
    let ended = sweep.run(&nodes);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let expected = [1, 2, 4].map(|nodes| format!("threads/{nodes}x1/bitvector/ring/64MiB/0.5ms"));
    assert_eq!(cases(&sweep), expected);
    for row in sweep.rows() {
        assert_eq!(row["emulated"] == "true", row["nodes"] != "1", "{}", row["case"]);
    }
    sweep.run(&["--resume"]).says(0, "resuming out: 3 of 3 cases");
    sweep
        .run(&["--resume", "--nodes", "8"])
        .says(2, "holds another sweep: sweep.nodes: the folder has [1,2,4], now it is [1,2,4,8]");
}

/// The base case comes first in each round, and once more after all others; its blocks make the statement on drift.
#[test]
fn the_base_case_is_measured_from_the_beginning_to_the_end() {
    let sweep = Sweep::new(&NODES);
    let ended = sweep.run(&["--nodes", "2", "--ranks-per-node", "2"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let drift = ended.stdout.lines().find(|line| line.starts_with("drift: ")).unwrap();
    assert!(drift.contains("threads/1x2/bitvector/ring/64MiB/0.5ms took "), "{drift}");
    assert!(drift.contains(" ms in the first of 3 blocks, "), "{drift}");
    assert!(drift.contains(", while blocks differ from the next by "), "{drift}");
    assert!(sweep.read("out/summary.txt").contains(drift));
    let samples = sweep.read("out/samples.csv");
    let worlds = samples.lines().skip(1).map(|line| line.split('/').nth(1).unwrap());
    let mut blocks: Vec<&str> = worlds.step_by(3).collect();
    assert_eq!(blocks, ["1x2", "2x2", "1x2", "2x2", "1x2"]);
    let rows = sweep.rows();
    let base = rows.iter().find(|row| row["nodes"] == "1").unwrap();
    assert_eq!((&*base["blocks"], &*base["stop_reason"]), ("3", "end"));
    // A kill before the last block: it is measured again, and nothing else.
    let lines: Vec<&str> = samples.lines().collect();
    std::fs::write(sweep.path("out/samples.csv"), lines[..lines.len() - 3].join("\n") + "\n")
        .unwrap();
    let rows = sweep.read("out/rows.csv");
    let kept: Vec<&str> = rows.lines().filter(|line| !line.contains("threads/1x2")).collect();
    std::fs::write(sweep.path("out/rows.csv"), kept.join("\n") + "\n").unwrap();
    sweep.run(&["--resume"]).says(0, "1 incomplete block(s) are dropped");
    let samples = sweep.read("out/samples.csv");
    blocks =
        samples.lines().skip(1).map(|line| line.split('/').nth(1).unwrap()).step_by(3).collect();
    assert_eq!(blocks, ["1x2", "2x2", "1x2", "2x2", "1x2"]);
    assert_eq!(sweep.rows().len(), 2);
}

/// A budget that is spent at once leaves one block of each case, and two of the base case.
#[test]
fn a_budget_leaves_one_block_of_each_case() {
    let sweep = Sweep::new(&NODES);
    sweep.run(&["--nodes", "2", "--ranks-per-node", "1", "--budget", "0s"]).says(
        0,
        "warning: a budget of 0 s is too small for measure.blocks_min = 2 blocks of each of 2 cases, about ",
    );
    for row in sweep.rows() {
        let expected = if row["nodes"] == "1" { ("2", "end") } else { ("1", "budget") };
        assert_eq!((&*row["blocks"], &*row["stop_reason"]), expected);
    }
}

/// Cases of strong scaling have names of their own, and the times of their world.
#[test]
fn strong_scaling_is_in_the_names_and_times_of_cases() {
    let strong =
        [&NODES[..], &[("backward_ms = 1.5", "backward_ms = 1.5\nscaling = \"strong\"")]].concat();
    let sweep = Sweep::new(&strong);
    let ended = sweep.run(&["--nodes", "2", "--ranks-per-node", "1"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    let times = |nodes: &str| {
        let row = rows.iter().find(|row| row["nodes"] == nodes).unwrap();
        assert!(row["case"].ends_with("/0.5ms/strong"), "{}", row["case"]);
        ["forward_ms", "backward_ms", "optimizer_ms"].map(|column| row[column].clone())
    };
    assert_eq!(times("1"), ["0.2", "1.5", "0.1"]);
    assert_eq!(times("2"), ["0.1", "0.75", "0.1"]);
}

#[test]
fn a_library_that_no_transport_has_leaves_no_case() {
    let sweep = Sweep::new(&[("[\"ring\", \"grouped\"]", "[\"library\"]")]);
    sweep.run(&[]).says(
        2,
        "kolo: test.toml: there is no case: transport threads has no allreduce of a library; give another algorithm",
    );
}
