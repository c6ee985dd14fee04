//! `kolo bench --transport nccl` on libraries that pose as NVIDIA's: several processes on this machine, each with
//! a GPU that is none.

mod faults;
mod preflight;
#[path = "../../../gpu/tests/all/cuda/processor.rs"]
#[allow(dead_code, reason = "the kernels themselves are tested beside the driver")]
pub mod processor;
#[cfg(feature = "mpi")]
mod training;
mod world;

use algorithms::registry::ALL;
use results::row::CollectiveRow;

use self::world::World;

/// Every algorithm that works on a fusion buffer, and NCCL's own.
fn every_algorithm() -> String {
    let ours = ALL.iter().map(|entry| entry.name);
    ours.chain(["nccl-allreduce", "nccl-hierarchical"]).collect::<Vec<_>>().join(",")
}

#[test]
fn every_algorithm_type_and_reduction_is_right_in_worlds_of_one_to_four() {
    let Some(world) = World::new() else { return };
    let algorithms = every_algorithm();
    for (topology, ranks, types, ops) in [
        ("1", 1, "f32", "all"),
        ("1x2", 2, "all", "sum"),
        ("2+1", 3, "f16,i64", "all"),
        ("2x2", 4, "all", "all"),
    ] {
        let more = ["--topology", topology, "-d", types, "-o", ops, "--algorithm", &algorithms];
        let sizes = ["-b", "8", "-e", "1000", "-f", "125", "-n", "1", "-w", "0"];
        let ended = world.bench(ranks, &[&more[..], &sizes].concat());
        let said = &ended[0].said;
        assert!(ended.iter().all(|ended| ended.status == Some(0)), "{topology}: {ended:?}");
        let judged = said.matches("# Out of bounds values : 0 OK").count();
        assert_eq!(judged, ALL.len() + 2, "{topology}: {said}");
        assert!(said.contains("# NCCL 2.27.6, ") && said.contains("libnccl.so.2"), "{said}");
        assert!(said.contains(&format!("# nThread 1 nGpus {ranks} ")), "{said}");
        assert!(said.contains("device  0 [node 0] GPU 0 (0000:01:00.0): a processor"), "{said}");
        assert!(said.contains("which transport nccl does not support yet"), "{said}");
        assert_eq!(said.contains("# emulated: 2 nodes on one machine"), ranks > 2, "{said}");
        assert!(ended[1..].iter().all(|ended| ended.said.is_empty()), "only rank 0 prints");
    }
}

#[test]
fn rows_have_the_gpus_of_the_run() {
    let Some(world) = World::new() else { return };
    let out = world.folder("rows.csv");
    let out = out.to_str().unwrap();
    let ended = world.bench(
        2,
        &["--algorithm", "ring,nccl-allreduce", "-b", "1K", "-e", "1K", "-n", "3", "--out", out],
    );
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    let mut reader = csv::Reader::from_path(out).unwrap();
    let rows: Vec<CollectiveRow> =
        reader.deserialize().filter_map(|row| CollectiveRow::of(row.unwrap())).collect();
    assert_eq!(rows.len(), 2 * 2);
    for row in &rows {
        let (run, result) = (&row.run, row.outcome.right().unwrap());
        assert_eq!((&*run.transport, row.key.ranks, row.segment_bytes), ("nccl", 2, 0));
        let effort = &result.effort;
        assert_eq!((effort.wrong, effort.samples, effort.blocks), (Some(0), 3, 3));
        assert!(result.times.is_some() && result.device_us_p50.is_some());
        assert!(!run.emulated && !run.oversubscribed);
    }
    let provenance = std::fs::read_to_string(world.folder("rows.provenance.json")).unwrap();
    for words in
        ["NCCL 2.27.6, ", "CUDA 12.2, ", "GPU 1 (0000:02:00.0): a processor that poses on "]
    {
        assert!(provenance.contains(words), "{provenance}");
    }
}

#[test]
fn nccl_variables_are_set_while_a_communicator_is_created() {
    let Some(world) = World::new() else { return };
    let sizes = ["-b", "1K", "-e", "1K", "-n", "1"];
    let tuned = ["--nccl-algo", "ring,Tree", "--nccl-proto", "LL,Simple"];
    let ended = world.bench(2, &[&tuned[..], &sizes].concat());
    let said = &ended[0].said;
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    for name in ["ring", "nccl-allreduce:Ring:LL", "nccl-allreduce:Tree:Simple"] {
        assert!(said.contains(&format!("all_reduce, algorithm {name}\n")), "{said}");
    }
    let joined = std::fs::read_to_string(world.folder("joined-0")).unwrap();
    for (held, times) in [("", 2), ("-Ring-LL", 2), ("-Ring-Simple", 2), ("-Tree-LL", 2)] {
        assert_eq!(joined.lines().filter(|line| *line == held).count(), times, "{held}: {joined}");
    }
}

#[test]
fn ranks_share_gpus_only_if_nccl_supports_it_and_it_is_enabled() {
    let Some(world) = World::new() else { return };
    let sizes = ["-b", "1K", "-e", "1K", "-n", "1"];
    let world = world.with("POSING_GPUS", "1");
    let ended = world.bench(2, &sizes);
    let refused = " see 1 GPU(s) (GPU-10111213-1415-1617-1819-1a1b1c1d1e1f), but NCCL 2.27.6 needs one for each: \
                   start fewer there, look at CUDA_VISIBLE_DEVICES, or ask Slurm for more with \
                   --gpus-per-node=2; NCCL 2.30.0 or later lets ranks share GPUs";
    assert!(ended.iter().all(|ended| ended.status == Some(2)), "{ended:?}");
    assert!(ended[1].complained.contains(refused), "{ended:?}");
    let world = world.with("NCCL_MULTI_RANK_GPU_ENABLE", "1").with("POSING_NCCL", "shares");
    let ended = world.bench(2, &sizes);
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    assert!(ended[0].said.contains("# oversubscribed: 2 ranks, on nodes with fewer GPUs"));
    assert!(ended[0].said.contains("# NCCL 2.30.3, "), "{ended:?}");
}

/// Where calls are under way for a while, as they are on GPUs.
#[test]
fn slow_operations_do_not_time_out() {
    let Some(world) = World::new() else { return };
    let sizes = ["-b", "1K", "-e", "1K", "-n", "1", "-w", "0"];
    let ended = world.with("POSING_NCCL", "slow").bench(3, &sizes);
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    assert!(ended[0].said.contains("# Out of bounds values : 0 OK"));
}

/// Else processes hand it over by a file, as in all other tests.
#[test]
fn the_environment_can_hold_the_jobs_secret() {
    let (Some(world), Some(malformed)) = (World::new(), World::new()) else { return };
    let sizes = ["-b", "1K", "-e", "1K", "-n", "1"];
    let secret = "0123456789abcdef".repeat(4);
    let world = world.with("KOLO_JOB_SECRET", &secret).with("KOLO_SECRET_DIR", "/nonexistent");
    let out = world.folder("rows.csv");
    let ended = world.bench(2, &[&sizes[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!(ended[0].status, Some(0), "{ended:?}");
    let provenance = std::fs::read_to_string(world.folder("rows.provenance.json")).unwrap();
    assert!(provenance.contains("KOLO_SECRET_DIR") && !provenance.contains(&secret));
    let ended = malformed.with("KOLO_JOB_SECRET", &secret[1..]).bench(2, &sizes);
    for ended in ended {
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let words = "KOLO_JOB_SECRET has 63 characters, and must be 64 hexadecimal digits";
        assert!(ended.complained.contains(words), "{ended:?}");
        assert!(!ended.complained.contains(&secret[1..]), "{ended:?}");
    }
}

#[test]
fn without_a_directory_for_the_secret_the_error_names_the_variable() {
    let Some(world) = World::new() else { return };
    let world = world.with("KOLO_SECRET_DIR", "/nonexistent");
    let ended = world.some_of(2, &[0], None, &["--timeout", "5"]);
    let words = "cannot create the file with the job's secret: No such file or directory (os error 2); name a \
                 directory that all nodes of the job share with KOLO_SECRET_DIR";
    assert!(ended[0].complained.contains(words), "{ended:?}");
}

#[test]
fn alone_it_needs_no_launcher() {
    let Some(world) = World::new() else { return };
    let ended = world.alone(&["-b", "1K", "-e", "1K", "-n", "1", "-o", "avg"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.said.contains("# Out of bounds values : 0 OK"), "{ended:?}");
}

/// As the GPU suite starts them.
#[cfg(unix)]
#[test]
fn a_script_can_be_the_launcher() {
    let Some(world) = World::new() else { return };
    let ended = world.launched(3, &["-b", "1K", "-e", "1K", "-n", "1", "--algorithm", "tree"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.said.contains("# nThread 1 nGpus 3 "), "{ended:?}");
    let ended = world.with("POSING_NCCL", "kill=2").launched(3, &["-b", "1K", "-e", "1K"]);
    assert!(ended.status.is_some_and(|status| status > 1), "{ended:?}");
}

/// The suite, with a script in place of kolo that says which NCCL there is.
#[cfg(unix)]
#[test]
fn the_suite_runs_nccl_where_there_is_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let kolo = folder.path().join("kolo");
    let run = |nccl: &str| {
        let info = format!(
            "  GPU 0                a GPU, 80 GB, compute capability 9.0\n  \
             GPU 1                a GPU, 80 GB, compute capability 9.0\n  NCCL                 {nccl}"
        );
        let bench = "# Out of bounds values : 0 OK";
        let faults = "[ -n \"${CUDA_VISIBLE_DEVICES-0}\" ] || \
             { echo 'kolo: it finds no GPU among CUDA_VISIBLE_DEVICES='; exit 2; }\n\
             case \"$*\" in *'-e 10000M'*) echo 'kolo: 8 ranks take 160000 MB; choose a smaller -e, or fewer ranks'; \
             exit 1 ;; esac\n";
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = info ] && echo '{info}' && exit\n{faults}[ \"${{SLURM_PROCID:-0}}\" = 0 ] && \
             echo '{bench}'\nbefore=\nfor word do\ncase $before$word in --out*.csv) printf \
             'algorithm,size_bytes\\nring,4\\n' > \"$word\" ;; esac\nbefore=$word\ndone\nexit 0\n"
        );
        std::fs::write(&kolo, script).unwrap();
        std::fs::set_permissions(&kolo, std::fs::Permissions::from_mode(0o755)).unwrap();
        let out = tempfile::tempdir().unwrap();
        let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/suite.sh");
        let mut command = std::process::Command::new("sh");
        command.arg(suite).arg(&kolo).arg(out.path().join("out"));
        let output = command.env_remove("KOLO_CUDA_EMULATED").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, said) = run("not available: NCCL was not found: looked for it");
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("nccl                     NOT RUN: NCCL was not found: looked for it"),
        "{said}"
    );
    assert!(!said.contains("nccl-correct"), "{said}");
    let (status, said) = run("/usr/lib/libnccl.so.2, 2.29.7");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("nccl-correct-2           status   0  #wrong      0"), "{said}");
    assert!(said.contains("nccl-shared              NOT RUN: NCCL 2.29.7 does not let"), "{said}");
    let (_, said) = run("/usr/lib/libnccl.so.2, 2.30.3");
    assert!(said.contains("nccl-shared-8            status   0  #wrong      0"), "{said}");
}
