//! A Slurm made of shell scripts: each records its call and answers as a test requires.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::build;

/// The head of every script. It creates a step's `--out`, as the sweep does.
const HEAD: &str = r#"#!/bin/sh
name=$(basename "$0")
fake=$(dirname "$0")/..
echo "$name $*" >> "$fake/log"
out=
before=
for word in "$@"; do
    [ "$before" = --out ] && out=$word
    before=$word
done
add() { mkdir -p "$out"; i=0; while [ $i -lt "$1" ]; do echo line >> "$out/rows.csv"; i=$((i + 1)); done; }
launched() { mkdir -p "$out"; echo "{\"launches\": [{\"ended\": $1}]}" > "$out/provenance.json"; }
until_stopped() { i=0; while [ ! -e "$out/stop" ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done; }
"#;

pub struct Fakes {
    pub folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Fakes {
    /// A cluster of two nodes, whose steps do this; `$n` is the number of the step.
    pub fn new(step: &str) -> Fakes {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let fakes = Fakes { folder, environment: Vec::new() };
        fakes.script("sbatch", "env > \"$fake/environment\"; echo 4711");
        fakes.script("squeue", "echo N/A");
        fakes.script(
            "sinfo",
            "case \"$*\" in *-N*) cat \"$fake/nodes\" 2>/dev/null ;;\n\
             *) echo 'all*|up|0/2/0/2|4|(null)' ;; esac; exit 0",
        );
        fakes.script(
            "scontrol",
            "case \"$*\" in\n\
             *'show job'*) echo \"JobId=12 Requeue=${REQUEUE-1}\" ;;\n\
             *'show config') echo 'JobRequeue = 1'; echo 'PreemptMode = CANCEL' ;;\n\
             *'show partition') echo 'PartitionName=all AllowAccounts=ALL AllowQos=ALL \
             MaxTime=UNLIMITED' ;;\nesac",
        );
        fakes.script(
            "srun",
            &format!(
                "case \"$*\" in --mpi=list)\n\
                 printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n'; exit 0 ;;\nesac\n\
                 env > \"$fake/environment\"\nn=$(grep -c '^srun --nodes' \"$fake/log\")\n{step}"
            ),
        );
        fakes
    }

    pub fn script(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("{HEAD}{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file's text without the folder's own path.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn set(mut self, name: &str, value: &str) -> Fakes {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Within job 12 on these nodes.
    pub fn in_job(self, nodes: &str) -> Fakes {
        self.set("SLURM_JOB_ID", "12").set("SLURM_JOB_NODELIST", nodes)
    }

    /// How a client was called, each time.
    pub fn calls(&self, client: &str) -> Vec<String> {
        let log = self.read("log");
        let calls = log.lines().filter_map(|line| line.strip_prefix(client)?.strip_prefix(' '));
        calls.map(str::to_string).collect()
    }

    /// How steps were started, the program left out.
    pub fn steps(&self) -> Vec<String> {
        let steps = self.calls("srun").into_iter();
        let steps = steps.filter(|call| call.starts_with("--nodes"));
        steps.map(|call| call.split_once(" /").unwrap().0.to_string()).collect()
    }

    /// A command in the repository that sees these fakes, and no real Slurm.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(root()).stdin(Stdio::null());
        for (name, _) in env::vars() {
            if ["SLURM_", "SBATCH_", "HOROVOD_", "KOLO_"].iter().any(|of| name.starts_with(of)) {
                command.env_remove(name);
            }
        }
        let path = format!("{}:{}", self.path("bin").display(), env::var("PATH").unwrap());
        command.env("PATH", path).envs(self.environment.clone());
        command
    }

    pub fn kolo(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(build::program()).args(arguments).output().unwrap())
    }

    /// `kolo sweep --slurm configs/quick.toml --out out`, with so much timeout.
    pub fn sweep(&self, timeout_seconds: &str) -> Command {
        let mut command = self.command(build::program());
        command.args([
            "sweep",
            "--slurm",
            "configs/quick.toml",
            "--timeout-seconds",
            timeout_seconds,
        ]);
        command.arg("--out").arg(self.path("out"));
        command
    }

    pub fn drive(&self) -> Ended {
        Ended::of(self.sweep("0.6").output().unwrap())
    }

    /// Drives until the step has begun.
    pub fn begin(&self, timeout_seconds: &str) -> Child {
        let mut command = self.sweep(timeout_seconds);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while !self.path("begun").exists() {
            assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
            assert!(start.elapsed() < Duration::from_secs(60), "no step has begun");
            sleep(Duration::from_millis(10));
        }
        child
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// How a command ended, in text.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Ended { status: output.status.code(), stdout, stderr }
    }

    /// The command ended with this status and printed this.
    #[track_caller]
    pub fn says(&self, status: i32, expected: &str) {
        let said = format!("{}{}", self.stdout, self.stderr);
        assert!(said.contains(expected), "{said}\nexpected {expected}");
        assert_eq!(self.status, Some(status), "{said}");
    }
}
