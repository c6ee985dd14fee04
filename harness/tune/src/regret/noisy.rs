//! A surface seen through noise.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{Config, Known, Noise};
use crate::surface::{BlockError, Observed, Surface};
use results::error::RecordError;

/// A surface seen through noise.
pub struct Noisy<'k> {
    known: &'k Known,
    config: &'k Config,
    random: ChaCha8Rng,
    drift: f64,
    /// Blocks so far.
    pub used: usize,
}

impl<'k> Noisy<'k> {
    pub(super) fn new(known: &'k Known, config: &'k Config, random: ChaCha8Rng) -> Noisy<'k> {
        Noisy { known, config, random, drift: 0.0, used: 0 }
    }

    fn normal(&mut self, deviation: f64) -> f64 {
        let value: f64 = StandardNormal.sample(&mut self.random);
        value * deviation
    }
}

impl Surface for Noisy<'_> {
    fn block(&mut self, setting: usize) -> Result<Result<Observed, BlockError>, RecordError> {
        self.used += 1;
        let Noise { drift, memory, block, disturbed, disturbance, cost } = self.config.noise;
        let innovation = self.normal(drift * (1.0 - memory * memory).sqrt());
        self.drift = memory * self.drift + innovation;
        let own = self.normal(block);
        let mut factor = (self.drift + own).exp();
        if self.random.random_bool(disturbed) {
            factor *= self.random.random_range(1.0..disturbance);
        }
        // A block shows what its messages cost: as large as the threshold lets them be, and smaller ones; without
        // fusion those of every gradient.
        let known = self.known;
        let case = &known.plan.cases[setting].case;
        let sizes = known.plan.workload.gradients.iter();
        let sizes: Vec<f64> = sizes.map(|gradient| 4.0 * gradient.elements() as f64).collect();
        let (all, largest): (f64, f64) =
            (sizes.iter().sum(), sizes.iter().copied().fold(0.0, f64::max));
        let full = (case.fusion_threshold_bytes as f64).clamp(largest, all.max(largest));
        let fused = vec![full, full / 2.0, largest];
        let mut messages = Vec::new();
        for size in if case.fusion_threshold_bytes == 0 { sizes } else { fused } {
            let noise = self.normal(cost).exp();
            messages.push((size, known.data.time(size).at_s * noise));
        }
        let negotiation_s = known.negotiation_s[setting] * self.normal(cost).exp();
        let step_s = known.times[setting] * factor;
        Ok(Ok(Observed { step_s, messages, negotiation_s, core_to_core_ns: Vec::new() }))
    }

    fn blocks_left(&self) -> usize {
        self.config.blocks.saturating_sub(self.used)
    }
}
