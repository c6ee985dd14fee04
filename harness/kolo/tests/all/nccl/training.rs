//! Sweeps over NCCL: processes that negotiate over MPI and train on GPUs, on libraries that pose as NVIDIA's.

use std::fs;
use std::path::Path;
use std::process::Command;

use results::row::{Status, StepRow, StepSetting};
use transports::mpi::library;

use crate::nccl::preflight::{APART, UNLIKE};
use crate::nccl::world::{Ended, World};

const LIST: &str = "index,name,shape,elements\n0,a,30x10,300\n1,b,7,7\n2,c,1000,1000\n3,d,1,1\n";

const CONFIG: &str = r#"
workload = "list.csv"
step = { forward_ms = 0.2, backward_ms = 1, optimizer_ms = 0.1 }
[framework]
compression = "fp16"
backward_passes_per_step = 2
[sweep]
transport = ["nccl"]
topology = ["1x2", "2x1"]
control_plane = ["coordinator", "bitvector"]
algorithm = ["ring", "halving-doubling", "grouped", "nccl-allreduce", "nccl-allreduce:Ring:LL", "nccl-hierarchical"]
fusion_threshold_mib = [0.001, 64]
cycle_time_ms = [0.5]
[measure]
steps_per_block = 3
blocks_max = 2
timeout_seconds = 5
"#;

/// kolo as several processes.
fn mpirun(ranks: usize) -> Command {
    let names = ["mpirun.openmpi", "mpirun"];
    let is_there = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    let mut command = Command::new(names.iter().find(is_there).expect("a launcher"));
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.arg(env!("CARGO_BIN_EXE_kolo"));
    command
}

/// A sweep by several processes.
fn sweep(world: &World, ranks: usize, config: &str) -> Ended {
    // Two processes of this machine are not two nodes, nor have they a core each everywhere.
    sweep_with(world, ranks, config, &["--force"])
}

fn sweep_with(world: &World, ranks: usize, config: &str, more: &[&str]) -> Ended {
    fs::write(world.folder("list.csv"), LIST).unwrap();
    fs::write(world.folder("sweep.toml"), config).unwrap();
    let mut command = mpirun(ranks);
    command.arg("sweep").arg(world.folder("sweep.toml"));
    command.args(["--no-figures", "--out"]).arg(world.folder("out")).args(more);
    world.ended(command)
}

fn rows(folder: &Path) -> Vec<StepRow> {
    let file = csv::Reader::from_path(folder.join("out/rows.csv"));
    file.map_or(Vec::new(), |mut file| {
        file.deserialize().filter_map(|row| StepRow::of(row.unwrap())).collect()
    })
}

/// A world, if there is a compiler; the launcher's options are Open MPI's.
fn world() -> Option<World> {
    library().starts_with("Open MPI").then(World::new)?.map(|world| world.with("POSING", "clock"))
}

#[test]
fn sweeps_train_over_nccl_and_say_where() {
    let Some(world) = world() else { return };
    let ended = sweep(&world, 2, CONFIG);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let rows = rows(&world.folder(""));
    assert_eq!(rows.len(), 2 * 2 * 6 * 2, "{ended:?}");
    for row in rows {
        let (case, StepSetting { key, run, .. }) = (row.case(), &row.setting);
        let result = row.outcome.right().unwrap_or_else(|| panic!("{case}: {:?}", row.outcome));
        assert_eq!(result.effort.wrong, Some(0), "{case}");
        assert_eq!((run.transport.as_str(), key.size_bytes), ("nccl", 2 * 1308), "{case}");
        assert_eq!((run.emulated, run.oversubscribed), (key.nodes == 2, false), "{case}");
        assert!(result.device_us_p50 >= Some(2500.0), "{case}: {:?}", result.device_us_p50);
        assert!(result.data_us_p50 > 0.0 && result.aggregation_us_p50 > Some(0.0), "{case}");
    }
    let provenance = fs::read_to_string(world.folder("out/provenance.json")).unwrap();
    for words in [
        "NCCL 2.27.6, ",
        "CUDA 12.2, ",
        "process 1: GPU 1 (0000:02:00.0): a processor that poses on ",
    ] {
        assert!(provenance.contains(words), "{provenance}");
    }
    // Each way that NCCL is held to has a communicator of its own, made once for a whole sweep of both worlds.
    let joined = fs::read_to_string(world.folder("joined-0")).unwrap();
    assert_eq!(joined.lines().filter(|line| *line == "-Ring-LL").count(), 2, "{joined}");
    let blocking = fs::read_to_string(world.folder("blocking-0")).unwrap();
    assert!(blocking.lines().all(|line| line == "1"), "as in Horovod: {blocking}");
}

#[test]
fn communicators_do_not_block_if_users_say_so() {
    let Some(world) = world() else { return };
    let world = world.with("NCCL_COMM_BLOCKING", "0");
    let ended = sweep(&world, 2, CONFIG);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let blocking = fs::read_to_string(world.folder("blocking-0")).unwrap();
    assert!(blocking.lines().all(|line| line == "0"), "{blocking}");
}

/// Then rank 0 has two drivers: one for all GPUs, and one for its own.
#[test]
fn cases_over_nccl_and_on_this_machines_gpus_go_together() {
    let Some(world) = world() else { return };
    let both = CONFIG
        .replace("[\"nccl\"]", "[\"nccl\", \"cuda\"]")
        .replace(", \"2x1\"", "")
        .replace(", \"nccl-allreduce\", \"nccl-allreduce:Ring:LL\", \"nccl-hierarchical\"", "");
    let ended = sweep(&world, 2, &both);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let rows = rows(&world.folder(""));
    assert_eq!(rows.len(), 2 * 12);
    assert!(rows.iter().all(|row| row.outcome.status() == Status::Ok), "{ended:?}");
}

#[test]
fn cases_too_large_for_a_gpu_are_unsupported_with_the_sizes() {
    let Some(world) = world() else { return };
    fs::write(world.folder("large.csv"), LIST.replace("3,d,1,1", "3,d,300000000,300000000"))
        .unwrap();
    let ended = sweep(&world, 2, &CONFIG.replace("list.csv", "large.csv"));
    assert_eq!(ended.status, Some(3), "{ended:?}");
    let words = "has 1000 MB free, and the gradients and fusion buffers of 1 ranks there take 3";
    assert!(
        rows(&world.folder("")).iter().all(|row| row.outcome.reason().contains(words)),
        "{ended:?}"
    );
}

#[test]
fn settings_are_tuned_over_nccl() {
    let Some(world) = world() else { return };
    fs::write(world.folder("list.csv"), LIST).unwrap();
    let (list, out) = (world.folder("list.csv"), world.folder("out"));
    let words = ["tune", "--transport", "nccl", "--backward-ms", "1", "--budget", "4s"];
    let mut command = mpirun(2);
    command.args(words).arg("--workload").arg(list).arg("--out").arg(&out);
    let ended = world.ended(command);
    let json = fs::read_to_string(out.join("tune.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // On a busy machine the budget may not suffice for a verdict.
    let expected = if json["verdict"] == "unknown" { 3 } else { 0 };
    assert_eq!(ended.status, Some(expected), "{ended:?}");
    let rows = fs::read_to_string(out.join("rows.csv")).unwrap();
    assert!(rows.contains("nccl/1x2/bitvector/nccl-allreduce/"), "{rows}");
}

#[test]
fn wrong_results_of_nccl_in_training_are_detected() {
    let Some(world) = world() else { return };
    let one = CONFIG.replace(", \"2x1\"", "").replace("0.001, ", "");
    let world = world.with("POSING_NCCL", "lost=1");
    let ended = sweep(&world, 2, &one);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        rows(&world.folder("")).iter().any(|row| row.outcome.status() == Status::Wrong),
        "{ended:?}"
    );
    for (wrong, expected) in [
        ("error=1", "kolo: rank 1 gave up: NCCL: rank 1: "),
        ("kill=1", "process 1 is gone; the job ends; earlier results are saved"),
    ] {
        let Some(world) = self::world() else { return };
        let world = world.with("POSING_NCCL", wrong);
        let ended = sweep(&world, 2, &one);
        assert!(ended.status.is_some_and(|status| status > 0), "{wrong}: {ended:?}");
        assert!(ended.complained.contains(expected), "{wrong}: {ended:?}");
    }
}

/// As benches do, in the same words.
#[test]
fn doubtful_gpus_are_refused_unless_the_user_insists() {
    let Some(world) = world() else { return };
    let world = world.with("POSING", "clock,unlike,apart");
    let one = CONFIG.replace(", \"2x1\"", "").replace("0.001, ", "");
    let ended = sweep_with(&world, 2, &one, &[]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    for words in [UNLIKE, APART, "; add --force to measure nevertheless"] {
        assert_eq!(ended.complained.matches(words).count(), 1, "{words}: {ended:?}");
    }
    let ended = sweep(&world, 2, &one);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let provenance = fs::read_to_string(world.folder("out/provenance.json")).unwrap();
    assert!(provenance.contains(UNLIKE) && provenance.contains(APART), "{provenance}");
}

#[test]
fn without_gpus_or_nccl_the_reason_is_printed_once() {
    for (variable, value, expected) in [
        ("POSING_GPUS", "1", "), but NCCL 2.27.6 needs one for each: start fewer there"),
        ("POSING_NCCL", "old", " is needed; name another with KOLO_NCCL_LIB"),
        ("POSING", "none", "process 0 on "),
    ] {
        let Some(world) = world() else { return };
        let ended = sweep(&world.with(variable, value), 2, CONFIG);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert_eq!(ended.complained.matches(expected).count(), 1, "{ended:?}");
    }
    // Other cases continue.
    let Some(world) = world() else { return };
    let both = CONFIG
        .replace("[\"nccl\"]", "[\"nccl\", \"mpi\"]")
        .replace(", \"2x1\"", "")
        .replace(", \"nccl-allreduce\", \"nccl-allreduce:Ring:LL\", \"nccl-hierarchical\"", "");
    let ended = sweep(&world.without_nccl(), 2, &both);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.complained.contains("12 cases are left out: process 0 on "), "{ended:?}");
    assert!(ended.complained.contains("NCCL was not found: looked for libnccl.so.2"), "{ended:?}");
}
