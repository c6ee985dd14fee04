//! Ranks of a case that stay for many blocks, and are stopped in between.
//!
//! Programs that are compared then take turns within seconds, without starting anew each time: a machine that changes is the same
//! for both.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::engine::BlockError;
use crate::process::Process;

/// How long ranks have to stop after a block.
const LONGEST: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(2);

/// A group of ranks, all of them stopped or about to be.
pub struct Resident {
    process: Process,
    ranks: Vec<Pid>,
    /// Blocks that it has run.
    pub blocks: usize,
}

impl Resident {
    /// Ranks that have run their first block. None if these processes are not ranks of `script` on this machine.
    pub fn of(process: Process, pids: &[i32], script: &Path) -> Option<Resident> {
        let is_rank = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&*script.to_string_lossy())
        };
        let are_ranks = !pids.is_empty() && pids.iter().all(is_rank);
        let ranks = pids.iter().copied().map(Pid::from_raw).collect();
        are_ranks.then_some(Resident { process, ranks, blocks: 1 })
    }

    /// Waits until all ranks have stopped.
    ///
    /// # Errors
    /// When one does not stop.
    pub fn rest(&self) -> Result<(), BlockError> {
        let start = Instant::now();
        let runs = |rank: &&Pid| !is_stopped(**rank);
        while let Some(rank) = self.ranks.iter().find(runs) {
            if start.elapsed() > LONGEST {
                let problem = format!("process {rank} of Horovod does not stop after a block");
                return Err(BlockError::Result(problem));
            }
            sleep(NAP);
        }
        Ok(())
    }

    /// Runs the next block; returns all output so far once it has so many parts that `reports` counts.
    ///
    /// # Errors
    /// When a rank ends, or the block takes longer than the limit.
    pub fn next(
        &mut self,
        limit: Duration,
        reports: impl Fn(&str) -> usize,
    ) -> Result<String, BlockError> {
        self.blocks += 1;
        self.signal(Signal::SIGCONT);
        let text = self.process.wait_for(limit, |text| reports(text) >= self.blocks)?;
        Ok(text)
    }

    fn signal(&self, signal: Signal) {
        for &rank in &self.ranks {
            let _ = kill(rank, signal);
        }
    }
}

impl Drop for Resident {
    /// A launcher's ranks are not in its process group.
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Whether a process is stopped; one that has ended is.
fn is_stopped(process: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may have some.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_none_or(|state| matches!(state, 'T' | 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn reports(text: &str) -> usize {
        text.matches("report").count()
    }

    /// Starts two ranks that stop after each block, until the second has run `blocks`.
    fn started(folder: &Path, blocks: usize) -> (Process, Vec<i32>, std::path::PathBuf) {
        let (script, log) = (folder.join("rank.sh"), folder.join("log"));
        let text = "echo pid $$; while true; do echo block; [ $1 = 1 ] && echo report; kill -STOP $$; n=$((n+1)); \
                    [ $n = $2 ] && exit 3; done";
        fs::write(&script, text).unwrap();
        let name = script.display();
        let both = format!("sh {name} 1 99 & sh {name} 2 {blocks}");
        let command = ["sh".into(), "-c".into(), both];
        let mut process = Process::start(&command, &[], &log).unwrap();
        let are_there = |text: &str| text.matches("block").count() == 2;
        let text = process.wait_for(LIMIT, are_there).unwrap();
        let pids = text.lines().filter_map(|line| line.strip_prefix("pid ")?.parse().ok());
        (process, pids.collect(), script)
    }

    #[test]
    fn ranks_stop_between_blocks_and_end_with_their_group() {
        let folder = tempfile::tempdir().unwrap();
        let (process, pids, script) = started(folder.path(), 99);
        let mut resident = Resident::of(process, &pids, &script).unwrap();
        resident.rest().unwrap();
        let text = resident.next(LIMIT, reports).unwrap();
        resident.rest().unwrap();
        assert_eq!((reports(&text), resident.blocks), (2, 2));
        let ranks = resident.ranks.clone();
        assert!(ranks.len() == 2 && ranks.iter().all(|&rank| kill(rank, None).is_ok()));
        drop(resident);
        let start = Instant::now();
        let is_there =
            |rank: &Pid| fs::read(format!("/proc/{rank}/cmdline")).is_ok_and(|it| !it.is_empty());
        while ranks.iter().any(is_there) {
            assert!(start.elapsed() < LIMIT, "{ranks:?} stay");
            sleep(NAP);
        }
    }

    #[test]
    fn a_rank_that_ends_fails_the_block() {
        let folder = tempfile::tempdir().unwrap();
        let (process, pids, script) = started(folder.path(), 1);
        let mut resident = Resident::of(process, &pids, &script).unwrap();
        resident.rest().unwrap();
        let never = |_: &str| 0;
        let error = resident.next(LIMIT, never).unwrap_err().to_string();
        assert!(error.starts_with("exit status: 3"), "{error}");
    }

    #[test]
    fn processes_of_something_else_are_no_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let (process, pids, _) = started(folder.path(), 99);
        assert!(Resident::of(process, &pids, Path::new("/another/script.py")).is_none());
        for pid in pids {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let (process, ..) = started(folder.path(), 1);
        assert!(Resident::of(process, &[], Path::new("rank.sh")).is_none());
    }
}
