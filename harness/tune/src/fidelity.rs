//! How far the engine is from real Horovod.
//!
//! A gain is the ratio of two step times. Where both were also measured with real Horovod, the engine's ratio can be
//! compared with Horovod's (`kolo against horovod`, see `harness/against/README.md`). How far the two are apart, beyond the
//! noise of that measurement, is part of every promised interval.

use super::answer::Ratio;

/// How far the engine is from Horovod: of `results/reference/horovod`, by [`pair_error`] and [`share_error`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// For 95 % of pairs of settings of one model on the same ranks, the ratio of their step times in the engine and that in
    /// Horovod differ by at most this factor, where every rank has a core.
    pub pair_error: f64,
    /// Where ranks share cores, the logarithm of the ratio is uncertain by this share of itself in addition.
    pub share_error: f64,
    /// The number of cases behind it.
    pub cases: usize,
}

/// Every rank has a core.
const OWN_CORES: Fidelity = Fidelity { pair_error: 1.051, share_error: 0.0, cases: 32 };

/// There are more ranks than cores: steps have two lengths, and in the engine more long ones follow large messages than in
/// Horovod. Settings that take equally long are as near as elsewhere.
const SHARED_CORES: Fidelity = Fidelity { share_error: 0.36, cases: 12, ..OWN_CORES };

/// The standard normal quantile of a two-sided 95 % interval.
const DEVIATIONS: f64 = 1.96;

/// The engine's step of a setting in parts of Horovod's, measured over blocks: the mean of the logarithms, and its standard
/// error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The mean.
    pub log: f64,
    /// The standard error.
    pub error: f64,
    /// The mean of the logarithms of the engine's step.
    pub step_log: f64,
}

/// How far the engine's ratio of two settings is from Horovod's: the factor that 95 % of pairs within the groups do not
/// exceed, and the number of cases. `groups` holds settings that were compared in one run. None without a pair.
///
/// Distances of a group vary around their mean for two reasons: the noise of each measurement, which is known, and the
/// engine. The variance of the engine's part is that of Paule and Mandel, Consensus Values and Weighting Factors (1982): with
/// it, the weighted squares of the deviations add up to their number of degrees of freedom.
pub fn pair_error(groups: &[Vec<Distance>]) -> Option<(f64, usize)> {
    let groups = || groups.iter().filter(|group| group.len() > 1);
    let cases: usize = groups().map(Vec::len).sum();
    let freedom = (cases - groups().count()) as f64;
    if freedom == 0.0 {
        return None;
    }
    let squares = |variance: f64| groups().map(|group| weighted(group, variance)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if squares(middle) > freedom { low = middle } else { high = middle }
    }
    Some(((DEVIATIONS * (2.0 * high).sqrt()).exp(), cases))
}

/// The squared deviations of a group from its mean, each in parts of its variance, if the engine's part of that is `variance`.
fn weighted(group: &[Distance], variance: f64) -> f64 {
    let weight = |it: &Distance| 1.0 / (it.error.powi(2) + variance);
    let mean = group.iter().map(|it| weight(it) * it.log).sum::<f64>()
        / group.iter().map(weight).sum::<f64>();
    group.iter().map(|it| weight(it) * (it.log - mean).powi(2)).sum()
}

/// How uncertain the logarithm of a ratio is beyond a pair's error and the noise, in parts of itself: 1.96 times the root of
/// the mean square of differences over that of logarithms of ratios, over all pairs within the groups. 0 without a pair.
pub fn share_error(groups: &[Vec<Distance>], pair_error: f64) -> f64 {
    let of_pair = (pair_error.ln() / DEVIATIONS).powi(2);
    let (mut beyond, mut ratios) = (0.0, 0.0);
    for group in groups {
        for (at, one) in group.iter().enumerate() {
            for other in &group[at + 1..] {
                let noise = one.error.powi(2) + other.error.powi(2);
                beyond += (one.log - other.log).powi(2) - noise - of_pair;
                ratios += (one.step_log - other.step_log).powi(2);
            }
        }
    }
    if ratios > 0.0 { DEVIATIONS * (beyond.max(0.0) / ratios).sqrt() } else { 0.0 }
}

impl Fidelity {
    /// Of ranks that have a core each, or share cores.
    pub fn of(are_sharing: bool) -> Fidelity {
        if are_sharing { SHARED_CORES } else { OWN_CORES }
    }

    /// The interval of a ratio for what a user of Horovod will see: of the measurement and of the engine's distance
    /// together, taken for independent. The noise of a user's own measurement is not included.
    pub fn for_horovod(self, ratio: &Ratio) -> Ratio {
        let measured = (ratio.high / ratio.low).sqrt().ln();
        let of_engine = self.pair_error.ln().hypot(self.share_error * ratio.ratio.ln());
        let half = measured.hypot(of_engine).exp();
        Ratio { ratio: ratio.ratio, low: ratio.ratio / half, high: ratio.ratio * half }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        case: String,
        group: String,
        oversubscribed: bool,
    }

    #[derive(Deserialize)]
    struct Block {
        case: String,
        block: usize,
        engine: String,
        step_ms: Option<f64>,
    }

    /// Options of Horovod's optimizer, and Gloo, are not part of what is tuned by default.
    const LEFT_OUT: [&str; 3] = ["horovod-options", "horovod-aggregation", "horovod-gloo"];

    fn rows<T: DeserializeOwned>(path: &Path) -> Vec<T> {
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect()
    }

    /// Of each case, from the blocks that all three have.
    fn distances(blocks: &[Block]) -> BTreeMap<String, Distance> {
        let mut steps: BTreeMap<(&str, usize), BTreeMap<&str, f64>> = BTreeMap::new();
        for Block { case, block, engine, step_ms } in blocks {
            let of_block = steps.entry((case, *block)).or_default();
            of_block.extend(step_ms.map(|ms| (engine.as_str(), ms.ln())));
        }
        let mut logs: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for ((case, _), of) in steps.into_iter().filter(|(_, of)| of.len() == 3) {
            let log = of["kolo"] - (of["horovod"] + of["control"]) / 2.0;
            logs.entry(case.into()).or_default().push((log, of["kolo"]));
        }
        let distance = |logs: Vec<(f64, f64)>| {
            let count = logs.len() as f64;
            let log = logs.iter().map(|(log, _)| log).sum::<f64>() / count;
            let step_log = logs.iter().map(|(_, step)| step).sum::<f64>() / count;
            let square = logs.iter().map(|(it, _)| (it - log).powi(2)).sum::<f64>() / (count - 1.0);
            Distance { log, error: (square / count).sqrt(), step_log }
        };
        logs.into_iter().map(|(case, logs)| (case, distance(logs))).collect()
    }

    #[test]
    fn the_error_of_pairs_is_that_of_the_reference_results() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference/horovod");
        let mut groups: BTreeMap<(bool, PathBuf, String), Vec<Distance>> = BTreeMap::new();
        for run in std::fs::read_dir(folder).unwrap() {
            let run = run.unwrap().path();
            let distances = distances(&rows(&run.join("blocks.csv")));
            for Case { case, group, oversubscribed } in rows(&run.join("comparison.csv")) {
                if !LEFT_OUT.iter().any(|name| group.starts_with(name)) {
                    let key = (oversubscribed, run.clone(), group);
                    groups.entry(key).or_default().push(distances[&case]);
                }
            }
        }
        let of = |are_sharing: bool| -> Vec<Vec<Distance>> {
            let groups = groups.iter().filter(|((sharing, ..), _)| *sharing == are_sharing);
            groups.map(|(_, group)| group.clone()).collect()
        };
        let (own, sharing) = (of(false), of(true));
        let (error, cases) = pair_error(&own).unwrap();
        assert_eq!(
            (format!("{error:.3}"), cases),
            (OWN_CORES.pair_error.to_string(), OWN_CORES.cases)
        );
        let share = share_error(&sharing, OWN_CORES.pair_error);
        let cases = sharing.iter().map(Vec::len).sum::<usize>();
        let expected = (SHARED_CORES.share_error.to_string(), SHARED_CORES.cases);
        assert_eq!((format!("{share:.2}"), cases), expected);
        assert!(share_error(&own, OWN_CORES.pair_error) < 0.1, "it is of ranks that share cores");
    }

    fn exact(log: f64) -> Distance {
        Distance { log, error: 0.0, step_log: 0.0 }
    }

    #[test]
    fn errors_of_pairs_are_of_settings_of_the_same_group() {
        assert_eq!(pair_error(&[]), None);
        assert_eq!(pair_error(&[vec![exact(2.0)], vec![exact(1.0)]]), None, "no pair");
        // Two settings that are 0.01 apart in each group; the means of groups do not matter.
        let group = |mean: f64| vec![exact(mean - 0.005), exact(mean + 0.005)];
        let (error, cases) = pair_error(&[group(0.1), group(5.0), vec![exact(9.0)]]).unwrap();
        assert_eq!(cases, 4, "one alone has no pair");
        assert!((error.ln() / (1.96 * 0.01) - 1.0).abs() < 1e-12, "a factor either way: {error}");
    }

    #[test]
    fn ratios_that_are_exaggerated_are_uncertain_by_a_share_of_themselves() {
        // The engine's ratios are Horovod's to the power of 1.25.
        let of = |step_log: f64| Distance { log: 0.2 * step_log, error: 0.0, step_log };
        let groups = [vec![of(0.0), of(0.5)], vec![of(3.0), of(3.1), of(2.0)]];
        assert!((share_error(&groups, 1.0) - 1.96 * 0.2).abs() < 1e-12);
        assert_eq!(share_error(&groups, 2.0), 0.0, "it is within a pair's error");
        assert_eq!(share_error(&[vec![of(1.0)]], 1.0), 0.0, "no pair");
    }

    #[test]
    fn noise_is_no_error_of_the_engine() {
        let noisy = |error: f64| -> Vec<Distance> {
            [-0.05, 0.05, 0.02].map(|log| Distance { log, error, step_log: 0.0 }).into()
        };
        let beyond = |error: f64| pair_error(&[noisy(error)]).unwrap().0;
        assert!(beyond(0.1) < 1.0001, "all of it is noise: {}", beyond(0.1));
        assert!(beyond(0.02) < beyond(0.0) && beyond(0.02) > 1.05, "{}", beyond(0.02));
        // What is known well counts more.
        let mut group = noisy(0.01);
        group.push(Distance { log: 0.5, error: 1.0, step_log: 0.0 });
        assert!(pair_error(&[group]).unwrap().0 < 1.02 * beyond(0.01));
    }

    #[test]
    fn an_interval_grows_by_the_engines_distance() {
        let fidelity = Fidelity { pair_error: 1.067, share_error: 0.0, cases: 18 };
        let narrow = fidelity.for_horovod(&Ratio { ratio: 1.2, low: 1.2, high: 1.2 });
        assert!((narrow.high / 1.2 - 1.067).abs() < 1e-12);
        let wide = fidelity.for_horovod(&Ratio { ratio: 1.2, low: 0.6, high: 2.4 });
        assert!(wide.low < 0.6 && wide.low > 0.59 && wide.high < 2.45, "{wide:?}");
        // Where ranks share cores, by how much depends on the ratio.
        let sharing = Fidelity { share_error: 0.4, ..fidelity };
        let of = |ratio: f64| {
            sharing.for_horovod(&Ratio { ratio, low: ratio, high: ratio }).high / ratio
        };
        assert!((of(1.0) - 1.067).abs() < 1e-12);
        assert!((of(2.0).ln() - 1.067_f64.ln().hypot(0.4 * 2.0_f64.ln())).abs() < 1e-12);
    }
}
