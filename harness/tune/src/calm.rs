//! Rounds in which the machine was as fast as in most.
//!
//! A round pairs its settings, so that a drift of the machine cancels in their ratios. A shift does not: a machine
//! that another job shares, or that lowers its clock, changes the ratios themselves. Rounds whose level is far from
//! that of the median round do not count. Nor do rounds in which the processors of a virtual machine were farther apart, or
//! nearer, than in most.

use std::collections::BTreeMap;

use results::core_to_core::{are_alike, usual_ns};
use results::statistics::median;

/// A round does not count if its settings took this much longer or shorter than in the median round.
const SHIFT: f64 = 0.2;

/// Settings that were measured one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Seconds by setting.
    pub step_s: BTreeMap<usize, f64>,
    /// How far apart the processors were meanwhile, in nanoseconds; empty on machines whose processors do not move.
    pub core_to_core_ns: Vec<f64>,
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
    /// How far apart they were in the other rounds, for at least a part of each.
    pub moved_ns: Vec<f64>,
}

impl Calm {
    /// Separates the rounds.
    pub fn of(rounds: Vec<Round>) -> Calm {
        let latencies: Vec<f64> =
            rounds.iter().flat_map(|round| round.core_to_core_ns.iter().copied()).collect();
        let core_to_core_ns = usual_ns(&latencies);
        let (mut moved_ns, mut there) = (Vec::new(), Vec::new());
        for Round { step_s, core_to_core_ns: latencies } in rounds {
            let is_elsewhere =
                |ns: &f64| core_to_core_ns.is_some_and(|usual| !are_alike(*ns, usual));
            match latencies.into_iter().find(is_elsewhere) {
                Some(ns) => moved_ns.push(ns),
                None => there.push(step_s),
            }
        }
        let rounds: Vec<BTreeMap<usize, f64>> = there;
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
        let rounds =
            rounds.map(|(round, ns)| Round { core_to_core_ns: ns.to_vec(), ..round }).collect();
        let calm = Calm::of(rounds);
        let counted: Vec<f64> = calm.rounds.iter().map(|round| round[&0]).collect();
        assert_eq!(counted, [1.0, 1.01, 1.02]);
        assert_eq!(calm.core_to_core_ns, Some(36.0));
        assert_eq!(calm.moved_ns, [190.0, 190.0]);
        assert!(calm.disturbed.is_empty());
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
