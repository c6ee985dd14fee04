//! Several processes measure together: at each size the data planes take turns, block by block, each block with
//! another one first.

use std::collections::{HashMap, VecDeque};

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
            let parts = split(arguments.iters, blocks(arguments));
            // Repetitions of blocks of planes: those to come, and those that are there.
            let mut left: VecDeque<(usize, usize)> = VecDeque::new();
            let mut done: HashMap<usize, Vec<usize>> = HashMap::new();
            for (block, part) in parts.into_iter().enumerate() {
                let first = block % there().count().max(1);
                let order = there().skip(first).chain(there().take(first));
                left.extend(order.map(|(at, _)| (at, part.len())));
            }
            while let Some((at, repetitions)) = left.pop_front() {
                let plane = planes[at].as_ref().expect("it is there");
                let tensors = line.tensors(arguments, plane);
                let bench = line.bench(arguments, request, plane, &tensors);
                let before: Option<Timed> = measured.remove(&(at, line));
                // Once its clocks were not known well enough, a line's ranks start after a barrier.
                let start = before.as_ref().map_or(bench.start, |before| before.start);
                let timed = together(at, &Bench { repetitions, start, ..bench })?;
                let all = match before {
                    // Times of different starts are no sample: the earlier blocks are measured again.
                    Some(before) if before.start != timed.start => {
                        let again = done.remove(&at).unwrap_or_default();
                        left.extend(again.into_iter().map(|repetitions| (at, repetitions)));
                        timed
                    }
                    Some(before) => before.and(timed),
                    None => timed,
                };
                done.entry(at).or_default().push(repetitions);
                measured.insert((at, line), all);
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use algorithms::topology::Topology;
    use clap::Parser;
    use measure::back_ends;
    use measure::plan::Placement;
    use transports::bench::{MOST_SHARE, Start, Unsynchronised};

    use super::*;
    use crate::cli::bench::request::request;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// Repetitions and starts of each call, and what came of the line, if the clocks of a plane are lost in its fourth
    /// block.
    #[test]
    fn a_line_whose_clocks_are_lost_is_measured_after_a_barrier_throughout() {
        let options = ["bench", "--algorithm", "ring,tree", "--sizes", "64:64:x2", "-n", "23"];
        let options = options.into_iter().chain(["--sync", "round-time"]);
        let CommandLine { arguments } = CommandLine::parse_from(options);
        let placement = Placement { members: Vec::new(), emulated: true, oversubscribed: false };
        let topology = Topology::flat(2);
        let request = request(&arguments, topology, placement, (2, Vec::new())).unwrap();
        let find = |name: &String| back_ends::default().data_plane(name, &request.topology);
        let planes: Vec<_> = request.names.iter().map(find).collect();
        let why =
            Unsynchronised { ranks: vec![1], error_s: 2e-6, most_s: MOST_SHARE * 1e-6, of: "" };
        let mut calls: [Vec<(usize, Start)>; 2] = Default::default();
        let measured = measure(&arguments, &request, &planes, &mut |at, bench| {
            calls[at].push((bench.repetitions, bench.start));
            // In the second half of the line, in place, nothing is lost.
            let is_lost = at == 1 && calls[1].len() == 4;
            let timed = Timed {
                times: vec![Duration::from_micros(1); bench.repetitions],
                start: if is_lost { Start::Barrier } else { bench.start },
                unsynchronised: is_lost.then(|| why.clone()),
                ..Timed::default()
            };
            Ok(timed)
        });
        let measured = measured.unwrap();
        let line =
            |in_place| measured.iter().filter(move |((_, line), _)| line.in_place == in_place);
        for ((at, _), timed) in line(false) {
            assert_eq!(timed.times.len(), 23, "every repetition counts once");
            assert_eq!(timed.blocks.len(), BLOCKS);
            let expected = [(Start::RoundTime, None), (Start::Barrier, Some(why.clone()))];
            assert_eq!((timed.start, timed.unsynchronised.clone()), expected[*at]);
        }
        let starts = |at: usize| calls[at].iter().map(|&(_, start)| start).collect::<Vec<_>>();
        assert_eq!(starts(0), [Start::RoundTime; 2 * BLOCKS]);
        // Four blocks, six after a barrier, the first three again; then the line in place.
        let expected = [[Start::RoundTime; 4].as_slice(), &[Start::Barrier; 9]].concat();
        assert_eq!(starts(1)[..13], expected);
        assert_eq!(starts(1)[13..], [Start::RoundTime; BLOCKS]);
        assert!(line(true).all(|(_, timed)| timed.start == Start::RoundTime));
    }
}
