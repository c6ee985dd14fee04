//! What a tuner tried, which a caller read from its log.

/// A setting and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// In MiB; 0: no fusion.
    pub fusion_threshold_mib: f64,
    /// In milliseconds.
    pub cycle_time_ms: f64,
    /// What else was on and off, in words.
    pub switches: String,
    /// Microseconds for a million bytes.
    pub us_per_mb: f64,
}

/// The settings that a tuner tried, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Trials {
    /// The log.
    pub name: String,
    /// In the order of the log; at least one.
    pub tried: Vec<Trial>,
    /// What the tuner settled on; none if the log ends before.
    pub answer: Option<Trial>,
}

impl Trial {
    /// The setting in words.
    pub(crate) fn setting(&self) -> String {
        let threshold = crate::theme::threshold(self.fusion_threshold_mib * crate::theme::MIB);
        format!("{threshold}, {} ms, {}", crate::theme::tick(self.cycle_time_ms), self.switches)
    }
}

impl Trials {
    /// The one with the shortest time.
    pub(crate) fn best(&self) -> Option<&Trial> {
        self.tried.iter().min_by(|a, b| a.us_per_mb.total_cmp(&b.us_per_mb))
    }
}
