//! Rounds in which the machine was as fast as in most.
//!
//! A round pairs its settings, so that a drift of the machine cancels in their ratios. A shift does not: a machine
//! that another job shares, or that lowers its clock, changes the ratios themselves. Rounds whose level is far from
//! that of the median round do not count.

use std::collections::BTreeMap;

use results::statistics::median;

/// A round does not count if its settings took this much longer or shorter than in the median round.
const SHIFT: f64 = 0.2;

/// Rounds, those apart that do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calm {
    /// Seconds by setting, for each round that counts.
    pub rounds: Vec<BTreeMap<usize, f64>>,
    /// How long settings took in the others, in parts of the median round.
    pub disturbed: Vec<f64>,
}

impl Calm {
    /// Separates the rounds.
    pub fn of(rounds: Vec<BTreeMap<usize, f64>>) -> Calm {
        let mut of_setting: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (&setting, &step_s) in rounds.iter().flatten() {
            of_setting.entry(setting).or_default().push(step_s);
        }
        let usual: BTreeMap<usize, f64> = of_setting
            .into_iter()
            .filter_map(|(setting, times)| Some((setting, median(times)?)))
            .collect();
        let mut calm = Calm::default();
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

    fn rounds(levels: &[f64]) -> Vec<BTreeMap<usize, f64>> {
        let round = |level: &f64| [(0, level * 1.0), (1, level * 1.5), (2, level * 2.0)].into();
        levels.iter().map(round).collect()
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
        all[2].insert(0, 9.0);
        assert_eq!(Calm::of(all).disturbed, Vec::<f64>::new());
        assert_eq!(Calm::of(rounds(&[1.0, 1.05, 1.1, 1.15, 1.2])).rounds.len(), 5);
        assert_eq!(Calm::of(Vec::new()), Calm::default());
    }
}
