//! Where a run's numbers come from, and how to repeat it.

use results::command::{OF_A_LAUNCH, OF_RESULTS, without};
use results::inputs;
use results::provenance::{Launch, Machine};
use serde::Serialize;

use crate::run::Run;

/// How the names of variables begin that a job's scheduler sets.
const OF_JOBS: &str = "SLURM_";

/// The origin of a run.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// The run, as the user gave it.
    pub run: String,
    /// Its launches.
    pub launches: Vec<Facts>,
    /// Lines that repeat the run, as its first launch began it; none without a provenance.
    pub repeat: Vec<String>,
    /// The configuration in effect, as JSON.
    pub config: String,
}

/// One launch, as names and values.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// When it started.
    pub started: String,
    /// Names and values that are known.
    pub facts: Vec<(&'static str, String)>,
    /// Variables that the scheduler set.
    pub job: Vec<String>,
    /// Files that it read: path, origin, fingerprint.
    pub inputs: Vec<[String; 3]>,
}

impl Origin {
    /// The origin of a run.
    pub fn of(run: &Run) -> Origin {
        Origin {
            run: run.path.display().to_string(),
            launches: run.launches.iter().map(Facts::of).collect(),
            repeat: run.launches.first().map(repeat).unwrap_or_default(),
            config: run.config.clone(),
        }
    }
}

impl Facts {
    fn of(launch: &Launch) -> Facts {
        let (job, own): (Vec<_>, Vec<_>) =
            launch.environment.iter().partition(|(name, _)| name.starts_with(OF_JOBS));
        let variable = |(name, value): &(String, String)| format!("{name}={value}");
        let links = launch.links_gbit_s.iter().map(|rate| format!("{rate:.1}"));
        let libraries = launch.nodes.iter().map(|node| node.library.clone());
        let auto = launch.auto.iter().map(|(topology, table)| {
            let choices = table.iter().map(|(bytes, name)| format!("{name} from {bytes} B"));
            format!("{topology}: {}", list(choices, ", "))
        });
        let facts = vec![
            ("command", command(&launch.command)),
            ("commit", launch.commit.clone()),
            ("version", launch.version.clone()),
            ("build", launch.build.clone()),
            ("started", launch.started.clone()),
            ("ended", launch.ended.clone().unwrap_or_default()),
            ("machine", machine(&launch.machine)),
            ("nodes", list(launch.nodes.iter().map(|node| node.machine.host.clone()), ", ")),
            ("MPI library", distinct(libraries)),
            ("bandwidth to other nodes (Gbit/s)", list(links, ", ")),
            ("GPUs", list(launch.gpus.iter().cloned(), "; ")),
            ("algorithms of auto", list(auto, "; ")),
            ("environment", list(own.into_iter().map(variable), "\n")),
            ("replaced values", list(launch.overrides.iter().map(ToString::to_string), "\n")),
        ];
        let inputs = launch.inputs.iter().map(|input| {
            let origin = match input.origin {
                inputs::Origin::Disk => "disk",
                inputs::Origin::Embedded => "embedded",
            };
            [input.path.display().to_string(), origin.into(), input.fnv1a.clone()]
        });
        Facts {
            started: launch.started.clone(),
            facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            job: job.into_iter().map(variable).collect(),
            inputs: inputs.collect(),
        }
    }
}

fn machine(machine: &Machine) -> String {
    let Machine { host, cpu, cores, memory_bytes, kernel, clock_source, frequency_governor } =
        machine;
    let memory =
        memory_bytes.map_or(String::new(), |bytes| format!(", {:.1} GB", bytes as f64 / 1e9));
    let governor =
        frequency_governor.as_ref().map_or(String::new(), |it| format!(", governor {it}"));
    let cores = if *cores == 1 { "1 core".to_string() } else { format!("{cores} cores") };
    match cpu.is_empty() {
        true => String::new(),
        false => format!(
            "{host}: {cpu}, {cores}{memory}, Linux {kernel}, clock {clock_source}{governor}"
        ),
    }
}

fn list(items: impl Iterator<Item = String>, between: &str) -> String {
    items.collect::<Vec<_>>().join(between)
}

fn distinct(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.filter(|item| !item.is_empty()).collect();
    items.sort();
    items.dedup();
    items.join("; ")
}

/// The lines that build the same program and run it again in the same environment.
fn repeat(launch: &Launch) -> Vec<String> {
    if launch.command.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let commit = launch.commit.trim_end_matches("-dirty");
    if !commit.is_empty() && commit != "unknown" {
        lines.push(format!("git checkout {commit}"));
        let features = if launch.nodes.is_empty() { "" } else { " --features mpi" };
        lines.push(format!("cargo build --release{features}"));
    }
    // A job's own variables are those of its scheduler.
    let variables = launch.environment.iter().filter(|(name, _)| !name.starts_with(OF_JOBS));
    lines.extend(variables.map(|(name, value)| format!("export {name}={}", quoted(value))));
    lines.push(started(launch));
    lines
}

/// The command that starts a launch again, with a new folder of results.
fn started(launch: &Launch) -> String {
    let words: Vec<String> =
        without(launch.command.iter().cloned(), &OF_RESULTS, &OF_A_LAUNCH).collect();
    let processes: usize = launch.nodes.iter().map(|node| node.ranks.len()).sum();
    if processes == 0 {
        return command(&words);
    }
    let nodes = launch.nodes.len();
    let is_job = launch.environment.iter().any(|(name, _)| name == "SLURM_JOB_ID");
    let is_driven = launch.command.iter().any(|word| word == "--until" || word == "--go-on");
    if !is_job {
        return format!("mpirun -n {processes} {}", command(&words));
    }
    if !is_driven {
        return format!("srun --nodes={nodes} --ntasks={processes} {}", command(&words));
    }
    // The batch script adds the nodes and the ranks of the job, and MPI if no other transport is asked for.
    let own = without(words.into_iter().skip(2), &["--nodes", "--ranks-per-node"], &[]);
    let own = command(&own.collect::<Vec<_>>()).replace(" --transport mpi", "");
    let ranks = processes / nodes;
    format!("sbatch --nodes={nodes} --ntasks-per-node={ranks} slurm/sweep.sh {own}")
}

/// A command as one types it.
fn command(words: &[String]) -> String {
    list(words.iter().map(|word| quoted(word)), " ")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::provenance::NodeFacts;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let words = ["kolo", "sweep", "my file.toml", "it's", ""].map(String::from);
        assert_eq!(command(&words), r"kolo sweep 'my file.toml' 'it'\''s' ''");
    }

    #[test]
    fn a_launch_is_repeated_with_its_commit_and_variables() {
        let launch = Launch {
            commit: "abc-dirty".into(),
            command: vec!["kolo".into(), "sweep".into(), "quick".into()],
            environment: vec![
                ("HOROVOD_CYCLE_TIME".into(), "5".into()),
                ("SLURM_JOB_ID".into(), "7".into()),
            ],
            ..Launch::default()
        };
        assert_eq!(
            repeat(&launch),
            [
                "git checkout abc",
                "cargo build --release",
                "export HOROVOD_CYCLE_TIME=5",
                "kolo sweep quick"
            ]
        );
        let node = NodeFacts { ranks: vec![(0, vec![0]), (1, vec![1])], ..NodeFacts::default() };
        let job = Launch { nodes: vec![node.clone(), node], ..launch };
        let lines = repeat(&job);
        assert_eq!(lines[1], "cargo build --release --features mpi");
        assert_eq!(lines[3], "srun --nodes=2 --ntasks=4 kolo sweep quick");
        let by_hand = Launch { environment: Vec::new(), ..job.clone() };
        assert_eq!(repeat(&by_hand)[2], "mpirun -n 4 kolo sweep quick");
        // As the driver of a job starts it, for a time that is over.
        let words = "target/release/kolo sweep configs/cluster.toml --out results/a --go-on --transport mpi --nodes 2 \
                     --ranks-per-node 2 --until 1795596355 --budget 1440s";
        let driven = |words: &str| {
            let command = words.split(' ').map(String::from).collect();
            repeat(&Launch { command, ..job.clone() }).remove(3)
        };
        let line = "sbatch --nodes=2 --ntasks-per-node=2 slurm/sweep.sh configs/cluster.toml";
        assert_eq!(driven(words), format!("{line} --budget 1440s"));
        let gpus = words.replace("--transport mpi", "--transport nccl");
        assert_eq!(driven(&gpus), format!("{line} --transport nccl --budget 1440s"));
        assert_eq!(repeat(&Launch::default()), Vec::<String>::new());
    }
}
