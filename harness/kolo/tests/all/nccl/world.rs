//! Processes that are started together, as a launcher would.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::nccl::processor::compiled;

/// The limit after which a process is considered hung.
const LONGEST: Duration = Duration::from_secs(300);

/// Libraries, variables, and a folder for output.
pub struct World {
    libraries: PathBuf,
    variables: Vec<(String, String)>,
    written: TempDir,
}

/// How a process ended; none if it did not, or was killed.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub said: String,
    pub complained: String,
}

impl World {
    /// With both libraries; none without a compiler.
    pub fn new() -> Option<World> {
        static LIBRARIES: OnceLock<Option<PathBuf>> = OnceLock::new();
        let compile = || {
            let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all");
            compiled(&tests.join("cuda/driver.cpp"), "libcuda.so.1")?;
            let nccl = compiled(&tests.join("nccl/nccl.cpp"), "libnccl.so.2")?;
            nccl.parent().map(PathBuf::from)
        };
        let libraries = LIBRARIES.get_or_init(compile).clone()?;
        let written = tempfile::tempdir().unwrap();
        Some(World { libraries, variables: Vec::new(), written }.with("POSING_GPUS", "4"))
    }

    /// The same with a variable set.
    pub fn with(mut self, name: &str, value: &str) -> World {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The same without NCCL.
    pub fn without_nccl(mut self) -> World {
        let driver = self.written.path().join("libcuda.so.1");
        std::fs::copy(self.libraries.join("libcuda.so.1"), driver).unwrap();
        self.libraries = self.written.path().into();
        self
    }

    /// The same with NVML.
    pub fn with_nvml(mut self) -> World {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/cuda/nvml.cpp");
        let nvml = compiled(&source, "nvml-posing.so").expect("a compiler, as for the others");
        std::fs::copy(nvml, self.written.path().join("libnvidia-ml.so.1")).unwrap();
        for name in ["libcuda.so.1", "libnccl.so.2"] {
            std::fs::copy(self.libraries.join(name), self.written.path().join(name)).unwrap();
        }
        self.libraries = self.written.path().into();
        self
    }

    /// A path in the output folder.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.written.path().join(name)
    }

    fn with_variables(&self, mut command: Command) -> Command {
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command.env("POSING_FOLDER", self.written.path());
        command.envs(self.variables.iter().cloned()).stdin(Stdio::null());
        command
    }

    fn start(&self, name: &str, mut command: Command) -> Child {
        let file = |end: &str| File::create(self.folder(&format!("{name}.{end}"))).unwrap();
        command.stdout(file("out")).stderr(file("err")).spawn().unwrap()
    }

    /// `kolo bench` as several processes, all of which end.
    pub fn bench(&self, ranks: usize, more: &[&str]) -> Vec<Ended> {
        self.some_of(ranks, &(0..ranks).collect::<Vec<_>>(), None, more)
    }

    /// The same with some of the processes only; one of them may hang, and is killed after all others have ended.
    pub fn some_of(
        &self,
        ranks: usize,
        started: &[usize],
        stuck: Option<usize>,
        more: &[&str],
    ) -> Vec<Ended> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let start = |&rank: &usize| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
            command.args(["bench", "--transport", "nccl"]).args(more);
            let mut command = self.with_variables(command);
            command.env("SLURM_PROCID", rank.to_string());
            command.env("SLURM_STEP_NUM_TASKS", ranks.to_string());
            command.env("KOLO_RENDEZVOUS", &free);
            (rank, self.start(&rank.to_string(), command))
        };
        let mut children: Vec<_> = started.iter().map(start).collect();
        let begun = Instant::now();
        let mut waits = true;
        while waits {
            std::thread::sleep(Duration::from_millis(5));
            let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
            waits =
                children.iter_mut().any(|(rank, child)| stuck != Some(*rank) && !is_over(child))
                    && begun.elapsed() < LONGEST;
        }
        children.iter_mut().map(|(rank, child)| self.end(&rank.to_string(), child)).collect()
    }

    /// `kolo bench` as one process without a launcher.
    pub fn alone(&self, more: &[&str]) -> Ended {
        self.kolo(&[&["bench", "--transport", "nccl"], more].concat())
    }

    /// `kolo bench` as several ranks that a script starts.
    pub fn launched(&self, ranks: usize, more: &[&str]) -> Ended {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/ranks.sh");
        let kolo = Path::new(env!("CARGO_BIN_EXE_kolo"));
        let mut command = Command::new("sh");
        command.arg(script).arg(ranks.to_string()).arg(kolo).args(["bench", "--transport", "nccl"]);
        command.args(more);
        self.ended(command)
    }

    /// One process.
    pub fn kolo(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kolo"));
        command.args(arguments);
        self.ended(command)
    }

    /// A command that ends.
    pub fn ended(&self, command: Command) -> Ended {
        let mut child = self.start("alone", self.with_variables(command));
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end("alone", &mut child)
    }

    fn end(&self, name: &str, child: &mut Child) -> Ended {
        let ended = child.try_wait().unwrap();
        if ended.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let read =
            |end: &str| std::fs::read_to_string(self.folder(&format!("{name}.{end}"))).unwrap();
        let status = ended.and_then(|status| status.code());
        Ended { status, said: read("out"), complained: read("err") }
    }
}
