//! The command that starts ranks.

use std::fmt;
use std::path::Path;

use nix::unistd::Uid;
use thiserror::Error;

/// Stands for the number of ranks.
const RANKS: &str = "{ranks}";

/// A command that starts so many ranks of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    words: Vec<String>,
}

/// A launcher that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{found}\" does not say how many ranks; expected a command with {RANKS}, as \"srun --ntasks={RANKS}\""
)]
pub struct NoRanks {
    found: String,
}

impl Launcher {
    /// Open MPI's on this machine. Ranks may share cores, and none is bound, as Horovod's `horovodrun` starts them.
    pub fn mpirun() -> Launcher {
        let words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", RANKS];
        let mut words: Vec<String> = words.map(str::to_string).into();
        if Uid::effective().is_root() {
            words.insert(1, "--allow-run-as-root".into());
        }
        Launcher { words }
    }

    /// Horovod's own, with Gloo, on this machine: the `horovodrun` beside a Python.
    pub fn horovodrun(python: &Path) -> Launcher {
        let program = python.with_file_name("horovodrun").display().to_string();
        let words = [&program, "--gloo", "--network-interfaces", "lo", "-np", RANKS];
        Launcher { words: words.map(str::to_string).into() }
    }

    /// Words separated by spaces.
    ///
    /// # Errors
    /// When no word has the place of the number of ranks.
    pub fn parse(text: &str) -> Result<Launcher, NoRanks> {
        if text.contains(RANKS) {
            Ok(Launcher { words: text.split_whitespace().map(str::to_string).collect() })
        } else {
            Err(NoRanks { found: text.into() })
        }
    }

    /// The command that starts this many ranks of `program`.
    pub fn command(&self, ranks: usize, program: &[String]) -> Vec<String> {
        let word = |word: &String| word.replace(RANKS, &ranks.to_string());
        self.words.iter().map(word).chain(program.iter().cloned()).collect()
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ranks_is_put_in_its_place() {
        let launcher = Launcher::parse("srun --ntasks={ranks} --mpi=pmix").unwrap();
        let command = launcher.command(4, &["python".to_string(), "step.py".to_string()]);
        assert_eq!(command.join(" "), "srun --ntasks=4 --mpi=pmix python step.py");
        assert!(
            Launcher::mpirun().command(2, &[]).ends_with(&["-np".to_string(), "2".to_string()])
        );
        let error = Launcher::parse("srun -n 4").unwrap_err().to_string();
        assert!(error.contains("\"srun -n 4\" does not say how many ranks"), "{error}");
    }
}
