//! Sweeps under Slurm on a virtual cluster: real daemons, real MPI between nodes with their own addresses, and the
//! failures of real clusters.
//!
//! Whatever breaks, and whenever: submitting again ends with every case exactly once and every row whole.
//! Needs Slurm, Open MPI and the rights to make network namespaces; runs where `KOLO_CLUSTER_TESTS` is
//! set, as `make test-all` does, and says so where it does not. A word on the command line chooses scenarios
//! by name.

mod cluster;
mod results;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use algorithms::program::Bounds;
use algorithms::registry;
use algorithms::schedule::{Move, Part};
use algorithms::topology::Topology;
use cluster::{Cluster, Failure};
use results::Results;
use workloads::workload::Workload;

type Outcome = Result<(), Failure>;

type Scenario = fn(&Cluster) -> Outcome;

/// Names and functions, the longest first.
const SCENARIOS: [(&str, Scenario); 17] = [
    ("the scaling sweep over 1, 2, 4 and 8 nodes", scaling_sweep),
    ("the time limit comes near", time_limit),
    ("the whole sweep over 1, 2 and 4 nodes", whole_sweep),
    ("a job for each number of nodes", array),
    ("the job is preempted", job_is_preempted),
    ("the disk is full", disk_is_full),
    ("interfaces carry what schedules promise", bytes_on_the_wire),
    ("a node loses its power", node_dies),
    ("launches in one job, and one more in another", launches),
    ("a rank stops for longer than the timeout", rank_stops),
    ("the job is requeued by hand", job_is_requeued),
    ("two jobs on one folder of results", two_jobs),
    ("a rank is killed", rank_is_killed),
    ("rank 0 is killed", rank_0_is_killed),
    ("the job is cancelled and submitted again", job_is_cancelled),
    ("another command on all ranks", other_command),
    ("the folder of results cannot be written", folder_is_read_only),
];

/// Cases of `configs/cluster.toml` on each number of nodes, and those of them that can be simulated: all but a library's own
/// allreduce and groups.
const CASES_PER_WORLD: usize = 26;
const SIMULATED_PER_WORLD: usize = 16;

/// Scenarios wait for Slurm half of their time, so two clusters run side by side, each on its own subnet.
const CLUSTERS: u8 = 2;

fn main() {
    if std::env::var_os("KOLO_CLUSTER_TESTS").is_none() {
        println!("the virtual cluster is not used: set KOLO_CLUSTER_TESTS=1, or run make test-all");
        return;
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let chosen: Vec<_> = SCENARIOS.into_iter().filter(|(name, _)| is_chosen(name)).collect();
    let start = Instant::now();
    let next = Mutex::new(chosen.iter());
    let failed = Mutex::new(Vec::new());
    let clusters = CLUSTERS.min(u8::try_from(chosen.len()).unwrap_or(CLUSTERS));
    thread::scope(|scope| {
        for index in 0..clusters {
            let (next, failed) = (&next, &failed);
            let run_all = move || {
                let cluster = Cluster::up(index).unwrap_or_else(|failure| panic!("{failure}"));
                loop {
                    // A statement of its own: the lock is not held while the scenario runs.
                    let scenario = next.lock().unwrap().next();
                    let Some(&(name, run)) = scenario else { break };
                    if let Err(failure) = outcome_of(&cluster, name, run) {
                        failed.lock().unwrap().push(format!("{name}: {failure}"));
                    }
                }
            };
            scope.spawn(run_all);
        }
    });
    // Once more, since only the end of a long log may be kept.
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    println!("{} scenarios passed in {:.0} s", chosen.len(), start.elapsed().as_secs_f64());
}

/// Runs a scenario and prints its outcome.
fn outcome_of(cluster: &Cluster, name: &str, run: Scenario) -> Outcome {
    let start = Instant::now();
    let outcome = run(cluster);
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(()) => println!("{name} ... ok ({seconds:.0} s)"),
        Err(failure) => println!("{name} ... FAILED ({seconds:.0} s)\n{failure}"),
    }
    cluster.cancel_all();
    outcome
}

/// The complete result of a sweep of faults: 4 cases of 3 blocks of 6 steps.
fn is_complete(folder: &Path) -> Outcome {
    Results::read(folder)?.complete(4, 3 * 6)
}

fn whole_sweep(cluster: &Cluster) -> Outcome {
    let start = Instant::now();
    let job = cluster.submit("configs/ci.toml", "whole", &[])?;
    job.waits_for("attempts.csv", 2, Duration::from_secs(30))?;
    println!(
        "  the whole sweep: its first case ran {:.1} s after its submission",
        start.elapsed().as_secs_f64()
    );
    job.ends_with("COMPLETED", Duration::from_secs(240))?;
    let results = Results::read(&job.folder)?;
    results.complete(12, 2 * 3)?;
    results.has_worlds(&["1x2", "2x2", "4x1"])?;
    results.tells_of_all_nodes()?;
    for file in ["summary.txt", "bandwidth.csv", "figures/scaling.png"] {
        cluster.check(job.folder.join(file).exists(), || format!("{file} is missing"))?;
    }
    let provenance = std::fs::read_to_string(job.folder.join("provenance.json"))?;
    // The virtual cluster has no accounting, which is reported.
    let parts = ["\"host\": \"n1\"", "\"host\": \"n4\"", "Open MPI", "emulated", "sacct"];
    for part in parts {
        cluster.check(provenance.contains(part), || format!("{part} is not in provenance.json"))?;
    }
    Ok(())
}

/// The batch script without a configuration: `configs/cluster.toml` itself, with its model and its passes. Every number of
/// nodes in one allocation, the base case at the beginning and at the end, a calibration of the nodes, and a prediction for
/// all that can be simulated.
fn scaling_sweep(_: &Cluster) -> Outcome {
    // Any index but those of the clusters that are up.
    let cluster = Cluster::of_nodes(8, CLUSTERS)?;
    // Longer than it takes beside another cluster on two cores.
    let nodes = ["--nodes=8", "--ntasks-per-node=1", "--time=30"];
    let job = cluster.submit_default("scaling", &nodes, &["--budget", "0s", "--steps", "1"])?;
    // Eight ranks that may have two cores, and a block of one step of each case.
    job.ends_with("COMPLETED", Duration::from_secs(1800))?;
    let results = Results::read(&job.folder)?;
    results.all_right(4 * CASES_PER_WORLD)?;
    results.says_in_each("workload", "resnet50")?;
    let worlds = ["1x1", "2x1", "4x1", "8x1"];
    results.has_worlds(&worlds)?;
    let summary = std::fs::read_to_string(job.folder.join("summary.txt"))?;
    let drift = "drift: mpi/1x1/bitvector/ring/128MiB/1ms took ";
    cluster.check(summary.contains(drift), || summary.clone())?;
    let machine = std::fs::read_to_string(job.folder.join("machine.toml"))?;
    cluster.check(machine.contains("about = \"8 x 1 ranks, mpi\""), || machine.clone())?;
    let left = [
        "report.html",
        "figures/efficiency.png",
        "figures/scaling.png",
        "predicted/figures/scaling.png",
    ];
    for file in left {
        cluster.check(job.folder.join(file).exists(), || format!("{file} is missing"))?;
    }
    let path = job.folder.join("predicted/rows.csv");
    let mut rows = csv::Reader::from_path(&path)?;
    let rows: Vec<HashMap<String, String>> = rows.deserialize().collect::<Result<_, _>>()?;
    let right = |row: &HashMap<String, String>| {
        (&*row["source"], &*row["status"], &*row["machine"]) == ("simulated", "ok", "virtual")
    };
    cluster.check(rows.len() == 4 * SIMULATED_PER_WORLD && rows.iter().all(right), || {
        std::fs::read_to_string(&path).unwrap_or_default()
    })
}

/// From a login node, one after the other, into one folder; the largest calibrates.
fn array(cluster: &Cluster) -> Outcome {
    let config = cluster.small_scaling_sweep()?;
    let options = ["--nodes", "2", "--ranks-per-node", "1", "--budget", "0s"];
    let jobs = cluster.submit_array(&config, "array", &options)?;
    cluster.check(jobs.len() == 2, || format!("{} jobs, expected 2", jobs.len()))?;
    for job in &jobs {
        job.ends_with("COMPLETED", Duration::from_secs(240))?;
    }
    let folder = &jobs[0].folder;
    let results = Results::read(folder)?;
    results.all_right(2 * CASES_PER_WORLD)?;
    results.has_worlds(&["1x1", "2x1"])?;
    let provenance: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("provenance.json"))?)?;
    let launches = provenance["launches"].as_array().ok_or("no launches")?;
    let nodes = launches.iter().map(|it| it["nodes"].as_array().map_or(0, Vec::len));
    let nodes: Vec<usize> = nodes.collect();
    cluster.check(nodes == [1, 2], || format!("launches on {nodes:?} nodes, expected 1 and 2"))?;
    let (ended, started) = (launches[0]["ended"].as_str(), launches[1]["started"].as_str());
    cluster.check(ended.is_some() && ended <= started, || {
        format!("the first ended at {ended:?}, and the second began at {started:?}")
    })?;
    let machine = std::fs::read_to_string(folder.join("machine.toml"))?;
    cluster.check(machine.contains("about = \"2 x 1 ranks, mpi\""), || machine.clone())?;
    for file in ["report.html", "figures/efficiency.png", "predicted/rows.csv"] {
        cluster.check(folder.join(file).exists(), || format!("{file} is missing"))?;
    }
    Ok(())
}

/// As many ranks on a node as the job was asked for, started according to the site file.
fn other_command(cluster: &Cluster) -> Outcome {
    let table = cluster.path("bench.csv").display().to_string();
    let bench = ["bench", "--transport", "mpi", "-b", "8", "-e", "8K", "-f", "1024", "-n", "5"];
    let command = [&bench[..], &["--algorithm", "ring,mpi-allreduce", "--out", &table]].concat();
    let job = cluster.submit_command(&["--nodes=4", "--ntasks-per-node=1"], &command)?;
    job.ends_with("COMPLETED", Duration::from_secs(120))?;
    let mut rows = csv::Reader::from_path(&table)?;
    let rows: Vec<HashMap<String, String>> = rows.deserialize().collect::<Result<_, _>>()?;
    let right = |row: &HashMap<String, String>| {
        [("nodes", "4"), ("ranks", "4"), ("wrong", "0"), ("emulated", "true"), ("host", "n1")]
            .iter()
            .all(|&(column, value)| row[column] == value)
    };
    cluster.check(rows.len() == 8 && rows.iter().all(right), || {
        format!(
            "of two algorithms, two sizes, in place and not:\n{}",
            std::fs::read_to_string(&table).unwrap_or_default()
        )
    })
}

/// What each node sends, by its interface's counter, beside the bytes that its ranks send to other nodes
/// by the schedule; control messages and headers are within the tolerance.
fn bytes_on_the_wire(cluster: &Cluster) -> Outcome {
    const TOLERANCE: f64 = 0.05;
    // 2 x 4 messages of 4 MiB, see `executor::links`.
    const TRIED_BYTES: usize = 8 * (4 << 20);
    for (algorithm, topology) in
        [("ring", Topology::flat(4)), ("hierarchical", Topology::uniform(2, 2))]
    {
        let shape = format!("{}x{}", topology.nodes(), topology.ranks() / topology.nodes());
        let config = cluster.config_with(algorithm, &shape)?;
        let before = cluster.sent_bytes()?;
        let job = cluster.submit(&config, &format!("bytes-{shape}"), &["--no-requeue"])?;
        job.ends_with("COMPLETED", Duration::from_secs(120))?;
        Results::read(&job.folder)?.complete(1, 3 * 6)?;
        let after = cluster.sent_bytes()?;
        let nodes = job.folder_nodes()?;
        for (node, name) in nodes.iter().take(topology.nodes()).enumerate() {
            // 1 + 6 steps in each of 3 blocks, in f16.
            let promised = 21 * 2 * promised_elements(algorithm, &topology, node)?;
            // Before, the first node tried its link to each other one.
            let tried = if node == 0 { (nodes.len() - 1) * TRIED_BYTES } else { 0 };
            let promised = promised + tried;
            let sent = after[name] - before[name];
            let ratio = sent as f64 / promised as f64;
            println!("  {algorithm}, {shape}, {name}: {sent} bytes sent, {promised} promised");
            cluster.check((ratio - 1.0).abs() <= TOLERANCE, || {
                format!("{algorithm} on {shape}: {name} sent {ratio:.3} times what was promised")
            })?;
        }
    }
    Ok(())
}

/// Elements that the ranks of a node send to other nodes in one allreduce of all gradients.
fn promised_elements(algorithm: &str, topology: &Topology, node: usize) -> Result<usize, Failure> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/workloads/densenet121.csv");
    let elements = Workload::read(&path)?.elements();
    let choices = registry::find(algorithm)?.choices(topology)?;
    let schedule = &choices.last().ok_or("no schedule")?.schedule;
    let bounds = Bounds::new(elements, schedule.chunks());
    let (mut part, mut sent) = (Part::default(), 0);
    for rank in topology.node(node) {
        for step in 0..schedule.steps() {
            part.clear();
            schedule.part(rank, step, &mut part);
            let leaves = |entry: &&Move| topology.node_of(entry.peer()) != node;
            let leaving = part.sends.iter().filter(leaves);
            sent += leaving.map(|entry| bounds.elements(entry).len()).sum::<usize>();
        }
    }
    Ok(sent)
}

/// Something happens to a rank in the second block, while a third process has no part in the case; the job
/// sees to the rest by itself. Between two blocks no case is to blame, and none is named.
fn rank_fails(cluster: &Cluster, name: &str, rank: usize, signal: &str, reported: &str) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, name, &["--nodes=3"])?;
    job.waits_for("attempts.csv", 3, Duration::from_secs(60))?;
    job.signal_rank(rank, signal)?;
    job.ends_with("COMPLETED", Duration::from_secs(120))?;
    let attempts = std::fs::read_to_string(job.folder.join("attempts.csv"))?;
    cluster
        .check(attempts.contains(reported), || format!("nobody said {reported:?}:\n{attempts}"))?;
    is_complete(&job.folder)
}

/// Each launch of a job is a job step of its own, and a later job adds one to the same folder.
fn launches(cluster: &Cluster) -> Outcome {
    let submit = |launches: &str| -> Result<Results, Failure> {
        let (nodes, launches) = (["--nodes=2"], ["--launches", launches]);
        let job = cluster.submit_with(cluster::FAULTS, "launches", &nodes, &launches)?;
        job.ends_with("COMPLETED", Duration::from_secs(240))?;
        Results::read(&job.folder)
    };
    for (asked, steps) in [("2", 2 * 3 * 6), ("3", 3 * 3 * 6)] {
        let results = submit(asked)?;
        results.complete(4, steps)?;
        let started = results.launches()?.to_string();
        cluster.check(started == asked, || format!("{started} launches, expected {asked}"))?;
        results.says_in_each("launches", asked)?;
    }
    Ok(())
}

fn rank_is_killed(cluster: &Cluster) -> Outcome {
    rank_fails(cluster, "killed", 1, "KILL", "process 1 is gone")
}

fn rank_stops(cluster: &Cluster) -> Outcome {
    rank_fails(cluster, "stopped", 1, "STOP", "process 1 has sent no heartbeat for 3.")
}

fn rank_0_is_killed(cluster: &Cluster) -> Outcome {
    rank_fails(cluster, "leader", 0, "KILL", "its processes ended without a message")
}

fn job_is_cancelled(cluster: &Cluster) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, "cancelled", &["--nodes=2"])?;
    job.waits_for("samples.csv", 2, Duration::from_secs(60))?;
    cluster.slurm(&["scancel", &job.id])?;
    job.ends_with("CANCELLED", Duration::from_secs(60))?;
    let before = Results::read(&job.folder)?;
    cluster.check(before.rows() < 4, || "it was cancelled too late".into())?;
    let again = cluster.submit(cluster::FAULTS, "cancelled", &["--nodes=2"])?;
    again.ends_with("COMPLETED", Duration::from_secs(120))?;
    is_complete(&again.folder)
}

fn job_is_requeued(cluster: &Cluster) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, "requeued", &["--nodes=2"])?;
    job.waits_for("samples.csv", 2, Duration::from_secs(60))?;
    cluster.slurm(&["scontrol", "requeue", &job.id])?;
    job.ends_with("COMPLETED", Duration::from_secs(240))?;
    cluster.check(Results::read(&job.folder)?.launches()? > 1, || "it ran only once".into())?;
    is_complete(&job.folder)
}

/// Slurm counts in minutes, and looks at time limits every 30 s: the signal comes 10 to 40 s after the
/// beginning, of 35 s of steps.
fn time_limit(cluster: &Cluster) -> Outcome {
    const BLOCKS: usize = 12;
    let config = cluster.longer_config(BLOCKS)?;
    let job = cluster.submit(&config, "time", &["--nodes=2", "--time=1", "--signal=B:USR1@50"])?;
    job.ends(Duration::from_secs(400))?;
    let output = job.output();
    cluster.check(output.contains("is requeued"), || output.clone())?;
    if Results::read(&job.folder)?.rows() < 4 {
        let again = cluster.submit(&config, "time", &["--nodes=2"])?;
        again.ends_with("COMPLETED", Duration::from_secs(120))?;
    }
    Results::read(&job.folder)?.complete(4, BLOCKS * 6)
}

/// The scheduler takes a while to see the urgent job, and 12 s of steps are to outlast it.
fn job_is_preempted(cluster: &Cluster) -> Outcome {
    const BLOCKS: usize = 4;
    let job = cluster.submit(&cluster.longer_config(BLOCKS)?, "preempted", &["--nodes=2"])?;
    job.waits_for("samples.csv", 2, Duration::from_secs(60))?;
    let urgent = ["sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "-o", "/dev/null"];
    cluster.slurm(&[&urgent[..], &["--wrap", "sleep 1"]].concat())?;
    job.ends_with("COMPLETED", Duration::from_secs(240))?;
    let results = Results::read(&job.folder)?;
    cluster.check(results.launches()? > 1, || "it was not preempted".into())?;
    results.complete(4, BLOCKS * 6)
}

fn node_dies(cluster: &Cluster) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, "node", &["--nodes=3"])?;
    job.waits_for("samples.csv", 2, Duration::from_secs(60))?;
    let victim = job.nodes()?.pop().ok_or("the job has no node")?;
    cluster.virtual_cluster(&["kill", &victim])?;
    let ended = job.ends_with("COMPLETED", Duration::from_secs(180));
    cluster.virtual_cluster(&["revive", &victim])?;
    ended?;
    let output = job.output();
    let reported = format!("node {victim} is ");
    let said = output.lines().any(|line| line.contains(&reported) && line.ends_with("without it"));
    cluster.check(said, || format!("nobody said that {victim} is down:\n{output}"))?;
    is_complete(&job.folder)
}

fn folder_is_read_only(cluster: &Cluster) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, "read-only/results", &["--nodes=2"])?;
    job.ends_with("FAILED", Duration::from_secs(120))?;
    let output = job.output();
    cluster.check(output.contains("Read-only file system"), || output.clone())
}

fn disk_is_full(cluster: &Cluster) -> Outcome {
    let job = cluster.submit(cluster::FAULTS, "full/results", &["--nodes=2"])?;
    job.ends_with("FAILED", Duration::from_secs(180))?;
    let output = job.output();
    cluster.check(output.contains("No space left on device"), || output.clone())?;
    Results::read(&job.folder)?.whole()?;
    cluster.make_room()?;
    let again = cluster.submit(cluster::FAULTS, "full/results", &["--nodes=2"])?;
    again.ends_with("COMPLETED", Duration::from_secs(120))?;
    is_complete(&again.folder)
}

/// The second has to begin while the first runs.
fn two_jobs(cluster: &Cluster) -> Outcome {
    const BLOCKS: usize = 4;
    let config = cluster.longer_config(BLOCKS)?;
    let first = cluster.submit(&config, "both", &["--nodes=2"])?;
    first.waits_for("samples.csv", 2, Duration::from_secs(60))?;
    let second = cluster.submit(&config, "both", &["--nodes=2"])?;
    second.ends_with("FAILED", Duration::from_secs(120))?;
    let output = second.output();
    cluster.check(output.contains("is in use by another kolo"), || output.clone())?;
    first.ends_with("COMPLETED", Duration::from_secs(120))?;
    Results::read(&first.folder)?.complete(4, BLOCKS * 6)
}
