//! Timelines of a sweep, and their analysis.

use std::fs;

use crate::cli::sandbox::{Ended, Sweep, kolo};
use crate::cli::schema::is_as_described;

#[test]
fn a_sweep_writes_a_timeline_of_each_case_if_asked() {
    // On a busy machine the first steps can take long, and the sweep would lengthen its warm-up.
    let sweep = Sweep::new(&[
        ("\"coordinator\", ", ""),
        ("warmup_steps = 1", "warmup_steps = 1\nwarmup_steps_max = 1"),
    ]);
    let ended = sweep.run(&["--timeline"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let files = fs::read_dir(sweep.path("out/timelines")).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = [
        "threads_2x2_bitvector_grouped_0.01MiB_0.5ms.json",
        "threads_2x2_bitvector_grouped_64MiB_0.5ms.json",
        "threads_2x2_bitvector_ring_0.01MiB_0.5ms.json",
        "threads_2x2_bitvector_ring_64MiB_0.5ms.json",
    ];
    assert_eq!(names, expected);
    let name = format!("out/timelines/{}", names[2]);
    let say = |more: &[&str]| {
        let timeline = [&["timeline", &*name], more].concat();
        Ended::of(kolo(&timeline).current_dir(sweep.folder.path()))
    };
    let ended = say(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let title = format!("{name}: kolo, threads/2x2/bitvector/ring/0.01MiB/0.5ms\n");
    assert!(ended.stdout.starts_with(&title), "{}", ended.stdout);
    assert!(!ended.stdout.contains("note:") && !ended.stdout.contains("not in this file"));
    // The warm-up and 3 steps of 6 tensors on 4 ranks.
    for part in ["steps             4, median", "mean of 24 of 24", "\n  b.weight  "] {
        assert!(ended.stdout.contains(part), "{part}\n{}", ended.stdout);
    }
    let ended = say(&["--skip", "1", "--tensors", "0"]);
    assert!(ended.stdout.contains("steps             3, median"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("b.weight"), "{}", ended.stdout);
    let ended = say(&["--json", "--tensors", "2"]);
    let analysed: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    is_as_described("timeline", &analysed);
    assert_eq!(analysed["case"], "threads/2x2/bitvector/ring/0.01MiB/0.5ms");
    assert_eq!(analysed["analysis"]["tensors"].as_array().unwrap().len(), 2);
    assert_eq!(analysed["analysis"]["steps"]["samples"], 4);
    say(&["--skip", "4"]).says(2, "it has 4 steps; --skip must leave at least one");
}

#[test]
fn a_sweep_writes_no_timeline_unasked() {
    let sweep = Sweep::new(&[]);
    assert_eq!(sweep.run(&[]).status, Some(0));
    assert!(!sweep.path("out/timelines").exists());
}

/// One more block of the fastest case in the largest world is recorded; the results are those of the other blocks.
#[test]
fn a_sweep_writes_the_timeline_of_its_fastest_case_if_configured() {
    let sweep = Sweep::new(&[
        ("topology = [\"2x2\"]", "topology = [\"1x2\", \"2x2\"]"),
        ("interval_percent = 0", "interval_percent = 0\ntimelines = \"fastest\""),
    ]);
    let timelines = || -> Vec<String> {
        let files = fs::read_dir(sweep.path("out/timelines")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    let ended = sweep.run(&[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    assert!(rows.iter().all(|row| row["blocks"] == "2"));
    let of_four = rows.iter().filter(|row| row["ranks"] == "4");
    let time_us =
        |row: &std::collections::HashMap<String, String>| row["time_us_p50"].parse::<f64>();
    let fastest = of_four.min_by(|a, b| time_us(a).unwrap().total_cmp(&time_us(b).unwrap()));
    let expected = fastest.unwrap()["case"].replace('/', "_") + ".json";
    assert_eq!(timelines(), [expected.as_str()]);
    // A run that is done is not touched again.
    fs::remove_file(sweep.path("out/timelines").join(&expected)).unwrap();
    assert_eq!(sweep.run(&["--resume"]).status, Some(0));
    assert_eq!(timelines(), [""; 0]);
}

/// A file in Horovod's format whose job was killed.
#[test]
fn missing_information_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("horovod.json");
    fs::write(
        &path,
        r#"[
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
        {"ph": "E", "ts": 2100, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 2200, "pid": 1},
        {"ph": "E", "ts": 3"#,
    )
    .unwrap();
    let ended = Ended::of(&mut kolo(&["timeline", path.to_str().unwrap()]));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let (title, rest) = ended.stdout.split_once('\n').unwrap();
    assert!(
        title.ends_with("horovod.json: not written by kolo; read as a Horovod timeline"),
        "{title}"
    );
    let expected = "  note: the end of the file is missing, as when a job is killed
  note: 1 span(s) never end; they are counted to the end of the file
  time covered      2.100 ms
  steps             not in this file
  computation       not in this file
  communication     0.000 ms (0.0 %)
    overlapped      not in this file
    exposed         not in this file
    packing         0.000 ms
  control plane     not in this file
  negotiation       1 of single tensors, median 2.000 ms, longest 2.000 ms; at least one for 2.000 ms
  waiting           not in this file
  last to be ready  not in this file
  cycles            not in this file; HOROVOD_TIMELINE_MARK_CYCLES=1 marks them
  messages          not in this file
  slowest to negotiate          mean      longest  times  last
  grad                      2.000 ms     2.000 ms      1  not in this file
";
    assert_eq!(rest, expected);
    Ended::of(&mut kolo(&["timeline", "nowhere.json"])).says(2, "nowhere.json: No such file");
}
