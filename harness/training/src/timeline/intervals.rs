//! Sets of moments: sorted stretches of time that do not overlap.

/// A set of stretches of time, in whatever unit it was made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intervals(Vec<(f64, f64)>);

impl Intervals {
    /// The union of intervals, given by start and end in any order.
    pub fn union(stretches: impl IntoIterator<Item = (f64, f64)>) -> Intervals {
        let mut sorted: Vec<_> = stretches.into_iter().filter(|(begin, end)| begin < end).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut union: Vec<(f64, f64)> = Vec::new();
        for (begin, end) in sorted {
            match union.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => union.push((begin, end)),
            }
        }
        Intervals(union)
    }

    /// How long they are together.
    pub fn length(&self) -> f64 {
        self.0.iter().fold(0.0, |length, (begin, end)| length + (end - begin))
    }

    /// The total length of the intersection.
    pub fn overlap(&self, other: &Intervals) -> f64 {
        let (mut a, mut b, mut both) = (0, 0, 0.0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            both += (x.1.min(y.1) - x.0.max(y.0)).max(0.0);
            if x.1 < y.1 { a += 1 } else { b += 1 }
        }
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_overlaps_are_those_of_sets() {
        for (a, b, lengths, both) in [
            (vec![], vec![(0.0, 1.0)], (0.0, 1.0), 0.0),
            (vec![(0.0, 4.0)], vec![(1.0, 2.0), (3.0, 9.0)], (4.0, 7.0), 2.0),
            (vec![(5.0, 6.0), (0.0, 2.0), (1.0, 3.0)], vec![(2.0, 5.5)], (4.0, 3.5), 1.5),
            (vec![(0.0, 9.0), (2.0, 3.0)], vec![(8.0, 9.0), (0.0, 1.0)], (9.0, 2.0), 2.0),
            (vec![(0.0, 1.0), (1.0, 2.0), (7.0, 7.0)], vec![(2.0, 3.0)], (2.0, 1.0), 0.0),
        ] {
            let (a, b) = (Intervals::union(a), Intervals::union(b));
            assert_eq!((a.length(), b.length()), lengths, "{a:?} {b:?}");
            assert_eq!((a.overlap(&b), b.overlap(&a)), (both, both), "{a:?} {b:?}");
        }
    }
}
