//! How far a promised gain is from the gain that Horovod shows.
//!
//! A gain is the ratio of two step times. `kolo against autotune` lets real Horovod measure promised gains some minutes later
//! (see `harness/against/README.md`). The two differ by the noise of both measurements, because the engine is not Horovod, and
//! because the machine has changed in the meantime. The last two are part of every promised interval.
//!
//! The engine replays computation as time, as the steps of Horovod do, so the two differ in communication. Where computation
//! hides all of it, steps hardly differ. Where it does not, communication often takes most of the step, and all of its error is
//! one of the step, however small the part is that is exposed.

use super::answer::Ratio;

/// How far gains that Horovod shows are from promised ones: of `results/reference/promises-7` to `promises-15` and `autotune-2`,
/// by [`step_error`] and [`share_error`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// How far a step that exposes communication is from Horovod's later, for 95 % of steps, in parts of itself.
    pub step_error: f64,
    /// Where ranks share cores, the logarithm of a gain is uncertain by this share of itself in addition.
    pub share_error: f64,
    /// The number of promises from which `step_error`, or `share_error` where ranks share cores, is estimated.
    pub promises: usize,
}

/// Every rank has a core.
const OWN_CORES: Fidelity = Fidelity { step_error: 0.043, share_error: 0.0, promises: 76 };

/// There are more ranks than cores: steps have two lengths, and in the engine more long ones follow large messages than in
/// Horovod.
const SHARED_CORES: Fidelity = Fidelity { share_error: 0.20, promises: 15, ..OWN_CORES };

/// The standard normal quantile of a two-sided 95 % interval.
const DEVIATIONS: f64 = 1.96;

/// Steps with a smaller exposed share hide part of the communication's error, in proportion.
const HIDDEN: f64 = 0.05;

/// A promised gain beside the one that Horovod showed later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// The logarithm of the promised gain.
    pub promised_log: f64,
    /// By how much the logarithm of the gain that Horovod showed is larger.
    pub beyond_log: f64,
    /// The standard error of that: the noise of both measurements.
    pub error: f64,
    /// The exposed shares of both steps, 0 to 1.
    pub exposed: [f64; 2],
}

/// The error of a ratio of steps with these exposed shares, in parts of that of a step.
fn of_both(exposed: [f64; 2]) -> f64 {
    let [one, other] = exposed.map(|exposed| (exposed / HIDDEN).clamp(0.0, 1.0));
    one.hypot(other)
}

/// [`Fidelity::step_error`] of promises whose ranks have a core each. None without a promise that exposes communication.
pub fn step_error(promises: &[Shown]) -> Option<f64> {
    let of = |error: f64, promise: &Shown| error * of_both(promise.exposed);
    beyond_noise(promises, of)
}

/// [`Fidelity::share_error`] of promises whose ranks share cores, beyond the error of each step. None without a gain.
pub fn share_error(promises: &[Shown], step_error: f64) -> Option<f64> {
    let of = |share: f64, promise: &Shown| {
        (step_error * of_both(promise.exposed)).hypot(share * promise.promised_log)
    };
    beyond_noise(promises, of)
}

/// The size from which `of` computes the error of each promise, for 95 % of promises. It is that of Paule and Mandel, Consensus
/// Values and Weighting Factors (1982): the squares of the differences, each in parts of its variance, add up to their number.
/// None if no error depends on it.
fn beyond_noise(promises: &[Shown], of: impl Fn(f64, &Shown) -> f64) -> Option<f64> {
    if !promises.iter().any(|promise| of(1.0, promise) > of(0.0, promise)) {
        return None;
    }
    let squares = |size: f64| -> f64 {
        // Without noise and error, a difference of 0 counts as 0.
        let variance =
            |it: &Shown| it.error.powi(2) + (of(size, it) / DEVIATIONS).powi(2) + f64::EPSILON;
        promises.iter().map(|it| it.beyond_log.powi(2) / variance(it)).sum()
    };
    let (mut low, mut high) = (0.0, 2.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if squares(middle) > promises.len() as f64 { low = middle } else { high = middle }
    }
    Some(high)
}

impl Fidelity {
    /// Of ranks that have a core each, or share cores.
    pub fn of(are_sharing: bool) -> Fidelity {
        if are_sharing { SHARED_CORES } else { OWN_CORES }
    }

    /// The factor that 95 % of promises do not exceed, where the ratio of two steps with these exposed shares is this.
    pub fn of_pair(self, ratio: f64, exposed: [f64; 2]) -> f64 {
        (self.step_error * of_both(exposed)).hypot(self.share_error * ratio.ln()).exp()
    }

    /// The interval of a ratio for what a user of Horovod will see: of this measurement, of one of Horovod's that is as long,
    /// and of how far promises are from what Horovod shows, taken for independent.
    pub fn for_horovod(self, ratio: &Ratio, exposed: [f64; 2]) -> Ratio {
        let measured = (ratio.high / ratio.low).sqrt().ln();
        let both = measured.hypot(measured);
        let half = both.hypot(self.of_pair(ratio.ratio, exposed).ln()).exp();
        Ratio { ratio: ratio.ratio, low: ratio.ratio / half, high: ratio.ratio * half }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde::Deserialize;

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
        sweep: Sweep,
    }

    #[derive(Deserialize)]
    struct Step {
        forward_ms: f64,
        backward_ms: f64,
        optimizer_ms: f64,
    }

    #[derive(Deserialize)]
    struct Sweep {
        topology: Vec<String>,
    }

    impl Config {
        /// The machine has two cores.
        fn is_sharing(&self) -> bool {
            let (_, ranks) = self.sweep.topology[0].split_once('x').unwrap();
            ranks.parse::<usize>().unwrap() > 2
        }

        fn exposed(&self, step_ms: f64) -> f64 {
            let Step { forward_ms, backward_ms, optimizer_ms } = self.step;
            1.0 - (forward_ms + backward_ms + optimizer_ms) / step_ms
        }
    }

    /// A line of `autotune.csv`.
    #[derive(Deserialize)]
    struct Row {
        config: String,
        tuner: String,
        step_ms: Option<f64>,
        promised: Option<f64>,
        promised_low: Option<f64>,
        promised_high: Option<f64>,
        measured: Option<f64>,
        measured_low: Option<f64>,
        measured_high: Option<f64>,
    }

    /// The half width of the logarithm's interval.
    fn half(low: f64, high: f64) -> f64 {
        (high / low).ln() / 2.0
    }

    /// What intervals of a version cover beside the noise of both measurements.
    #[derive(Clone, Copy)]
    enum Covered {
        /// This error of what a step exposes, and one of any step; a quarter of the ratio's logarithm where ranks share cores.
        Exposed(f64),
        /// A [`Fidelity`] from the promises before.
        Step,
    }

    impl Covered {
        fn log(self, promised_log: f64, is_sharing: bool, exposed: [f64; 2]) -> f64 {
            let (error, share) = match self {
                Covered::Exposed(error) => {
                    let [one, other] = exposed.map(|exposed| 0.003_f64.hypot(error * exposed));
                    (one.hypot(other), 0.25)
                }
                Covered::Step => (0.043 * of_both(exposed), 0.34),
            };
            error.hypot(if is_sharing { share * promised_log } else { 0.0 })
        }
    }

    /// The promises of a run whose gain Horovod measured with an interval, and whether ranks share cores in each.
    fn shown(run: &Path, covered: Covered) -> Vec<(bool, Shown)> {
        let text = std::fs::read_to_string(run.join("provenance.json")).unwrap();
        let Provenance { config: Configs { configs } } = serde_json::from_str(&text).unwrap();
        let configs: BTreeMap<String, Config> = configs.into_iter().flatten().collect();
        let rows: Vec<Row> = csv::Reader::from_path(run.join("autotune.csv"))
            .unwrap()
            .into_deserialize()
            .map(Result::unwrap)
            .collect();
        let of_row = |row: &Row| {
            let is_default = |it: &&Row| it.config == row.config && it.tuner == "default";
            let config = &configs[&row.config];
            let steps_ms = [row.step_ms?, rows.iter().find(is_default)?.step_ms?];
            let exposed = steps_ms.map(|step_ms| config.exposed(step_ms));
            let promised_log = row.promised?.ln();
            let is_sharing = config.is_sharing();
            let covered = covered.log(promised_log, is_sharing, exposed);
            // The noise is in promised intervals twice.
            let twice = half(row.promised_low?, row.promised_high?).powi(2) - covered.powi(2);
            let promise = (twice.max(0.0) / 2.0).sqrt();
            let error = promise.hypot(half(row.measured_low?, row.measured_high?)) / DEVIATIONS;
            let beyond_log = row.measured?.ln() - promised_log;
            Some((is_sharing, Shown { promised_log, beyond_log, error, exposed }))
        };
        rows.iter().filter(|row| row.tuner == "kolo tune").filter_map(of_row).collect()
    }

    #[test]
    fn the_error_of_promises_is_that_of_the_reference_results() {
        let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
        let runs = [
            ("promises-7", Covered::Exposed(0.102)),
            ("promises-8", Covered::Exposed(0.102)),
            ("promises-9", Covered::Exposed(0.101)),
            ("promises-10", Covered::Exposed(0.101)),
            ("promises-11", Covered::Step),
            ("promises-12", Covered::Step),
            ("promises-13", Covered::Step),
            ("promises-14", Covered::Step),
            ("promises-15", Covered::Step),
            ("autotune-2", Covered::Step),
        ];
        let shown = runs.map(|(run, covered)| shown(&reference.join(run), covered));
        let (sharing, own): (Vec<_>, Vec<_>) =
            shown.concat().into_iter().partition(|(is_sharing, _)| *is_sharing);
        let of = |promises: Vec<(bool, Shown)>| -> Vec<Shown> {
            promises.into_iter().map(|(_, promise)| promise).collect()
        };
        let (own, sharing) = (of(own), of(sharing));
        let step = step_error(&own).unwrap();
        assert_eq!((format!("{step:.3}"), own.len()), ("0.043".into(), OWN_CORES.promises));
        let share = share_error(&sharing, OWN_CORES.step_error).unwrap();
        assert_eq!((format!("{share:.2}"), sharing.len()), ("0.20".into(), SHARED_CORES.promises));
        let share = share_error(&own, OWN_CORES.step_error).unwrap();
        assert!(share < 0.05, "{share} of ranks that have a core each");
    }

    fn exact(beyond_log: f64, exposed: [f64; 2]) -> Shown {
        Shown { promised_log: 0.0, beyond_log, error: 0.0, exposed }
    }

    #[test]
    fn the_error_of_a_step_does_not_grow_with_what_it_exposes_beyond_a_little() {
        assert_eq!(step_error(&[]), None);
        assert_eq!(step_error(&[exact(0.1, [0.0, -0.1])]), None, "communication is hidden");
        let both = [exact(0.01, [0.05, 0.0]), exact(-0.01, [0.9, 0.0])];
        assert!((step_error(&both).unwrap() / (DEVIATIONS * 0.01) - 1.0).abs() < 1e-6);
        // Both steps of a gain have it.
        let squares = [exact(0.03, [0.4, 0.5]), exact(0.0, [0.5, 0.1])];
        assert!((step_error(&squares).unwrap() / (DEVIATIONS * 0.015) - 1.0).abs() < 1e-6);
        let fidelity = Fidelity { step_error: 0.05, share_error: 0.0, promises: 2 };
        let of = |exposed: [f64; 2]| fidelity.of_pair(1.5, exposed).ln();
        assert_eq!(of([0.0, -0.2]), 0.0);
        assert!((of([0.01, 0.0]) - 0.01).abs() < 1e-12, "most of the error is hidden");
        assert!((of([0.0, 0.05]) - 0.05).abs() < 1e-12);
        assert!((of([0.6, 0.8]) - 0.05 * 2.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn noise_is_no_error_of_a_promise() {
        let noisy = |error: f64| -> Vec<Shown> {
            [-0.05, 0.05, 0.02].map(|log| Shown { error, ..exact(log, [0.5, 0.0]) }).into()
        };
        let beyond = |error: f64| step_error(&noisy(error)).unwrap();
        assert!(beyond(0.1) < 1e-4, "all of it is noise: {}", beyond(0.1));
        assert!(beyond(0.02) < beyond(0.0) && beyond(0.02) > 0.05, "{}", beyond(0.02));
    }

    #[test]
    fn gains_that_are_exaggerated_are_uncertain_by_a_share_of_themselves() {
        // Horovod's gains are the promised ones to the power of 0.8 or 1.2.
        let of = |promised_log: f64, share: f64| Shown {
            promised_log,
            ..exact(share * promised_log, [0.0, 0.0])
        };
        let gains = [of(0.5, 0.2), of(3.0, -0.2), of(-1.0, 0.2)];
        assert!((share_error(&gains, 0.1).unwrap() / (DEVIATIONS * 0.2) - 1.0).abs() < 1e-6);
        let exposed = gains.map(|gain| Shown { exposed: [0.5, 0.5], ..gain });
        let beyond = share_error(&exposed, 1.0).unwrap();
        assert!(beyond < 1e-6, "it is within the errors of steps: {beyond}");
        assert_eq!(share_error(&[of(0.0, 0.2)], 0.1), None, "no gain");
    }

    #[test]
    fn an_interval_grows_by_what_promises_are_from_horovod() {
        let fidelity = Fidelity { step_error: 0.04, share_error: 0.0, promises: 18 };
        let (exposed, error) = ([0.6, 0.8], 0.04 * 2.0_f64.sqrt());
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
