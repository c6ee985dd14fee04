//! The virtual cluster, and jobs on it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub type Failure = Box<dyn std::error::Error>;

/// The configuration of most scenarios.
pub const FAULTS: &str = "harness/kolo/tests/cluster/faults.toml";

/// Too little for a whole sweep of faults, enough for its beginning.
const LITTLE: &str = "size=56k";
const ENOUGH: &str = "size=20m";

/// A cluster that ends with this.
pub struct Cluster {
    root: PathBuf,
    scratch: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Cluster {
    /// Four nodes. Clusters of different indices run side by side.
    pub fn up(index: u8) -> Result<Cluster, Failure> {
        Cluster::of_nodes(4, index)
    }

    /// So many nodes.
    pub fn of_nodes(nodes: usize, index: u8) -> Result<Cluster, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let scratch = tempfile::tempdir()?;
        // Nodes see mounts that were there before them.
        let none: Option<&str> = None;
        for (name, options) in [("read-only", ENOUGH), ("full", LITTLE)] {
            let path = scratch.path().join(name);
            fs::create_dir(&path)?;
            mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(options))?;
        }
        let read_only = scratch.path().join("read-only");
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, &read_only, none, flags, none)?;
        let mut cluster = Cluster { root, scratch, variables: Vec::new() };
        cluster.variables = vec![
            ("KOLO_VIRTUAL_CLUSTER".into(), cluster.path("cluster").display().to_string()),
            ("KOLO".into(), env!("CARGO_BIN_EXE_kolo").into()),
        ];
        cluster.start(nodes, index)?;
        let reported = cluster.virtual_cluster(&["env"])?;
        let assignments =
            reported.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let plain = |text: &str| text.replace('\\', "");
        let assignments = assignments.map(|(name, value)| (name.to_string(), plain(value)));
        cluster.variables.extend(assignments.collect::<Vec<_>>());
        Ok(cluster)
    }

    /// Starts the nodes on the first free subnet of sixteen: another run of these tests may hold some.
    fn start(&self, nodes: usize, index: u8) -> Result<(), Failure> {
        let nodes = nodes.to_string();
        let mut last = Ok(());
        for third in (80 + index..=255).step_by(11) {
            let subnet = format!("10.213.{third}");
            let up = self.virtual_cluster(&["up", "--nodes", &nodes, "--subnet", &subnet]);
            last = up.map(|_| ());
            match &last {
                Err(failure) if failure.to_string().contains("is in use here") => {}
                _ => break,
            }
        }
        last
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.root);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs one of Slurm's commands; returns its output.
    pub fn slurm(&self, words: &[&str]) -> Result<String, Failure> {
        said(words, self.command(words).output()?)
    }

    pub fn virtual_cluster(&self, words: &[&str]) -> Result<String, Failure> {
        let all = [&["slurm/virtual-cluster"], words].concat();
        said(&all, self.command(&all).output()?)
    }

    /// Submits a sweep whose results go into a folder of that name.
    pub fn submit(&self, config: &str, name: &str, options: &[&str]) -> Result<Job<'_>, Failure> {
        self.submit_with(config, name, options, &[])
    }

    /// Submits a sweep with more options of its own.
    pub fn submit_with(
        &self,
        config: &str,
        name: &str,
        options: &[&str],
        more: &[&str],
    ) -> Result<Job<'_>, Failure> {
        let more = [&["--timeout-seconds", "12"], more].concat();
        self.submit_into(name, options, &[config], &more)
    }

    /// Submits the batch script without a configuration.
    pub fn submit_default(
        &self,
        name: &str,
        options: &[&str],
        more: &[&str],
    ) -> Result<Job<'_>, Failure> {
        self.submit_into(name, options, &[], more)
    }

    /// Submits the batch script with the folder of its results between these arguments.
    fn submit_into(
        &self,
        name: &str,
        options: &[&str],
        before: &[&str],
        after: &[&str],
    ) -> Result<Job<'_>, Failure> {
        let folder = self.path(name);
        let out = folder.display().to_string();
        let id = self.sbatch(options, &[before, &["--out", &out], after].concat())?;
        Ok(Job { cluster: self, id, folder })
    }

    /// Submits a job for each number of nodes, as on a login node; returns them in their order.
    pub fn submit_array(
        &self,
        config: &str,
        name: &str,
        more: &[&str],
    ) -> Result<Vec<Job<'_>>, Failure> {
        let folder = self.path(name);
        let out = folder.display().to_string();
        let script = self.root.join("slurm/sweep.sh").display().to_string();
        let words = [&[&*script, "--array", config, "--out", &out], more].concat();
        // The outputs of these jobs go into the working folder.
        let submitted = self.command(&words).current_dir(self.scratch.path()).output()?;
        let reported = said(&words, submitted)?;
        let ids = reported.split_once(": ").and_then(|(_, rest)| rest.split_once(';'));
        let (ids, _) = ids.ok_or_else(|| format!("no numbers of jobs: {reported}"))?;
        let job = |id: &str| Job { cluster: self, id: id.into(), folder: folder.clone() };
        Ok(ids.split(", ").map(job).collect())
    }

    /// Submits another command of kolo, to be run on all ranks.
    pub fn submit_command(&self, options: &[&str], command: &[&str]) -> Result<Job<'_>, Failure> {
        let id = self.sbatch(options, command)?;
        Ok(Job { cluster: self, id, folder: self.path("none") })
    }

    /// Submits the batch script; returns the job's number.
    fn sbatch(&self, options: &[&str], arguments: &[&str]) -> Result<String, Failure> {
        let output = self.path("output-%j").display().to_string();
        let mut words = vec!["sbatch", "--parsable", "--time=10", "--output", &output];
        words.extend(options);
        words.push("slurm/sweep.sh");
        words.extend(arguments);
        Ok(self.slurm(&words)?.trim().to_string())
    }

    /// Bytes that each node has sent so far.
    pub fn sent_bytes(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let of_node = |name: &str| {
            let reported = self.virtual_cluster(&["exec", name, "cat", "/proc/net/dev"])?;
            let interfaces = reported.lines().filter_map(|line| line.split_once(':'));
            let others = interfaces.filter(|(interface, _)| interface.trim() != "lo");
            let sent = others.map(|(_, counters)| {
                counters.split_whitespace().nth(8).and_then(|sent| sent.parse::<u64>().ok())
            });
            Ok((name.to_string(), sent.sum::<Option<u64>>().ok_or("no counters")?))
        };
        ["n1", "n2", "n3", "n4"].into_iter().map(of_node).collect()
    }

    /// As [`FAULTS`], of one case.
    pub fn config_with(&self, algorithm: &str, topology: &str) -> Result<String, Failure> {
        let text = self.text_of_faults()?;
        let text = text.replace("[\"coordinator\", \"bitvector\"]", "[\"bitvector\"]");
        let text = text.replace("[\"ring\", \"mpi-allreduce\"]", &format!("[{algorithm:?}]"));
        let path = self.path(&format!("{algorithm}-{topology}.toml"));
        fs::write(&path, text.replace("[\"2x1\"]", &format!("[{topology:?}]")))?;
        Ok(path.display().to_string())
    }

    /// `configs/cluster.toml` with a small model and short passes: 1.2 MB instead of 102 MB, so that 104 cases take
    /// seconds on shared cores.
    pub fn small_scaling_sweep(&self) -> Result<String, Failure> {
        let mut gradients = String::from("index,name,shape,elements\n");
        gradients.extend((0..20).map(|index| format!("{index},g{index}.weight,15000,15000\n")));
        fs::write(self.path("small.csv"), gradients)?;
        let mut text = fs::read_to_string(self.root.join("configs/cluster.toml"))?;
        for (from, to) in [
            ("workload = \"resnet50\"", "workload = \"small.csv\""),
            ("forward_ms = 30", "forward_ms = 1"),
            ("backward_ms = 60", "backward_ms = 5"),
        ] {
            self.check(text.contains(from), || format!("configs/cluster.toml has no {from}"))?;
            text = text.replace(from, to);
        }
        let path = self.path("cluster.toml");
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// The text, as it can lie in any folder; nobody waits for its timeout.
    fn text_of_faults(&self) -> Result<String, Failure> {
        let text = fs::read_to_string(self.root.join(FAULTS))?;
        let workloads = self.root.join("configs/workloads").display().to_string();
        let text = text.replace("../../../../configs/workloads", &workloads);
        Ok(text.replace("timeout_seconds = 3", "timeout_seconds = 30"))
    }

    /// As [`FAULTS`], of so many blocks, with 24 steps of at least 121 ms in each, however fast the machine
    /// is: for what Slurm gets round to in its own time.
    pub fn longer_config(&self, blocks: usize) -> Result<String, Failure> {
        let text = self.text_of_faults()?;
        let text = text
            .replace("backward_ms = 60", "backward_ms = 120")
            .replace("blocks_min = 3", &format!("blocks_min = {blocks}"))
            .replace("blocks_max = 3", &format!("blocks_max = {blocks}"));
        let path = self.path(&format!("longer-{blocks}.toml"));
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    pub fn check(&self, holds: bool, problem: impl FnOnce() -> String) -> Result<(), Failure> {
        if holds { Ok(()) } else { Err(problem().into()) }
    }

    /// Cancels the jobs of a failed scenario.
    pub fn cancel_all(&self) {
        let _ = self.slurm(&["scancel", "--full", "--signal=KILL", "--user=root"]);
        let _ = self.slurm(&["scancel", "--user=root"]);
        let start = Instant::now();
        let is_busy = || self.slurm(&["squeue", "-h"]).is_ok_and(|jobs| !jobs.trim().is_empty());
        while is_busy() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The disk that was full has room.
    pub fn make_room(&self) -> Result<(), Failure> {
        for node in ["n1", "n2", "n3", "n4"] {
            let path = self.path("full").display().to_string();
            let options = format!("remount,{ENOUGH}");
            self.virtual_cluster(&["exec", node, "mount", "-o", &options, &path])?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(failure) = self.virtual_cluster(&["down"]) {
            eprintln!("{failure}");
        }
        for name in ["read-only", "full"] {
            let _ = umount(&self.path(name));
        }
    }
}

fn said(words: &[&str], output: Output) -> Result<String, Failure> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{words:?} {}: {}", output.status, text(&output.stderr)).into())
    }
}

/// A job that was submitted.
pub struct Job<'c> {
    cluster: &'c Cluster,
    pub id: String,
    pub folder: PathBuf,
}

impl Job<'_> {
    /// The output of the batch script and its steps.
    pub fn output(&self) -> String {
        // Of a job that kolo submitted, the name is that of the batch script.
        let names = [format!("output-{}", self.id), format!("kolo-{}.out", self.id)];
        let texts =
            names.iter().filter_map(|name| fs::read_to_string(self.cluster.path(name)).ok());
        texts.collect()
    }

    fn state(&self) -> Result<String, Failure> {
        let shown = self.shown()?;
        let state = shown.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
        Ok(state.ok_or("scontrol tells no state")?.to_string())
    }

    /// What `scontrol` shows of the job. A client that writes to a connection that the controller
    /// has closed ends by SIGPIPE, and is started again, twice at most.
    fn shown(&self) -> Result<String, Failure> {
        let words = ["scontrol", "--oneliner", "show", "job", &self.id];
        for _ in 0..2 {
            let output = self.cluster.command(&words).output()?;
            if output.status.signal() != Some(Signal::SIGPIPE as i32) {
                return said(&words, output);
            }
        }
        self.cluster.slurm(&words)
    }

    fn failure(&self, problem: &str) -> Failure {
        format!("job {}: {problem}\n{}", self.id, self.output()).into()
    }

    /// Waits until a file of the results has so many lines.
    pub fn waits_for(&self, file: &str, lines: usize, most: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
            if text.lines().count() >= lines {
                return Ok(());
            }
            if start.elapsed() > most {
                return Err(self.failure(&format!("{file} has no {lines} lines after {most:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the job is over, requeues included; returns its state.
    pub fn ends(&self, most: Duration) -> Result<String, Failure> {
        let start = Instant::now();
        loop {
            let state = self.state()?;
            let runs = ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SIGNALING", "CONFIGURING"];
            if !runs.contains(&&*state) {
                return Ok(state);
            }
            if start.elapsed() > most {
                return Err(self.failure(&format!("still {state} after {most:?}")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn ends_with(&self, expected: &str, most: Duration) -> Result<(), Failure> {
        let state = self.ends(most)?;
        if state == expected {
            Ok(())
        } else {
            Err(self.failure(&format!("{state}, expected {expected}")))
        }
    }

    /// Names of the nodes that its results are of, in the order of ranks.
    pub fn folder_nodes(&self) -> Result<Vec<String>, Failure> {
        let text = fs::read_to_string(self.folder.join("provenance.json"))?;
        let provenance: serde_json::Value = serde_json::from_str(&text)?;
        let nodes = provenance["launches"][0]["nodes"].as_array().ok_or("no nodes")?.iter();
        let names = nodes.map(|node| node["machine"]["host"].as_str().map(str::to_string));
        Ok(names.collect::<Option<_>>().ok_or("a node without a name")?)
    }

    /// Names of its nodes.
    pub fn nodes(&self) -> Result<Vec<String>, Failure> {
        let list = self.cluster.slurm(&["squeue", "-h", "-j", &self.id, "-o", "%N"])?;
        let names = self.cluster.slurm(&["scontrol", "show", "hostnames", list.trim()])?;
        Ok(names.lines().map(str::to_string).collect())
    }

    /// Sends a signal to the process of a rank.
    pub fn signal_rank(&self, rank: usize, signal: &str) -> Result<(), Failure> {
        let (job, rank) = (format!("SLURM_JOB_ID={}", self.id), format!("SLURM_PROCID={rank}"));
        // Jobs of several clusters have the same ids.
        let folder = self.cluster.path("cluster").display().to_string();
        let cluster = format!("KOLO_VIRTUAL_CLUSTER={folder}");
        let signal: Signal = format!("SIG{signal}").parse()?;
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let (command, environment) = (read("cmdline"), read("environ"));
            let has = |bytes: &[u8], word: &str| {
                bytes.split(|&byte| byte == 0).any(|one| one == word.as_bytes())
            };
            let is_it = has(&command, env!("CARGO_BIN_EXE_kolo"))
                && has(&command, "--go-on")
                && command.starts_with(env!("CARGO_BIN_EXE_kolo").as_bytes())
                && has(&environment, &cluster)
                && has(&environment, &job)
                && has(&environment, &rank)
                && has(&environment, "SLURM_STEP_ID=0");
            if is_it {
                return Ok(kill(Pid::from_raw(pid), signal)?);
            }
        }
        Err(self.failure(&format!("no process with {rank}")))
    }
}
