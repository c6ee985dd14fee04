//! Broken lines, which the backends do not have.

use plotters::style::RGBColor;

use crate::drawing::{Drawing, Point};

/// Alternating lengths of strokes and gaps in pixels. An empty pattern is a solid line.
pub(crate) type Pattern = &'static [f64];

/// The pattern of lines that are no data: bounds, ideals, assumptions.
pub(crate) const DASHES: Pattern = &[18.0, 12.0];

/// Patterns that differ without colour.
const PATTERNS: [Pattern; 6] = [
    &[],
    &[30.0, 10.0],
    &[7.0, 8.0],
    &[26.0, 8.0, 6.0, 8.0],
    &[14.0, 7.0],
    &[26.0, 7.0, 5.0, 7.0, 5.0, 7.0],
];

/// The pattern of the n-th line in a legend.
pub(crate) fn pattern(index: usize) -> Pattern {
    PATTERNS[index % PATTERNS.len()]
}

impl Drawing {
    /// Draws a dashed straight line.
    pub fn dashes(&mut self, from: Point, to: Point, color: RGBColor, width: f64) {
        self.broken(&[from, to], color, width, DASHES);
    }

    /// Draws a line through points in a pattern that continues around corners.
    pub fn broken(&mut self, points: &[Point], color: RGBColor, width: f64, pattern: Pattern) {
        self.broken_from(0.0, points, color, width, pattern);
    }

    /// The same with a pattern that begins so many pixels after its begin. Lines at the same place with different begins
    /// are seen beside each other.
    pub fn broken_from(
        &mut self,
        begin: f64,
        points: &[Point],
        color: RGBColor,
        width: f64,
        pattern: Pattern,
    ) {
        if pattern.is_empty() {
            return self.line(points, color, width);
        }
        let (mut index, mut left) = (0, pattern[0]);
        let mut before = begin;
        while before >= left {
            before -= left;
            index = (index + 1) % pattern.len();
            left = pattern[index];
        }
        left -= before;
        let mut stroke: Vec<Point> = Vec::new();
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let along = |distance: f64| {
                let part = distance / length;
                (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part)
            };
            let mut done = 0.0;
            while done < length {
                let next = (done + left).min(length);
                if index % 2 == 0 {
                    if stroke.is_empty() {
                        stroke.push(along(done));
                    }
                    stroke.push(along(next));
                }
                left -= next - done;
                done = next;
                // Rounding can leave a tiny rest of a stroke, which would never end.
                if left < 1e-6 {
                    if index % 2 == 0 {
                        self.line(&std::mem::take(&mut stroke), color, width);
                    }
                    index = (index + 1) % pattern.len();
                    left = pattern[index];
                }
            }
        }
        if !stroke.is_empty() {
            self.line(&stroke, color, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::theme;

    fn strokes(points: &[Point], pattern: Pattern) -> Vec<Vec<Point>> {
        let mut drawing = Drawing::default();
        drawing.broken(points, theme::INK, 3.0, pattern);
        let of = |mark| match mark {
            Mark::Line { points, .. } => points,
            mark => panic!("{mark:?}"),
        };
        drawing.marks.into_iter().map(of).collect()
    }

    #[test]
    fn dashes_go_on_around_corners() {
        let corner = [(0.0, 0.0), (10.0, 0.0), (10.0, 20.0)];
        assert_eq!(
            strokes(&corner, &[6.0, 2.0]),
            [
                vec![(0.0, 0.0), (6.0, 0.0)],
                vec![(8.0, 0.0), (10.0, 0.0), (10.0, 4.0)],
                vec![(10.0, 6.0), (10.0, 12.0)],
                vec![(10.0, 14.0), (10.0, 20.0)],
            ]
        );
        assert_eq!(strokes(&corner, &[]), [corner.to_vec()]);
    }

    #[test]
    fn a_pattern_begins_anywhere() {
        let mut drawing = Drawing::default();
        drawing.broken_from(7.0, &[(0.0, 0.0), (10.0, 0.0)], theme::INK, 3.0, &[6.0, 2.0]);
        let Mark::Line { points, .. } = &drawing.marks[0] else { panic!("{:?}", drawing.marks) };
        assert_eq!(*points, [(1.0, 0.0), (7.0, 0.0)]);
    }

    #[test]
    fn points_at_one_place_and_none_give_no_stroke() {
        assert!(strokes(&[(1.0, 1.0), (1.0, 1.0)], DASHES).is_empty());
        assert!(strokes(&[], DASHES).is_empty());
    }

    #[test]
    fn patterns_differ() {
        for index in 0..PATTERNS.len() {
            assert!(PATTERNS[..index].iter().all(|other| *other != pattern(index)));
        }
    }
}
