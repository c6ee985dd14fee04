//! Hands a batch script to Slurm.

use std::env;
use std::process::Command;

use super::ask::{AskError, read};

/// Slurm's variables that locate its configuration and do not describe a job.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"];

/// A submitted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number.
    pub id: String,
    /// Inherited variables that would have changed the job, and were left out.
    pub ignored: Vec<String>,
}

/// Submits once: repeating a submission could submit twice.
///
/// # Errors
/// When there is no sbatch, or it fails.
pub fn submit(command: &[String]) -> Result<Submitted, AskError> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut ignored: Vec<String> = names.filter(|name| is_inherited(name)).collect();
    ignored.sort();
    let mut sbatch = Command::new(words[0]);
    sbatch.args(&words[1..]);
    for name in &ignored {
        sbatch.env_remove(name);
    }
    let answer = read(&words, sbatch.output())?;
    // With --parsable: the number, and on some systems the cluster.
    let id = answer.lines().last().unwrap_or("").split(';').next().unwrap_or("").trim();
    Ok(Submitted { id: id.into(), ignored })
}

/// sbatch reads SBATCH_ variables as options, and a new job would inherit the variables of an outer one.
fn is_inherited(name: &str) -> bool {
    name.starts_with("SBATCH_") || name.starts_with("SLURM_") && !KEPT.contains(&name)
}
