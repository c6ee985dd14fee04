//! The work of the batch script: it runs the sweep as one step over the whole job, and restarts a failed step
//! without nodes that are down, until all cases are done, restarts have no effect, or the job's time limit is
//! reached.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::ask::ask;
use super::hostlist;
use super::job::{Job, field};
use super::launch::{Shape, line, step as step_command};
use super::progress::Progress;
use super::site::Site;
use super::step::{self, STOP_FILE, Timeouts};
use super::stop::{Reason, Stop};

/// Consecutive steps without a result after which no further one is started. The third step records a case that
/// has failed two steps.
pub const FRUITLESS_STEPS: usize = 3;

/// How often a job requeues itself at its time limit.
pub const MOST_REQUEUES: u32 = 3;

/// Option for a sweep whose previous step failed.
const AFTER_BREAK: &str = "--after-break";

/// Option of a sweep that measures cases again that have failed; the first step of a job does so.
pub const RETRY: &str = "--retry-failed";

/// The sweep's exit status when cases are left.
pub const CASES_LEFT: i32 = 4;

/// A sweep in a job.
#[derive(Clone, Debug)]
pub struct Drive<'a> {
    /// The cluster.
    pub site: &'a Site,
    /// The job.
    pub job: &'a Job,
    /// Ranks on each node.
    pub ranks_per_node: usize,
    /// The folder of the results.
    pub folder: &'a Path,
    /// The command of every rank.
    pub program: &'a [String],
    /// How long to wait.
    pub timeout: Timeouts,
}

/// How a job's part of a sweep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sweep is over, with this status.
    Over(u8),
    /// Cases remain; the reason, and what to do.
    Left(String),
    /// Cases are left, and Slurm starts the job again.
    Requeued,
}

impl Drive<'_> {
    /// Runs the sweep as far as it goes in this job.
    ///
    /// # Errors
    /// When the launcher cannot be started, or a request to stop cannot be removed.
    pub fn run(&self, stop: &Stop) -> io::Result<Ended> {
        self.take_back_stop()?;
        let ended = self.steps(stop);
        self.take_back_stop()?;
        ended
    }

    /// Runs another program once as the ranks of all nodes that are up.
    ///
    /// # Errors
    /// When the launcher cannot be started.
    pub fn run_once(&self, program: &[String], stop: &Stop) -> io::Result<ExitStatus> {
        let mut nodes = self.job.nodes.clone();
        nodes.retain(usable(&nodes));
        let mut command = self.command_of(program, &nodes);
        step::run(&mut command, self.folder, stop, &self.timeout)
    }

    fn steps(&self, stop: &Stop) -> io::Result<Ended> {
        let mut nodes = self.job.nodes.clone();
        let (first, mut fruitless, mut has_broken) = (Progress::of(self.folder), 0, false);
        for number in 1.. {
            if let Some(reason) = stop.requested() {
                return Ok(self.stopped(reason));
            }
            let before = Progress::of(self.folder);
            let mut command = self.command(&nodes, number, has_broken);
            let status = step::run(&mut command, self.folder, stop, &self.timeout)?;
            let after = Progress::of(self.folder);
            if let Some(over) = over(status, before, after) {
                return Ok(Ended::Over(over));
            }
            if let Some(reason) = stop.requested() {
                return Ok(self.stopped(reason));
            }
            has_broken = !after.noted_end_since(before);
            let result = after.lines.saturating_sub(before.lines);
            eprintln!(
                "step {number} {} and produced {result} new lines; cases remain",
                step::in_words(status)
            );
            fruitless = if result > 0 { 0 } else { fruitless + 1 };
            if fruitless == FRUITLESS_STEPS {
                let advanced = after.lines > first.lines;
                return Ok(self.fruitless(status, advanced));
            }
            step::pause(self.timeout.restart[fruitless.saturating_sub(1)], stop);
            nodes.retain(usable(&nodes));
            if nodes.is_empty() {
                return Ok(Ended::Left(self.advice("no node of the job is up")));
            }
        }
        unreachable!("the loop ends by itself")
    }

    /// A request to stop was for an earlier step.
    fn take_back_stop(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(STOP_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn command(&self, nodes: &[String], number: usize, has_broken: bool) -> Command {
        let mut program = self.program.to_vec();
        program.retain(|word| number == 1 || word != RETRY);
        program.extend(has_broken.then(|| AFTER_BREAK.to_string()));
        eprint!("step {number}: ");
        self.command_of(&program, nodes)
    }

    /// The command that starts a program as ranks on these nodes, which is printed.
    fn command_of(&self, program: &[String], nodes: &[String]) -> Command {
        let shape = Shape { nodes: nodes.len(), ranks_per_node: self.ranks_per_node };
        let named = if nodes.len() < self.job.nodes.len() { nodes } else { &[] };
        let words = step_command(self.site, shape, named, program);
        eprintln!("{}", line(&words));
        let unset = |(name, _): &(String, String)| env::var_os(name).is_none();
        let variables: BTreeMap<_, _> = self.site.variables().into_iter().filter(unset).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(variables);
        command
    }

    fn stopped(&self, reason: Reason) -> Ended {
        match reason {
            Reason::TimeLimit => self.requeue("the job's time limit is reached"),
            Reason::Terminated => Ended::Left(self.advice(
                "the job was asked to end. If it was preempted and the site requeues such jobs, it \
                 resumes automatically",
            )),
        }
    }

    fn fruitless(&self, status: ExitStatus, advanced: bool) -> Ended {
        let left = status.code() == Some(CASES_LEFT) && self.job.end.is_some();
        match (left, advanced) {
            (true, true) => self.requeue("no remaining case fits into the job's time"),
            (true, false) => Ended::Left(self.advice(&format!(
                "{FRUITLESS_STEPS} consecutive steps started no case; the job's time may be too \
                 short for any: raise --time"
            ))),
            (false, _) => Ended::Left(self.advice(&format!(
                "{FRUITLESS_STEPS} consecutive steps produced no result; the last {}",
                step::in_words(status)
            ))),
        }
    }

    /// Has Slurm start the job again, if that is allowed and was not done too often.
    fn requeue(&self, why: &str) -> Ended {
        let Job { id, requeue_id, restarts, .. } = self.job;
        if *restarts >= MOST_REQUEUES {
            let why = format!("{why}, and it was already requeued {restarts} times");
            return Ended::Left(self.advice(&why));
        }
        let shown = ask(&["scontrol", "--oneliner", "show", "job", id]).unwrap_or_default();
        if field(&shown, "Requeue") == Some("0") {
            let why = format!("{why}, and requeueing is disabled (Requeue=0)");
            return Ended::Left(self.advice(&why));
        }
        eprintln!("{why}: job {requeue_id} is requeued");
        match Command::new("scontrol").args(["requeue", requeue_id]).status() {
            Ok(status) if status.success() => Ended::Requeued,
            Ok(status) => Ended::Left(self.advice(&format!(
                "{why}, and scontrol requeue {requeue_id} {}",
                step::in_words(status)
            ))),
            Err(error) => Ended::Left(self.advice(&format!("{why}, and scontrol: {error}"))),
        }
    }

    fn advice(&self, why: &str) -> String {
        let folder = self.folder.display();
        format!("{why}. Results so far are in {folder}; submit with --out {folder} to continue")
    }
}

/// The final status of the sweep, if it has ended. Launchers also exit with 1 when they could not start anything:
/// that counts only if the sweep recorded its end.
fn over(status: ExitStatus, before: Progress, after: Progress) -> Option<u8> {
    match status.code()? {
        code @ (0 | 2 | 3) => Some(code as u8),
        1 if after.noted_end_since(before) => Some(1),
        _ => None,
    }
}

/// Whether a node can be used, by its state; nodes with an unknown state can.
fn usable(nodes: &[String]) -> impl FnMut(&String) -> bool + use<> {
    let list = hostlist::compress(nodes);
    let answer = ask(&["sinfo", "-h", "-N", "-n", &list, "-o", "%N %T"]);
    let states = answer.unwrap_or_else(|error| {
        eprintln!("{error}; all nodes are assumed to be up");
        String::new()
    });
    let states: BTreeMap<String, String> = states
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(name, state)| (name.to_string(), state.trim().to_ascii_lowercase()))
        .collect();
    move |name| match states.get(name) {
        Some(state) if !is_usable(state) => {
            let silent = if state.contains('*') { ", and does not answer" } else { "" };
            eprintln!("node {name} is {state}{silent}: the sweep continues without it");
            false
        }
        _ => true,
    }
}

/// A draining node continues to run its work.
fn is_usable(state: &str) -> bool {
    let name = state.trim_end_matches(|flag: char| !flag.is_ascii_alphabetic());
    let gone = ["down", "drained", "fail", "error", "unknown", "powered_down", "powering_down"];
    !state.contains('*') && !gone.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_end_of_a_sweep_needs_its_status_and_its_record() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let before = Progress { lines: 5, launches: 1, ended: true };
        let noted = Progress { launches: 2, ..before };
        let broken = Progress { ended: false, ..noted };
        for (status, after, expected) in [
            (exited(0), noted, Some(0)),
            (exited(2), before, Some(2)),
            (exited(3), noted, Some(3)),
            (exited(1), noted, Some(1)),
            (exited(1), before, None),
            (exited(1), broken, None),
            (exited(4), noted, None),
            (exited(137), noted, None),
            (ExitStatus::from_raw(9), noted, None),
        ] {
            assert_eq!(over(status, before, after), expected, "{status}");
        }
    }

    #[test]
    fn only_nodes_that_cannot_run_a_step_are_left_out() {
        for state in ["allocated", "mixed", "idle", "draining", "failing", "completing", "alloc@"] {
            assert!(is_usable(state), "{state}");
        }
        for state in ["down", "down*", "drained", "allocated*", "fail", "idle*", "unknown"] {
            assert!(!is_usable(state), "{state}");
        }
    }
}
