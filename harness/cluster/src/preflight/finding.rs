//! A condition that makes the times of a job unreliable.

use std::fmt;

/// Whether a finding ends the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The job ends, unless `--force` is given.
    Refusal,
    /// The job measures, and its results include the finding.
    Warning,
}

/// What was found, where, its severity, and advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    what: String,
    /// The host, if it is about one alone; others are named in `what`.
    host: Option<String>,
    advice: Option<String>,
    /// Whether it ends the job.
    pub severity: Severity,
}

impl Finding {
    /// A finding without a host and without advice.
    pub fn new(severity: Severity, what: impl Into<String>) -> Finding {
        Finding { what: what.into(), host: None, advice: None, severity }
    }

    /// A finding that ends the job, unless `--force` is given.
    pub fn refusal(what: impl Into<String>) -> Finding {
        Finding::new(Severity::Refusal, what)
    }

    /// A finding that the results mention.
    pub fn warning(what: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, what)
    }

    /// The same, about one host.
    #[must_use]
    pub fn on(self, host: impl Into<String>) -> Finding {
        Finding { host: Some(host.into()), ..self }
    }

    /// The same, with what the user can do.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Finding {
        Finding { advice: Some(advice.into()), ..self }
    }
}

/// A sentence for tables, errors and provenance.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}: ")?;
        }
        f.write_str(&self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}
