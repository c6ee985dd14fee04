//! Bus bandwidth over message size, one line per algorithm.
//!
//! Bus bandwidth scales an allreduce's time by what a bandwidth-optimal algorithm must move, so that
//! numbers of ranks compare with one another and with a link's speed. Allreduces alone and the fused
//! messages of training steps are different experiments and get a picture each. The lines between
//! points only lead the eye; nothing is known of sizes between.

use std::collections::BTreeSet;

use crate::axis::Axis;
use crate::caption::Caption;
use crate::drawing::Drawing;
use crate::page::{Entry, Page, SIGN};
use crate::rows::{Row, Rows};
use crate::selection::Selection;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "bus_bandwidth", sheets };

/// The kinds of rows, and what the picture of each shows.
const KINDS: [(&str, &str); 2] = [
    ("allreduce", "Bus bandwidth of an allreduce alone, by message size"),
    ("message", "Bus bandwidth of fused messages in training steps, by message size"),
];

fn sheets(rows: &Rows) -> Vec<Sheet> {
    let mut pictures = Vec::new();
    for (kind, title) in KINDS {
        let selections = Selection::of(rows, kind, |row| {
            vec![
                row.algorithm.clone(),
                row.groups.clone(),
                format!("{:?} {:?}", row.in_place, row.size_bytes),
            ]
        });
        for mut selection in selections {
            selection.require(|row| Point::of(row).is_some());
            let lines = Line::all(&mut selection);
            pictures.push(Picture { kind, title, selection, lines });
        }
    }
    if pictures.is_empty() {
        let reason = "no row of kind `allreduce` or `message`; run a sweep of message sizes";
        return vec![Sheet::Skipped { reason: reason.to_string() }];
    }
    // An algorithm looks the same in every picture, so that one can leaf between them.
    let lines = pictures.iter().flat_map(|picture| &picture.lines);
    let names: BTreeSet<String> = lines.map(|line| line.algorithm.clone()).collect();
    for line in pictures.iter_mut().flat_map(|picture| &mut picture.lines) {
        line.style = names.iter().take_while(|name| **name < line.algorithm).count();
    }
    pictures.into_iter().map(Picture::sheet).collect()
}

/// What one sheet will show.
struct Picture<'a> {
    kind: &'static str,
    title: &'static str,
    selection: Selection<'a>,
    lines: Vec<Line>,
}

impl Picture<'_> {
    fn sheet(self) -> Sheet {
        let Picture { kind, title, selection, lines } = self;
        if lines.is_empty() {
            let needed = "both size_bytes and busbw_gb_s";
            return Sheet::Skipped { reason: selection.nothing_to_draw(kind, needed) };
        }
        let drawing = draw(&lines, &selection, title);
        let suffix = match selection.suffix.as_str() {
            "" => kind.to_string(),
            suffix => format!("{kind}_{suffix}"),
        };
        Sheet::Drawn { suffix, drawing }
    }
}

struct Point {
    size: f64,
    bandwidth: f64,
    interval: Option<(f64, f64)>,
}

impl Point {
    fn of(row: &Row) -> Option<Point> {
        let (bandwidth, interval) = (row.busbw_gb_s.value?, row.busbw_gb_s.interval);
        Some(Point { size: row.size_bytes.filter(|size| *size > 0.0)?, bandwidth, interval })
    }
}

/// An algorithm and its points, by size.
struct Line {
    algorithm: String,
    /// Its colour and marker.
    style: usize,
    points: Vec<Point>,
}

impl Line {
    /// One line per algorithm. Where it ran in place and out of place, the latter leaves the
    /// selection: a line must not mix them, and in place is what training does.
    fn all(selection: &mut Selection) -> Vec<Line> {
        let mut names: Vec<String> =
            selection.rows.iter().map(|row| selection.algorithm(row)).collect();
        names.sort();
        names.dedup();
        let mut lines = Vec::new();
        let mut kept = Vec::new();
        for name in names {
            let mut rows = selection.rows.clone();
            rows.retain(|row| selection.algorithm(row) == name);
            if rows.iter().any(|row| row.in_place == Some(true)) {
                rows.retain(|row| row.in_place == Some(true));
            }
            let mut points: Vec<Point> = rows.iter().filter_map(|row| Point::of(row)).collect();
            points.sort_by(|a, b| a.size.total_cmp(&b.size));
            lines.push(Line { algorithm: name, style: 0, points });
            kept.extend(rows);
        }
        selection.rows = kept;
        lines
    }
}

fn draw(lines: &[Line], selection: &Selection, title: &str) -> Drawing {
    const LEFT: f64 = 190.0;
    const HEIGHT: f64 = 860.0;
    let mut page = Page::new(title, &finding(lines));
    let entries: Vec<_> = lines.iter().map(entry).collect();
    page.legend(&entries);

    let (top, right) = (page.y + 16.0, theme::WIDTH - theme::MARGIN - 20.0);
    let bottom = top + HEIGHT;
    let points = || lines.iter().flat_map(|line| &line.points);
    let sizes: Vec<f64> = points().map(|point| point.size).collect();
    let ends = |point: &Point| {
        let (low, high) = point.interval.unwrap_or((point.bandwidth, point.bandwidth));
        [low, point.bandwidth, high]
    };
    let bandwidths: Vec<f64> = points().flat_map(ends).collect();
    let x = Axis::bytes(&sizes, LEFT, right);
    let y = Axis::measured(&bandwidths, bottom, top);

    x.draw_below(&mut page.drawing, top, bottom, "message size (logarithmic)");
    let title = format!("bus bandwidth (GB/s, {})", y.scale());
    y.draw_left(&mut page.drawing, LEFT, right, &title);
    for line in lines {
        let color = theme::series(line.style);
        let place = |point: &Point| (x.at(point.size), y.at(point.bandwidth));
        let path: Vec<_> = line.points.iter().map(place).collect();
        page.drawing.line(&path, color, 3.0);
        for point in &line.points {
            if let Some((low, high)) = point.interval {
                let (low, high) = (y.at(low), y.at(high));
                theme::interval(&mut page.drawing, x.at(point.size), low, high, color);
            }
            theme::marker(&mut page.drawing, line.style, place(point), theme::MARKER, false);
        }
    }
    page.drawing.frame(LEFT, top, right, bottom);
    page.y = bottom + 104.0;
    page.finish(&Caption::of(selection, |row| row.busbw_gb_s, vec![note(selection)]))
}

/// What the picture shows, in a sentence.
fn finding(lines: &[Line]) -> String {
    let all = lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)));
    let highest = all.max_by(|(_, a), (_, b)| a.bandwidth.total_cmp(&b.bandwidth));
    highest.map_or(String::new(), |(line, point)| {
        let bandwidth = theme::significant(point.bandwidth, 3);
        format!(
            "Highest: {bandwidth} GB/s with {} at {}.",
            line.algorithm,
            theme::bytes(point.size)
        )
    })
}

fn note(selection: &Selection) -> String {
    let place = match selection.rows.iter().filter(|row| row.in_place == Some(true)).count() {
        0 if selection.rows.iter().all(|row| row.in_place.is_none()) => "",
        0 => "Out of place. ",
        count if count == selection.rows.len() => "In place. ",
        _ => "In place where rows for that exist, otherwise out of place. ",
    };
    format!("{place}Lines only join the points.")
}

fn entry(line: &Line) -> Entry<'static> {
    let style = line.style;
    Entry {
        sign: Box::new(move |drawing, (x, y)| {
            let half = SIGN / 2.0;
            drawing.line(&[(x - half, y), (x + half, y)], theme::series(style), 3.0);
            theme::marker(drawing, style, (x, y), theme::MARKER, false);
        }),
        label: line.algorithm.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, message};

    fn draw(rows: &[synthetic::Row]) -> Drawing {
        let mut drawings = FIGURE.drawings(rows);
        assert_eq!(drawings.len(), 1);
        drawings.remove(0)
    }

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
        assert_eq!(strokes(&draw(&rows), 0), 2 + 4 * 3);
        rows[2] = rows[2].with("busbw_gb_s_low", "").with("busbw_gb_s_high", "");
        let drawing = draw(&rows);
        assert_eq!(strokes(&drawing, 0), 2 + 3 * 3);
        let words = drawing.words().replace('\n', " ");
        assert!(words.contains("1 of 4 points have no interval"), "{words}");
    }

    #[test]
    fn sizes_are_labelled_in_binary_units_and_algorithms_by_name() {
        let words = draw(&[sizes("ring", 16..21), sizes("tree", 16..21)].concat()).words();
        for word in ["64 KiB", "1 MiB", "ring", "tree", "GB/s", "message size"] {
            assert!(words.contains(word), "{word} in {words}");
        }
    }

    #[test]
    fn in_place_goes_before_out_of_place_and_is_said() {
        let ring = message("allreduce", "ring", 65536.0);
        let outside = ring.with("in_place", "false").with("busbw_gb_s", "9");
        let inside = ring.with("busbw_gb_s", "4");
        let words = draw(&[outside.clone(), inside]).words();
        assert!(words.contains("Highest: 4.00 GB/s with ring at 64 KiB.\n"), "{words}");
        assert!(words.contains("In place."));
        let words = draw(&[outside]).words();
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
        draw(&all.collect::<Vec<_>>());
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
