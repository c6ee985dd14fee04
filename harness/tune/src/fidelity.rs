//! How far the engine is from real Horovod.
//!
//! A gain is the ratio of two step times. Where both were also measured with real Horovod, the engine's ratio can be
//! compared with Horovod's (`kolo against horovod`, see `harness/against/README.md`). How far the two are apart, beyond the
//! noise of that measurement, is part of every promised interval.
//!
//! The engine replays computation as time, as the steps of Horovod do, so nearly all of the distance is that of the exposed
//! communication: what computation does not hide. Steps that hide all of it are much nearer to Horovod's than others.

use super::answer::Ratio;

/// How far the engine is from Horovod: of `results/reference/horovod` and `promises-3` to `promises-6`, by [`step_errors`]
/// and [`share_error`]. A case on processors near each other and far apart counts as two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// How far steps are from Horovod's, where every rank has a core.
    pub of_step: StepErrors,
    /// Where ranks share cores, the logarithm of the ratio of two steps is uncertain by this share of itself in addition.
    pub share_error: f64,
    /// The number of cases behind it.
    pub cases: usize,
}

/// How far the engine's steps are from Horovod's, for 95 % of settings, in parts of the step: the root of the sum of both
/// squares. What all settings of a model have in common is left out, since it is no part of their ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepErrors {
    /// Of any step.
    pub hidden: f64,
    /// In parts of the step's exposed communication.
    pub exposed: f64,
}

/// Every rank has a core.
const OWN_CORES: Fidelity = Fidelity {
    of_step: StepErrors { hidden: 0.003, exposed: 0.101 },
    share_error: 0.0,
    cases: 147,
};

/// There are more ranks than cores: steps have two lengths, and in the engine more long ones follow large messages than in
/// Horovod. Settings that take equally long are as near as elsewhere.
const SHARED_CORES: Fidelity = Fidelity { share_error: 0.25, cases: 44, ..OWN_CORES };

/// The standard normal quantile of a two-sided 95 % interval.
const DEVIATIONS: f64 = 1.96;

/// Computation hides the communication of a step whose exposed share is smaller.
const HIDDEN: f64 = 0.05;

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
    /// The exposed share of the engine's step, 0 to 1.
    pub exposed: f64,
}

impl StepErrors {
    /// Of a step with this exposed share.
    pub fn of(self, exposed: f64) -> f64 {
        self.hidden.hypot(self.exposed * exposed)
    }
}

/// How far the engine's steps are from Horovod's, and the number of cases. `groups` holds settings that were compared in one
/// run. None without a pair.
///
/// The error of any step is that of steps that hide their communication (0 without a pair of them).
pub fn step_errors(groups: &[Vec<Distance>]) -> Option<(StepErrors, usize)> {
    let are_hidden = |group: &Vec<Distance>| {
        group.iter().copied().filter(|it| it.exposed < HIDDEN).collect::<Vec<Distance>>()
    };
    let of_hidden: Vec<Vec<Distance>> = groups.iter().map(are_hidden).collect();
    let hidden = beyond_noise(&of_hidden, |error, _| error).unwrap_or(0.0);
    let exposed =
        beyond_noise(groups, |exposed, it| StepErrors { hidden, exposed }.of(it.exposed))?;
    let cases = groups.iter().map(Vec::len).filter(|&count| count > 1).sum();
    Some((StepErrors { hidden, exposed }, cases))
}

/// Distances of a group vary around their mean for two reasons: the noise of each measurement, which is known, and the
/// engine. The size of the engine's part, from which `of` computes that of each distance, is the one of Paule and Mandel,
/// Consensus Values and Weighting Factors (1982): with it, the weighted squares of the deviations add up to their number of
/// degrees of freedom. It is for 95 % of distances. None without a pair.
fn beyond_noise(groups: &[Vec<Distance>], of: impl Fn(f64, &Distance) -> f64) -> Option<f64> {
    let groups = || groups.iter().filter(|group| group.len() > 1);
    let freedom: usize = groups().map(|group| group.len() - 1).sum();
    if freedom == 0 {
        return None;
    }
    let squares = |size: f64| {
        let variance = |it: &Distance| it.error.powi(2) + (of(size, it) / DEVIATIONS).powi(2);
        groups().map(|group| weighted(group, variance)).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 2.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if squares(middle) > freedom as f64 { low = middle } else { high = middle }
    }
    Some(high)
}

/// The squared deviations of a group from its mean, each in parts of its variance.
fn weighted(group: &[Distance], variance: impl Fn(&Distance) -> f64) -> f64 {
    let weight = |it: &Distance| 1.0 / variance(it);
    let mean = group.iter().map(|it| weight(it) * it.log).sum::<f64>()
        / group.iter().map(weight).sum::<f64>();
    group.iter().map(|it| weight(it) * (it.log - mean).powi(2)).sum()
}

/// How uncertain the logarithm of a ratio is beyond the errors of its steps and the noise, in parts of itself: 1.96 times the
/// root of the mean square of differences over that of logarithms of ratios, over all pairs within the groups. 0 without a
/// pair.
pub fn share_error(groups: &[Vec<Distance>], of_step: StepErrors) -> f64 {
    let variance = |it: &Distance| it.error.powi(2) + (of_step.of(it.exposed) / DEVIATIONS).powi(2);
    let (mut beyond, mut ratios) = (0.0, 0.0);
    for group in groups {
        for (at, one) in group.iter().enumerate() {
            for other in &group[at + 1..] {
                beyond += (one.log - other.log).powi(2) - variance(one) - variance(other);
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

    /// The factor that 95 % of pairs of steps with these exposed shares do not exceed, where the ratio of the two is this.
    pub fn of_pair(self, ratio: f64, exposed: [f64; 2]) -> f64 {
        let [one, other] = exposed.map(|exposed| self.of_step.of(exposed));
        one.hypot(other).hypot(self.share_error * ratio.ln()).exp()
    }

    /// The interval of a ratio for what a user of Horovod will see: of this measurement, of one of Horovod's that is as long,
    /// and of the engine's distance together, taken for independent.
    pub fn for_horovod(self, ratio: &Ratio, exposed: [f64; 2]) -> Ratio {
        let measured = (ratio.high / ratio.low).sqrt().ln();
        let both = measured.hypot(measured);
        let half = both.hypot(self.of_pair(ratio.ratio, exposed).ln()).exp();
        Ratio { ratio: ratio.ratio, low: ratio.ratio / half, high: ratio.ratio * half }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use results::core_to_core::are_alike;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    /// The part of `provenance.json` that counts here: the configurations by name, each a map of one.
    #[derive(Deserialize)]
    struct Provenance {
        config: Configs,
    }

    #[derive(Deserialize)]
    struct Configs {
        configs: Vec<BTreeMap<String, Config>>,
    }

    #[derive(Deserialize)]
    struct Config {
        step: Step,
    }

    #[derive(Deserialize)]
    struct Step {
        forward_ms: f64,
        backward_ms: f64,
        optimizer_ms: f64,
    }

    #[derive(Deserialize)]
    struct Block {
        case: String,
        block: usize,
        engine: String,
        step_ms: Option<f64>,
        oversubscribed: Option<bool>,
        core_to_core_ns_least: Option<f64>,
        core_to_core_ns_most: Option<f64>,
    }

    impl Block {
        /// Its configuration, and the nodes and ranks: settings of the same can be compared.
        fn group(&self) -> (&str, &str) {
            let (config, case) = self.case.split_once(':').unwrap();
            (config, case.split('/').nth(1).unwrap())
        }
    }

    /// Options of Horovod's optimizer, and Gloo, are not part of what is tuned by default.
    const LEFT_OUT: [&str; 3] = ["horovod-options", "horovod-aggregation", "horovod-gloo"];

    fn rows<T: DeserializeOwned>(path: &Path) -> Vec<T> {
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect()
    }

    /// Milliseconds of computation in a step, by configuration.
    fn computation_ms(run: &Path) -> BTreeMap<String, f64> {
        let text = std::fs::read_to_string(run.join("provenance.json")).unwrap();
        let Provenance { config: Configs { configs } } = serde_json::from_str(&text).unwrap();
        let of_step = |Config { step }| step.forward_ms + step.backward_ms + step.optimizer_ms;
        configs.into_iter().flatten().map(|(name, config)| (name, of_step(config))).collect()
    }

    /// Where the processors of a virtual machine are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Placement {
        /// On cores that share a cache.
        Near,
        Far,
        /// They have moved.
        Moved,
        /// It was not recorded.
        Unknown,
    }

    impl Placement {
        /// Of the machine of `promises-4` and later runs.
        fn of(block: &Block) -> Placement {
            const NEAR_NS: f64 = 80.0;
            match (block.core_to_core_ns_least, block.core_to_core_ns_most) {
                (Some(least), Some(most)) if !are_alike(least, most) => Placement::Moved,
                (Some(least), _) if least < NEAR_NS => Placement::Near,
                (Some(_), _) => Placement::Far,
                (None, _) => Placement::Unknown,
            }
        }
    }

    /// Of each case that both ran, from the rounds in which all engines did on processors in one place: the engine, Horovod,
    /// and in most runs Horovod again.
    fn distances(
        blocks: &[Block],
        computation_ms: &BTreeMap<String, f64>,
    ) -> BTreeMap<(String, Placement), Distance> {
        let mut steps: BTreeMap<(&str, usize, Placement), BTreeMap<&str, f64>> = BTreeMap::new();
        for of_block in blocks {
            let Block { case, block, engine, step_ms, .. } = of_block;
            let place = Placement::of(of_block);
            if place != Placement::Moved {
                let of_round = steps.entry((case, *block, place)).or_default();
                of_round.extend(step_ms.map(|ms| (engine.as_str(), ms.ln())));
            }
        }
        let engines = blocks.iter().map(|block| &block.engine).collect::<BTreeSet<_>>().len();
        let mut logs: BTreeMap<(String, Placement), Vec<(f64, f64)>> = BTreeMap::new();
        for ((case, _, place), of) in steps.into_iter().filter(|(_, of)| of.len() == engines) {
            let horovod = of["horovod"];
            let log = of["kolo"] - (horovod + of.get("control").unwrap_or(&horovod)) / 2.0;
            logs.entry((case.into(), place)).or_default().push((log, of["kolo"]));
        }
        // One round has no standard error.
        logs.retain(|_, logs| logs.len() > 1);
        let distance = |case: &str, logs: Vec<(f64, f64)>| {
            let count = logs.len() as f64;
            let log = logs.iter().map(|(log, _)| log).sum::<f64>() / count;
            let step_log = logs.iter().map(|(_, step)| step).sum::<f64>() / count;
            let square = logs.iter().map(|(it, _)| (it - log).powi(2)).sum::<f64>() / (count - 1.0);
            let (config, _) = case.split_once(':').unwrap();
            let exposed = 1.0 - computation_ms[config] / step_log.exp();
            Distance { log, error: (square / count).sqrt(), step_log, exposed }
        };
        let distances = logs.into_iter().map(|((case, place), logs)| {
            let distance = distance(&case, logs);
            ((case, place), distance)
        });
        distances.collect()
    }

    #[test]
    fn the_error_of_steps_is_that_of_the_reference_results() {
        let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
        let runs = std::fs::read_dir(reference.join("horovod")).unwrap();
        let promises = ["promises-3", "promises-4", "promises-5", "promises-6"];
        let runs = runs.map(|run| run.unwrap().path());
        let runs = runs.chain(promises.map(|run| reference.join(run)));
        let mut groups: BTreeMap<(bool, PathBuf, String), Vec<Distance>> = BTreeMap::new();
        for run in runs {
            let blocks: Vec<Block> = rows(&run.join("blocks.csv"));
            let is_sharing = |group: &(&str, &str)| {
                blocks
                    .iter()
                    .any(|block| block.group() == *group && block.oversubscribed == Some(true))
            };
            for ((case, place), distance) in distances(&blocks, &computation_ms(&run)) {
                let of_case = blocks.iter().find(|block| block.case == case).unwrap();
                let (config, topology) = of_case.group();
                if !LEFT_OUT.contains(&config) {
                    let key = (
                        is_sharing(&(config, topology)),
                        run.clone(),
                        format!("{config} {topology} {place:?}"),
                    );
                    groups.entry(key).or_default().push(distance);
                }
            }
        }
        let of = |are_sharing: bool| -> Vec<Vec<Distance>> {
            let groups = groups.iter().filter(|((sharing, ..), _)| *sharing == are_sharing);
            groups.map(|(_, group)| group.clone()).collect()
        };
        let (own, sharing) = (of(false), of(true));
        let (errors, cases) = step_errors(&own).unwrap();
        let rounded = |error: f64| (1e3 * error).round() / 1e3;
        let errors =
            StepErrors { hidden: rounded(errors.hidden), exposed: rounded(errors.exposed) };
        assert_eq!((errors, cases), (OWN_CORES.of_step, OWN_CORES.cases));
        let share = share_error(&sharing, errors);
        let cases = sharing.iter().map(Vec::len).sum::<usize>();
        let expected = (SHARED_CORES.share_error.to_string(), SHARED_CORES.cases);
        assert_eq!((format!("{share:.2}"), cases), expected);
        let of_own = share_error(&own, errors);
        assert!(of_own < 0.1, "{of_own} of ranks that have a core each");
    }

    fn exact(log: f64) -> Distance {
        Distance { log, error: 0.0, step_log: 0.0, exposed: 0.5 }
    }

    /// All of it is that of exposed communication.
    fn exposed(groups: &[Vec<Distance>]) -> f64 {
        let (errors, _) = step_errors(groups).unwrap();
        assert_eq!(errors.hidden, 0.0);
        errors.exposed
    }

    #[test]
    fn errors_of_steps_are_around_the_mean_of_a_group() {
        assert_eq!(step_errors(&[]), None);
        assert_eq!(step_errors(&[vec![exact(2.0)], vec![exact(1.0)]]), None, "no pair");
        // Two settings that are 0.01 apart in each group; the means of groups do not matter.
        let group = |mean: f64| vec![exact(mean - 0.005), exact(mean + 0.005)];
        let groups = [group(0.1), group(5.0), vec![exact(9.0)]];
        assert_eq!(step_errors(&groups).unwrap().1, 4, "one alone has no pair");
        // The variance of each group is 0.01^2 / 2, and half of a step is exposed.
        let expected = 2.0 * 1.96 * 0.01 / 2.0_f64.sqrt();
        assert!((exposed(&groups) / expected - 1.0).abs() < 1e-9, "{}", exposed(&groups));
    }

    #[test]
    fn steps_that_hide_communication_are_nearer() {
        let pair = |log: f64, exposed: f64| {
            [-log, log].map(|log| Distance { log, error: 0.0, step_log: 0.0, exposed })
        };
        let group = |pairs: [[Distance; 2]; 2]| vec![pairs.concat()];
        let (errors, _) = step_errors(&group([pair(0.001, 0.0), pair(0.02, 0.5)])).unwrap();
        let hidden = 1.96 * 0.001 * 2.0_f64.sqrt();
        assert!((errors.hidden / hidden - 1.0).abs() < 1e-9, "{errors:?}");
        assert!((0.05..0.15).contains(&errors.exposed), "{errors:?}");
        let twice = step_errors(&group([pair(0.001, 0.0), pair(0.04, 1.0)])).unwrap().0;
        assert!((twice.exposed / errors.exposed - 1.0).abs() < 0.01, "{twice:?} {errors:?}");
        let of_step = StepErrors { hidden: 0.0, exposed: 0.06 };
        let fidelity = Fidelity { of_step, share_error: 0.0, cases: 2 };
        assert_eq!(fidelity.of_pair(1.5, [0.0, 0.0]), 1.0);
        assert!((fidelity.of_pair(1.5, [0.0, 0.5]).ln() - 0.03).abs() < 1e-12);
        assert!((fidelity.of_pair(1.5, [0.6, 0.8]).ln() - 0.06).abs() < 1e-12);
    }

    #[test]
    fn ratios_that_are_exaggerated_are_uncertain_by_a_share_of_themselves() {
        // The engine's ratios are Horovod's to the power of 1.25.
        let of = |step_log: f64| Distance { step_log, ..exact(0.2 * step_log) };
        let groups = [vec![of(0.0), of(0.5)], vec![of(3.0), of(3.1), of(2.0)]];
        let with = |exposed: f64| StepErrors { hidden: 0.0, exposed };
        assert!((share_error(&groups, with(0.0)) - 1.96 * 0.2).abs() < 1e-12);
        assert_eq!(share_error(&groups, with(1.0)), 0.0, "it is within the errors of steps");
        assert_eq!(share_error(&[vec![of(1.0)]], with(0.0)), 0.0, "no pair");
    }

    #[test]
    fn noise_is_no_error_of_the_engine() {
        let noisy = |error: f64| -> Vec<Distance> {
            [-0.05, 0.05, 0.02].map(|log| Distance { error, ..exact(log) }).into()
        };
        let beyond = |error: f64| exposed(&[noisy(error)]);
        assert!(beyond(0.1) < 1e-4, "all of it is noise: {}", beyond(0.1));
        assert!(beyond(0.02) < beyond(0.0) && beyond(0.02) > 0.1, "{}", beyond(0.02));
        // What is known well counts more.
        let mut group = noisy(0.01);
        group.push(Distance { error: 1.0, ..exact(0.5) });
        assert!(exposed(&[group]) < 1.02 * beyond(0.01));
    }

    #[test]
    fn an_interval_grows_by_the_engines_distance() {
        let of_step = StepErrors { hidden: 0.0, exposed: 0.067 };
        let fidelity = Fidelity { of_step, share_error: 0.0, cases: 18 };
        let (exposed, error) = ([0.6, 0.8], 0.067);
        let narrow = fidelity.for_horovod(&Ratio { ratio: 1.2, low: 1.2, high: 1.2 }, exposed);
        assert!(((narrow.high / 1.2).ln() - error).abs() < 1e-12);
        // A measurement that is as long is as noisy.
        let noisy = fidelity.for_horovod(&Ratio { ratio: 1.2, low: 1.0, high: 1.44 }, exposed);
        let half = (noisy.high / 1.2).ln();
        assert!((half.powi(2) - (2.0 * 1.2_f64.ln().powi(2) + error.powi(2))).abs() < 1e-12);
        assert!((noisy.low * noisy.high - 1.44).abs() < 1e-12, "{noisy:?}");
        // Where ranks share cores, by how much depends on the ratio.
        let sharing = Fidelity { share_error: 0.4, ..fidelity };
        let of = |ratio: f64| {
            sharing.for_horovod(&Ratio { ratio, low: ratio, high: ratio }, exposed).high / ratio
        };
        assert!((of(1.0).ln() - error).abs() < 1e-12);
        assert!((of(2.0).ln() - error.hypot(0.4 * 2.0_f64.ln())).abs() < 1e-12);
    }
}
