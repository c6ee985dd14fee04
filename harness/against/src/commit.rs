//! The binary of a commit, built in a work tree of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

/// As many characters of a commit are in names of files.
const SHORT: usize = 12;

/// A commit that cannot be built.
#[derive(Debug, Error)]
pub enum CommitError {
    /// The working folder is in no repository of the project.
    #[error(
        "the working folder is in no clone of kolo's repository, so commit {commit} cannot be built{ADVICE}"
    )]
    NoRepository {
        /// The commit.
        commit: String,
    },
    /// The repository lacks it.
    #[error("{} has no commit {commit}; fetch it{ADVICE}", repository.display())]
    Unknown {
        /// The repository.
        repository: PathBuf,
        /// The commit.
        commit: String,
    },
    /// A command failed.
    #[error("commit {commit} cannot be built: {command}: {said}{ADVICE}")]
    Failed {
        /// The commit.
        commit: String,
        /// The command.
        command: String,
        /// How it ended.
        said: String,
    },
}

const ADVICE: &str = "; or name another binary with --binary";

/// A commit in a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The binary.
    pub program: PathBuf,
    /// The work tree.
    pub tree: PathBuf,
}

/// Builds a commit with these features, unless that was done before, in `target/reproduce` of the repository that
/// `folder` is in. Cargo writes to stderr; `report` gets a line before that.
///
/// # Errors
/// When there is no such repository or commit, or a command fails.
pub fn build(
    folder: &Path,
    commit: &str,
    features: &[&str],
    report: impl Fn(String),
) -> Result<Built, CommitError> {
    let named = || commit.to_string();
    let failed = |command: &str, said: String| CommitError::Failed {
        commit: named(),
        command: command.into(),
        said,
    };
    let top = git(folder, &["rev-parse", "--show-toplevel"]).ok().map(PathBuf::from);
    let repository = top.filter(|top| top.join("harness/kolo/Cargo.toml").is_file());
    let repository = repository.ok_or_else(|| CommitError::NoRepository { commit: named() })?;
    let full =
        git(&repository, &["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")]);
    let full =
        full.map_err(|_| CommitError::Unknown { repository: repository.clone(), commit: named() })?;
    let short = &full[..SHORT.min(full.len())];
    let builds = repository.join("target/reproduce");
    let tree = builds.join(short);
    let program = builds.join([&["kolo", short][..], features].concat().join("-"));
    if !tree.join("Cargo.toml").is_file() {
        fs::create_dir_all(&builds).map_err(|error| failed("mkdir", error.to_string()))?;
        let place = tree.display().to_string();
        // A tree that was removed by hand may still be listed.
        git(&repository, &["worktree", "prune"]).map_err(|said| failed("git worktree", said))?;
        git(&repository, &["worktree", "add", "--detach", &place, &full])
            .map_err(|said| failed("git worktree add", said))?;
    }
    if !program.is_file() {
        report(format!("building commit {short} in {}", tree.display()));
        let target = builds.join("target");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--package", "kolo"]);
        if !features.is_empty() {
            cargo.args(["--features", &features.join(",")]);
        }
        let status = cargo.current_dir(&tree).env("CARGO_TARGET_DIR", &target).status();
        let ended = status.map_err(|error| failed("cargo build", error.to_string()))?;
        if !ended.success() {
            return Err(failed("cargo build", ended.to_string()));
        }
        fs::copy(target.join("release/kolo"), &program)
            .map_err(|error| failed("copying the binary", error.to_string()))?;
    }
    Ok(Built { program, tree })
}

/// The output of git, or what it said.
fn git(folder: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(words).current_dir(folder).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        let said = text(&output.stderr);
        Err(said.lines().next().unwrap_or("no output").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_repository_and_for_unknown_commits_the_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let why = build(folder.path(), "abc", &[], |_| {}).unwrap_err().to_string();
        assert!(why.contains("in no clone of kolo's repository, so commit abc"), "{why}");
        assert!(why.ends_with("or name another binary with --binary"), "{why}");
        git(folder.path(), &["init", "--quiet"]).unwrap();
        fs::create_dir_all(folder.path().join("harness/kolo")).unwrap();
        fs::write(folder.path().join("harness/kolo/Cargo.toml"), "").unwrap();
        let why = build(folder.path(), "abc", &[], |_| {}).unwrap_err().to_string();
        assert!(why.contains(" has no commit abc; fetch it; or name"), "{why}");
    }
}
