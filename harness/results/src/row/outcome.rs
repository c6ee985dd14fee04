//! How a case ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flat::{Columns, Empty, Flat};

/// How a case ended: only a case that was measured has a result.
#[derive(Clone, Debug, PartialEq)]
pub enum CaseOutcome<R> {
    /// Measured or simulated, and right.
    Ok(R),
    /// Measured, and the data were wrong: the times are not to be believed.
    Wrong {
        /// The measurement.
        result: R,
        /// The error.
        reason: String,
    },
    /// Not measured, for this reason.
    Failed(String),
    /// There is no such case, for this reason.
    Unsupported(String),
}

/// How a case ended, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "as in `CaseOutcome`")]
pub enum Status {
    #[default]
    Ok,
    Wrong,
    Failed,
    Unsupported,
}

impl<R> CaseOutcome<R> {
    /// As one word.
    pub fn status(&self) -> Status {
        match self {
            CaseOutcome::Ok(_) => Status::Ok,
            CaseOutcome::Wrong { .. } => Status::Wrong,
            CaseOutcome::Failed(_) => Status::Failed,
            CaseOutcome::Unsupported(_) => Status::Unsupported,
        }
    }

    /// Why the case is not right; empty if it is.
    pub fn reason(&self) -> &str {
        match self {
            CaseOutcome::Ok(_) => "",
            CaseOutcome::Wrong { reason, .. }
            | CaseOutcome::Failed(reason)
            | CaseOutcome::Unsupported(reason) => reason,
        }
    }

    /// The measurement, right or wrong.
    pub fn measured(&self) -> Option<&R> {
        match self {
            CaseOutcome::Ok(result) | CaseOutcome::Wrong { result, .. } => Some(result),
            CaseOutcome::Failed(_) | CaseOutcome::Unsupported(_) => None,
        }
    }

    /// The measurement, if it is right.
    pub fn right(&self) -> Option<&R> {
        match self {
            CaseOutcome::Ok(result) => Some(result),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn right_mut(&mut self) -> Option<&mut R> {
        match self {
            CaseOutcome::Ok(result) => Some(result),
            _ => None,
        }
    }

    /// The line of a summary about a case that is not right.
    pub fn complaint(&self, case: &str) -> Option<String> {
        let status = match self {
            CaseOutcome::Ok(_) => return None,
            CaseOutcome::Wrong { .. } => "WRONG",
            CaseOutcome::Failed(_) => "failed",
            CaseOutcome::Unsupported(_) => "unsupported",
        };
        Some(format!("{status:<11} {case}: {}", self.reason()))
    }
}

impl<R: Columns> Columns for CaseOutcome<R> {
    fn read(flat: &Flat) -> Result<CaseOutcome<R>, Empty> {
        let reason = || flat.reason.clone();
        Ok(match flat.status {
            Status::Ok => CaseOutcome::Ok(R::read(flat)?),
            Status::Wrong => CaseOutcome::Wrong { result: R::read(flat)?, reason: reason() },
            Status::Failed => CaseOutcome::Failed(reason()),
            Status::Unsupported => CaseOutcome::Unsupported(reason()),
        })
    }

    fn write(&self, flat: &mut Flat) {
        (flat.status, flat.reason) = (self.status(), self.reason().into());
        if let Some(result) = self.measured() {
            result.write(flat);
        }
    }
}
