//! The steps of a block that count, where a hypervisor moves the processors of this virtual machine.

use results::core_to_core::{Latencies, are_alike, usual_ns};

use crate::engine::Steps;

/// Fewer steps than this share of a block's do not stand for it.
const LEAST_SHARE: f64 = 0.25;

/// How far apart the processors are while those steps run that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// As far as they are.
    Any,
    /// So many nanoseconds.
    Ns(f64),
    /// As far as during most steps of the block.
    Usual,
}

/// How far apart the processors were during most steps of a block, in nanoseconds.
pub fn usual_distance_ns(Steps { ends_s, .. }: &Steps, latencies: &Latencies) -> Option<f64> {
    let of_steps = ends_s.windows(2).filter_map(|ends_s| latencies.between([ends_s[0], ends_s[1]]));
    let stayed = of_steps.filter(|&[least, most]| are_alike(least, most));
    usual_ns(&stayed.map(mean_ns).collect::<Vec<f64>>())
}

/// The latency in the middle of a range.
pub fn mean_ns([least, most]: [f64; 2]) -> f64 {
    (least * most).sqrt()
}

/// Steps of a block, and where the processors were meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The time of each in ms, the slowest rank's.
    pub times_ms: Vec<f64>,
    /// The least and the largest latency between the first two processors, in nanoseconds, if it is known.
    pub core_to_core_ns: Option<[f64; 2]>,
}

impl Counted {
    /// Those steps during which the processors were as far apart as expected. If they are few, if nothing is expected, or if the
    /// engine does not tell when each step ended: all of them, at the latencies since warm-up began.
    pub fn of(
        Steps { times_ms, moments_s, ends_s, .. }: Steps,
        latencies: Option<&Latencies>,
        expected_ns: Option<f64>,
    ) -> Counted {
        let there: Vec<(f64, [f64; 2])> = times_ms
            .iter()
            .zip(ends_s.windows(2))
            .filter_map(|(&ms, ends_s)| {
                let [least, most] = latencies?.between([ends_s[0], ends_s[1]])?;
                let is_there = |ns| expected_ns.is_some_and(|expected| are_alike(ns, expected));
                (is_there(least) && is_there(most)).then_some((ms, [least, most]))
            })
            .collect();
        if !there.is_empty() && there.len() as f64 >= LEAST_SHARE * times_ms.len() as f64 {
            let range = there.iter().map(|&(_, range)| range);
            let wider = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a.min(c), b.max(d)];
            let times_ms = there.iter().map(|&(ms, _)| ms).collect();
            return Counted { times_ms, core_to_core_ns: range.reduce(wider) };
        }
        let since = moments_s.unwrap_or([0.0, f64::MAX]);
        Counted { times_ms, core_to_core_ns: latencies.and_then(|it| it.between(since)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six of a second each, after two that warm up.
    fn steps() -> Steps {
        Steps {
            times_ms: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            moments_s: Some([8.0, 16.0]),
            ends_s: (10..=16).map(f64::from).collect(),
            shares: None,
        }
    }

    #[test]
    fn the_usual_distance_is_that_of_most_steps() {
        let usual = |seen: &[(f64, f64)]| {
            usual_distance_ns(&steps(), &Latencies(seen.to_vec())).map(f64::round)
        };
        assert_eq!(usual(&[(9.0, 150.0), (11.5, 150.0), (13.5, 30.0), (17.0, 30.0)]), Some(30.0));
        assert_eq!(usual(&[(9.0, 150.0), (14.5, 150.0), (15.5, 30.0), (17.0, 30.0)]), Some(150.0));
        assert_eq!(usual(&[(9.0, 150.0), (17.0, 30.0)]), None, "they moved some time");
        let untold = Steps { ends_s: Vec::new(), ..steps() };
        assert_eq!(usual_distance_ns(&untold, &Latencies(vec![(9.0, 30.0)])), None);
    }

    /// The processors move in the third step.
    #[test]
    fn steps_at_the_expected_distance_count() {
        let steps = steps();
        let seen =
            [(7.5, 150.0), (9.9, 32.0), (11.0, 31.0), (12.0, 33.0), (13.1, 152.0), (16.1, 149.0)];
        let latencies = Latencies(seen.to_vec());
        let of =
            |steps: &Steps, expected_ns| Counted::of(steps.clone(), Some(&latencies), expected_ns);
        let near = Counted { times_ms: vec![1.0, 2.0], core_to_core_ns: Some([31.0, 33.0]) };
        assert_eq!(of(&steps, Some(30.0)), near);
        let far = Counted { times_ms: vec![5.0, 6.0], core_to_core_ns: Some([149.0, 152.0]) };
        assert_eq!(of(&steps, Some(155.0)), far);
        let all =
            Counted { times_ms: steps.times_ms.clone(), core_to_core_ns: Some([31.0, 152.0]) };
        assert_eq!(of(&steps, Some(14.0)), all, "they were never there");
        assert_eq!(of(&steps, None), all);
        let untold = Steps { ends_s: Vec::new(), ..steps.clone() };
        assert_eq!(of(&untold, Some(30.0)), all);
        let unknown = Counted { core_to_core_ns: None, ..all };
        assert_eq!(Counted::of(steps.clone(), None, Some(30.0)), unknown);
        // One of six is too few.
        let late = Latencies(vec![(9.9, 150.0), (15.0, 32.0), (16.1, 32.0)]);
        let all = Counted { core_to_core_ns: Some([32.0, 150.0]), ..unknown };
        assert_eq!(Counted::of(steps, Some(&late), Some(32.0)), all);
    }
}
