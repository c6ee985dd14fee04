//! Whether two runs did the same work.

use super::{CompareError, Run};

/// The columns of a row that say what was done, but not how.
pub(super) const SETTING: [&str; 7] = [
    "dtype",
    "op",
    "backward_passes_per_step",
    "forward_ms",
    "backward_ms",
    "optimizer_ms",
    "compression",
];

/// The position of the one that is an option of a framework: runs with and without it can be compared.
const COMPRESSION: usize = 6;

/// What was done in a case: the columns of a row that say so; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work([String; SETTING.len()]);

impl Work {
    pub(super) fn of(fields: [&str; SETTING.len()]) -> Work {
        // The same number may be written in several ways.
        let plain =
            |field: &str| field.parse().map_or(field.into(), |number: f64| number.to_string());
        Work(fields.map(plain))
    }

    /// The fields that differ and are known of both: position, this one's, and the other's.
    fn differences<'w>(
        &'w self,
        other: &'w Work,
    ) -> impl Iterator<Item = (usize, &'w str, &'w str)> {
        let both = self.0.iter().zip(&other.0).enumerate();
        both.filter(|(_, (one, other))| one != other && !one.is_empty() && !other.is_empty())
            .map(|(at, (one, other))| (at, one.as_str(), other.as_str()))
    }
}

/// Refuses runs whose cases of the same name did other work, or whose gradients differ.
pub(super) fn check(first: &Run, second: &Run) -> Result<(), CompareError> {
    let (one, other) = (&first.workload_digest, &second.workload_digest);
    let has_one = first.workloads.len() == 1 && first.workloads == second.workloads;
    if has_one && !one.is_empty() && !other.is_empty() && one != other {
        return Err(CompareError::Gradients {
            workload: first.workloads.iter().cloned().collect(),
            first: one.clone(),
            second: other.clone(),
        });
    }
    let both =
        first.cases.iter().filter_map(|(case, own)| Some((case, own, second.cases.get(case)?)));
    for (case, own, other) in both {
        let other = own.work.differences(&other.work).find(|(at, ..)| *at != COMPRESSION);
        if let Some((at, one, other)) = other {
            return Err(CompareError::Work {
                case: case.clone(),
                what: SETTING[at],
                first: one.into(),
                second: other.into(),
            });
        }
    }
    Ok(())
}

/// The compression of both runs, where it differs in a case.
pub(super) fn compression(first: &Run, second: &Run) -> Option<(String, String)> {
    first.cases.iter().find_map(|(case, own)| {
        let other = &second.cases.get(case)?.work;
        let (_, one, other) = own.work.differences(other).find(|(at, ..)| *at == COMPRESSION)?;
        Some((one.into(), other.into()))
    })
}
