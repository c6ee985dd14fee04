//! Which blocks of a case are compared with each other.
//!
//! A round has one block of each runner. On a virtual machine, its hypervisor may move the processors, and step times change with
//! how far apart they are. So a round counts if its blocks ran at one distance. Blocks of the other rounds make up further
//! rounds: those at one distance, each runner's in the order of time.

use std::collections::BTreeMap;

use results::core_to_core::are_alike;

use crate::block::{BlockRow, Runner};
use crate::counted::mean_ns;
use crate::plan::{Plan, Turn};

/// Step times in ms, in the order of [`Runner::ALL`].
pub type StepsMs = [f64; Runner::ALL.len()];

/// The rounds of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Those that count.
    pub counted: Vec<StepsMs>,
    /// How many of the rounds that were run do not, because the processors had moved.
    pub moved: usize,
}

/// A block that ended.
#[derive(Clone, Copy)]
struct Block {
    step_ms: f64,
    /// The least and the largest latency between the first two processors, if it is known.
    core_to_core_ns: Option<[f64; 2]>,
}

/// Blocks of each runner at one distance of the processors.
struct Behind {
    core_to_core_ns: f64,
    /// In the order of time.
    steps_ms: [Vec<f64>; Runner::ALL.len()],
}

impl Rounds {
    /// Of the blocks of one case. Rounds that lack a block are ignored.
    pub fn of<'r>(rows: impl Iterator<Item = &'r BlockRow>) -> Rounds {
        let mut run: BTreeMap<usize, [Option<Block>; Runner::ALL.len()]> = BTreeMap::new();
        for row in rows {
            let runner = Runner::ALL.iter().position(|&runner| row.is_of(runner));
            if let (Some(runner), Some(step_ms)) = (runner, row.step_ms) {
                let core_to_core_ns = row.core_to_core_ns_least.zip(row.core_to_core_ns_most);
                let core_to_core_ns = core_to_core_ns.map(<[f64; 2]>::from);
                run.entry(row.block).or_default()[runner] =
                    Some(Block { step_ms, core_to_core_ns });
            }
        }
        let (mut rounds, mut behind) = (Rounds::default(), Vec::new());
        for blocks in run.into_values() {
            let [Some(kolo), Some(horovod), Some(control)] = blocks else { continue };
            let blocks = [kolo, horovod, control];
            if are_at_one_distance(&blocks) {
                rounds.counted.push(blocks.map(|block| block.step_ms));
                continue;
            }
            rounds.moved += 1;
            for (runner, block) in blocks.iter().enumerate() {
                leave(&mut behind, runner, block);
            }
        }
        for Behind { steps_ms: [kolo, horovod, control], .. } in behind {
            let paired = kolo.into_iter().zip(horovod).zip(control);
            let paired: Vec<StepsMs> =
                paired.map(|((kolo, first), second)| [kolo, first, second]).collect();
            rounds.moved -= paired.len();
            rounds.counted.extend(paired);
        }
        rounds
    }
}

/// One more round of each case of which fewer count than its configuration asks for, because the processors had moved. None of a
/// case that has as many as its configuration allows, or that was given up.
pub fn further(plan: &Plan, rows: &[BlockRow]) -> Vec<Turn> {
    let lacking = plan.cases.iter().enumerate().filter_map(|(index, case)| {
        let own = || rows.iter().filter(|row| row.case == case.name);
        let Rounds { counted, moved } = Rounds::of(own());
        let run = counted.len() + moved;
        let lacks = counted.len() < plan.blocks(case) && run < plan.blocks_max(case);
        (lacks && own().all(|row| row.step_ms.is_some())).then_some((index, run))
    });
    plan.further_round(lacking.collect())
}

/// Whether processors were equally far apart in all of these blocks, as far as it is known.
fn are_at_one_distance(blocks: &[Block]) -> bool {
    let known = blocks.iter().filter_map(|block| block.core_to_core_ns);
    let range = known.reduce(|[least, most], [low, high]| [least.min(low), most.max(high)]);
    range.is_none_or(|[least, most]| are_alike(least, most))
}

/// Adds a block to those at its distance; one whose processors moved meanwhile has none.
fn leave(behind: &mut Vec<Behind>, runner: usize, block: &Block) {
    let Some([least, most]) =
        block.core_to_core_ns.filter(|[least, most]| are_alike(*least, *most))
    else {
        return;
    };
    let core_to_core_ns = mean_ns([least, most]);
    let there = behind.iter().position(|it| are_alike(it.core_to_core_ns, core_to_core_ns));
    let there = there.unwrap_or_else(|| {
        behind.push(Behind { core_to_core_ns, steps_ms: Default::default() });
        behind.len() - 1
    });
    behind[there].steps_ms[runner].push(block.step_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Option<[f64; 2]> = Some([30.0, 33.0]);
    const FAR: Option<[f64; 2]> = Some([150.0, 155.0]);
    const BOTH: Option<[f64; 2]> = Some([30.0, 155.0]);

    /// Each round's distances, in the order of runners. The step of runner 1 in round 2 takes 12 ms.
    fn rows(rounds: &[[Option<[f64; 2]>; 3]]) -> Vec<BlockRow> {
        let row = |(block, runner, range): (usize, usize, Option<[f64; 2]>)| BlockRow {
            block,
            engine: Runner::ALL[runner].name().into(),
            step_ms: Some((10 * runner + block) as f64),
            core_to_core_ns_least: range.map(|[least, _]| least),
            core_to_core_ns_most: range.map(|[_, most]| most),
            ..BlockRow::default()
        };
        let blocks = rounds.iter().enumerate().flat_map(|(block, ranges)| {
            ranges.iter().enumerate().map(move |(runner, &range)| (block, runner, range))
        });
        blocks.map(row).collect()
    }

    #[test]
    fn rounds_at_one_distance_count() {
        let all = rows(&[[NEAR; 3], [NEAR, None, NEAR], [None; 3], [FAR; 3]]);
        let Rounds { counted, moved } = Rounds::of(all.iter());
        assert_eq!(counted[0], [0.0, 10.0, 20.0]);
        assert_eq!((counted.len(), moved), (4, 0));
        let Rounds { counted, moved } =
            Rounds::of(all.iter().filter(|row| row.step_ms != Some(11.0)));
        assert_eq!((counted.len(), moved), (3, 0), "a round that lacks a block is none");
    }

    #[test]
    fn blocks_at_one_distance_make_up_further_rounds() {
        let all = [[NEAR, FAR, NEAR], [NEAR; 3], [FAR, NEAR, FAR], [FAR, NEAR, BOTH]];
        let Rounds { counted, moved } = Rounds::of(rows(&all).iter());
        let near = [0.0, 12.0, 20.0];
        let far = [2.0, 10.0, 22.0];
        assert_eq!(counted, [[1.0, 11.0, 21.0], near, far]);
        assert_eq!(moved, 1);
        // One runner is always near, another always far.
        let Rounds { counted, moved } = Rounds::of(rows(&[[NEAR, FAR, FAR]; 4]).iter());
        assert_eq!((counted.len(), moved), (0, 4));
        // Where its distance is not known, a block belongs to its round only.
        let Rounds { counted, moved } =
            Rounds::of(rows(&[[NEAR, FAR, None], [FAR, NEAR, None]]).iter());
        assert_eq!((counted.len(), moved), (0, 2));
    }
}
