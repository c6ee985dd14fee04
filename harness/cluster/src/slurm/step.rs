//! One step of a job: starts all ranks, monitors them, and requests them to stop.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stop::{Reason, Stop};
use results::journal;

/// The file in a folder of results that requests a sweep to end after its current block.
pub const STOP_FILE: &str = "stop";

/// Signals and steps are looked at this often.
const TICK: Duration = Duration::from_millis(50);

/// How often the journal is read: it may be on a shared file system.
const LOOK: Duration = Duration::from_secs(1);

/// How long the driver of a job waits.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a step that is to stop because the time is nearly over.
    pub time_limit: Duration,
    /// For a step that is to stop because the job ends now; Slurm kills it after KillWait (30 s).
    pub terminated: Duration,
    /// Delays before a restart: after a failed step, and after the second consecutive one without a result.
    /// Preemption ends the steps before it signals the batch script, and Slurm needs a while to notice that a node
    /// is down.
    pub restart: [Duration; 2],
}

impl Timeouts {
    /// All timeouts, in proportion to the first.
    pub fn of(time_limit: Duration) -> Timeouts {
        let terminated = time_limit / 3;
        Timeouts { time_limit, terminated, restart: [time_limit / 12, time_limit / 2] }
    }

    fn with(&self, reason: Reason) -> Duration {
        match reason {
            Reason::TimeLimit => self.time_limit,
            Reason::Terminated => self.terminated,
        }
    }
}

/// Runs a step to its end. If the job is to stop, a file in its folder requests that; after the timeout the step
/// is terminated, and some moments later killed. The same happens to a step that the journal records as failed and
/// that does not end, because one of its processes may be stopped forever.
///
/// # Errors
/// When the launcher cannot be started.
pub fn run(
    command: &mut Command,
    folder: &Path,
    stop: &Stop,
    timeout: &Timeouts,
) -> io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::null()).spawn()?;
    let ((earlier, _), mut looked) = (journal::last_launches(folder), Instant::now());
    let (mut asked, mut broke, mut terminated) = (None, None, None);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(reason) = stop.requested() {
            ask_to_stop(folder);
            // A second request may leave less time than the first.
            asked =
                Some((asked.map_or_else(Instant::now, |(since, _)| since), timeout.with(reason)));
        }
        if broke.is_none() && looked.elapsed() > LOOK {
            looked = Instant::now();
            let has_broken = journal::last_launches(folder).1 > earlier;
            broke = has_broken.then_some((looked, timeout.restart[0]));
        }
        let mut ending = asked.into_iter().chain(broke);
        let what = if asked.is_some() { "stop" } else { "end after it broke" };
        let late = ending.find(|(since, most)| since.elapsed() > *most);
        if let (Some((_, most)), None) = (late, terminated) {
            eprintln!(
                "the step did not {what} within {:.1} s and is terminated",
                most.as_secs_f64()
            );
            terminate(&child);
            terminated = Some(Instant::now());
        }
        if terminated.is_some_and(|since| since.elapsed() > timeout.terminated / 2) {
            child.kill()?;
        }
        sleep(TICK);
    }
}

/// A folder that does not exist yet is not created: the step creates it, and the request is made at the next tick.
fn ask_to_stop(folder: &Path) {
    let file = folder.join(STOP_FILE);
    if !folder.is_dir() || file.exists() {
        return;
    }
    if let Err(error) = fs::write(&file, "") {
        eprintln!("{}: {error}; the step cannot be asked to stop", file.display());
    }
}

fn terminate(child: &Child) {
    // It was not waited for yet, so its number is still its own.
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
}

/// Waits, unless the job is to stop.
pub fn pause(time: Duration, stop: &Stop) {
    let start = Instant::now();
    while start.elapsed() < time && stop.requested().is_none() {
        sleep(TICK.min(time));
    }
}

/// A status as text.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}
