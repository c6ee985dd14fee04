//! The batch script and the build script.

use std::fs;
use std::os::unix::fs::symlink;

use cluster::slurm::site::Site;

use crate::slurm::fakes::{Ended, Fakes, root};

/// A copy of the repository as a user has it: scripts, sites, and the program where cargo puts it. The
/// batch script is run as Slurm does, as a copy elsewhere.
fn repository(fakes: &Fakes) {
    let copy = |name: &str| fs::copy(root().join(name), fakes.path("repo").join(name)).unwrap();
    for folder in ["slurm", "configs/sites", "target/release"] {
        fs::create_dir_all(fakes.path("repo").join(folder)).unwrap();
    }
    for name in ["slurm/sweep.sh", "slurm/build.sh", "slurm/site.sh", "configs/sites/generic.toml"]
    {
        copy(name);
    }
    fs::create_dir_all(fakes.path("repo/configs/workloads")).unwrap();
    for name in
        ["quick.toml", "cluster.toml", "workloads/resnet50.csv", "workloads/resnet50.ready.csv"]
    {
        copy(&format!("configs/{name}"));
    }
    symlink(env!("CARGO_BIN_EXE_kolo"), fakes.path("repo/target/release/kolo")).unwrap();
    fs::copy(root().join("slurm/sweep.sh"), fakes.path("slurm_script")).unwrap();
    let shown = format!("   Command={}/slurm/sweep.sh a b", fakes.path("repo").display());
    fakes.script("scontrol", &format!("echo 'JobId=12'; echo '{shown}'"));
}

fn run_script(fakes: &Fakes, arguments: &[&str]) -> Ended {
    let mut command = fakes.command("bash");
    command.arg(fakes.path("slurm_script")).args(arguments).env_remove("CARGO_TARGET_DIR");
    Ended::of(command.current_dir(fakes.folder.path()).output().unwrap())
}

#[test]
fn the_batch_script_finds_the_repository_and_runs_the_sweep() {
    let fakes = Fakes::new("add 1; launched '\"now\"'; exit 0").in_job("n[1-2]");
    let fakes = fakes.set("SBATCH_ACCOUNT", "old").set("SLURM_NTASKS", "2").set("A_B", "mine");
    repository(&fakes);
    let site = "[environment]\nA_B = \"theirs\"\nC_D = \"it's $HOME\"\n";
    fs::write(fakes.path("site.toml"), site).unwrap();
    let out = fakes.path("out").display().to_string();
    let config = "repo/configs/quick.toml";
    let ended = run_script(&fakes, &[config, "--site", "./site.toml", "--out", &out]);
    ended.says(0, "the sweep has ended (status 0)");
    let environment = fakes.read("environment");
    assert!(environment.contains("C_D=it's $HOME\n") && environment.contains("A_B=mine\n"));
    assert!(!environment.contains("SBATCH_") && environment.contains("SLURM_NTASKS=2"));
}

/// Whatever the submission folder, without a configuration the scaling sweep is run, and its results are below
/// the folder of submission.
#[test]
fn the_batch_script_has_defaults() {
    let fakes = Fakes::new("add 1; exit 0").in_job("n[1-2]");
    repository(&fakes);
    run_script(&fakes, &[]).says(0, "the sweep has ended (status 0): results/slurm-12-cluster");
    assert!(fakes.path("results/slurm-12-cluster/rows.csv").exists());
    let words = "configs/cluster.toml --out results/slurm-12-cluster --go-on --transport mpi --nodes 2 \
                 --ranks-per-node 1 --budget 10s";
    run_script(&fakes, &["--budget", "10s"]).says(0, words);
    // Without an answer of scontrol, the folder of submission is used.
    let repo = fakes.path("repo").display().to_string();
    let fakes = fakes.set("SLURM_SUBMIT_DIR", &repo);
    fakes.script("scontrol", "exit 1");
    run_script(&fakes, &[]).says(0, "the sweep has ended");
}

/// As the site starts ranks, on all nodes of the job, with words as they were given.
#[test]
fn the_batch_script_runs_other_commands_on_all_ranks() {
    let fakes = Fakes::new("exit 3").in_job("n[1-2]");
    repository(&fakes);
    let call = |ranks: usize| {
        format!(
            "--nodes=2 --ntasks={} --ntasks-per-node={ranks} --cpus-per-task=1 --mpi=pmix --cpu-bind=cores \
             --distribution=block:block --kill-on-bad-exit=0 --wait=60 --overlap --export=ALL",
            2 * ranks
        )
    };
    let tune = ["tune", "--workload", "a b", "--backward-ms", "1"];
    assert_eq!(run_script(&fakes, &tune).status, Some(3), "that of the ranks");
    let fakes = fakes.set("SLURM_NTASKS_PER_NODE", "3");
    run_script(&fakes, &["calibrate", "--transport", "mpi"]);
    let fakes = fakes.set("SLURM_GPUS_PER_NODE", "a100:3");
    run_script(&fakes, &["bench", "--transport", "nccl"]);
    let kolo = fakes.path("repo/target/release/kolo");
    let expected = [
        format!("{} {} tune --workload a b --backward-ms 1", call(1), kolo.display()),
        format!("{} {} calibrate --transport mpi", call(3), kolo.display()),
        format!(
            "{} --gpus-per-node=3 --gpu-bind=none {} bench --transport nccl",
            call(3),
            kolo.display()
        ),
    ];
    assert_eq!(fakes.calls("srun"), expected);
    fakes.kolo(&["site", "step"]).says(0, &call(3));
    let outside = Fakes::new("exit 0");
    outside.kolo(&["site", "step"]).says(2, "not inside a Slurm job");
}

#[test]
fn the_batch_script_loads_the_modules_of_the_site() {
    let fakes = Fakes::new("exit 0").in_job("n[1-2]");
    repository(&fakes);
    let site =
        "purge_modules = true\nmodules = [ # in this order\n  \"gcc/12.2\", \"openmpi\", # 4\n]\n";
    fs::write(fakes.path("site.toml"), site).unwrap();
    let arguments = ["repo/configs/quick.toml", "--site=./site.toml", "--out", "out"];
    let module = "() { echo \"module $*\" >> \"$NOTES\"; [ \"$2\" != \"$REFUSED\" ]; }";
    let notes = fakes.path("notes").display().to_string();
    let fakes = fakes.set("BASH_FUNC_module%%", module).set("NOTES", &notes);
    run_script(&fakes, &arguments).says(0, "the sweep has ended");
    assert_eq!(fakes.read("notes"), "module purge\nmodule load gcc/12.2\nmodule load openmpi\n");
    let fakes = fakes.set("REFUSED", "openmpi");
    run_script(&fakes, &arguments)
        .says(2, "./site.toml: module load openmpi failed; see module avail");
}

#[test]
fn the_batch_script_reports_missing_files() {
    let fakes = Fakes::new("exit 0");
    repository(&fakes);
    run_script(&fakes, &[]).says(2, "this is a batch script; submit it: sbatch slurm/sweep.sh");
    let mut command = fakes.command("bash");
    command.arg(fakes.path("repo/slurm/sweep.sh")).args(["--array", "--nodes", "2", "--dry-run"]);
    let ended = Ended::of(command.env_remove("CARGO_TARGET_DIR").output().unwrap());
    ended.says(
        0,
        "/configs/cluster.toml --site generic --out results/slurm-JOBID1-cluster --nodes 2\n",
    );
    let fakes = fakes.in_job("n[1-2]");
    run_script(&fakes, &["a.toml", "--site", "no"])
        .says(2, "configs/sites/no.toml: no such site file");
    fs::remove_file(fakes.path("repo/target/release/kolo")).unwrap();
    run_script(&fakes, &[]).says(2, "target/release/kolo is not there; build it on a login node");
    fs::remove_dir_all(fakes.path("repo/slurm")).unwrap();
    run_script(&fakes, &[]).says(2, "the repository is not found from .; submit from within it");
}

/// The shell reads the few keys that it needs before the program is built; both readers agree.
#[test]
fn the_shell_reads_site_files_as_the_program_does() {
    let odd = "mpi='mpich'\nmodules=[\"a\",\n\"b/1.2\" # \"c\"\n]\nsbatch = [\"--x\"]\n";
    let fakes = Fakes::new("exit 0");
    fs::write(fakes.path("odd.toml"), odd.replace('\'', "\"")).unwrap();
    let shipped = fs::read_dir(root().join("configs/sites")).unwrap();
    let shipped = shipped.map(|entry| entry.unwrap().path());
    for path in shipped.chain([fakes.path("odd.toml")]) {
        let site = Site::read(&path).unwrap();
        let script = ". slurm/site.sh; site_modules \"$1\" | tr '\\n' ' '; site_value \"$1\" mpi openmpi; \
                      site_value \"$1\" mpi_plugin pmix; site_value \"$1\" purge_modules false";
        let mut command = fakes.command("bash");
        let ended = Ended::of(command.args(["-euc", script, "-"]).arg(&path).output().unwrap());
        let modules: String = site.modules.iter().map(|name| format!("{name} ")).collect();
        let mpi = format!("{:?}", site.mpi).to_lowercase();
        let expected =
            format!("{modules}{mpi}\n{}\n{}\n", site.mpi_plugin.name(), site.purge_modules);
        assert_eq!(ended.stdout, expected, "{}: {}", path.display(), ended.stderr);
    }
}

#[test]
fn the_build_script_names_all_that_is_missing_before_it_builds() {
    let fakes = Fakes::new("exit 0").set("MPICC", "no-such-mpicc");
    repository(&fakes);
    let build = |fakes: &Fakes, site: &str| {
        fs::write(fakes.path("site.toml"), site).unwrap();
        let mut command = fakes.command("bash");
        let ended = command.arg(fakes.path("repo/slurm/build.sh")).arg(fakes.path("site.toml"));
        Ended::of(ended.output().unwrap())
    };
    let ended = build(&fakes, "mpi = \"mpich\"\nmpi_plugin = \"pmi2\"");
    ended.says(2, "no-such-mpicc: load a module of MPI");
    ended.says(2, "pmi2: srun --mpi=list does not offer it; its output: MPI plugin types are");
    fakes.script("mpicc", "echo '#define MPICH_VERSION \"4\"'; echo '#define MPI_VERSION 4'");
    let mpicc = fakes.path("bin/mpicc").display().to_string();
    let fakes = fakes.set("MPICC", &mpicc);
    build(&fakes, "").says(2, "belongs to mpich; set mpi = \"mpich\" in");
    fakes.script("mpicc", "exit 1");
    build(&fakes, "").says(2, "mpi.h: ");
}
