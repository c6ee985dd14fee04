//! A training step as stretches of time, which a caller read from a timeline.

/// What a stretch of time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// The forward pass.
    Forward,
    /// The backward pass, during which gradients become ready.
    Backward,
    /// The optimizer.
    Optimizer,
    /// The control plane.
    Negotiation,
    /// An operation on tensors that is under way, with its waiting.
    Operation,
    /// Copying into and out of the fusion buffer.
    Packing,
    /// Moving and combining.
    Allreduce,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// What it was spent on.
    pub activity: Activity,
    /// Its beginning, in milliseconds from the beginning of the step.
    pub begin_ms: f64,
    /// Its end, in the same unit.
    pub end_ms: f64,
}

/// A row of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Its name, such as `rank 0, messages`.
    pub name: String,
    /// What happened in it. Stretches may overlap.
    pub stretches: Vec<Stretch>,
}

/// A training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// The case, or the file.
    pub name: String,
    /// Which step it is, in words.
    pub step: String,
    /// How long it took, in milliseconds.
    pub time_ms: f64,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
}

impl Timeline {
    /// The stretches of some activities in all lanes, joined where they overlap or touch.
    pub(crate) fn joined(&self, activities: &[Activity]) -> Vec<(f64, f64)> {
        let all = self.lanes.iter().flat_map(|lane| &lane.stretches);
        joined(all.filter(|stretch| activities.contains(&stretch.activity)))
    }
}

impl Lane {
    /// The stretches of an activity, joined where they overlap or touch.
    pub(crate) fn joined(&self, activity: Activity) -> Vec<(f64, f64)> {
        joined(self.stretches.iter().filter(|stretch| stretch.activity == activity))
    }
}

fn joined<'a>(stretches: impl Iterator<Item = &'a Stretch>) -> Vec<(f64, f64)> {
    let mut ends: Vec<(f64, f64)> =
        stretches.map(|stretch| (stretch.begin_ms, stretch.end_ms)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (begin, end) in ends {
        match joined.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

/// The length of joined stretches outside others, which are joined, too.
pub(crate) fn outside(stretches: &[(f64, f64)], others: &[(f64, f64)]) -> f64 {
    let overlap = |one: &(f64, f64)| {
        let with = |other: &(f64, f64)| (one.1.min(other.1) - one.0.max(other.0)).max(0.0);
        others.iter().map(with).sum::<f64>()
    };
    stretches.iter().map(|one| one.1 - one.0 - overlap(one)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_overlap_or_touch_are_one() {
        let stretch = |begin_ms, end_ms| Stretch { activity: Activity::Packing, begin_ms, end_ms };
        let lane = Lane {
            name: String::new(),
            stretches: vec![
                stretch(5.0, 6.0),
                stretch(1.0, 3.0),
                stretch(2.0, 2.5),
                stretch(3.0, 4.0),
            ],
        };
        assert_eq!(lane.joined(Activity::Packing), [(1.0, 4.0), (5.0, 6.0)]);
        assert_eq!(lane.joined(Activity::Forward), []);
        assert_eq!(outside(&[(0.0, 4.0), (6.0, 8.0)], &[(1.0, 2.0), (3.0, 7.0)]), 3.0);
    }
}
