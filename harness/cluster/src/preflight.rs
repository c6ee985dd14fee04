//! Checks of a job of several processes, before it measures.
//!
//! Processes and nodes are checked the same way for every back end ([`process_facts`], [`links`]); a back end adds
//! findings of its own, such as those of its GPUs. [`Preflight`] collects all of them, and decides: a refusal ends the
//! job unless `--force` is given.

mod finding;
pub mod links;
pub mod process_facts;

use thiserror::Error;

pub use finding::{Finding, Severity};
pub use process_facts::ProcessFacts;

/// What was found on all ranks and nodes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preflight {
    findings: Vec<Finding>,
}

/// Why a job does not measure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}; add --force to measure nevertheless", .0.join("; "))]
pub struct Refused(Vec<String>);

impl Preflight {
    /// Adds findings, in order.
    pub fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Decides whether the job measures, and returns the report: one sentence for each finding.
    ///
    /// # Errors
    /// The refusals, unless `is_forced`.
    pub fn decide(&self, is_forced: bool) -> Result<Vec<String>, Refused> {
        let refuses = |finding: &&Finding| finding.severity == Severity::Refusal;
        let refusals: Vec<String> =
            self.findings.iter().filter(refuses).map(Finding::to_string).collect();
        if !is_forced && !refusals.is_empty() {
            return Err(Refused(refusals));
        }
        Ok(self.findings.iter().map(Finding::to_string).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_end_the_job_unless_forced() {
        let mut preflight = Preflight::default();
        assert_eq!(preflight.decide(false), Ok(vec![]));
        preflight.add([Finding::warning("cores are few").advice("start fewer")]);
        assert_eq!(preflight.decide(false), Ok(vec!["cores are few; start fewer".into()]));
        preflight
            .add([Finding::refusal("GPUs differ").on("n1"), Finding::refusal("clocks differ")]);
        assert_eq!(
            preflight.decide(false).unwrap_err().to_string(),
            "n1: GPUs differ; clocks differ; add --force to measure nevertheless"
        );
        assert_eq!(preflight.decide(true).unwrap().len(), 3);
    }
}
