//! Starts worlds, each with a time limit, and reads their output.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio, exit};
use std::time::{Duration, Instant};

use transports::mpi::library;

use crate::{ALL, LARGE, SILENT, WRONG};

const LIMIT: Duration = Duration::from_secs(300);

/// Every world, or the one with a large message alone. Ends the process with failure if one fails.
pub fn worlds(large: bool, seed: u64) {
    let library = library();
    println!("{library}, seed {seed} (KOLO_SEED)");
    let worlds: &[usize] = match (large, library.starts_with("Open MPI")) {
        (true, _) => &[2],
        (_, true) => &[2, 3, 4, 7],
        // Others spin while they wait, and are of no use with more ranks than cores.
        (_, false) => &[2],
    };
    let mut failed = 0;
    for &ranks in worlds {
        let (status, said) = start(&library, ranks, if large { LARGE } else { ALL }, seed);
        print!("{said}");
        if !status.success() {
            println!("FAILED with {ranks} ranks: {status}");
            failed += 1;
        }
    }
    if !large {
        for (scenario, expected) in [
            (SILENT, ["for rank 1, which does not answer", "rank 0 of 2, in ring, 1009 elements"]),
            (WRONG, ["rank 1 of 2, in ring, 1009 elements", "rank 1, element 77: got "]),
        ] {
            let (status, said) = start(&library, 2, scenario, seed);
            if status.success() || !expected.iter().all(|part| said.contains(part)) {
                println!("FAILED: {scenario} ({status}) does not say {expected:?}:\n{said}");
                failed += 1;
            }
        }
    }
    if !large {
        failed += benches(&library);
        failed += usize::from(!timelines(&library));
    }
    if failed > 0 {
        exit(1);
    }
    println!("test result: ok");
}

/// `kolo bench` over MPI, and what it refuses; returns how often it did not say what was expected.
fn benches(library: &str) -> usize {
    let table =
        "--transport mpi --algorithm mpi-allreduce,ring,grouped --sizes 64:4K:x64 -n 4 -w 1";
    let right = "# Out of bounds values : 0 OK";
    let mut failed = 0;
    for (options, is_right, expected) in [
        (
            table,
            true,
            ["all_reduce, algorithm mpi-allreduce", right, "4096          1024     float"],
        ),
        (table, true, ["all_reduce, algorithm ring", "all_reduce, algorithm grouped", "iters: 4"]),
        (
            "--transport mpi --sync window --sizes 64:4K:x64 -n 30 -w 1",
            true,
            ["from a moment that is named for ten at a time", right, ""],
        ),
        (
            "--transport mpi --sync round-time --sizes 64:4K:x64 -n 4 -w 1",
            true,
            ["from a moment that is named for each to the end of the last rank", right, ""],
        ),
        (
            "--transport mpi --ranks 3",
            false,
            ["3x1 needs 3 processes", "the job has 2", "start more"],
        ),
        ("--ranks 2", false, ["started as 2 processes", "--transport mpi", ""]),
    ] {
        let program = env!("CARGO_BIN_EXE_kolo");
        let arguments: Vec<&str> = ["bench"].into_iter().chain(options.split(' ')).collect();
        let (status, said) = launch(library, 2, program.as_ref(), &arguments);
        if status.success() != is_right || !expected.iter().all(|part| said.contains(part)) {
            println!("FAILED: bench {options} ({status}) does not say {expected:?}:\n{said}");
            failed += 1;
        }
    }
    failed
}

const LIST: &str = "index,name,shape,elements\n0,a,30x10,300\n1,b,7,7\n";
const CONFIG: &str = r#"
workload = "list.csv"
step = { forward_ms = 0.2, backward_ms = 1, optimizer_ms = 0.1 }
[sweep]
transport = ["mpi"]
topology = ["1x2"]
control_plane = ["coordinator", "bitvector"]
algorithm = ["ring"]
fusion_threshold_mib = [64]
cycle_time_ms = [0.5]
[measure]
steps_per_block = 3
blocks_max = 2
timeout_seconds = 20
"#;

/// The timelines of a sweep say how far the clocks of processes may be off.
fn timelines(library: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("list.csv"), LIST).expect("a file");
    std::fs::write(path("sweep.toml"), CONFIG).expect("a file");
    let (config, out) = (path("sweep.toml"), path("out"));
    let options = ["--no-figures", "--force", "--timeline", "--out", &out];
    let arguments = [&["sweep", &config][..], &options].concat();
    let (status, said) = launch(library, 2, env!("CARGO_BIN_EXE_kolo").as_ref(), &arguments);
    for plane in ["coordinator", "bitvector"] {
        let file = path(&format!("out/timelines/mpi_1x2_{plane}_ring_64MiB_0.5ms.json"));
        let trace = workloads::trace::read::Trace::read(file.as_ref());
        let error_us = trace.map(|trace| trace.clock_error_us);
        // Processes of one machine have one clock; what is left is the time of reading it.
        if !status.success()
            || !error_us.as_ref().is_ok_and(|us| *us > Some(0.0) && *us < Some(1e6))
        {
            println!("FAILED: timelines ({status}) are off by {error_us:?} us:\n{said}");
            return false;
        }
    }
    true
}

/// Starts a world of this program.
fn start(library: &str, ranks: usize, scenario: &str, seed: u64) -> (ExitStatus, String) {
    let own = std::env::current_exe().expect("this program has a path");
    launch(library, ranks, &own, &["--scenario", scenario, &seed.to_string()])
}

/// Starts a program as a world and waits for its end; returns its output on both streams.
fn launch(library: &str, ranks: usize, program: &Path, arguments: &[&str]) -> (ExitStatus, String) {
    let mut command = Command::new(launcher(library));
    if library.starts_with("Open MPI") {
        command.args(["--oversubscribe", "--bind-to", "none"]);
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    }
    command.args(["-n", &ranks.to_string()]).arg(program).args(arguments);
    // A rank that checks data on all cores would leave none to the others.
    command.env("RAYON_NUM_THREADS", "1");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::null()).stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("{:?} cannot be started: {error}; name one in KOLO_MPIRUN", command.get_program())
    });
    drop(command);
    let listener = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = reader.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > LIMIT {
            println!("{ranks} ranks take longer than {LIMIT:?}; they are ended");
            child.kill().expect("a child");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (status, listener.join().expect("the listener"))
}

/// The launcher that goes with a library.
fn launcher(library: &str) -> String {
    if let Ok(named) = std::env::var("KOLO_MPIRUN") {
        return named;
    }
    let suffix = if library.starts_with("Open MPI") { "openmpi" } else { "mpich" };
    let with_suffix = format!("mpirun.{suffix}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(&with_suffix).exists()) {
        with_suffix
    } else {
        "mpirun".into()
    }
}
