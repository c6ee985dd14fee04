//! Names of topologies, element types and reductions, as users write them.

use algorithms::control::{DataType, ReduceOp};
use algorithms::topology::Topology;

/// The most ranks on a node, and the most nodes.
const MOST: usize = 4096;

/// `2x4` is 2 nodes of 4 ranks, `3+1` a node of 3 and one of 1, `5` five nodes of 1.
pub fn parse_topology(text: &str) -> Result<Topology, String> {
    let problem = || {
        format!(
            "\"{text}\" is no topology; write nodes x ranks per node (2x4), the ranks of each \
             node (3+1), or a number of ranks (5), each number from 1 to {MOST}"
        )
    };
    let number = |part: &str| match part.trim().parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        _ => Err(problem()),
    };
    let topology = match text.split_once('x') {
        Some((nodes, local_size)) => Topology::uniform(number(nodes)?, number(local_size)?),
        None if text.contains('+') => {
            Topology::new(&text.split('+').map(number).collect::<Result<Vec<_>, _>>()?)
        }
        None => Topology::flat(number(text)?),
    };
    Ok(topology)
}

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
    match op == ReduceOp::Average && dtype.is_integer() {
        false => Ok(()),
        true => Err(format!(
            "average of {} would have to round; use sum, or a floating-point type",
            dtype.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_are_read() {
        for (text, expected) in [("2x4", "2x4"), ("3+1", "3+1"), ("5", "5x1"), ("2+2", "2x2")] {
            assert_eq!(parse_topology(text).unwrap().to_string(), expected);
        }
        for text in ["", "0", "2x0", "x", "1+", "-3", "2x2x2", "99999999999"] {
            parse_topology(text).unwrap_err();
        }
        assert_eq!(parse_ranks("4096"), Ok(4096));
        for text in ["", "0", "-1", "4097", "2x2"] {
            assert_eq!(parse_ranks(text).unwrap_err(), "expected a number of ranks from 1 to 4096");
        }
    }
}
