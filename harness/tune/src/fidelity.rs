//! How far the engine is from real Horovod.
//!
//! A gain is the ratio of two step times. Where both were also measured with real Horovod, the engine's ratio can be
//! compared with Horovod's. The errors of such pairs (`kolo against horovod`, see `harness/against/README.md`) are part
//! of every promised interval.

use super::answer::Ratio;

/// For 95 % of pairs of settings of one model on the same ranks, the ratio of their step times in the engine and that
/// in Horovod differ by at most this factor: of `results/reference/horovod`, by [`pair_error`].
pub const PAIR_ERROR: f64 = 1.099;

/// The number of pairs behind [`PAIR_ERROR`].
pub const PAIRS: usize = 84;

/// How far the engine's ratio of two settings is from Horovod's: the factor that 95 % of pairs within the groups do not
/// exceed, and the number of pairs. `groups` holds the engine's steps in parts of Horovod's, of settings that were compared in
/// one run. None without a pair.
///
/// Noise of both measurements is included. Whoever measures the gain with Horovod has as much, and less what controls
/// suggest, intervals would contain 12 of 16 gains in `results/reference`.
pub fn pair_error(groups: &[Vec<f64>]) -> Option<(f64, usize)> {
    let of_group = |group: &Vec<f64>| -> Vec<f64> {
        let logs: Vec<f64> = group.iter().map(|ratio| ratio.ln()).collect();
        let rest = |at: usize| logs[at + 1..].iter();
        let pairs = logs.iter().enumerate();
        pairs.flat_map(|(at, one)| rest(at).map(move |other| (one - other).abs())).collect()
    };
    let mut errors: Vec<f64> = groups.iter().flat_map(of_group).collect();
    errors.sort_by(f64::total_cmp);
    let at = (0.95 * errors.len() as f64).ceil() as usize;
    Some((errors.get(at.checked_sub(1)?)?.exp(), errors.len()))
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
    use std::path::{Path, PathBuf};

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Row {
        group: String,
        ratio: Option<f64>,
    }

    /// Options of Horovod's optimizer are not part of what is tuned by default.
    const WITH_OPTIONS: [&str; 2] = ["horovod-options", "horovod-aggregation"];

    #[test]
    fn the_error_of_pairs_is_that_of_the_reference_results() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference/horovod");
        let mut groups: BTreeMap<(PathBuf, String), Vec<f64>> = BTreeMap::new();
        for run in std::fs::read_dir(folder).unwrap() {
            let path = run.unwrap().path().join("comparison.csv");
            let Ok(rows) = csv::Reader::from_path(&path) else { continue };
            for row in rows.into_deserialize::<Row>() {
                let Row { group, ratio } = row.unwrap();
                if !WITH_OPTIONS.iter().any(|name| group.starts_with(name)) {
                    groups.entry((path.clone(), group)).or_default().extend(ratio);
                }
            }
        }
        let (error, pairs) = pair_error(&groups.into_values().collect::<Vec<_>>()).unwrap();
        assert_eq!((format!("{error:.3}"), pairs), (format!("{PAIR_ERROR:.3}"), PAIRS));
    }

    #[test]
    fn errors_of_pairs_are_of_settings_of_the_same_group() {
        assert_eq!(pair_error(&[]), None);
        assert_eq!(pair_error(&[vec![2.0], vec![1.0]]), None, "no pair");
        let (error, pairs) = pair_error(&[vec![1.0, 1.1, 1.0], vec![5.0, 5.0]]).unwrap();
        assert_eq!(pairs, 4);
        assert!((error - 1.1).abs() < 1e-12, "a factor either way: {error}");
    }

    #[test]
    fn an_interval_grows_by_the_engines_distance() {
        let narrow = for_horovod(&Ratio { ratio: 1.2, low: 1.2, high: 1.2 });
        assert!((narrow.high / 1.2 - PAIR_ERROR).abs() < 1e-12);
        let wide = for_horovod(&Ratio { ratio: 1.2, low: 0.6, high: 2.4 });
        assert!(wide.low < 0.6 && wide.low > 0.59 && wide.high < 2.45, "{wide:?}");
    }
}
