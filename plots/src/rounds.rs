//! Ratios of measured cases from blocks that ran side by side.
//!
//! A round has a block of every case, so a machine that is slow in one round is slow for all of them. The ratio of two cases
//! is the mean over rounds, of logarithms, and its interval is Student's over rounds, or over launches if there are three.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::logs::Medians;
use crate::rows::{Estimate, Row, Rows};

/// What the caption says of such ratios.
pub(crate) const NOTE: &str = "A ratio is the geometric mean over rounds of blocks that ran side by side. Its interval is over rounds, or over \
     launches if there are three. With fewer than 5 rounds and fewer than 3 launches, or if a step time has no interval, it \
     is the ratio of medians, without interval.";

/// The fewest launches for an interval over launches.
const LAUNCHES_MIN: usize = 3;
/// The fewest rounds for an interval over rounds.
const ROUNDS_MIN: usize = 5;

/// The probability that an interval does not hold.
const ERROR: f64 = 0.05;

/// The blocks of some cases.
#[derive(Debug, Default)]
pub(crate) struct Rounds(BTreeMap<(usize, String), Medians>);

impl Rounds {
    /// The blocks of measured rows.
    pub fn of<'a>(rows: &Rows, wanted: impl Iterator<Item = &'a Row>) -> Rounds {
        // A tuner measures its settings unequally often, and not in rounds.
        let in_rounds = |row: &&Row| !row.is_simulated() && row.stop_reason != "tuned";
        Rounds(rows.block_medians(wanted.filter(in_rounds)))
    }

    /// Time of `over` divided by that of `under`.
    pub fn ratio(&self, over: &Row, under: &Row) -> Estimate {
        self.paired(over, under).unwrap_or_else(|| {
            let medians = over.time_us.value.zip(under.time_us.value);
            Estimate { value: medians.map(|(over, under)| over / under), interval: None }
        })
    }

    fn medians(&self, row: &Row) -> Option<&Medians> {
        self.0.get(&(row.file, row.case.clone()))
    }

    /// The ratio by rounds; none if they are too few, or if the machine or its blocks left a time without an interval.
    fn paired(&self, over: &Row, under: &Row) -> Option<Estimate> {
        if over.file != under.file
            || over.time_us.interval.is_none()
            || under.time_us.interval.is_none()
        {
            return None;
        }
        let (over, under) = (self.medians(over)?, self.medians(under)?);
        let shared = over.iter().filter_map(|(place, time)| {
            let other = under.get(place)?;
            Some((place.0, (time / other).ln()))
        });
        let mut by_launch: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        shared.for_each(|(launch, ratio)| by_launch.entry(launch).or_default().push(ratio));
        if by_launch.len() >= LAUNCHES_MIN {
            return student(&by_launch.values().map(|ratios| mean(ratios)).collect::<Vec<_>>());
        }
        let rounds: Vec<f64> = by_launch.into_values().flatten().collect();
        if rounds.len() < ROUNDS_MIN { None } else { student(&rounds) }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Student's interval of the mean of logarithms, as ratios.
fn student(logarithms: &[f64]) -> Option<Estimate> {
    let (count, mean) = (logarithms.len() as f64, mean(logarithms));
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let reach = StudentsT::new(0.0, 1.0, count - 1.0).ok()?.inverse_cdf(1.0 - ERROR / 2.0) * error;
    let interval = Some(((mean - reach).exp(), (mean + reach).exp()));
    Some(Estimate { value: Some(mean.exp()), interval })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, step};

    /// Two cases and the medians of their blocks, in microseconds; the launch of each round.
    fn ratio(over: &[f64], under: &[f64], launches: &[u64]) -> Estimate {
        let row = |algorithm: &str| step(algorithm, "bitvector", 64.0, 5.0).with("case", algorithm);
        let rows = [
            row("ring").with_estimate("time_us_p50", 200.0, 5.0),
            row("tree").with_estimate("time_us_p50", 100.0, 5.0),
        ];
        let mut rows = Rows::of(&synthetic::table(&rows));
        let mut samples = String::from("case,block,launch,order,step,time_us\n");
        for (case, medians) in [("ring", over), ("tree", under)] {
            for (block, (median, launch)) in medians.iter().zip(launches).enumerate() {
                // The median of each block is that of three steps.
                for (step, time_us) in [median / 2.0, *median, median * 7.0].iter().enumerate() {
                    samples += &format!("{case},{block},{launch},0,{step},{time_us}\n");
                }
            }
        }
        let path = rows.files[0].with_file_name("samples.csv");
        rows.add_table(&path, samples.as_bytes()).unwrap();
        let of: Vec<&Row> = rows.all().collect();
        Rounds::of(&rows, of.iter().copied()).ratio(of[0], of[1])
    }

    /// Twice the time in every round, while the machine's speed varies by a factor of three.
    #[test]
    fn what_all_cases_of_a_round_share_is_not_in_the_ratio() {
        let under = [100.0, 300.0, 120.0, 90.0, 200.0];
        let Estimate { value, interval } = ratio(&under.map(|us| 2.0 * us), &under, &[1; 5]);
        let (low, high) = interval.unwrap();
        assert!((value.unwrap() - 2.0).abs() < 1e-9);
        assert!((low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
    }

    /// Logarithms 0.1, 0.2, 0.3, 0.4, 0.5: mean 0.3, standard error 0.0707, t(4) = 2.776.
    #[test]
    fn the_interval_is_students_over_rounds() {
        let over = [0.1, 0.2, 0.3, 0.4, 0.5].map(|logarithm: f64| 100.0 * logarithm.exp());
        let Estimate { value, interval } = ratio(&over, &[100.0; 5], &[1; 5]);
        assert!((value.unwrap().ln() - 0.3).abs() < 1e-9);
        let (low, high) = interval.unwrap();
        assert!((low.ln() - (0.3 - 0.1963)).abs() < 1e-4 && (high.ln() - 0.4963).abs() < 1e-4);
        // Three launches are the units.
        let launches = ratio(&over, &[100.0; 5], &[1, 1, 2, 3, 3]).interval.unwrap();
        assert!((launches.0.ln() - (0.3 - 0.3726)).abs() < 1e-3, "{launches:?}");
    }

    #[test]
    fn few_rounds_have_the_ratio_of_medians_without_an_interval() {
        let few = ratio(&[300.0; 4], &[100.0; 4], &[1; 4]);
        assert_eq!(few, Estimate { value: Some(2.0), interval: None });
        // Other rounds are not side by side.
        let other = ratio(&[300.0; 6], &[100.0; 4], &[1; 6]);
        assert_eq!(other.interval, None);
    }
}
