//! `kolo tune` as a user runs it.

use std::fs;

use crate::cli::sandbox::{Ended, Sweep, kolo};
use crate::cli::schema::is_as_described;

fn tune(sandbox: &Sweep, arguments: &[&str]) -> Ended {
    Ended::of(kolo(&[&["tune"], arguments].concat()).current_dir(sandbox.folder.path()))
}

/// Status 0 with a verdict, 3 without: on a busy machine the budget may not suffice for one.
#[track_caller]
fn assert_status_says_the_verdict(sandbox: &Sweep, ended: &Ended) {
    let json: serde_json::Value = serde_json::from_str(&sandbox.read("out/tune.json")).unwrap();
    let expected = match json["verdict"].as_str() {
        None | Some("unknown") => 3,
        Some(_) => 0,
    };
    assert_eq!(ended.status, Some(expected), "{json}\n{}{}", ended.stdout, ended.stderr);
}

const TINY: [&str; 4] = ["--workload", "tiny.csv", "--backward-ms", "2"];

#[test]
fn a_run_ends_with_an_answer_and_never_with_exports_on_threads() {
    let sandbox = Sweep::new(&[]);
    let ended = tune(&sandbox, &[&TINY[..], &["--budget", "6s", "--out", "out"]].concat());
    assert_status_says_the_verdict(&sandbox, &ended);
    assert!(
        ended.stdout.starts_with("tiny: 6 gradients, 0.0 MB, 2 ranks on 1 node over threads\n")
    );
    assert!(!ended.stdout.contains("export "), "{}", ended.stdout);
    let json: serde_json::Value = serde_json::from_str(&sandbox.read("out/tune.json")).unwrap();
    assert_eq!(json["for_horovod"], false);
    let conditions = sandbox.read("out/conditions.csv").lines().count() as u64;
    assert_eq!(conditions, 1 + json["blocks"].as_u64().unwrap(), "a line for each block");
    assert!(json["settings_measured"].as_u64().unwrap() >= 8);
    let rows = sandbox.rows();
    assert!(rows.iter().all(|row| row["status"] == "ok" && row["wrong"] == "0"));
    assert!(sandbox.path("out/figures/surface.svg").exists());
    assert!(!sandbox.path("out/horovod.yaml").exists());
}

#[test]
fn one_gradient_and_a_backward_pass_shorter_than_a_cycle_are_remarked_on() {
    let sandbox = Sweep::new(&[]);
    fs::write(sandbox.path("one.csv"), "index,name,shape,elements\n0,only,1000,1000\n").unwrap();
    let arguments = ["--workload", "one.csv", "--backward-ms", "0.05", "--budget", "4s"];
    let ended = tune(&sandbox, &[&arguments[..], &["--out", "out"]].concat());
    assert_status_says_the_verdict(&sandbox, &ended);
    let expected = [
        "kolo: the workload has a single gradient: there is nothing to fuse",
        "kolo: the backward pass of 0.05 ms is shorter than one cycle of 0.1 ms: all gradients",
    ];
    assert!(expected.iter().all(|said| ended.stderr.contains(said)), "{}", ended.stderr);
    assert!(sandbox.rows().iter().all(|row| row["status"] == "ok" && row["wrong"] == "0"));
}

#[test]
fn several_world_sizes_have_an_answer_each() {
    let sandbox = Sweep::new(&[]);
    let more = ["--topology", "1x1,1x2", "--cycle-time-ms", "1", "--cache", "on"];
    let ended = tune(
        &sandbox,
        &[&TINY[..], &more[..], &["--budget", "8s", "--out", "out", "--json"]].concat(),
    );
    assert_status_says_the_verdict(&sandbox, &ended);
    let summary = sandbox.read("out/summary.txt");
    for size in ["1 rank on 1 node over threads", "2 ranks on 1 node over threads"] {
        assert!(summary.contains(size), "{summary}");
    }
    assert_eq!(ended.stdout, sandbox.read("out/tune.json"));
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    is_as_described("tune", &json);
    assert_eq!(
        (&json["topology"], &json["smaller"][0]["topology"]),
        (&"1x2".into(), &"1x1".into())
    );
    assert!(sandbox.rows().iter().any(|row| row["ranks"] == "1"));
}

#[test]
fn groups_and_compression_are_tried_where_asked() {
    let sandbox = Sweep::new(&[]);
    let more = ["--groups", "0,2", "--compression", "none,fp16", "--cycle-time-ms", "1"];
    let more =
        [&more[..], &["--cache", "on", "--budget", "6s", "--out", "out", "--exhaustive", "2"]];
    let ended = tune(&sandbox, &[&TINY[..], &more.concat()].concat());
    assert_status_says_the_verdict(&sandbox, &ended);
    assert!(ended.stdout.contains("settings afterwards: the best, "), "{}", ended.stdout);
    let rows = sandbox.rows();
    let all = |column: &str| -> Vec<String> {
        let mut values: Vec<String> = rows.iter().map(|row| row[column].clone()).collect();
        values.sort();
        values.dedup();
        values
    };
    assert_eq!(
        (all("compression"), all("groups")),
        (vec!["fp16".into(), "none".into()], vec!["0".into(), "2".into()])
    );
    assert!(rows.iter().any(|row| row["case"].ends_with("/fp16/2groups")));
    assert!(sandbox.read("out/regret.csv").lines().count() == 2);
}

#[test]
fn a_file_sets_the_same_as_options() {
    let sandbox = Sweep::new(&[]);
    let text = "workload = \"tiny.csv\"\nstep = { backward_ms = 2 }\n[tune]\nbudget = \"1ms\"\n";
    fs::write(sandbox.path("tune.toml"), text).unwrap();
    tune(&sandbox, &["tune.toml"])
        .says(2, "kolo: tune.budget: \"1ms\" is not a time; write 90s, 10m or 1h");
    let text = text.replace("1ms", "2s").replace("[tune]", "[tune]\ncache = \"perhaps\"");
    fs::write(sandbox.path("tune.toml"), text).unwrap();
    tune(&sandbox, &["tune.toml"]).says(2, "kolo: tune.toml: line ");
}

#[test]
fn mistakes_are_reported_before_anything_is_measured() {
    let sandbox = Sweep::new(&[]);
    let with = |more: &[&str]| tune(&sandbox, &[&TINY[..], more].concat());
    tune(&sandbox, &[]).says(2, "kolo: no workload; name a model with --workload resnet50");
    tune(&sandbox, &TINY[..2])
        .says(2, "kolo: the length of the backward pass is missing; give it with --backward-ms");
    with(&["--budget", "10ms"]).says(2, "\"10ms\" is not a time; write 90s, 10m or 1h");
    with(&["--budget", "0.1s"]).says(2, "kolo: a budget of 0 s is too short: ");
    with(&["--steps", "20"]).says(2, "kolo: 20 steps are too few: ");
    with(&["--fusion-threshold-mb", "64", "--max-buffer-mb", "32"])
        .says(2, "kolo: --fusion-threshold-mb is 64, expected at most --max-buffer-mb (32)");
    with(&["--transport", "mpi", "--hierarchical", "on"]).says(2, "it needs NCCL");
    with(&["--topology", "2by2"]).says(2, "kolo: sweep.topology: \"2by2\" is not a topology");
    with(&["--cycle-time-ms", "-1"]).says(2, "-1");
    with(&["--check", "--cycle-time-ms", "7"]).says(
        2,
        "kolo: --check compares with the settings of the environment (128 MiB, 1 ms, cache on), which \
         --cycle-time-ms excludes",
    );
    with(&["--up-to", "8"]).says(2, "--machine <NAME|FILE>");
    with(&["--topology", "1x1,1x2", "--budget", "0.1s"]).says(2, "for each of 2 need at least");
    assert!(!sandbox.path("results").exists());
}

#[test]
fn output_of_the_script_is_compared_with_the_promise() {
    let sandbox = Sweep::new(&[]);
    let confirm = || tune(&sandbox, &["--confirm", "confirm.csv"]);
    confirm().says(2, "kolo: confirm.csv: ");
    let rows = (0..5).flat_map(|block| {
        let drift = 1.0 + 0.01 * f64::from(block % 3);
        [("recommended", 100.0), ("128 MiB, 1 ms, cache on", 112.0)].map(|(label, ms)| {
            let ms = ms * drift;
            format!("{block},0,\"{label}\",{ms},{ms},{ms},5,2,cpu\n")
        })
    });
    let header = "block,order,setting,step_ms,min_ms,max_ms,steps,ranks,device\n";
    fs::write(sandbox.path("confirm.csv"), header.to_string() + &rows.collect::<String>()).unwrap();
    confirm().says(2, "name the folder of kolo tune's results with --out");
    let promise = |low: f64, high: f64| {
        let ratio = format!("{{\"ratio\":1,\"low\":{low},\"high\":{high}}}");
        let json = format!(
            "{{\"compared\":[{{\"name\":\"128 MiB, 1 ms, cache on\",\"ratio\":{ratio}}}]}}"
        );
        fs::write(sandbox.path("tune.json"), json).unwrap();
        confirm()
    };
    let ended = promise(1.05, 1.2);
    assert!(ended.stdout.ends_with("promised 1.050 to 1.200: agrees\n"), "{}", ended.stdout);
    assert_eq!(ended.status, Some(0));
    let ended = promise(1.2, 1.3);
    assert!(ended.stdout.ends_with("slower than promised\n"), "{}", ended.stdout);
}
