//! `kolo against`: what it refuses, and its order of blocks.

#[cfg(feature = "mpi")]
use std::{
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

#[cfg(feature = "mpi")]
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::build;
use crate::cli::sandbox::{Ended, kolo};

/// Embedded configurations are found in an empty folder.
fn against(program: &str, more: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let mut command = kolo(&[&["against", program], more].concat());
    Ended::of(command.current_dir(folder.path()))
}

fn against_horovod(more: &[&str]) -> Ended {
    against("horovod", more)
}

#[test]
fn the_order_of_blocks_is_shown_without_horovod() {
    let ended = against_horovod(&["horovod", "--dry-run"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((ended.status, lines.len()), (Some(0), 8 * 6 * 3));
    assert!(lines[0].starts_with("block 0: "), "{}", lines[0]);
    let own = lines.iter().filter(|line| line.ends_with("/128MiB/1ms"));
    assert_eq!(own.clone().filter(|line| line.contains(": control: ")).count(), 6);
    assert_eq!(own.count(), 18);
}

#[test]
fn what_horovod_cannot_run_is_refused() {
    let ended = against_horovod(&["quick"]);
    ended.says(2, "48 cases are left out: Horovod runs over MPI here");
    ended.says(2, "kolo: no case is left that Horovod can run");
    against_horovod(&["control-planes"])
        .says(2, "a sweep of control planes, which `kolo against horovod` does not take");
    against_horovod(&["horovod", "--launcher", "srun -n 2"])
        .says(2, "\"srun -n 2\" does not say how many ranks");
    against("autotune", &["control-planes"])
        .says(2, "a sweep of control planes, which `kolo against autotune` does not take");
    against("autotune", &["horovod-gloo"])
        .says(2, "sweep.algorithm is \"ring\", which Horovod runs over Gloo; expected \"mpi-allreduce\" only");
    for program in ["horovod", "autotune"] {
        let ended = against(program, &["horovod", "--python", "no-python"]);
        let words = if build::has_mpi() {
            "there is no Python; `make horovod`"
        } else {
            "built without MPI"
        };
        ended.says(2, words);
    }
}

/// The interpreter does not answer when it is asked what it has.
#[cfg(feature = "mpi")]
#[test]
fn a_signal_that_ends_a_comparison_leaves_no_folder() {
    // The default build refuses before it has a folder.
    if !build::has_mpi() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [python, begun, scratch] = ["python", "begun", "tmp"].map(|name| folder.path().join(name));
    std::fs::write(&python, "#!/bin/sh\ntouch begun\nexec sleep 60\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    let folders = || std::fs::read_dir(&scratch).unwrap().count();
    let mut command = kolo(&["against", "horovod", "horovod", "--python", "./python"]);
    command.current_dir(folder.path()).env("TMPDIR", &scratch).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        assert!(start.elapsed() < Duration::from_secs(60), "Python was not started");
        sleep(Duration::from_millis(10));
    }
    assert_eq!(folders(), 1);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(folders(), 0);
}

/// With the interpreter that `make horovod` installs.
#[cfg(feature = "mpi")]
#[test]
#[ignore = "needs real Horovod: make horovod test-horovod"]
fn real_horovod_runs_a_case_beside_the_engine() {
    let python = std::env::var("KOLO_HOROVOD_PYTHON").expect("make test-horovod sets it");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tiny.csv", "index,name,shape,elements\n0,a,30x2,60\n1,b,7,7\n2,c,1000,1000\n");
    write(
        "tiny.toml",
        "workload = \"tiny.csv\"\n[step]\nbackward_ms = 5\n[sweep]\ntransport = [\"mpi\"]\n\
         topology = [\"1x2\"]\ncontrol_plane = [\"bitvector\"]\nalgorithm = [\"mpi-allreduce\"]\n\
         fusion_threshold_mib = [1]\ncycle_time_ms = [1]\npacking_kib = 0\n\
         [measure]\nwarmup_steps = 2\nsteps_per_block = 100\nblocks_min = 4\nblocks_max = 4\n",
    );
    // A hypervisor may move the processors several times a second. In 100 steps some are at one distance. Of the four rounds one
    // is enough.
    let command = ["against", "horovod", "tiny.toml", "--out", "out", "--python", &python];
    let ended = Ended::of(kolo(&command).current_dir(folder.path()));
    ended.says(0, "[12/12] ");
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    let (blocks, times) = (read("blocks.csv"), read("host_times.json"));
    assert_eq!(blocks.lines().filter(|line| line.contains(",ok,")).count(), 12, "{blocks}");
    for key in ["hand_over_us", "loop_gradient_us"] {
        assert!(times.contains(key), "{times}");
    }
    assert!(read("summary.txt").contains("the one case\n"), "{}", ended.stdout);
}
