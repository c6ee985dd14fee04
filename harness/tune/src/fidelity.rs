//! How far the engine is from real Horovod.
//!
//! A gain is the ratio of two step times. Where both were also measured with real Horovod, the engine's ratio can be
//! compared with Horovod's. The errors of such pairs (`kolo against horovod`, see `harness/against/README.md`) are part
//! of every promised interval.

use super::answer::Ratio;

/// For 95 % of pairs of settings of one model on the same ranks, the ratio of their step times in the engine and that
/// in Horovod differ by at most this factor: of `results/reference/horovod`, by [`pair_error`].
pub const PAIR_ERROR: f64 = 1.103;

/// The number of pairs behind [`PAIR_ERROR`].
pub const PAIRS: usize = 43;

/// A setting, run by the engine and twice by Horovod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The engine's step in parts of the geometric mean of Horovod's two.
    pub ratio: f64,
    /// One of Horovod's in parts of the other.
    pub control: f64,
}

/// How far the engine's ratio of two settings is from Horovod's: the factor that 95 % of pairs within the groups do not
/// exceed, less what is noise of the measurement. None without a pair.
///
/// Noise is estimated from the same quantile of the controls. If each block has a variance s^2 (of the logarithm), a
/// control has 2 s^2, and a ratio has 3/2 s^2 without any error of the engine: 3/4 of the control's.
pub fn pair_error(groups: &[Vec<Compared>]) -> Option<(f64, usize)> {
    let (ratios, pairs) = quantile(groups, |setting| setting.ratio)?;
    let (controls, _) = quantile(groups, |setting| setting.control)?;
    let error = (ratios.powi(2) - 0.75 * controls.powi(2)).max(0.0).sqrt();
    Some((error.exp(), pairs))
}

/// Of the differences of logarithms between the settings of each group: the 95 % quantile, and their number.
fn quantile(groups: &[Vec<Compared>], value: impl Fn(&Compared) -> f64) -> Option<(f64, usize)> {
    let of_group = |group: &Vec<Compared>| -> Vec<f64> {
        let logs: Vec<f64> = group.iter().map(|setting| value(setting).ln()).collect();
        let rest = |at: usize| logs[at + 1..].iter();
        let pairs = logs.iter().enumerate();
        pairs.flat_map(|(at, one)| rest(at).map(move |other| (one - other).abs())).collect()
    };
    let mut errors: Vec<f64> = groups.iter().flat_map(of_group).collect();
    errors.sort_by(f64::total_cmp);
    let at = (0.95 * errors.len() as f64).ceil() as usize;
    Some((*errors.get(at.checked_sub(1)?)?, errors.len()))
}

/// The interval of a ratio for what a user of Horovod will see: of the measurement and of the engine's distance
/// together, taken for independent.
pub fn for_horovod(ratio: &Ratio) -> Ratio {
    let measured = (ratio.high / ratio.low).sqrt().ln();
    let half = measured.hypot(PAIR_ERROR.ln()).exp();
    Ratio { ratio: ratio.ratio, low: ratio.ratio / half, high: ratio.ratio * half }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Row {
        group: String,
        ratio: Option<f64>,
        control_ratio: Option<f64>,
    }

    /// Options of Horovod's optimizer are not part of what is tuned by default.
    const WITH_OPTIONS: [&str; 2] = ["horovod-options", "horovod-aggregation"];

    #[test]
    fn the_error_of_pairs_is_that_of_the_reference_results() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference/horovod");
        let mut groups: BTreeMap<String, Vec<Compared>> = BTreeMap::new();
        for run in std::fs::read_dir(folder).unwrap() {
            let path = run.unwrap().path().join("comparison.csv");
            let Ok(rows) = csv::Reader::from_path(path) else { continue };
            for row in rows.into_deserialize::<Row>() {
                let Row { group, ratio, control_ratio } = row.unwrap();
                let compared =
                    ratio.zip(control_ratio).map(|(ratio, control)| Compared { ratio, control });
                if !WITH_OPTIONS.iter().any(|name| group.starts_with(name)) {
                    groups.entry(group).or_default().extend(compared);
                }
            }
        }
        let (error, pairs) = pair_error(&groups.into_values().collect::<Vec<_>>()).unwrap();
        assert_eq!((format!("{error:.3}"), pairs), (format!("{PAIR_ERROR:.3}"), PAIRS));
    }

    #[test]
    fn errors_of_pairs_are_of_settings_of_the_same_group() {
        let group = |ratios: &[f64], control: f64| -> Vec<Compared> {
            let controls = [control, 1.0].into_iter().cycle();
            let both = ratios.iter().zip(controls);
            both.map(|(&ratio, control)| Compared { ratio, control }).collect()
        };
        assert_eq!(pair_error(&[]), None);
        assert_eq!(pair_error(&[group(&[2.0], 1.0), group(&[1.0], 1.0)]), None, "no pair");
        let two = |control| {
            pair_error(&[group(&[1.0, 1.1, 1.0], control), group(&[5.0, 5.0], control)]).unwrap()
        };
        let (error, pairs) = two(1.0);
        assert_eq!(pairs, 4);
        assert!((error - 1.1).abs() < 1e-12, "a factor either way: {error}");
        let (error, _) = two(1.05);
        let expected = (1.1_f64.ln().powi(2) - 0.75 * 1.05_f64.ln().powi(2)).sqrt().exp();
        assert!((error - expected).abs() < 1e-12, "without noise: {error}");
        assert_eq!(two(1.5).0, 1.0, "nothing but noise");
    }

    #[test]
    fn an_interval_grows_by_the_engines_distance() {
        let narrow = for_horovod(&Ratio { ratio: 1.2, low: 1.2, high: 1.2 });
        assert!((narrow.high / 1.2 - PAIR_ERROR).abs() < 1e-12);
        let wide = for_horovod(&Ratio { ratio: 1.2, low: 0.6, high: 2.4 });
        assert!(wide.low < 0.6 && wide.low > 0.59 && wide.high < 2.45, "{wide:?}");
    }
}
