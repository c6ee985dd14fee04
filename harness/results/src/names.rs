//! Names that users write, and the one that is probably meant by a name that does not exist.

use std::fmt;
use std::sync::Arc;

use algorithms::algorithm::Algorithm;
use algorithms::control::{DataType, ReduceOp};
use algorithms::registry::{self, UnknownAlgorithm};
use thiserror::Error;

/// The name in `names` with the smallest edit distance to `found`, where a swap of two letters counts as one; none
/// if it exceeds `most`.
pub fn nearest<'n>(
    found: &str,
    names: impl IntoIterator<Item = &'n str>,
    most: usize,
) -> Option<&'n str> {
    let slips = |name: &str| strsim::damerau_levenshtein(name, found);
    let near = names.into_iter().map(|name| (slips(name), name)).min_by_key(|&(slips, _)| slips);
    near.filter(|&(slips, _)| slips <= most).map(|(_, name)| name)
}

/// An unknown name of an algorithm. The text suggests a name, or lists all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlgorithmError {
    /// The registry's error.
    pub unknown: UnknownAlgorithm,
    /// Valid names other than those of algorithms.
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

/// The algorithm of that name; `also` are the other valid names.
///
/// # Errors
/// When there is no such algorithm.
pub fn algorithm(name: &str, also: &[&str]) -> Result<Arc<dyn Algorithm>, AlgorithmError> {
    let also = || also.iter().map(ToString::to_string).collect();
    registry::find(name).map_err(|unknown| AlgorithmError { unknown, also: also() })
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} \"{name}\" is unknown; choose from {}", names.join(", "))]
pub struct UnknownName {
    /// The kind of name, such as `element type`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The valid names.
    pub names: Vec<&'static str>,
}

/// The largest number of ranks.
const MOST: usize = 4096;

/// A text that is no number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a number of ranks from 1 to {MOST}")]
pub struct RanksError;

/// A number of ranks, each on a node of its own.
///
/// # Errors
/// When the text is not a number, or out of range.
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
        "uint8" => "u8",
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

/// The average of integers.
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
    fn typos_get_a_suggestion_and_other_names_do_not() {
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
