//! Several processes measure together: at each size the data planes take turns, block by block, each block with
//! another one first.

use std::collections::HashMap;

use algorithms::grouped::split;
use anyhow::Result;

use super::arguments::Arguments;
use super::line::Line;
use super::request::{Asked, Request};
use transports::bench::{Bench, Timed};
use transports::data_plane::{DataPlane, DataPlaneError};

/// Repetitions are cut into so many blocks.
const BLOCKS: usize = 10;

/// What came of every line of every data plane, by its index.
pub type Measured = HashMap<(usize, Line), Timed>;

/// How many blocks there are.
pub fn blocks(arguments: &Arguments) -> usize {
    BLOCKS.min(arguments.iters)
}

/// Every line of every data plane, in an order that is the same in all processes.
pub fn measure(
    arguments: &Arguments,
    request: &Request,
    planes: &[Result<DataPlane, DataPlaneError>],
    together: &mut dyn FnMut(usize, &Bench) -> Result<Timed>,
) -> Result<Measured> {
    let mut measured = Measured::new();
    let there =
        || planes.iter().enumerate().filter_map(|(at, plane)| Some((at, plane.as_ref().ok()?)));
    for Asked { dtype, op, elements, cycle } in request.lines() {
        if request.unchecked(arguments, dtype, op).is_some() {
            continue;
        }
        for in_place in [false, true] {
            let line = Line { dtype, op, elements, in_place, cycle };
            for (block, part) in split(arguments.iters, blocks(arguments)).into_iter().enumerate() {
                let first = block % there().count().max(1);
                for (at, plane) in there().skip(first).chain(there().take(first)) {
                    let tensors = line.tensors(arguments, plane);
                    let bench = line.bench(arguments, request, plane, &tensors);
                    let timed = together(at, &Bench { repetitions: part.len(), ..bench })?;
                    let before = measured.remove(&(at, line));
                    let all = before.map_or(timed.clone(), |before: Timed| before.and(timed));
                    measured.insert((at, line), all);
                }
            }
        }
    }
    Ok(measured)
}
