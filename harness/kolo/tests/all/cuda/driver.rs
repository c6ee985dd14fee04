//! `kolo` on a library that poses as NVIDIA's driver.

use results::row::CollectiveRow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::coverage::not_tested;
use crate::nccl::processor::compiled;

/// The folder of the library; none without a compiler.
pub fn folder() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/cuda/driver.cpp");
    static ONCE: std::sync::OnceLock<Option<PathBuf>> = std::sync::OnceLock::new();
    let compile = || compiled(&source, "libcuda.so.1")?.parent().map(PathBuf::from);
    ONCE.get_or_init(compile).clone()
}

/// Runs kolo with an injected fault, or none.
pub fn kolo(folder: &Path, posing: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
    command.args(arguments).env("LD_LIBRARY_PATH", folder).env("POSING", posing);
    command.env_remove("KOLO_CUDA_EMULATED").output().unwrap()
}

fn bench(folder: &Path, posing: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let small = ["-b", "1K", "-e", "4K", "-n", "2", "-w", "1"];
    let sizes = if more.contains(&"-b") { &[][..] } else { &small[..] };
    let output = kolo(folder, posing, &[&["bench", "--transport", "cuda"], sizes, more].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_algorithm_type_and_reduction_is_right_through_the_drivers_functions() {
    let Some(folder) = folder() else { return };
    for (posing, world) in [("", "2x2"), ("apart", "1x3")] {
        let more = ["--algorithm", "all", "-d", "all", "-o", "all", "--topology", world];
        let (status, stdout, stderr) = bench(&folder, posing, &more);
        assert_eq!(status, Some(0), "{stdout}{stderr}");
        assert!(stdout.contains("# CUDA 12.2, ") && stdout.contains("libcuda.so.1"), "{stdout}");
        assert!(stdout.contains("device  0 [node 0] GPU 0: a processor that poses"), "{stdout}");
        assert!(stdout.contains("# nThread 1 nGpus 2 "), "{stdout}");
        let judged = stdout.matches("# Out of bounds values : 0 OK").count();
        assert_eq!(judged, algorithms::registry::ALL.len(), "{stdout}");
        assert!(!stdout.contains("which transport cuda does not support yet"), "{stdout}");
    }
}

#[test]
fn collectives_are_captured_once_and_launched_as_graphs() {
    let Some(folder) = folder() else { return };
    let results = tempfile::tempdir().unwrap();
    let rows = results.path().join("rows.csv");
    let more =
        ["--graph", "--algorithm", "all", "-d", "f32,bf16", "-o", "all", "--topology", "2x2"];
    let out = ["--out", rows.to_str().unwrap()];
    let (status, stdout, stderr) = bench(&folder, "", &[&more[..], &out].concat());
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains(" graph: 1 "), "{stdout}");
    assert!(stdout.contains("captured once, and launched as one CUDA graph"), "{stdout}");
    assert!(stdout.contains("# Host: ") && stdout.contains("as one graph of "), "{stdout}");
    let judged = stdout.matches("# Out of bounds values : 0 OK").count();
    assert_eq!(judged, algorithms::registry::ALL.len(), "{stdout}");
    let mut reader = csv::Reader::from_path(&rows).unwrap();
    let all: Vec<CollectiveRow> =
        reader.deserialize().filter_map(|row| CollectiveRow::of(row.unwrap())).collect();
    for row in all.iter().filter(|row| row.outcome.reason().is_empty()) {
        let result = row.outcome.right().unwrap();
        let (case, enqueued) = (&row.key.case, result.enqueued.as_ref().unwrap());
        assert!(case.ends_with("/graph") && enqueued.enqueue_us_p50.is_some(), "{case}");
        // Events are no nodes.
        assert_eq!(enqueued.graph_nodes, Some(enqueued.enqueued), "{case}");
        assert_eq!(result.effort.wrong, Some(0), "{case}");
    }
    let (status, stdout, _) = bench(&folder, "wrong", &["--graph"]);
    assert_eq!(status, Some(1), "{stdout}");
    let threads = kolo(&folder, "", &["bench", "--graph"]);
    assert_eq!(threads.status.code(), Some(2));
    let said = String::from_utf8_lossy(&threads.stderr).into_owned();
    assert!(said.contains("--graph requires --transport cuda"), "{said}");
}

#[test]
fn a_driver_that_does_wrong_is_found_out() {
    let Some(folder) = folder() else { return };
    let (status, stdout, _) = bench(&folder, "wrong", &[]);
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains(" FAILED") && stdout.contains("# wrong: cuda/"), "{stdout}");
}

#[test]
fn errors_of_driver_and_gpu_are_reported() {
    let Some(folder) = folder() else { return };
    for (posing, expected, words) in [
        ("none", 2, "finds no GPU; check nvidia-smi, or use another transport"),
        (
            "old",
            2,
            "the driver supports CUDA 11.8, but the kernels need 12.0 or later; install a newer driver",
        ),
        (
            "volta",
            2,
            "GPU 0 (a processor that poses) has compute capability 7.0, and the kernels are for 8.0",
        ),
        (
            "broken",
            1,
            "work on a stream failed: CUDA_ERROR_LAUNCH_FAILED (said by a library that poses",
        ),
    ] {
        let (status, stdout, stderr) = bench(&folder, posing, &[]);
        assert_eq!(status, Some(expected), "{posing}: {stdout}{stderr}");
        assert!(stderr.contains(words), "{posing}: {stderr}");
    }
    let (status, _, stderr) = bench(&folder, "full", &["-e", "1M", "-b", "1M"]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("GPU 0 has 3 MB free, and 1 ranks of 1 MB there take "), "{stderr}");
}

#[test]
fn info_lists_driver_and_gpus() {
    let Some(folder) = folder() else { return };
    let info = |posing| String::from_utf8(kolo(&folder, posing, &["info"]).stdout).unwrap();
    let said = info("");
    assert!(said.contains("libcuda.so.1, for CUDA 12.2"), "{said}");
    assert!(
        said.contains("a processor that poses, 2 GB, 2 multiprocessors, compute capability 9.0"),
        "{said}"
    );
    assert!(info("volta").contains("and the kernels are for 8.0 or later"));
}

/// The times are made up here, the same for all: a microsecond each.
#[test]
fn kernels_are_compared_with_the_devices_copy() {
    let Some(folder) = folder() else { return };
    let list = folder.join("list.csv");
    std::fs::write(&list, "index,name,shape,elements\n0,a,300x10,3000\n1,b,7,7\n").unwrap();
    let rows = folder.join("kernels.csv");
    let _ = std::fs::remove_file(&rows);
    let more = ["--kernels", list.to_str().unwrap(), "--out", rows.to_str().unwrap()];
    let (status, stdout, stderr) = bench(&folder, "", &more);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let line =
        |name: &str| stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(stdout.contains("list: 2 gradients, 0.0 MB in f32"), "{stdout}");
    let columns: Vec<&str> = line("copy").split_whitespace().collect();
    assert_eq!(columns, ["copy", "0.024", "1.00", "24.1"]);
    // Half the bytes in the same time.
    assert!(line("fill").contains(" 0.50 ") && line("fill").ends_with("0.90  missed"), "{stdout}");
    assert!(line("unpack ").ends_with("0.90  reached"), "{stdout}");
    let written = std::fs::read_to_string(&rows).unwrap();
    let fill = written.lines().find(|line| line.contains(",fill,")).unwrap();
    assert!(fill.contains(",list,fill,3007,12032,") && fill.ends_with(",0.5,0.9"), "{fill}");
    let alone = written.lines().last().unwrap();
    assert!(alone.contains(",a launch alone,3007,0,") && alone.ends_with(",,,"), "{alone}");
    let (status, _, stderr) = bench(&folder, "", &more);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("exists; results are never overwritten"), "{stderr}");
    let (status, _, stderr) = bench(&folder, "", &["--kernels", "nowhere.csv"]);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("nowhere.csv"), "{stderr}");
}

/// A file that is no driver, under the driver's name.
#[test]
fn a_library_that_is_no_driver_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("empty.cpp");
    std::fs::write(&source, "").unwrap();
    let Some(library) = compiled(&source, "libcuda-empty.so") else { return };
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::copy(&library, folder.path().join(name)).unwrap();
    }
    let (status, _, stderr) = bench(folder.path(), "", &[]);
    assert_eq!(status, Some(2));
    assert!(
        stderr.contains("has no function cuInit: it is too old, or a different library"),
        "{stderr}"
    );
}

/// Without a driver, as here.
#[test]
fn without_a_driver_the_searched_names_are_reported() {
    if gpu::cuda::library::DRIVER.open().is_ok() {
        return not_tested("messages without a CUDA driver", "this machine has one");
    }
    let (status, _, stderr) = bench(Path::new("/nowhere"), "", &[]);
    assert_eq!(status, Some(2));
    let words = "the CUDA driver was not found: looked for libcuda.so and libcuda.so.1 in /nowhere (LD_LIBRARY_PATH)";
    assert!(stderr.contains(words), "{stderr}");
    let info = kolo(Path::new("/nowhere"), "", &["info"]);
    let said = String::from_utf8(info.stdout).unwrap();
    assert!(info.status.success() && said.contains("not available: the CUDA driver"), "{said}");
    assert!(
        said.contains("not available: NCCL was not found: looked for libnccl.so.2 and libnccl.so"),
        "{said}"
    );
}

#[test]
fn emulated_results_are_marked_and_have_no_times() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.csv");
    let output = Command::new(env!("CARGO_BIN_EXE_kolo"))
        .args(["bench", "--transport", "cuda", "--algorithm", "ring,grouped", "--ranks", "3"])
        .args(["-b", "100", "-e", "1000", "-n", "2", "-o", "avg", "-d", "bf16", "--out"])
        .arg(&rows)
        .env("KOLO_CUDA_EMULATED", "7")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("# emulated: no GPU is used, and nothing is timed"), "{said}");
    assert!(said.contains("N/A"), "{said}");
    let mut reader = csv::Reader::from_path(&rows).unwrap();
    let all: Vec<CollectiveRow> =
        reader.deserialize().filter_map(|row| CollectiveRow::of(row.unwrap())).collect();
    assert_eq!(all.len(), 2 * 2 * 2);
    for row in all {
        let result = row.outcome.right().unwrap();
        assert_eq!((row.run.transport.as_str(), row.run.emulated), ("cuda", true));
        assert_eq!((&result.times, &result.bandwidths, result.device_us_p50), (&None, &None, None));
        assert_eq!((result.effort.samples, result.effort.wrong), (0, Some(0)));
    }
}

/// Without a GPU the suite reports that nothing was run.
#[cfg(unix)]
#[test]
fn the_suite_ends_with_a_clear_word_without_a_gpu() {
    if gpu::cuda::library::DRIVER.open().is_ok() {
        return not_tested("the GPU suite without a GPU", "this machine has a CUDA driver");
    }
    let folder = tempfile::tempdir().unwrap();
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/suite.sh");
    let run = |out: &Path| {
        let mut command = Command::new("sh");
        command.arg(&suite).arg(env!("CARGO_BIN_EXE_kolo")).arg(out).output().unwrap()
    };
    let output = run(&folder.path().join("out"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.starts_with("NO GPU: nothing was run."), "{said}");
    assert!(said.contains("the CUDA driver was not found: looked for"), "{said}");
    assert!(!folder.path().join("out").exists());
    assert_eq!(run(folder.path()).status.code(), Some(2), "a folder that exists");
}
