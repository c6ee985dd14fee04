//! `--json`, and `kolo schema`, which describes it.

use std::path::Path;

use serde_json::Value;

use crate::cli::sandbox::{Ended, kolo};

fn printed(words: &[&str]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ended = Ended::of(kolo(words).current_dir(root));
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|why| panic!("{words:?}: {why}: {}", ended.stderr))
}

/// Outputs of each command with `--json` satisfy the schema, and the schema refuses others.
#[test]
fn outputs_are_what_their_schemas_say() {
    let quick = "results/reference/quick";
    let four = "results/reference/tune/four-nodes";
    let busy = "results/reference/tune/four-nodes-busy";
    let folder = tempfile::tempdir().unwrap();
    let [limit, few, figures, page] = ["limit", "few", "figures", "page.html"]
        .map(|name| folder.path().join(name).display().to_string());
    let bench = "results/reference/bench/2-ranks.csv";
    let model =
        ["predict", "--workload", "alexnet", "--backward-ms", "50", "--machine", "dgx-a100"];
    let limit = [&model[..], &["--up-to", "8", "--no-figures", "--json", "--out", &limit]].concat();
    let scaling = "results/reference/scaling/";
    let (measured, machine) =
        (scaling.to_string() + "measured", scaling.to_string() + "machine.toml");
    let few = [
        "predict",
        &measured,
        "--machine",
        &machine,
        "--up-to",
        "8",
        "--no-figures",
        "--json",
        "--out",
        &few,
    ];
    for (name, words) in [
        ("compare", &["compare", quick, quick, "--json"][..]),
        ("compare", &["compare", four, four, busy, "--json"]),
        ("bench", &["bench", "--ranks", "2", "--sizes", "1K:4K:x4", "-n", "3", "--json"]),
        ("plot", &["plot", bench, "--paper", "--out", &figures, "--json"]),
        ("report", &["report", quick, bench, "--out", &page, "--json"]),
        ("info", &["info", "--json"]),
        ("validate", &["validate", "--json"]),
        (
            "verify",
            &["verify", "--algorithm", "ring,halving-doubling", "--ranks", "1..6", "--json"],
        ),
        ("verify", &["verify", "--control-planes", "20", "--json"]),
        ("schedule", &["schedule", "--algorithm", "tree", "--nodes", "2x3", "--json"]),
        ("predict", &limit),
        ("predict", &few),
        ("site-check", &["site", "check", "generic", "--json"]),
        ("site-list", &["site", "list", "--json"]),
        ("sweep-dry-run", &["sweep", "configs/quick.toml", "--dry-run", "--json"]),
        ("sweep-dry-run", &["sweep", "configs/control-planes.toml", "--dry-run", "--json"]),
        ("sweep-dry-run", &["sweep", "configs/summit-scaling.toml", "--dry-run", "--json"]),
        (
            "sweep-dry-run",
            &[
                "sweep",
                "--slurm",
                "configs/cluster.toml",
                "--site",
                "virtual",
                "--dry-run",
                "--json",
            ],
        ),
        (
            "calibrate",
            &["calibrate", "--logs", "harness/results/tests/data/logs/ring-simple.log", "--json"],
        ),
    ] {
        is_as_described(name, &printed(words));
    }
}

/// An output of a command satisfies its schema, which is strict enough to notice a field that is missing, or of another
/// type.
#[track_caller]
pub fn is_as_described(name: &str, output: &Value) {
    let schema = printed(&["schema", name]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(output).map(|why| why.to_string()).collect();
    assert_eq!(errors, [""; 0], "{name}: {output}");
    assert!(output["schema"].as_u64() >= Some(1), "{name}");
    let fields = output.as_object().unwrap();
    for field in fields.keys() {
        let described = &schema["properties"][field];
        let is_described = described["description"].is_string() || described["$ref"].is_string();
        assert!(is_described, "{name}: {field}");
        let mut wrong = output.clone();
        wrong[field] = Value::from(vec![Value::Null]);
        assert!(!validator.is_valid(&wrong), "{name}: {field} may be a list of nothing");
    }
    let mut less = output.clone();
    less.as_object_mut().unwrap().remove("schema");
    assert!(!validator.is_valid(&less), "{name}");
}

/// `--format`: JSON as `--json`, and the table of the result for pages and spreadsheets.
#[test]
fn results_are_printed_as_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let printed = |words: &[&str], format: &str| -> String {
        let words = [words, &["--format", format]].concat();
        let ended = Ended::of(kolo(&words).current_dir(&root));
        assert_eq!(ended.status, Some(0), "{words:?}: {}", ended.stderr);
        ended.stdout
    };
    let verify = ["verify", "--algorithm", "ring,tree", "--ranks", "1..3"];
    let csv = printed(&verify, "csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "algorithm,topologies,transfers,unsupported,failures,seconds");
    assert!(lines[1].starts_with("ring,5,") && lines[2].starts_with("tree,5,"), "{csv}");
    assert_eq!(lines.len(), 3);
    let page = printed(&verify, "markdown");
    assert!(page.starts_with("| algorithm | topologies | transfers |"), "{page}");
    assert_eq!(page.lines().nth(1), Some("|---|---|---|---|---|---|"));
    let json: Value = serde_json::from_str(&printed(&verify, "json")).unwrap();
    assert_eq!(json["schedules"][1]["algorithm"], "tree");
    for (words, header) in [
        (&["info"][..], "name,value,unit,about,is_set,not_used"),
        (&["schedule", "--algorithm", "ring", "--ranks", "2"], "list,from,to,chunk,chunks,reduces"),
        (&["validate"], "point,series,group,"),
        (&["timeline", "harness/training/tests/all/golden/timeline.json"], "name,"),
    ] {
        let csv = printed(words, "csv");
        assert!(csv.starts_with(header) && csv.lines().count() > 1, "{words:?}: {csv}");
    }
    Ended::of(&mut kolo(&["info", "--json", "--format", "csv"]))
        .says(2, "the argument '--json' cannot be used with '--format <FORMAT>'");
}

#[test]
fn what_is_printed_for_programs_is_what_is_printed_for_people() {
    let verified = printed(&["verify", "--algorithm", "ring", "--ranks", "1..4", "--json"]);
    let ring = &verified["schedules"][0];
    assert_eq!((&ring["topologies"], &ring["transfers"]), (&8.into(), &104.into()));
    assert_eq!(verified["right"], true);
    let info = printed(&["info", "--json"]);
    let names: Vec<&str> = info["algorithms"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, algorithms::registry::ALL.iter().map(|entry| entry.name).collect::<Vec<_>>());
    // Remarks and tables are elsewhere, so that what is printed can be read.
    let bench = ["bench", "--ranks", "2", "--algorithm", "ring,tree", "-b", "1K", "-e", "1K"];
    let rows = printed(&[&bench[..], &["-n", "3", "-w", "1", "--json"]].concat());
    let cases: Vec<&str> =
        rows["rows"].as_array().unwrap().iter().filter_map(|row| row["case"].as_str()).collect();
    let case = |name: &str, place| format!("threads/2x1/{name}/f32/sum/1024B/{place}");
    let expected =
        ["ring", "tree"].map(|name| ["out-of-place", "in-place"].map(|it| case(name, it)));
    assert_eq!(cases, expected.concat());
    assert_eq!(
        (&rows["rows"][0]["kind"], &rows["rows"][0]["wrong"]),
        (&"allreduce".into(), &0.into())
    );
    for option in ["--format=osu", "--out-prefix=t", "-J=a.json"] {
        Ended::of(&mut kolo(&["bench", "--json", option]))
            .says(2, "the argument '--json' cannot be used with");
    }
    Ended::of(&mut kolo(&["plot", "results", "--json", "--verbose"]))
        .says(2, "the argument '--json' cannot be used with '--verbose'");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let quick = "results/reference/quick";
    let report = printed(&["report", quick, "--out", &page, "--json"]);
    assert_eq!(
        (&report["file"], &report["runs"][0]["run"]),
        (&page.as_str().into(), &quick.into())
    );
    let size_bytes = std::fs::metadata(&page).unwrap().len();
    assert_eq!(report["size_bytes"], size_bytes);
    let verdict = report["runs"][0]["verdicts"][0].as_str().unwrap();
    assert!(verdict.starts_with("resnet50 on 4 ranks"), "{verdict}");
    let warnings = report["runs"][0]["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|it| it.as_str().unwrap().starts_with("Emulated: ")));
    let points = printed(&["validate", "--json"]);
    assert!(points["points"].as_array().unwrap().len() > 20);
    Ended::of(&mut kolo(&["schema", "nowhere"]))
        .says(2, "possible values: against-autotune, against-horovod, bench, calibrate, compare, info, plot, predict, report, reproduce, rows, schedule, site-check, site-list, sweep, sweep-dry-run, ");
}
