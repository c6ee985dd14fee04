//! Rates of messages that begin together and share capacities: max-min fair, by progressive filling.
//!
//! All rates grow equally until a capacity is used up; the messages that pass it keep their rates, and the
//! others continue to grow (Bertsekas and Gallager 1992, section 6.5).

/// A message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Its rate without contention, in bytes per second.
    pub limit: f64,
    /// Capacities that it passes, `NOTHING` in unused places.
    pub passes: [u32; 4],
    /// The share of the time in which it uses each: below 1 if its port sends other messages meanwhile.
    pub weights: [f32; 4],
}

/// No capacity.
pub(super) const NOTHING: u32 = u32::MAX;

/// Computes rates; keeps its buffers between calls.
#[derive(Default)]
pub(super) struct Sharing {
    left: Vec<f64>,
    users: Vec<f64>,
    open: Vec<usize>,
}

impl Sharing {
    /// The rate of each flow in bytes per second, in order. `capacity` gives that of a number.
    pub fn rates(
        &mut self,
        flows: &[Flow],
        capacities: usize,
        capacity: impl Fn(usize) -> f64,
        rates: &mut Vec<f64>,
    ) {
        self.left.clear();
        self.left.extend((0..capacities).map(&capacity));
        rates.clear();
        rates.resize(flows.len(), 0.0);
        self.open.clear();
        self.open.extend(0..flows.len());
        while !self.open.is_empty() {
            self.users.clear();
            self.users.resize(capacities, 0.0);
            for &flow in &self.open {
                for (number, weight) in flows[flow].uses() {
                    self.users[number] += weight;
                }
            }
            let level = |flow: &Flow, left: &[f64], users: &[f64]| {
                let share = |(number, _): (usize, f64)| left[number].max(0.0) / users[number];
                flow.uses().map(share).fold(flow.limit, f64::min)
            };
            let lowest = self.open.iter().map(|&flow| level(&flows[flow], &self.left, &self.users));
            let lowest = lowest.fold(f64::INFINITY, f64::min);
            // Together with those whose share is the same but for rounding.
            let (left, users) = (&self.left, &self.users);
            let mut full = Vec::new();
            self.open.retain(|&flow| {
                let is_full = level(&flows[flow], left, users) <= lowest * (1.0 + 1e-9);
                if is_full {
                    full.push(flow);
                }
                !is_full
            });
            for flow in full {
                rates[flow] = lowest;
                for (number, weight) in flows[flow].uses() {
                    self.left[number] -= weight * lowest;
                }
            }
        }
    }
}

impl Flow {
    fn uses(&self) -> impl Iterator<Item = (usize, f64)> {
        let all = self.passes.into_iter().zip(self.weights);
        all.filter(|(number, _)| *number != NOTHING)
            .map(|(number, weight)| (number as usize, f64::from(weight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(limit: f64, passes: &[u32]) -> Flow {
        let mut all = [NOTHING; 4];
        all[..passes.len()].copy_from_slice(passes);
        Flow { limit, passes: all, weights: [1.0; 4] }
    }

    fn rates(flows: &[Flow], capacities: &[f64]) -> Vec<f64> {
        let mut rates = Vec::new();
        Sharing::default().rates(flows, capacities.len(), |number| capacities[number], &mut rates);
        rates
    }

    #[test]
    fn a_flow_limited_elsewhere_leaves_its_share_to_the_others() {
        // The textbook's example: three flows on one link, one of them held up on another.
        let flows = [flow(10.0, &[0]), flow(10.0, &[0, 1]), flow(10.0, &[0]), flow(10.0, &[1])];
        assert_eq!(rates(&flows, &[3.0, 1.0]), [1.25, 0.5, 1.25, 0.5]);
    }

    #[test]
    fn no_flow_is_faster_than_alone() {
        assert_eq!(rates(&[flow(1.0, &[0]), flow(9.0, &[0])], &[4.0]), [1.0, 3.0]);
        assert_eq!(rates(&[flow(7.0, &[])], &[]), [7.0]);
        assert_eq!(rates(&[flow(7.0, &[0])], &[f64::INFINITY]), [7.0]);
    }

    #[test]
    fn no_capacity_is_overrun_and_everybody_is_held_by_one() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let capacities: Vec<f64> = (0..5).map(|_| 1.0 + random(100) as f64).collect();
            let flows: Vec<Flow> = (0..1 + random(12))
                .map(|_| flow(1.0 + random(60) as f64, &[random(5) as u32]))
                .collect();
            let rates = rates(&flows, &capacities);
            let used = |number: u32| -> f64 {
                let uses = |(flow, _): &(&Flow, &f64)| flow.passes.contains(&number);
                flows.iter().zip(&rates).filter(uses).map(|(_, rate)| rate).sum()
            };
            for (flow, rate) in flows.iter().zip(&rates) {
                let number = flow.passes[0];
                let capacity = capacities[number as usize];
                assert!(used(number) <= capacity * 1.000_001);
                let is_full = used(number) > capacity * 0.999_999;
                assert!(is_full || *rate >= flow.limit * 0.999_999, "{flow:?} at {rate}");
            }
        }
    }
}
