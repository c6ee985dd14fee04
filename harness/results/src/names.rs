//! Names that users write, and the one that is probably meant by a name that does not exist.

use std::fmt;
use std::sync::Arc;

use algorithms::algorithm::Algorithm;
use algorithms::control::{DataType, ReduceOp};
use algorithms::registry::{self, UnknownAlgorithm};
use thiserror::Error;

/// That of `names` which `found` differs from in the fewest letters, two that changed places counting as one;
/// none if there are more than `most` of them.
pub fn nearest<'n>(
    found: &str,
    names: impl IntoIterator<Item = &'n str>,
    most: usize,
) -> Option<&'n str> {
    let slips = |name: &str| strsim::damerau_levenshtein(name, found);
    let near = names.into_iter().map(|name| (slips(name), name)).min_by_key(|&(slips, _)| slips);
    near.filter(|&(slips, _)| slips <= most).map(|(_, name)| name)
}

/// A name that is no algorithm's. The text says which name was probably meant, or which there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlgorithmError {
    /// What the registry says.
    pub unknown: UnknownAlgorithm,
    /// Names that could stand there beside those of algorithms.
    pub also: Vec<String>,
}

impl std::error::Error for AlgorithmError {}

impl fmt::Display for AlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownAlgorithm { name, part, why } = &self.unknown;
        write!(f, "algorithm \"{name}\" is unknown")?;
        if let Some(why) = why {
            return write!(f, ": {why}; `kolo info` lists the parameters of each name");
        }
        let is_whole = part == name;
        if !is_whole {
            write!(f, ": there is no {part:?}")?;
        }
        let registered = registry::ALL.iter().map(|entry| entry.name);
        let others = self.also.iter().map(String::as_str).filter(|_| is_whole);
        let names: Vec<&str> = registered.chain(others).collect();
        // At most a third of its letters differ.
        match nearest(part, names.iter().copied(), part.chars().count() / 3) {
            Some(near) => {
                let parts = name.split(':').map(|own| if own == part { near } else { own });
                let meant = parts.collect::<Vec<_>>().join(":");
                write!(f, "; did you mean {meant}? `kolo info` lists all names")
            }
            None => {
                write!(f, "; choose from {}; `kolo info` describes each", names.join(", "))
            }
        }
    }
}

/// The algorithm of that name; `also` are the other names that could stand there.
///
/// # Errors
/// When there is no such algorithm.
pub fn algorithm(name: &str, also: &[&str]) -> Result<Arc<dyn Algorithm>, AlgorithmError> {
    let also = || also.iter().map(ToString::to_string).collect();
    registry::find(name).map_err(|unknown| AlgorithmError { unknown, also: also() })
}

/// A name that is none of those that there are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} \"{name}\" is unknown; choose from {}", names.join(", "))]
pub struct UnknownName {
    /// What it should name, as in `element type`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// Those that there are.
    pub names: Vec<&'static str>,
}

/// The most ranks that can be asked for.
const MOST: usize = 4096;

/// A text that is no number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a number of ranks from 1 to {MOST}")]
pub struct RanksError;

/// A number of ranks, each on a node of its own.
///
/// # Errors
/// When the text is no number, or one that is not allowed.
pub fn parse_ranks(text: &str) -> Result<usize, RanksError> {
    let ranks = text.trim().parse().ok().filter(|ranks| (1..=MOST).contains(ranks));
    ranks.ok_or(RanksError)
}

/// An element type by our name or by nccl-tests'.
///
/// # Errors
/// When the name is unknown.
pub fn parse_dtype(name: &str) -> Result<DataType, UnknownName> {
    let alias = match name {
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        "bfloat16" => "bf16",
        "int32" => "i32",
        "int64" => "i64",
        other => other,
    };
    DataType::ALL.into_iter().find(|dtype| dtype.name() == alias).ok_or_else(|| {
        let names = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
        UnknownName { kind: "element type", name: name.into(), names }
    })
}

/// A ReduceOp by our name or by nccl-tests'.
///
/// # Errors
/// When the name is unknown.
pub fn parse_op(name: &str) -> Result<ReduceOp, UnknownName> {
    let alias = match name {
        "avg" => "average",
        "prod" => "product",
        other => other,
    };
    ReduceOp::ALL.into_iter().find(|op| op.name() == alias).ok_or_else(|| {
        let names = ReduceOp::ALL.iter().map(|op| op.name()).collect();
        UnknownName { kind: "ReduceOp", name: name.into(), names }
    })
}

/// An average of integers was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("average of {} would have to round; use sum, or a floating-point type", dtype.name())]
pub struct AverageOfIntegers {
    /// The element type.
    pub dtype: DataType,
}

/// Refuses the average of integers.
///
/// # Errors
/// When `op` is the average and `dtype` an integer type.
pub fn check_op(dtype: DataType, op: ReduceOp) -> Result<(), AverageOfIntegers> {
    if op == ReduceOp::Average && dtype.is_integer() {
        Err(AverageOfIntegers { dtype })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_forgiven_and_other_names_are_not() {
        let names = ["ring", "tree", "two-shot"];
        for (found, most, expected) in [
            ("rign", 1, Some("ring")),
            ("rng", 1, Some("ring")),
            ("tow-shot", 2, Some("two-shot")),
            ("rg", 1, None),
            ("both-way", 2, None),
            ("", 0, None),
        ] {
            assert_eq!(nearest(found, names, most), expected, "{found}");
        }
    }

    #[test]
    fn numbers_of_ranks_are_read() {
        assert_eq!(parse_ranks("4096"), Ok(4096));
        for text in ["", "0", "-1", "4097", "2x2"] {
            let error = parse_ranks(text).unwrap_err().to_string();
            assert_eq!(error, "expected a number of ranks from 1 to 4096");
        }
    }
}
