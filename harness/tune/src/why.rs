//! A cause of the gain that other settings may remove better.

use super::model::Costs;

/// Messages below this size cost time per message, not per byte.
const FROM_BYTES: f64 = 65536.0;

/// The largest distance of two sizes that are compared, as a factor.
const NEAR: f64 = 2.5;

/// The least rise of the time per byte that is reported, as a factor.
const RISE: f64 = 1.3;

/// Messages just above a size take much longer per byte than those just below it: the MPI library seems to change its
/// algorithm in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise {
    /// Size in bytes of the messages below it.
    pub below_bytes: f64,
    /// Size in bytes of those above.
    pub above_bytes: f64,
    /// How much longer a byte takes above.
    pub factor: f64,
}

impl Rise {
    /// The largest rise among the messages of an algorithm, if any is large enough.
    pub fn of(costs: &Costs, algorithm: &str) -> Option<Rise> {
        let points = costs.messages.get(algorithm)?;
        let large = points.iter().filter(|(bytes, _)| *bytes >= FROM_BYTES);
        let large: Vec<(f64, f64)> = large.copied().collect();
        let rise = |pair: &[(f64, f64)]| {
            let &[(below_bytes, below_s), (above_bytes, above_s)] = pair else { return None };
            let factor = (above_s / above_bytes) / (below_s / below_bytes);
            let is_near = above_bytes <= NEAR * below_bytes;
            (is_near && factor >= RISE).then_some(Rise { below_bytes, above_bytes, factor })
        };
        large.windows(2).filter_map(rise).max_by(|a, b| a.factor.total_cmp(&b.factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rise(points: &[(f64, f64)]) -> Option<Rise> {
        let messages = [("mpi-allreduce".to_string(), points.to_vec())].into();
        Rise::of(&Costs { messages, ..Costs::default() }, "mpi-allreduce")
    }

    #[test]
    fn a_change_of_algorithm_is_found_between_near_sizes_alone() {
        let steady = [(1e3, 1e-4), (1e5, 1e-3), (2e5, 2e-3), (4e5, 4e-3), (4e6, 8e-2)];
        assert_eq!(rise(&steady), None, "small ones and distant ones are not compared");
        let mut jump = steady;
        jump[3].1 = 8e-3;
        let found = rise(&jump).unwrap();
        assert_eq!((found.below_bytes, found.above_bytes), (2e5, 4e5));
        assert!((found.factor - 2.0).abs() < 1e-9);
        assert_eq!(rise(&[]), None);
    }
}
