//! The record of a job in Slurm's accounting, stored with its results.

use results::accounting::Accounting;

use super::ask::ask;

/// Fields of a record, as `sacct` calls them.
const FIELDS: &str = "JobID,JobName,State,ExitCode,Start,End,Elapsed,NNodes,NTasks,NodeList,TotalCPU,MaxRSS,ConsumedEnergyRaw";

/// Queries a job's record. The job is still running; its steps have ended.
pub fn of_job(id: &str, start: u32) -> Accounting {
    let job = format!("{id}, start {start}");
    match ask(&["sacct", "-P", "-j", id, "-o", FIELDS]) {
        Ok(text) if text.lines().count() > 1 => {
            Accounting { job, lines: text.lines().map(str::to_string).collect(), unknown: None }
        }
        Ok(_) => Accounting {
            job,
            unknown: Some("sacct does not list the job".into()),
            ..Accounting::default()
        },
        Err(error) => Accounting { job, unknown: Some(error.to_string()), ..Accounting::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_nobody_knows_is_unknown_with_the_reason() {
        let record = of_job("4294967290", 1);
        assert!(record.lines.is_empty() && record.unknown.is_some_and(|why| !why.is_empty()));
    }
}
