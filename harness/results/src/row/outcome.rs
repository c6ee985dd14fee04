//! How a case ended.

use serde::{Deserialize, Serialize};

use super::flat::{Columns, Empty, Flat};

/// How a case ended: only a case that was measured has a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<R> {
    /// Measured or simulated, and right.
    Ok(R),
    /// Measured, and the data were wrong: the times are not to be believed.
    Wrong {
        /// What was measured.
        result: R,
        /// What was wrong.
        reason: String,
    },
    /// Not measured, for this reason.
    Failed(String),
    /// There is no such case, for this reason.
    Unsupported(String),
}

/// How a case ended, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "as in `Outcome`")]
pub enum Status {
    #[default]
    Ok,
    Wrong,
    Failed,
    Unsupported,
}

impl<R> Outcome<R> {
    /// In a word.
    pub fn status(&self) -> Status {
        match self {
            Outcome::Ok(_) => Status::Ok,
            Outcome::Wrong { .. } => Status::Wrong,
            Outcome::Failed(_) => Status::Failed,
            Outcome::Unsupported(_) => Status::Unsupported,
        }
    }

    /// Why the case is not right; empty if it is.
    pub fn reason(&self) -> &str {
        match self {
            Outcome::Ok(_) => "",
            Outcome::Wrong { reason, .. }
            | Outcome::Failed(reason)
            | Outcome::Unsupported(reason) => reason,
        }
    }

    /// What was measured, right or wrong.
    pub fn measured(&self) -> Option<&R> {
        match self {
            Outcome::Ok(result) | Outcome::Wrong { result, .. } => Some(result),
            Outcome::Failed(_) | Outcome::Unsupported(_) => None,
        }
    }

    /// What was measured, if it is right.
    pub fn right(&self) -> Option<&R> {
        match self {
            Outcome::Ok(result) => Some(result),
            _ => None,
        }
    }

    /// The line of a summary about a case that is not right.
    pub fn complaint(&self, case: &str) -> Option<String> {
        let status = match self {
            Outcome::Ok(_) => return None,
            Outcome::Wrong { .. } => "WRONG",
            Outcome::Failed(_) => "failed",
            Outcome::Unsupported(_) => "unsupported",
        };
        Some(format!("{status:<11} {case}: {}", self.reason()))
    }
}

impl<R: Columns> Columns for Outcome<R> {
    fn read(flat: &Flat) -> Result<Outcome<R>, Empty> {
        let reason = || flat.reason.clone();
        Ok(match flat.status {
            Status::Ok => Outcome::Ok(R::read(flat)?),
            Status::Wrong => Outcome::Wrong { result: R::read(flat)?, reason: reason() },
            Status::Failed => Outcome::Failed(reason()),
            Status::Unsupported => Outcome::Unsupported(reason()),
        })
    }

    fn write(&self, flat: &mut Flat) {
        (flat.status, flat.reason) = (self.status(), self.reason().into());
        if let Some(result) = self.measured() {
            result.write(flat);
        }
    }
}
