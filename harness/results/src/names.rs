//! Names that users write, and the one that is probably meant by a name that does not exist.

use std::sync::Arc;

use algorithms::algorithm::Algorithm;
use algorithms::control::{DataType, ReduceOp};
use algorithms::registry::{self, UnknownAlgorithm};

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

/// The algorithm of that name; `also` are the other names that could stand there.
///
/// # Errors
/// What is wrong with the name, and which one is meant or which there are.
pub fn algorithm(name: &str, also: &[&str]) -> Result<Arc<dyn Algorithm>, String> {
    registry::find(name).map_err(|unknown| advice(&unknown, also))
}

/// What to write in place of a name that does not exist: at most a third of its letters differ.
fn advice(unknown: &UnknownAlgorithm, also: &[&str]) -> String {
    let UnknownAlgorithm { name, part, why } = unknown;
    let refused = format!("algorithm \"{name}\" is unknown");
    if let Some(why) = why {
        return format!("{refused}: {why}; `kolo info` says what each name takes");
    }
    let registered = registry::ALL.iter().map(|entry| entry.name);
    let is_whole = part == name;
    let others = also.iter().copied().filter(|_| is_whole);
    let names: Vec<&str> = registered.chain(others).collect();
    let which = if is_whole { String::new() } else { format!(": there is no {part:?}") };
    match nearest(part, names.iter().copied(), part.chars().count() / 3) {
        Some(near) => {
            let parts = name.split(':').map(|own| if own == part { near } else { own });
            let meant = parts.collect::<Vec<_>>().join(":");
            format!("{refused}{which}; did you mean {meant}? `kolo info` lists all names")
        }
        None => format!(
            "{refused}{which}; choose from {}; `kolo info` says what each does",
            names.join(", ")
        ),
    }
}

/// The most ranks that can be asked for.
const MOST: usize = 4096;

/// A number of ranks, each on a node of its own.
pub fn parse_ranks(text: &str) -> Result<usize, String> {
    let ranks = text.trim().parse().ok().filter(|ranks| (1..=MOST).contains(ranks));
    ranks.ok_or_else(|| format!("expected a number of ranks from 1 to {MOST}"))
}

/// An element type by our name or by nccl-tests'.
pub fn parse_dtype(name: &str) -> Result<DataType, String> {
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
        let names: Vec<_> = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("element type \"{name}\" is unknown; choose from {}", names.join(", "))
    })
}

/// A reduction by our name or by nccl-tests'.
pub fn parse_op(name: &str) -> Result<ReduceOp, String> {
    let alias = match name {
        "avg" => "average",
        "prod" => "product",
        other => other,
    };
    ReduceOp::ALL.into_iter().find(|op| op.name() == alias).ok_or_else(|| {
        let names: Vec<_> = ReduceOp::ALL.iter().map(|op| op.name()).collect();
        format!("reduction \"{name}\" is unknown; choose from {}", names.join(", "))
    })
}

/// Refuses the average of integers.
pub fn check_op(dtype: DataType, op: ReduceOp) -> Result<(), String> {
    if op == ReduceOp::Average && dtype.is_integer() {
        Err(format!(
            "average of {} would have to round; use sum, or a floating-point type",
            dtype.name()
        ))
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
            assert_eq!(parse_ranks(text).unwrap_err(), "expected a number of ranks from 1 to 4096");
        }
    }
}
