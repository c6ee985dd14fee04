//! A command with a time limit, ended with all its children.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use thiserror::Error;

/// How long processes have to end by themselves.
const GRACE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(10);

/// Why a command has no output.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It cannot be started.
    #[error("{program} cannot be started: {cause}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// It failed.
    #[error("{status}; {said}")]
    Status {
        /// How it ended.
        status: ExitStatus,
        /// What it said about that.
        said: String,
    },
    /// It did not end.
    #[error("no result after {} s; {said}", limit.as_secs())]
    Late {
        /// The limit.
        limit: Duration,
        /// The end of its output.
        said: String,
    },
}

/// Runs a command; returns its output.
///
/// # Errors
/// When it cannot be started, fails, or takes longer than the limit.
pub fn output(
    command: &[String],
    variables: &[(String, Option<String>)],
    log: &Path,
    limit: Duration,
) -> Result<String, ProcessError> {
    let mut process = Process::start(command, variables, log)?;
    let status = process.wait(limit)?;
    if status.success() { Ok(process.text()) } else { Err(process.failure(status)) }
}

/// A command that runs in a process group of its own, with stdout and stderr in one file. The group is ended with it.
pub struct Process {
    program: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        command: &[String],
        variables: &[(String, Option<String>)],
        log: &Path,
    ) -> Result<Process, ProcessError> {
        let program = command[0].clone();
        let start_error = |cause| ProcessError::Start { program: program.clone(), cause };
        let out = File::create(log).map_err(start_error)?;
        let err = out.try_clone().map_err(start_error)?;
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        // An interrupted comparison leaves nobody behind: the launcher is told to end, and ends its ranks.
        // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
        unsafe {
            process.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?));
        }
        let child = process.spawn().map_err(start_error)?;
        Ok(Process { program, child, log: log.into() })
    }

    /// Waits until the condition of its output holds, and returns that.
    ///
    /// # Errors
    /// When it ends before, or takes longer than the limit.
    pub fn wait_for(
        &mut self,
        limit: Duration,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<String, ProcessError> {
        let start = Instant::now();
        loop {
            let ended = self.status()?;
            let text = self.text();
            match ended {
                _ if is_there(&text) => return Ok(text),
                Some(status) => return Err(self.failure(status)),
                None if start.elapsed() > limit => {
                    return Err(ProcessError::Late { limit, said: said(&text) });
                }
                None => std::thread::sleep(NAP),
            }
        }
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it takes longer than the limit.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, ProcessError> {
        let group = self.group();
        let start = Instant::now();
        let mut asked_to_end = None;
        let status = loop {
            match self.status()? {
                Some(status) => break status,
                None => std::thread::sleep(NAP),
            }
            let elapsed = start.elapsed();
            if elapsed > limit && asked_to_end.is_none() {
                let _ = killpg(group, Signal::SIGTERM);
                asked_to_end = Some(elapsed);
            }
            if asked_to_end.is_some_and(|asked| elapsed > asked + GRACE) {
                let _ = killpg(group, Signal::SIGKILL);
            }
        };
        let late = || ProcessError::Late { limit, said: said(&self.text()) };
        if asked_to_end.is_some() { Err(late()) } else { Ok(status) }
    }

    /// How it ended, if it has.
    fn status(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        let program = &self.program;
        let error = |cause| ProcessError::Start { program: program.clone(), cause };
        self.child.try_wait().map_err(error)
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// What it has written.
    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn failure(&self, status: ExitStatus) -> ProcessError {
        ProcessError::Status { status, said: said(&self.text()) }
    }
}

impl Drop for Process {
    /// It is asked to end, and may end its own processes. Whatever it has left behind ends, too.
    fn drop(&mut self) {
        let start = Instant::now();
        let _ = killpg(self.group(), Signal::SIGTERM);
        while matches!(self.status(), Ok(None)) && start.elapsed() < GRACE {
            std::thread::sleep(NAP);
        }
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The line that tells why, as launchers write it, or the last one.
fn said(output: &str) -> String {
    const TELLING: [&str; 4] = ["noticed that process rank", "kolo: ", "Error: ", "error: "];
    let is_rule = |line: &&str| line.chars().all(|c| c == '-');
    let lines = || output.lines().map(str::trim).filter(|line| !is_rule(line));
    let telling = TELLING.iter().find_map(|part| lines().find(|line| line.contains(part)));
    let line = telling.or_else(|| lines().next_back()).unwrap_or("no output");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> Result<String, ProcessError> {
        let folder = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", script].map(str::to_string);
        let variables = [("GIVEN".to_string(), Some("7".to_string())), ("HOME".to_string(), None)];
        output(&command, &variables, &folder.path().join("log"), limit)
    }

    #[test]
    fn output_is_that_of_both_streams_and_variables_are_given_and_taken() {
        let said = run("echo $GIVEN ${HOME:-none}; echo below >&2", Duration::from_secs(60));
        assert_eq!(said.unwrap(), "7 none\nbelow\n");
    }

    #[test]
    fn failures_say_what_the_launcher_said() {
        let script =
            "echo 'mpirun noticed that process rank 1 with PID 7 exited'; echo bye; exit 3";
        let error = run(script, Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("exit status: 3; mpirun noticed that process rank 1"), "{error}");
        let script = "echo '-----'; echo 'one process returned 3'; echo '-----'; exit 3";
        let error = run(script, Duration::from_secs(60)).unwrap_err().to_string();
        assert_eq!(error, "exit status: 3; one process returned 3");
    }

    #[test]
    fn a_late_command_ends_with_its_children() {
        let error = run("echo before; sleep 1000 & wait", Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().starts_with("no result after 0 s; before"), "{error}");
    }
}
