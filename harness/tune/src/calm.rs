//! Rounds in which the machine was as fast as in most.
//!
//! A round pairs its settings, so that a drift of the machine cancels in their ratios. A shift does not: a machine
//! that another job shares, or that lowers its clock, changes the ratios themselves. Rounds whose level is far from
//! that of the median round do not count. Nor do blocks in which the processors of a virtual machine were farther apart, or
//! nearer, than in most. What is left of their rounds makes up further rounds.

use std::collections::{BTreeMap, VecDeque};

use results::core_to_core::{are_alike, usual_ns};
use results::statistics::median;

/// A round does not count if its settings took this much longer or shorter than in the median round.
const SHIFT: f64 = 0.2;

/// Settings that were measured one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Seconds by setting.
    pub step_s: BTreeMap<usize, f64>,
    /// How far apart the processors were meanwhile, by setting, in nanoseconds; empty on machines whose processors do not move.
    pub core_to_core_ns: BTreeMap<usize, Vec<f64>>,
}

/// Rounds, those apart that do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calm {
    /// Seconds by setting, for each round that counts.
    pub rounds: Vec<BTreeMap<usize, f64>>,
    /// How long settings took in the others, in parts of the median round.
    pub disturbed: Vec<f64>,
    /// How far apart the processors were in the rounds that count, in nanoseconds.
    pub core_to_core_ns: Option<f64>,
    /// How far apart they were in as many blocks as there are rounds less.
    pub moved_ns: Vec<f64>,
}

impl Calm {
    /// Separates the rounds.
    pub fn of(rounds: Vec<Round>) -> Calm {
        let (rounds, core_to_core_ns, moved_ns) = at_one_placement(rounds);
        let mut of_setting: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (&setting, &step_s) in rounds.iter().flatten() {
            of_setting.entry(setting).or_default().push(step_s);
        }
        let usual: BTreeMap<usize, f64> = of_setting
            .into_iter()
            .filter_map(|(setting, times)| Some((setting, median(times)?)))
            .collect();
        let mut calm = Calm { core_to_core_ns, moved_ns, ..Calm::default() };
        for round in rounds {
            // The median, since one slow block is not a slow machine.
            let ratios = round.iter().map(|(setting, step_s)| step_s / usual[setting]).collect();
            let level = median(ratios).unwrap_or(1.0);
            if level.ln().abs() > SHIFT.ln_1p() {
                calm.disturbed.push(level);
            } else {
                calm.rounds.push(round);
            }
        }
        calm
    }
}

/// Rounds of blocks at the usual placement of the processors, how far apart they are there, and how far they were in as many other
/// blocks as there are rounds less.
///
/// A block elsewhere leaves the other blocks of its round behind. They are paired with the blocks that later rounds leave behind,
/// each setting's in the order of time.
fn at_one_placement(rounds: Vec<Round>) -> (Vec<BTreeMap<usize, f64>>, Option<f64>, Vec<f64>) {
    let latencies = rounds.iter().flat_map(|round| round.core_to_core_ns.values().flatten());
    let core_to_core_ns = usual_ns(&latencies.copied().collect::<Vec<f64>>());
    let is_elsewhere = |ns: &&f64| core_to_core_ns.is_some_and(|usual| !are_alike(**ns, usual));
    let (mut there, mut moved_ns, count) = (Vec::new(), Vec::new(), rounds.len());
    let mut behind: BTreeMap<usize, VecDeque<f64>> = BTreeMap::new();
    for Round { step_s, core_to_core_ns } in rounds {
        let of_setting = |setting| core_to_core_ns.get(setting).into_iter().flatten();
        let elsewhere: BTreeMap<usize, f64> = step_s
            .keys()
            .filter_map(|setting| Some((*setting, *of_setting(setting).find(is_elsewhere)?)))
            .collect();
        moved_ns.extend(elsewhere.values());
        if elsewhere.is_empty() {
            there.push(step_s);
            continue;
        }
        // A setting without a block left keeps the others waiting.
        for (setting, step_s) in step_s {
            let queue = behind.entry(setting).or_default();
            if !elsewhere.contains_key(&setting) {
                queue.push_back(step_s);
            }
        }
        if behind.values().all(|queue| !queue.is_empty()) {
            let first = |(&setting, queue): (&usize, &mut VecDeque<f64>)| {
                Some((setting, queue.pop_front()?))
            };
            there.push(behind.iter_mut().filter_map(first).collect());
        }
    }
    moved_ns.truncate(count - there.len());
    (there, core_to_core_ns, moved_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(levels: &[f64]) -> Vec<Round> {
        let round = |level: &f64| [(0, level * 1.0), (1, level * 1.5), (2, level * 2.0)].into();
        let round = |level: &f64| Round { step_s: round(level), ..Round::default() };
        levels.iter().map(round).collect()
    }

    #[test]
    fn rounds_on_processors_that_have_moved_do_not_count() {
        let apart: [&[f64]; 5] =
            [&[36.0, 35.0], &[190.0, 188.0], &[38.0, 36.0], &[36.0, 190.0], &[37.0, 36.0]];
        let steps_s = [1.0, 1.3, 1.01, 1.1, 1.02];
        let rounds = rounds(&steps_s).into_iter().zip(apart);
        let with = |(round, ns): (Round, &[f64])| {
            let core_to_core_ns =
                round.step_s.keys().map(|&setting| (setting, ns.to_vec())).collect();
            Round { core_to_core_ns, ..round }
        };
        let calm = Calm::of(rounds.map(with).collect());
        let counted: Vec<f64> = calm.rounds.iter().map(|round| round[&0]).collect();
        assert_eq!(counted, [1.0, 1.01, 1.02]);
        assert_eq!(calm.core_to_core_ns, Some(36.0));
        assert_eq!(calm.moved_ns, [190.0, 190.0]);
        assert!(calm.disturbed.is_empty());
    }

    /// In the second round, the processors were elsewhere during the first setting, in the fourth during the second and the third.
    #[test]
    fn blocks_that_others_leave_behind_make_up_rounds() {
        let near = || vec![36.0, 35.0];
        let mut all = rounds(&[1.0, 1.01, 1.02, 1.03, 1.04]);
        for (index, round) in all.iter_mut().enumerate() {
            round.core_to_core_ns = (0..3).map(|setting| (setting, near())).collect();
            for (at, setting) in [(1, 0), (3, 1), (3, 2)] {
                if at == index {
                    round.core_to_core_ns.insert(setting, vec![36.0, 190.0]);
                }
            }
        }
        let calm = Calm::of(all.clone());
        let of = |setting: usize| calm.rounds.iter().map(|it| it[&setting]).collect::<Vec<_>>();
        assert_eq!(of(0), [1.0, 1.02, 1.03, 1.04]);
        assert_eq!(of(1), [1.0, 1.02, 1.01, 1.04].map(|level| 1.5 * level));
        assert_eq!(calm.moved_ns, [190.0]);
        // Without a block of each setting there is no further round.
        all[3].core_to_core_ns.insert(0, vec![190.0, 190.0]);
        let calm = Calm::of(all);
        assert_eq!((calm.rounds.len(), calm.moved_ns.len()), (3, 2));
    }

    #[test]
    fn rounds_of_a_slower_machine_do_not_count() {
        let calm = Calm::of(rounds(&[1.0, 1.02, 2.0, 0.97, 1.1, 1.01, 0.7]));
        assert_eq!(calm.rounds.len(), 5);
        assert_eq!(calm.disturbed.len(), 2);
        assert!((calm.disturbed[0] - 2.0 / 1.01).abs() < 1e-9, "{calm:?}");
    }

    #[test]
    fn one_slow_block_is_no_slow_round_and_drift_is_no_shift() {
        let mut all = rounds(&[1.0, 1.0, 1.0, 1.0]);
        all[2].step_s.insert(0, 9.0);
        assert_eq!(Calm::of(all).disturbed, Vec::<f64>::new());
        assert_eq!(Calm::of(rounds(&[1.0, 1.05, 1.1, 1.15, 1.2])).rounds.len(), 5);
        assert_eq!(Calm::of(Vec::new()), Calm::default());
    }
}
