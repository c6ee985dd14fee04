//! The share of a reference that an allreduce reaches, over message size, one line per algorithm.
//!
//! A reference is measured with each row: the time of a kernel with the reads and writes of an
//! allreduce, on the same threads without synchronisation, or the time in which cores pass each
//! other a cache line, whichever is longer. All rows of a size share the shortest of theirs, so that a
//! higher share is a shorter time. It is not a bound: an allreduce can be faster. Each number of ranks is
//! a panel, and all panels have the same axes.

use crate::axis::Axis;
use crate::line::Line;
use crate::relative::{Panel, Relative};
use crate::rows::{Estimate, Row, Rows};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "roofline", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    SHARE.sheets(rows, view)
}

static SHARE: Relative = Relative {
    title: "Share of the reference that an allreduce reaches, by message size",
    of: reference_us,
    shown: share,
    needed: "size_bytes, time_us_p50 and bound_us",
    least_lines: 1,
    axis: |shares, from, to| Axis::shares(100.0, shares, from, to),
    axis_title: "share of the reference (%)",
    mark: Some((100.0, "reference", 160.0)),
    finding,
    note: "Reference: a kernel with the memory reads and writes of an allreduce, on the same threads without \
           synchronisation, or the time in which cores pass each other a cache line, whichever is longer: the shortest of \
           all rows of a size. It is not a bound. Intervals are those of the time.",
};

/// The reference of a row alone, in microseconds.
fn reference_us(row: &Row) -> Option<f64> {
    row.bound_us.filter(|reference| *reference > 0.0)
}

/// The share of a reference that a row reaches, in percent. Its interval is that of the time.
fn share(row: &Row, reference_us: f64) -> Estimate {
    let share = |time: f64| Some(100.0 * reference_us / Some(time).filter(|time| *time > 0.0)?);
    Estimate {
        value: row.time_us.value.and_then(share),
        interval: row.time_us.interval.and_then(|(low, high)| share(high).zip(share(low))),
    }
}

/// The finding of the picture in a sentence.
fn finding(panels: &[Panel]) -> String {
    let each = panels.iter().filter_map(|panel| Some((panel, Line::highest(&panel.lines)?)));
    let highest = each.max_by(|(_, (_, a)), (_, (_, b))| a.value.total_cmp(&b.value));
    highest.map_or(String::new(), |(panel, (line, point))| {
        let share = theme::significant(point.value, 2);
        let (algorithm, size) = (&line.algorithm, theme::bytes(point.size));
        let layout = if panels.len() == 1 { String::new() } else { format!(" ({})", panel.layout) };
        format!("Highest: {share} % of the reference with {algorithm} at {size}{layout}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::synthetic::{self, message, step};

    fn row(algorithm: &str, size: f64, reference: &str, time: &str) -> synthetic::Row {
        let row = message("allreduce", algorithm, size).with("bound_us", reference);
        let (low, high) = ("time_us_p50_low", "time_us_p50_high");
        row.with("time_us_p50", time).with(low, "").with(high, "")
    }

    fn sizes(algorithm: &str, powers: std::ops::Range<i32>) -> Vec<synthetic::Row> {
        powers.map(|power| message("allreduce", algorithm, 2f64.powi(power))).collect()
    }

    fn on(ranks: &str, rows: &[synthetic::Row]) -> Vec<synthetic::Row> {
        let spread = |row: &synthetic::Row| row.with("ranks", ranks).with("nodes", ranks);
        rows.iter().map(|row| spread(row).with("local_size", "1")).collect()
    }

    #[test]
    fn the_share_is_reference_over_time_and_its_interval_that_of_the_time() {
        let timed = row("ring", 1024.0, "10", "40")
            .with("time_us_p50_low", "20")
            .with("time_us_p50_high", "50");
        let rows = Rows::of(&synthetic::table(&[timed]));
        let row = rows.of_kind("allreduce").next().expect("there is one");
        assert_eq!(share(row, 10.0), Estimate { value: Some(25.0), interval: Some((20.0, 50.0)) });
    }

    /// The reference beside `tree` is shorter, and holds for both.
    #[test]
    fn rows_of_a_size_share_a_reference() {
        let words =
            FIGURE.words(&[row("ring", 1024.0, "30", "40"), row("tree", 1024.0, "10", "50")]);
        assert!(words.contains("Highest: 25 % of the reference with ring at 1 KiB."), "{words}");
    }

    #[test]
    fn the_finding_has_the_highest_share_and_the_caption_defines_the_reference() {
        let rows = [row("ring", 65536.0, "10", "40"), row("tree", 1024.0, "10", "12.5")];
        let words = FIGURE.words(&rows);
        assert!(words.contains("Highest: 80 % of the reference with tree at 1 KiB. ring tree "));
        for word in ["100 share of the reference (%) reference ", "message size", "64 KiB"] {
            assert!(words.contains(word), "{word} in {words}");
        }
        let caption = "Reference: a kernel with the memory reads and writes of an allreduce, on \
                       the same threads without synchronisation";
        assert!(words.contains(caption) && words.contains("In place. Lines only"), "{words}");
        assert!(words.contains("Median without interval; 30 samples per point."), "{words}");
    }

    #[test]
    fn numbers_of_ranks_are_panels_and_other_conditions_pictures() {
        let ring = sizes("ring", 10..20);
        let rows = [on("16", &ring), on("2", &ring), on("4", &ring)].concat();
        let drawing = FIGURE.drawing(&rows);
        let titles = drawing.texts().into_iter().filter(|text| text.bold && text.at.1 > 200.0);
        let titles: Vec<&str> = titles.map(|text| text.words.as_str()).take(3).collect();
        let panels = ["2 ranks = 2 nodes × 1", "4 ranks = 4 nodes × 1", "16 ranks = 16 nodes × 1"];
        assert_eq!(titles, panels);
        let said = FIGURE.words(&rows);
        assert!(said.contains("; 2 ranks = 2 nodes × 1 and 4 ranks = 4 nodes × 1 and 16 ranks"));
        assert!(said.contains("oversubscribed: more ranks than cores"), "{said}");

        let other =
            |column, value| -> Vec<_> { ring.iter().map(|row| row.with(column, value)).collect() };
        for (column, value) in
            [("dtype", "float64"), ("op", "sum"), ("transport", "mpi"), ("segment_bytes", "0")]
        {
            let rows = [ring.clone(), other(column, value)].concat();
            assert_eq!(FIGURE.drawings(&rows).len(), 2, "{column}");
        }
    }

    #[test]
    fn in_place_goes_before_out_of_place_within_a_panel() {
        let inside = row("ring", 1024.0, "10", "40");
        let outside = row("ring", 1024.0, "10", "20").with("in_place", "false");
        let said = FIGURE.words(&[inside.clone(), outside.clone()]);
        assert!(said.contains("Highest: 25 %") && said.contains("In place."), "{said}");
        let said = FIGURE.words(&[on("2", &[outside]), on("4", &[inside])].concat());
        assert!(said.contains("Highest: 50 %"), "{said}");
        assert!(said.contains("In place where rows for that exist"), "{said}");
    }

    #[test]
    fn wrong_rows_and_rows_without_a_reference_are_counted_and_no_points() {
        let wrong = row("tree", 1024.0, "10", "10").with("status", "wrong");
        let bare = row("swing", 1024.0, "", "10");
        let none = row("bine", 1024.0, "10", "0");
        let drawing = FIGURE.drawing(&[row("ring", 1024.0, "10", "40"), wrong, bare, none]);
        let said = drawing.prose();
        assert!(said.contains("Highest: 25 % of the reference with ring"), "{said}");
        let left_out = "3 cases left out: 2 without a value (bine, swing), 1 wrong (tree).";
        assert!(said.contains(left_out), "{said}");
        let said = said.replace(left_out, "");
        let discs = drawing.marks.iter().filter(|mark| matches!(mark, Mark::Disc { .. }));
        assert_eq!(discs.count(), 2, "the legend's and the point's");
        assert!(!["tree", "swing", "bine"].iter().any(|name| said.contains(name)), "{said}");
    }

    #[test]
    fn a_share_above_the_reference_stays_within_the_frame() {
        let said =
            FIGURE.words(&[row("ring", 1024.0, "30", "20"), row("ring", 2048.0, "10", "20")]);
        assert!(said.contains("Highest: 150 % of the reference"), "{said}");
    }

    #[test]
    fn many_algorithms_sizes_and_numbers_of_ranks_fit() {
        let names = ["ring", "tree", "double-tree", "hierarchical", "hierarchical:tree", "swing"];
        let more = ["recursive-doubling", "halving-doubling", "grouped", "parameter-server"];
        let all = names.iter().chain(&more).flat_map(|name| sizes(name, 2..31));
        let all: Vec<_> = all.collect();
        FIGURE.drawing(&all);
        FIGURE.drawing(&[on("2", &all), on("4", &all), on("8", &all), on("64", &all)].concat());
    }

    #[test]
    fn rows_without_a_reference_are_refused_with_a_reason() {
        let reason = "no row of kind `allreduce`; `kolo bench --out FILE` writes them";
        let step = step("ring", "coordinator", 64.0, 5.0).with("bound_us", "9");
        assert_eq!(FIGURE.refusal(&[step, message("message", "ring", 8.0)]), reason);
        assert_eq!(
            FIGURE.refusal(&[row("ring", 8.0, "", "10"), row("ring", 16.0, "0", "10")]),
            "no row of kind `allreduce` has status ok and size_bytes, time_us_p50 and bound_us; \
             2 cases left out: 2 without a value"
        );
    }
}
