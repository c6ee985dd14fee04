//! A small sweep in a folder of its own, and the binary to run it with.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use nix::sys::signal::Signal;

use crate::build;

/// Six gradients of a model that is trained nowhere.
const GRADIENTS: &str = "index,name,shape,elements\n0,a.weight,40x25,1000\n1,a.bias,25,25\n\
                         2,b.weight,300x7,2100\n3,b.bias,7,7\n4,c.weight,1,1\n5,c.bias,64x64,4096\n";
const READY: &str = "ready,index,name,elements,bwd_flop_frac\n0,5,c.bias,4096,0.1\n\
                     1,4,c.weight,1,0.1\n2,3,b.bias,7,0.4\n3,2,b.weight,2100,0.6\n\
                     4,1,a.bias,25,0.9\n5,0,a.weight,1000,1.0\n";
const CONFIG: &str = r#"
workload = "tiny.csv"
[step]
forward_ms = 0.2
backward_ms = 1.5
optimizer_ms = 0.1
[sweep]
topology = ["2x2"]
control_plane = ["coordinator", "bitvector"]
algorithm = ["ring", "grouped"]
fusion_threshold_mib = [0.01, 64]
cycle_time_ms = [0.5]
groups = 2
[measure]
warmup_steps = 1
steps_per_block = 3
blocks_min = 2
blocks_max = 2
interval_percent = 0
seed = 7
"#;

pub struct Sweep {
    pub folder: tempfile::TempDir,
}

impl Sweep {
    /// The small sweep, with some text of its configuration replaced.
    pub fn new(changes: &[(&str, &str)]) -> Sweep {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tiny.csv"), GRADIENTS).unwrap();
        fs::write(folder.path().join("tiny.ready.csv"), READY).unwrap();
        let sweep = Sweep { folder };
        sweep.configure(changes);
        sweep
    }

    pub fn configure(&self, changes: &[(&str, &str)]) {
        let mut config = CONFIG.to_string();
        for (from, to) in changes {
            assert!(config.contains(from), "{from}");
            config = config.replace(from, to);
        }
        fs::write(self.path("test.toml"), config).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `kolo sweep test.toml --out out --no-figures`, and more arguments.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = kolo(&["sweep", "test.toml", "--out", "out", "--no-figures"]);
        command.args(more).current_dir(self.folder.path());
        command
    }

    /// Runs the sweep until a file reaches this size: the kernel then kills it within that write, by a signal.
    #[track_caller]
    pub fn killed_at_file_size(&self, kib: usize) {
        let sweep = self.command(&[]);
        let mut limited = Command::new("bash");
        let script = format!("ulimit -c 0; ulimit -f {kib}; exec \"$0\" \"$@\"");
        limited.args(["-c", &script]).arg(sweep.get_program()).args(sweep.get_args());
        let output = limited.current_dir(self.folder.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(Signal::SIGXFSZ as i32), "{kib} KiB: {stderr}");
    }

    pub fn run(&self, more: &[&str]) -> Ended {
        Ended::of(&mut self.command(more))
    }

    /// Rows by column name.
    pub fn rows(&self) -> Vec<std::collections::HashMap<String, String>> {
        let mut reader = csv::Reader::from_path(self.path("out/rows.csv")).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    }
}

pub fn kolo(arguments: &[&str]) -> Command {
    let mut command = Command::new(build::program());
    command.args(arguments);
    let set = env::vars_os().map(|(name, _)| name);
    let of_horovod = set.filter(|name| name.to_string_lossy().starts_with("HOROVOD_"));
    for name in of_horovod {
        command.env_remove(name);
    }
    command
}

/// How a command ended, in text.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(command: &mut Command) -> Ended {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Ended { status: output.status.code(), stdout, stderr }
    }

    /// The command ended with this status and printed this on stderr.
    #[track_caller]
    pub fn says(&self, status: i32, expected: &str) {
        assert!(self.stderr.contains(expected), "{}\nexpected {expected}", self.stderr);
        assert_eq!(self.status, Some(status), "{}", self.stderr);
    }
}
