//! Bus bandwidth over message size, one line per algorithm.
//!
//! Bus bandwidth is the data that a bandwidth-optimal algorithm has to send per rank, divided by the
//! time of the allreduce. It can be compared between numbers of ranks and with the speed of a link.
//! Allreduces alone and the fused messages of training steps are different experiments and get
//! separate pictures.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::Drawing;
use crate::line::{self, Line, Point};
use crate::page::Page;
use crate::panels;
use crate::rows::{Estimate, Row, Rows};
use crate::selection::{self, Selection};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "bus_bandwidth", sheets };

/// The kinds of rows, and the title of the picture of each.
const KINDS: [(&str, &str); 2] = [
    ("allreduce", "Bus bandwidth of an allreduce alone, by message size"),
    ("message", "Bus bandwidth of fused messages in training steps, by message size"),
];

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let mut pictures = Vec::new();
    for (kind, title) in KINDS {
        for mut selection in Selection::of(rows, kind, line::case) {
            selection.require(|row| Point::of(row, bandwidth).is_some());
            selection.prefer_in_place();
            let lines = Line::all(&selection, &selection.rows, bandwidth);
            pictures.push(Picture { kind, title, selection, lines });
        }
    }
    if pictures.is_empty() {
        let kinds = KINDS.map(|(kind, _)| kind);
        let reason = selection::none(rows, &kinds, "run a sweep of message sizes");
        return vec![Sheet::Skipped { reason }];
    }
    Line::style(pictures.iter_mut().flat_map(|picture| &mut picture.lines));
    pictures.into_iter().map(|picture| picture.sheet(view)).collect()
}

/// Bus bandwidth in GB/s.
fn bandwidth(row: &Row) -> Estimate {
    row.busbw_gb_s
}

/// The content of one sheet.
struct Picture<'a> {
    kind: &'static str,
    title: &'static str,
    selection: Selection<'a>,
    lines: Vec<Line>,
}

impl Picture<'_> {
    fn sheet(self, view: View) -> Sheet {
        let Picture { kind, title, selection, lines } = self;
        if lines.is_empty() {
            let needed = "both size_bytes and busbw_gb_s";
            return Sheet::Skipped { reason: selection.nothing_to_draw(kind, needed) };
        }
        let drawing = draw(view, &lines, &selection, title);
        let suffix = match selection.suffix.as_str() {
            "" => kind.to_string(),
            suffix => format!("{kind}_{suffix}"),
        };
        Sheet::Drawn { suffix, drawing }
    }
}

fn draw(view: View, lines: &[Line], selection: &Selection, title: &str) -> Drawing {
    let mut page = Page::new(view, title, &finding(lines));
    Line::legend(&mut page, lines.iter());

    let points = || lines.iter().flat_map(|line| &line.points);
    let sizes: Vec<f64> = points().map(|point| point.size).collect();
    let bandwidths: Vec<f64> = points().flat_map(Point::span).collect();
    panels::single(&mut page, 160.0, 860.0, |drawing, frame| {
        let x = Axis::bytes(&sizes, frame.left, frame.right);
        let y = Axis::measured(&bandwidths, frame.bottom, frame.top);
        x.draw_below(drawing, frame, "message size");
        y.draw_left(drawing, frame, "bus bandwidth (GB/s)");
        for line in lines {
            line.draw(drawing, &x, &y);
        }
        frame.draw(drawing);
    });
    page.finish(&Caption::of(selection, bandwidth, vec![line::note(selection)]))
}

/// The finding of the picture in a sentence.
fn finding(lines: &[Line]) -> String {
    Line::highest(lines).map_or(String::new(), |(line, point)| {
        let bandwidth = theme::significant(point.value, 3);
        let size = theme::bytes(point.size);
        format!("Highest: {bandwidth} GB/s with {} at {size}.", line.algorithm)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, message};

    fn sizes(algorithm: &str, powers: std::ops::Range<i32>) -> Vec<synthetic::Row> {
        powers.map(|power| message("allreduce", algorithm, 2f64.powi(power))).collect()
    }

    /// Lines and bars in the colour of the n-th algorithm.
    fn strokes(drawing: &Drawing, index: usize) -> usize {
        let own = |mark: &&Mark| matches!(mark, Mark::Line { color, .. } if *color == theme::series(index));
        drawing.marks.iter().filter(own).count()
    }

    #[test]
    fn every_point_with_an_interval_has_a_bar() {
        let mut rows = sizes("ring", 10..14);
        // The legend's line, the line, and a bar of three strokes for each point.
        assert_eq!(strokes(&FIGURE.drawing(&rows), 0), 2 + 4 * 3);
        rows[2] = rows[2].with("busbw_gb_s_low", "").with("busbw_gb_s_high", "");
        let drawing = FIGURE.drawing(&rows);
        assert_eq!(strokes(&drawing, 0), 2 + 3 * 3);
        let words = drawing.prose();
        assert!(words.contains("1 of 4 points has no interval"), "{words}");
    }

    #[test]
    fn sizes_are_labelled_in_binary_units_and_algorithms_by_name() {
        let words =
            FIGURE.drawing(&[sizes("ring", 16..21), sizes("tree", 16..21)].concat()).words();
        for word in ["64 KiB", "1 MiB", "ring", "tree", "GB/s", "message size"] {
            assert!(words.contains(word), "{word} in {words}");
        }
    }

    #[test]
    fn in_place_goes_before_out_of_place_and_is_said() {
        let ring = message("allreduce", "ring", 65536.0);
        let outside = ring.with("in_place", "false").with("busbw_gb_s", "9");
        let inside = ring.with("busbw_gb_s", "4");
        let words = FIGURE.drawing(&[outside.clone(), inside]).words();
        assert!(words.contains("Highest: 4.00 GB/s with ring at 64 KiB.\n"), "{words}");
        assert!(words.contains("In place."));
        let words = FIGURE.drawing(&[outside]).words();
        assert!(words.contains("Highest: 9.00 GB/s"), "{words}");
        assert!(words.contains("Out of place."));
    }

    #[test]
    fn allreduces_alone_and_fused_messages_are_two_pictures() {
        let rows = [message("allreduce", "ring", 65536.0), message("message", "ring", 65536.0)];
        let drawings = FIGURE.drawings(&rows);
        assert_eq!(drawings.len(), 2);
        assert!(drawings[0].words().contains("an allreduce alone"));
        assert!(drawings[1].words().contains("fused messages in training steps"));
    }

    #[test]
    fn an_algorithm_looks_the_same_in_every_picture() {
        let rows = [
            message("allreduce", "grouped", 65536.0),
            message("allreduce", "ring", 65536.0),
            message("message", "ring", 65536.0),
        ];
        let drawings = FIGURE.drawings(&rows);
        assert!(strokes(&drawings[0], 0) > 0, "grouped");
        assert_eq!(strokes(&drawings[0], 1), strokes(&drawings[1], 1), "ring");
        assert_eq!(strokes(&drawings[1], 0), 0, "no grouped messages");
    }

    #[test]
    fn many_algorithms_and_all_sizes_fit() {
        let names = ["ring", "tree", "double_tree", "hierarchical", "hierarchical:tree", "swing"];
        let more = ["recursive_doubling", "halving_doubling", "grouped", "vendor"];
        let all = names.iter().chain(&more).flat_map(|name| sizes(name, 2..31));
        FIGURE.drawing(&all.collect::<Vec<_>>());
    }

    #[test]
    fn rows_without_bandwidth_are_refused_with_a_reason() {
        assert_eq!(
            FIGURE.refusal(&[]),
            "no row of kind `allreduce` or `message`; run a sweep of message sizes"
        );
        assert_eq!(
            FIGURE.refusal(&[message("message", "ring", 8.0).with("busbw_gb_s", "")]),
            "no row of kind `message` has status ok and both size_bytes and busbw_gb_s; \
             1 case left out: 1 without a value"
        );
    }
}
