//! `kolo sweep --slurm` outside of a job.

use crate::build;
use crate::slurm::fakes::Fakes;

const SUBMIT: &str = "sbatch --parsable --job-name=kolo-quick --nodes=2 --time=01:00:00 \
                      --ntasks-per-node=2 --cpus-per-task=1 slurm/sweep.sh configs/quick.toml";

#[test]
fn a_dry_run_prints_cases_node_hours_and_the_very_lines() {
    let fakes = Fakes::new("exit 0");
    let ended = fakes.kolo(&["sweep", "--slurm", "--dry-run", "configs/quick.toml"]);
    ended.says(0, "mpi/2x2/bitvector/hierarchical/64MiB/5ms  4 steps");
    ended.says(0, "48 cases of resnet50 (161 gradients, 102.2 MB)");
    ended.says(0, "2 nodes of 2 ranks; site generic (configs/sites/generic.toml)");
    ended.says(0, "at most 2.00 by the time limit 01:00:00");
    ended.says(0, &format!("\n{SUBMIT} --site generic\n"));
    let step = format!(
        "\nsrun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix \
         --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=0 --wait=60 --overlap --export=ALL {} \
         sweep configs/quick.toml --out results/slurm-JOBID-quick --go-on --transport mpi --until \
         SECONDS\n",
        build::program()
    );
    ended.says(0, &step);
    ended.says(0, "warning: the configuration puts 2 ranks on a node, but site generic has 1");
    let without_mpi =
        "warning: this program was built without MPI, which a job needs; slurm/build.sh generic";
    assert_eq!(ended.stderr.contains(without_mpi), !build::has_mpi());
    let said = |text: &str| ended.stdout.find(text).unwrap();
    assert!(said("\nsbatch ") < said("\nwhat it measures:\n"), "what is to be typed comes first");
    assert!(said("\nwhat it measures:\n") < said("\nmpi/2x2/"));
    assert_eq!(fakes.read("log"), "", "nothing of Slurm was called");
}

#[test]
fn options_reach_the_submission_and_the_step() {
    let fakes = Fakes::new("exit 0");
    let ended = fakes.kolo(&[
        "sweep",
        "--slurm",
        "--dry-run",
        "configs/quick.toml",
        "--site",
        "virtual",
        "--nodes",
        "4",
        "--time",
        "30",
        "--out",
        "a b",
        "--cycle-time-ms",
        "2.5",
        "--no-figures",
    ]);
    ended.says(
        0,
        "\nsbatch --parsable --job-name=kolo-quick --nodes=4 --time=30 slurm/sweep.sh \
         configs/quick.toml --site virtual --out 'a b' --cycle-time-ms 2.5 --no-figures --force\n",
    );
    ended.says(
        0,
        "--out 'a b' --go-on --transport mpi --until SECONDS --cycle-time-ms 2.5 --no-figures --force",
    );
    ended.says(
        0,
        "srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix \
                   --cpu-bind=none",
    );
    ended.says(0, "at most 2.00 by the time limit 30");
    let few = ["sweep", "--slurm", "--dry-run", "configs/quick.toml", "--nodes", "1"];
    fakes.kolo(&few).says(0, "warning: 1 nodes are too few for topology 2x2");
}

#[test]
fn a_submission_is_not_changed_by_what_the_shell_inherited() {
    let fakes = Fakes::new("exit 0")
        .set("SBATCH_ACCOUNT", "old")
        .set("SLURM_NTASKS", "3")
        .set("SLURM_CONF", "/etc/other/slurm.conf")
        .set("OMPI_MCA_pml", "ob1");
    let ended = fakes.kolo(&["sweep", "--slurm", "configs/quick.toml"]);
    ended.says(
        0,
        "job 4711 is submitted: 2 nodes for 01:00:00; its output is kolo-4711.out, its results \
         results/slurm-4711-quick",
    );
    ended.says(0, "SBATCH_ACCOUNT is ignored");
    let call = SUBMIT.strip_prefix("sbatch ").unwrap();
    assert_eq!(fakes.calls("sbatch"), [format!("{call} --site generic")]);
    let environment = fakes.read("environment");
    assert!(!environment.contains("SBATCH_") && !environment.contains("SLURM_NTASKS"));
    assert!(environment.contains("SLURM_CONF=/etc/other") && environment.contains("OMPI_MCA_pml"));
}

#[test]
fn a_submission_that_fails_is_not_repeated() {
    let fakes = Fakes::new("exit 0");
    fakes.script(
        "sbatch",
        "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1",
    );
    let ended = fakes.kolo(&["sweep", "--slurm", "configs/quick.toml"]);
    ended.says(1, "Socket timed out on send/recv operation");
    ended.says(1, "check with `squeue --me --name=kolo-quick` before submitting again");
    assert_eq!(fakes.calls("sbatch").len(), 1);
}

#[test]
fn mistakes_end_with_status_2() {
    let fakes = Fakes::new("exit 0");
    for (arguments, expected) in [
        (&["--time", "1h"][..], "\"1h\" is not a time limit; write minutes (30)"),
        (&["--nodes", "0"], "0 is not in 1.."),
        (&["--site", "nowhere"], "configs/sites/nowhere.toml: no such site; there are: generic"),
        (&["--site", "./nowhere.toml"], "kolo: ./nowhere.toml: No such file"),
        (&["--resume"], "cannot be used with"),
    ] {
        let all = [&["sweep", "--slurm", "configs/quick.toml"], arguments].concat();
        fakes.kolo(&all).says(2, expected);
    }
    let control = ["sweep", "--slurm", "configs/control-planes.toml"];
    fakes.kolo(&control).says(2, "a sweep of control planes alone runs in one process");
    let simulated = ["sweep", "--slurm", "configs/summit-scaling.toml"];
    fakes.kolo(&simulated).says(2, "a simulated sweep runs in one process; leave out --slurm");
    let streams = ["sweep", "--slurm", "configs/cuda.toml"];
    fakes.kolo(&streams).says(
        2,
        "configs/cuda.toml: over cuda all ranks are in one process; for a job, with a process for each GPU, \
         give --transport nccl, or leave out --slurm",
    );
    fakes
        .kolo(&[&streams[..], &["--transport", "nccl", "--dry-run"]].concat())
        .says(0, "--transport nccl");
    fakes.kolo(&["sweep", "configs/quick.toml", "--site", "virtual"]).says(2, "--slurm");
    assert_eq!(fakes.read("log"), "");
}

/// The nodes of the dry run are those of a request without a number; ranks are the site's.
#[test]
fn the_scaling_sweep_doubles_the_nodes() {
    let fakes = Fakes::new("exit 0");
    let cluster = ["sweep", "--slurm", "--dry-run", "configs/cluster.toml", "--site", "virtual"];
    let ended = fakes.kolo(&cluster);
    ended.says(0, "4 nodes of 2 ranks; site virtual");
    ended.says(
        0,
        "\nsbatch --parsable --job-name=kolo-cluster --nodes=4 --time=01:00:00 slurm/sweep.sh configs/cluster.toml \
         --site virtual --force\n",
    );
    ended
        .says(0, " --go-on --transport mpi --nodes 4 --ranks-per-node 2 --until SECONDS --force\n");
    for nodes in [1, 2, 4] {
        ended.says(
            0,
            &format!("\nmpi/{nodes}x2/coordinator/mpi-allreduce/128MiB/1ms  the library's own"),
        );
        ended.says(0, &format!("\nmpi/{nodes}x2/bitvector/tree/64MiB/5ms  "));
    }
    ended.says(0, "78 cases of resnet50");
    ended.says(0, "node-hours without network time; at most 4.00 by the time limit 01:00:00");
    let more = ["--nodes", "70", "--ranks-per-node", "3", "--budget", "10s"];
    let ended = fakes.kolo(&[&cluster[..], &more].concat());
    ended.says(0, "70 nodes of 3 ranks");
    ended.says(0, "configs/cluster.toml --site virtual --ranks-per-node 3 --budget 10s --force\n");
    ended.says(0, "\nmpi/64x3/bitvector/hierarchical/4MiB/1ms  ");
    ended.says(0, "182 cases of resnet50");
    ended.says(0, "a budget of 10 s is too small for measure.blocks_min = 2 blocks of each of 182 cases, about ");
    ended.says(0, " s: each case gets one block, which takes about ");
}

/// Each job has the nodes of its cases, waits for the one before, and has the folder of the first.
#[test]
fn an_array_is_a_chain_of_jobs_with_one_folder() {
    let fakes = Fakes::new("exit 0");
    let jobs = "n=$(grep -c ^sbatch \"$fake/log\"); echo $((4710 + n))";
    fakes.script("sbatch", jobs);
    let ended =
        fakes.kolo(&["sweep", "--slurm", "--array", "configs/cluster.toml", "--nodes", "5"]);
    ended.says(
        0,
        "3 jobs are submitted, one after the other: 4711, 4712, 4713; their results are \
         results/slurm-4711-cluster",
    );
    let call = |nodes: usize, after: &str, out: &str| {
        format!(
            "--parsable --job-name=kolo-cluster --nodes={nodes} --time=01:00:00 {after}--ntasks-per-node=1 \
             --cpus-per-task=1 slurm/sweep.sh configs/cluster.toml --site generic {out}--nodes 4"
        )
    };
    let out = "--out results/slurm-4711-cluster ";
    let expected = [
        call(1, "", ""),
        call(2, "--dependency=afterany:4711 ", out),
        call(4, "--dependency=afterany:4712 ", out),
    ];
    assert_eq!(fakes.calls("sbatch"), expected);
    // A site that bills by the size of jobs asks for it.
    std::fs::write(fakes.path("site.toml"), "job_per_node_count = true").unwrap();
    let site = fakes.path("site.toml").display().to_string();
    let dry = ["sweep", "--slurm", "--dry-run", "configs/cluster.toml", "--site", &site];
    let ended = fakes.kolo(&dry);
    ended.says(0, "--dependency=afterany:JOBID2 --ntasks-per-node=1");
    ended.says(0, "--out results/slurm-JOBID1-cluster --nodes 4\n");
    ended.says(0, "at most 7.00 by the time limit 01:00:00");
}

#[test]
fn nodes_are_for_configurations_that_depend_on_them() {
    let fakes = Fakes::new("exit 0");
    fakes.kolo(&["sweep", "configs/quick.toml", "--nodes", "2"]).says(
        2,
        "--nodes is for a configuration with sweep.nodes, and configs/quick.toml has sweep.topology",
    );
    let ranks = ["sweep", "--slurm", "configs/quick.toml", "--ranks-per-node", "2"];
    fakes.kolo(&ranks).says(2, "--ranks-per-node is for a configuration with sweep.nodes");
    fakes.kolo(&["sweep", "configs/quick.toml", "--array"]).says(2, "--slurm");
    fakes.kolo(&["sweep", "configs/cluster.toml", "--budget", "5"]).says(2, "write 90s, 10m or 1h");
    fakes.kolo(&["sweep", "configs/cluster.toml", "--nodes", "0"]).says(2, "0 is not in 1..=4096");
}
