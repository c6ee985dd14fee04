//! Queries to Slurm's clients that are safe to repeat.

use std::io::ErrorKind;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use thiserror::Error;

use super::launch::line;

/// Waits before a question is put again.
const WAITS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Messages of clients when the controller is busy, restarts, or hands over to another.
const TRANSIENT: [&str; 6] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Unable to confirm allocation",
    "backup controller",
    "Zero Bytes were transmitted",
    "Resource temporarily unavailable",
];

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The client is not on PATH.
    #[error("{program} is not on PATH: Slurm is not installed here")]
    Missing {
        /// The client.
        program: String,
    },
    /// The client failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// Its stderr, or its status.
        said: String,
    },
}

/// The answer of a Slurm client: stdout, or stderr if `stdout` is empty. While the controller does not answer, the
/// query is repeated for about 15 seconds.
///
/// # Errors
/// When there is no such client, or it fails.
pub fn ask(command: &[&str]) -> Result<String, AskError> {
    again_while_transient(&WAITS, || once(command))
}

fn again_while_transient(
    waits: &[Duration],
    mut ask: impl FnMut() -> Result<String, AskError>,
) -> Result<String, AskError> {
    for &wait in waits {
        match ask() {
            Err(AskError::Failed { command, said }) if is_transient(&said) => {
                eprintln!("{command}: {said}; retrying in {} s", wait.as_secs_f64());
                sleep(wait);
            }
            answered => return answered,
        }
    }
    ask()
}

fn is_transient(said: &str) -> bool {
    TRANSIENT.iter().any(|text| said.to_ascii_lowercase().contains(&text.to_ascii_lowercase()))
}

fn once(command: &[&str]) -> Result<String, AskError> {
    let mut client = Command::new(command[0]);
    // Times as seconds since 1970, whatever the user's time zone and taste.
    let output = client.args(&command[1..]).env("SLURM_TIME_FORMAT", "%s").output();
    read(command, output)
}

/// The answer in a client's output.
///
/// # Errors
/// When there is no such client, or it failed.
pub fn read(command: &[&str], output: std::io::Result<Output>) -> Result<String, AskError> {
    let failed = |said: String| AskError::Failed { command: line(command), said };
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(AskError::Missing { program: command[0].into() });
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    match (output.status.success(), stdout.is_empty(), stderr.is_empty()) {
        (true, true, _) => Ok(stderr),
        (true, false, _) => Ok(stdout),
        (false, _, false) => Err(failed(stderr.replace('\n', "; "))),
        (false, _, true) => Err(failed(output.status.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(said: &str) -> AskError {
        AskError::Failed { command: "squeue".into(), said: said.into() }
    }

    #[test]
    fn a_controller_that_restarts_is_asked_again() {
        let mut answers = vec![
            Ok("RUNNING".to_string()),
            Err(failed("slurm_load_jobs error: Socket timed out on send/recv operation")),
            Err(failed("slurm_load_jobs error: Unable to contact slurm controller")),
        ];
        let answer = again_while_transient(&[Duration::ZERO; 3], || answers.pop().unwrap());
        assert_eq!((answer, answers.len()), (Ok("RUNNING".into()), 0));
    }

    #[test]
    fn asking_again_ends() {
        let mut asked = 0;
        let answer = again_while_transient(&[Duration::ZERO; 3], || {
            asked += 1;
            Err(failed("backup controller in standby mode"))
        });
        assert!(answer.is_err());
        assert_eq!(asked, 4);
    }

    #[test]
    fn other_errors_are_final() {
        let mut asked = 0;
        let answer = again_while_transient(&[Duration::ZERO; 3], || {
            asked += 1;
            Err(failed("slurm_load_jobs error: Invalid job id specified"))
        });
        assert_eq!((answer.is_err(), asked), (true, 1));
        let missing = ask(&["there-is-no-such-client"]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "there-is-no-such-client is not on PATH: Slurm is not installed here"
        );
    }
}
