//! The command lines that submit a sweep and start its ranks.

use std::path::Path;

use super::hostlist;
use super::site::{CpuBind, Launcher, Library, Site};

/// The layout of ranks on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Ranks on each.
    pub ranks_per_node: usize,
}

impl Shape {
    /// Ranks of all nodes.
    pub fn ranks(self) -> usize {
        self.nodes * self.ranks_per_node
    }
}

/// Submits the batch script.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// Ranks on nodes.
    pub shape: Shape,
    /// Time limit as Slurm writes it.
    pub time: &'a str,
    /// The job after whose end, however it ends, this one may start.
    pub after: Option<&'a str>,
    /// The batch script.
    pub script: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
}

/// The command that submits.
pub fn sbatch(site: &Site, submission: &Submission<'_>) -> Vec<String> {
    let Submission { name, shape, time, after, script, arguments } = submission;
    let mut command = vec![
        "sbatch".to_string(),
        "--parsable".into(),
        format!("--job-name={name}"),
        format!("--nodes={}", shape.nodes),
        format!("--time={time}"),
    ];
    command.extend(after.map(|job| format!("--dependency=afterany:{job}")));
    // If ranks share CPUs, only the step's options have their number.
    if !site.overcommit {
        command.push(format!("--ntasks-per-node={}", shape.ranks_per_node));
        command.push(format!("--cpus-per-task={}", site.cpus_per_rank));
    }
    command.extend(gpus(site));
    for (option, value) in
        [("partition", &site.partition), ("account", &site.account), ("qos", &site.qos)]
    {
        command.extend(value.iter().map(|value| format!("--{option}={value}")));
    }
    command.extend(site.sbatch.clone());
    command.push(script.display().to_string());
    command.extend_from_slice(arguments);
    command
}

/// The command that starts `program` as ranks within a job: on these nodes, or, while they are unknown (the list
/// is empty), on as many as in `shape`.
pub fn step(site: &Site, shape: Shape, nodes: &[String], program: &[String]) -> Vec<String> {
    let mut command = match site.launcher {
        Launcher::Srun => srun(site, shape, nodes),
        Launcher::Mpirun => mpirun(site, shape, nodes),
    };
    command.extend_from_slice(program);
    command
}

fn srun(site: &Site, shape: Shape, nodes: &[String]) -> Vec<String> {
    let mut command = vec![
        "srun".to_string(),
        format!("--nodes={}", shape.nodes),
        format!("--ntasks={}", shape.ranks()),
        format!("--ntasks-per-node={}", shape.ranks_per_node),
        format!("--cpus-per-task={}", site.cpus_per_rank),
        format!("--mpi={}", site.mpi_plugin.name()),
        format!("--cpu-bind={}", site.cpu_bind.name()),
        "--distribution=block:block".into(),
        // The other ranks name a failed one and exit by themselves; Slurm would end them before their message.
        // Processes that outlive the first by a minute are killed.
        "--kill-on-bad-exit=0".into(),
        "--wait=60".into(),
        // A step that a dead node keeps from ending holds its resources.
        "--overlap".into(),
        "--export=ALL".into(),
    ];
    if site.overcommit {
        command.push("--overcommit".into());
    }
    if site.gpus_per_node > 0 {
        command.extend(gpus(site));
        // A rank that sees one device alone cannot reach its neighbours' memory.
        command.push("--gpu-bind=none".into());
    }
    if !nodes.is_empty() {
        command.push(format!("--nodelist={}", hostlist::compress(nodes)));
    }
    command
}

fn mpirun(site: &Site, shape: Shape, nodes: &[String]) -> Vec<String> {
    let (ranks, here) = (shape.ranks().to_string(), shape.ranks_per_node);
    let bind = match site.cpu_bind {
        CpuBind::Cores => "core",
        CpuBind::None => "none",
    };
    let with_slots = |name: &String| format!("{name}:{here}");
    let mut command = vec!["mpirun".to_string(), "-np".into(), ranks];
    match site.mpi {
        Library::Openmpi => {
            command.extend(["--map-by".into(), format!("ppr:{here}:node")]);
            command.extend(["--bind-to".into(), bind.into()]);
            if site.overcommit {
                command.push("--oversubscribe".into());
            }
            if !nodes.is_empty() {
                let hosts: Vec<_> = nodes.iter().map(with_slots).collect();
                command.extend(["--host".into(), hosts.join(",")]);
            }
        }
        Library::Mpich => {
            command.extend(["-ppn".into(), here.to_string()]);
            command.extend(["-bind-to".into(), bind.into()]);
            if !nodes.is_empty() {
                command.extend(["-hosts".into(), nodes.join(",")]);
            }
        }
    }
    command
}

fn gpus(site: &Site) -> Option<String> {
    (site.gpus_per_node > 0).then(|| format!("--gpus-per-node={}", site.gpus_per_node))
}

/// A command as a shell takes it.
pub fn line<Word: AsRef<str>>(command: &[Word]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { nodes: 2, ranks_per_node: 4 };

    fn step_line(site: &Site, nodes: &[&str]) -> String {
        let nodes: Vec<String> = nodes.iter().map(|&name| name.into()).collect();
        line(&step(site, SHAPE, &nodes, &["kolo".into(), "a b".into()]))
    }

    #[test]
    fn a_step_has_all_options_it_needs() {
        let site = Site { cpus_per_rank: 2, ..Site::default() };
        assert_eq!(
            step_line(&site, &[]),
            "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=2 --mpi=pmix \
             --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=0 --wait=60 --overlap \
             --export=ALL kolo 'a b'"
        );
        let site = Site { overcommit: true, gpus_per_node: 4, ..site };
        assert!(step_line(&site, &["n1", "n2"]).ends_with(
            "--overcommit --gpus-per-node=4 --gpu-bind=none '--nodelist=n[1-2]' kolo 'a b'"
        ));
    }

    /// With a GPU per rank, nodes have as many GPUs as ranks, and every rank sees all GPUs of its node.
    #[test]
    fn ranks_with_gpus_see_their_neighbours() {
        let site = Site::default().with_gpus(SHAPE.ranks_per_node);
        assert!(
            step_line(&site, &[]).ends_with("--gpus-per-node=4 --gpu-bind=none kolo 'a b'"),
            "{}",
            step_line(&site, &[])
        );
        assert!(!step_line(&site, &[]).contains("--gpus-per-task"));
        let submission = Submission {
            name: "kolo-nccl",
            shape: SHAPE,
            time: "10",
            after: None,
            script: Path::new("slurm/sweep.sh"),
            arguments: &[],
        };
        assert!(line(&sbatch(&site, &submission)).contains(" --gpus-per-node=4 "));
        let site = Site { gpus_per_node: 8, ..Site::default() }.with_gpus(4);
        assert!(step_line(&site, &[]).contains("--gpus-per-node=8 --gpu-bind=none"));
    }

    #[test]
    fn mpirun_gets_the_options_of_its_library() {
        let site = Site { launcher: Launcher::Mpirun, overcommit: true, ..Site::default() };
        assert_eq!(
            step_line(&site, &["n1", "n3"]),
            "mpirun -np 8 --map-by ppr:4:node --bind-to core --oversubscribe --host n1:4,n3:4 \
             kolo 'a b'"
        );
        let site = Site { mpi: Library::Mpich, cpu_bind: CpuBind::None, ..site };
        assert_eq!(
            step_line(&site, &["n1", "n3"]),
            "mpirun -np 8 -ppn 4 -bind-to none -hosts n1,n3 kolo 'a b'"
        );
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = ["a=b", "", "it's", "$HOME `x` \"y\"", "n[1-2]", "a\nb", "\\", "č"];
        let script = format!("printf '%s|' {}", line(&words));
        let shell = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(shell.stdout).unwrap(), words.join("|") + "|");
        assert!(line(&words).starts_with("a=b '' 'it'"));
    }

    #[test]
    fn a_submission_has_the_options_of_the_site() {
        let submission = Submission {
            name: "kolo-quick",
            shape: SHAPE,
            time: "00:30:00",
            after: None,
            script: Path::new("slurm/sweep.sh"),
            arguments: &["configs/quick.toml".into()],
        };
        assert_eq!(
            line(&sbatch(&Site::default(), &submission)),
            "sbatch --parsable --job-name=kolo-quick --nodes=2 --time=00:30:00 \
             --ntasks-per-node=4 --cpus-per-task=1 slurm/sweep.sh configs/quick.toml"
        );
        let site = Site {
            overcommit: true,
            gpus_per_node: 8,
            partition: Some("gpu".into()),
            account: Some("abc".into()),
            sbatch: vec!["--constraint=a100&nvlink".into()],
            ..Site::default()
        };
        assert_eq!(
            line(&sbatch(&site, &submission)),
            "sbatch --parsable --job-name=kolo-quick --nodes=2 --time=00:30:00 \
             --gpus-per-node=8 --partition=gpu --account=abc '--constraint=a100&nvlink' \
             slurm/sweep.sh configs/quick.toml"
        );
    }
}
