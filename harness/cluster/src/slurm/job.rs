//! The Slurm job of this process.

use std::env;

use chrono::{Local, NaiveDateTime};
use thiserror::Error;

use super::ask::{AskError, ask};
use super::hostlist::HostlistError;
use super::{hostlist, time_limit};

/// The job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: String,
    /// The name by which it alone is requeued: a task of an array is not its whole array.
    pub requeue_id: String,
    /// How often it has been started anew.
    pub restarts: u32,
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// Tasks requested.
    pub tasks: Option<usize>,
    /// When Slurm ends it; none if unknown, or without a limit.
    pub end: Option<End>,
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// The source of the value.
    pub said_by: &'static str,
}

/// Why a job is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("job {id}: {problem}")]
pub struct JobError {
    /// Its number.
    pub id: String,
    /// The value found, and the value expected.
    #[source]
    pub problem: JobProblem,
}

/// An error in the variables of a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JobProblem {
    /// No variable names the nodes.
    #[error(
        "SLURM_JOB_NODELIST is not set, so its nodes are unknown; start this from its batch script or \
         salloc"
    )]
    NoNodes,
    /// The list of nodes cannot be read.
    #[error("SLURM_JOB_NODELIST: {0}")]
    Nodes(#[from] HostlistError),
    /// A variable holds no number.
    #[error("{variable} is \"{found}\", expected a number")]
    Number {
        /// The variable.
        variable: String,
        /// Its value.
        found: String,
    },
}

impl Job {
    /// The job, if this process runs in one.
    ///
    /// # Errors
    /// When Slurm's variables are missing or not valid.
    pub fn this() -> Result<Option<Job>, JobError> {
        Job::read(|name| env::var(name).ok().filter(|value| !value.is_empty()), ask)
    }

    /// The job in these variables and answers.
    ///
    /// # Errors
    /// When variables are missing or not valid.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
        ask: impl Fn(&[&str]) -> Result<String, AskError>,
    ) -> Result<Option<Job>, JobError> {
        let Some(id) = variable("SLURM_JOB_ID") else { return Ok(None) };
        let refuse = |problem| JobError { id: id.clone(), problem };
        let Some(list) = variable("SLURM_JOB_NODELIST") else {
            return Err(refuse(JobProblem::NoNodes));
        };
        let nodes = hostlist::expand(&list).map_err(|error| refuse(error.into()))?;
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(refuse(JobProblem::Number { variable: name.into(), found: text })),
            },
        };
        let array = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
        Ok(Some(Job {
            requeue_id: array.map_or(id.clone(), |(job, task)| format!("{job}_{task}")),
            restarts: number("SLURM_RESTART_COUNT")?.unwrap_or(0),
            nodes,
            tasks: number("SLURM_NTASKS")?.map(|tasks| tasks as usize),
            end: end(&id, variable, ask),
            id,
        }))
    }
}

/// The end of the job: from its variable, from squeue, or from its start and its limit.
fn end(
    id: &str,
    variable: impl Fn(&str) -> Option<String>,
    ask: impl Fn(&[&str]) -> Result<String, AskError>,
) -> Option<End> {
    let reported = variable("SLURM_JOB_END_TIME").and_then(|text| unix_seconds(&text));
    if let Some(unix_seconds) = reported {
        return Some(End { unix_seconds, said_by: "SLURM_JOB_END_TIME" });
    }
    let answer = ask(&["squeue", "-h", "-j", id, "-o", "%e"]).ok();
    if let Some(unix_seconds) = answer.and_then(|text| unix_seconds(&text)) {
        return Some(End { unix_seconds, said_by: "squeue" });
    }
    let answer = ask(&["scontrol", "--oneliner", "show", "job", id]).ok()?;
    let start = unix_seconds(field(&answer, "StartTime")?)?;
    let limit = time_limit::parse(field(&answer, "TimeLimit")?).ok()??;
    Some(End { unix_seconds: start + limit as i64, said_by: "scontrol" })
}

/// The value of `Name=` in the output of scontrol.
pub fn field<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// A time as seconds since 1970, or as `2026-11-20T15:00:00` in local time.
fn unix_seconds(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(seconds).filter(|&seconds| seconds > 0);
    }
    let local: NaiveDateTime = text.parse().ok()?;
    Some(local.and_local_timezone(Local).earliest()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(command: &[&str]) -> Result<String, AskError> {
        Err(AskError::Missing { program: command[0].into() })
    }

    fn read(
        variables: &[(&str, &str)],
        ask: impl Fn(&[&str]) -> Result<String, AskError>,
    ) -> Result<Option<Job>, JobError> {
        let all = [("SLURM_JOB_ID", "12"), ("SLURM_JOB_NODELIST", "n[1-2]")];
        let value = |name: &str| {
            let mut set = variables.iter().chain(&all);
            set.find(|(set, _)| *set == name).map(|(_, value)| value.to_string())
        };
        Job::read(value, ask)
    }

    #[test]
    fn a_job_is_what_its_variables_say() {
        let variables = [
            ("SLURM_RESTART_COUNT", "2"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_JOB_END_TIME", "1800000000"),
        ];
        let job = read(&variables, missing).unwrap().unwrap();
        let end = End { unix_seconds: 1_800_000_000, said_by: "SLURM_JOB_END_TIME" };
        assert_eq!(
            job,
            Job {
                id: "12".into(),
                requeue_id: "12".into(),
                restarts: 2,
                nodes: vec!["n1".into(), "n2".into()],
                tasks: Some(8),
                end: Some(end),
            }
        );
        assert_eq!(Job::read(|_| None, missing), Ok(None));
    }

    #[test]
    fn a_task_of_an_array_is_requeued_alone() {
        let variables = [("SLURM_ARRAY_JOB_ID", "10"), ("SLURM_ARRAY_TASK_ID", "3")];
        assert_eq!(read(&variables, missing).unwrap().unwrap().requeue_id, "10_3");
    }

    #[test]
    fn the_end_is_queried_if_no_variable_has_it() {
        let end = |squeue: &'static str, scontrol: &'static str| {
            let ask = move |command: &[&str]| match command[0] {
                "squeue" => Ok(squeue.to_string()),
                _ => Ok(scontrol.to_string()),
            };
            read(&[], ask).unwrap().unwrap().end.map(|end| (end.unix_seconds, end.said_by))
        };
        let shown = "JobId=12 JobName=a StartTime=1799990000 EndTime=Unknown TimeLimit=01:00:00";
        assert_eq!(end("1800000000", shown), Some((1_800_000_000, "squeue")));
        assert_eq!(end("N/A", shown), Some((1_799_993_600, "scontrol")));
        assert_eq!(end("", "JobId=12 StartTime=1799990000 TimeLimit=UNLIMITED"), None);
        assert_eq!(end("NONE", "JobId=12 StartTime=Unknown TimeLimit=01:00:00"), None);
        assert_eq!(read(&[], missing).unwrap().unwrap().end, None);
        // Slurm's own format is local time.
        let local: NaiveDateTime = "2027-01-15T08:00:00".parse().unwrap();
        let expected = local.and_local_timezone(Local).unwrap().timestamp();
        assert_eq!(end("2027-01-15T08:00:00", ""), Some((expected, "squeue")));
    }

    #[test]
    fn invalid_variables_are_refused() {
        let error = |variables: &[(&str, &str)]| read(variables, missing).unwrap_err().to_string();
        assert_eq!(
            error(&[("SLURM_RESTART_COUNT", "x")]),
            "job 12: SLURM_RESTART_COUNT is \"x\", expected a number"
        );
        assert!(error(&[("SLURM_JOB_NODELIST", "n[1-")]).contains("SLURM_JOB_NODELIST: node list"));
        let alone = Job::read(|name| (name == "SLURM_JOB_ID").then(|| "7".into()), missing);
        assert!(alone.unwrap_err().to_string().starts_with("job 7: SLURM_JOB_NODELIST is not set"));
    }
}
