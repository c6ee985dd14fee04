//! Horovod's variables and options, as a user sets them.

use std::collections::BTreeSet;

use crate::cli::sandbox::{Ended, Sweep, kolo};

/// The small sweep with one case.
const SINGLE: [(&str, &str); 3] = [
    ("[0.01, 64]", "[64]"),
    ("[\"ring\", \"grouped\"]", "[\"ring\"]"),
    ("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]"),
];

fn run(sweep: &Sweep, variables: &[(&str, &str)], more: &[&str]) -> Ended {
    Ended::of(sweep.command(more).envs(variables.iter().copied()))
}

fn cases(sweep: &Sweep) -> BTreeSet<String> {
    sweep.rows().iter().map(|row| row["case"].clone()).collect()
}

#[test]
fn variables_override_single_values_and_are_recorded() {
    let sweep = Sweep::new(&SINGLE);
    let variables = [
        ("HOROVOD_FUSION_THRESHOLD", "1048576"),
        ("HOROVOD_CYCLE_TIME", "0"),
        ("HOROVOD_CACHE_CAPACITY", "3"),
        ("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
        ("HOROVOD_RANK", "0"),
    ];
    let ended = run(&sweep, &variables, &[]);
    for sentence in [
        "sweep.fusion_threshold_mib is 1 instead of 64: HOROVOD_FUSION_THRESHOLD=1048576\n",
        "sweep.cycle_time_ms is 0 instead of 0.5: HOROVOD_CYCLE_TIME=0\n",
        "sweep.cache_capacity is 3 instead of 1024: HOROVOD_CACHE_CAPACITY=3\n",
        "sweep.algorithm is hierarchical instead of ring: HOROVOD_HIERARCHICAL_ALLREDUCE=1\n",
        "HOROVOD_RANK: known, but not used: sweep.topology, mpirun or srun",
    ] {
        ended.says(0, sentence);
    }
    assert_eq!(cases(&sweep), ["threads/2x2/bitvector/hierarchical/1MiB/0ms".into()].into());
    assert_eq!(sweep.rows()[0]["cache_capacity"], "3");
    let provenance: serde_json::Value =
        serde_json::from_str(&sweep.read("out/provenance.json")).unwrap();
    assert_eq!(provenance["config"]["sweep"]["cycle_time_ms"], serde_json::json!([0.0]));
    assert_eq!(provenance["config"]["sweep"]["cache_capacity"], 3);
    let launch = &provenance["launches"][0];
    assert_eq!(launch["overrides"].as_array().unwrap().len(), 4);
    assert_eq!(launch["overrides"][1]["set_by"], "HOROVOD_CYCLE_TIME=0");
    let rank = serde_json::json!(["HOROVOD_RANK", "0"]);
    assert!(launch["environment"].as_array().unwrap().contains(&rank));
    // What counts is what is compared: the same values are the same sweep, wherever they come from.
    sweep
        .run(&["--resume"])
        .says(2, "holds another sweep: sweep.algorithm: the folder has [\"hierarchical\"]");
    run(&sweep, &variables, &["--resume"]).says(0, "resuming out: 1 of 1 cases");
    sweep.configure(&[
        ("[0.01, 64]", "[64]"),
        ("[\"ring\", \"grouped\"]", "[\"hierarchical\"]"),
        ("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]"),
    ]);
    let options = ["--fusion-threshold-mb", "1", "--cycle-time-ms", "0", "--cache-capacity", "3"];
    let resume = [&options[..], &["--resume"]].concat();
    sweep.run(&resume).says(0, "resuming out: 1 of 1 cases");
}

/// Without fusion every gradient is a message; without a cache the coordinator is asked always.
#[test]
fn zero_is_a_value() {
    let sweep = Sweep::new(&SINGLE);
    let names = ["HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"];
    let ended = run(&sweep, &names.map(|name| (name, "0")), &[]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let rows = sweep.rows();
    assert_eq!(rows[0]["case"], "threads/2x2/bitvector/ring/0MiB/0ms");
    assert_eq!((rows[0]["cache_capacity"].as_str(), rows[0]["wrong"].as_str()), ("0", "0"));
    assert_eq!(rows[0]["messages_p50"].parse(), Ok(6.0));
}

#[test]
fn axes_that_a_sweep_varies_are_not_overridden() {
    let sweep = Sweep::new(&[("[0.5]", "[0.5, 1]")]);
    let variables = [
        ("HOROVOD_FUSION_THRESHOLD", "1048576"),
        ("HOROVOD_CYCLE_TIME", "3"),
        ("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
    ];
    let ended = run(&sweep, &variables, &["--dry-run"]);
    for sentence in [
        "HOROVOD_FUSION_THRESHOLD=1048576 is ignored: this sweep varies it",
        "HOROVOD_CYCLE_TIME=3 is ignored: this sweep varies it",
        "HOROVOD_HIERARCHICAL_ALLREDUCE=1 is ignored: this sweep varies it (sweep.algorithm)",
    ] {
        ended.says(0, sentence);
    }
    assert_eq!(ended.stdout, sweep.run(&["--dry-run"]).stdout);
}

#[test]
fn options_fix_an_axis_and_come_before_variables() {
    let sweep = Sweep::new(&[]);
    let options = ["--dry-run", "--fusion-threshold-mb", "0.5", "--cycle-time-ms", "2"];
    let ended = run(&sweep, &[("HOROVOD_CYCLE_TIME", "7")], &options);
    ended.says(0, "sweep.fusion_threshold_mib is 0.5 instead of 0.01, 64: --fusion-threshold-mb");
    ended.says(0, "HOROVOD_CYCLE_TIME=7 is ignored: --cycle-time-ms 2 takes precedence");
    assert_eq!(ended.stdout.matches("/0.5MiB/2ms  ").count(), 4, "{}", ended.stdout);
}

#[test]
fn missing_keys_have_the_defaults_of_horovod() {
    let sweep =
        Sweep::new(&[("fusion_threshold_mib = [0.01, 64]\n", ""), ("cycle_time_ms = [0.5]\n", "")]);
    let ended = sweep.run(&["--dry-run"]);
    assert_eq!(ended.stdout.matches("/128MiB/1ms  ").count(), 4, "{}", ended.stdout);
    assert_eq!(ended.stderr, "", "nothing to be said");
    let ended = run(&sweep, &[("HOROVOD_FUSION_THRESHOLD", "0")], &["--dry-run"]);
    ended.says(0, "sweep.fusion_threshold_mib is 0 instead of 128: HOROVOD_FUSION_THRESHOLD=0");
}

#[test]
fn values_that_are_none_end_with_status_2() {
    let sweep = Sweep::new(&SINGLE);
    for (name, text, expected) in [
        ("FUSION_THRESHOLD", "-1", "\"-1\", expected a whole number from 0 to 68719476736 B;"),
        ("FUSION_THRESHOLD", "64M", "\"64M\", expected a whole number"),
        ("CYCLE_TIME", "", "\"\", expected a number from 0 to 10000 ms; correct it, or unset it"),
        ("CYCLE_TIME", "nan", "\"nan\", expected a number from 0 to 10000 ms"),
        ("CACHE_CAPACITY", "many", "\"many\", expected a whole number from 0 to 4294967295;"),
        ("STALL_CHECK_TIME_SECONDS", "1.5", "\"1.5\", expected a whole number"),
        ("TIMELINE", "", "\"\", expected the name of a file"),
    ] {
        let name = format!("HOROVOD_{name}");
        let expected = format!("kolo: {name} is {expected}");
        run(&sweep, &[(&name, text)], &[]).says(2, &expected);
        Ended::of(kolo(&["info"]).env(&name, text)).says(2, &expected);
    }
    for (option, text, expected) in [
        ("--fusion-threshold-mb", "-1", "expected a number from 0 to 65536"),
        ("--fusion-threshold-mb", "inf", "expected a number from 0 to 65536"),
        ("--cycle-time-ms", "5ms", "expected a number from 0 to 10000"),
        ("--cache-capacity", "0.5", "expected a whole number from 0 to 4294967295"),
    ] {
        sweep.run(&[option, text]).says(2, &format!("invalid value '{text}' for '{option}"));
        sweep.run(&[option, text]).says(2, expected);
    }
    assert!(!sweep.path("out").exists());
}

#[test]
fn info_shows_effective_values_and_their_source() {
    let line = |ended: &Ended, name: &str| {
        let lines = ended.stdout.lines().filter(|line| line.contains(&format!("  {name} ")));
        let words: Vec<_> = lines.flat_map(str::split_whitespace).map(str::to_string).collect();
        words.join(" ")
    };
    let ended = Ended::of(kolo(&["info"]).env("HOROVOD_CYCLE_TIME", "2.5"));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let threshold = line(&ended, "HOROVOD_FUSION_THRESHOLD");
    assert!(threshold.starts_with("HOROVOD_FUSION_THRESHOLD 134217728 B"), "{threshold}");
    assert!(threshold.ends_with(" default"), "{threshold}");
    let cycle_time = line(&ended, "HOROVOD_CYCLE_TIME");
    assert!(cycle_time.starts_with("HOROVOD_CYCLE_TIME 2.5 ms"), "{cycle_time}");
    assert!(cycle_time.ends_with(" environment"), "{cycle_time}");
    let elastic = line(&ended, "HOROVOD_ELASTIC");
    assert!(elastic.ends_with(" known, not used: the number of ranks is fixed"), "{elastic}");
    let ended = Ended::of(kolo(&["info"]).env("HOROVOD_CYLCE_TIME", "2.5"));
    let advice = "HOROVOD_CYLCE_TIME: not a variable of Horovod 0.28; did you mean \
                  HOROVOD_CYCLE_TIME?";
    assert!(ended.stdout.contains(advice), "{}", ended.stdout);
}

/// Of a variable that is no text, whether it is Horovod's or not.
#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_no_crash() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let broken = OsStr::from_bytes(b"5\xff");
    let ended = Ended::of(kolo(&["info"]).env("NOBODYS", broken));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    Ended::of(kolo(&["info"]).env("HOROVOD_CYCLE_TIME", broken))
        .says(2, "HOROVOD_CYCLE_TIME is \"5\u{fffd}\", expected a number from 0 to 10000 ms");
}
