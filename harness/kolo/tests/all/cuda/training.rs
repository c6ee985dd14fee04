//! Training jobs on a library that poses as NVIDIA's driver: sweeps and tuning.

use std::fs;
use std::path::{Path, PathBuf};

use results::row::{Status, StepRow, StepSetting};

use crate::cuda::driver::{folder, kolo};

/// A configuration beside a short list of gradients; returns its path.
fn config(folder: &Path, more: &[(&str, &str)]) -> PathBuf {
    let list = "index,name,shape,elements\n0,a,30x10,300\n1,b,7,7\n2,c,1000,1000\n3,d,1,1\n";
    fs::write(folder.join("list.csv"), list).unwrap();
    let mut text = r#"
workload = "list.csv"
step = { forward_ms = 0.5, backward_ms = 2, optimizer_ms = 0.2 }
[framework]
compression = "fp16"
backward_passes_per_step = 2
[sweep]
transport = ["cuda"]
topology = ["1x2", "2x2"]
control_plane = ["bitvector", "ddp"]
algorithm = ["ring", "grouped-scattered"]
fusion_threshold_mib = [0.001, 64]
cycle_time_ms = [0.5]
[measure]
steps_per_block = 3
blocks_max = 2
"#
    .to_string();
    for (from, to) in more {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = folder.join("sweep.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Runs a sweep; returns its status, what it said, and its rows.
fn sweep(
    posing: &str,
    more: &[(&str, &str)],
    words: &[&str],
) -> Option<(Option<i32>, String, Vec<StepRow>)> {
    let (library, place) = (folder()?, tempfile::tempdir().unwrap());
    let (path, out) = (config(place.path(), more), place.path().join("out"));
    let fixed = ["sweep", path.to_str().unwrap(), "--no-figures", "--out", out.to_str().unwrap()];
    let output = kolo(&library, posing, &[&fixed[..], words].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut said = text(&output.stdout) + &text(&output.stderr);
    if let Ok(provenance) = fs::read_to_string(out.join("provenance.json")) {
        said += &provenance;
    }
    for timeline in fs::read_dir(out.join("timelines")).into_iter().flatten().flatten() {
        let path = timeline.path();
        let reported = kolo(&library, posing, &["timeline", path.to_str().unwrap()]);
        assert!(reported.status.success(), "{}", text(&reported.stderr));
    }
    let rows = csv::Reader::from_path(out.join("rows.csv"));
    let rows = rows.map_or(Vec::new(), |mut file| {
        file.deserialize().filter_map(|row| StepRow::of(row.unwrap())).collect()
    });
    Some((output.status.code(), said, rows))
}

#[test]
fn sweeps_train_on_gpus_and_say_where() {
    let Some((status, said, rows)) = sweep("clock", &[], &["--timeline"]) else { return };
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(rows.len(), 16, "{said}");
    assert!(said.contains("GPU 1: a processor that poses"), "{said}");
    for row in rows {
        let (case, StepSetting { key, run, .. }) = (row.case(), &row.setting);
        let result = row.outcome.right().unwrap_or_else(|| panic!("{case}: {:?}", row.outcome));
        assert_eq!(result.effort.wrong, Some(0), "{case}");
        assert_eq!((run.transport.as_str(), key.size_bytes), ("cuda", 2 * 1308), "{case}");
        assert_eq!(run.emulated, key.nodes == 2, "{case}: two nodes are emulated");
        assert_eq!(run.oversubscribed, key.ranks == 4, "{case}: there are two GPUs");
        // Two passes and the optimizer, in kernels that keep the time.
        assert!(result.device_us_p50 >= Some(5200.0), "{case}: {:?}", result.device_us_p50);
        assert!(result.times.time_us_p50 >= 5000.0, "{case}: {:?}", result.times);
        assert!(result.data_us_p50 > 0.0 && result.packing_us_p50 > 0.0, "{case}");
        assert!(result.aggregation_us_p50 > Some(0.0), "{case}");
    }
}

#[test]
fn a_copy_that_loses_a_byte_is_a_wrong_row() {
    let few = [("\"2x2\"", "\"1x3\""), ("\"bitvector\", \"ddp\"", "\"bitvector\"")];
    let Some((status, said, rows)) = sweep("wrong", &few, &[]) else { return };
    assert_eq!(status, Some(1), "{said}");
    assert!(rows.iter().any(|row| row.outcome.status() == Status::Wrong), "{said}");
}

#[test]
fn cases_that_gpus_do_not_support_have_a_reason() {
    let big = [("3,d,1,1", "3,d,1,1\n4,e,300000000,300000000")];
    let with_threads = [("[\"cuda\"]", "[\"cuda\", \"threads\"]")];
    let Some((status, said, rows)) = sweep("none", &with_threads, &[]) else { return };
    assert_eq!((status, rows.len()), (Some(0), 16), "{said}");
    assert!(said.contains("16 cases are left out: the driver "), "{said}");
    assert!(said.contains(" finds no GPU; check nvidia-smi"), "{said}");
    let (status, said, rows) = sweep("none", &[], &[]).unwrap();
    assert_eq!((status, rows.len()), (Some(2), 0), "{said}");
    assert!(said.contains("finds no GPU"), "{said}");
    let (status, said, _) = sweep("broken", &[], &[]).unwrap();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("device: work on a stream failed: CUDA_ERROR_LAUNCH_FAILED"), "{said}");
    let place = tempfile::tempdir().unwrap();
    let path = config(place.path(), &[]);
    let list = fs::read_to_string(place.path().join("list.csv")).unwrap();
    let (from, to) = big[0];
    fs::write(place.path().join("list.csv"), list.replace(from, to)).unwrap();
    let output = kolo(
        &folder().unwrap(),
        "",
        &[
            "sweep",
            path.to_str().unwrap(),
            "--no-figures",
            "--out",
            place.path().join("out").to_str().unwrap(),
        ],
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "GPU 0 has 1000 MB free, and the gradients and fusion buffers of 1 ranks there take 3"
        ),
        "{said}"
    );
}

#[test]
fn settings_are_tuned_on_gpus() {
    let (Some(library), place) = (folder(), tempfile::tempdir().unwrap()) else { return };
    config(place.path(), &[]);
    let (list, out) = (place.path().join("list.csv"), place.path().join("out"));
    let output = kolo(
        &library,
        "clock",
        &[
            "tune",
            "--transport",
            "cuda",
            "--topology",
            "1x2",
            "--workload",
            list.to_str().unwrap(),
            "--backward-ms",
            "1",
            "--budget",
            "5s",
            "--out",
            out.to_str().unwrap(),
        ],
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    // Whether one setting can be told from another is the machine's affair; the status must say which.
    let is_unknown = said.contains("Nothing is recommended");
    assert_eq!(output.status.code(), Some(if is_unknown { 3 } else { 0 }), "{said}");
    assert!(said.contains(" of 72 settings in "), "{said}");
    let rows = fs::read_to_string(out.join("rows.csv")).unwrap();
    assert!(rows.contains("cuda/1x2/bitvector/ring/"), "{rows}");
}
