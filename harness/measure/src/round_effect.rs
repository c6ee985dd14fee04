//! How much the machine's speed differs between rounds of blocks, and what that adds to intervals.
//!
//! The interval of a median takes its blocks as independent. On a machine that drifts, blocks that follow each other are
//! alike, and a few blocks of one case do not show it. A round has a block of each case, so what slows a round down shows in
//! the median over cases. Where rounds differ by more than in random orders of each case's blocks (a permutation test),
//! intervals are widened, as if [`MEMORY`] of a round's deviation stayed in the next one.

use std::collections::BTreeMap;
use std::fmt;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, StudentsT};

use results::block::Outline;
use results::statistics::{CONFIDENCE, median};

/// The share of a round's deviation that remains in the next: assumed, because few rounds do not show it.
pub const MEMORY: f64 = 0.8;

/// Random orders. Where rounds do not differ, they are found to differ in 1 % of sweeps.
const ORDERS: usize = 99;

/// Of more cases an even part counts, and of more rounds those after the first are left out.
const CASES_MAX: usize = 1_000;
const ROUNDS_MAX: usize = 1_000;

/// A launch and a round of blocks.
pub type Round = (usize, usize);

/// Rounds that differ in speed.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundEffect {
    /// The standard deviation of the rounds that were measured, within a launch, of logarithms.
    pub measured: f64,
    /// That of many rounds, if each keeps [`MEMORY`] of the one before.
    pub deviation: f64,
    /// The degrees of freedom that it is known with.
    freedom: f64,
    /// The position of each round in the order of time.
    positions: BTreeMap<Round, usize>,
    /// Rounds and cases that tell it.
    rounds: usize,
    cases: usize,
}

impl RoundEffect {
    /// From the blocks of each case; none if rounds do not differ.
    pub fn of(cases: &[Vec<&Outline>]) -> Option<RoundEffect> {
        let rounds = cases.iter().flatten().map(|block| (block.launch, block.block));
        let mut positions: BTreeMap<Round, usize> = rounds.map(|round| (round, 0)).collect();
        positions.values_mut().enumerate().for_each(|(at, position)| *position = at);
        let stride = cases.len().div_ceil(CASES_MAX).max(1);
        let cases: Vec<&Vec<&Outline>> = cases.iter().step_by(stride).collect();
        let mut told: BTreeMap<Round, usize> = BTreeMap::new();
        for block in cases.iter().flat_map(|blocks| blocks.iter()) {
            *told.entry((block.launch, block.block)).or_default() += 1;
        }
        // A single case does not tell its own noise from that of the round.
        told.retain(|_, cases| *cases > 1);
        let told: Vec<Round> = told.into_keys().take(ROUNDS_MAX).collect();
        let launches: Vec<usize> = told.iter().map(|&(launch, _)| launch).collect();
        let places: Vec<usize> = told.iter().map(|round| positions[round]).collect();
        let at = told.iter().enumerate().map(|(at, &round)| (round, at)).collect();
        let mut deviations = Deviations::of(&cases, &at);
        let squares = deviations.squares(&launches);
        let mut random = ChaCha8Rng::seed_from_u64(launches.len() as u64);
        let mut by_chance = 0.0;
        for _ in 0..ORDERS {
            deviations.shuffle(&mut random);
            let other = deviations.squares(&launches);
            if other >= squares {
                return None;
            }
            by_chance += other / ORDERS as f64;
        }
        let excess = squares - by_chance;
        let moments = Moments::of(&places, &launches);
        Some(RoundEffect {
            measured: (excess / moments.free).sqrt(),
            deviation: (excess / moments.mean).sqrt(),
            freedom: 2.0 * moments.mean.powi(2) / moments.variance,
            rounds: told.len(),
            positions,
            cases: cases.len(),
        })
    }

    /// Half the width of the 95 % interval of what these rounds add to the logarithm of a median.
    pub fn half_width(&self, rounds: impl IntoIterator<Item = Round>) -> f64 {
        let mut positions: Vec<usize> =
            rounds.into_iter().filter_map(|round| self.positions.get(&round).copied()).collect();
        positions.sort_unstable();
        // The sum of the correlations of all pairs: each round with those before it, twice, and with itself.
        let (mut sum, mut with_earlier, mut last) = (0.0, 0.0, 0);
        for &position in &positions {
            with_earlier *= MEMORY.powi((position - last) as i32);
            sum += 1.0 + 2.0 * with_earlier;
            (with_earlier, last) = (with_earlier + 1.0, position);
        }
        let of_mean = self.deviation * sum.sqrt() / positions.len().max(1) as f64;
        let student = StudentsT::new(0.0, 1.0, self.freedom).expect("more than no freedom");
        student.inverse_cdf((1.0 + CONFIDENCE) / 2.0) * of_mean
    }

    /// An interval that contains what these rounds add, too.
    pub fn widened(
        &self,
        p50: f64,
        (low, high): (f64, f64),
        rounds: impl IntoIterator<Item = Round>,
    ) -> (f64, f64) {
        if low <= 0.0 || p50 <= 0.0 {
            return (low, high);
        }
        let added = self.half_width(rounds);
        let half = |end: f64| (end / p50).ln().hypot(added).exp();
        (p50 / half(low), p50 * half(high))
    }
}

impl fmt::Display for RoundEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rounds: the machine's speed differs by {:.1} % from round to round (standard deviation of {} rounds, {} cases), \
             and intervals of medians are wider by what a drift of that size may do",
            100.0 * self.measured.exp_m1(),
            self.rounds,
            self.cases
        )
    }
}

/// How much the logarithms of blocks' medians deviate from those of their cases.
struct Deviations {
    /// Of each case and launch: positions of rounds, and the deviations there.
    rows: Vec<(Vec<usize>, Vec<f64>)>,
}

impl Deviations {
    fn of(cases: &[&Vec<&Outline>], positions: &BTreeMap<Round, usize>) -> Deviations {
        let mut rows = Vec::new();
        for blocks in cases {
            let mut launches: BTreeMap<usize, (Vec<usize>, Vec<f64>)> = BTreeMap::new();
            for block in blocks.iter() {
                let position = positions.get(&(block.launch, block.block));
                if let Some((&position, median)) = position.zip(median(block.times_us.clone())) {
                    let (places, values) = launches.entry(block.launch).or_default();
                    places.push(position);
                    values.push(median.ln());
                }
            }
            for (places, mut values) in launches.into_values() {
                let usual = median(values.clone()).unwrap_or_default();
                values.iter_mut().for_each(|value| *value -= usual);
                rows.push((places, values));
            }
        }
        Deviations { rows }
    }

    fn shuffle(&mut self, random: &mut ChaCha8Rng) {
        self.rows.iter_mut().for_each(|(_, values)| values.shuffle(random));
    }

    /// The sum of squares of the rounds' deviations, the median over cases, from the mean of their launch.
    fn squares(&self, launches: &[usize]) -> f64 {
        let mut of_rounds = vec![Vec::new(); launches.len()];
        for (places, values) in &self.rows {
            places.iter().zip(values).for_each(|(&place, &value)| of_rounds[place].push(value));
        }
        let rounds: Vec<f64> =
            of_rounds.into_iter().map(|round| median(round).unwrap_or_default()).collect();
        let of_launch = |rounds: Vec<f64>| {
            let mean = rounds.iter().sum::<f64>() / rounds.len() as f64;
            rounds.iter().map(|round| (round - mean).powi(2)).sum::<f64>()
        };
        by_launch(launches)
            .into_values()
            .map(|at| of_launch(at.iter().map(|&at| rounds[at]).collect()))
            .sum()
    }
}

/// Positions of the rounds of each launch.
fn by_launch(launches: &[usize]) -> BTreeMap<usize, Vec<usize>> {
    let mut of_launches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    launches
        .iter()
        .enumerate()
        .for_each(|(at, &launch)| of_launches.entry(launch).or_default().push(at));
    of_launches
}

/// Of the sum of squares of rounds from the mean of their launch, if their variance is 1 and each keeps [`MEMORY`] of the one
/// before.
struct Moments {
    /// Its expected value if rounds were independent: its degrees of freedom.
    free: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    /// From the positions and the launches of rounds.
    fn of(positions: &[usize], launches: &[usize]) -> Moments {
        let of_launches = by_launch(launches);
        let correlation = |one: usize, other: usize| {
            MEMORY.powi(positions[one].abs_diff(positions[other]) as i32)
        };
        let mean_over = |launch: usize, of: &dyn Fn(usize) -> f64| {
            let rounds = &of_launches[&launch];
            rounds.iter().map(|&round| of(round)).sum::<f64>() / rounds.len() as f64
        };
        // Of each round with those of each launch, and of two launches.
        let with_launch = |one: usize| -> BTreeMap<usize, f64> {
            let mean =
                |&launch: &usize| (launch, mean_over(launch, &|other| correlation(one, other)));
            of_launches.keys().map(mean).collect()
        };
        let with_launch: Vec<BTreeMap<usize, f64>> = (0..launches.len()).map(with_launch).collect();
        let of_both = |one: usize| -> BTreeMap<usize, f64> {
            let mean =
                |&other: &usize| (other, mean_over(one, &|round| with_launch[round][&other]));
            of_launches.keys().map(mean).collect()
        };
        let of_both: BTreeMap<usize, BTreeMap<usize, f64>> =
            of_launches.keys().map(|&launch| (launch, of_both(launch))).collect();
        let (mut mean, mut variance) = (0.0, 0.0);
        for (one, first) in launches.iter().enumerate() {
            for (other, second) in launches.iter().enumerate() {
                let covariance =
                    correlation(one, other) - with_launch[one][second] - with_launch[other][first]
                        + of_both[first][second];
                variance += 2.0 * covariance * covariance;
                mean += if one == other { covariance } else { 0.0 };
            }
        }
        Moments { free: (launches.len() - of_launches.len()) as f64, mean, variance }
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Blocks of so many cases in rounds with these levels, of each launch.
    fn sweep(cases: usize, launches: &[Vec<f64>], noise: f64, seed: u64) -> Vec<Vec<Outline>> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut of_case = |case: usize| {
            let mut blocks = Vec::new();
            for (launch, levels) in launches.iter().enumerate() {
                for (round, level) in levels.iter().enumerate() {
                    let own: f64 = StandardNormal.sample(&mut random);
                    let time_us = 100.0 * (case + 1) as f64 * (level + noise * own).exp();
                    blocks.push(Outline {
                        launch,
                        block: 100 * launch + round,
                        times_us: vec![time_us],
                        ..Outline::default()
                    });
                }
            }
            blocks
        };
        (0..cases).map(&mut of_case).collect()
    }

    fn found(all: &[Vec<Outline>]) -> Option<RoundEffect> {
        let all: Vec<Vec<&Outline>> = all.iter().map(|blocks| blocks.iter().collect()).collect();
        RoundEffect::of(&all)
    }

    /// Levels that keep so much of the one before.
    fn levels(count: usize, memory: f64, deviation: f64, seed: u64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(1_000 + seed);
        let mut level: f64 = StandardNormal.sample(&mut random);
        let mut next = |_| {
            let before = deviation * level;
            let fresh: f64 = StandardNormal.sample(&mut random);
            level = memory * level + (1.0 - memory * memory).sqrt() * fresh;
            before
        };
        (0..count).map(&mut next).collect()
    }

    #[test]
    fn rounds_of_a_steady_machine_do_not_differ() {
        for launches in [vec![vec![0.0; 6]], vec![vec![0.0; 3]; 3], vec![vec![0.0]; 5], vec![]] {
            let differ = |seed: &u64| found(&sweep(12, &launches, 0.02, *seed)).is_some();
            let count = (0..300).filter(differ).count();
            assert!(count <= 9, "{count} of 300: {launches:?}");
        }
        assert_eq!(
            found(&sweep(1, &[levels(6, 0.8, 0.1, 1)], 0.02, 1)),
            None,
            "one case tells nothing"
        );
    }

    #[test]
    fn launches_may_differ() {
        let launches = [vec![0.0; 4], vec![0.3; 4], vec![-0.2; 4]];
        assert_eq!(found(&sweep(12, &launches, 0.02, 1)), None);
    }

    /// The mean of rounds that drift is within the width that is added in about 95 % of sweeps. With two rounds a launch a drift
    /// is not found in a few; intervals over launches have their own width besides.
    #[test]
    fn the_added_width_covers_a_drift() {
        for (launches, rounds) in [(1, 6), (1, 12), (3, 3), (5, 2)] {
            let covered = |seed: &u64| {
                let all = levels(launches * rounds, MEMORY, 0.1, *seed);
                let parts: Vec<Vec<f64>> = all.chunks(rounds).map(<[f64]>::to_vec).collect();
                let effect = found(&sweep(12, &parts, 0.02, *seed));
                let places = (0..launches).flat_map(|launch| {
                    (0..rounds).map(move |round| (launch, 100 * launch + round))
                });
                let mean = all.iter().sum::<f64>() / all.len() as f64;
                effect.is_some_and(|effect| mean.abs() <= effect.half_width(places))
            };
            let count = (0..400).filter(covered).count();
            assert!((350..=394).contains(&count), "{count} of 400: {launches} x {rounds}");
        }
    }

    #[test]
    fn a_wider_interval_contains_the_one_before() {
        let effect = found(&sweep(12, &[levels(6, 0.8, 0.1, 2)], 0.02, 2)).unwrap();
        let rounds: Vec<Round> = (0..6).map(|round| (0, round)).collect();
        let (low, high) = effect.widened(100.0, (99.0, 102.0), rounds.clone());
        assert!(low < 97.0 && high > 103.0 && low > 50.0 && high < 200.0, "{low} {high}");
        assert_eq!(effect.widened(0.0, (0.0, 0.0), rounds), (0.0, 0.0));
        let said = effect.to_string();
        assert!(said.starts_with("rounds: the machine's speed differs by "), "{said}");
        assert!(said.contains("(standard deviation of 6 rounds, 12 cases)"), "{said}");
    }
}
