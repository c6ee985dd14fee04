//! `kolo against`: what it refuses, and its order of blocks.

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
    for program in ["horovod", "autotune"] {
        let ended = against(program, &["horovod", "--python", "no-python"]);
        let words = if cfg!(feature = "mpi") {
            "there is no Python; `make horovod`"
        } else {
            "built without MPI"
        };
        ended.says(2, words);
    }
}
