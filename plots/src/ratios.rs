//! Ratios of step times that a caller computed: what `kolo tune` saves, and how two runs differ.

/// A ratio of two times with its 95 % interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// What is compared, such as a setting or a case.
    pub name: String,
    /// The ratio; above 0.
    pub value: f64,
    /// The ends of its interval, if there is one.
    pub interval: Option<(f64, f64)>,
}

/// Where the times of ratios come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// Whether nodes were emulated, or ranks shared cores.
    pub is_doubtful: bool,
    /// Conditions and provenance, in sentences.
    pub words: String,
}

impl Origin {
    /// For captions: `MEASURED`, and what limits it.
    pub(crate) fn stamp(&self) -> String {
        let doubt =
            if self.is_doubtful { " · emulated nodes, or ranks that share cores" } else { "" };
        format!("MEASURED{doubt}")
    }
}

/// What a recommended setting saves over others.
#[derive(Debug, Clone, PartialEq)]
pub struct Gains {
    /// The recommended setting.
    pub recommended: String,
    /// Step time of each other setting over that of the recommended one.
    pub others: Vec<Ratio>,
    /// Where the times come from.
    pub origin: Origin,
}

/// How the times of one run differ from those of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The two runs.
    pub runs: [String; 2],
    /// The share that does not matter.
    pub threshold: f64,
    /// Time in the second run over that in the first, a case each.
    pub cases: Vec<Ratio>,
    /// The runs took turns, block by block.
    pub interleaved: bool,
    /// Where the times come from.
    pub origin: Origin,
}
